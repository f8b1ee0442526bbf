"""Parquet writer for tasks: each task writes the events of its splits to one folder per kind and day.

Spark's own writer converts every value twice, which costs as much as parsing the log. A task returns the names of its
files at its end, with the counters of their events. Files of failed attempts are not returned by any task and are
removed.

The counters are some hundred rows per file, computed by the task that writes the events. File reports need sets of
values and sums per hour. They are slow to collect from all events and fast to collect from the counters, and the events
are not read a second time.
"""

import uuid
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from .columns import TIME
from .event_types import EventType
from .events import PARTITIONED_BY, SCHEMA
from .storage import Location

_KEYS: Final = ("file_id", "type", "format", "level", "speaker", "role", "controller", "hour", "reason")
# `part` is the path of the Parquet file below the events folder; `hour` is the beginning of the hour; `reason` is set
# for `broken` only; `lines` and `rows` are sums; `took_ms` is the maximum.
COUNTER_SCHEMA: Final = pa.schema(
    [
        pa.field("part", pa.string()),
        pa.field("kind", pa.string()),
        *(SCHEMA.field(name) for name in _KEYS[:-2]),
        pa.field("hour", TIME.arrow),
        pa.field("reason", pa.string()),
        pa.field("lines", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("begin", TIME.arrow),
        pa.field("end", TIME.arrow),
        pa.field("took_ms", pa.int64()),
    ]
)
# Spark's name for the partition folder of rows without a day.
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
# Rows per row group: enough for good compression, and some tens of megabytes.
ROWS_AT_ONCE: Final = 128 * 1024
# A task reads logs of a few days. A log whose clock jumps over more days gets several files per day.
OPEN_LIMIT: Final = 32
_COMPRESSION: Final = "zstd"


class EventWriter:
    """Writer of the Parquet files of one task.

    Args:
        folder: parent of the folders for kinds and days.
    """

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._open: dict[tuple[str, str], _OpenFile] = {}
        self._task = uuid.uuid4().hex[:12]
        self._made = 0
        self._counted: list[pa.Table] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Append events, all of one kind."""
        days = batch.column(PARTITIONED_BY[1])
        kind = str(batch.column(PARTITIONED_BY[0])[0])
        for day in pc.unique(days):
            rows = batch if len(pc.unique(days)) == 1 else batch.filter(_is(days, day))
            self._part(kind, NO_DAY if day.as_py() is None else str(day)).add(rows.select(SCHEMA.names))

    def close(self) -> pa.Table:
        """Write the buffered rows and close all files. Returns the counters, with file names relative to the folder."""
        while self._open:
            self._close_one()
        return pa.concat_tables([COUNTER_SCHEMA.empty_table(), *self._counted])

    def _part(self, kind: str, day: str) -> "_OpenFile":
        part = self._open.get((kind, day))
        if part is None:
            if len(self._open) >= OPEN_LIMIT:
                self._close_one()
            name = f"kind={kind}/day={day}/part-{self._task}-{self._made:05}.parquet"
            part = self._open[kind, day] = _OpenFile(self._folder / name, name, kind)
            self._made += 1
        return part

    def _close_one(self) -> None:
        self._counted += self._open.pop(next(iter(self._open))).close()


def write_table(rows: pa.Table, folder: Location) -> None:
    """Write a table of few rows as one file of a folder."""
    with (folder / "part-00000.parquet").create() as file:
        parquet.write_table(rows, file, compression=_COMPRESSION)


class _OpenFile:
    """Open Parquet file of one kind and day."""

    def __init__(self, place: Location, name: str, kind: str) -> None:
        self._name, self._kind = name, kind
        self._counted: list[pa.Table] = []
        self._file = place.create()
        self._writer: Any = parquet.ParquetWriter(self._file, SCHEMA, compression=_COMPRESSION)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROWS_AT_ONCE:
            self._write()

    def close(self) -> list[pa.Table]:
        """Write the buffered rows and close the file. Returns the counters of all rows written."""
        self._write()
        self._writer.close()
        self._file.close()
        return self._counted

    def _write(self) -> None:
        if self._rows:
            table = pa.Table.from_batches(self._waiting, SCHEMA)
            self._writer.write_table(table, row_group_size=self._rows)
            self._counted.append(count_events(table, part=self._name, kind=self._kind))
        self._waiting, self._rows = [], 0


# -- counters ----------------------------------------------------------------------------------------------------------


def count_events(events: pa.Table, *, part: str, kind: str) -> pa.Table:
    """Return the counters, in `COUNTER_SCHEMA`, of events of one kind that are written to one file."""
    columns = {name: events[name] for name in (*_KEYS[:-2], "lines", "ts", "took_ms")}
    columns["hour"] = pc.floor_temporal(events["ts"], unit="hour")
    is_broken = pc.equal(events["type"], EventType.BROKEN)
    columns["reason"] = pc.if_else(is_broken, events["reason"], pa.scalar(None, pa.string()))
    sums: list[Any] = [("lines", "sum"), ("ts", "min"), ("ts", "max"), ("took_ms", "max"), ([], "count_all")]
    counted = pa.table(columns).group_by(list(_KEYS)).aggregate(sums)
    named = {name: counted[name] for name in _KEYS} | {
        "part": pa.repeat(part, counted.num_rows),
        "kind": pa.repeat(kind, counted.num_rows),
        "lines": counted["lines_sum"],
        "rows": counted["count_all"],
        "begin": counted["ts_min"],
        "end": counted["ts_max"],
        "took_ms": counted["took_ms_max"],
    }
    return pa.table({name: named[name] for name in COUNTER_SCHEMA.names}, schema=COUNTER_SCHEMA)


def remove_unlisted(folder: Location, written: set[str]) -> None:
    """Remove all files below the folder that are not in `written`."""
    for name in _parts(folder):
        if name not in written:
            (folder / name).remove()


def _parts(folder: Location) -> Iterator[str]:
    for kind in folder.names():
        for day in (folder / kind).names():
            for part in (folder / kind / day).names():
                yield f"{kind}/{day}/{part}"


def _is(days: Any, day: Any) -> Any:
    return pc.is_null(days) if day.as_py() is None else pc.equal(days, day)
