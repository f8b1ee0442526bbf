"""Tables of files and log levels: kind, period and coverage of each file, and the levels that were logged in each hour.

Missing lines matter as much as present ones: a broker that logs at INFO does not log that partitions go offline. Jobs
that compute outages therefore read these tables first.
"""

from typing import Final

from .columns import ID, IDS, LONG, REAL, TEXT, TEXTS, TIME, Column, schema

FILE_COLUMNS: Final = (
    Column("file_id", ID, "its number, starting at 0, in the order of paths"),
    Column("path", TEXT, "the path it was read from"),
    Column("kind", TEXT, "its kind, by its content (event_types.Kind)"),
    Column("layout", TEXT, "the layout of its lines; see text/envelope.py"),
    Column("encoding", TEXT, "utf-8, latin-1, utf-16"),
    Column("compression", TEXT, "gzip, or null"),
    Column("bytes", LONG, "its size as stored"),
    Column("broker", ID, "the broker that wrote it; null if none is named, or if several wrote it"),
    Column("version", TEXT, "the versions of Kafka that write such lines: 2.6-3.1, 4.1+, ..."),
    Column("levels", TEXTS, "the levels that occur, the most detailed first"),
    Column("begin", TIME, "time of its first line that has one"),
    Column("end", TIME, "time of its last line"),
    Column("lines", LONG, "number of lines"),
    Column("events", LONG, "lines that became events, with the lines joined to them"),
    Column("harmless", LONG, "known lines of controller and state-change loggers without information"),
    Column("other", LONG, "lines that are not about partitions, replicas, brokers or controllers"),
    Column("unparsed", LONG, "relevant lines that match no known format"),
    Column("coverage", REAL, "events / (events + unparsed), 0 to 1; null if there were neither"),
    Column("controllers", IDS, "ids of the controllers that wrote or are named in it, ascending"),
    Column("samples", TEXTS, "the first lines that match no known format"),
    Column("warnings", TEXTS, "limits of the file as evidence"),
    Column("error", TEXT, "why it, or the rest of it, could not be read; null if all of it was"),
)
FILE_SCHEMA: Final = schema(FILE_COLUMNS)

LEVEL_COLUMNS: Final = (
    Column("speaker", ID, "the broker; null if no line names it"),
    Column("kind", TEXT, "kind of the files (event_types.Kind)"),
    Column("role", TEXT, "role of the writer (event_types.Role)"),
    Column("hour", TIME, "beginning of the hour"),
    Column("level", TEXT, "the level"),
    Column("lines", LONG, "number of lines"),
)
