"""Job `leadership`: the leader of each partition over time, and how each was elected.

    states ─▶ the first of each leader epoch ─┬─▶ previous leader ─▶ `election_causes` ─▶ one row for each leader epoch
                                              └─ the new leader's own lines

The controller's line dates the beginning; without one the earliest line does. The new leader's lines show when clients
could use it.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, KEY_COLUMNS, columns, names_of
from kactl.forensics.event_types import EventType

from . import election_causes
from .expressions import ABSENT, LEADER_AND_ISR, all_known, is_a, rows_of
from .job import Job
from .states import DELETED

COLUMNS: Final = KEY_COLUMNS + columns(
    """
    leader_epoch       id    the leader epoch; one row for each. Null if no line has it (1.0 and before)
    leader             id    its leader; -1 none, null if no line states it
    begin              time  when the controller decided it, or else its earliest line
    begin_error_us     long  maximum error of `begin` in either direction
    end                time  begin of the next epoch, or the partition's deletion; null if it lasts to the end of the
                             logs
    how                text  initial, offline (there was no leader before), preferred, controlled-shutdown, reassign,
                             isr (the leader stayed, or was removed without a successor) or unknown
    planned            bool  whether it was requested: false for offline; null for initial, isr and unknown
    isr                ids   in-sync replicas at its beginning; null if no line states them
    replicas           ids   assigned replicas, as far as known
    partition_epoch    id    version of the stored state at its beginning
    recovery           text  RECOVERED or RECOVERING, from 3.2 on
    controller         id    the controller that decided it
    controller_epoch
    from_state         text  the partition's state before, if a line has it
    prev_leader        id    leader of the previous epoch; -1 none, null unknown
    prev_leader_epoch  id    the previous epoch, as far as known
    prev_isr           ids   the last known ISR before it (not only that of the previous epoch's beginning)
    prev_isr_sure      bool  whether that ISR was the last one: false if others were stored in between, null if no line
                             has versions
    received_at        time  when the new leader's broker began to process the request (B1, B2); null if unknown
    led_at             time  when the new leader took its role (B4, B6, B7): clients can use it from then on
    led_error_us       long  maximum error of the two in either direction
    log_end            long  the new leader's log end offset then
    high_watermark     long  its high watermark then
    """
)
# Formats of lines that only show an ISR change: they do not show the ISR with which the leader began.
_ISR_CHANGES: Final = ("I3", "C11", "C11-2.7")


def leadership(timed: DataFrame, states: DataFrame) -> DataFrame:
    """Returns one row for each leader epoch of each partition."""
    epochs, led = _with_before(_epochs(states)), _led(timed)
    is_leaders = [f.col(name) == f.col(f"of_{name}") for name in (*KEY, "leader_epoch", "leader")]
    # The previous epoch in the new leader's line counts where the logs have no line of that epoch.
    is_newer = f.col("told_leader_epoch") > f.coalesce("prev_leader_epoch", f.lit(-1))
    both = epochs.join(led, is_leaders, "left").withColumns(
        {
            "prev_leader": f.when(is_newer, f.col("told_leader")).otherwise(f.col("prev_leader")),
            "prev_leader_epoch": f.when(is_newer, f.col("told_leader_epoch")).otherwise(f.col("prev_leader_epoch")),
        }
    )
    gone = f.when(f.col("gone_at") >= f.col("begin"), f.col("gone_at"))
    return (
        election_causes.explain(both, timed)
        .join(_deleted(timed, states), list(KEY), "left")
        .withColumn("end", f.coalesce("next_begin", gone))
        .select(*names_of(COLUMNS))
    )


# -- epochs ------------------------------------------------------------------------------------------------------------


def _epochs(states: DataFrame) -> DataFrame:
    """The first state of each leader epoch, and the last ISR in it."""
    order = f.struct(f.coalesce("partition_epoch", f.lit(-1)), f.col("at"))
    is_change_only = f.size(f.array_except("formats", f.array(*map(f.lit, _ISR_CHANGES)))) == 0
    beginning = f.when(~is_change_only, order)
    # Without an epoch each line that names a leader is an epoch of its own; ISR changes by one leader belong to one.
    unnumbered = f.when(f.col("leader_epoch").isNull() & ~is_change_only, f.col("at")).alias("unnumbered_at")
    changing = f.when(f.col("leader_epoch").isNull() & is_change_only, f.col("leader")).alias("changing")
    dated = f.struct((f.col("told_by") != "controller").alias("heard"), "at")
    of_beginning = ("isr", "partition_epoch", "recovery", "from_state")
    return (
        states.where(f.coalesce(f.col("leader"), f.lit(0)) != DELETED)
        .groupBy(*KEY, "leader_epoch", unnumbered, changing)
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
    """Add the previous epoch, and the beginning of the next one. States without an epoch are ordered by time.

    Each write raises the partition epoch by one, and each change of leaders raises the leader epoch as well: where the
    partition epoch rose by more, the ISR was changed in between.
    """
    by_time = rows_of(*KEY).in_order("begin")
    number = f.coalesce("leader_epoch", by_time.so_far(f.max("leader_epoch")), f.lit(-1))
    order = rows_of(*KEY).in_order("number", "begin")
    in_sync = f.struct(f.col("last_isr").alias("ids"), f.col("last_isr_version").alias("version"), "leader_epoch")
    written = f.col("partition_epoch") - f.col("in_sync.version")
    return (
        epochs.withColumn("number", number)
        .withColumns(
            {
                "prev_leader": order.previous("leader"),
                "prev_leader_epoch": order.previous("leader_epoch"),
                "in_sync": order.latest_before(f.when(f.col("last_isr").isNotNull(), in_sync)),
                "prev_begin": order.previous("begin"),
                "next_begin": order.next("begin"),
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


def _deleted(timed: DataFrame, states: DataFrame) -> DataFrame:
    """Times at which partitions were deleted, as far as lines of the partitions show it."""
    moved = is_a(EventType.PARTITION) & (f.col("to_state") == ABSENT)
    died = timed.where(moved & f.col("topic").isNotNull()).groupBy(*KEY).agg(f.min("at").alias("died_at"))
    being = states.where(f.col("leader") == DELETED).groupBy(*KEY).agg(f.min("at").alias("being_at"))
    both = being.join(died, list(KEY), "full")
    return both.select(*KEY, f.least("being_at", "died_at").alias("gone_at"))


# -- the new leader ----------------------------------------------------------------------------------------------------


def _led(timed: DataFrame) -> DataFrame:
    """For each epoch and broker: when it first received the epoch, when it first led, and its log then."""
    key = (*KEY, "leader_epoch", "speaker")
    leads = _begun(timed)
    received = timed.where(
        is_a(EventType.RECEIVED_PARTITION) & (f.col("request") == LEADER_AND_ISR) & f.col("leader_epoch").isNotNull()
    )
    received_own = received.where(f.col("leader") == f.col("speaker")).select(
        *key, "at", "at_error_us", "controller", "controller_epoch", "correlation_id"
    )
    request = ("topic", "partition", "speaker", "controller", "controller_epoch", "correlation_id")
    done = (
        timed.where(is_a(EventType.TRANSITION_DONE) & (f.col("to_state") == "leader"))
        .select(*request, f.col("at").alias("done_at"))
        .alias("done")
    )
    # A controller restarts its request numbers whenever a broker reconnects, so a number may stand for many requests.
    took_us = f.unix_micros("done_at") - f.unix_micros("at")
    same = [f.col(f"heard.{name}") == f.col(f"done.{name}") for name in request]
    completed = (
        received_own.alias("heard")
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
        *(f.col(name).alias(f"of_{name}") for name in (*KEY, "leader_epoch")),
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
    """A broker's first "Leader ... starts" line of each epoch, with the request that it was processing (B2).

    A broker processes one request of its controller at a time, so it is the last request that it began.
    """
    key = (*KEY, "leader_epoch", "speaker")
    is_request = is_a(EventType.RECEIVED) & (f.col("request") == LEADER_AND_ISR)
    of_speaker = timed.where((is_request | is_a(EventType.LEADS)) & all_known("speaker", "at"))
    order = rows_of("speaker").in_order("at", "file_id", "offset")
    leads = of_speaker.withColumn("begun_at", order.latest(f.when(is_request, f.col("at")), with_equals=True))
    first = f.struct("at", "file_id", "offset")
    columns = ("log_end", "high_watermark", "begun_at", "at_error_us", "prev_leader", "prev_leader_epoch", "removing")
    first_lines = (
        leads.where(is_a(EventType.LEADS) & f.col("leader_epoch").isNotNull())
        .groupBy(*key)
        .agg(f.min("at").alias("led_at"), *(f.min_by(name, first).alias(name) for name in columns))
    )
    # A broker that was just started logs -1; no replica has led in it.
    epoch = f.when(f.col("prev_leader_epoch") >= 0, f.col("prev_leader_epoch"))
    return first_lines.select(
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


# Kafka's request timeout; a request that began longer ago is another one.
_REQUEST_S: Final = 30

JOB: Final = Job("leadership", "The leader of each partition over time, and how each was elected.", COLUMNS, leadership)
