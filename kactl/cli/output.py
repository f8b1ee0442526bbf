"""Output on stdout: aligned columns for users, JSON and YAML for programs.

These have the fields of the API, not of the table. A table has a header, one line per row, and columns of the width
that they need. Lines are not wrapped, and colour is used on a terminal only.
"""

import datetime
import errno
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from kactl.runtime.escaping import harmless as harmless
from kactl.runtime.escaping import harmless_json, harmless_lines
from kactl.runtime.plural import count as count

from .exits import Failure

# Formats for programs.
DATA: Final = frozenset({"json", "jsonl", "yaml"})
_UNWRITTEN: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
GAP: Final = "  "
NONE: Final = "-"

# Styles of cells on a terminal. Colour is never the only indication.
GOOD: Final[dict[str, Any]] = {"fg": "green"}
BAD: Final[dict[str, Any]] = {"fg": "red", "bold": True}
WARN: Final[dict[str, Any]] = {"fg": "yellow"}
PLAIN: Final[dict[str, Any]] = {}

# Colours, which `click.style` adds. Tables remove them from the text of cells before.
_STYLE: Final = re.compile("(\x1b\\[[0-9;]*m)")

Cell = str | int | tuple[str, Mapping[str, Any]]


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Returns the lines of a table. A cell may have a style. Columns of numbers are aligned to the right."""
    cells = [[_split(cell) for cell in row] for row in rows]
    names = list(map(harmless, header))
    widths = [max(len(name), *(len(row[column][0]) for row in cells), 0) for column, name in enumerate(names)]
    right = [_is_numeric([row[column][0] for row in cells]) for column in range(len(names))]
    lines = [_line([(name, {"bold": True}) for name in names], widths, right)]
    return lines + [_line(row, widths, right) for row in cells]


def pairs(values: Iterable[tuple[str, Cell]]) -> list[str]:
    """Returns one line for each name and value."""
    cells = [(name, _split(cell)) for name, cell in values]
    width = max((len(name) for name, _ in cells), default=0)
    return [
        f"{click.style(harmless(name).ljust(width), bold=True)}{GAP}{click.style(text, **style)}"
        for name, (text, style) in cells
    ]


def _write(text: str | bytes, *, err: bool = False, nl: bool = True) -> None:
    try:
        click.echo(text, err=err, nl=nl)
    except OSError as error:
        if err or error.errno not in _UNWRITTEN:
            raise
        # What remains in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Failure(f"the output cannot be written ({error.strerror}): name another file, or free space") from None


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text without colours. Every output of a command is by this function or one of those below."""
    _write(harmless_lines(text), err=err, nl=nl)


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines to stdout, or to stderr; without colour unless it is a terminal."""
    text = "\n".join(lines)
    if text:
        _write("".join(map(_styled, _STYLE.split(text))), err=err)


def _styled(part: str) -> str:
    return part if _STYLE.fullmatch(part) else harmless_lines(part)


def print_json(value: Any) -> None:
    """Print one indented document."""
    _write(harmless_json(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def print_data(form: str, document: Any, lines: Iterable[Any] | None = None) -> None:
    """Print a document in one of the formats `DATA`.

    Args:
        lines: the documents of the single lines of `jsonl`; by default the document itself.
    """
    if form == "jsonl":
        print_jsonl([document] if lines is None else lines)
    elif form == "yaml":
        print_yaml(document)
    else:
        print_json(document)


def print_yaml(value: Any) -> None:
    """Print one document with the keys and values of JSON. Other characters than those of ASCII are escaped."""
    import yaml

    plain = msgspec.to_builtins(value, str_keys=True)
    text = yaml.safe_dump(plain, sort_keys=False, default_flow_style=False, width=120, explicit_start=True)
    _write(text.rstrip("\n"))


def print_jsonl(values: Iterable[Any]) -> None:
    """Print one document per line."""
    for value in values:
        _write(harmless_json(msgspec.json.encode(value)))


def numbers(values: Iterable[int]) -> str:
    """Returns broker ids as Kafka's tools write them: 1,2,3."""
    return ",".join(map(str, values)) or NONE


def broker(leader: int) -> str:
    """Returns a leader; a dash for none."""
    return NONE if leader < 0 else str(leader)


def moment(time_ms: int | None) -> str:
    """Returns local wall-clock time with its offset, to the millisecond."""
    if time_ms is None:
        return NONE
    local = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).astimezone()
    return local.isoformat(sep=" ", timespec="milliseconds")


def time_of_day(time_ms: int) -> str:
    """Returns the local time without the date: 12:01:07.250."""
    local = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03}"


def duration(took_ms: float) -> str:
    """Returns '4ms', '1.5s', '00:01:12', '3d 04h'."""
    if took_ms < 1000:
        return f"{took_ms:.0f}ms"
    if took_ms < 60_000:
        return f"{took_ms / 1000:.1f}s"
    seconds = int(took_ms / 1000)
    if seconds < 86_400:
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{seconds // 86_400}d {seconds // 3600 % 24:02}h"


def _split(cell: Cell) -> tuple[str, Mapping[str, Any]]:
    text, style = cell if isinstance(cell, tuple) else (str(cell), PLAIN)
    return harmless(text), style


def _is_numeric(column: Sequence[str]) -> bool:
    """Returns whether a column has only numbers and dashes, and at least one number."""
    numbers_ = [text for text in column if text != NONE]
    return bool(numbers_) and all(text.isdecimal() for text in numbers_)


def _line(row: Sequence[tuple[str, Mapping[str, Any]]], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = []
    last = len(row) - 1
    for index, (text, style) in enumerate(row):
        padding = " " * (widths[index] - len(text))
        styled = click.style(text, **style) if style else text
        aligned.append(padding + styled if right[index] else styled + (padding if index < last else ""))
    return GAP.join(aligned)
