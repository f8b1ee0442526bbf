"""Audit rules about fencing at brokers: no older request and no older controller is obeyed after a newer one.

The arrival of an old request is no violation, and brokers log that they reject it. Only requests that a broker
processed count.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.jobs.lines import LEADER_AND_ISR, is_a

from .rules import about_partitions, describe, violation, with_steady_clocks

# Lines that a controller writes about itself, with its epoch.
_CONTROLLERS_OWN: Final = (
    EventType.CONTROLLER_ELECTED,
    EventType.CONTROLLER_EPOCH,
    EventType.CONTROLLER_READY,
    EventType.PARTITION,
    EventType.SENT,
    EventType.SENT_PARTITION,
)


def requests_in_order(timed: DataFrame) -> DataFrame:
    """Roles that a broker took in an older epoch than one of its earlier roles.

    Epoch 0 and roles with a shorter log than before are excluded: they may belong to another topic of the same name
    whose creation is in no log.
    """
    names = ("leader_epoch", "log_end", "is_new", "controller", "controller_epoch", "file_id", "offset")
    taken = with_steady_clocks(_roles(timed).unionByName(_transitions(timed)), timed)
    once = taken.groupBy(*KEY, "speaker", "way", "at", *names[:5]).agg(
        f.min(f.struct("file_id", "offset")).alias("place")
    )
    in_order = Window.partitionBy(*KEY, "speaker", "way").orderBy("at", "leader_epoch")
    before = f.lag(f.struct("leader_epoch", "log_end")).over(in_order)
    longer = f.col("log_end").isNull() | ((f.col("log_end") > 0) & (f.col("log_end") >= f.col("before.log_end")))
    went_back = (f.col("leader_epoch") < f.col("before.leader_epoch")) & (f.col("leader_epoch") > 0)
    # One violation may be visible in both.
    rows = (
        once.withColumn("before", before)
        .where(went_back & longer & ~f.coalesce("is_new", f.lit(False)))
        .groupBy(*KEY, "speaker", "leader_epoch", f.col("before.leader_epoch").alias("had"))
        .agg(f.min(f.struct("at", "place", "controller", "controller_epoch")).alias("told"))
        .select("*", "told.*", "told.place.*", f.col("speaker").alias("broker"))
    )
    return violation(
        rows,
        "request-order",
        expected=describe("leader epoch %s or above", "had"),
        found=describe("leader epoch %s", "leader_epoch"),
    )


def _roles(timed: DataFrame) -> DataFrame:
    """Roles in broker lines from 2.6 on."""
    lines = about_partitions(timed, EventType.LEADS, EventType.FOLLOWS)
    return lines.where("speaker is not null and leader_epoch is not null and log_end is not null").select(
        *KEY,
        "speaker",
        f.lit("role").alias("way"),
        "at",
        "leader_epoch",
        "log_end",
        f.lit(False).alias("is_new"),
        "controller",
        "controller_epoch",
        "file_id",
        "offset",
    )


def _transitions(timed: DataFrame) -> DataFrame:
    """Transitions that brokers began, at TRACE, with the epoch of the request that caused each.

    Correlation ids restart with each connection, so it is the last such request before the transition.
    """
    lines = about_partitions(timed, EventType.RECEIVED_PARTITION, EventType.TRANSITION_BEGUN)
    begun = is_a(EventType.TRANSITION_BEGUN)
    one = Window.partitionBy(*KEY, "speaker", "controller", "controller_epoch", "correlation_id").orderBy(
        "at", begun, "offset"
    )
    before = one.rowsBetween(Window.unboundedPreceding, -1)
    asked = f.when(
        is_a(EventType.RECEIVED_PARTITION) & f.col("leader_epoch").isNotNull(), f.struct("leader_epoch", "is_new")
    )
    return (
        lines.where(f.col("request") == LEADER_AND_ISR)
        .where("speaker is not null and correlation_id is not null")
        .withColumn("asked", f.last(asked, ignorenulls=True).over(before))
        .where(begun & f.col("asked").isNotNull())
        .select(
            *KEY,
            "speaker",
            f.lit("transition").alias("way"),
            "at",
            f.col("asked.leader_epoch").alias("leader_epoch"),
            f.lit(None).cast("long").alias("log_end"),
            f.col("asked.is_new").alias("is_new"),
            "controller",
            "controller_epoch",
            "file_id",
            "offset",
        )
    )


def controllers_at_brokers(timed: DataFrame) -> DataFrame:
    """Controllers that a broker obeyed after it had obeyed a later one."""
    obeyed = timed.where(
        is_a(EventType.METADATA, EventType.METADATA_PARTITION, EventType.TRANSITION_BEGUN)
        & (f.col("role") == Role.BROKER)
    ).where("speaker is not null and controller_epoch is not null and at is not null")
    place = f.struct("at", "file_id", "offset", "controller")
    epochs = (
        with_steady_clocks(obeyed, timed)
        .groupBy("speaker", "controller_epoch")
        .agg(f.min("at").alias("first_at"), f.max(place).alias("last"))
    )
    later = Window.partitionBy("speaker").orderBy("controller_epoch").rowsBetween(1, Window.unboundedFollowing)
    next_first = f.min(f.struct(f.col("first_at").alias("at"), "controller_epoch")).over(later)
    rows = (
        epochs.withColumn("next", next_first)
        .where("last.at > next.at")
        .select("controller_epoch", "next", "last.*", f.col("speaker").alias("broker"))
    )
    return violation(
        rows,
        "controller-epoch",
        expected=describe("controller epoch %s or above", "next.controller_epoch"),
        found=describe("controller epoch %s", "controller_epoch"),
    )


def one_controller(timed: DataFrame) -> DataFrame:
    """Controllers that were active with the epoch of another one."""
    own = timed.where(is_a(*_CONTROLLERS_OWN) & (f.col("role") == Role.CONTROLLER)).where(
        "controller is not null and controller_epoch is not null and at is not null"
    )
    # ZooKeeper and KRaft count epochs separately; a cluster may have migrated from one to the other.
    of = (
        f.when(f.col("kind") == Kind.KACTL, "kactl")
        .when(f.col("format").startswith("K"), "kraft")
        .otherwise("zookeeper")
    )
    first = own.groupBy(of.alias("of"), "controller_epoch", "controller").agg(
        f.min(f.struct("at", "file_id", "offset", "speaker")).alias("told")
    )
    in_order = Window.partitionBy("of", "controller_epoch").orderBy("told", "controller")
    rows = (
        first.withColumn("before", f.lag("controller").over(in_order))
        .where("before is not null")
        .select("controller_epoch", "controller", "before", "told.*", f.col("told.speaker").alias("broker"))
    )
    return violation(
        rows,
        "one-controller",
        expected=describe("controller %s with epoch %s", "before", "controller_epoch"),
        found=describe("controller %s", "controller"),
    )
