"""Tables that later jobs need, computed once by the jobs themselves from log lines."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.absences import absences
from kactl.forensics.jobs.leadership import leadership
from kactl.forensics.jobs.log_segments import log_segments
from kactl.forensics.jobs.states import states
from kactl.forensics.jobs.unclean import unclean

from . import dumps
from .tables import as_timed, events

# File ids of copies start here.
_COPIES: Final = 100


class Chain(NamedTuple):
    """Tables of the first jobs."""

    timed: DataFrame
    states: DataFrame
    leadership: DataFrame
    absences: DataFrame
    unclean: DataFrame
    turns: DataFrame


def chain(
    spark: SparkSession,
    logs: Mapping[tuple[int, Kind], Iterable[str]],
    *,
    dumped: Iterable[str] = (),
    copied: bool = False,
) -> Chain:
    """Returns the tables of logs with equal clocks. `dumped`: KRaft's metadata log; `copied`: add a copy of all."""
    timed = kept(as_timed(events(spark, logs).unionByName(dumps.events(spark, dumped))))
    if copied:
        timed = timed.union(timed.withColumn("file_id", (f.col("file_id") + _COPIES).cast("int")))
    known = kept(states(timed))
    led = kept(leadership(timed, known))
    away = kept(absences(timed))
    return Chain(timed, known, led, away, kept(unclean(timed, known, led, away)), kept(log_segments(timed)))


def kept(found: DataFrame) -> DataFrame:
    """Returns the same rows as a computed table."""
    return found.sparkSession.createDataFrame(found.toArrow())
