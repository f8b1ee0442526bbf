"""When which broker was away, as the controller saw it and as its own log shows it.

What controllers say of brokers is little, and is gone through in order of time by `membership`. The brokers' own lines
are many, and are asked only for the first and the last on either side of each absence.
"""

import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType
from kactl.forensics.events import Column

from . import around, membership, silence
from .job import BOOL, INT, LONG, TEXT, TIME, Job
from .lines import is_a
from .membership import Absence, Said
from .sessions import Sessions

COLUMNS: Final = (
    Column("broker", INT, "which broker"),
    Column(
        "detected_at", TIME, "when a controller took note that it was gone (C3, C4, fenced); null: gone from before"
    ),
    Column("back_at", TIME, "when a controller took note that it was back; null if it never was"),
    Column(
        "last_sign_at",
        TIME,
        "its own last line of those that say something, before `detected_at`; null without its log: it died between "
        "the two",
    ),
    Column("first_sign_at", TIME, "its own first line of the time after; null without its log"),
    Column("shutdown_at", TIME, "when its controlled shutdown was asked for; null if it was not"),
    Column("planned", BOOL, "whether it went by a controlled shutdown"),
    Column(
        "how",
        TEXT,
        "failed, stopped, bounced (gone and back before it was noticed), fenced, or controller (it was the controller, "
        "and the next one found it gone)",
    ),
    Column("controller", INT, "the controller that took note"),
    Column("error_us", LONG, "by how much the broker's own times may be wrong against the controller's"),
    Column("silent_at", TIME, "when it stopped answering: the best guess; null if it bounced, or was gone from before"),
    Column("silent_low", TIME, "it was not before this; null if nothing bounds it"),
    Column("silent_high", TIME, "it was not after this"),
    Column(
        "silent_by",
        TEXT,
        "what the best guess follows from: fetch (followers that got no answer), session (its timeout), or sign (its "
        "own last line)",
    ),
    Column(
        "awake_at",
        TIME,
        "its first line after the silence, of any kind; null without one, or if it was started anew: what was paused "
        "leads on from here what nobody else could lead",
    ),
    Column("session_ms", LONG, "the session timeout by which it was missed"),
    Column(
        "session_by",
        TEXT,
        "where that is from: negotiated (with ZooKeeper), configured (its configuration dump), other-brokers (theirs), "
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
    """One row for each absence. It asks at once: for what controllers say of brokers, and brokers of their sessions.

    Args:
        files: for the versions of Kafka, by which session timeouts are assumed that no log has.
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
    # A broker that was back before it was missed wrote on, and which of its lines was the last before nobody knows.
    is_clear = each.how != membership.BOUNCED
    row: dict[str, Any] = dict.fromkeys(column.name for column in COLUMNS) | {
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
    """The columns that tell when it fell silent."""
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


def _said(timed: DataFrame) -> list[Said]:
    told = timed.where(is_a(*_TOLD_BY) & f.col("at").isNotNull())
    lists = ("brokers", "brokers_added", "brokers_removed", "brokers_bounced")
    kept = told.select(
        f.unix_micros("at").alias("us"), "file_id", "offset", "type", "controller", "broker", "at_error_us", *lists
    )
    rows = sorted(kept.collect(), key=lambda row: (row["us"], row["file_id"], row["offset"]))
    # The same line in two files is one.
    return list(dict.fromkeys(map(_line, rows)))


def _line(row: Row) -> Said:
    return Said(
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
    says="When which broker was away.",
    needs=("timed", "files"),
    columns=COLUMNS,
    run=absences,
)
