"""The tables beside the events: what each file is and can tell, and which levels were logged when.

What a log does not have is as important as what it has: a broker that logs at INFO says nothing of partitions that go
offline, so whoever asks for outages asks these tables first.
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
    Column("file_id", _INT, "its number, from 0 on, in the order of paths"),
    Column("path", _TEXT, "where it was read from"),
    Column("kind", _TEXT, "what it is, by its content (event_types.Kind)"),
    Column("layout", _TEXT, "how its lines begin; see text/envelope.py"),
    Column("encoding", _TEXT, "utf-8, latin-1, utf-16"),
    Column("compression", _TEXT, "gzip, or null"),
    Column("bytes", _LONG, "its size as stored"),
    Column("broker", _INT, "the broker that wrote it; null if none is named, or several wrote it"),
    Column("version", _TEXT, "the versions of Kafka that write such lines: 2.6-3.1, 4.1+, ..."),
    Column("levels", _TEXTS, "the levels that were seen, from the finest on"),
    Column("begin", _TIME, "time of its first line that has one"),
    Column("end", _TIME, "time of its last line"),
    Column("lines", _LONG, "all of its lines"),
    Column("events", _LONG, "lines that were understood and say something, with what was joined to them"),
    Column("harmless", _LONG, "lines of controllers and brokers' state changes that are known, and say nothing"),
    Column("other", _LONG, "lines that say nothing of partitions, replicas, brokers or controllers"),
    Column("unparsed", _LONG, "lines that should have been understood and were not"),
    Column("coverage", pa.float64(), "events / (events + unparsed), 0 to 1; null if there were neither"),
    Column("controllers", _IDS, "ids of the controllers that speak or are spoken of, ascending"),
    Column("samples", _TEXTS, "the first lines that were not understood"),
    Column("warnings", _TEXTS, "what to know before one relies on it"),
    Column("error", _TEXT, "why it, or its rest, could not be read; null if all of it was"),
)
FILE_SCHEMA: Final = pa.schema([pa.field(each.name, each.type) for each in FILE_COLUMNS])

LEVEL_COLUMNS: Final = (
    Column("speaker", _INT, "the broker; null where no line says whose they are"),
    Column("kind", _TEXT, "of which kind of file (event_types.Kind)"),
    Column("role", _TEXT, "as what it spoke (event_types.Role)"),
    Column("hour", _TIME, "the hour's beginning"),
    Column("level", _TEXT, "the level"),
    Column("lines", _LONG, "how many lines of it"),
)
