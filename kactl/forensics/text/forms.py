"""The table of forms of log lines: layouts of loggers, and what programs add to lines on their way.

A form is one entry with its example. `find` removes what was added, which may be several entries around each other, and
tries the layouts; entries are tried in order. To support another form, add an entry here and its line in
tests/forensics/golden_forms.py. Lines in JSON have a table of their own, in `json_lines`.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from . import pattern

# Layouts as conversion patterns; see `pattern`. An example is a line with the message MESSAGE.
LAYOUTS: Final = {
    "standard": "[%d] %-5p %m (%c)",
    "thread": "[%d] [%-5p] [%t] [%c] - %m",
    "class-first": "[%d] (%c) %-5p %m",
    "bare-thread": "%d %-5p %m (%c) [%t]",
    "bare": "%d %-5p %m (%c)",
    "level-first": "%-5p [%d] %m (%c)",
    "level-bracket": "[%d] [%-5p] %m (%c)",
    "spring": "%d %5p %pid --- [%t] %-40c : %m",
    "confluent": "[%-5p] %d [%t] %c %M - %notEmpty{%X - }%m",
    "thread-first": "%d [%t] %-5p %c - %m",
    "thread-first-colon": "%d [%t] %-5p %c: %m",
    "dashed-thread": "%d %-5p [%t] %c - %m",
    "dashed": "%d %-5p %c - %m",
    "thread-colon": "%d %-5p [%t] %c: %m",
    "piped": "%d | %-5p | [%t] | %m | %c (%F:%L)",
    "bracket-dashed": "[%d] %-5p [%t] %c - %m",
    "bracket-all": "[%d] [%-5p] [%c] %m",
    "bracket-logger": "[%d] [%-5p] %c - %m",
    "bracket-thread-first": "[%d] [%t] %-5p %c - %m",
    "bracket-three": "[%d][%-5p][%c] %m",
    "colon": "%d %-5p %c: %m",
    "hadoop": "%d{yy/MM/dd HH:mm:ss} %-5p %c{1}: %m",
}
_SECOND: Final = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
# As programs print the time at which they received a line.
_RECEIVED: Final = rf"{_SECOND}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d) "
_RECEIVED_MAYBE: Final = f"(?:{_RECEIVED})?"
_HOST: Final = r"(?P<stream>[\w.-]+ [^\s:\[]+)(?:\[\d+\])?: "
# What is added before lines. `stream` names the writer: lines without a time are joined to its last record.
ENVELOPES: Final = {
    "container": rf"(?P<stream>[\w.@-]+) *\| {_RECEIVED_MAYBE}",  # docker compose and swarm
    "cri": r"\S+ (?P<stream>std(?:out|err)) [FP] ",  # files of container runtimes
    "rfc5424": r"(?:<\d+>)?1 \S+ (?P<stream>\S+ \S+) \S+ \S+ (?:-|\[.*?\]) (?:\xef\xbb\xbf)?",
    # Syslog, and journalctl with -o short, short-precise, short-iso, short-iso-precise, short-full, short-monotonic,
    # short-unix or with-unit.
    "syslog": (
        r"(?:<\d+>)?(?:\w{3} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? |(?:\w{3} )?" + rf"{_SECOND}(?:[.,]\d+)?"
        rf"(?: ?(?:[+-]\d\d:?\d\d|[A-Z]{{1,5}}))? |\[ *\d+\.\d+\] |\d{{10}}\.\d+ ){_HOST}"
    ),
    "journal": r"\s*MESSAGE=",  # journalctl -o verbose and export
    "gh": rf"[^\t]+\t(?P<stream>[^\t]+)\t(?:\xef\xbb\xbf)?{_RECEIVED_MAYBE}",  # gh run view --log
    "fluentd": (
        rf"{_SECOND}\.\d+ [+-]\d{{4}} (?P<stream>[\w.-]+): |(?P<tag>[\w.-]+)\t[^\t]*\t|{_SECOND}\S+\t(?P<by>[\w.-]+)\t"
    ),
    "received": _RECEIVED,  # docker logs --timestamps, GitHub Actions
    "pod": rf"\[(?P<stream>(?:pod/)?[\w./-]+(?: [\w./-]+)?)\] {_RECEIVED_MAYBE}",  # kubectl --prefix, kubetail, podman
    "kail": r"(?P<stream>[\w.-]+/[\w.-]+\[[\w.-]+\]): ",
    "host": r"(?P<stream>[\w.-]+): ",  # pdsh, ansible, dsh
    # With names of files, and with or without the numbers of lines.
    "grep": (r"(?P<stream>[^\s:|\[\]{}]+:|(?:(?!\d{4}-\d\d-\d\d[T ])[^\s:|\[\]{}])+-)(?:(?!\d{4}-\d\d-)\d+[:-])?"),
    "stern": rf"(?P<stream>[\w.-]+ [\w.-]+) {_RECEIVED_MAYBE}",  # a pod and a container
    "podman": rf"(?P<stream>[\w.-]+) {_RECEIVED_MAYBE}",  # podman logs --names
    "paste": r"(?:[>|] ?|[ \t]+|\d+[:.|]?[ \t]+)+",  # quotes, indents and numbers of lines
}
_DEPTH_MAX: Final = 3
# A time within the first characters, without which no layout matches.
_MAY_BEGIN: Final = re.compile(rb"[^\n]{0,200}?(?:\d\d:\d\d:\d\d|\b\d{10}(?:\d{3})?\b)")
GROUPS: Final = ("ts", "level", "prefix", "msg", "logger", "zone", "stream")
# ts, level, prefix, message, logger, zone, stream
Fields = tuple[bytes | None, ...]


class Form(NamedTuple):
    """A layout with what is added before it.

    Attributes:
        match: matches a whole line without its newline; None for a line that continues another one.
        begin: matches the first line of a message of several lines if the logger follows the message. It has the same
            groups as `match`; the logger is empty. None if the logger precedes the message.
        end: matches the last line of such a message, with the groups `msg` and `logger`, without what is added.
        groups: numbers of the groups GROUPS.
        outer: matches what is added, for lines that continue another.
        is_dated: whether the date has groups of its own, from which `fields` makes the time.
    """

    name: str
    match: Callable[[bytes], "re.Match[bytes] | None"]
    begin: "Callable[[bytes], re.Match[bytes] | None] | None"
    end: "Callable[[bytes], re.Match[bytes] | None] | None"
    groups: tuple[int, ...]
    outer: "re.Pattern[bytes]"
    is_dated: bool

    def fields(self, match: "re.Match[bytes]") -> Fields:
        found = match.group(*self.groups)
        return (*_dated(match), *found[1:]) if self.is_dated else found

    def stream_of(self, line: bytes) -> tuple[bytes | None, bytes]:
        """Return the stream of a line that continues another one, and the rest of the line."""
        match = self.outer.match(line)
        return (None, line) if match is None else (match["stream"], line[match.end() :])


def _dated(match: "re.Match[bytes]") -> tuple[bytes]:
    year, month, day, hour, minute, second, fraction, epoch = (
        part and part.decode() for part in match.group(*pattern.DATE)
    )
    if epoch:
        import datetime

        moment = datetime.datetime.fromtimestamp(int(epoch[:10]), datetime.UTC)
        return (f"{moment:%Y-%m-%d %H:%M:%S},{epoch[10:] or '000'}".encode(),)
    month = month if month in (None, "") or month.isdigit() else f"{pattern.MONTHS.index(month) + 1:02}"
    year = year if len(year or "") == 4 else f"20{year}"
    time = f"{year}-{month:>02}-{day:>02} {hour:>02}:{minute or '00'}:{second or '00'},{(fraction or '0')[:3]:<03}"
    return (time.encode(),)


def _form(envelopes: tuple[str, ...], layout: str, conversion: str) -> Form:
    before = "".join(f"(?:{ENVELOPES[name]})" for name in envelopes)
    inner = pattern.expression(conversion)
    before = re.sub(r"\(\?P<(?:tag|by)>", "(?:", before)
    outer = pattern._without_repeated_groups(
        before if "(?P<stream>" in before else rf"{before}(?P<stream>{pattern.NOTHING})?"
    )
    whole = _compiled(outer + inner)
    begin = end = None
    head, _, tail = inner.partition(pattern.MESSAGE)
    if pattern.LOGGER in tail:
        begin = _compiled(f"{outer}{head}{pattern.MESSAGE}(?P<logger>{pattern.NOTHING})?").fullmatch
        last = re.sub(r"\(\?P<(?!logger>)\w+>", "(?:", tail.removeprefix(" "))
        end = _compiled(f"(?:(?P<msg>.*) )?{last}").fullmatch
    groups = tuple(whole.groupindex[name] for name in GROUPS)
    return Form(
        "/".join((*envelopes, layout)), whole.fullmatch, begin, end, groups, _compiled(outer), r"(?P<ts>(?!))?" in inner
    )


def _compiled(expression: str) -> "re.Pattern[bytes]":
    return re.compile(expression.encode())


class Forms:
    """The forms that are tried: those of `--layout` before those of the table."""

    def __init__(self, patterns: Sequence[str] = (), expected: Sequence[str] = ()) -> None:
        """
        Args:
            patterns: conversion patterns that are tried before the layouts of the table.
            expected: names of forms that the lines are expected to have.

        Raises:
            pattern.UnknownPattern: a pattern cannot be read.
        """
        self._layouts = {**{f"--layout {number}": each for number, each in enumerate(patterns, 1)}, **LAYOUTS}
        self._known: dict[tuple[str, ...], Form] = {}
        self._has_patterns = bool(patterns)
        for conversion in patterns:
            _layout(conversion)
        named = [name.split("/") for name in expected]
        self.expected = [self._form(tuple(parts[:-1]), parts[-1], self._layouts[parts[-1]]) for parts in named]

    def find(self, line: bytes) -> Form | None:
        """Return the first form that matches a line."""
        if not self._has_patterns and _MAY_BEGIN.match(line) is None:
            return None
        level: list[tuple[tuple[str, ...], bytes]] = [((), line)]
        for _ in range(_DEPTH_MAX + 1):
            for envelopes, rest in level:
                for layout, conversion in self._layouts.items():
                    if _layout(conversion)(rest) is not None:
                        form = self._form(envelopes, layout, conversion)
                        if form.match(line) is not None:
                            return form
            level = [
                ((*envelopes, name), rest[match.end() :])
                for envelopes, rest in level
                for name, envelope in _envelopes()
                if (match := envelope.match(rest)) is not None and match.end()
            ]
        return None

    def _form(self, envelopes: tuple[str, ...], layout: str, conversion: str) -> Form:
        key = (*envelopes, layout)
        if key not in self._known:
            self._known[key] = _form(envelopes, layout, conversion)
        return self._known[key]


@functools.cache
def _layout(conversion: str) -> Callable[[bytes], "re.Match[bytes] | None"]:
    return _compiled(pattern.expression(conversion)).fullmatch


@functools.cache
def _envelopes() -> tuple[tuple[str, "re.Pattern[bytes]"], ...]:
    return tuple((name, _compiled(expression)) for name, expression in ENVELOPES.items())
