"""Spark jobs that parse splits on all cores and write events and counters.

A task writes the events that it parses; see `parquet_writer`. Only events of the metadata log pass through Spark,
because that log contains the name of a topic once and its id everywhere else.
"""

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from .event_types import EventType, Kind
from .events import PARTITIONED_BY, SCHEMA
from .parquet_writer import COUNTER_SCHEMA, EventWriter, count_events, remove_unlisted
from .storage import Location
from .tables import EVENTS, parquet_reader, read_events
from .text import splits
from .text.columns import WRITTEN
from .text.splits import Split
from .text.zone import zone_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTERS: Final = "counters"


def pack(pieces: Iterable[Split], split_bytes: int) -> list[list[Split]]:
    """Assign splits to tasks: large ones alone, small files together. Returns the largest tasks first, so that no large
    task starts late."""
    tasks: list[list[Split]] = []
    room = 0
    for piece in pieces:
        if not tasks or piece.size > room:
            tasks.append([])
            room = split_bytes
        tasks[-1].append(piece)
        room -= piece.size
    return sorted(tasks, key=lambda task: -sum(piece.size for piece in task))


def read(spark: "SparkSession", pieces: list[Split], folder: Location, time_zone: str, split_bytes: int) -> None:
    """Write all events and their counters. Events of the metadata log get the names of their topics."""
    from pyspark.sql.pandas.types import from_arrow_schema

    events, counters = folder / EVENTS, folder / COUNTERS
    logs = [piece for piece in pieces if piece.file.kind is not Kind.DUMP]
    dumps = [piece for piece in pieces if piece.file.kind is Kind.DUMP]
    if logs:
        work = _Work(spark, pack(logs, split_bytes), time_zone)
        work.run(_writer(work, events), COUNTER_SCHEMA).write.parquet(counters.uri)
        parts = read_counters(spark, folder).select("part").distinct()
        remove_unlisted(events, {row["part"] for row in parts.collect()})
    if dumps:
        work = _Work(spark, pack(dumps, split_bytes), time_zone)
        named = _with_names(work.run(_reader(work), WRITTEN))
        named.write.mode("append").partitionBy(*PARTITIONED_BY).parquet(events.uri)
        dumped = read_events(spark, folder).where(f"kind = '{Kind.DUMP}'").select(*SCHEMA.names)
        counted = dumped.mapInArrow(_count_dump, from_arrow_schema(COUNTER_SCHEMA))
        counted.write.mode("append").parquet(counters.uri)


def read_counters(spark: "SparkSession", folder: Location) -> "DataFrame":
    """Return the counters that `read` has written; see `parquet_writer.COUNTER_SCHEMA`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return parquet_reader(spark).schema(from_arrow_schema(COUNTER_SCHEMA)).parquet((folder / COUNTERS).uri)


def _with_names(records: "DataFrame") -> "DataFrame":
    """Fill in topic names by topic id: the metadata log contains the name only in the record that creates the topic."""
    from pyspark.sql import functions as f

    created = records.where(f.col("type") == EventType.TOPIC_CREATED)
    names = f.broadcast(created.groupBy("topic_id").agg(f.first("topic").alias("name")))
    joined = records.join(names, "topic_id", "left").withColumn("topic", f.coalesce("topic", "name"))
    return joined.select(*records.columns)


_Map = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Work:
    """Numbered tasks. All of them are broadcast once; a worker receives only the number of its task."""

    def __init__(self, spark: "SparkSession", tasks: list[list[Split]], time_zone: str) -> None:
        self._spark = spark
        self._count = len(tasks)
        self.known = spark.sparkContext.broadcast(msgspec.msgpack.encode(tasks))
        self.time_zone = time_zone

    def run(self, work: _Map, schema: pa.Schema) -> "DataFrame":
        from pyspark.sql.pandas.types import from_arrow_schema

        numbers = self._spark.range(0, self._count, 1, numPartitions=self._count)
        return numbers.mapInArrow(work, from_arrow_schema(schema))


def _reader(work: _Work) -> _Map:
    """Return the function for workers that maps task numbers to events."""
    known, time_zone = work.known, work.time_zone

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _events(numbers, known, time_zone)

    return read


def _writer(work: _Work, events: Location) -> _Map:
    """Return the function for workers that maps task numbers to counters and writes the events to `events`."""
    known, time_zone = work.known, work.time_zone
    folder = events.name if events.is_remote else os.path.abspath(events.name)

    def write(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = EventWriter(Location(folder))
        # Parsing creates many small objects and no reference cycles; collecting cycles takes a tenth of the time.
        gc.disable()
        try:
            for batch in _events(numbers, known, time_zone):
                writer.add(batch)
        finally:
            gc.enable()
        yield from writer.close().to_batches()

    return write


def _events(numbers: Iterable[pa.RecordBatch], known: Any, time_zone: str) -> Iterator[pa.RecordBatch]:
    tasks = msgspec.msgpack.decode(known.value, type=list[list[Split]])
    zone = zone_of(time_zone)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for split in tasks[number]:
                yield from splits.events(split, zone)


def _count_dump(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from count_events(pa.Table.from_batches([batch]), part="", kind=Kind.DUMP).to_batches()
