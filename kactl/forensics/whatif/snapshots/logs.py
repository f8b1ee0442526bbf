"""A snapshot out of logs: what the tables of an ingest know of each partition at a moment, or where they end.

A state stands for as long as no later one is known. Partitions of which the last state has no ISR, or whose replicas no
line names, are counted and left out; so are topics that were deleted, and those whose name was used again.
"""

import datetime
from typing import TYPE_CHECKING, Final

from kactl.forensics.whatif.partitions import SCHEMA
from kactl.forensics.whatif.topology import BrokerUsage

if TYPE_CHECKING:
    from pyspark.sql import Column as Value
    from pyspark.sql import DataFrame

# Its name stands before lines about replicas of the metadata log.
METADATA_TOPIC: Final = "__cluster_metadata"


def partitions(states: "DataFrame", deletions: "DataFrame | None", at: datetime.datetime | None) -> "DataFrame":
    """The last known state of each partition, with the columns of `partitions.SCHEMA`, `at` and `told_by`.

    What is not known is null. The last one is that with the highest partition epoch, which rises with every change;
    where a state has none, the one with the highest leader epoch, and then the latest.

    Args:
        states, deletions: tables of the jobs of these names.
        at: nothing later is looked at; None for all there is.
    """
    from pyspark.sql import functions as f

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
    there = _without_deleted(_of_last_life(chosen.select("topic", "partition", "row.*", replicas)), deletions, at)
    unsaid = {"elr": "array<int>", "min_isr": "int", "unclean": "boolean", "weight": "double"}
    filled = there.withColumns({name: f.lit(None).cast(type_) for name, type_ in unsaid.items()})
    return filled.where("leader is null or leader > -2").select(*SCHEMA.names, "at", "told_by")


def only_named(
    timed: "DataFrame", states: "DataFrame", deletions: "DataFrame | None", at: datetime.datetime | None
) -> int:
    """How many partitions lines name of which no state is known: an answer cannot be about them.

    The metadata log is no partition of a topic; what was deleted is no partition any more.
    """
    from pyspark.sql import functions as f

    until = f.lit(True) if at is None else f.col("at") <= f.lit(at)
    is_one = f.col("topic").isNotNull() & f.col("partition").isNotNull() & (f.col("topic") != METADATA_TOPIC)
    lines = timed.where(is_one & until).groupBy("topic", "partition", "life").agg(f.max("at").alias("at"))
    known = states.where(until).select("topic", "partition").distinct()
    left = _without_deleted(_of_last_life(lines), deletions, at).join(known, ["topic", "partition"], "left_anti")
    return left.count()


def away(absences: "DataFrame", at: datetime.datetime | None) -> dict[int, int | None]:
    """Who was away at that time, or is where the logs end, and when that was noticed, in microseconds since 1970.

    None: before the logs.
    """
    from pyspark.sql import functions as f

    open_ = f.col("back_at").isNull()
    begun = f.lit(True)
    if at is not None:
        open_ |= f.col("back_at") > f.lit(at)
        begun = f.col("detected_at").isNull() | (f.col("detected_at") <= f.lit(at))
    gone = absences.where(open_ & begun).groupBy("broker").agg(f.unix_micros(f.max("detected_at")).alias("since"))
    return {row["broker"]: row["since"] for row in gone.collect()}


def returned(found: "DataFrame", gone: dict[int, int | None]) -> frozenset[int]:
    """Of those who are away, the ones that a controller has made a leader since: no line says it, but they are back.

    Args:
        found: what `partitions` returns.
        gone: what `away` returns.
    """
    from pyspark.sql import functions as f

    told = found.where((f.col("leader") >= 0) & (f.col("told_by") == "controller"))
    rows = told.groupBy("leader").agg(f.unix_micros(f.max("at")).alias("at")).collect() if gone else []
    led = {row["leader"]: row["at"] for row in rows}
    return frozenset(
        broker for broker, since in gone.items() if broker in led and since is not None and led[broker] > since
    )


def marked(found: list[BrokerUsage], back: frozenset[int]) -> list[BrokerUsage]:
    """Roles, with what is known of those who are back."""
    return [BrokerUsage(each.broker, each.assigned, each.leads, each.in_sync, each.broker in back) for each in found]


def _timed_is_later() -> "Value":
    """Whether the last state without a partition epoch comes after the last one that has one."""
    from pyspark.sql import functions as f

    ours, theirs = f.col("timed"), f.col("numbered")
    both = ours["leader_epoch"].isNotNull() & theirs["leader_epoch"].isNotNull()
    by_epoch = both & (ours["leader_epoch"] != theirs["leader_epoch"])
    later = f.when(by_epoch, ours["leader_epoch"] > theirs["leader_epoch"]).otherwise(ours["at"] > theirs["at"])
    lives = f.when(ours["life"] == theirs["life"], later).otherwise(ours["life"] > theirs["life"])
    return ours.isNotNull() & (theirs.isNull() | lives)


def _of_last_life(found: "DataFrame") -> "DataFrame":
    """Without partitions of an older topic of the same name, of which the new one has fewer."""
    from pyspark.sql import functions as f

    last = found.groupBy("topic").agg(f.max("life").alias("last_life"))
    return found.join(last, "topic").where(f.col("life").eqNullSafe(f.col("last_life"))).drop("last_life")


def _without_deleted(found: "DataFrame", deletions: "DataFrame | None", at: datetime.datetime | None) -> "DataFrame":
    """Without topics that were gone by then; what a topic has from after its deletion is of a new one."""
    from pyspark.sql import functions as f

    if deletions is None:
        return found
    done = deletions.where(f.col("done_at").isNotNull())
    if at is not None:
        done = done.where(f.col("done_at") <= f.lit(at))
    gone = done.groupBy("topic").agg(f.max("done_at").alias("gone_at"))
    return found.join(gone, "topic", "left").where("gone_at is null or at > gone_at").drop("gone_at")
