"""Intervals between the elections of a partition, with the evidence for and against a leader in each.

    ──led──▶ alive ▸ alive ▸ offline ▸ failed ▸ failed ▸ ──led──▶ decided ▸ down ▸ alive
    └────────────────── one interval ────────────────────┘└──── the next one

Every line that matters for the outages of a partition becomes a mark, in time order. Marks `led` separate the
intervals; the marks of an interval are aggregated, so a partition with a thousand ISR changes costs no more than one
with none. An epoch that rose under the same leader separates nothing, because no leader was elected. The same holds for
a leader that was already dead when it was elected and never logged that it leads: the partition stayed unavailable.

The losses of brokers (absences and failed log directories) are one row for each broker. There are few brokers and few
losses, so that table is small enough to be broadcast to every task. A query about the loss of a leader searches that
row, and no row of the query is duplicated.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType, Role
from kactl.forensics.jobs.expressions import (
    LEADER_AND_ISR,
    NEW,
    OFFLINE,
    ONLINE,
    all_known,
    is_a,
    is_true,
    null,
    rows_of,
    stacked,
)
from kactl.forensics.jobs.membership import FENCED

# The broker is alive but has lost some of its replicas. All other values are those of `absences`.
DIRECTORY: Final = "directory"
# A dead leader is detected when its session ends: with Kafka's defaults after 18 s with ZooKeeper (6 s before 2.5),
# after 9 s in KRaft. An elected leader that was already dead is missed within this time, or within its own session
# timeout if that is longer.
SESSION_US: Final = 18_000_000
# Assumed clock error where the error is not bounded from both sides. At INFO that is the rule: lines are known to come
# after others, and none to come before. The smallest delay seen is then taken for zero, which hides some ms. A clock
# without any bound is assumed to be set correctly.
UNKNOWN_ERROR_US: Final = 50_000
# Marks, in the order that applies to marks of the same time.
WENT_ALIVE: Final = "alive"  # `broker_id` was active as leader
STAYED: Final = "stayed"  # an epoch under the same leader, without a line of the leader
WENT_OFFLINE: Final = "offline"  # the controller detected that there is no leader (P3)
FAILED: Final = "failed"  # no replica could be elected (P4)
WHY: Final = "why"  # the reason, where it has a line of its own
CUT: Final = "cut"  # the last leader was removed from the ISR, and there is no leader (R3)
NOBODY: Final = "nobody"  # a stored epoch without a leader
ELECTED_DEAD: Final = "elected_dead"  # the elected leader was already dead
SAID: Final = "said"  # a line calls the following election unclean
LED: Final = "led"  # a leader was elected
DECIDED: Final = "decided"  # a controller's own line of a partition's leadership
DOWN: Final = "down"  # `broker_id` stepped down: it follows, or its replica is stopped
_ORDER: Final = (WENT_ALIVE, STAYED, WENT_OFFLINE, FAILED, WHY, CUT, NOBODY, ELECTED_DEAD, SAID, LED, DECIDED, DOWN)
# Times of an absence; `detected_at` comes first, because the last loss is the greatest.
_LOSS_TIMES: Final = ("detected_at", "back_at", "last_sign_at", "silent_at", "silent_low", "silent_high", "awake_at")
# Marks of a partition without a leader.
_UNAVAILABLE: Final = (WENT_OFFLINE, FAILED, CUT, NOBODY, ELECTED_DEAD)


def intervals(timed: DataFrame, leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """Return one row for each election, and one for each partition that ends unavailable.

    Returns:
        topic, partition, life, before, after. `before` describes the interval from the previous election to this one,
            `after` the interval from this election to the next; see `_summed` for the fields. `before` is null if
            nothing is known before the election, `after` if the logs end while the partition is unavailable.
    """
    # Columns that lines do not have are null in their marks.
    marks = stacked(_elections(leadership, absences), _lines(timed), _deserted(leadership, absences))
    summed = _summed(_parted(marks))
    names = [name for name in summed.columns if name not in KEY]
    own = summed.select(*KEY, "interval", f.struct(*names).alias("own"))
    order = rows_of(*KEY).in_order("interval")
    nothing = f.lit(None).cast(own.schema["own"].dataType)
    ended = f.struct(order.previous("own").alias("before"), f.col("own").alias("after"))
    left_unavailable = f.struct(f.col("own").alias("before"), nothing.alias("after"))
    is_last = order.next("interval").isNull()
    results = f.array(
        f.when(f.col("own.head").isNotNull(), ended),
        f.when(is_last & f.col("own.first_unavailable").isNotNull(), left_unavailable),
    )
    return (
        own.withColumn("results", results)
        .select(*KEY, f.explode(f.filter("results", lambda result: result.isNotNull())).alias("one"))
        .select(*KEY, "one.before", "one.after")
    )


# -- marks -------------------------------------------------------------------------------------------------------------


def _elections(leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """Marks of epochs: leaders, epochs without leader, and leaders that were already dead."""

    away = lost_brokers(absences).select(f.col("broker").alias("leader"), "losses")
    was_same = f.col("how").eqNullSafe("isr") & ~is_true(f.col("from_state").isin(OFFLINE, NEW))
    stayed = was_same & ~_has_returned()
    # The leader itself; or, if an epoch is only known from a line of another broker, its unknown leader.
    alive = stayed | f.col("leader").isNull()
    mark = (
        f.when(alive & (f.col("led_at").isNotNull() | f.col("leader").isNull()), WENT_ALIVE)
        .when(f.col("leader") == -1, NOBODY)
        .when(stayed, STAYED)
        .when(f.col("leader") >= 0, f.when(_is_elected_dead(), ELECTED_DEAD).otherwise(LED))
    )
    by_itself = stayed & (f.col("leader") >= 0) & f.col("led_at").isNotNull()
    time = f.when(by_itself, f.col("led_at")).otherwise(f.col("begin"))
    error = f.when(by_itself, f.col("led_error_us")).otherwise(f.col("begin_error_us"))
    led = f.struct(
        "leader",
        "leader_epoch",
        _us("begin"),
        _known("begin_error_us").alias("error_us"),
        "how",
        "planned",
        "recovery",
        "isr",
        "prev_isr",
        "prev_isr_sure",
        "controller",
        "controller_epoch",
        "from_state",
        "prev_leader",
        "prev_leader_epoch",
        _us("received_at"),
        _us("led_at"),
        _known("led_error_us").alias("led_error_us"),
    )
    return (
        leadership.withColumn("before", rows_of(*KEY).in_order("leader_epoch").previous("begin"))
        .join(f.broadcast(away), "leader", "left")
        .withColumn("mark", mark)
        .where(f.col("mark").isNotNull() & time.isNotNull())
        .select(
            *KEY,
            "mark",
            f.unix_micros(time).alias("at_us"),
            _known(error).alias("error_us"),
            f.when(f.col("mark") == WENT_ALIVE, f.col("leader")).alias("broker_id"),
            "leader_epoch",
            "controller",
            "controller_epoch",
            f.when(f.col("mark") == LED, led).alias("led"),
        )
    )


def _has_returned() -> Value:
    """True if a leader that was the only in-sync replica had been lost since the previous epoch, though no line states
    it.

    A controller that detects a loss leaves the partition without a leader. KRaft logs that at INFO only in the logs of
    other replicas, and a partition that is not replicated has none.
    """

    def was_lost(loss: Value) -> Value:
        since, until = f.unix_micros("before"), f.unix_micros("begin")
        return loss["silent_us"].isNotNull() & (loss["detected_us"] > since) & (loss["detected_us"] <= until)

    is_alone = f.col("prev_isr") == f.array("leader")
    return is_true(is_alone & f.exists("losses", was_lost))


def _is_elected_dead() -> Value:
    """True if the elected leader had given its last sign before, was found dead soon after, and never took its role.

    Soon, because a leader whose log is incomplete may also have led for hours without a line of it.
    """
    begin = f.unix_micros("begin")

    def was_dead(loss: Value) -> Value:
        return (
            (loss["last_sign_us"] + loss["error_us"] < begin)
            & (loss["detected_us"] >= begin)
            & (loss["detected_us"] <= begin + loss["session_us"])
        )

    silent = f.col("led_at").isNull() & f.col("received_at").isNull()
    return silent & is_true(f.exists("losses", was_dead))


def _deserted(leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """Marks of partitions whose last leader was fenced after all their other replicas, none of which came back.

    At INFO, KRaft's controllers log that they fence a broker, and not which partitions that leaves without a leader.
    """
    stays_away = (f.col("how") == FENCED) & ~is_true(f.col("planned")) & f.col("back_at").isNull()
    gone = absences.where(stays_away).select("broker", f.unix_micros("detected_at").alias("at_us"))
    last = leadership.groupBy(*KEY).agg(
        f.max_by(f.struct("leader", _us("begin")), "leader_epoch").alias("last"),
        f.max("leader_epoch").alias("leader_epoch"),
        f.max_by("replicas", f.when(f.col("replicas").isNotNull(), f.col("leader_epoch"))).alias("replicas"),
    )
    ours = f.filter("gone", lambda one: f.array_contains("replicas", one["broker"]))
    at_us = f.array_max(f.transform("ours", lambda one: one["at_us"]))
    is_last = f.exists("ours", lambda one: (one["broker"] == f.col("last.leader")) & (one["at_us"] == f.col("at_us")))
    none_left = f.size(f.array_except("replicas", f.transform("ours", lambda one: one["broker"]))) == 0
    return (
        last.crossJoin(f.broadcast(gone.agg(f.collect_list(f.struct("broker", "at_us")).alias("gone"))))
        .withColumn("ours", ours)
        .withColumn("at_us", at_us)
        .where(is_last & none_left & (f.col("at_us") >= f.col("last.begin_us")))
        .select(
            *KEY,
            f.lit(WENT_OFFLINE).alias("mark"),
            "at_us",
            f.lit(UNKNOWN_ERROR_US).cast("long").alias("error_us"),
            "leader_epoch",
        )
    )


def _lines(timed: DataFrame) -> DataFrame:
    """Marks of single lines."""
    moved, failed = is_a(EventType.PARTITION), is_a(EventType.PARTITION_FAILED)
    before, after, leader = f.col("from_state"), f.col("to_state"), f.col("leader")
    controllers = f.col("role") == Role.CONTROLLER
    is_stated = is_a(EventType.LEADERSHIP, EventType.PARTITION_CREATED)
    sent = is_a(EventType.SENT_PARTITION) & f.col("request").eqNullSafe(LEADER_AND_ISR)
    # Up to 3.2 the controller's line of an ISR change does not name the leader.
    isr = is_a(EventType.ISR_SHRUNK, EventType.ISR_EXPANDED, EventType.ISR_UPDATED) & (
        is_true(~controllers) | leader.isNotNull()
    )
    # A preferred election or a reassignment that fails leaves the leader as it was.
    is_wish = is_true(f.col("strategy").isin("preferred", "reassign"))
    follows = is_a(EventType.TRANSITION_BEGUN) & (after == "follower")
    # A move from NewPartition to OfflinePartition loses no leader: there was none.
    marks = (
        (WENT_OFFLINE, moved & (after == OFFLINE) & before.isin(ONLINE, OFFLINE)),
        (FAILED, failed & (after == ONLINE) & before.isin(OFFLINE, NEW)),
        (WHY, failed & before.isNull() & ~is_wish),
        (CUT, is_a(EventType.ISR_CUT) & (leader == -1)),
        (SAID, is_a(EventType.ELECTED) & f.col("unclean")),
        (DECIDED, controllers & (is_stated | sent | (moved & (after == ONLINE)))),
        (WENT_ALIVE, isr),
        (DOWN, is_a(EventType.FOLLOWS, EventType.STOPPING) | follows),
    )
    mark = f.coalesce(*(f.when(condition, name) for name, condition in marks))
    return (
        timed.where(all_known("topic", "partition", "at"))
        .withColumn("mark", mark)
        .where(f.col("mark").isNotNull())
        .select(
            *KEY,
            "mark",
            f.unix_micros("at").alias("at_us"),
            _known("at_error_us").alias("error_us"),
            # Leaders change ISRs; a controller's line of such a change names the leader.
            f.when(isr, f.coalesce(leader, f.col("speaker"))).otherwise(f.col("speaker")).alias("broker_id"),
            "leader_epoch",
            "controller",
            "controller_epoch",
            "from_state",
            "reason",
            "error",
            "unclean",
            # A broker that was just started knows of no previous epoch.
            (is_a(EventType.FOLLOWS) & f.col("prev_leader_epoch").eqNullSafe(-1)).alias("is_started"),
        )
    )


def _us(name: str) -> Value:
    """A time in microseconds, named so: `led_at` becomes `led_us`."""
    return f.unix_micros(name).alias(f"{name.removesuffix('_at')}_us")


def _known(error: str | Value) -> Value:
    return f.coalesce(error, f.lit(UNKNOWN_ERROR_US)).cast("long")


# -- intervals ---------------------------------------------------------------------------------------------------------


def _parted(marks: DataFrame) -> DataFrame:
    """Marks with their interval, its election (`head`), and whether the partition was unavailable by then."""
    rank = f.array_position(f.array(*map(f.lit, _ORDER)), f.col("mark"))
    until_now = rows_of(*KEY).in_order("at_us", rank, "leader_epoch", "controller_epoch")
    # The mark of a previous controller or epoch: its clock is wrong, and it in fact precedes the election.
    is_old = is_true(f.col("controller_epoch") < f.col("head.controller_epoch")) | is_true(
        f.col("leader_epoch") < f.col("head.leader_epoch")
    )
    became_unavailable = f.when(f.col("is_unavailable_mark"), f.struct("interval", "at_us"))
    return (
        marks.withColumn("interval", until_now.running(f.count("led")))
        .withColumn("head", until_now.latest("led"))
        .withColumn("is_unavailable_mark", f.col("mark").isin(*_UNAVAILABLE) & ~is_old)
        .withColumn("became_unavailable", until_now.latest(became_unavailable))
        .withColumn("is_unavailable", is_true(f.col("became_unavailable.interval") == f.col("interval")))
    )


def _summed(parted: DataFrame) -> DataFrame:
    """Return one row for each interval of a partition.

    Returns:
        head: its election; null before the first one. last_epoch: the last known leader epoch of the interval.
        first_unavailable, last_unavailable: the first and last marks without a leader; null if there are none.
        failed: number of failed elections. nobody, cut: whether there are such marks. why: reason of the last failed
            election.
        is_said: whether a line calls the following election unclean. is_decided: whether a controller's own line dates
            the election of the interval. is_decided_unclean: the unclean flag of that line.
        available_us, proved_us: lower bound of the last and upper bound of the first time its leader was seen active.
        revived: another broker was seen leading though no election was seen; `minus_after_us` is the negated time of
            the preceding mark without a leader.
        step_downs: brokers that stepped down, when, and whether the line shows a restart just before.
    """

    def has(mark: str) -> Value:
        return is_true(f.max(f.when(f.col("mark") == mark, f.col("is_unavailable_mark"))))

    def when(mark: str, condition: Value, value: Value) -> Value:
        return f.when((f.col("mark") == mark) & condition, value)

    always = f.lit(True)
    time_us, error = f.col("at_us"), f.col("error_us")
    unavailable = f.when(
        f.col("is_unavailable_mark"), f.struct(time_us, error, "mark", "from_state", "controller", "controller_epoch")
    )
    explained = f.col("mark").isin(FAILED, WHY) & f.col("reason").isNotNull()
    down = f.struct(time_us, error, "broker_id", "leader_epoch", "is_started")
    is_leader = is_true(f.col("broker_id") == f.col("head.leader"))
    is_of_head = is_true(time_us == f.col("head.begin_us"))
    shows_available = is_leader & ~f.col("is_unavailable")
    other_leader = f.struct(
        (-f.col("became_unavailable.at_us")).alias("minus_after_us"),
        time_us.alias("at_us"),
        error.alias("error_us"),
        "broker_id",
    )
    return parted.groupBy(*KEY, "interval").agg(
        f.first("head").alias("head"),
        f.max(f.when(f.col("mark") != DOWN, f.col("leader_epoch"))).alias("last_epoch"),
        f.min(unavailable).alias("first_unavailable"),
        f.max(unavailable).alias("last_unavailable"),
        # A set of times, because the same line may be in two files.
        f.size(f.collect_set(when(FAILED, f.col("is_unavailable_mark"), time_us))).alias("failed"),
        has(NOBODY).alias("nobody"),
        has(CUT).alias("cut"),
        f.max(f.when(explained, f.struct(time_us, "reason", "error"))).alias("why"),
        f.max(when(SAID, always, f.col("unclean"))).alias("is_said"),
        is_true(f.max(when(DECIDED, is_of_head, always))).alias("is_decided"),
        f.max(when(DECIDED, is_of_head, f.col("unclean"))).alias("is_decided_unclean"),
        f.max(when(WENT_ALIVE, shows_available, time_us - error)).alias("available_us"),
        f.min(when(WENT_ALIVE, shows_available, time_us + error)).alias("proved_us"),
        f.min(when(WENT_ALIVE, f.col("is_unavailable") & ~is_leader, other_leader)).alias("revived"),
        f.collect_set(when(DOWN, f.col("broker_id").isNotNull(), down)).alias("step_downs"),
    )


# -- losses of brokers -------------------------------------------------------------------------------------------------


def lost_brokers(absences: DataFrame, timed: DataFrame | None = None) -> DataFrame:
    """Collect the losses of each broker.

    Args:
        timed: lines of failed directories and of controllers that processed a loss; without it there are neither.

    Returns:
        broker, losses, callbacks: one row for each broker that was ever lost. `losses` is a list of structs with
            `detected_us` first; `names` are the partitions that a loss is limited to, as `,topic-0,topic-1,`, or null.
            `callbacks` are times in microseconds.
    """
    losses = absences.where(all_known("detected_at", "broker")).select(
        "broker",
        *(_us(name) for name in _LOSS_TIMES),
        f.greatest(f.col("session_ms") * 1000, f.lit(SESSION_US)).alias("session_us"),
        _known("error_us").alias("error_us"),
        "how",
        is_true(f.col("planned")).alias("planned"),
        null("string").alias("names"),
        null("long").alias("callback_us"),
    )
    if timed is not None:
        losses = stacked(losses, _directories(timed), _callbacks(timed))
    fields = [name for name in losses.columns if name not in ("broker", "callback_us")]
    loss = f.when(f.col("detected_us").isNotNull(), f.struct(*fields))
    # Sets, because the same line may be in two files.
    return losses.groupBy("broker").agg(
        f.collect_set(loss).alias("losses"), f.sort_array(f.collect_set("callback_us")).alias("callbacks")
    )


def concerns_partition(loss: Value) -> Value:
    """True if a loss concerns the partition of the current row."""
    name = f.concat(f.lit(","), "topic", f.lit("-"), f.col("partition").cast("string"), f.lit(","))
    return loss["names"].isNull() | (f.instr(loss["names"], name) > 0)


def _directories(timed: DataFrame) -> DataFrame:
    return timed.where(is_a(EventType.REPLICAS_OFFLINE) & all_known("broker", "at")).select(
        "broker",
        f.unix_micros("at").alias("detected_us"),
        f.lit(SESSION_US).alias("session_us"),
        f.lit(0).alias("error_us"),
        f.lit(DIRECTORY).alias("how"),
        f.lit(False).alias("planned"),
        f.concat(f.lit(","), f.replace("text", f.lit(" ")), f.lit(",")).alias("names"),
    )


def _callbacks(timed: DataFrame) -> DataFrame:
    """Times at which a controller began to process failed brokers (C4)."""
    failed = timed.where(is_a(EventType.BROKER_FAILED) & f.col("at").isNotNull())
    return failed.select(
        f.explode("brokers_removed").alias("broker"),
        f.unix_micros("at").alias("callback_us"),
    )
