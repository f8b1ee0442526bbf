"""When which broker was away, as the controller saw it and as its own log shows it.

What controllers say of brokers is little, and is gone through in order of time by `membership`. The brokers' own lines
are many, and are asked only for the first and the last on either side of each absence.
"""

import datetime
from typing import TYPE_CHECKING, Any, Final

from kactl.pipeline.event_types import EventType
from kactl.pipeline.events import Column

from . import membership
from .job import BOOL, INT, LONG, TEXT, TIME, Job
from .lines import is_a
from .membership import Absence, Said

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

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
# Of lines that say nothing only the first of many has a time, and a broker that is starting writes some before anybody
# has noticed that it had stopped.
_NO_SIGN: Final = (EventType.OTHER, EventType.UNPARSED, EventType.BROKEN, EventType.CLOCK_BACK)


def absences(timed: "DataFrame") -> "DataFrame":
    """One row for each absence. It asks at once: for what controllers say of brokers."""
    from pyspark.sql import functions as f

    listed = JOB.table(timed.sparkSession, _numbered(membership.absences(_said(timed))), _NUMBER)
    listed = listed.drop("last_sign_at", "first_sign_at")
    signs = _signs(timed, listed)
    key = ["broker", "number"]
    last = signs.selectExpr("broker", "number + 1 number", "last last_sign_at", "error_us last_error_us")
    first = signs.selectExpr("broker", "number", "first first_sign_at", "error_us first_error_us")
    joined = listed.join(last, key, "left").join(first, key, "left")
    # A broker that was back before it was missed wrote on, and which of its lines was the last before nobody knows.
    is_clear = f.col("detected_at").isNotNull() & (f.col("how") != membership.BOUNCED)
    own_error = f.coalesce("last_error_us", "first_error_us")
    return joined.withColumns(
        {
            "last_sign_at": f.when(is_clear, f.col("last_sign_at")),
            "error_us": f.col("error_us") + own_error,
        }
    ).select(*(each.name for each in COLUMNS))


def _numbered(found: list[Absence]) -> list[dict[str, Any]]:
    """Absences as rows, each with how many of its broker were detected up to it: its lines are counted into the times
    between."""
    before: dict[int, int] = {}
    rows = []
    for each in found:
        before[each.broker] = before.get(each.broker, 0) + (each.detected_at is not None)
        held = {name: getattr(each, name) for name in each.__struct_fields__}
        told = {"planned": each.shutdown_at is not None, "last_sign_at": None, "first_sign_at": None}
        rows.append(held | told | {_NUMBER.name: before[each.broker]})
    return rows


_NUMBER: Final = Column("number", INT, "how many absences of the broker were detected up to this one")


def _said(timed: "DataFrame") -> list[Said]:
    from pyspark.sql import functions as f

    told = timed.where(is_a(*_TOLD_BY) & f.col("at").isNotNull())
    lists = ("brokers", "brokers_added", "brokers_removed", "brokers_bounced")
    kept = told.select(
        f.unix_micros("at").alias("us"), "file_id", "offset", "type", "controller", "broker", "at_error_us", *lists
    )
    rows = sorted(kept.collect(), key=lambda row: (row["us"], row["file_id"], row["offset"]))
    # The same line in two files is one.
    return list(dict.fromkeys(map(_line, rows)))


def _line(row: "Row") -> Said:
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


def _signs(timed: "DataFrame", listed: "DataFrame") -> "DataFrame":
    """For each broker that was ever away: its first and last line of each time between two detections."""
    from pyspark.sql import functions as f

    detected = listed.groupBy(f.col("broker").alias("speaker")).agg(f.collect_list("detected_at").alias("detected"))
    lines = timed.where(~is_a(*_NO_SIGN) & f.col("at").isNotNull() & f.col("speaker").isNotNull())
    number = f.size(f.filter("detected", lambda each: each <= f.col("at")))
    return (
        lines.select("speaker", "at", "at_error_us")
        .join(f.broadcast(detected), "speaker")
        .groupBy(f.col("speaker").alias("broker"), number.alias("number"))
        .agg(f.min("at").alias("first"), f.max("at").alias("last"), f.max("at_error_us").alias("error_us"))
    )


JOB: Final = Job(
    name="absences",
    says="When which broker was away.",
    needs=("timed",),
    columns=COLUMNS,
    run=absences,
)
