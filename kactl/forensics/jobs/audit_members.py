"""Who is in an ISR: the leader is, and whoever is not assigned is not."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

from .audit_rows import KEY, about_partitions, breach, ids, say
from .lines import is_a

# At the end of a reassignment those that were taken off the assignment leave the ISR one after the other; a state that
# was still told after so long is no step of that.
STRAY_US: Final = 300_000_000


def in_sync(timed: DataFrame) -> DataFrame:
    """States in which the leader is not in the ISR, each once, however many lines tell of it."""
    lines = about_partitions(
        timed,
        EventType.PARTITION,
        EventType.PARTITION_CREATED,
        EventType.ISR_CUT,
        EventType.ISR_UPDATED,
        EventType.LEADERSHIP,
        EventType.SENT_PARTITION,
        EventType.RECEIVED_PARTITION,
        EventType.METADATA_PARTITION,
        EventType.LEADS,
    )
    leader = f.when(is_a(EventType.LEADS), f.col("speaker")).otherwise(f.col("leader"))
    told = f.struct("at", "file_id", "offset", "speaker", "controller", "controller_epoch")
    rows = (
        lines.withColumn("leader", leader)
        .where((f.col("leader") >= 0) & f.col("isr").isNotNull() & ~f.array_contains("isr", f.col("leader")))
        .groupBy(*KEY, "leader", "leader_epoch", "isr")
        .agg(f.min(told).alias("told"))
        .select(*KEY, "leader", "leader_epoch", "isr", "told.*", f.col("told.speaker").alias("broker"))
    )
    return breach(
        rows,
        "leader-in-isr",
        expected=say("leader %s in the ISR of leader epoch %s", "leader", "leader_epoch"),
        found=say("ISR [%s]", ids("isr")),
    )


def assigned(timed: DataFrame) -> DataFrame:
    """States with brokers in the ISR that are not assigned, and that lasted."""
    lines = about_partitions(
        timed, EventType.SENT_PARTITION, EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION
    )
    told = f.struct("at", "file_id", "offset", "speaker", "controller", "controller_epoch")
    lasted_us = f.unix_micros("last_at") - f.unix_micros("told.at")
    rows = (
        lines.where("leader >= -1 and size(replicas) > 0")
        .withColumn("strays", f.array_except("isr", "replicas"))
        .where(f.size("strays") > 0)
        .groupBy(*KEY, "leader_epoch", "partition_epoch", "isr", "replicas", "strays")
        .agg(f.min(told).alias("told"), f.max("at").alias("last_at"))
        .where(lasted_us > STRAY_US)
        .select("*", "told.*", f.get("strays", f.lit(0)).alias("broker"))
    )
    return breach(
        rows,
        "isr-assigned",
        expected=say("ISR within [%s]", ids("replicas")),
        found=say("ISR [%s]", ids("isr")),
    )
