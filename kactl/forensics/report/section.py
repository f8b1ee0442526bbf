"""Sections of a page, independent of HTML and Markdown: headings, paragraphs, tables, pictures."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from kactl.forensics.columns import Column, Unit, pick
from kactl.forensics.wording import NONE, Moments, duration, known_id, known_name, listed

# Cells that are aligned to the right: numbers, also with units: 1,204, 37 %, 7 min 40 s.
_NUMERIC: Final = re.compile(rf"(?:under |over )?[+-]?[\d.,]+ ?(?:%|ms|s|min|h|d)?(?: \d+ (?:s|min|h))?|{NONE}")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Cells are plain texts; markup in them has no effect."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    @property
    def right(self) -> tuple[bool, ...]:
        """Returns for each column whether it contains only numbers."""
        return tuple(
            any(cell != NONE for cell in column) and all(_NUMERIC.fullmatch(cell) for cell in column)
            for column in zip(*self.rows, strict=True)
        )


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A generated SVG, and its alternative text."""

    svg: str
    caption: str


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One section.

    Attributes:
        name: target of links.
        level: of its heading: 2 for a part of the report, 3 below it.
    """

    name: str
    title: str
    level: int = 2
    paragraphs: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> tuple[Table, ...]:
    """Returns a table, or none without rows; None is printed as a dash."""
    texts = tuple(tuple(NONE if cell is None else _plain(cell) for cell in row) for row in rows)
    return (Table(header=tuple(header), rows=texts, caption=caption),) if texts else ()


def _plain(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


# -- tables of values with declared columns ----------------------------------------------------------------------------

# Header of a column, and the function from a value to its cell.
Field = tuple[str, Callable[[Any], object]]
# Of values with topic, partition and life.
PARTITION: Final[Field] = ("partition", lambda value: known_name(value.topic, value.partition, value.life))


def field_table(fields: Sequence[Field], values: Iterable[Any], caption: str = "") -> tuple[Table, ...]:
    """Returns a table with a row for each value, or none without values."""
    rows = ([cell(value) for _, cell in fields] for value in values)
    return table([header for header, _ in fields], rows, caption)


def fields(columns: Iterable[Column], moments: Moments, *names: str) -> list[Field]:
    """Returns the fields of declared columns, for values whose attributes have the names of the columns."""
    return [_field(column, moments) for column in pick(columns, *names)]


def _field(column: Column, moments: Moments) -> Field:
    formats: dict[Unit, Callable[[Any], object]] = {
        Unit.ID: known_id,
        Unit.DURATION: duration,
        Unit.TIME: moments.full,
        Unit.LIST: lambda value: listed(value) or None,
    }
    show, name = formats.get(column.unit), column.name
    return column.header, lambda value: getattr(value, name) if show is None else show(getattr(value, name))
