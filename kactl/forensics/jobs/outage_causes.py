"""Which stretches of a partition's life held an outage, and what caused it.

An election out of OfflinePartition is one, whatever else is known. So is one of a leader whose predecessor was away by
then, even if no line says why it was held: KRaft's controllers say nothing of it. A stretch that ends dark is one if an
election failed in it, if nobody leads in what is stored, or if its leader was away; but not if its topic was being
deleted. Everything else in which the leader changed was a live leader's handing over: short, and mostly planned.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

from .gone import DIRECTORY, gone, is_meant
from .lines import ABSENT, NEW, OFFLINE, ONLINE, is_a

BROKER_FAILURE: Final = "broker-failure"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"
REPLICA_FAILURE: Final = "replica-failure"
NO_LIVE_REPLICA: Final = "no-live-replica"
CONTROLLER_CHANGE: Final = "controller-change"
UNKNOWN: Final = "unknown"

# What controllers of all versions, and kactl, say where nobody could be elected. Other reasons are races and stores.
_NOBODY_LIVES: Final = "(?i)failed to elect leader|(is|are) alive|is online|may lead|noreplicaonline"


def causes(stretches: DataFrame, timed: DataFrame, absences: DataFrame) -> DataFrame:
    """Those stretches that held an outage, with what is known of its cause.

    Args:
        stretches: see `dark.stretches`.
        timed: for directories, controllers that took over, and topics that were deleted.
        absences: for leaders that were away.

    Returns:
        `before` and `after` as they were, and on top of them:
        lost: the leader that was lost. loss: how, see `gone.gone`; null if unknown. callbacks: see there.
        is_forced: whether the leader was lost, and not moved. is_waiting: whether nobody could be elected at first.
        stepped_down: `at_us` and `error_us` of the old leader's own line of it. takeover_us: when a controller was
        elected that found the partition without a leader. deleted_us: when its topic was deleted in the middle of it.
        cause, planned, unclean: see `outages.COLUMNS`.
    """
    asked = _with_takeover(_with_loss(stretches, timed, absences), timed)
    known = _with_deletion(asked, timed).withColumn("stepped_down", _stepped_down())
    judged = known.withColumn("is_forced", f.coalesce(_is_forced(), f.lit(False)))
    return (
        judged.where(f.col("is_forced") | f.coalesce(_is_handed_over(), f.lit(False)))
        .withColumn("is_waiting", f.col("is_forced") & f.coalesce(_is_waiting(), f.lit(False)))
        .withColumn("planned", f.when(f.col("is_forced"), False).otherwise(f.col("after.head.planned")))
        .withColumn("cause", _cause())
        .withColumn("unclean", _unclean())
    )


# -- what is looked up -------------------------------------------------------------------------------------------------


def _with_loss(stretches: DataFrame, timed: DataFrame, absences: DataFrame) -> DataFrame:
    """With the last time at which the old leader was lost before the partition was seen without one."""
    head, was = f.col("after.head"), f.col("before.head.leader")
    said = f.when(head["prev_leader"] >= 0, head["prev_leader"])
    # Where epochs are missing, others led in between: the last one known may be gone for long, and not be the one that
    # was lost. Once it was dark, or where somebody wanted the change, it does not matter.
    is_gap = (
        f.coalesce(head["leader_epoch"] > f.col("before.last_epoch") + 1, f.lit(False))
        & f.col("before.first_dark").isNull()
        & ~f.coalesce(head["planned"], f.lit(False))
    )
    of_the_epoch_before = f.when(head["prev_leader_epoch"] == head["leader_epoch"] - 1, said)
    lost = f.when(_has_returned(), head["leader"]).when(is_gap, of_the_epoch_before).otherwise(f.coalesce(was, said))
    seen_us = f.least("before.first_dark.at_us", "after.head.begin_us")
    error_us = f.coalesce("before.first_dark.error_us", "after.head.error_us", f.lit(0))
    since_us = f.coalesce(f.col("before.head.begin_us") - f.col("before.head.error_us"), f.lit(0))

    def fits(one: Value) -> Value:
        at = one["detected_us"]
        return (at >= f.col("since_us")) & (at <= f.col("seen_us") + error_us) & is_meant(one)

    by_broker = gone(absences, timed).withColumnRenamed("broker", "lost")
    return (
        stretches.withColumns({"lost": lost, "seen_us": seen_us, "since_us": since_us})
        .join(f.broadcast(by_broker), "lost", "left")
        .withColumn("loss", f.array_max(f.filter("gone", fits)))
        .drop("gone")
    )


def _with_takeover(found: DataFrame, timed: DataFrame) -> DataFrame:
    """With when the controller was elected, if it found the partition dark while it took over.

    It elects leaders for those before it says that it is ready; a controller that never says so tells nothing here.
    """
    of_term = is_a(EventType.CONTROLLER_ELECTED, EventType.CONTROLLER_EPOCH, EventType.CONTROLLER_READY)
    is_ready = f.col("type") == EventType.CONTROLLER_READY
    terms = (
        timed.where(of_term & f.col("controller").isNotNull() & f.col("controller_epoch").isNotNull())
        .groupBy(f.col("controller").alias("by"), f.col("controller_epoch").alias("by_epoch"))
        .agg(
            f.min(f.when(~is_ready, f.unix_micros("at"))).alias("elected_us"),
            f.min(f.when(is_ready, f.unix_micros("at"))).alias("ready_us"),
        )
    )
    seen_first = f.col("before.first_dark.controller_epoch").isNotNull()
    by = f.when(seen_first, f.col("before.first_dark.controller")).otherwise(f.col("after.head.controller"))
    by_epoch = f.coalesce("before.first_dark.controller_epoch", "after.head.controller_epoch")
    meanwhile = (f.col("seen_us") >= f.col("elected_us")) & (f.col("seen_us") <= f.col("ready_us"))
    return (
        found.withColumns({"by": by, "by_epoch": by_epoch})
        .join(f.broadcast(terms), ["by", "by_epoch"], "left")
        .withColumn("takeover_us", f.when(meanwhile, f.col("elected_us")))
        .drop("by", "by_epoch", "elected_us", "ready_us")
    )


def _with_deletion(found: DataFrame, timed: DataFrame) -> DataFrame:
    """With when the topic was first deleted after the last election."""
    asked = is_a(
        EventType.DELETION_ASKED,
        EventType.DELETION_HANDLED,
        EventType.DELETION_STARTED,
        EventType.DELETION_DONE,
        EventType.TOPIC_REMOVED,
    ) | (is_a(EventType.PARTITION) & (f.col("to_state") == ABSENT))
    # KRaft's controllers print it again whenever they replay their log: the first line of an id is of the deletion.
    first = f.min("at").over(Window.partitionBy("topic", "topic_id", "type"))
    removed = is_a(EventType.TOPIC_REMOVED) & f.col("topic_id").isNotNull()
    deletions = (
        timed.where(asked & f.col("topic").isNotNull() & f.col("at").isNotNull())
        .withColumn("at", f.when(removed, first).otherwise(f.col("at")))
        .select(f.explode(f.split("topic", ",")).alias("topic"), f.unix_micros("at").alias("at_us"))
        .groupBy(f.trim("topic").alias("topic"), f.expr("at_us div 1000000").alias("second"))
        .agg(f.min("at_us").alias("at_us"))
        .groupBy("topic")
        .agg(f.collect_list("at_us").alias("deletions"))
    )
    later = f.filter("deletions", lambda at: at >= f.col("since_us"))
    return found.join(deletions, "topic", "left").withColumn("deleted_us", f.array_min(later)).drop("deletions")


def _stepped_down() -> Value:
    """The old leader's first line that it follows the new one, or is stopped; of that epoch, where it has one.

    One that was started anew does not step down: it led no longer.
    """

    def is_its(one: Value) -> Value:
        return (one["who"] == f.col("lost")) & (one["leader_epoch"] == f.col("after.head.leader_epoch"))

    def is_its_or_says_nothing(one: Value) -> Value:
        return (one["who"] == f.col("lost")) & f.coalesce(
            one["leader_epoch"] == f.col("after.head.leader_epoch"), f.lit(True)
        )

    # By a clock that is a little wrong it may seem to come before the election.
    empty = f.filter("after.downs", lambda _: f.lit(False))
    early = f.filter(f.coalesce("before.downs", empty), is_its)
    its = f.concat(early, f.filter("after.downs", is_its_or_says_nothing))
    was_started = f.exists(its, lambda one: one["is_started"])
    had_stepped_down = f.exists(its, lambda one: one["leader_epoch"].isNotNull() & ~one["is_started"])
    return f.when(~was_started | had_stepped_down, f.array_min(f.filter(its, lambda one: ~one["is_started"])))


# -- what follows ------------------------------------------------------------------------------------------------------


def _is_forced() -> Value:
    """Whether the partition had lost its leader."""
    how, state = f.col("after.head.how"), f.col("after.head.from_state")
    is_dark = f.col("before.first_dark").isNotNull()
    has_failed = f.coalesce(f.col("before.failed") > 0, f.lit(False))
    born = how.eqNullSafe("initial") | state.eqNullSafe(NEW)
    # A topic that is created again under a name whose end was not seen ends no outage.
    never_led = has_failed & f.col("before.head").isNull()
    unsaid = state.isNull() & f.coalesce(how, f.lit(UNKNOWN)).eqNullSafe(UNKNOWN)
    ended = (
        f.when(born, never_led)
        .when(_has_returned(), f.col("loss").isNotNull())
        .when(state.eqNullSafe(OFFLINE) | how.eqNullSafe("offline"), True)
        .otherwise(unsaid & (is_dark | _was_away()))
    )
    # Of a topic that is being deleted, partitions go offline and leaders go, but nobody tries to elect another one.
    nobody_stored = f.col("before.nobody") & ~f.col("before.cut")
    open_ = is_dark & ~_is_deleted() & (has_failed | f.col("loss").isNotNull() | nobody_stored)
    return f.when(f.col("after").isNotNull(), ended).otherwise(open_)


def _has_returned() -> Value:
    """Whether the leader that was lost leads again; see `dark`: of a leader that stayed there is no election."""
    head = f.col("after.head")
    return head["how"].eqNullSafe("isr") & ~f.coalesce(head["from_state"].isin(OFFLINE, NEW), f.lit(False))


def _is_deleted() -> Value:
    return f.coalesce(f.col("deleted_us") <= f.col("before.first_dark.at_us"), f.lit(False))


def _was_away() -> Value:
    """Whether the old leader was away when another one came to lead, and did not hand over itself."""
    head = f.col("after.head")
    lost_all = f.col("loss").isNotNull() & (f.col("loss.how") != DIRECTORY)
    still = f.coalesce(f.col("loss.back_us") >= head["begin_us"] - head["error_us"], f.lit(True))
    return lost_all & still & (head["leader"] != f.col("lost")) & ~_has_stepped_down()


def _has_stepped_down() -> Value:
    """Whether the old leader stepped down by itself before the new one led; not when it came back, later."""
    head = f.col("after.head")
    return f.coalesce(f.col("stepped_down.at_us") <= f.coalesce(head["led_us"], head["begin_us"]), f.lit(False))


def _is_handed_over() -> Value:
    """Whether a live leader was moved."""
    head = f.col("after.head")
    born = head["how"].eqNullSafe("initial") | head["from_state"].eqNullSafe(NEW)
    known = f.coalesce(head["planned"], f.lit(False)) | head["from_state"].eqNullSafe(ONLINE) | _has_stepped_down()
    return f.col("after").isNotNull() & ~born & (head["leader"] != f.col("lost")) & known


def _is_waiting() -> Value:
    """Whether an election failed because nobody in sync lived; KRaft stores that nobody leads instead."""
    said = f.concat_ws(" ", "before.why.error", "before.why.reason")
    return ((f.col("before.failed") > 0) & said.rlike(_NOBODY_LIVES)) | (f.col("before.nobody") & ~f.col("before.cut"))


def _cause() -> Value:
    how = f.col("after.head.how")
    return (
        f.when(~f.col("is_forced"), f.when(f.col("after.head.planned"), how).otherwise(UNKNOWN))
        .when(f.col("is_waiting"), NO_LIVE_REPLICA)
        .when(f.col("loss.how") == "controller", CONTROLLER_CHANGE)
        .when(f.col("loss.how") == DIRECTORY, REPLICA_FAILURE)
        .when(f.col("loss.planned"), CONTROLLED_SHUTDOWN)
        .when(f.col("loss").isNotNull(), BROKER_FAILURE)
        .when(f.col("takeover_us").isNotNull(), CONTROLLER_CHANGE)
        .otherwise(UNKNOWN)
    )


def _unclean() -> Value:
    """Whoever is elected uncleanly was not in the ISR before, and is alone in it then.

    Not every ISR has a line of its own, at INFO least of all: where versions show that some are missing, the last one
    that is known says nothing of who was in sync.
    """
    head = f.col("after.head")
    said = f.coalesce("before.is_said", "after.is_decided_unclean")
    has_company = f.exists(head["isr"], lambda each: each != head["leader"])
    is_known = (f.size(f.coalesce(head["prev_isr"], f.array())) > 0) & f.coalesce(head["prev_isr_sure"], f.lit(True))
    return (
        f.when(f.col("after").isNull(), None)
        .when(said | (head["recovery"] == "RECOVERING"), True)
        .when(~said | has_company, False)
        .when(is_known, ~f.array_contains(head["prev_isr"], head["leader"]))
    )
