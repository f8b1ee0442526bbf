"""Queries on the other tables: flapping, controllers, unfinished operations, violations."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

from .findings import Absence, Churn, Controllership, Deletion, Finding, Flapping, Reassignment, Requests
from .rows import micros, moment, values

ROWS_SHOWN: Final = 20
HOURS_SHOWN: Final = 12
CONTROLLERS_SHOWN: Final = 50
# Some weeks of a large unstable cluster; more lanes could not be drawn anyway.
ABSENCES_SHOWN: Final = 2000
_TOPICS: Final = 50


def flapping(table: DataFrame) -> tuple[int, tuple[Flapping, ...]]:
    """Returns the number of partitions that flapped, and the worst of them."""
    moved = f.coalesce("elections", f.lit(0)) + f.coalesce("shrinks", f.lit(0))
    worst = table.orderBy(f.desc(moved), "topic", "partition", "life").limit(ROWS_SHOWN)
    found = values(
        _counted(worst, "elections", "forced", "ping_pongs", "preferred_lost", "shrinks", "expands"), Flapping
    )
    return (table.count() if len(found) == ROWS_SHOWN else len(found)), found


def churn(table: DataFrame) -> tuple[Churn, ...]:
    """Returns the hours with the most elections."""
    worst = table.orderBy(f.desc("elections"), "hour").limit(HOURS_SHOWN)
    counts = ("elections", "planned", "forced", "partitions", "shrinks", "expands", "most_in_a_minute")
    storm = f.coalesce("storm", f.lit(False))
    return values(_counted(worst, *counts).withColumn("storm", storm), Churn)


def controllers(table: DataFrame) -> tuple[Controllership, ...]:
    """Returns terms in order of time."""
    begin = f.coalesce("elected_at", "ready_at", "started_at", "last_act_at")
    return values(table.orderBy(begin, "controller_epoch").limit(CONTROLLERS_SHOWN), Controllership)


def requests(table: DataFrame) -> tuple[Requests, ...]:
    """Returns the slowest brokers and those that did not respond first."""
    slow = f.coalesce("apply_p99_ms", f.lit(-1.0))
    worst = table.orderBy(f.desc(slow), f.desc(f.coalesce("unanswered", f.lit(0))), "controller", "broker", "request")
    return values(worst.limit(ROWS_SHOWN), Requests)


def absences(table: DataFrame) -> tuple[Absence, ...]:
    """Returns absences in order of time; the first ones if there are too many."""
    begin = f.coalesce("detected_at", "last_sign_at", "shutdown_at", "back_at")
    return values(table.orderBy(begin, "broker").limit(ABSENCES_SHOWN), Absence)


def deletions(table: DataFrame) -> tuple[int, tuple[Deletion, ...]]:
    """Returns topic deletions that did not finish."""
    stuck = table.where(~f.coalesce("finished", f.lit(False)))
    longest = _listed(stuck.orderBy(f.desc("span_ms"), "topic").limit(ROWS_SHOWN), "blocked_by")
    found = values(longest, Deletion)
    return (stuck.count() if len(found) == ROWS_SHOWN else len(found)), found


def reassignments(table: DataFrame) -> tuple[int, tuple[Reassignment, ...]]:
    """Returns reassignments that did not finish."""
    stuck = table.where(~f.coalesce("finished", f.lit(False)))
    longest = stuck.orderBy(f.desc("span_ms"), "topic", "partition", "life").limit(ROWS_SHOWN)
    found = values(_listed(longest, "target", "waiting_for"), Reassignment)
    return (stuck.count() if len(found) == ROWS_SHOWN else len(found)), found


def audit(table: DataFrame, files: DataFrame) -> tuple[Finding, ...]:
    """Returns each violated rule, with the first line that shows it."""
    names = ["topic", "partition", "broker", "expected", "found", "file_id", "offset"]
    first = f.min_by(f.struct(micros("at"), *names), f.coalesce(f.unix_micros("at"), f.lit(1 << 62)))
    broken = table.groupBy("rule").agg(f.count("*").alias("count"), first.alias("first"))
    paths = files.select("file_id", "path")
    rows = broken.select("rule", "count", "first.*").join(paths, "file_id", "left").orderBy(f.desc("count"), "rule")
    made = []
    for row in rows.limit(ROWS_SHOWN).collect():
        found = row.asDict()
        del found["file_id"]
        made.append(Finding(**found | {"at": moment(found["at"])}))
    return tuple(made)


def unclean_enabled(events: DataFrame) -> tuple[str, ...]:
    """Returns topics that allow unclean elections according to a line; "" stands for all topics, by default."""
    said = events.where(f.col("type") == EventType.UNCLEAN_ENABLED).select(
        f.coalesce("topic", f.lit("")).alias("topic")
    )
    return tuple(row["topic"] for row in said.distinct().orderBy("topic").limit(_TOPICS).collect())


def _counted(table: DataFrame, *names: str) -> DataFrame:
    """Replace null counts by 0."""
    return table.withColumns({name: f.coalesce(name, f.lit(0)) for name in names})


def _listed(table: DataFrame, *names: str) -> DataFrame:
    """Replace null lists by empty ones."""
    return table.withColumns({name: f.coalesce(name, f.array().cast("array<int>")) for name in names})
