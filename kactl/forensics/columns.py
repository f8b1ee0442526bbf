"""Columns of tables. Name, type, description, and title and unit in a report are declared once, here or in a job.

A job lists its columns, in order:

    COLUMNS: Final = (
        *KEY_COLUMNS,
        Column("leader", ID, "the new leader", title="new leader"),
        Column("out_ms", MS, "for how long it was out of sync", title="out of sync for"),
        Column("prev_isr", IDS, "the last ISR that was not empty", title="last in sync"),
    )

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


BOOL: Final = Type(pa.bool_(), Unit.TEXT)
INT: Final = Type(pa.int32(), Unit.NUMBER)
LONG: Final = Type(pa.int64(), Unit.NUMBER)
REAL: Final = Type(pa.float64(), Unit.NUMBER)
ID: Final = Type(pa.int32(), Unit.ID)
MS: Final = Type(pa.int64(), Unit.DURATION)
REAL_MS: Final = Type(pa.float64(), Unit.DURATION)
TIME: Final = Type(pa.timestamp("us", "UTC"), Unit.TIME)
LOCAL_TIME: Final = Type(pa.timestamp("us"), Unit.TIME)
DATE: Final = Type(pa.date32(), Unit.TEXT)
TEXT: Final = Type(pa.string(), Unit.TEXT)
IDS: Final = Type(pa.list_(pa.field("element", pa.int32())), Unit.LIST)
TEXTS: Final = Type(pa.list_(pa.field("element", pa.string())), Unit.LIST)


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


TOPIC: Final = Column("topic", TEXT, "the topic")
PARTITION: Final = Column("partition", ID, "the partition's number")
LIFE: Final = Column("life", ID, "which topic of this name; see `timed`")
# The columns that identify a partition in every table of a job, and their names.
KEY_COLUMNS: Final = (TOPIC, PARTITION, LIFE)
KEY: Final = ("topic", "partition", "life")
CONTROLLER_EPOCH: Final = Column("controller_epoch", ID, "its epoch", title="epoch")
