"""Other findings: flapping, controllers, unfinished operations, and violated rules; queries and report sections."""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType
from kactl.forensics.jobs import audit as audit_job
from kactl.forensics.jobs import churn as churn_job
from kactl.forensics.jobs import controllers as controllers_job
from kactl.forensics.jobs import deletions as deletions_job
from kactl.forensics.jobs import flapping as flapping_job
from kactl.forensics.jobs import reassignments as reassignments_job
from kactl.forensics.jobs import requests as requests_job
from kactl.forensics.wording import Moments, count, duration, known_name

from .facts import Facts
from .findings import Absence, Churn, Controllership, Deletion, Finding, Flapping, Reassignment, Requests
from .rows import values
from .section import PARTITION, Section, field_table, fields

ROWS_SHOWN: Final = 20
HOURS_SHOWN: Final = 12
CONTROLLERS_SHOWN: Final = 50
# Some weeks of a large unstable cluster; more lanes could not be drawn anyway.
ABSENCES_SHOWN: Final = 2000
_TOPICS: Final = 50
# Columns of job `flapping` and of job `churn` that are counts; a missing one is shown as 0.
_MOVES: Final = ("elections", "forced", "ping_pongs", "preferred_lost", "shrinks", "expands")
_MOVES_BY_HOUR: Final = ("elections", "planned", "forced", "partitions", "shrinks", "expands", "most_in_a_minute")
_Row = TypeVar("_Row", bound=msgspec.Struct)


def other_sections(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Returns the sections that are not empty."""
    yield from _flapping_section(facts, moments)
    yield from _controllers_section(facts, moments)
    yield from _unfinished_section(facts, moments)
    yield from _audit_section(facts, moments)


# -- flapping ----------------------------------------------------------------------------------------------------------


def flapping(table: DataFrame) -> tuple[int, tuple[Flapping, ...]]:
    """Returns the number of partitions that flapped, and the worst of them."""
    moved = f.coalesce("elections", f.lit(0)) + f.coalesce("shrinks", f.lit(0))
    return _first(table.fillna(0, list(_MOVES)).orderBy(f.desc(moved), "topic", "partition", "life"), Flapping)


def churn(table: DataFrame) -> tuple[Churn, ...]:
    """Returns the hours with the most elections."""
    worst = table.orderBy(f.desc("elections"), "hour").limit(HOURS_SHOWN)
    return values(worst.fillna(0, list(_MOVES_BY_HOUR)).fillna(False, ["storm"]), Churn)


def _flapping_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    hours = [hour for hour in facts.churn if hour.elections or hour.shrinks]
    storms = sum(hour.storm for hour in facts.churn)
    if not facts.flapping and not hours:
        return
    paragraphs = []
    if facts.flapping_all:
        shown = len(facts.flapping)
        more = f"; the {shown} that moved most are shown" if facts.flapping_all > shown else ""
        paragraphs.append(f"{count(facts.flapping_all, 'partition')} moved more than once{more}.")
    if storms:
        paragraphs.append(f"In {count(storms, 'hour')} leaders moved many times as often as is usual in these logs.")
    partitions = field_table(
        (
            PARTITION,
            *fields(flapping_job.COLUMNS, moments, *_MOVES),
            ("left the ISR most", _worst_follower),
            *fields(flapping_job.COLUMNS, moments, "lone_ms", "under_replicated_ms"),
        ),
        facts.flapping,
        "Partitions that moved most",
    )
    busiest = field_table(
        (
            ("hour", lambda hour: moments.seconds(hour.hour)),
            *fields(churn_job.COLUMNS, moments, *_MOVES_BY_HOUR),
            ("", lambda hour: "storm" if hour.storm else ""),
        ),
        hours,
        "Hours in which most moved",
    )
    yield Section(
        name="moving",
        title="What moved again and again",
        paragraphs=tuple(paragraphs),
        tables=(*partitions, *busiest),
    )


def _worst_follower(partition: Flapping) -> str | None:
    if partition.worst_follower is None:
        return None
    return f"{partition.worst_follower} ({partition.worst_follower_falls or 0})"


# -- controllers and brokers -------------------------------------------------------------------------------------------


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


def _controllers_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.controllers and not facts.requests:
        return
    taken_over = ("controller", "controller_epoch", "elected_at", "failover_ms", "gap_ms")
    terms = field_table(
        (
            *fields(controllers_job.COLUMNS, moments, *taken_over),
            ("acted on for", lambda term: duration(term.overlap_ms or None)),
            *fields(controllers_job.COLUMNS, moments, "refused", "partitions_moved"),
            ("until", lambda term: moments.full(term.resigned_at or term.last_act_at)),
        ),
        facts.controllers,
        "Controllers, in order of time",
    )
    counts = ("broker", "controller", "request", "sent", "received", "applied", "unanswered", "ignored")
    times = ("apply_p50_ms", "apply_p99_ms", "apply_max_ms", "wait_p99_ms")
    slowest = field_table(
        fields(requests_job.COLUMNS, moments, *counts, *times),
        facts.requests,
        "Requests to brokers, the slowest first",
    )
    yield Section(name="controllers", title="Controllers and their requests", tables=(*terms, *slowest))


# -- unfinished operations ---------------------------------------------------------------------------------------------


def deletions(table: DataFrame) -> tuple[int, tuple[Deletion, ...]]:
    """Returns topic deletions that did not finish."""
    return _first(_unfinished(table, "blocked_by").orderBy(f.desc("span_ms"), "topic"), Deletion)


def reassignments(table: DataFrame) -> tuple[int, tuple[Reassignment, ...]]:
    """Returns reassignments that did not finish."""
    unfinished = _unfinished(table, "target", "waiting_for")
    return _first(unfinished.orderBy(f.desc("span_ms"), "topic", "partition", "life"), Reassignment)


def _unfinished(table: DataFrame, *lists: str) -> DataFrame:
    """Returns operations that did not finish, with empty lists instead of nulls."""
    empty: Value = f.array().cast("array<int>")
    unfinished = table.where(~f.coalesce("finished", f.lit(False)))
    return unfinished.withColumns({name: f.coalesce(name, empty) for name in lists})


def _first(rows: DataFrame, kind: type[_Row]) -> tuple[int, tuple[_Row, ...]]:
    """Returns the number of rows, and the first of them."""
    first = values(rows.limit(ROWS_SHOWN), kind)
    return (rows.count() if len(first) == ROWS_SHOWN else len(first)), first


def _unfinished_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.deletions and not facts.reassignments:
        return
    names = ("topic", "asked_at", "span_ms", "restarts", "halts", "reason", "blocked_by")
    deletions = field_table(
        fields(deletions_job.COLUMNS, moments, *names),
        facts.deletions,
        f"Topics that were to be deleted and were not: {facts.deletions_all:,}",
    )
    moves = field_table(
        (PARTITION, *fields(reassignments_job.COLUMNS, moments, "started_at", "span_ms", "target", "waiting_for")),
        facts.reassignments,
        f"Partitions that were to be moved and were not: {facts.reassignments_all:,}",
    )
    yield Section(name="stuck", title="What did not come to its end", tables=(*deletions, *moves))


# -- rules and settings ------------------------------------------------------------------------------------------------


def audit(table: DataFrame, files: DataFrame) -> tuple[Finding, ...]:
    """Returns each violated rule, with the first line that shows it."""
    names = ["topic", "partition", "broker", "expected", "found", "file_id", "offset"]
    first = f.min_by(f.struct("at", *names), f.coalesce(f.unix_micros("at"), f.lit(1 << 62)))
    broken = table.groupBy("rule").agg(f.count("*").alias("count"), first.alias("first")).select("*", "first.*")
    rows = broken.join(files.select("file_id", "path"), "file_id", "left").orderBy(f.desc("count"), "rule")
    return values(rows.limit(ROWS_SHOWN), Finding)


def unclean_enabled(events: DataFrame) -> tuple[str, ...]:
    """Returns topics that allow unclean elections according to a line; "" stands for all topics, by default."""
    lines = events.where(f.col("type") == EventType.UNCLEAN_ENABLED)
    topics = lines.select(f.coalesce("topic", f.lit("")).alias("topic")).distinct()
    return tuple(row["topic"] for row in topics.orderBy("topic").limit(_TOPICS).collect())


def _audit_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.audit:
        return
    yield Section(
        name="audit",
        title="What must never be",
        paragraphs=("Rules that lines of these logs break, each with the first line that shows it.",),
        tables=field_table(
            (
                ("rule", lambda finding: finding.rule),
                ("lines", lambda finding: finding.count),
                *fields(audit_job.COLUMNS, moments, "at"),
                ("subject", lambda finding: finding.topic and known_name(finding.topic, finding.partition, 0)),
                *fields(audit_job.COLUMNS, moments, "broker", "expected", "found"),
                ("file", lambda finding: finding.path),
                *fields(audit_job.COLUMNS, moments, "offset"),
            ),
            facts.audit,
        ),
    )
