"""Snapshots from logs: the last known state of each partition at a time, or at the end of the logs.

Partitions without a known ISR or without known replicas are counted, but not analysed. Deleted topics and earlier
topics of the same name are left out.
"""

import datetime
from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.decide.whatif.assumptions import Assumptions
from kactl.decide.whatif.prepared_snapshot import PreparedSnapshot
from kactl.forensics.tables import kept_or_persisted
from kactl.forensics.whatif.tables import SCHEMA, of_table

# The name of the metadata log, which lines about its replicas contain.
METADATA_TOPIC: Final = "__cluster_metadata"


def of_logs(
    states: DataFrame,
    absences: DataFrame,
    deletions: DataFrame,
    source: str,
    assumed: Assumptions,
    *,
    at: datetime.datetime | None = None,
    end_us: int | None = None,
    named: DataFrame | None = None,
) -> PreparedSnapshot:
    """Prepare a snapshot from the tables of an ingest.

    Args:
        at: time of the snapshot; None for the end of the logs, which is `end_us` if known.
        named: the table `timed`; partitions that are named only in its lines count as unknown.

    Raises:
        BadSnapshot: there is no partition with known leader, replicas and ISR at that time.
    """
    states_at = kept_or_persisted(partitions(states, deletions, at))
    gone = away(absences, at)
    try:
        away_then = frozenset(gone) - returned(states_at, gone)
        at_us = end_us if at is None else round(at.timestamp() * 1_000_000)
        unknown = 0 if named is None else only_named(named, states, deletions, at)
        table = states_at.select(*SCHEMA.names).toArrow().cast(SCHEMA).sort_by([("topic", "ascending")])
    finally:
        states_at.unpersist()
    return of_table(table, source, assumed, away=away_then, at_us=at_us, only_named=unknown)


def partitions(states: DataFrame, deletions: DataFrame, at: datetime.datetime | None) -> DataFrame:
    """Return the last known state of each partition, with the columns of `tables.SCHEMA`, `at` and `told_by`.

    Unknown values are null. The last state is the one with the highest partition epoch, which rises with every change.
    Among states without a partition epoch it is the latest of those with the highest leader epoch.

    Args:
        states, deletions: tables of the jobs of these names.
        at: ignore later states; None for none.
    """
    known = states if at is None else states.where(f.col("at") <= f.lit(at))
    row = f.struct("life", "leader_epoch", "at", "leader", "isr", "told_by")
    epoch = f.coalesce("leader_epoch", f.lit(-1))
    numbered = f.col("partition_epoch").isNotNull()
    by_number = f.when(numbered, f.struct("life", "partition_epoch", epoch, "at"))
    by_time = f.when(~numbered, f.struct("life", epoch, "at"))
    assigned_by = f.when(f.col("replicas").isNotNull(), f.struct("life", "at", epoch))
    last = known.groupBy("topic", "partition").agg(
        f.max_by(row, by_number).alias("numbered"),
        f.max_by(row, by_time).alias("timed"),
        f.max_by(f.struct("life", "replicas"), assigned_by).alias("assigned"),
    )
    chosen = last.withColumn("row", f.when(_timed_is_later(), f.col("timed")).otherwise(f.col("numbered")))
    replicas = f.when(f.col("assigned.life") == f.col("row.life"), f.col("assigned.replicas")).alias("replicas")
    existing = _without_deleted(_of_last_life(chosen.select("topic", "partition", "row.*", replicas)), deletions, at)
    unknown = {"elr": "array<int>", "min_isr": "int", "unclean": "boolean", "weight": "double"}
    filled = existing.withColumns({name: f.lit(None).cast(type_) for name, type_ in unknown.items()})
    return filled.where("leader is null or leader > -2").select(*SCHEMA.names, "at", "told_by")


def only_named(timed: DataFrame, states: DataFrame, deletions: DataFrame, at: datetime.datetime | None) -> int:
    """Return the number of partitions that lines name but that have no known state.

    The metadata log and deleted partitions do not count.
    """
    until = f.lit(True) if at is None else f.col("at") <= f.lit(at)
    is_one = f.col("topic").isNotNull() & f.col("partition").isNotNull() & (f.col("topic") != METADATA_TOPIC)
    lines = timed.where(is_one & until).groupBy("topic", "partition", "life").agg(f.max("at").alias("at"))
    known = states.where(until).select("topic", "partition").distinct()
    left = _without_deleted(_of_last_life(lines), deletions, at).join(known, ["topic", "partition"], "left_anti")
    return left.count()


def away(absences: DataFrame, at: datetime.datetime | None) -> dict[int, int | None]:
    """Return the brokers that are away at a time, or at the end of the logs, and since when.

    Returns:
        broker -> time of detection in microseconds since 1970; None if it was before the logs.
    """
    open_ = f.col("back_at").isNull()
    begun = f.lit(True)
    if at is not None:
        open_ |= f.col("back_at") > f.lit(at)
        begun = f.col("detected_at").isNull() | (f.col("detected_at") <= f.lit(at))
    gone = absences.where(open_ & begun).groupBy("broker").agg(f.unix_micros(f.max("detected_at")).alias("since"))
    return {row["broker"]: row["since"] for row in gone.collect()}


def returned(found: DataFrame, gone: dict[int, int | None]) -> frozenset[int]:
    """Return the brokers that a controller elected after their absence began: they are back, though no line says so.

    Args:
        found: result of `partitions`.
        gone: result of `away`.
    """
    elected = found.where((f.col("leader") >= 0) & (f.col("told_by") == "controller"))
    rows = elected.groupBy("leader").agg(f.unix_micros(f.max("at")).alias("at")).collect() if gone else []
    led = {row["leader"]: row["at"] for row in rows}
    return frozenset(
        broker for broker, since in gone.items() if broker in led and since is not None and led[broker] > since
    )


def _timed_is_later() -> Value:
    """Return whether the last state without a partition epoch is later than the last one with one."""
    timed, numbered = f.col("timed"), f.col("numbered")
    both = timed["leader_epoch"].isNotNull() & numbered["leader_epoch"].isNotNull()
    by_epoch = both & (timed["leader_epoch"] != numbered["leader_epoch"])
    later = f.when(by_epoch, timed["leader_epoch"] > numbered["leader_epoch"]).otherwise(timed["at"] > numbered["at"])
    lives = f.when(timed["life"] == numbered["life"], later).otherwise(timed["life"] > numbered["life"])
    return timed.isNotNull() & (numbered.isNull() | lives)


def _of_last_life(found: DataFrame) -> DataFrame:
    """Remove partitions of an earlier topic of the same name that had more partitions."""
    last = found.groupBy("topic").agg(f.max("life").alias("last_life"))
    return found.join(last, "topic").where(f.col("life").eqNullSafe(f.col("last_life"))).drop("last_life")


def _without_deleted(found: DataFrame, deletions: DataFrame, at: datetime.datetime | None) -> DataFrame:
    """Remove topics that were deleted by then; states after a deletion belong to a new topic."""
    done = deletions.where(f.col("done_at").isNotNull())
    if at is not None:
        done = done.where(f.col("done_at") <= f.lit(at))
    gone = done.groupBy("topic").agg(f.max("done_at").alias("gone_at"))
    return found.join(gone, "topic", "left").where("gone_at is null or at > gone_at").drop("gone_at")
