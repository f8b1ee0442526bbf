"""Access to the tables that `ingest` writes: events, files and levels.

DIR/events/kind=state-change/day=2024-05-01/*.parquet     the events
DIR/files/*.parquet                                       one row per file
DIR/levels/*.parquet                                      one row per broker, hour and level
DIR/ingest.json                                           the manifest, written last; tables without it are incomplete

The table of files has the kind, period and coverage of each file; that of levels has the levels that were logged in
each hour. Missing lines matter as much as present ones: a broker that logs at INFO does not log that partitions go
offline. Jobs that compute outages therefore read these tables first.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from kactl.model.errors import BadRequest

from .columns import columns, schema
from .events import SCHEMA, SCHEMA_VERSION, spark_schema
from .storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


EVENTS: Final = "events"
FILES: Final = "files"
LEVELS: Final = "levels"
MANIFEST: Final = "ingest.json"
# Results of the jobs; see `jobs/catalog.py`.
JOBS_FOLDER: Final = "jobs"
JOBS_MANIFEST: Final = "jobs.json"
JOBS_WORK: Final = ".jobs-"


FILE_COLUMNS: Final = columns(
    """
    file_id      id     its number, starting at 0, in the order of paths
    path         text   the path it was read from
    kind         text   its kind, by its content (event_types.Kind)
    layout       text   the forms of its first lines, the most frequent first; see text/forms.py
    encoding     text   utf-8, latin-1, utf-16
    compression  text   gzip, or null
    bytes        long   its size as stored
    broker       id     the broker that wrote it; null if none is named, or if several wrote it
    version      text   the versions of Kafka that write such lines: 2.6-3.1, 4.1+, ...
    levels       texts  the levels that occur, the most detailed first
    begin        time   time of its first line that has one
    end          time   time of its last line
    lines        long   number of lines
    events       long   lines that became events, with the lines joined to them
    harmless     long   known lines of controller and state-change loggers without information
    other        long   lines that are not about partitions, replicas, brokers or controllers
    unparsed     long   relevant lines that match no known format
    coverage     real   events / (events + unparsed), 0 to 1; null if there were neither
    controllers  ids    ids of the controllers that wrote or are named in it, ascending
    samples      texts  the first lines that match no known format
    warnings     texts  limits of the file as evidence
    error        text   why it, or the rest of it, could not be read; null if all of it was
    """
)
FILE_SCHEMA: Final = schema(FILE_COLUMNS)

LEVEL_COLUMNS: Final = columns(
    """
    speaker  id    the broker; null if no line names it
    kind     text  kind of the files (event_types.Kind)
    role     text  role of the writer (event_types.Role)
    hour     time  beginning of the hour
    level    text  the level
    lines    long  number of lines
    """
)
LEVEL_SCHEMA: Final = schema(LEVEL_COLUMNS)

# Up to this many rows are part of the plans of queries: the optimizer applies filters to them, and removes joins with
# tables that are empty. More rows would make the optimizer slower, which visits each of them for each rule.
_ROWS_IN_PLANS: Final = 500


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest of the tables, written last.

    Attributes:
        schema_version: version of the tables; see `events.SCHEMA_VERSION`.
        made_by: version of kactl.
        time_zone: time zone of the logs, as given.
        time_ms: time of the ingest, ms since 1970.
        sources: sources as given on the command line.
        files, lines, events, unparsed: numbers of them.
        parts: number of Parquet files of the events table; 0 if it was not counted.
    """

    schema_version: int = SCHEMA_VERSION
    made_by: str
    time_zone: str
    time_ms: int
    sources: tuple[str, ...]
    files: int
    lines: int
    events: int
    unparsed: int
    parts: int = 0


class NotIngested(BadRequest):
    """The folder does not contain complete tables."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tables:
    """Tables of one ingest, as lazy DataFrames. Spark lists the files of a table when it is first used."""

    spark: "SparkSession"
    folder: Location
    manifest: Manifest

    @functools.cached_property
    def events(self) -> "DataFrame":
        """See `events.COLUMNS`; in addition `kind` and `day` (of `ts`, in UTC)."""
        return read_events(self.spark, self.folder)

    @functools.cached_property
    def files(self) -> "DataFrame":
        """See `FILE_COLUMNS`."""
        return self._read(FILES, FILE_SCHEMA)

    @functools.cached_property
    def levels(self) -> "DataFrame":
        """See `LEVEL_COLUMNS`."""
        return self._read(LEVELS, LEVEL_SCHEMA)

    def _read(self, name: str, schema: pa.Schema) -> "DataFrame":
        from pyspark.sql.pandas.types import from_arrow_schema

        # Inferring the schema would take a job.
        return parquet_reader(self.spark).schema(from_arrow_schema(schema)).parquet(f"{self.folder.uri}/{name}")


def read_manifest(folder: Location) -> Manifest:
    """Read the manifest of the tables in a folder.

    Raises:
        NotIngested: there are no tables, they are incomplete, or another version of kactl has written them.
    """
    try:
        with (folder / MANIFEST).open() as file:
            manifest = msgspec.json.decode(file.read(), type=Manifest)
    except PermissionError as error:
        raise NotIngested(
            str(folder),
            f"{MANIFEST} cannot be read ({error.strerror}): change its permissions, or ask its owner to",
        ) from None
    except OSError:
        raise NotIngested(
            str(folder), f"contains no complete tables: write them with `kactl forensics ingest LOGS --out {folder}`"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotIngested(str(folder), f"{MANIFEST} was not written by ingest: ingest the logs again") from None
    if manifest.schema_version != SCHEMA_VERSION:
        raise NotIngested(
            str(folder),
            f"was written by kactl {manifest.made_by} with tables of version {manifest.schema_version}; this kactl "
            f"reads version {SCHEMA_VERSION}: ingest the logs again",
        )
    parts = count_files(folder / EVENTS)
    if parts < manifest.parts:
        raise NotIngested(
            str(folder),
            f"of the {manifest.parts} files of {EVENTS} there are {parts}; the others were removed (as cleaners of "
            "temporary folders do): ingest the logs again, into another folder",
        )
    return manifest


def count_files(table: Location) -> int:
    """Return the number of Parquet files of a table. Spark does not notice missing files."""
    try:
        return sum(file.name.endswith(".parquet") for file in table.files())
    except OSError:
        return 0


def open_tables(spark: "SparkSession", folder: str) -> Tables:
    """Open the tables of a folder, local or remote.

    Raises:
        NotIngested: see `read_manifest`.
    """
    place = Location(folder)
    return Tables(spark, place, read_manifest(place))


def parquet_reader(spark: "SparkSession") -> "DataFrameReader":
    """Return a reader that takes paths literally; by default Spark treats brackets, braces, * and ? as patterns."""
    return spark.read.option("__globPaths__", "false")


def rows_in_memory(spark: "SparkSession", folder: Location) -> "dict[str, DataFrame]":
    """Return the tables of an ingest of few events, in a local folder, with their rows in memory.

    Spark would load some thousand classes to read Parquet, which takes longer than reading it.

    Raises:
        NotIngested: a file is damaged.
    """
    from pyarrow import dataset

    by_folder = dataset.partitioning(pa.schema([("kind", pa.string()), ("day", pa.date32())]), flavor="hive")
    events = pa.schema([*SCHEMA, *by_folder.schema])
    tables = ((EVENTS, events, by_folder), (FILES, FILE_SCHEMA, None), (LEVELS, LEVEL_SCHEMA, None))
    try:
        return {
            name: of_rows(spark, dataset.dataset(f"{folder}/{name}", columns, partitioning=folders).to_table())
            for name, columns, folders in tables
        }
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise NotIngested(str(folder), f"a table is incomplete or damaged ({reason}): ingest the logs again") from None


def undivided_if_small(table: "DataFrame") -> "DataFrame":
    """Return the table as one partition, if the session is configured for few events.

    Queries on such tables have no shuffles: each is a single task, and its plan is smaller. See `session.FEW_EVENTS`.
    """
    return table.coalesce(1) if is_small(table.sparkSession) else table


def kept_if_small(table: "DataFrame") -> "DataFrame":
    """Return the table with its rows computed and kept in memory, if the session is configured for few events.

    For tables that a job uses several times. Each use would repeat the operators below it in the plan, and with few
    events the time of a query is that of its plan. With many events it is the table itself: nothing is read.
    """
    return of_rows(table.sparkSession, table.toArrow()) if is_small(table.sparkSession) else table


def all_kept_if_small(spark: "SparkSession", tables: "Sequence[Callable[[], DataFrame]]") -> "list[DataFrame]":
    """Return tables as `kept_if_small` does. If they are kept, two of them at a time are defined and computed."""
    from pyspark import inheritable_thread_target

    if not is_small(spark):
        return [define() for define in tables]
    with ThreadPoolExecutor(2, "kactl-keep") as pool:
        # Cancellation of the caller's queries applies to those of the threads.
        kept = [pool.submit(inheritable_thread_target(spark)(_kept), define) for define in tables]
        return [table.result() for table in kept]


def _kept(define: "Callable[[], DataFrame]") -> "DataFrame":
    return kept_if_small(define())


def kept_or_persisted(table: "DataFrame") -> "DataFrame":
    """Return the table with its rows kept for several queries; release it by `unpersist`."""
    return kept_if_small(table) if is_small(table.sparkSession) else table.persist()


def of_rows(spark: "SparkSession", rows: pa.Table) -> "DataFrame":
    """Return rows that are few and known as a table. Queries on it read no files."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    # PySpark cannot convert lists in a table without chunks.
    rows = rows if len(rows) else pa.Table.from_pylist([], rows.schema)
    # With the types of files: without a schema, times without a zone would be in that of the session.
    table = undivided_if_small(spark.createDataFrame(rows, from_arrow_schema(rows.schema)))
    if len(rows) <= _ROWS_IN_PLANS:
        return table
    # Spark copies all columns of all rows for each scan. In one column they are copied as a whole.
    return table.select(f.struct("*").alias("row")).localCheckpoint().select("row.*")


def of_tuples(spark: "SparkSession", schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> "DataFrame":
    """Return a few tuples as a table. Spark would start Python processes to convert rows that are not in Arrow."""
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return of_rows(spark, pa.Table.from_arrays(columns, schema=schema))


def is_small(spark: "SparkSession") -> bool:
    """Return whether the session is configured for few events."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


def read_events(spark: "SparkSession", folder: Location) -> "DataFrame":
    """Return the events in a folder, without checking that they are complete."""
    from pyspark.sql.types import DateType, StringType, StructField, StructType

    # Inferring the schema would take a job, and would be wrong for a column that is null in all rows.
    by = [StructField("kind", StringType()), StructField("day", DateType())]
    return parquet_reader(spark).schema(StructType([*spark_schema().fields, *by])).parquet(f"{folder.uri}/{EVENTS}")
