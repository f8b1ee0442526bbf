"""Audit rules about epochs of partitions: they rise, and each has one leader."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.lines import NEW, OFFLINE, ONLINE, is_a

from .rules import about_partitions, describe, violation, with_steady_clocks

# Lines further apart than this may concern another topic of the same name whose creation is in no log. Two concurrent
# controllers write theirs within a session timeout.
TOGETHER_US: Final = 600_000_000


def epochs_rise(timed: DataFrame) -> DataFrame:
    """Compare the leader and partition epochs of each controller line with those of the line before.

    Both lines are of one controller, or of consecutive controllers whose takeover is in the logs: otherwise a topic may
    have been deleted and created again in between, starting from 0. A first leader is not compared for the same reason.
    """
    lines = with_steady_clocks(_decided(timed), timed)
    in_order = Window.partitionBy(*KEY).orderBy("controller_epoch", "at", "leader_epoch", "partition_epoch")
    before = f.lag(f.struct("leader_epoch", "partition_epoch", "controller_epoch", "at")).over(in_order)
    compared = (
        lines.withColumn("before", before)
        .where(f.col("before").isNotNull() & ~f.coalesce(f.col("from_state") == NEW, f.lit(False)))
        .join(f.broadcast(_taken_over(timed)), "controller_epoch", "left")
        .where(
            (f.col("before.controller_epoch") == f.col("controller_epoch"))
            | ((f.col("before.controller_epoch") == f.col("controller_epoch") - 1) & f.col("is_whole"))
        )
    )
    rose = f.col("leader_epoch") - f.col("before.leader_epoch")
    # A repeated epoch is no election; one out of OfflinePartition is.
    stayed = (rose == 0) & f.coalesce(f.col("from_state") == OFFLINE, f.lit(False))
    version = f.col("partition_epoch") - f.col("before.partition_epoch")
    leader = violation(
        compared.where((rose < 0) | stayed),
        "leader-epoch",
        expected=describe("above %s", "before.leader_epoch"),
        found=f.col("leader_epoch"),
    )
    partition = violation(
        compared.where(((rose > 0) & (version <= 0)) | ((rose == 0) & (version < 0))),
        "partition-epoch",
        expected=describe("above %s, with leader epoch %s", "before.partition_epoch", "leader_epoch"),
        found=f.col("partition_epoch"),
    )
    return leader.unionByName(partition)


def _decided(timed: DataFrame) -> DataFrame:
    """Leaders that controllers elected and ISRs that they shrank, each once."""
    lines = about_partitions(timed, EventType.PARTITION, EventType.ISR_CUT).where(
        "leader_epoch is not null and controller_epoch is not null"
    )
    told = lines.where(is_a(EventType.ISR_CUT) | (f.col("to_state") == ONLINE))
    names = ("type", "speaker", "controller", "controller_epoch", "at", "leader_epoch", "partition_epoch", "from_state")
    once = told.groupBy(*KEY, *names).agg(f.min(f.struct("file_id", "offset")).alias("place"))
    return once.select(*KEY, *names, "place.*", f.col("speaker").alias("broker"))


def _taken_over(timed: DataFrame) -> DataFrame:
    """controller_epoch, is_whole: epochs whose beginning is in the logs."""
    begun = timed.where(
        is_a(EventType.CONTROLLER_ELECTED, EventType.CONTROLLER_EPOCH) & f.col("controller_epoch").isNotNull()
    )
    return begun.select("controller_epoch").distinct().withColumn("is_whole", f.lit(True))


def one_leader(timed: DataFrame) -> DataFrame:
    """Leader epochs of a partition with two leaders."""
    lines = about_partitions(
        timed,
        EventType.PARTITION,
        EventType.ISR_CUT,
        EventType.LEADERSHIP,
        EventType.SENT_PARTITION,
        EventType.RECEIVED_PARTITION,
        EventType.METADATA_PARTITION,
        EventType.LEADS,
        EventType.FOLLOWS,
    )
    told = f.struct("at", "file_id", "offset", "speaker", "controller", "controller_epoch")
    first = (
        # A partition begins in epoch 0, and may begin again without a line of it.
        lines.withColumn("leader", _leader())
        .where("leader >= 0 and leader_epoch > 0")
        .groupBy(*KEY, "leader_epoch", "leader")
        .agg(f.min(told).alias("told"))
    )
    in_order = Window.partitionBy(*KEY, "leader_epoch").orderBy("told", "leader")
    before = f.lag(f.struct("leader", "told.at")).over(in_order)
    apart_us = f.unix_micros("told.at") - f.unix_micros("before.at")
    rows = (
        first.withColumn("before", before)
        .where(f.col("before").isNotNull() & (apart_us <= TOGETHER_US))
        .select(*KEY, "leader_epoch", "leader", "before", "told.*", f.col("told.speaker").alias("broker"))
    )
    return violation(
        rows,
        "one-leader",
        expected=describe("leader %s with leader epoch %s", "before.leader", "leader_epoch"),
        found=describe("leader %s", "leader"),
    )


def _leader() -> Value:
    return f.when(is_a(EventType.LEADS), f.col("speaker")).otherwise(f.col("leader"))
