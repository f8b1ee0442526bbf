"""From one election of a partition to the next: what the logs tell of the time between, whether it had a leader or not.

    ──led──▶ alive ▸ alive ▸ offline ▸ failed ▸ failed ▸ ──led──▶ decided ▸ down ▸ alive
    └──────────────── one stretch ──────────────────────┘└──── the next one

All that a partition's outages follow from becomes marks in the order of time. Marks `led` part them into stretches;
what is between is summed up, so that a partition with a thousand ISR changes is no more work than one with none. An
epoch that rose under the same leader parts nothing: nobody was elected. Nor does a leader that was dead already when it
was elected, and never said that it leads: the partition stayed dark.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Role

from .gone import UNKNOWN_ERROR_US, gone
from .lines import LEADER_AND_ISR, NEW, OFFLINE, ONLINE, is_a

PARTITION: Final = ("topic", "partition", "life")

# The marks, in the order in which they are taken where they have the same time.
WENT_ALIVE: Final = "alive"  # `who` was at work as leader
STAYED: Final = "stayed"  # an epoch under the same leader, of which it says nothing
WENT_OFFLINE: Final = "offline"  # the controller took note that there is no leader (P3)
FAILED: Final = "failed"  # nobody could be elected (P4)
WHY: Final = "why"  # the reason, where it stands in a line of its own
CUT: Final = "cut"  # the last leader was taken out of the ISR, and nobody leads (R3)
NOBODY: Final = "nobody"  # an epoch in which nobody leads, as stored
HOLLOW: Final = "hollow"  # a leader was elected that was dead already
SAID: Final = "said"  # the coming election is said to be unclean
LED: Final = "led"  # a leader was elected
DECIDED: Final = "decided"  # a controller's own line of a partition's leadership
DOWN: Final = "down"  # `who` stepped down: it follows, or its replica is stopped
_ORDER: Final = (WENT_ALIVE, STAYED, WENT_OFFLINE, FAILED, WHY, CUT, NOBODY, HOLLOW, SAID, LED, DECIDED, DOWN)
# Those that say that a partition had no leader.
_DARK: Final = (WENT_OFFLINE, FAILED, CUT, NOBODY, HOLLOW)


def stretches(timed: DataFrame, leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """topic, partition, life, before, after: one row for each election, and one for each partition that ended dark.

    Returns:
        `before` is what is known from the last election to this one, `after` from this one to the next; see `_summed`
        for what is in them. `before` is null if nothing was known before, `after` if the logs end in the dark.
    """
    # What lines do not have is null in their marks.
    marks = _elections(leadership, absences).unionByName(_lines(timed), allowMissingColumns=True)
    summed = _summed(_parted(marks))
    names = [name for name in summed.columns if name not in PARTITION]
    own = summed.select(*PARTITION, "stretch", f.struct(*names).alias("own"))
    order = Window.partitionBy(*PARTITION).orderBy("stretch")
    nothing = f.lit(None).cast(own.schema["own"].dataType)
    ended = f.struct(f.lag("own").over(order).alias("before"), f.col("own").alias("after"))
    left_dark = f.struct(f.col("own").alias("before"), nothing.alias("after"))
    is_last = f.lead("stretch").over(order).isNull()
    either = f.array(
        f.when(f.col("own.head").isNotNull(), ended), f.when(is_last & f.col("own.first_dark").isNotNull(), left_dark)
    )
    return (
        own.withColumn("either", either)
        .select(*PARTITION, f.explode(f.filter("either", lambda each: each.isNotNull())).alias("one"))
        .select(*PARTITION, "one.before", "one.after")
    )


# -- marks -------------------------------------------------------------------------------------------------------------


def _elections(leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """Marks of epochs: leaders, nobody, and leaders that were dead already."""

    def us(name: str) -> Value:
        return f.unix_micros(name).alias(name.replace("_at", "_us") if name.endswith("_at") else f"{name}_us")

    away = gone(absences).select(f.col("broker").alias("leader"), "gone")
    was_same = f.col("how").eqNullSafe("isr") & ~f.coalesce(f.col("from_state").isin(OFFLINE, NEW), f.lit(False))
    stayed = was_same & ~_has_returned()
    # Of the leader itself, or, where a line of another broker is all there is of an epoch, of whoever leads in it.
    alive = stayed | f.col("leader").isNull()
    mark = (
        f.when(alive & (f.col("led_at").isNotNull() | f.col("leader").isNull()), WENT_ALIVE)
        .when(f.col("leader") == -1, NOBODY)
        .when(stayed, STAYED)
        .when(f.col("leader") >= 0, f.when(_is_hollow(), HOLLOW).otherwise(LED))
    )
    by_itself = stayed & (f.col("leader") >= 0) & f.col("led_at").isNotNull()
    at = f.when(by_itself, f.col("led_at")).otherwise(f.col("begin"))
    error = f.when(by_itself, f.col("led_error_us")).otherwise(f.col("begin_error_us"))
    led = f.struct(
        "leader",
        "leader_epoch",
        us("begin"),
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
        us("received_at"),
        us("led_at"),
        _known("led_error_us").alias("led_error_us"),
    )
    return (
        leadership.withColumn("before", f.lag("begin").over(Window.partitionBy(*PARTITION).orderBy("leader_epoch")))
        .join(f.broadcast(away), "leader", "left")
        .withColumn("mark", mark)
        .where(f.col("mark").isNotNull() & at.isNotNull())
        .select(
            *PARTITION,
            "mark",
            f.unix_micros(at).alias("at_us"),
            _known(error).alias("error_us"),
            f.when(f.col("mark") == WENT_ALIVE, f.col("leader")).alias("who"),
            "leader_epoch",
            "controller",
            "controller_epoch",
            f.when(f.col("mark") == LED, led).alias("led"),
        )
    )


def _has_returned() -> Value:
    """Whether a leader had been lost since the epoch before, though no line says so: it alone was in sync.

    A controller that takes note of a loss leaves the partition without a leader. KRaft's says that at INFO only in the
    logs of other replicas, and what is not replicated has none.
    """

    def was_lost(one: Value) -> Value:
        since, until = f.unix_micros("before"), f.unix_micros("begin")
        return one["silent_us"].isNotNull() & (one["detected_us"] > since) & (one["detected_us"] <= until)

    is_alone = f.col("prev_isr") == f.array("leader")
    return f.coalesce(is_alone & f.exists("gone", was_lost), f.lit(False))


def _is_hollow() -> Value:
    """Whether the elected had given its last sign before, was found dead soon after, and never took its role.

    Soon, since a leader whose log is not complete may also have led for hours without a line of it.
    """
    begin = f.unix_micros("begin")

    def was_dead(one: Value) -> Value:
        return (
            (one["last_sign_us"] + one["error_us"] < begin)
            & (one["detected_us"] >= begin)
            & (one["detected_us"] <= begin + one["session_us"])
        )

    silent = f.col("led_at").isNull() & f.col("received_at").isNull()
    return silent & f.coalesce(f.exists("gone", was_dead), f.lit(False))


def _lines(timed: DataFrame) -> DataFrame:
    """Marks of single lines."""
    moved, failed = is_a(EventType.PARTITION), is_a(EventType.PARTITION_FAILED)
    before, after, leader = f.col("from_state"), f.col("to_state"), f.col("leader")
    controllers = f.col("role") == Role.CONTROLLER
    told = is_a(EventType.LEADERSHIP, EventType.PARTITION_CREATED)
    sent = is_a(EventType.SENT_PARTITION) & f.col("request").eqNullSafe(LEADER_AND_ISR)
    isr = is_a(EventType.ISR_SHRUNK, EventType.ISR_EXPANDED, EventType.ISR_UPDATED)
    follows = is_a(EventType.TRANSITION_BEGUN) & (after == "follower")
    # Moves to OfflinePartition from NewPartition lose no leader: there was none.
    marks = (
        (WENT_OFFLINE, moved & (after == OFFLINE) & before.isin(ONLINE, OFFLINE)),
        (FAILED, failed & (after == ONLINE) & before.isin(OFFLINE, NEW)),
        (WHY, failed & before.isNull()),
        (CUT, is_a(EventType.ISR_CUT) & (leader == -1)),
        (SAID, is_a(EventType.ELECTED) & f.col("unclean")),
        (DECIDED, controllers & (told | sent | (moved & (after == ONLINE)))),
        (WENT_ALIVE, isr),
        (DOWN, is_a(EventType.FOLLOWS, EventType.STOPPING) | follows),
    )
    mark = f.coalesce(*(f.when(condition, name) for name, condition in marks))
    return (
        timed.where(f.col("topic").isNotNull() & f.col("partition").isNotNull() & f.col("at").isNotNull())
        .withColumn("mark", mark)
        .where(f.col("mark").isNotNull())
        .select(
            *PARTITION,
            "mark",
            f.unix_micros("at").alias("at_us"),
            _known("at_error_us").alias("error_us"),
            # Leaders change ISRs; where a controller tells of it, it names the leader.
            f.when(isr, f.coalesce(leader, f.col("speaker"))).otherwise(f.col("speaker")).alias("who"),
            "leader_epoch",
            "controller",
            "controller_epoch",
            "from_state",
            "reason",
            "error",
            "unclean",
            # A broker that has just been started knows of no epoch before.
            (is_a(EventType.FOLLOWS) & f.col("prev_leader_epoch").eqNullSafe(-1)).alias("is_started"),
        )
    )


def _known(error: str | Value) -> Value:
    return f.coalesce(error, f.lit(UNKNOWN_ERROR_US)).cast("long")


# -- stretches ---------------------------------------------------------------------------------------------------------


def _parted(marks: DataFrame) -> DataFrame:
    """Marks with the stretch they are in, its election (`head`), and whether it was dark by then."""
    rank = f.array_position(f.array(*map(f.lit, _ORDER)), f.col("mark"))
    until_now = (
        Window.partitionBy(*PARTITION)
        .orderBy("at_us", rank, "leader_epoch", "controller_epoch")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    # Of a controller or an epoch that was over: its clock is wrong, and the election before it in fact came later.
    is_old = f.coalesce(f.col("controller_epoch") < f.col("head.controller_epoch"), f.lit(False)) | f.coalesce(
        f.col("leader_epoch") < f.col("head.leader_epoch"), f.lit(False)
    )
    darkened = f.when(f.col("is_dark_mark"), f.struct("stretch", "at_us"))
    return (
        marks.withColumn("stretch", f.count("led").over(until_now))
        .withColumn("head", f.last("led", ignorenulls=True).over(until_now))
        .withColumn("is_dark_mark", f.col("mark").isin(*_DARK) & ~is_old)
        .withColumn("darkened", f.last(darkened, ignorenulls=True).over(until_now))
        .withColumn("is_dark", f.coalesce(f.col("darkened.stretch") == f.col("stretch"), f.lit(False)))
    )


def _summed(parted: DataFrame) -> DataFrame:
    """One row for each stretch of a partition.

    head: its election; null in what is before the first one. last_epoch: the last leader epoch that is known of it.
    first_dark, last_dark: the first and last marks of having no leader; null if there are none.
    failed: elections that failed. nobody, cut: whether there are such marks. why: why the last election failed.
    is_said, is_decided, is_decided_unclean: whether the election after it is said to be unclean; whether a controller's
        own line dates its election; what that line says of being unclean.
    lit_us, proved_us: last and first time at which its leader was seen at work, no later or no earlier than that.
    revived: somebody else was seen leading though no election was seen; `after_us` is the dark mark it came after.
    downs: who stepped down when, and whether it says that it was started just before.
    """

    def has(mark: str) -> Value:
        return f.coalesce(f.max(f.when(f.col("mark") == mark, f.col("is_dark_mark"))), f.lit(False))

    def when(mark: str, condition: Value, value: Value) -> Value:
        return f.when((f.col("mark") == mark) & condition, value)

    always = f.lit(True)
    at, error = f.col("at_us"), f.col("error_us")
    dark = f.when(f.col("is_dark_mark"), f.struct(at, error, "mark", "from_state", "controller", "controller_epoch"))
    explained = f.col("mark").isin(FAILED, WHY) & f.col("reason").isNotNull()
    down = f.struct(at, error, "who", "leader_epoch", "is_started")
    is_own = f.coalesce(f.col("who") == f.col("head.leader"), f.lit(False))
    is_heads = f.coalesce(at == f.col("head.begin_us"), f.lit(False))
    is_lit = is_own & ~f.col("is_dark")
    somebody = f.struct(
        (-f.col("darkened.at_us")).alias("minus_after_us"), at.alias("at_us"), error.alias("error_us"), "who"
    )
    return parted.groupBy(*PARTITION, "stretch").agg(
        f.first("head").alias("head"),
        f.max(f.when(f.col("mark") != DOWN, f.col("leader_epoch"))).alias("last_epoch"),
        f.min(dark).alias("first_dark"),
        f.max(dark).alias("last_dark"),
        # A set of times: the same line may stand in two files.
        f.size(f.collect_set(when(FAILED, f.col("is_dark_mark"), at))).alias("failed"),
        has(NOBODY).alias("nobody"),
        has(CUT).alias("cut"),
        f.max(f.when(explained, f.struct(at, "reason", "error"))).alias("why"),
        f.max(when(SAID, always, f.col("unclean"))).alias("is_said"),
        f.coalesce(f.max(when(DECIDED, is_heads, always)), f.lit(False)).alias("is_decided"),
        f.max(when(DECIDED, is_heads, f.col("unclean"))).alias("is_decided_unclean"),
        f.max(when(WENT_ALIVE, is_lit, at - error)).alias("lit_us"),
        f.min(when(WENT_ALIVE, is_lit, at + error)).alias("proved_us"),
        f.min(when(WENT_ALIVE, f.col("is_dark") & ~is_own, somebody)).alias("revived"),
        f.collect_set(when(DOWN, f.col("who").isNotNull(), down)).alias("downs"),
    )
