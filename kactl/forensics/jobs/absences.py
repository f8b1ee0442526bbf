"""Job `absences`: when each broker was absent, as controllers saw it and as its own log shows it.

Controllers write few lines about brokers, and `membership` processes them in time order. Brokers write many lines; only
the first and the last on either side of each absence are read.
"""

from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.columns import columns, names_of
from kactl.forensics.event_types import EventType

from . import around, membership, silence
from .around import Sessions
from .expressions import is_a
from .job import Job
from .membership import Absence, BrokerLine

COLUMNS: Final = columns(
    """
    broker         id    the broker
    detected_at    time  when a controller took note that it was gone (C3, C4, fenced); null: gone from before
    back_at        time  when a controller detected that it was back; null if never
    last_sign_at   time  its own last significant line before `detected_at`; null without its log: it died between the
                         two
    first_sign_at  time  its own first line afterwards; null without its log
    shutdown_at    time  when its controlled shutdown was requested; null if it was not
    planned        bool  whether it left by a controlled shutdown
    how            text  failed, stopped, bounced (gone and back before it was detected), fenced, or controller (was the
                         controller, and the next one found it absent)
    controller     id    the controller that detected it
    error_us       long  maximum error of the broker's own times against the controller's
    silent_at      time  when it stopped responding: best estimate; null if it bounced, or left before the logs
    silent_low     time  earliest possible time; null if unbounded
    silent_high    time  latest possible time
    silent_by      text  evidence of the estimate: fetch (followers without a response), session (its timeout), or sign
                         (its own last line)
    awake_at       time  its first line after the silence, of any kind; null without one, or if it was restarted: a
                         paused broker continues to lead from here unless another replica took over
    session_ms     ms    the session timeout after which it was missed
    session_by     text  source of that: negotiated (with ZooKeeper), configured (its configuration dump), other-brokers
                         (theirs), or default (of its version of Kafka: an assumption, which bounds nothing)
    """
)
_TOLD_BY: Final = (
    EventType.CONTROLLER_ELECTED,
    EventType.BROKERS_CHANGED,
    EventType.BROKER_FAILED,
    EventType.BROKER_STARTED,
    EventType.BROKER_STOPPING,
    EventType.BROKER_STOPPED_COUNTING,
    EventType.BROKER_FENCED,
    EventType.BROKER_UNFENCED,
)


def absences(timed: DataFrame, files: DataFrame | None = None) -> DataFrame:
    """Compute all absences. Reads at once: controllers' lines about brokers, and brokers' lines about sessions.

    Args:
        files: versions of Kafka, which determine the default session timeouts.

    Returns:
        One row for each absence.
    """
    absences_seen = membership.absences(_said(timed))
    known = Sessions.read(timed, files)
    detected = [absence for absence in absences_seen if absence.detected_us is not None]
    bounds = {id(absence): silence.bounds(_loss(absence), known.of(absence)) for absence in detected}
    losses = [_lost(absence, bounds[id(absence)]) for absence in detected]
    evidence = around.read(timed, losses, [absence.broker for absence in absences_seen])
    return JOB.table(
        timed.sparkSession, [_row(absence, bounds.get(id(absence)), known, evidence) for absence in absences_seen]
    )


def _row(absence: Absence, bounds: silence.Bounds | None, known: Sessions, evidence: around.Around) -> dict[str, Any]:
    own = evidence.own(absence.broker, absence.detected_us)
    # A broker that was back before it was missed continued to write, and its last line before the absence is unknown.
    is_clear = absence.how != membership.BOUNCED
    # Times are microseconds, as Arrow stores them.
    row: dict[str, Any] = dict.fromkeys(names_of(COLUMNS)) | {
        "broker": absence.broker,
        "detected_at": absence.detected_us,
        "back_at": absence.back_us,
        "last_sign_at": own.last_us if is_clear else None,
        "first_sign_at": own.first_us,
        "shutdown_at": absence.shutdown_us,
        "planned": absence.shutdown_us is not None,
        "how": absence.how,
        "controller": absence.controller,
        "error_us": None if absence.error_us is None or own.error_us is None else absence.error_us + own.error_us,
    }
    return row | (_silent(absence, bounds, known, evidence) if bounds is not None and is_clear else {})


def _silent(absence: Absence, bounds: silence.Bounds, known: Sessions, evidence: around.Around) -> dict[str, Any]:
    """Columns about when the broker fell silent."""
    session = known.of(absence)
    signs = evidence.signs(_lost(absence, bounds), known.starts(absence.broker), bounds.low_us)
    result = silence.silence(_loss(absence), bounds, signs)
    return {
        "silent_at": result.at_us,
        "silent_low": result.low_us,
        "silent_high": result.high_us,
        "silent_by": result.by,
        "awake_at": result.awake_us,
        "session_ms": session.timeout_us // 1000,
        "session_by": session.by,
    }


def _lost(absence: Absence, bounds: silence.Bounds) -> around.Lost:
    assert absence.detected_us is not None
    return around.Lost(absence.broker, absence.detected_us, min(bounds.high_us, absence.detected_us))


def _loss(absence: Absence) -> silence.Loss:
    assert absence.detected_us is not None
    return silence.Loss(
        detected_us=absence.detected_us,
        elected_us=absence.elected_us,
        is_predecessor=absence.how == membership.CONTROLLER,
        is_listed=absence.is_listed,
        is_orderly=absence.how == membership.STOPPED,
    )


def _said(timed: DataFrame) -> list[BrokerLine]:
    lines = timed.where(is_a(*_TOLD_BY) & f.col("at").isNotNull())
    lists = ("brokers", "brokers_added", "brokers_removed", "brokers_bounced")
    columns = lines.select(
        f.unix_micros("at").alias("us"), "file_id", "offset", "type", "controller", "broker", "at_error_us", *lists
    )
    rows = sorted(columns.collect(), key=lambda row: (row["us"], row["file_id"], row["offset"]))
    # The same line may be in two files.
    return list(dict.fromkeys(map(_line, rows)))


def _line(row: Row) -> BrokerLine:
    return BrokerLine(
        at_us=row["us"],
        type=row["type"],
        controller=row["controller"],
        broker=row["broker"],
        brokers=None if row["brokers"] is None else tuple(row["brokers"]),
        added=tuple(row["brokers_added"] or ()),
        removed=tuple(row["brokers_removed"] or ()),
        bounced=tuple(row["brokers_bounced"] or ()),
        error_us=row["at_error_us"],
    )


JOB: Final = Job("absences", "Times at which brokers were absent.", COLUMNS, absences)
