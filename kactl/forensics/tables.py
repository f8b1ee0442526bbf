"""What `ingest` has written, opened: the events, the files, the levels.

DIR/events/kind=state-change/day=2024-05-01/*.parquet     the events
DIR/files/*.parquet                                       one row for each file
DIR/levels/*.parquet                                      one row for each broker, hour and level
DIR/ingest.json                                           written last: without it nothing here is whole
"""

import dataclasses
from typing import TYPE_CHECKING, Final

import msgspec

from kactl.errors import BadRequest

from .events import SCHEMA_VERSION, spark_schema
from .storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

EVENTS: Final = "events"
FILES: Final = "files"
LEVELS: Final = "levels"
MANIFEST: Final = "ingest.json"
# What the jobs make of them; see `jobs/catalog.py`.
JOBS_FOLDER: Final = "jobs"
JOBS_MANIFEST: Final = "jobs.json"
JOBS_WORK: Final = ".jobs-"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is written last: from when, with what, and how much.

    Attributes:
        schema_version: of the tables; see `events.SCHEMA_VERSION`.
        made_by: kactl's version.
        time_zone: of the logs, as it was given.
        time_ms: when it was made, ms since 1970.
        sources: what was named on the command line.
        files, lines, events, unparsed: how many.
        parts: of how many files the table of events is; 0 if nobody has counted them.
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
    """A folder that holds no (whole) tables."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one ingest, as DataFrames. Nothing is read before something is asked of them.

    Attributes:
        events: see `events.COLUMNS`; `kind` and `day` (of `ts`, in UTC) come on top.
        files: see `files.FILE_COLUMNS`.
        levels: see `files.LEVEL_COLUMNS`.
    """

    manifest: Manifest
    events: "DataFrame"
    files: "DataFrame"
    levels: "DataFrame"


def read_manifest(folder: Location) -> Manifest:
    """What is said of the tables in a folder.

    Raises:
        NotIngested: there are none, they are half-written or not all there, or another version of kactl has written
            them.
    """
    try:
        with (folder / MANIFEST).open() as file:
            manifest = msgspec.json.decode(file.read(), type=Manifest)
    except PermissionError as error:
        raise NotIngested(
            str(folder),
            f"{MANIFEST} cannot be read ({error.strerror}): see to its permissions, or ask whoever wrote it",
        ) from None
    except OSError:
        raise NotIngested(
            str(folder), f"holds no whole tables: write them with `kactl forensics ingest LOGS --out {folder}`"
        ) from None
    except msgspec.DecodeError:
        raise NotIngested(str(folder), f"{MANIFEST} is not what ingest writes: ingest the logs anew") from None
    if manifest.schema_version != SCHEMA_VERSION:
        raise NotIngested(
            str(folder),
            f"was written by kactl {manifest.made_by} with tables of version {manifest.schema_version}, and this one "
            f"reads version {SCHEMA_VERSION}: ingest the logs anew",
        )
    there = count_files(folder / EVENTS)
    if there < manifest.parts:
        raise NotIngested(
            str(folder),
            f"of the {manifest.parts} files of {EVENTS} there are {there}, as somebody has removed the others (what "
            "cleans folders of temporary files does): ingest the logs anew, into another folder",
        )
    return manifest


def count_files(table: Location) -> int:
    """Of how many files of Parquet a table is. Spark reads what is there, and misses nothing."""
    try:
        return sum(each.name.endswith(".parquet") for each in table.files())
    except OSError:
        return 0


def open_tables(spark: "SparkSession", folder: str) -> Tables:
    """The tables in a folder, or behind a URI.

    Raises:
        NotIngested: see `read_manifest`.
    """
    place = Location(folder)
    manifest = read_manifest(place)
    files, levels = (parquet_reader(spark).parquet(f"{place.uri}/{name}") for name in (FILES, LEVELS))
    return Tables(manifest, read_events(spark, place), files, levels)


def parquet_reader(spark: "SparkSession") -> "DataFrameReader":
    """Of Parquet by its very name: to Spark brackets, braces, stars and question marks make it a pattern else."""
    return spark.read.option("__globPaths__", "false")


def read_events(spark: "SparkSession", folder: Location) -> "DataFrame":
    """The events in a folder, whole or not."""
    from pyspark.sql.types import DateType, StringType, StructField, StructType

    # Told, and not found out: that would take a job, and be wrong where a column is null throughout.
    by = [StructField("kind", StringType()), StructField("day", DateType())]
    return parquet_reader(spark).schema(StructType([*spark_schema().fields, *by])).parquet(f"{folder.uri}/{EVENTS}")
