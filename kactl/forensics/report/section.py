"""Sections of a page, independent of HTML and Markdown: headings, paragraphs, tables, pictures."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from .wording import NONE

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
    made = tuple(tuple(NONE if cell is None else _plain(cell) for cell in row) for row in rows)
    return (Table(header=tuple(header), rows=made, caption=caption),) if made else ()


def _plain(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
