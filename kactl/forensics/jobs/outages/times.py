"""Begin, end, bounds and parts of each outage.

All times are microseconds until the last step. The bounds hold as long as each clock is within its error (where the
error is unknown: within `intervals.UNKNOWN_ERROR_US`): a lower bound is moved earlier by the error, an upper bound
later. A bound that follows from order alone (a leader leads after it was elected) needs no error.

Begin. A leader responds until it falls silent, which its session and its followers show; see `silence`. Without such
evidence the estimate is the time of detection, or else the first line that shows the partition without a leader: too
late rather than too early. No broker logs its own death, so the begin of such an outage is never observed.

End. The new leader's own line, or else the controller's line that it was elected. In the latter case clients waited
longer, and an ISR change by the new leader bounds for how long. A leader that was paused is usable again from its first
sign after the pause until it processes the next LeaderAndIsr, and beyond if it rejects that ("cannot become follower
since the new leader -1 is unavailable"). A partition that no other replica took over is therefore unavailable at least
until then. With KRaft the leader steps down as soon as it has read the metadata log; with ZooKeeper it continues to
lead.

Parts. The points in time are taken in their order, each no earlier than the one before and none outside the outage, so
no part is negative and the known parts add up. A part is null if one of its ends is unknown.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import Role
from kactl.forensics.jobs.expressions import NEW, is_true
from kactl.forensics.jobs.membership import FENCED

from .intervals import CUT, FAILED, NOBODY, SESSION_US, WENT_OFFLINE

OBSERVED: Final = "observed"
INFERRED: Final = "inferred"
BOUNDED: Final = "bounded"
OPEN: Final = "open"
# A controller elects a replica that is alive in the pass in which it notices the loss.
_AT_ONCE_MS: Final = 1000


def times(caused: DataFrame, timed: DataFrame) -> DataFrame:
    """Compute the times of outages.

    Args:
        caused: see `causes.causes`.
        timed: lines that show where the controllers' logs end: an open outage is known to last until then.

    Returns:
        `caused` with the columns of `outages.COLUMNS` added.
    """
    flat = _flat(caused).withColumn("logs_end_us", _logs_end(timed))
    return _as_table(_with_parts(_with_begin(_with_paused_leader(_with_end(flat)))))


def _logs_end(timed: DataFrame) -> Value:
    """Return the time of the last controller line: until then an election would have been logged. Without any: the last
    line.
    """
    time_us = f.unix_micros("at")
    return timed.agg(f.coalesce(f.max(f.when(f.col("role") == Role.CONTROLLER, time_us)), f.max(time_us))).scalar()


def _flat(caused: DataFrame) -> DataFrame:
    """The inputs of the times, as plain columns. Those of the new leader are null where there is none."""
    head, first = f.col("after.head"), f.col("before.first_unavailable")
    revived = f.col("before.revived")
    goes_on = f.col("after").isNull()
    # A leader was seen after the last mark without one; a leader seen before it was an earlier one.
    came_last = is_true(revived["minus_after_us"] == -f.col("before.last_unavailable.at_us"))
    is_deleted = goes_on & is_true(f.col("deleted_us") > first["at_us"])
    is_revived = goes_on & came_last & ~is_deleted
    elected_us = f.when(f.col("after.is_decided"), head["begin_us"])
    # Bound of the end of an outage that no election ended.
    ended_us = f.when(is_deleted, f.col("deleted_us")).when(is_revived, revived["at_us"])
    seen_at_work = f.greatest(
        f.col("before.head.led_us") - f.col("before.head.led_error_us"),
        f.when(~_may_be_elected_dead(first), f.col("before.head.begin_us") - f.col("before.head.error_us")),
        "before.available_us",
    )
    is_seen = first.isNotNull() & first["mark"].isin(WENT_OFFLINE, FAILED, CUT, NOBODY)
    return caused.select(
        *KEY,
        "is_forced",
        "is_waiting",
        "had_no_candidate",
        "planned",
        "cause",
        "unclean",
        "lost",
        "stepped_down",
        "takeover_us",
        "callbacks",
        goes_on.alias("goes_on"),
        is_seen.alias("is_seen"),
        f.when(is_seen, first["at_us"]).alias("first_us"),
        f.coalesce(first["error_us"], head["error_us"], f.lit(0)).alias("seen_error_us"),
        (first["from_state"].eqNullSafe(NEW) & f.col("before.head").isNull()).alias("is_new"),
        f.col("before.last_unavailable.at_us").alias("last_unavailable_us"),
        f.coalesce("before.last_unavailable.error_us", f.lit(0)).alias("last_unavailable_error_us"),
        seen_at_work.alias("seen_at_work_us"),
        f.coalesce("before.failed", f.lit(0)).alias("failed"),
        f.col("before.why.reason").alias("reason"),
        f.col("loss.detected_us").alias("lost_us"),
        *(
            f.col(f"loss.{name}")
            for name in ("last_sign_us", "silent_us", "silent_low_us", "silent_high_us", "awake_us")
        ),
        f.col("loss.how").alias("loss_how"),
        f.col("loss.error_us").alias("sign_error_us"),
        elected_us.alias("elected_us"),
        head["begin_us"].alias("next_us"),
        f.coalesce(head["error_us"], f.lit(0)).alias("error_us"),
        head["received_us"].alias("received_us"),
        head["led_us"].alias("led_us"),
        f.coalesce(head["led_error_us"], f.lit(0)).alias("led_error_us"),
        f.col("after.proved_us").alias("proved_us"),
        is_deleted.alias("is_deleted"),
        ended_us.alias("ended_us"),
        f.when(is_revived, revived["error_us"]).alias("ended_error_us"),
        f.when(goes_on, f.when(is_revived, revived["broker_id"])).otherwise(head["leader"]).alias("new_leader"),
        head["leader_epoch"].alias("leader_epoch"),
        f.when(goes_on, f.col("before.last_unavailable.controller")).otherwise(head["controller"]).alias("controller"),
        f.when(goes_on, f.col("before.last_unavailable.controller_epoch"))
        .otherwise(head["controller_epoch"])
        .alias("controller_epoch"),
    )


def _may_be_elected_dead(first_unavailable: Value) -> Value:
    """True if the lost leader may have been dead when it was elected, because no line of its own shows otherwise.

    It is then missed within a session. `intervals` knows it for certain of leaders whose last signs are in the logs.
    """
    head = f.col("before.head")
    silent = head["led_us"].isNull() & head["received_us"].isNull() & f.col("before.available_us").isNull()
    session_us = f.coalesce(f.col("loss.session_us"), f.lit(SESSION_US))
    missed_us = f.least(f.col("loss.detected_us"), first_unavailable["at_us"], f.col("after.head")["begin_us"])
    return silent & is_true(missed_us <= head["begin_us"] + session_us)


# -- end and begin -----------------------------------------------------------------------------------------------------


def _with_end(flat: DataFrame) -> DataFrame:
    """Add end_us, end_low_us, end_high_us, end_kind, and until_us: the end, or that of the logs."""
    led, elected, received = f.col("led_us"), f.col("elected_us"), f.col("received_us")
    known = f.coalesce(f.greatest(led, elected), f.greatest(elected, received), "next_us")
    since_elected = f.greatest(elected - f.col("error_us"), received - f.col("led_error_us"))
    low = f.greatest(led - f.col("led_error_us"), elected - f.col("error_us"))
    still_unavailable = f.col("last_unavailable_us") - f.col("last_unavailable_error_us")
    kind = (
        f.when(~f.col("goes_on"), f.when(led.isNotNull(), OBSERVED).when(since_elected.isNotNull(), INFERRED))
        .when(f.col("is_deleted"), OBSERVED)
        .when(f.col("ended_us").isNull(), OPEN)
    )
    by_next = {
        "end_us": known,
        "end_low_us": f.when(led.isNotNull(), low).otherwise(f.coalesce(since_elected, still_unavailable)),
        "end_high_us": f.when(led.isNotNull(), f.greatest(led + f.col("led_error_us"), known)).otherwise(
            f.when(f.col("proved_us").isNotNull(), f.greatest("proved_us", known))
        ),
    }
    by_itself = {
        "end_us": f.col("ended_us"),
        "end_low_us": f.when(f.col("is_deleted"), f.col("ended_us"))
        .when(f.col("ended_us").isNotNull(), still_unavailable)
        .otherwise(f.greatest(f.col("logs_end_us"), f.col("last_unavailable_us"))),
        "end_high_us": f.col("ended_us") + f.coalesce("ended_error_us", f.lit(0)),
    }
    return flat.withColumns(
        {name: f.when(f.col("goes_on"), by_itself[name]).otherwise(by_next[name]) for name in by_next}
        | {"end_kind": f.coalesce(kind, f.lit(BOUNDED))}
    ).withColumn("until_us", f.coalesce("end_us", f.greatest("logs_end_us", "last_unavailable_us")))


def _with_paused_leader(ended: DataFrame) -> DataFrame:
    """Move the end forward where the lost leader was only paused and was usable before a line states that it leads."""
    awake = f.when(f.col("is_forced") & ~f.col("is_deleted"), f.col("awake_us"))
    is_before = is_true(awake < f.col("until_us"))
    leads_on = is_before & f.col("new_leader").eqNullSafe(f.col("lost")) & (f.col("loss_how") != FENCED)
    return ended.withColumns(
        {
            "end_us": f.when(leads_on, awake).otherwise(f.col("end_us")),
            "until_us": f.when(leads_on, awake).otherwise(f.col("until_us")),
            "end_kind": f.when(leads_on, f.lit(INFERRED)).otherwise(f.col("end_kind")),
            "end_low_us": f.when(is_before, f.least("end_low_us", awake - f.col("sign_error_us"))).otherwise(
                f.col("end_low_us")
            ),
        }
    )


def _with_begin(ended: DataFrame) -> DataFrame:
    """Add begin_us, begin_low_us, begin_high_us, begin_kind, and detected_us."""
    had_leader = f.col("is_forced") & ~f.col("is_new")
    detected = ended.withColumn("detected_us", f.when(had_leader, f.coalesce("lost_us", "takeover_us")))
    lost, moved = _when_lost(), _when_moved()
    chosen = detected.withColumns(
        {name: f.when(f.col("is_forced"), lost[name]).otherwise(moved[name]) for name in lost}
    )
    # The end is not before the begin, and the bounds include the estimate.
    begin = f.col("begin_us")
    return chosen.withColumns(
        {
            "begin_low_us": f.when(f.col("begin_low_us").isNotNull(), f.least("begin_low_us", begin)),
            "begin_high_us": f.greatest("begin_high_us", begin),
            "end_low_us": f.least(f.coalesce("end_low_us", "begin_low_us", begin), "until_us"),
        }
    )


def _when_lost() -> dict[str, Value]:
    """Begin of the outage of a lost leader: when it fell silent."""
    # A controller that takes over finds losses from before its first look, not only from before its election.
    seen_us = f.least("lost_us", "first_us", "next_us", "until_us")
    latest = f.least("detected_us", seen_us)
    silent = f.col("silent_high_us") + f.greatest("sign_error_us", "seen_error_us")
    high = f.least(seen_us + f.col("seen_error_us"), silent)
    at_work = f.when(f.col("seen_at_work_us").isNotNull(), f.least("seen_at_work_us", high))
    alive = f.greatest(f.col("silent_low_us") - f.col("sign_error_us"), at_work)
    low = f.when(f.col("is_new"), f.col("first_us") - f.col("seen_error_us")).otherwise(alive)
    guess = f.when(f.col("silent_us").isNotNull(), f.greatest("silent_us", low)).otherwise(latest)
    return {
        "begin_us": f.least(guess, latest),
        "begin_low_us": low,
        "begin_high_us": high,
        # A partition that never had a leader has none from the line that states it; no line states that a broker died.
        "begin_kind": f.when(f.col("is_new"), OBSERVED)
        .when(f.col("detected_us").isNotNull(), INFERRED)
        .otherwise(BOUNDED),
    }


def _when_moved() -> dict[str, Value]:
    """Begin of the outage of a moved leader: its own line of stepping down, or else the election of the next one.

    If it stepped down after the next one led, the partition always had a leader.
    """
    down, error = f.col("stepped_down.at_us"), f.col("stepped_down.error_us")
    elected = f.col("elected_us")
    end, end_high = f.col("end_us"), f.coalesce("end_high_us", "end_us")
    return {
        "begin_us": f.least(f.coalesce(down, elected, "next_us"), end),
        "begin_low_us": f.when(down.isNotNull(), down - error)
        .when(elected.isNotNull(), elected - f.col("error_us"))
        .otherwise(f.col("seen_at_work_us")),
        "begin_high_us": f.when(down.isNotNull(), f.least(down + error, end_high)).otherwise(end_high),
        "begin_kind": f.when(down.isNotNull(), OBSERVED).when(elected.isNotNull(), INFERRED).otherwise(BOUNDED),
    }


# -- parts -------------------------------------------------------------------------------------------------------------


def _with_parts(outages: DataFrame) -> DataFrame:
    """Add begun_us, and the parts in milliseconds."""
    # A controller logs that it processes a loss (C4) after it detected the loss and before it elects; at INFO this is
    # the only line.
    called = f.array_min(
        f.filter(
            "callbacks",
            lambda time_us: (time_us >= f.col("lost_us")) & (time_us <= f.least("first_us", "next_us", "until_us")),
        )
    )
    begun = f.when(f.col("is_forced"), f.coalesce("first_us", called))
    points = outages.withColumn("begun_us", begun)
    stop = f.when(f.col("goes_on"), f.col("until_us")).otherwise(f.col("elected_us"))
    for name, time, before in (
        ("detected", f.col("detected_us"), ()),
        ("begun", f.col("begun_us"), ("detected",)),
        ("stop", stop, ("detected", "begun")),
        ("received", f.col("received_us"), ("detected", "begun", "stop")),
    ):
        floor = f.greatest("begin_us", *(f"{point}_in_us" for point in before)) if before else f.col("begin_us")
        within = f.least(f.greatest(time, floor), f.col("until_us"))
        points = points.withColumn(f"{name}_in_us", f.when(time.isNotNull(), within))
    ms = {name: _since_begin(f"{name}_in_us") for name in ("detected", "begun", "stop", "received")}
    until = _since_begin("until_us")
    election = ms["stop"] - ms["begun"]
    waits = f.col("is_waiting") | (f.col("had_no_candidate") & is_true(election > _AT_ONCE_MS))
    is_led = f.col("led_us").isNotNull()
    sent = f.col("elected_us").isNotNull()
    return points.withColumns(
        {
            "detection_ms": ms["detected"],
            "queue_ms": ms["begun"] - ms["detected"],
            "waiting_ms": f.when(waits, election),
            "election_ms": f.when(~waits & ~f.col("goes_on"), election),
            "send_ms": f.when(sent, ms["received"] - ms["stop"]),
            "apply_ms": f.when(is_led, until - ms["received"]),
        }
    )


def _since_begin(name: str) -> Value:
    """Whole milliseconds since the begin of the outage. Differences of these add up to the whole."""
    return f.floor((f.col(name) - f.col("begin_us")) / 1000).cast("long")


def _as_table(outages: DataFrame) -> DataFrame:
    def span(end: str, begin: str) -> Value:
        return (f.col(end) - f.col(begin)) / 1000

    ends = ("begin", "begin_low", "begin_high", "end", "end_low", "end_high")
    points = ("last_sign", "detected", "begun", "elected", "received", "led")
    return outages.withColumns(
        {name: f.timestamp_micros(f"{name}_us") for name in ends}
        | {f"{name}_at": f.timestamp_micros(f"{name}_us") for name in points}
        | {
            "duration_ms": _since_begin("until_us"),
            "duration_min_ms": f.greatest(f.floor(span("end_low_us", "begin_high_us")), f.lit(0)).cast("long"),
            "duration_max_ms": f.ceil(span("end_high_us", "begin_low_us")).cast("long"),
            "broker": f.col("lost"),
            "attempts_failed": f.when(f.col("is_forced"), f.col("failed")).otherwise(f.lit(0)).cast("int"),
        }
    )
