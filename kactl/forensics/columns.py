"""Columns of tables. Name, type, description, and title and unit in a report are declared once, here or in a job.

A job lists its columns in order as text (`columns`): the name, the type, the title in a report if it is not the name
with blanks, and the description. A name alone stands for a column that several tables share.

    leader    id   [new leader] the new leader
    out_ms    ms   [out of sync for] for how long it was out of sync
    prev_isr  ids  [last in sync] the last ISR that was not empty; a description may continue
                   on the next line
    controller_epoch

The rest is derived from that list: the schema of the Parquet files (`schema`), the names to select (`names_of`), the
rows of `kactl forensics sql --tables` and of docs/forensics.md, and the tables of a report. A report picks the columns
that it shows. It takes headers from `Column.header`, and formats values by `Column.unit`:

    columns = pick(unclean.COLUMNS, "leader", "out_ms", "prev_isr")
    header = [column.header for column in columns]
    rows = [[cell(column, getattr(row, column.name)) for column in columns] for row in values]

where `cell` is the report's one function from a unit and a value to text. A cell of a report that is made of several
columns, such as the name of a partition (`KEY_COLUMNS`), is not a column and is written where it is shown.
"""

import enum
import re
import textwrap
from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa


class Unit(enum.Enum):
    """Meaning of a value, which determines its text in a report."""

    NUMBER = enum.auto()  # with separators: 1,204
    ID = enum.auto()  # of a broker, an epoch or a file: no separators, -1 is none
    DURATION = enum.auto()  # milliseconds: 7 min 40 s
    TIME = enum.auto()  # in the report's zone
    LIST = enum.auto()  # 1, 2 and 3
    TEXT = enum.auto()  # as it is


class Type(NamedTuple):
    """Type of a column: as stored, and as shown in a report."""

    arrow: pa.DataType
    unit: Unit


TIME: Final = Type(pa.timestamp("us", "UTC"), Unit.TIME)
TYPES: Final = {
    "bool": Type(pa.bool_(), Unit.TEXT),
    "int": Type(pa.int32(), Unit.NUMBER),
    "long": Type(pa.int64(), Unit.NUMBER),
    "real": Type(pa.float64(), Unit.NUMBER),
    "id": Type(pa.int32(), Unit.ID),
    "ms": Type(pa.int64(), Unit.DURATION),
    "real_ms": Type(pa.float64(), Unit.DURATION),
    "time": TIME,
    "local_time": Type(pa.timestamp("us"), Unit.TIME),
    "date": Type(pa.date32(), Unit.TEXT),
    "text": Type(pa.string(), Unit.TEXT),
    "ids": Type(pa.list_(pa.field("element", pa.int32())), Unit.LIST),
    "texts": Type(pa.list_(pa.field("element", pa.string())), Unit.LIST),
}


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        description: meaning, with the unit; shown to users.
        title: header in a report, if it is not the name with blanks.
    """

    name: str
    kind: Type
    description: str
    title: str = ""

    @property
    def type(self) -> pa.DataType:
        return self.kind.arrow

    @property
    def unit(self) -> Unit:
        return self.kind.unit

    @property
    def header(self) -> str:
        return self.title or self.name.replace("_", " ")


SHARED: Final = {
    column.name: column
    for column in (
        Column("topic", TYPES["text"], "the topic"),
        Column("partition", TYPES["id"], "the partition's number"),
        Column("life", TYPES["id"], "which topic of this name; see `timed`"),
        Column("controller_epoch", TYPES["id"], "its epoch", title="epoch"),
    )
}
# The columns that identify a partition in every table of a job.
KEY: Final = ("topic", "partition", "life")
KEY_COLUMNS: Final = tuple(SHARED[name] for name in KEY)
# The name of a column, then its type, its title in brackets, and its description.
_DECLARED: Final = re.compile(r"(\w+)(?: (\w+) (?:\[(.+?)\] )?(.+))?")


def columns(text: str, **types: Type) -> tuple[Column, ...]:
    """Return the columns that a text lists; see the module. Lines that begin with a number sign are comments.

    Args:
        types: further types, by name.

    Raises:
        KeyError: a type, or the name of a shared column, does not exist.
        ValueError: an entry has another form.
    """
    known, listed = TYPES | types, []
    for entry in re.split(r"\n(?! )", textwrap.dedent(text).strip()):
        match = _DECLARED.fullmatch(" ".join(entry.split()))
        if match is not None:
            name, kind, title, description = match.groups(default="")
            listed.append(Column(name, known[kind], description, title) if kind else SHARED[name])
        elif not entry.startswith("#"):
            raise ValueError(f"{entry!r} is no column: write name, type, [title] and description")
    return tuple(listed)


def names_of(columns: Iterable[Column]) -> list[str]:
    """Return the names of columns."""
    return [column.name for column in columns]


def schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def pick(columns: Iterable[Column], *wanted: str) -> tuple[Column, ...]:
    """Return the columns of these names, in this order. Raises KeyError for a name that does not occur."""
    by_name = {column.name: column for column in columns}
    return tuple(by_name[name] for name in wanted)
