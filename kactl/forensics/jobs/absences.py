"""Job `absences`: when each broker was absent, as controllers saw it and as its own log shows it.

Controllers write few lines about brokers, and `membership` processes them in time order. Brokers write many lines; only
the first and the last on either side of each absence are read.
"""

import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.columns import BOOL, ID, LONG, MS, TEXT, TIME, Column, names_of
from kactl.forensics.event_types import EventType

from . import around, membership, silence
from .around import Sessions
from .expressions import is_a
from .job import Job
from .membership import Absence, BrokerLine

COLUMNS: Final = (
    Column("broker", ID, "the broker"),
    Column(
        "detected_at", TIME, "when a controller took note that it was gone (C3, C4, fenced); null: gone from before"
    ),
    Column("back_at", TIME, "when a controller detected that it was back; null if never"),
    Column(
        "last_sign_at",
        TIME,
        "its own last significant line before `detected_at`; null without its log: it died between the two",
    ),
    Column("first_sign_at", TIME, "its own first line afterwards; null without its log"),
    Column("shutdown_at", TIME, "when its controlled shutdown was requested; null if it was not"),
    Column("planned", BOOL, "whether it left by a controlled shutdown"),
    Column(
        "how",
        TEXT,
        "failed, stopped, bounced (gone and back before it was detected), fenced, or controller (was the controller, "
        "and the next one found it absent)",
    ),
    Column("controller", ID, "the controller that detected it"),
    Column("error_us", LONG, "maximum error of the broker's own times against the controller's"),
    Column("silent_at", TIME, "when it stopped responding: best estimate; null if it bounced, or left before the logs"),
    Column("silent_low", TIME, "earliest possible time; null if unbounded"),
    Column("silent_high", TIME, "latest possible time"),
    Column(
        "silent_by",
        TEXT,
        "evidence of the estimate: fetch (followers without a response), session (its timeout), or sign (its "
        "own last line)",
    ),
    Column(
        "awake_at",
        TIME,
        "its first line after the silence, of any kind; null without one, or if it was restarted: a paused broker "
        "continues to lead from here unless another replica took over",
    ),
    Column("session_ms", MS, "the session timeout after which it was missed"),
    Column(
        "session_by",
        TEXT,
        "source of that: negotiated (with ZooKeeper), configured (its configuration dump), other-brokers (theirs), "
        "or default (of its version of Kafka: an assumption, which bounds nothing)",
    ),
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
    found = membership.absences(_said(timed))
    known = Sessions.read(timed, files)
    given = {id(each): silence.bounds(_loss(each), known.of(each)) for each in found if each.detected_at is not None}
    seen = around.read(
        timed,
        [_lost(each, given[id(each)]) for each in found if each.detected_at is not None],
        [each.broker for each in found],
    )
    return JOB.table(timed.sparkSession, [_row(each, given.get(id(each)), known, seen) for each in found])


def _row(each: Absence, given: silence.Bounds | None, known: Sessions, seen: around.Around) -> dict[str, Any]:
    own = seen.own(each.broker, _us(each.detected_at))
    # A broker that was back before it was missed continued to write, and its last line before the absence is unknown.
    is_clear = each.how != membership.BOUNCED
    row: dict[str, Any] = dict.fromkeys(names_of(COLUMNS)) | {
        "broker": each.broker,
        "detected_at": each.detected_at,
        "back_at": each.back_at,
        "last_sign_at": _time(own.last_us) if is_clear else None,
        "first_sign_at": _time(own.first_us),
        "shutdown_at": each.shutdown_at,
        "planned": each.shutdown_at is not None,
        "how": each.how,
        "controller": each.controller,
        "error_us": None if each.error_us is None or own.error_us is None else each.error_us + own.error_us,
    }
    return row | (_silent(each, given, known, seen) if given is not None and is_clear else {})


def _silent(each: Absence, given: silence.Bounds, known: Sessions, seen: around.Around) -> dict[str, Any]:
    """Columns about when the broker fell silent."""
    session = known.of(each)
    signs = seen.signs(_lost(each, given), known.starts(each.broker), given.low_us)
    found = silence.silence(_loss(each), given, signs)
    return {
        "silent_at": _time(found.at_us),
        "silent_low": _time(found.low_us),
        "silent_high": _time(found.high_us),
        "silent_by": found.by,
        "awake_at": _time(found.awake_us),
        "session_ms": session.timeout_us // 1000,
        "session_by": session.by,
    }


def _lost(each: Absence, given: silence.Bounds) -> around.Lost:
    detected_us = _us(each.detected_at)
    assert detected_us is not None
    return around.Lost(each.broker, detected_us, min(given.high_us, detected_us))


def _loss(each: Absence) -> silence.Loss:
    detected_us = _us(each.detected_at)
    assert detected_us is not None
    return silence.Loss(
        detected_us=detected_us,
        elected_us=_us(each.elected_at),
        is_predecessor=each.how == membership.CONTROLLER,
        is_listed=each.is_listed,
        is_orderly=each.how == membership.STOPPED,
    )


def _us(at: datetime.datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // datetime.timedelta(microseconds=1)


def _time(us: int | None) -> datetime.datetime | None:
    return None if us is None else _EPOCH + datetime.timedelta(microseconds=us)


def _said(timed: DataFrame) -> list[BrokerLine]:
    told = timed.where(is_a(*_TOLD_BY) & f.col("at").isNotNull())
    lists = ("brokers", "brokers_added", "brokers_removed", "brokers_bounced")
    kept = told.select(
        f.unix_micros("at").alias("us"), "file_id", "offset", "type", "controller", "broker", "at_error_us", *lists
    )
    rows = sorted(kept.collect(), key=lambda row: (row["us"], row["file_id"], row["offset"]))
    # The same line may be in two files.
    return list(dict.fromkeys(map(_line, rows)))


def _line(row: Row) -> BrokerLine:
    return BrokerLine(
        at=_EPOCH + datetime.timedelta(microseconds=row["us"]),
        type=row["type"],
        controller=row["controller"],
        broker=row["broker"],
        brokers=None if row["brokers"] is None else tuple(row["brokers"]),
        added=tuple(row["brokers_added"] or ()),
        removed=tuple(row["brokers_removed"] or ()),
        bounced=tuple(row["brokers_bounced"] or ()),
        error_us=row["at_error_us"],
    )


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


JOB: Final = Job(
    name="absences",
    description="Times at which brokers were absent.",
    needs=("timed", "files"),
    columns=COLUMNS,
    run=absences,
)
