"""Epochs of partitions: they rise, and each has one leader."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

from .audit_rows import KEY, about_partitions, breach, say, with_steady_clocks
from .lines import NEW, OFFLINE, ONLINE, is_a

# Of the same epoch, told of within it. What is further apart may be of another topic of the same name, whose making no
# log tells; two controllers at once write theirs within a session's length.
TOGETHER_US: Final = 600_000_000


def epochs_rise(timed: DataFrame) -> DataFrame:
    """Leader and partition epochs of controllers' own lines, each against the line before.

    Both by one controller, or by one and the next whose taking over is in the logs: else a topic may have been deleted
    and made anew in between, and begun again from 0. A first leader is not compared for the same reason.
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
    # A line that tells an epoch again is no election; one out of OfflinePartition is.
    stayed = (rose == 0) & f.coalesce(f.col("from_state") == OFFLINE, f.lit(False))
    version = f.col("partition_epoch") - f.col("before.partition_epoch")
    leader = breach(
        compared.where((rose < 0) | stayed),
        "leader-epoch",
        expected=say("above %s", "before.leader_epoch"),
        found=f.col("leader_epoch"),
    )
    partition = breach(
        compared.where(((rose > 0) & (version <= 0)) | ((rose == 0) & (version < 0))),
        "partition-epoch",
        expected=say("above %s, with leader epoch %s", "before.partition_epoch", "leader_epoch"),
        found=f.col("partition_epoch"),
    )
    return leader.unionByName(partition)


def _decided(timed: DataFrame) -> DataFrame:
    """Leaders that controllers elected and ISRs that they cut, each once."""
    lines = about_partitions(timed, EventType.PARTITION, EventType.ISR_CUT).where(
        "leader_epoch is not null and controller_epoch is not null"
    )
    told = lines.where(is_a(EventType.ISR_CUT) | (f.col("to_state") == ONLINE))
    names = ("type", "speaker", "controller", "controller_epoch", "at", "leader_epoch", "partition_epoch", "from_state")
    once = told.groupBy(*KEY, *names).agg(f.min(f.struct("file_id", "offset")).alias("place"))
    return once.select(*KEY, *names, "place.*", f.col("speaker").alias("broker"))


def _taken_over(timed: DataFrame) -> DataFrame:
    """controller_epoch, is_whole: those of which the beginning is in the logs."""
    begun = timed.where(
        is_a(EventType.CONTROLLER_ELECTED, EventType.CONTROLLER_EPOCH) & f.col("controller_epoch").isNotNull()
    )
    return begun.select("controller_epoch").distinct().withColumn("is_whole", f.lit(True))


def one_leader(timed: DataFrame) -> DataFrame:
    """Leader epochs of a partition of which two leaders are told."""
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
        # In epoch 0 everything begins, and may begin again unseen.
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
    return breach(
        rows,
        "one-leader",
        expected=say("leader %s with leader epoch %s", "before.leader", "leader_epoch"),
        found=say("leader %s", "leader"),
    )


def _leader() -> Value:
    return f.when(is_a(EventType.LEADS), f.col("speaker")).otherwise(f.col("leader"))
