"""When an outage began and ended, how sure that is, and whose each part of it was.

All times are microseconds until the last step. Bounds hold as long as each clock is within its error (where that is
unknown, within `gone.UNKNOWN_ERROR_US`): a time that bounds from below is taken earlier by its error, one that bounds
from above later. What is bounded by order alone (a leader leads after it was elected) needs no error.

Begin. A leader answered until it fell silent, of which its session and its followers tell; see `silence`. Where nothing
is known of that, the guess is the moment of detection, or else the first line that shows the partition without a
leader: rather too late than too early. No line of a broker says that it has died, so that the begin of such an outage
is never observed.

End. The new leader's own line, or else the controller's that it was elected; then clients had to wait longer than that,
and a change of the ISR by the new leader bounds for how long. A leader that was paused is one again from its first
moment awake until it processes the next LeaderAndIsr, and beyond if it refuses that ("cannot become follower since the
new leader -1 is unavailable"): what no other replica took over does not end later than that at the least. With KRaft it
steps down as soon as it has read the metadata log; with ZooKeeper it leads on.

Parts. The points in time are taken in their order, each no earlier than the one before and none outside of the outage,
so that no part is negative and those that are known add up. A part is null if one of its ends is unknown.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import Role

from .dark import CUT, FAILED, NOBODY, PARTITION, WENT_OFFLINE
from .gone import SESSION_US
from .lines import NEW
from .membership import FENCED

OBSERVED: Final = "observed"
INFERRED: Final = "inferred"
BOUNDED: Final = "bounded"
OPEN: Final = "open"


def times(caused: DataFrame, timed: DataFrame) -> DataFrame:
    """The outages, as `outages.COLUMNS` says.

    Args:
        caused: see `outage_causes.causes`.
        timed: for when the controllers' logs end, which is how far an outage is known to go on.
    """
    flat = _flat(caused).withColumn("logs_end_us", _logs_end(timed))
    return _as_table(_with_parts(_with_begin(_led_on(_with_end(flat)))))


def _logs_end(timed: DataFrame) -> Value:
    """A controller's last line: until then it would have told of an election. Without any, the last of all."""
    at = f.unix_micros("at")
    return timed.agg(f.coalesce(f.max(f.when(f.col("role") == Role.CONTROLLER, at)), f.max(at))).scalar()


def _flat(caused: DataFrame) -> DataFrame:
    """What the times follow from, by plain names; of the new leader all is null where there is none."""
    head, first = f.col("after.head"), f.col("before.first_dark")
    revived = f.col("before.revived")
    goes_on = f.col("after").isNull()
    # Somebody led after the last line that says that nobody did; before it, it was an older one.
    came_last = f.coalesce(revived["minus_after_us"] == -f.col("before.last_dark.at_us"), f.lit(False))
    is_deleted = goes_on & f.coalesce(f.col("deleted_us") > first["at_us"], f.lit(False))
    is_revived = goes_on & came_last & ~is_deleted
    elected_us = f.when(f.col("after.is_decided"), head["begin_us"])
    # What bounds the end of one that no election ended.
    ended_us = f.when(is_deleted, f.col("deleted_us")).when(is_revived, revived["at_us"])
    seen_at_work = f.greatest(
        f.col("before.head.led_us") - f.col("before.head.led_error_us"),
        f.when(~_may_be_hollow(first), f.col("before.head.begin_us") - f.col("before.head.error_us")),
        "before.lit_us",
    )
    is_seen = first.isNotNull() & first["mark"].isin(WENT_OFFLINE, FAILED, CUT, NOBODY)
    return caused.select(
        *PARTITION,
        "is_forced",
        "is_waiting",
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
        f.col("before.last_dark.at_us").alias("last_dark_us"),
        f.coalesce("before.last_dark.error_us", f.lit(0)).alias("last_dark_error_us"),
        seen_at_work.alias("seen_at_work_us"),
        f.coalesce("before.failed", f.lit(0)).alias("failed"),
        f.col("before.why.reason").alias("reason"),
        f.col("loss.detected_us").alias("lost_us"),
        f.col("loss.last_sign_us").alias("last_sign_us"),
        f.col("loss.silent_us").alias("silent_us"),
        f.col("loss.silent_low_us").alias("silent_low_us"),
        f.col("loss.silent_high_us").alias("silent_high_us"),
        f.col("loss.awake_us").alias("awake_us"),
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
        f.when(goes_on, f.when(is_revived, revived["who"])).otherwise(head["leader"]).alias("new_leader"),
        head["leader_epoch"].alias("leader_epoch"),
        f.when(goes_on, f.col("before.last_dark.controller")).otherwise(head["controller"]).alias("controller"),
        f.when(goes_on, f.col("before.last_dark.controller_epoch"))
        .otherwise(head["controller_epoch"])
        .alias("controller_epoch"),
    )


def _may_be_hollow(first_dark: Value) -> Value:
    """Whether the leader that was lost may have been dead when it was elected, as no line of its own shows otherwise.

    Then it was missed within a session; `dark` knows it for sure of those whose last signs are in the logs.
    """
    head = f.col("before.head")
    silent = head["led_us"].isNull() & head["received_us"].isNull() & f.col("before.lit_us").isNull()
    session_us = f.coalesce(f.col("loss.session_us"), f.lit(SESSION_US))
    missed_us = f.least(f.col("loss.detected_us"), first_dark["at_us"], f.col("after.head")["begin_us"])
    return silent & f.coalesce(missed_us <= head["begin_us"] + session_us, f.lit(False))


# -- end and begin -----------------------------------------------------------------------------------------------------


def _with_end(flat: DataFrame) -> DataFrame:
    """With end_us, end_low_us, end_high_us, end_kind, and until_us: the end, or that of the logs."""
    led, elected, received = f.col("led_us"), f.col("elected_us"), f.col("received_us")
    known = f.coalesce(f.greatest(led, elected), f.greatest(elected, received), "next_us")
    since_elected = f.greatest(elected - f.col("error_us"), received - f.col("led_error_us"))
    low = f.greatest(led - f.col("led_error_us"), elected - f.col("error_us"))
    still_dark = f.col("last_dark_us") - f.col("last_dark_error_us")
    kind = (
        f.when(~f.col("goes_on"), f.when(led.isNotNull(), OBSERVED).when(since_elected.isNotNull(), INFERRED))
        .when(f.col("is_deleted"), OBSERVED)
        .when(f.col("ended_us").isNull(), OPEN)
    )
    by_next = {
        "end_us": known,
        "end_low_us": f.when(led.isNotNull(), low).otherwise(f.coalesce(since_elected, still_dark)),
        "end_high_us": f.when(led.isNotNull(), f.greatest(led + f.col("led_error_us"), known)).otherwise(
            f.when(f.col("proved_us").isNotNull(), f.greatest("proved_us", known))
        ),
    }
    by_itself = {
        "end_us": f.col("ended_us"),
        "end_low_us": f.when(f.col("is_deleted"), f.col("ended_us"))
        .when(f.col("ended_us").isNotNull(), still_dark)
        .otherwise(f.greatest(f.col("logs_end_us"), f.col("last_dark_us"))),
        "end_high_us": f.col("ended_us") + f.coalesce("ended_error_us", f.lit(0)),
    }
    return flat.withColumns(
        {name: f.when(f.col("goes_on"), by_itself[name]).otherwise(by_next[name]) for name in by_next}
        | {"end_kind": f.coalesce(kind, f.lit(BOUNDED))}
    ).withColumn("until_us", f.coalesce("end_us", f.greatest("logs_end_us", "last_dark_us")))


def _led_on(ended: DataFrame) -> DataFrame:
    """The end where the lost leader was only paused, and could be used again before any line says that it leads."""
    awake = f.when(f.col("is_forced") & ~f.col("is_deleted"), f.col("awake_us"))
    is_before = f.coalesce(awake < f.col("until_us"), f.lit(False))
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
    """With begin_us, begin_low_us, begin_high_us, begin_kind, and detected_us."""
    had_leader = f.col("is_forced") & ~f.col("is_new")
    found = ended.withColumn("detected_us", f.when(had_leader, f.coalesce("lost_us", "takeover_us")))
    lost, moved = _when_lost(), _when_moved()
    chosen = found.withColumns({name: f.when(f.col("is_forced"), lost[name]).otherwise(moved[name]) for name in lost})
    # Nothing ends before it begins, and no bound excludes the guess.
    begin = f.col("begin_us")
    return chosen.withColumns(
        {
            "begin_low_us": f.when(f.col("begin_low_us").isNotNull(), f.least("begin_low_us", begin)),
            "begin_high_us": f.greatest("begin_high_us", begin),
            "end_low_us": f.least(f.coalesce("end_low_us", "begin_low_us", begin), "until_us"),
        }
    )


def _when_lost() -> dict[str, Value]:
    """Of a leader that was lost: when it fell silent."""
    # A controller that takes over finds what was lost until it looks, not until it was elected.
    seen = f.least("lost_us", "first_us", "next_us", "until_us")
    latest = f.least("detected_us", seen)
    silent = f.col("silent_high_us") + f.greatest("sign_error_us", "seen_error_us")
    high = f.least(seen + f.col("seen_error_us"), silent)
    at_work = f.when(f.col("seen_at_work_us").isNotNull(), f.least("seen_at_work_us", high))
    alive = f.greatest(f.col("silent_low_us") - f.col("sign_error_us"), at_work)
    low = f.when(f.col("is_new"), f.col("first_us") - f.col("seen_error_us")).otherwise(alive)
    guess = f.when(f.col("silent_us").isNotNull(), f.greatest("silent_us", low)).otherwise(latest)
    return {
        "begin_us": f.least(guess, latest),
        "begin_low_us": low,
        "begin_high_us": high,
        # A partition that never had a leader has none from the line on that says so; no line says that a broker died.
        "begin_kind": f.when(f.col("is_new"), OBSERVED)
        .when(f.col("detected_us").isNotNull(), INFERRED)
        .otherwise(BOUNDED),
    }


def _when_moved() -> dict[str, Value]:
    """Of a leader that was moved: its own line of stepping down, or else since the other one was elected.

    Where it stepped down after the other one led, there was no time without a leader.
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


def _with_parts(found: DataFrame) -> DataFrame:
    """With begun_us, and the parts in milliseconds."""
    # A controller says that it begins with a loss (C4) after it took note of it and before it elects; at INFO only so.
    called = f.array_min(
        f.filter("callbacks", lambda at: (at >= f.col("lost_us")) & (at <= f.least("first_us", "next_us", "until_us")))
    )
    begun = f.when(f.col("is_forced"), f.coalesce("first_us", called))
    points = found.withColumn("begun_us", begun)
    stop = f.when(f.col("goes_on"), f.col("until_us")).otherwise(f.col("elected_us"))
    for name, at, before in (
        ("detected", f.col("detected_us"), ()),
        ("begun", f.col("begun_us"), ("detected",)),
        ("stop", stop, ("detected", "begun")),
        ("received", f.col("received_us"), ("detected", "begun", "stop")),
    ):
        floor = f.greatest("begin_us", *(f"{each}_in_us" for each in before)) if before else f.col("begin_us")
        within = f.least(f.greatest(at, floor), f.col("until_us"))
        points = points.withColumn(f"{name}_in_us", f.when(at.isNotNull(), within))
    ms = {name: _since_begin(f"{name}_in_us") for name in ("detected", "begun", "stop", "received")}
    until = _since_begin("until_us")
    is_led = f.col("led_us").isNotNull()
    sent = f.col("elected_us").isNotNull()
    return points.withColumns(
        {
            "detection_ms": ms["detected"],
            "queue_ms": ms["begun"] - ms["detected"],
            "waiting_ms": f.when(f.col("is_waiting"), ms["stop"] - ms["begun"]),
            "election_ms": f.when(~f.col("is_waiting") & ~f.col("goes_on"), ms["stop"] - ms["begun"]),
            "send_ms": f.when(sent, ms["received"] - ms["stop"]),
            "apply_ms": f.when(is_led, until - ms["received"]),
        }
    )


def _since_begin(name: str) -> Value:
    """Whole milliseconds from the outage's begin; of differences of these the sum is that of the whole."""
    return f.floor((f.col(name) - f.col("begin_us")) / 1000).cast("long")


def _as_table(found: DataFrame) -> DataFrame:
    from .outages import COLUMNS

    def span(end: str, begin: str) -> Value:
        return (f.col(end) - f.col(begin)) / 1000

    moments = {
        f"{name}_at" if name in ("last_sign", "detected", "begun", "elected", "received", "led") else name: (
            f.timestamp_micros(f"{name}_us")
        )
        for name in (
            "begin",
            "begin_low",
            "begin_high",
            "end",
            "end_low",
            "end_high",
            "last_sign",
            "detected",
            "begun",
            "elected",
            "received",
            "led",
        )
    }
    named = found.withColumns(
        moments
        | {
            "duration_ms": _since_begin("until_us"),
            "duration_min_ms": f.greatest(f.floor(span("end_low_us", "begin_high_us")), f.lit(0)).cast("long"),
            "duration_max_ms": f.ceil(span("end_high_us", "begin_low_us")).cast("long"),
            "broker": f.col("lost"),
            "attempts_failed": f.when(f.col("is_forced"), f.col("failed")).otherwise(f.lit(0)).cast("int"),
        }
    )
    return named.select([each.name for each in COLUMNS])
