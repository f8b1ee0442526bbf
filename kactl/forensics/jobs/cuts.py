"""What replicas had to cut off their logs, seen in three ways.

A replica's log is a piece of the partition's history up to the last epoch in which it took part. Each later leader goes
on from where its own log ended as it began (B4), so that whatever the replica has beyond that is no part of history any
more: as it begins to follow, it cuts it off. What it has from the epoch itself is another matter: a follower that comes
back in the epoch in which it went has more than the leader began with, and loses nothing.

    leader 1, epoch 4   ├──────────────┼────────────┤ 110
    leader 2, epoch 6   ├──────────────┤ 90 ─────────────────── 180
    leader 2, epoch 7   ├───────────────────────────────────────┤ 180     # its ISR was cut: the epoch rose, no more
    1 follows, epoch 7: it has 110, took part in 4, and the first leader after that had 90: 20 records are gone, by 6

A history may be cut several times; each cut counts what it takes away of what the ones before it had left.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

from .turns import KEY

FOLLOWER: Final = "follower"
LEADER: Final = "leader"
TRUNCATED: Final = "truncated"
# A replica that was away for longer is compared with the leaders of so many epochs only, the latest.
AWAY_EPOCHS_MAX: Final = 10_000
# Up to 1.0 a follower may cut its log back to its high watermark, only to fetch the same again.
_OF_OLD: Final = "I5-1.0"


def follows(turns: DataFrame) -> DataFrame:
    """The turns in which brokers follow, each with what its log is a piece of.

    Returns:
        the columns of `turns`, and:
        known: the last epoch before this one in which it took part; null if the logs do not tell.
        by_memory: whether the broker itself remembers that epoch, and did not only tell of it before it was restarted.
        tail: a number, the same for turns between which it can have cut nothing off: it has no more than before. What
            it has too much in one of them it still has in the next, and lost it once.
        tail_known: `known` of the first turn of the tail. tail_cut_to: the lowest `cut_to` of the tail.
    """
    own = Window.partitionBy(*KEY, "broker").orderBy("epoch", "at")
    until_now = own.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    remembered = f.when(f.col("prev_epoch") >= 0, f.col("prev_epoch"))
    before = f.lag(f.struct("role", "log_end", "cut_to")).over(own)
    same = (
        (f.col("role") == EventType.FOLLOWS)
        & (f.col("before.role") == EventType.FOLLOWS)
        & f.col("before.cut_to").isNull()
        & (f.col("log_end") <= f.col("before.log_end"))
    )
    tail = Window.partitionBy(*KEY, "broker", "tail")
    return (
        turns.where("turn > 0")
        .withColumn("known", f.greatest(remembered, f.lag("epoch").over(own)))
        .withColumn("by_memory", remembered.isNotNull())
        .withColumn("before", before)
        .withColumn("tail", f.sum(f.when(f.coalesce(same, f.lit(False)), 0).otherwise(1)).over(until_now))
        .withColumn("tail_known", f.first("known").over(tail.orderBy("epoch", "at")))
        .withColumn("tail_cut_to", f.min("cut_to").over(tail))
        .where(f.col("role") == EventType.FOLLOWS)
        .drop("before")
    )


def of_followers(followed: DataFrame, starts: DataFrame) -> DataFrame:
    """What followers had beyond the leaders of epochs in which they took no part.

    Args:
        followed: what `follows` returns.
    """
    first = f.greatest(f.coalesce(f.col("known") + 1, f.col("epoch")), f.col("epoch") - (AWAY_EPOCHS_MAX - 1))
    missed = f.when(f.col("known").isNull() | (f.col("known") < f.col("epoch")), f.sequence(first, f.col("epoch")))
    leaders = starts.select(
        *KEY,
        f.col("epoch").alias("leader_epoch"),
        "leader",
        f.col("log_end").alias("base"),
    )
    longer = (
        followed.withColumn("leader_epoch", f.explode(missed))
        .join(leaders, [*KEY, "leader_epoch"])
        .where("base < log_end and leader <> broker")
    )
    # What an earlier cut left is all that a later one can take away.
    before = (
        Window.partitionBy(*KEY, "broker", "tail")
        .orderBy("leader_epoch", "epoch")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    left = f.least("log_end", f.min("base").over(before))
    return (
        longer.withColumn("end", left)
        .where("base < end")
        .select(
            *KEY,
            "leader_epoch",
            f.col("broker").alias("replica"),
            "end",
            "base",
            f.col("at").alias("replica_at"),
            f.lit(FOLLOWER).alias("evidence"),
            f.when(f.col("tail_cut_to") < f.col("end"), f.col("tail_cut_to")).alias("truncated_to"),
            "high_watermark",
            "known",
            f.col("tail_known").alias("took_part"),
            "by_memory",
            f.col("epoch").alias("told_in"),
            "tail",
        )
    )


def of_leaders(starts: DataFrame) -> DataFrame:
    """What leaders are known to have had that the next leader did not have; they need not ever have come back."""
    return starts.where("next.log_end < had.end").select(
        *KEY,
        f.col("next.epoch").alias("leader_epoch"),
        f.col("had.replica").alias("replica"),
        f.col("had.end").alias("end"),
        f.col("next.log_end").alias("base"),
        f.col("had.at").alias("replica_at"),
        f.lit(LEADER).alias("evidence"),
        f.when(f.col("had.cut_to") < f.col("had.end"), f.col("had.cut_to")).alias("truncated_to"),
        f.col("watermark").alias("high_watermark"),
        f.col("epoch").alias("known"),
        f.col("epoch").alias("took_part"),
        f.lit(True).alias("by_memory"),
        f.col("next.epoch").alias("told_in"),
        f.lit(None).cast("long").alias("tail"),
    )


def of_truncations(
    turns: DataFrame,
    followed: DataFrame,
    by_followers: DataFrame,
    by_leaders: DataFrame,
    leadership: DataFrame,
) -> DataFrame:
    """Logs that were cut by their own account, of which nothing else tells.

    Up to 2.5 a follower does not say where its log ends. Then only that something was cut is known, unless it led
    before and said it then. Nor is there anything else if the logs of those who led are missing.
    """
    counted = by_followers.select(*KEY, f.col("replica").alias("broker"), "tail").distinct()
    told = (
        followed.where("cut_to < log_end")
        .join(counted, [*KEY, "broker", "tail"], "left_anti")
        .select(
            *_cut(end=f.col("log_end")),
            f.col("epoch").alias("leader_epoch"),
            f.col("at").alias("replica_at"),
            f.col("high_watermark"),
            f.col("known"),
            f.col("tail_known").alias("took_part"),
            f.lit(True).alias("by_memory"),
        )
    )
    known = by_leaders.select(*KEY, f.col("replica").alias("broker"), f.col("known").alias("epoch"))
    blind = (
        turns.where(f.col("cut_to").isNotNull())
        .where(f.col("role").isNull() | (f.col("role") == EventType.LEADS) | (f.col("cut_to") >= f.col("log_end")))
        .where(f.col("role").isNotNull() | (f.col("cut_format") != _OF_OLD))
        .join(known, [*KEY, "broker", "epoch"], "left_anti")
    )
    end = f.when(f.col("role") == EventType.LEADS, f.greatest("log_end", "later_end"))
    placed = _then_led(blind, leadership).select(
        *_cut(end=f.when(f.col("cut_to") < end, end)),
        # Who follows in a turn follows in its epoch; who led in it, or is not known to, in one that began meanwhile.
        f.when(f.col("role") == EventType.FOLLOWS, f.col("epoch")).otherwise(f.col("then_epoch")).alias("leader_epoch"),
        f.col("cut_at").alias("replica_at"),
        f.lit(None).cast("long").alias("high_watermark"),
        f.lit(None).cast("int").alias("known"),
        f.when(f.col("role") == EventType.LEADS, f.col("epoch")).alias("took_part"),
        f.lit(False).alias("by_memory"),
    )
    return told.unionByName(placed)


def _cut(end: Value) -> list[Value]:
    return [
        *map(f.col, KEY),
        f.col("broker").alias("replica"),
        end.alias("end"),
        f.col("cut_to").alias("base"),
        f.lit(TRUNCATED).alias("evidence"),
        f.col("cut_to").alias("truncated_to"),
        f.col("epoch").alias("told_in"),
        f.lit(None).cast("long").alias("tail"),
    ]


def _then_led(cut: DataFrame, leadership: DataFrame) -> DataFrame:
    """`then_epoch`: the last epoch that began before the cut and that somebody else led; null if none is known."""
    error = f.coalesce("begin_error_us", f.lit(0))
    led = leadership.where("leader >= 0 and leader_epoch is not null and begin is not null").select(
        *KEY,
        "leader",
        f.col("leader_epoch").alias("then_epoch"),
        (f.unix_micros("begin") - error).alias("begin_us"),
    )
    one = cut.select(*KEY, "broker", "turn", "cut_at")
    before = one.join(led, [*KEY]).where(
        (f.col("leader") != f.col("broker")) & (f.col("begin_us") <= f.unix_micros("cut_at"))
    )
    latest = before.groupBy(*KEY, "broker", "turn").agg(f.max("then_epoch").alias("then_epoch"))
    return cut.join(latest, [*KEY, "broker", "turn"], "left")
