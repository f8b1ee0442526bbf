"""Layouts of log lines: the text around a message.

A layout has an outer part, added in transport (a container's name, a pod, syslog, `grep`), and an inner part, printed
by the logger. The layout of a file is detected from its first lines. To support another layout, add an entry below with
the groups `ts`, `level`, `prefix`, `msg` and `logger`; a group that it lacks is empty.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

_SECOND: Final = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
_TS: Final = rf"(?P<ts>{_SECOND}[,.]\d{{3}})"
# Some layouts have times without milliseconds. Lines of one second keep the order of their file.
_TS_SECONDS: Final = rf"(?P<ts>{_SECOND}(?:[,.]\d{{3}})?)"
_LEVEL: Final = r"(?P<level>[A-Z]{4,5})"
_LOGGER: Final = r"(?P<logger>[\w.$]+)(?::\d+)?"
_MESSAGE: Final = r"(?:\[(?P<prefix>[^\]]*)\][:,]? )?(?P<msg>.*)"
# Matches at no position, so that an optional group of it is always empty.
_NOTHING: Final = r"(?!)"

# As container runtimes print it, with nanoseconds and a zone.
_RECEIVED: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d) "
# Outer parts, the most common first.
OUTER: Final = {
    "": "",
    "container": rf"[\w.-]+ *\| (?:{_RECEIVED})?",  # docker compose logs
    "pod": rf"\[pod/[\w./-]+\] (?:{_RECEIVED})?",  # kubectl logs --prefix
    "received": _RECEIVED,  # docker logs --timestamps, kubectl logs --timestamps
    "cri": r"\S+ std(?:out|err) [FP] ",
    "syslog": rf"(?:\w{{3}} [ \d]\d \d\d:\d\d:\d\d |{_RECEIVED})\S+ [^\s:]+: ",
    "stern": rf"[\w.-]+ [\w.-]+ (?:{_RECEIVED})?",  # a pod and a container
    "grep": r"[^\s:|\[\]{}]+[:-](?:\d+[:-])?",  # with the names of files, with or without the numbers of lines
}
# Inner parts.
INNER: Final = {
    "standard": rf"\[{_TS}\] {_LEVEL} +{_MESSAGE} \({_LOGGER}\)\s*",
    "thread": rf"\[{_TS}\] \[{_LEVEL} *\] \[.*?\] \[{_LOGGER}\] - {_MESSAGE}\s*",
    "class-first": rf"\[{_TS}\] \({_LOGGER}\) {_LEVEL} +{_MESSAGE}\s*",
    "bare": rf"{_TS} {_LEVEL} +{_MESSAGE} \({_LOGGER}\)(?: \[[^\]]*\])?\s*",
    "level-first": rf"{_LEVEL} +\[{_TS}\] {_MESSAGE} \({_LOGGER}\)\s*",
    # Strimzi with Kafka 4.0: with or without a thread, with the last part of the logger's name.
    "dashed": rf"{_TS_SECONDS} {_LEVEL} +(?:\[.*?\] )?{_LOGGER} - {_MESSAGE}\s*",
    "piped": rf"{_TS} \| {_LEVEL} *\| \[.*?\] \| {_MESSAGE} \| {_LOGGER} \([\w.]+:\d+\)\s*",
    # Cloudera. The name is the full one: a message may also begin with a word and a colon.
    "colon": rf"{_TS} {_LEVEL} +(?P<logger>[\w$]+(?:\.[\w$]+)+): {_MESSAGE}\s*",
}
DUMP: Final = "dump"
# A dump with --skip-record-metadata: the time is on the line of the batch, before the payloads.
PAYLOADS: Final = "payloads"
KACTL: Final = "kactl"
# Lines with JSON, for `json_parser`.
JSON: Final = {
    PAYLOADS: rb" payload: (\{.*\})\s*",
    DUMP: rb"\| offset: (\d+) .*?CreateTime: (-?\d+) .*? payload: (\{.*\})\s*",
    KACTL: rb'\{"kind":"(\w+)","seq":\d+.*\}\s*',
}

# A line of a dump between the records, one for each batch.
BATCH: Final = rb"baseOffset: \d+ .*?CreateTime: (-?\d+) .*"

# Times without a day cannot be ordered across midnight or between files.
_DAYLESS: Final = re.compile(rb"\[?\d\d:\d\d:\d\d[,.]\d{3}\]? +\[?[A-Z]{4,5}\b")


GROUPS: Final = ("ts", "level", "prefix", "msg", "logger")


class Layout(NamedTuple):
    """A layout; its name is `standard` or `container/standard`, for example.

    Attributes:
        match: matches a whole line without its newline; None for a line that continues the line before.
        begin: matches the first line of a message of several lines if the logger follows the message. It has the same
            groups as `match`; the logger is empty. None if the logger precedes the message.
        end: matches the last line of such a message, with the groups `msg` and `logger`, without the outer part.
        groups: numbers of the groups ts, level, prefix, msg and logger.
        outer: the prefix to remove from lines that continue another, at their beginning.
    """

    name: str
    match: Callable[[bytes], "re.Match[bytes] | None"]
    begin: "Callable[[bytes], re.Match[bytes] | None] | None"
    end: "Callable[[bytes], re.Match[bytes] | None] | None"
    groups: tuple[int, int, int, int, int]
    outer: "re.Pattern[bytes]"


def _layout(outer: str, inner: str) -> Layout:
    before, after = INNER[inner].split(_MESSAGE)
    whole = _compiled(OUTER[outer] + INNER[inner])
    begin = end = None
    if _LOGGER in after:
        begin = _compiled(f"{OUTER[outer]}{before}{_MESSAGE}(?P<logger>{_NOTHING})?").fullmatch
        end = _compiled(f"(?:(?P<msg>.*) )?{after.removeprefix(' ')}").fullmatch
    ts, level, prefix, msg, logger = (whole.groupindex[name] for name in GROUPS)
    return Layout(
        f"{outer}/{inner}" if outer else inner,
        whole.fullmatch,
        begin,
        end,
        (ts, level, prefix, msg, logger),
        _compiled(f"^(?:{OUTER[outer]})"),
    )


def _compiled(expression: str) -> "re.Pattern[bytes]":
    return re.compile(expression.encode("ascii"))


LAYOUTS: Final = {layout.name: layout for outer in OUTER for inner in INNER for layout in (_layout(outer, inner),)}
_JSON: Final = {name: re.compile(expression) for name, expression in JSON.items()}
_BATCH: Final = re.compile(BATCH)


def detect(lines: Sequence[bytes]) -> str | None:
    """Returns the name of the layout of most lines; None if no layout matches.

    One matching line in a hundred is enough, because a stack trace may fill most of a sample.
    """
    best, most = None, len(lines) // 100
    batches = sum(_BATCH.fullmatch(line) is not None for line in lines)
    for name, expression in _JSON.items():
        matching = sum(expression.fullmatch(line) is not None for line in lines)
        # Half of the lines of a dump are of batches if each batch has one record.
        around = 0 if name == KACTL else min(batches, matching)
        if matching + around > max(most, len(lines) // 2):
            return name
    for name, layout in LAYOUTS.items():
        matching = sum(layout.match(line) is not None for line in lines)
        if matching > most:
            best, most = name, matching
        if matching * 2 > len(lines):
            break
    return best


def is_dayless(lines: Sequence[bytes]) -> bool:
    """Returns whether most lines have a time without a day."""
    return sum(_DAYLESS.match(line) is not None for line in lines) * 2 > len(lines)
