"""Who led each partition from when to when, and how each came to lead.

    states ─▶ the first of each leader epoch ─┬─▶ who led before ─▶ how, by `grounds` ─▶ one row for each leader epoch
                                              └─ the new leader's own lines

A controller's line dates the beginning; without one the earliest line does. The new leader's lines date what clients
see of it.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType
from kactl.forensics.events import Column

from . import grounds
from .job import BOOL, IDS, INT, LONG, TEXT, TIME, Job
from .lines import ABSENT, LEADER_AND_ISR, is_a
from .states import DELETED

COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", INT, "the partition's number"),
    Column("life", INT, "which topic of this name; see `timed`"),
    Column("leader_epoch", INT, "the leader epoch; one row for each. Null if no line has it (1.0 and before)"),
    Column("leader", INT, "who leads in it; -1 nobody, null if no line says it"),
    Column("begin", TIME, "when the controller decided it, or else the earliest line of it"),
    Column("begin_error_us", LONG, "by how much `begin` may be wrong, either way"),
    Column(
        "end", TIME, "begin of the next epoch, or the partition's deletion; null if it lasts to the end of the logs"
    ),
    Column(
        "how",
        TEXT,
        "initial, offline (after there was no leader), preferred, controlled-shutdown, reassign, isr (the leader "
        "stayed, or was taken out and nobody followed) or unknown",
    ),
    Column("planned", BOOL, "whether somebody wanted it so: false for offline; null for initial, isr and unknown"),
    Column("isr", IDS, "who was in sync at its beginning; null if no line says it"),
    Column("replicas", IDS, "who was assigned, as far as known"),
    Column("partition_epoch", INT, "version of the stored state at its beginning"),
    Column("recovery", TEXT, "RECOVERED or RECOVERING, from 3.2 on"),
    Column("controller", INT, "the controller that decided it"),
    Column("controller_epoch", INT, "its epoch"),
    Column("from_state", TEXT, "the partition's state before, if a line has it"),
    Column("prev_leader", INT, "who led in the epoch before; -1 nobody, null unknown"),
    Column("prev_leader_epoch", INT, "the epoch before, as far as known"),
    Column("prev_isr", IDS, "the last known ISR before it (not only of the epoch's beginning)"),
    Column(
        "prev_isr_sure",
        BOOL,
        "whether that ISR was the last one: false if others were stored in between, null if no line has versions",
    ),
    Column("received_at", TIME, "when the new leader's broker began with the request (B1, B2); null if unknown"),
    Column("led_at", TIME, "when the new leader took its role (B4, B6, B7): from here on clients can use it"),
    Column("led_error_us", LONG, "by how much the two may be wrong, either way"),
    Column("log_end", LONG, "the new leader's log end offset then"),
    Column("high_watermark", LONG, "its high watermark then"),
)
_KEY: Final = ("topic", "partition", "life")
# What says of a state only that its ISR was changed does not say with which ISR the leader began.
_ISR_CHANGES: Final = ("I3", "C11")


def leadership(timed: DataFrame, states: DataFrame) -> DataFrame:
    """One row for each leader epoch of each partition."""
    epochs, led = _with_before(_epochs(states)), _led(timed)
    is_leaders = [f.col(name) == f.col(f"of_{name}") for name in (*_KEY, "leader_epoch", "leader")]
    # What the new leader knows of the one before counts where the logs have no line of it.
    is_newer = f.col("told_leader_epoch") > f.coalesce("prev_leader_epoch", f.lit(-1))
    both = epochs.join(led, is_leaders, "left").withColumns(
        {
            "prev_leader": f.when(is_newer, f.col("told_leader")).otherwise(f.col("prev_leader")),
            "prev_leader_epoch": f.when(is_newer, f.col("told_leader_epoch")).otherwise(f.col("prev_leader_epoch")),
        }
    )
    gone = f.when(f.col("gone_at") >= f.col("begin"), f.col("gone_at"))
    return (
        grounds.explain(both, timed)
        .join(_gone(timed, states), list(_KEY), "left")
        .withColumn("end", f.coalesce("next_begin", gone))
        .select(*(each.name for each in COLUMNS))
    )


# -- epochs ------------------------------------------------------------------------------------------------------------


def _epochs(states: DataFrame) -> DataFrame:
    """The first state of each leader epoch, and the last ISR in it."""
    order = f.struct(f.coalesce("partition_epoch", f.lit(-1)), f.col("at"))
    is_change_only = f.size(f.array_except("formats", f.array(*map(f.lit, _ISR_CHANGES)))) == 0
    beginning = f.when(~is_change_only, order)
    # Without an epoch each naming of a leader is one of its own; changes of the ISR by one leader are of one.
    unnumbered = f.when(f.col("leader_epoch").isNull() & ~is_change_only, f.col("at")).alias("unnumbered_at")
    changing = f.when(f.col("leader_epoch").isNull() & is_change_only, f.col("leader")).alias("changing")
    dated = f.struct((f.col("told_by") != "controller").alias("heard"), "at")
    of_beginning = ("isr", "partition_epoch", "recovery", "from_state")
    return (
        states.where(f.coalesce(f.col("leader"), f.lit(0)) != DELETED)
        .groupBy(*_KEY, "leader_epoch", unnumbered, changing)
        .agg(
            f.min_by("leader", f.when(f.col("leader").isNotNull(), order)).alias("leader"),
            f.min(f.when(~is_change_only, dated)).alias("of_beginning"),
            f.min("at").alias("of_any"),
            f.min_by("at_error_us", f.when(~is_change_only, dated)).alias("error_us"),
            f.min_by("at_error_us", "at").alias("error_of_any"),
            *(f.min_by(name, beginning).alias(name) for name in of_beginning),
            f.min_by("controller", f.when(~is_change_only, dated)).alias("controller"),
            f.min_by("controller_epoch", f.when(~is_change_only, dated)).alias("controller_epoch"),
            f.min_by("replicas", f.when(f.col("replicas").isNotNull(), order)).alias("replicas"),
            f.max_by("isr", f.when(f.col("isr").isNotNull(), order)).alias("last_isr"),
            f.max_by("partition_epoch", f.when(f.col("isr").isNotNull(), order)).alias("last_isr_version"),
            f.array_distinct(f.flatten(f.collect_list("formats"))).alias("formats"),
        )
        .withColumns(
            {
                "begin": f.coalesce("of_beginning.at", "of_any"),
                "begin_error_us": f.when(f.col("of_beginning").isNotNull(), f.col("error_us")).otherwise(
                    f.col("error_of_any")
                ),
            }
        )
        .drop("of_beginning", "of_any", "error_us", "error_of_any", "unnumbered_at", "changing")
    )


def _with_before(epochs: DataFrame) -> DataFrame:
    """Each with the one before it, and when the next one begins; what has no epoch goes by its time.

    Each write raises the version by one, and each change of leaders the leader epoch as well: where the version rose by
    more, somebody changed the ISR in between.
    """
    by_time = Window.partitionBy(*_KEY).orderBy("begin")
    number = f.coalesce("leader_epoch", f.max("leader_epoch").over(by_time), f.lit(-1))
    order = Window.partitionBy(*_KEY).orderBy("number", "begin")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    in_sync = f.struct(f.col("last_isr").alias("ids"), f.col("last_isr_version").alias("version"), "leader_epoch")
    written = f.col("partition_epoch") - f.col("in_sync.version")
    return (
        epochs.withColumn("number", number)
        .withColumns(
            {
                "prev_leader": f.lag("leader").over(order),
                "prev_leader_epoch": f.lag("leader_epoch").over(order),
                "in_sync": f.last(f.when(f.col("last_isr").isNotNull(), in_sync), ignorenulls=True).over(before),
                "prev_begin": f.lag("begin").over(order),
                "next_begin": f.lead("begin").over(order),
            }
        )
        .withColumns(
            {
                "prev_isr": f.col("in_sync.ids"),
                "prev_isr_sure": written == f.col("leader_epoch") - f.col("in_sync.leader_epoch"),
            }
        )
        .drop("in_sync")
    )


def _gone(timed: DataFrame, states: DataFrame) -> DataFrame:
    """When partitions were deleted, as far as it was told of each of them."""
    moved = is_a(EventType.PARTITION) & (f.col("to_state") == ABSENT)
    died = timed.where(moved & f.col("topic").isNotNull()).groupBy(*_KEY).agg(f.min("at").alias("died_at"))
    being = states.where(f.col("leader") == DELETED).groupBy(*_KEY).agg(f.min("at").alias("being_at"))
    both = being.join(died, list(_KEY), "full")
    return both.select(*_KEY, f.least("being_at", "died_at").alias("gone_at"))


# -- the new leader ----------------------------------------------------------------------------------------------------


def _led(timed: DataFrame) -> DataFrame:
    """For each epoch and broker: when it received it, when it led, and with what; the first time."""
    key = (*_KEY, "leader_epoch", "speaker")
    leads = _begun(timed)
    received = timed.where(
        is_a(EventType.RECEIVED_PARTITION) & (f.col("request") == LEADER_AND_ISR) & f.col("leader_epoch").isNotNull()
    )
    heard = received.where(f.col("leader") == f.col("speaker")).select(
        *key, "at", "at_error_us", "controller", "controller_epoch", "correlation_id"
    )
    one = ("topic", "partition", "speaker", "controller", "controller_epoch", "correlation_id")
    done = (
        timed.where(is_a(EventType.TRANSITION_DONE) & (f.col("to_state") == "leader"))
        .select(*one, f.col("at").alias("done_at"))
        .alias("done")
    )
    # A controller counts its requests anew whenever a broker comes back, so that a number may stand for many.
    took_us = f.unix_micros("done_at") - f.unix_micros("at")
    same = [f.col(f"heard.{name}") == f.col(f"done.{name}") for name in one]
    completed = (
        heard.alias("heard")
        .join(done, [*same, took_us.between(0, _REQUEST_S * 1_000_000)], "left")
        .groupBy(*(f.col(f"heard.{name}") for name in key))
        .agg(
            f.min("at").alias("heard_at"),
            f.min("done_at").alias("done_at"),
            f.max("at_error_us").alias("heard_error_us"),
        )
    )
    both = leads.join(completed, list(key), "full")
    return both.select(
        *(f.col(name).alias(f"of_{name}") for name in (*_KEY, "leader_epoch")),
        f.col("speaker").alias("of_leader"),
        f.coalesce("heard_at", "begun_at").alias("received_at"),
        f.coalesce("led_at", "done_at").alias("led_at"),
        f.coalesce("led_error_us", "heard_error_us").alias("led_error_us"),
        "log_end",
        "high_watermark",
        "told_leader",
        "told_leader_epoch",
        "removing",
    )


def _begun(timed: DataFrame) -> DataFrame:
    """A broker's first "Leader ... starts" of each epoch, with the request that it was at then (B2).

    A broker works at one request of its controller at a time, so it is the last one that it began with.
    """
    key = (*_KEY, "leader_epoch", "speaker")
    is_request = is_a(EventType.RECEIVED) & (f.col("request") == LEADER_AND_ISR)
    of_speaker = timed.where(
        (is_request | is_a(EventType.LEADS)) & f.col("speaker").isNotNull() & f.col("at").isNotNull()
    )
    order = Window.partitionBy("speaker").orderBy("at", "file_id", "offset")
    leads = of_speaker.withColumn("begun_at", f.last(f.when(is_request, f.col("at")), ignorenulls=True).over(order))
    first = f.struct("at", "file_id", "offset")
    told = ("log_end", "high_watermark", "begun_at", "at_error_us", "prev_leader", "prev_leader_epoch", "removing")
    found = (
        leads.where(is_a(EventType.LEADS) & f.col("leader_epoch").isNotNull())
        .groupBy(*key)
        .agg(f.min("at").alias("led_at"), *(f.min_by(name, first).alias(name) for name in told))
    )
    # -1 is what a broker says that has just been started; nobody has led in it.
    epoch = f.when(f.col("prev_leader_epoch") >= 0, f.col("prev_leader_epoch"))
    return found.select(
        *key,
        "led_at",
        "log_end",
        "high_watermark",
        f.when(f.col("begun_at") > f.col("led_at") - f.expr(f"interval {_REQUEST_S} seconds"), f.col("begun_at")).alias(
            "begun_at"
        ),
        f.col("at_error_us").alias("led_error_us"),
        f.when(epoch.isNotNull(), f.col("prev_leader")).alias("told_leader"),
        epoch.alias("told_leader_epoch"),
        "removing",
    )


# Kafka's own patience with a request; what was begun with longer ago is another one.
_REQUEST_S: Final = 30

JOB: Final = Job(
    name="leadership",
    says="Who led each partition from when to when, and how each came to lead.",
    needs=("timed", "states"),
    columns=COLUMNS,
    run=leadership,
)
