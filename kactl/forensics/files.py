"""Tables of files and log levels: kind, period and coverage of each file, and the levels that were logged in each hour.

Missing lines matter as much as present ones: a broker that logs at INFO does not log that partitions go offline. Jobs
that compute outages therefore read these tables first.
"""

from typing import Final

import pyarrow as pa

from .events import Column

_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_TEXTS: Final = pa.list_(pa.field("element", pa.string()))
_IDS: Final = pa.list_(pa.field("element", pa.int32()))
_TIME: Final = pa.timestamp("us", "UTC")

FILE_COLUMNS: Final = (
    Column("file_id", _INT, "its number, starting at 0, in the order of paths"),
    Column("path", _TEXT, "the path it was read from"),
    Column("kind", _TEXT, "its kind, by its content (event_types.Kind)"),
    Column("layout", _TEXT, "the layout of its lines; see text/envelope.py"),
    Column("encoding", _TEXT, "utf-8, latin-1, utf-16"),
    Column("compression", _TEXT, "gzip, or null"),
    Column("bytes", _LONG, "its size as stored"),
    Column("broker", _INT, "the broker that wrote it; null if none is named, or if several wrote it"),
    Column("version", _TEXT, "the versions of Kafka that write such lines: 2.6-3.1, 4.1+, ..."),
    Column("levels", _TEXTS, "the levels that occur, the most detailed first"),
    Column("begin", _TIME, "time of its first line that has one"),
    Column("end", _TIME, "time of its last line"),
    Column("lines", _LONG, "number of lines"),
    Column("events", _LONG, "lines that became events, with the lines joined to them"),
    Column("harmless", _LONG, "known lines of controller and state-change loggers without information"),
    Column("other", _LONG, "lines that are not about partitions, replicas, brokers or controllers"),
    Column("unparsed", _LONG, "relevant lines that match no known format"),
    Column("coverage", pa.float64(), "events / (events + unparsed), 0 to 1; null if there were neither"),
    Column("controllers", _IDS, "ids of the controllers that wrote or are named in it, ascending"),
    Column("samples", _TEXTS, "the first lines that match no known format"),
    Column("warnings", _TEXTS, "limits of the file as evidence"),
    Column("error", _TEXT, "why it, or the rest of it, could not be read; null if all of it was"),
)
FILE_SCHEMA: Final = pa.schema([pa.field(column.name, column.type) for column in FILE_COLUMNS])

LEVEL_COLUMNS: Final = (
    Column("speaker", _INT, "the broker; null if no line names it"),
    Column("kind", _TEXT, "kind of the files (event_types.Kind)"),
    Column("role", _TEXT, "role of the writer (event_types.Role)"),
    Column("hour", _TIME, "beginning of the hour"),
    Column("level", _TEXT, "the level"),
    Column("lines", _LONG, "number of lines"),
)
