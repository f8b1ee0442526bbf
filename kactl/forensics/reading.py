"""Parse splits and write their events and counters: in Spark jobs on all cores, or one task in this process.

A task writes the events that it parses; see `parquet_writer`. Only events of the metadata log pass through Spark,
because that log contains the name of a topic once and its id everywhere else.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from .event_types import EventType, Kind
from .events import PARTITIONED_BY, SCHEMA
from .parquet_writer import COUNTER_SCHEMA, EventWriter, count_events, remove_unlisted
from .progress import ProgressCallback, step
from .storage import Location
from .tables import EVENTS, read_events
from .text import splits
from .text.columns import WRITTEN
from .text.splits import Split
from .text.zone import zone_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Name of the step in progress reports.
STEP: Final = "read"


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


def read(
    session: "Callable[[], SparkSession]",
    pieces: list[Split],
    folder: Location,
    time_zone: str,
    split_bytes: int,
    on_progress: ProgressCallback,
) -> pa.Table:
    """Write all events. Events of the metadata log get the names of their topics.

    Args:
        session: called unless the logs are a single task, without a metadata log.

    Returns:
        The counters of the events; see `parquet_writer.COUNTER_SCHEMA`.
    """
    dumps = [piece for piece in pieces if piece.file.kind is Kind.DUMP]
    tasks = pack((piece for piece in pieces if piece.file.kind is not Kind.DUMP), split_bytes)
    if len(tasks) == 1 and not dumps:
        return _read_here(tasks[0], folder, time_zone, on_progress)
    spark = session()
    with step(spark, STEP, on_progress):
        counted = _read_logs(spark, tasks, folder, time_zone) if tasks else COUNTER_SCHEMA.empty_table()
        if dumps:
            counted = pa.concat_tables([counted, _read_dumps(spark, pack(dumps, split_bytes), folder, time_zone)])
    return counted


def _read_here(task: list[Split], folder: Location, time_zone: str, on_progress: ProgressCallback) -> pa.Table:
    """Run a single task in this process. Spark would start a Python process for it, and would not be faster."""
    zone = zone_of(time_zone)

    def batches() -> Iterator[pa.RecordBatch]:
        for done, split in enumerate(task):
            on_progress(STEP, done, len(task))
            yield from splits.events(split, zone)

    return _write(batches(), folder / EVENTS)


def _read_logs(spark: "SparkSession", tasks: list[list[Split]], folder: Location, time_zone: str) -> pa.Table:
    events = folder / EVENTS
    work = _Work(spark, tasks, time_zone)
    counted = work.run(_writer(work, events), COUNTER_SCHEMA).toArrow().cast(COUNTER_SCHEMA)
    remove_unlisted(events, set(counted["part"].unique().to_pylist()))
    return counted


def _read_dumps(spark: "SparkSession", tasks: list[list[Split]], folder: Location, time_zone: str) -> pa.Table:
    from pyspark.sql.pandas.types import from_arrow_schema

    work = _Work(spark, tasks, time_zone)
    named = _with_names(work.run(_reader(work), WRITTEN))
    named.write.mode("append").partitionBy(*PARTITIONED_BY).parquet((folder / EVENTS).uri)
    dumped = read_events(spark, folder).where(f"kind = '{Kind.DUMP}'").select(*SCHEMA.names)
    return dumped.mapInArrow(_count_dump, from_arrow_schema(COUNTER_SCHEMA)).toArrow().cast(COUNTER_SCHEMA)


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
    known, time_zone = work.known, work.time_zone

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _events(numbers, known, time_zone)

    return read


def _writer(work: _Work, events: Location) -> _Map:
    """Return the function for workers that maps task numbers to counters and writes the events to `events`."""
    known, time_zone = work.known, work.time_zone
    folder = events.absolute

    def write(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _write(_events(numbers, known, time_zone), Location(folder)).to_batches()

    return write


def _write(batches: Iterable[pa.RecordBatch], folder: Location) -> pa.Table:
    """Write events. Returns their counters."""
    writer = EventWriter(folder)
    # Parsing creates many small objects and no reference cycles; collecting cycles takes a tenth of the time.
    gc.disable()
    try:
        for batch in batches:
            writer.add(batch)
    finally:
        gc.enable()
    return writer.close()


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
