"""Audit rules about ISRs: the leader is a member, and every member is assigned."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.lines import is_a

from .rules import about_partitions, describe, ids, violation

# At the end of a reassignment the removed replicas leave the ISR one after the other. A state that lasts this long is
# no step of that.
STRAY_US: Final = 300_000_000


def in_sync(timed: DataFrame) -> DataFrame:
    """States with a leader outside the ISR, each once, however many lines contain it."""
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
    return violation(
        rows,
        "leader-in-isr",
        expected=describe("leader %s in the ISR of leader epoch %s", "leader", "leader_epoch"),
        found=describe("ISR [%s]", ids("isr")),
    )


def assigned(timed: DataFrame) -> DataFrame:
    """States with ISR members that are not assigned, and that lasted."""
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
    return violation(
        rows,
        "isr-assigned",
        expected=describe("ISR within [%s]", ids("replicas")),
        found=describe("ISR [%s]", ids("isr")),
    )
