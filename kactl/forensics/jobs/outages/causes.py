"""Select the intervals that contain an outage, and determine the cause of each.

An election out of OfflinePartition ends an outage. An election whose previous leader was absent ends one too, even if
no line gives the reason: KRaft's controllers do not log it. An interval without a following election is an outage if an
election failed in it, if the stored state has no leader, or if its leader was absent, unless its topic was being
deleted. Every other change of leaders moved a live leader; such a change is short and mostly planned.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.expressions import ABSENT, NEW, OFFLINE, ONLINE, all_known, is_a, is_true, rows_of

from .intervals import DIRECTORY, concerns_partition, lost_brokers

BROKER_FAILURE: Final = "broker-failure"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"
REPLICA_FAILURE: Final = "replica-failure"
NO_LIVE_REPLICA: Final = "no-live-replica"
CONTROLLER_CHANGE: Final = "controller-change"
UNKNOWN: Final = "unknown"

# Errors of controllers of all versions, and of kactl, where no replica could be elected. Other reasons are races and
# stores.
_NOBODY_LIVES: Final = "(?i)failed to elect leader|(is|are) alive|is online|may lead|noreplicaonline"


def causes(intervals: DataFrame, timed: DataFrame, absences: DataFrame) -> DataFrame:
    """Add the cause to each interval that contains an outage; drop all other intervals.

    Args:
        intervals: see `intervals.intervals`.
        timed: lines about directories, controllers that took over, and deleted topics.
        absences: leaders that were absent.

    Returns:
        The columns of `intervals`, and:
        lost: the leader that was lost.
        loss: how it was lost, see `intervals.lost_brokers`; null if unknown. callbacks: see there.
        is_forced: true if the leader was lost, false if it was moved.
        is_waiting: true if no replica could be elected at first.
        stepped_down: `at_us` and `error_us` of the old leader's own line that it stepped down.
        takeover_us: the election time of the controller that found the partition without a leader as it took over.
        deleted_us: when the topic was deleted during the outage.
        had_no_candidate: true if no other replica that may lead was alive; it may have been elected at once.
        cause, planned, unclean: see `outages.COLUMNS`.
    """
    with_loss = _with_takeover(_with_loss(intervals, timed, absences), timed)
    known = _with_deletion(with_loss, timed).withColumn("stepped_down", _stepped_down())
    assessed = known.withColumn("is_forced", is_true(_is_forced()))
    return (
        assessed.where(f.col("is_forced") | is_true(_is_handed_over()))
        .withColumn("is_waiting", f.col("is_forced") & is_true(_is_waiting()))
        .withColumn("planned", f.when(f.col("is_forced"), False).otherwise(f.col("after.head.planned")))
        .withColumn("cause", _cause())
        .withColumn("unclean", _unclean())
        .withColumn("had_no_candidate", f.col("is_forced") & _had_no_candidate())
    )


# -- lookups ----------------------------------------------------------------------------------------------------------


def _with_loss(intervals: DataFrame, timed: DataFrame, absences: DataFrame) -> DataFrame:
    """Add the last loss of the old leader before the partition was seen without one."""
    head, was = f.col("after.head"), f.col("before.head.leader")
    logged_leader = f.when(head["prev_leader"] >= 0, head["prev_leader"])
    # If epochs are missing, other brokers led in between. The last known leader may have been absent for long and need
    # not be the lost one. This does not matter once the partition was unavailable, or if the change was planned.
    is_gap = (
        is_true(head["leader_epoch"] > f.col("before.last_epoch") + 1)
        & f.col("before.first_unavailable").isNull()
        & ~is_true(head["planned"])
    )
    of_the_epoch_before = f.when(head["prev_leader_epoch"] == head["leader_epoch"] - 1, logged_leader)
    lost = (
        f.when(_has_returned(), head["leader"])
        .when(is_gap, of_the_epoch_before)
        .otherwise(f.coalesce(was, logged_leader))
    )
    seen_us = f.least("before.first_unavailable.at_us", "after.head.begin_us")
    error_us = f.coalesce("before.first_unavailable.error_us", "after.head.error_us", f.lit(0))
    since_us = f.coalesce(f.col("before.head.begin_us") - f.col("before.head.error_us"), f.lit(0))

    def fits(loss: Value) -> Value:
        time_us = loss["detected_us"]
        return (time_us >= f.col("since_us")) & (time_us <= f.col("seen_us") + error_us) & concerns_partition(loss)

    by_broker = lost_brokers(absences, timed).withColumnRenamed("broker", "lost")
    return (
        intervals.withColumns({"lost": lost, "seen_us": seen_us, "since_us": since_us})
        .join(f.broadcast(by_broker), "lost", "left")
        .withColumn("loss", f.array_max(f.filter("losses", fits)))
        .drop("losses")
    )


def _with_takeover(intervals: DataFrame, timed: DataFrame) -> DataFrame:
    """Add the election time of the controller, if it found the partition unavailable while taking over.

    A controller elects leaders for such partitions before it logs that it is ready. A controller that never logs this
    adds nothing.
    """
    of_term = is_a(EventType.CONTROLLER_ELECTED, EventType.CONTROLLER_EPOCH, EventType.CONTROLLER_READY)
    is_ready = f.col("type") == EventType.CONTROLLER_READY
    terms = (
        timed.where(of_term & all_known("controller", "controller_epoch"))
        .groupBy(f.col("controller").alias("by"), f.col("controller_epoch").alias("by_epoch"))
        .agg(
            f.min(f.when(~is_ready, f.unix_micros("at"))).alias("elected_us"),
            f.min(f.when(is_ready, f.unix_micros("at"))).alias("ready_us"),
        )
    )
    seen_first = f.col("before.first_unavailable.controller_epoch").isNotNull()
    by = f.when(seen_first, f.col("before.first_unavailable.controller")).otherwise(f.col("after.head.controller"))
    by_epoch = f.coalesce("before.first_unavailable.controller_epoch", "after.head.controller_epoch")
    meanwhile = (f.col("seen_us") >= f.col("elected_us")) & (f.col("seen_us") <= f.col("ready_us"))
    return (
        intervals.withColumns({"by": by, "by_epoch": by_epoch})
        .join(f.broadcast(terms), ["by", "by_epoch"], "left")
        .withColumn("takeover_us", f.when(meanwhile, f.col("elected_us")))
        .drop("by", "by_epoch", "elected_us", "ready_us")
    )


def _with_deletion(intervals: DataFrame, timed: DataFrame) -> DataFrame:
    """Add the first deletion of the topic after the last election."""
    is_deletion = is_a(
        EventType.DELETION_ASKED,
        EventType.DELETION_HANDLED,
        EventType.DELETION_STARTED,
        EventType.DELETION_DONE,
        EventType.TOPIC_REMOVED,
    ) | (is_a(EventType.PARTITION) & (f.col("to_state") == ABSENT))
    # KRaft's controllers log a removal again whenever they replay their log: the first line of an id counts.
    first = rows_of("topic", "topic_id", "type").over_all(f.min("at"))
    removed = is_a(EventType.TOPIC_REMOVED) & f.col("topic_id").isNotNull()
    deletions = (
        timed.where(is_deletion & all_known("topic", "at"))
        .withColumn("at", f.when(removed, first).otherwise(f.col("at")))
        .select(f.explode(f.split("topic", ",")).alias("topic"), f.unix_micros("at").alias("at_us"))
        .groupBy(f.trim("topic").alias("topic"), f.expr("at_us div 1000000").alias("second"))
        .agg(f.min("at_us").alias("at_us"))
        .groupBy("topic")
        .agg(f.collect_list("at_us").alias("deletions"))
    )
    later = f.filter("deletions", lambda time_us: time_us >= f.col("since_us"))
    return intervals.join(deletions, "topic", "left").withColumn("deleted_us", f.array_min(later)).drop("deletions")


def _stepped_down() -> Value:
    """Return the old leader's first line that it follows the new one or is stopped, of the new epoch if the line has
    one.

    A restarted broker does not step down: it no longer led.
    """

    def is_its(step: Value) -> Value:
        return (step["broker_id"] == f.col("lost")) & (step["leader_epoch"] == f.col("after.head.leader_epoch"))

    def is_its_or_says_nothing(step: Value) -> Value:
        return (step["broker_id"] == f.col("lost")) & f.coalesce(
            step["leader_epoch"] == f.col("after.head.leader_epoch"), f.lit(True)
        )

    # A small clock error may place the line before the election.
    empty = f.filter("after.step_downs", lambda _: f.lit(False))
    early = f.filter(f.coalesce("before.step_downs", empty), is_its)
    its = f.concat(early, f.filter("after.step_downs", is_its_or_says_nothing))
    was_started = f.exists(its, lambda step: step["is_started"])
    had_stepped_down = f.exists(its, lambda step: step["leader_epoch"].isNotNull() & ~step["is_started"])
    return f.when(~was_started | had_stepped_down, f.array_min(f.filter(its, lambda step: ~step["is_started"])))


# -- conclusions ------------------------------------------------------------------------------------------------------


def _is_forced() -> Value:
    """True if the partition had lost its leader."""
    how, state = f.col("after.head.how"), f.col("after.head.from_state")
    is_unavailable = f.col("before.first_unavailable").isNotNull()
    has_failed = is_true(f.col("before.failed") > 0)
    is_first = how.eqNullSafe("initial") | state.eqNullSafe(NEW)
    # A topic that is created again, and whose previous deletion is not in the logs, ends no outage.
    never_led = has_failed & f.col("before.head").isNull()
    unsaid = state.isNull() & f.coalesce(how, f.lit(UNKNOWN)).eqNullSafe(UNKNOWN)
    ended = (
        f.when(is_first, never_led)
        .when(_has_returned(), f.col("loss").isNotNull())
        .when(state.eqNullSafe(OFFLINE) | how.eqNullSafe("offline"), True)
        .otherwise(unsaid & (is_unavailable | _was_away()))
    )
    # Partitions of a topic that is being deleted go offline and lose their leaders, but no election is attempted.
    nobody_stored = f.col("before.nobody") & ~f.col("before.cut")
    open_ = is_unavailable & ~_is_deleted() & (has_failed | f.col("loss").isNotNull() | nobody_stored)
    return f.when(f.col("after").isNotNull(), ended).otherwise(open_)


def _has_returned() -> Value:
    """True if the lost leader leads again. A leader that stayed was not elected; see `intervals`."""
    head = f.col("after.head")
    return head["how"].eqNullSafe("isr") & ~is_true(head["from_state"].isin(OFFLINE, NEW))


def _is_deleted() -> Value:
    return is_true(f.col("deleted_us") <= f.col("before.first_unavailable.at_us"))


def _was_away() -> Value:
    """True if the old leader was absent when the next one took over, and had not stepped down by itself."""
    head = f.col("after.head")
    lost_all = f.col("loss").isNotNull() & (f.col("loss.how") != DIRECTORY)
    still = f.coalesce(f.col("loss.back_us") >= head["begin_us"] - head["error_us"], f.lit(True))
    return lost_all & still & (head["leader"] != f.col("lost")) & ~_has_stepped_down()


def _has_stepped_down() -> Value:
    """True if the old leader stepped down before the new one led, not when it came back later."""
    head = f.col("after.head")
    return is_true(f.col("stepped_down.at_us") <= f.coalesce(head["led_us"], head["begin_us"]))


def _is_handed_over() -> Value:
    """True if a live leader was moved."""
    head = f.col("after.head")
    is_first = head["how"].eqNullSafe("initial") | head["from_state"].eqNullSafe(NEW)
    known = is_true(head["planned"]) | head["from_state"].eqNullSafe(ONLINE) | _has_stepped_down()
    return f.col("after").isNotNull() & ~is_first & (head["leader"] != f.col("lost")) & known


def _is_waiting() -> Value:
    """True if an election failed because no in-sync replica was alive. KRaft stores a state without leader instead.

    Without a line of the reason, the lost leader shows it: no other replica was elected before it returned.
    """
    message = f.concat_ws(" ", "before.why.error", "before.why.reason")
    is_unsaid = f.col("before.why").isNull() & is_true(f.col("after.head.leader") == f.col("lost"))
    return ((f.col("before.failed") > 0) & (message.rlike(_NOBODY_LIVES) | is_unsaid)) | (
        f.col("before.nobody") & ~f.col("before.cut")
    )


def _had_no_candidate() -> Value:
    """True if the leader was elected uncleanly, or is the lost one: another replica in sync would have been elected."""
    return is_true(f.col("unclean")) | is_true(f.col("after.head.leader") == f.col("lost"))


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
    """True if the new leader was elected uncleanly: it was not in the ISR before, and is its only member afterwards.

    Not every ISR has a line of its own, least of all at INFO. Where partition epochs show that ISRs are missing, the
    last known ISR does not prove which replicas were in sync.
    """
    head = f.col("after.head")
    logged = f.coalesce("before.is_said", "after.is_decided_unclean")
    has_company = f.exists(head["isr"], lambda replica: replica != head["leader"])
    is_known = (f.size(f.coalesce(head["prev_isr"], f.array())) > 0) & f.coalesce(head["prev_isr_sure"], f.lit(True))
    return (
        f.when(f.col("after").isNull(), None)
        .when(logged | (head["recovery"] == "RECOVERING"), True)
        .when(~logged | has_company, False)
        .when(is_known, ~f.array_contains(head["prev_isr"], head["leader"]))
    )
