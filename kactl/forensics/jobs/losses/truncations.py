"""Log truncations, derived from three kinds of evidence.

A replica's log is a part of the partition's history up to the last epoch in which it took part. Each later leader
continues from the end of its own log (B4), so records of the replica beyond that are no longer part of the history: it
removes them when it begins to follow. Records of the epoch itself are different: a follower that comes back in the
epoch in which it left has more than the leader began with, and loses nothing.

    leader 1, epoch 4   ├──────────────┼────────────┤ 110
    leader 2, epoch 6   ├──────────────┤ 90 ─────────────────── 180
    leader 2, epoch 7   ├───────────────────────────────────────┤ 180     # its ISR shrank: only the epoch rose
    1 follows, epoch 7: it has 110, took part in 4, and the first leader after that had 90: 20 records are lost in 6

A history may be truncated several times; each truncation counts the records that the earlier ones had left.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.expressions import is_true, rows_of, stacked

FOLLOWER: Final = "follower"
LEADER: Final = "leader"
TRUNCATED: Final = "truncated"
# A replica that was absent for longer is compared only with the leaders of this many latest epochs.
AWAY_EPOCHS_MAX: Final = 10_000
# Up to 1.0 a follower may truncate its log to its high watermark, and then fetch the same records again.
_UP_TO_1_0: Final = "I5-1.0"


def follows(log_segments: DataFrame) -> DataFrame:
    """Return the segments in which brokers follow, with the position of their logs in the history.

    Returns:
        the columns of `log_segments`, and:
        known: the last epoch before this one in which the broker took part; null if the logs do not show it.
        by_memory: whether the broker logged that epoch itself, and not only before a restart.
        tail: a number, the same for segments between which it cannot have removed anything: its log is no longer than
            before. Excess records of one of them are still there in the next, and are lost once.
        tail_known: `known` of the first segment of the tail. tail_cut_to: the lowest `cut_to` of the tail.
    """
    own = rows_of(*KEY, "broker").in_order("epoch", "at")
    remembered = f.when(f.col("prev_epoch") >= 0, f.col("prev_epoch"))
    before = own.previous(f.struct("role", "log_end", "cut_to"))
    same = (
        (f.col("role") == EventType.FOLLOWS)
        & (f.col("before.role") == EventType.FOLLOWS)
        & f.col("before.cut_to").isNull()
        & (f.col("log_end") <= f.col("before.log_end"))
    )
    tail = rows_of(*KEY, "broker", "tail")
    return (
        log_segments.where("turn > 0")
        .withColumn("known", f.greatest(remembered, own.previous("epoch")))
        .withColumn("by_memory", remembered.isNotNull())
        .withColumn("before", before)
        .withColumn("tail", own.running(f.sum(f.when(is_true(same), 0).otherwise(1))))
        .withColumn("tail_known", tail.in_order("epoch", "at").so_far(f.first("known")))
        .withColumn("tail_cut_to", tail.over_all(f.min("cut_to")))
        .where(f.col("role") == EventType.FOLLOWS)
        .drop("before")
    )


def of_followers(followed: DataFrame, starts: DataFrame) -> DataFrame:
    """Return the records that followers had beyond the leaders of epochs in which they took no part.

    Args:
        followed: the result of `follows`.
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
    # A later truncation can only remove what an earlier one left.
    before = rows_of(*KEY, "broker", "tail").in_order("leader_epoch", "epoch")
    left = f.least("log_end", before.running_before(f.min("base")))
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
    """Returns the records of leaders that the next leader did not have; the old leader need not have come back."""
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
    )


def of_truncations(
    log_segments: DataFrame,
    followed: DataFrame,
    by_followers: DataFrame,
    by_leaders: DataFrame,
    leadership: DataFrame,
) -> DataFrame:
    """Return truncations that only the truncated log itself shows.

    Up to 2.5 a follower does not log the end of its log. Then only the truncation is known, unless the broker led
    before and logged the end then. The same holds if the logs of the leaders are missing.
    """
    counted = by_followers.select(*KEY, f.col("replica").alias("broker"), "tail").distinct()
    measured = (
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
    unmeasured = (
        log_segments.where(f.col("cut_to").isNotNull())
        .where(f.col("role").isNull() | (f.col("role") == EventType.LEADS) | (f.col("cut_to") >= f.col("log_end")))
        .where(f.col("role").isNotNull() | (f.col("cut_format") != _UP_TO_1_0))
        .join(known, [*KEY, "broker", "epoch"], "left_anti")
    )
    end = f.when(f.col("role") == EventType.LEADS, f.greatest("log_end", "later_end"))
    placed = _then_led(unmeasured, leadership).select(
        *_cut(end=f.when(f.col("cut_to") < end, end)),
        # A follower follows in the epoch of its segment. A leader, or a broker without a known role, follows in one
        # that began meanwhile.
        f.when(f.col("role") == EventType.FOLLOWS, f.col("epoch")).otherwise(f.col("then_epoch")).alias("leader_epoch"),
        f.col("cut_at").alias("replica_at"),
        f.when(f.col("role") == EventType.LEADS, f.col("epoch")).alias("took_part"),
        f.lit(False).alias("by_memory"),
    )
    return stacked(measured, placed)


def _cut(end: Value) -> list[Value]:
    return [
        *map(f.col, KEY),
        f.col("broker").alias("replica"),
        end.alias("end"),
        f.col("cut_to").alias("base"),
        f.lit(TRUNCATED).alias("evidence"),
        f.col("cut_to").alias("truncated_to"),
        f.col("epoch").alias("told_in"),
    ]


def _then_led(cut: DataFrame, leadership: DataFrame) -> DataFrame:
    """Add `then_epoch`: the last epoch of another leader that began before the truncation; null if none is known."""
    error = f.coalesce("begin_error_us", f.lit(0))
    led = leadership.where("leader >= 0 and leader_epoch is not null and begin is not null").select(
        *KEY,
        "leader",
        f.col("leader_epoch").alias("then_epoch"),
        (f.unix_micros("begin") - error).alias("begin_us"),
    )
    truncation = cut.select(*KEY, "broker", "turn", "cut_at")
    before = truncation.join(led, [*KEY]).where(
        (f.col("leader") != f.col("broker")) & (f.col("begin_us") <= f.unix_micros("cut_at"))
    )
    latest = before.groupBy(*KEY, "broker", "turn").agg(f.max("then_epoch").alias("then_epoch"))
    return cut.join(latest, [*KEY, "broker", "turn"], "left")
