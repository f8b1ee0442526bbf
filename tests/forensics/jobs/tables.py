"""Input tables of jobs, built by hand or from log lines, and results of jobs as plain rows.

No file is written: the lines are parsed with ingest's parser, and the events become a DataFrame directly.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics.columns import Column, schema
from kactl.forensics.event_types import Kind
from kactl.forensics.events import COLUMNS
from kactl.forensics.jobs import timed
from tests.forensics.reading import events_of

_BASE: Final = datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC)
_STATE_CHANGE: Final = "state.change.logger"


def moment(seconds: float) -> datetime.datetime:
    """Returns the time this many seconds after ten o'clock, in the type that rows have."""
    return _BASE + datetime.timedelta(seconds=seconds)


def line(seconds: float, message: str, *, level: str = "INFO", logger: str = _STATE_CHANGE) -> str:
    """Returns a log line at a time in seconds after ten. Text after a newline becomes continuation lines."""
    first, *more = message.split("\n")
    at = moment(seconds)
    return "\n".join([f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] {level} {first} ({logger})", *more]) + "\n"


def controller_line(seconds: float, controller: int, message: str, *, level: str = "INFO") -> str:
    """Returns a line of controller.log."""
    logger = "kafka.controller.KafkaController"
    return line(seconds, f"[Controller id={controller}] {message}", level=level, logger=logger)


def events(spark: SparkSession, logs: Mapping[tuple[int, Kind], Iterable[str]]) -> DataFrame:
    """Returns the events of logs, keyed by broker and kind. Files are numbered in this order."""
    rows: list[dict[str, Any]] = []
    for number, ((broker, kind), lines) in enumerate(logs.items()):
        for row in events_of("".join(lines), kind=kind, broker=broker):
            day = row["ts"].date() if row["ts"] else None
            rows.append(row | {"file_id": number, "kind": str(kind), "day": day})
    return table(spark, (*COLUMNS, *timed.FOLDERS), rows)


def as_timed(found: DataFrame) -> DataFrame:
    """Returns events as `timed` returns them if all clocks agree and no topic name is reused."""
    life = f.when(f.col("topic").isNotNull(), f.lit(0))
    named = timed.with_topic_names(found, found)
    return named.withColumns({"at": f.col("ts"), "at_error_us": f.lit(0).cast("long"), "life": life.cast("int")})


def timed_table(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Returns a table `timed` with the given rows. Columns that a row does not name are null."""
    return table(spark, (*COLUMNS, *timed.FOLDERS, *timed.COLUMNS), rows)


def table(spark: SparkSession, columns: Iterable[Column], rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Returns a table with the given rows. Columns that a row does not name are null.

    Raises:
        ValueError: a row names a column that does not exist.
    """
    wanted = schema(columns)
    given = list(rows)
    if strange := {name for row in given for name in row} - set(wanted.names):
        raise ValueError(f"there is no column {', '.join(sorted(strange))}")
    made = pa.table({field.name: pa.array([row.get(field.name) for row in given], field.type) for field in wanted})
    return spark.createDataFrame(made.cast(wanted))


def rows(found: DataFrame, *by: str) -> list[dict[str, Any]]:
    """Returns all rows as dicts, with times in UTC, sorted by the columns in `by` if there are any."""
    arrow = found.toArrow()
    listed: list[dict[str, Any]] = arrow.to_pylist()
    return sorted(listed, key=lambda row: tuple((row[name] is not None, row[name]) for name in by)) if by else listed
