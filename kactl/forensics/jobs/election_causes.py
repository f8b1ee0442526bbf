"""Causes of elections: requests and events shortly before a partition got its leader.

From 1.1 on a controller's line has the state that a partition comes from, but not the election strategy. From
OfflinePartition there was no leader, whatever was requested. From OnlinePartition a change was requested: the old
leader's broker was shutting down, or is not a target of a reassignment, or a preferred election was requested. KRaft's
log and brokers' logs have no such states. There, a leader that had just been fenced or missed, and was not back yet,
was lost.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType
from kactl.forensics.text.columns import TEXT_LIMIT

from .expressions import NEW, OFFLINE, is_a, is_true, no_ids

INITIAL: Final = "initial"
AFTER_OFFLINE: Final = "offline"
PREFERRED: Final = "preferred"
STOPPED: Final = "controlled-shutdown"
REASSIGNED: Final = "reassign"
ISR: Final = "isr"
UNKNOWN: Final = "unknown"
_WANTED: Final = (PREFERRED, STOPPED, REASSIGNED)
_TP: Final = ("topic", "partition")
_MISSED: Final = ("brokers_removed", "brokers_bounced")
_SECOND_US: Final = 1_000_000
# An election is part of the event that requests it, or of the next one, after any work that the controller does first.
_ASKED_WITHIN_US: Final = 120 * _SECOND_US
# A controlled shutdown is retried several times, and a partition without another in-sync replica waits for the next
# attempt.
_STOPPING_WITHIN_US: Final = 300 * _SECOND_US
# A broker that was fenced or missed longer ago has already lost its partitions.
_GONE_WITHIN_US: Final = 60 * _SECOND_US
# A broker that comes back leads no partition yet: a loss in its first moments is logged late, and belongs to its
# absence.
_BACK_FOR_US: Final = 1 * _SECOND_US
# A cause may seem to be later than its effect by this much.
_SLACK_US: Final = 100_000
# Names of partitions in lists, in brackets before 1.0, and their parts.
_NAMES: Final = r"\[[A-Za-z0-9._-]+,\d+\]|[A-Za-z0-9._-]+-\d+(?=[, )\]]|$)"
_PARTS: Final = r"^\[?(.+)[-,](\d+)\]?$"


def explain(epochs: DataFrame, timed: DataFrame) -> DataFrame:
    """Add `how` and `planned` to leader epochs.

    Args:
        epochs: topic, partition, controller, leader, leader_epoch, begin, replicas, removing, formats, from_state,
            prev_leader.
    """
    joined = (
        epochs.join(f.broadcast(_of_brokers(timed)), f.col("prev_leader") == f.col("left_broker"), "left")
        .join(_asked(timed), list(_TP), "left")
        .join(_reassigned(timed), list(_TP), "left")
        .join(f.broadcast(_asked_of_many(timed)), f.col("controller") == f.col("asked_controller"), "left")
        .withColumn("begin_us", f.unix_micros("begin"))
        .withColumn("target", _target())
    )
    explained = joined.withColumn("how", _how())
    planned = f.when(f.col("how").isin(*_WANTED), True).when(f.col("how") == AFTER_OFFLINE, False)
    return explained.withColumn("planned", planned).select(*epochs.columns, "how", "planned")


def _how() -> Value:
    leader, before = f.col("leader"), f.col("prev_leader")
    is_first = (f.col("from_state") == NEW) | (f.col("leader_epoch") == 0)
    in_kraft = f.exists("formats", lambda format_: format_.isin("K6a", "K6b", "PARTITION_CHANGE_RECORD"))
    unclean = f.array_contains("formats", "K6a")
    stopping = _left_recently("stopping", _STOPPING_WITHIN_US)
    fenced = _left_recently("fenced", _GONE_WITHIN_US)
    # A controller's own line has the state, and would show that it was offline.
    missed = f.col("from_state").isNull() & _left_recently("missed", _GONE_WITHIN_US)
    preferred = f.col("replicas").isNull() | (f.get("replicas", f.lit(0)) == leader)
    is_requested = _within("asked", _ASKED_WITHIN_US) | (
        _within("asked_of_many", _ASKED_WITHIN_US) & f.col("replicas").isNotNull()
    )
    left_out = ~f.array_contains("target", before) | f.array_contains("removing", before)
    return (
        f.when(is_first, INITIAL)
        .when((leader == -1) | (leader == before), ISR)
        .when((f.col("from_state") == OFFLINE) | (before == -1) | unclean, AFTER_OFFLINE)
        .when(stopping, STOPPED)
        .when(fenced | missed, AFTER_OFFLINE)
        .when(left_out, REASSIGNED)
        .when(is_requested & preferred, PREFERRED)
        .when(in_kraft & f.col("replicas").isNotNull() & preferred, PREFERRED)
        .otherwise(UNKNOWN)
    )


def _target() -> Value:
    """The target replicas of the last reassignment before the beginning."""
    before = f.filter("aims", lambda aim: aim["us"] <= f.col("begin_us") + _SLACK_US)
    return f.array_max(before)["replicas"]


def _within(times: str, most_us: int) -> Value:
    """True if one of the times of an array is at most `most_us` before the beginning."""
    ago = f.filter(
        f.col(times),
        lambda us: (us <= f.col("begin_us") + _SLACK_US) & (us >= f.col("begin_us") - most_us),
    )
    return is_true(f.size(ago) > 0)


def _left_recently(times: str, most_us: int) -> Value:
    """True if the old leader's broker left at one of these times, shortly before, and had not come back since.

    A broker that came back and leads was elected after that; a later change of its leadership has its own cause.
    """

    def is_away(left: Value) -> Value:
        came_back = f.exists("back", lambda us: (us > left) & (us <= f.col("begin_us") - _BACK_FOR_US))
        recent = (left <= f.col("begin_us") + _SLACK_US) & (left >= f.col("begin_us") - most_us)
        return recent & ~came_back

    return is_true(f.exists(times, is_away))


# -- requests and events -----------------------------------------------------------------------------------------------


def _of_brokers(timed: DataFrame) -> DataFrame:
    """For each broker, when it was shutting down, when it was fenced or missed, and when it came back."""
    us = f.unix_micros("at")
    of_one = is_a(EventType.BROKER_STOPPING, EventType.BROKER_FENCED, EventType.BROKER_UNFENCED)
    many = is_a(EventType.BROKERS_CHANGED, EventType.BROKER_FAILED, EventType.BROKER_STARTED)
    missed = f.concat(*(f.coalesce(name, no_ids()) for name in _MISSED))
    moves = [
        f.struct(
            f.when(of_one, f.array("broker")).otherwise(missed).alias("brokers"),
            is_a(EventType.BROKER_UNFENCED).alias("back"),
        ),
        f.struct(f.col("brokers_added").alias("brokers"), f.lit(True).alias("back")),
    ]
    lines = timed.where(of_one | many).select("type", us.alias("us"), f.inline(f.array(*moves)))
    changes = lines.select("type", "us", "back", f.explode("brokers").alias("left_broker")).where(
        "left_broker is not null"
    )
    return changes.groupBy("left_broker").agg(
        f.collect_set(f.when(is_a(EventType.BROKER_STOPPING), f.col("us"))).alias("stopping"),
        f.collect_set(f.when(is_a(EventType.BROKER_FENCED), f.col("us"))).alias("fenced"),
        f.collect_set(f.when(~of_one & ~f.col("back"), f.col("us"))).alias("missed"),
        f.collect_set(f.when(f.col("back"), f.col("us"))).alias("back"),
    )


def _asked(timed: DataFrame) -> DataFrame:
    """For each partition, when a preferred election was requested by its name."""
    # The last name of a truncated list may be incomplete.
    whole = f.when(_is_truncated(), f.regexp_replace("text", "[^,]*$", "")).otherwise(f.col("text"))
    names = f.explode(f.array_distinct(f.regexp_extract_all(whole, f.lit(_NAMES), f.lit(0))))
    requests = timed.where(_is_preferred() & f.col("text").isNotNull()).select(f.unix_micros("at").alias("us"), names)
    topic, partition = (f.regexp_extract("col", _PARTS, group) for group in (1, 2))
    return requests.groupBy(topic.alias("topic"), partition.try_cast("int").alias("partition")).agg(
        f.collect_set("us").alias("asked")
    )


def _asked_of_many(timed: DataFrame) -> DataFrame:
    """For each controller, when a request listed so many partitions that the line was truncated: any partition may be
    in it.
    """
    requests = timed.where(_is_preferred() & _is_truncated() & f.col("controller").isNotNull())
    return requests.groupBy(f.col("controller").alias("asked_controller")).agg(
        f.collect_set(f.unix_micros("at")).alias("asked_of_many")
    )


def _is_preferred() -> Value:
    return is_a(EventType.ELECTION_ASKED) & (f.col("strategy") == "preferred")


def _is_truncated() -> Value:
    return f.octet_length("text") >= TEXT_LIMIT - 3  # the truncation may split a character


def _reassigned(timed: DataFrame) -> DataFrame:
    """For each partition, the target replicas of its reassignments, and their times."""
    requests = timed.where(
        is_a(EventType.REASSIGNMENT_STARTED, EventType.REASSIGNMENT_CAUGHT_UP) & f.col("at").isNotNull()
    )
    aim = f.struct(f.unix_micros("at").alias("us"), f.col("replicas").alias("replicas"))
    return requests.where("replicas is not null").groupBy(*_TP).agg(f.collect_set(aim).alias("aims"))
