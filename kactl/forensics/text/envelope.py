"""How lines begin and end: the layout around the message.

A layout is something outside, put there by whatever carried the line (a container's name, a pod, syslog), and what the
logger itself printed. The first lines of a file decide which it is. Another layout is one more entry below; its groups
are `ts`, `level`, `prefix`, `msg`, `logger`; one that a layout lacks is an empty group.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

_TS: Final = r"(?P<ts>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d{3})"
_LEVEL: Final = r"(?P<level>[A-Z]{4,5})"
_LOGGER: Final = r"(?P<logger>[\w.$]+)(?::\d+)?"
_MESSAGE: Final = r"(?:\[(?P<prefix>[^\]]*)\][:,]? )?(?P<msg>.*)"

# What stands outside; with the most common first.
OUTER: Final = {
    "": "",
    "container": r"[\w.-]+ *\| ",
    "pod": r"\[pod/[\w./-]+\] ",
    "cri": r"\S+ std(?:out|err) [FP] ",
    "syslog": r"\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:]+: ",
}
# What the logger prints.
INNER: Final = {
    "standard": rf"\[{_TS}\] {_LEVEL} +{_MESSAGE} \({_LOGGER}\)\s*",
    "thread": rf"\[{_TS}\] \[{_LEVEL} *\] \[.*?\] \[{_LOGGER}\] - {_MESSAGE}\s*",
    "class-first": rf"\[{_TS}\] \({_LOGGER}\) {_LEVEL} +{_MESSAGE}\s*",
    "bare": rf"{_TS} {_LEVEL} +{_MESSAGE} \({_LOGGER}\)(?: \[[^\]]*\])?\s*",
    "level-first": rf"{_LEVEL} +\[{_TS}\] {_MESSAGE} \({_LOGGER}\)\s*",
}
DUMP: Final = "dump"
KACTL: Final = "kactl"
# These carry JSON and have a reader of their own.
JSON: Final = {
    DUMP: rb"\| offset: (\d+) .*?CreateTime: (-?\d+) .*? payload: (\{.*\})\s*",
    KACTL: rb'\{"kind":"(\w+)","seq":\d+.*\}\s*',
}

# Where times are without a day nothing can be said about order over midnight, nor between files.
_DAYLESS: Final = re.compile(rb"\[?\d\d:\d\d:\d\d[,.]\d{3}\]? +\[?[A-Z]{4,5}\b")


GROUPS: Final = ("ts", "level", "prefix", "msg", "logger")


class Layout(NamedTuple):
    """One of them, by name: `standard`, or `container/standard`.

    Attributes:
        match: of a whole line without its newline; None for one that continues the line before.
        groups: numbers of ts, level, prefix, msg and logger.
        outer: what to take from the front of lines that continue another.
    """

    name: str
    match: Callable[[bytes], "re.Match[bytes] | None"]
    groups: tuple[int, int, int, int, int]
    outer: "re.Pattern[bytes]"


def _layout(outer: str, inner: str) -> Layout:
    expression = re.compile((OUTER[outer] + INNER[inner]).encode("ascii"))
    ts, level, prefix, msg, logger = (expression.groupindex[name] for name in GROUPS)
    return Layout(
        f"{outer}/{inner}" if outer else inner,
        expression.fullmatch,
        (ts, level, prefix, msg, logger),
        re.compile(OUTER[outer].encode("ascii")),
    )


LAYOUTS: Final = {made.name: made for outer in OUTER for inner in INNER for made in (_layout(outer, inner),)}
_JSON: Final = {name: re.compile(expression) for name, expression in JSON.items()}


def detect(lines: Sequence[bytes]) -> str | None:
    """The name of the layout that most lines have; None if none has any.

    A stack trace may be longer than everything else in a sample, so that one line in a hundred is enough.
    """
    best, most = None, len(lines) // 100
    for name, expression in _JSON.items():
        if sum(expression.fullmatch(line) is not None for line in lines) > max(most, len(lines) // 2):
            return name
    for name, layout in LAYOUTS.items():
        matching = sum(layout.match(line) is not None for line in lines)
        if matching > most:
            best, most = name, matching
        if matching * 2 > len(lines):
            break
    return best


def is_dayless(lines: Sequence[bytes]) -> bool:
    """Whether times have no day."""
    return sum(_DAYLESS.match(line) is not None for line in lines) * 2 > len(lines)
