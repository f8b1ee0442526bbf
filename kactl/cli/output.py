"""What goes to stdout: aligned columns for people, JSON for programs.

JSON is the API's own, never the table's. A table has a header, one row to a line, and as much space between columns
as they need; no lines are broken, and colour is only used on a terminal.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from kactl.runtime.escaping import harmless as harmless

GAP: Final = "  "
NONE: Final = "-"

# How cells are coloured on a terminal; never the only sign of anything.
GOOD: Final[dict[str, Any]] = {"fg": "green"}
BAD: Final[dict[str, Any]] = {"fg": "red", "bold": True}
WARN: Final[dict[str, Any]] = {"fg": "yellow"}
PLAIN: Final[dict[str, Any]] = {}

Cell = str | int | tuple[str, Mapping[str, Any]]


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """The lines of a table; a cell may come with its colour. Columns of numbers are aligned to the right."""
    kept = [[_split(cell) for cell in row] for row in rows]
    names = list(map(harmless, header))
    widths = [max(len(name), *(len(row[at][0]) for row in kept), 0) for at, name in enumerate(names)]
    right = [_is_numeric([row[at][0] for row in kept]) for at in range(len(names))]
    lines = [_line([(name, {"bold": True}) for name in names], widths, right)]
    return lines + [_line(row, widths, right) for row in kept]


def pairs(values: Iterable[tuple[str, Cell]]) -> list[str]:
    """One name and value to a line."""
    kept = [(name, _split(cell)) for name, cell in values]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"{click.style(name.ljust(width), bold=True)}{GAP}{click.style(text, **how)}" for name, (text, how) in kept]


def print_lines(lines: Iterable[str]) -> None:
    """To stdout; without colour unless it is a terminal."""
    text = "\n".join(lines)
    if text:
        click.echo(text)


def print_json(value: Any) -> None:
    """One document, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_jsonl(values: Iterable[Any]) -> None:
    """One document to a line."""
    for value in values:
        click.echo(msgspec.json.encode(value))


def numbers(values: Iterable[int]) -> str:
    """Broker ids as Kafka's tools write them: 1,2,3."""
    return ",".join(map(str, values)) or NONE


def broker(leader: int) -> str:
    """A leader; a dash for none."""
    return NONE if leader < 0 else str(leader)


def moment(time_ms: int | None) -> str:
    """Wall-clock time, local and with its offset, to the millisecond."""
    if time_ms is None:
        return NONE
    at = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).astimezone()
    return at.isoformat(sep=" ", timespec="milliseconds")


def time_of_day(time_ms: int) -> str:
    """The same without the day: 12:01:07.250."""
    at = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).astimezone()
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def duration(took_ms: float) -> str:
    """'4ms', '1.5s', '00:01:12', '3d 04h'."""
    if took_ms < 1000:
        return f"{took_ms:.0f}ms"
    if took_ms < 60_000:
        return f"{took_ms / 1000:.1f}s"
    seconds = int(took_ms / 1000)
    if seconds < 86_400:
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{seconds // 86_400}d {seconds // 3600 % 24:02}h"


def count(number: int, thing: str) -> str:
    """'1 partition', '1,000 partitions'."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _split(cell: Cell) -> tuple[str, Mapping[str, Any]]:
    text, how = cell if isinstance(cell, tuple) else (str(cell), PLAIN)
    return harmless(text), how


def _is_numeric(column: Sequence[str]) -> bool:
    """Whether there are numbers, and nothing else but dashes for none."""
    numbers_ = [text for text in column if text != NONE]
    return bool(numbers_) and all(text.isdecimal() for text in numbers_)


def _line(cells: Sequence[tuple[str, Mapping[str, Any]]], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = []
    last = len(cells) - 1
    for at, (text, how) in enumerate(cells):
        room = " " * (widths[at] - len(text))
        shown = click.style(text, **how) if how else text
        aligned.append(room + shown if right[at] else shown + (room if at < last else ""))
    return GAP.join(aligned)
