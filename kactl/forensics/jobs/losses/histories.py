"""Epochs of partitions that lost records: leader, end of its log, and how far records were known to be committed.

A high watermark describes the history in which it was logged. If a later leader had a shorter log, the watermark holds
up to there only; if the start of a leader in between is unknown, it is not used.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.jobs.lines import NEW

# A broker that is stopped and started again is back after no less than this.
RESTARTED_US: Final = 5_000_000
_FIELDS: Final = ("epoch", "leader", "log_end", "watermark", "at", "in_sync", "is_clean")


def histories(starts: DataFrame, followed: DataFrame, leadership: DataFrame, of: DataFrame) -> DataFrame:
    """Return the epochs of the partitions in `of`, in order.

    Returns:
        topic, partition, life, history. Each element has: epoch; leader, -1 none; log_end, of the leader at its
            beginning; watermark, the highest known in it; at, when its leader took its role; in_sync, all replicas that
            any line shows in sync, null without a leader; is_clean, true if its leader was certainly elected cleanly.
    """
    some = of.select(*KEY).distinct()
    by_broker = starts.select(*KEY, "epoch", "leader", "log_end", "watermark", f.col("led_at").alias("at"), "in_sync")
    # A watermark that a follower logs when it begins belongs to the epoch in which it last took part.
    by_follower = followed.where("tail_known is not null").select(
        *KEY, f.col("tail_known").alias("epoch"), f.col("high_watermark").alias("watermark")
    )
    by_controller = leadership.where("leader_epoch is not null").select(
        *KEY,
        f.col("leader_epoch").alias("epoch"),
        "leader",
        f.coalesce("led_at", "begin").alias("began_at"),
        f.when(f.col("leader") >= 0, f.col("isr")).alias("in_sync"),
        _is_clean().alias("is_clean"),
    )
    every = by_broker.unionByName(by_follower, allowMissingColumns=True).unionByName(
        by_controller, allowMissingColumns=True
    )
    told = f.when(f.col("in_sync").isNotNull(), f.col("in_sync"))
    epochs = (
        every.join(some, [*KEY], "left_semi")
        .groupBy(*KEY, "epoch")
        .agg(
            f.max("leader").alias("leader"),
            f.min("log_end").alias("log_end"),
            f.max("watermark").alias("watermark"),
            f.coalesce(f.min("at"), f.min("began_at")).alias("at"),
            f.array_distinct(f.flatten(f.collect_list(told))).alias("in_sync"),
            f.coalesce(f.max("is_clean"), f.lit(False)).alias("is_clean"),
        )
    )
    return epochs.groupBy(*KEY).agg(f.sort_array(f.collect_list(f.struct(*_FIELDS))).alias("history"))


def _is_clean() -> Value:
    """True if a row of `leadership` cannot be of an unclean election."""
    was_in = f.array_contains("prev_isr", f.col("leader"))
    is_next = f.col("prev_leader_epoch") == f.col("leader_epoch") - 1
    reasons = (
        (f.col("how") == "initial") | (f.col("from_state") == NEW),
        f.size("isr") > 1,  # an uncleanly elected leader is alone
        is_next & (f.col("leader") == f.col("prev_leader")) & (f.col("leader") >= 0),
        is_next & was_in & (f.col("prev_leader") == -1),
        was_in & (f.col("recovery") == "RECOVERED"),
    )
    found = f.lit(False)
    for reason in reasons:
        found = found | f.coalesce(reason, f.lit(False))
    return found


def watermark_before(history: str, epoch: str, *, took_part: str) -> Value:
    """Return the high watermark of the history that ended where `epoch` began, for a replica that last took part in
    `took_part`.

    Null if none is known. If a leader's start is in no line, the replica may already have left that history.
    """
    nothing = f.struct(
        f.lit(None).cast("long").alias("watermark"),
        f.lit(None).cast("int").alias("epoch"),
        f.lit(None).cast("int").alias("leader"),
    )

    def go_on(known: Value, each: Value) -> Value:
        is_next = each["epoch"] == known["epoch"] + 1
        cuts_where = each["log_end"].isNotNull() | (each["leader"] == -1) | (each["leader"] == known["leader"])
        kept = f.when(
            f.coalesce(is_next & cuts_where, f.lit(False)) & known["watermark"].isNotNull(),
            f.least(known["watermark"], each["log_end"]),
        )
        return f.struct(
            f.greatest(kept, each["watermark"]).alias("watermark"),
            each["epoch"].alias("epoch"),
            each["leader"].alias("leader"),
        )

    def is_blind(each: Value) -> Value:
        return (each["epoch"] > f.col(took_part)) & each["log_end"].isNull() & (each["leader"] >= 0)

    left = f.array_min(f.transform(f.filter(history, is_blind), lambda each: each["epoch"]))
    before = f.filter(
        history, lambda each: (each["epoch"] < f.col(epoch)) & (each["epoch"] < f.coalesce(left, f.col(epoch)))
    )
    return f.aggregate(before, nothing, go_on, lambda known: known["watermark"])


def of_epoch(history: str, epoch: str) -> Value:
    """Returns the element of one epoch; null if there is none."""
    return f.get(f.filter(history, lambda each: each["epoch"] == f.col(epoch)), f.lit(0))


def was_in_sync_between(history: str, replica: str, *, after: str, until: str, at: str) -> Value:
    """True if a replica was in sync with another leader in an epoch after `after` and up to `until`.

    An epoch that began right before `at`, when the replica logged its role, does not count: a replica that is in sync
    when an epoch begins has not copied anything in it yet, and no broker restarts that quickly.
    """

    def long_ago(each: Value) -> Value:
        since_us = f.unix_micros(at) - f.unix_micros(each["at"])
        return f.coalesce(since_us > RESTARTED_US, f.lit(True))

    def with_it(each: Value) -> Value:
        return (
            (each["epoch"] > f.col(after))
            & (each["epoch"] <= f.col(until))
            & (each["leader"] >= 0)
            & (each["leader"] != f.col(replica))
            & f.array_contains(each["in_sync"], f.col(replica))
            & long_ago(each)
        )

    return f.coalesce(f.exists(history, with_it), f.lit(False))
