"""Timeline of one partition: its log lines, and the begins and ends that the jobs determined, on one clock."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import DELETIONS, EventType
from kactl.forensics.jobs.expressions import is_a
from kactl.forensics.report.rows import known_moment, moment
from kactl.forensics.wording import Time, duration

from .describe import describe, writer

# Default number of lines. A partition at TRACE has far more over months than can be read.
LIMIT: Final = 1000
# Number of rows of each job's table; those of later times are left out.
_ROWS_MAX: Final = 1000
# Lines that name partitions in their text only, not in their columns.
_NAMING: Final = (
    EventType.ELECTION_ASKED,
    EventType.PARTITIONS_CHANGED,
    EventType.PARTITIONS_CREATED,
    EventType.REPLICAS_OFFLINE,
    EventType.TOPICS_CHANGED,
    EventType.UNPARSED,
)
# Lines about a whole topic, which may list several topics.
_TOPIC_TYPES: Final = (*DELETIONS, EventType.TOPIC_CREATED)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact about a partition at one time.

    Attributes:
        at: on the clock of the reference.
        error_ms: maximum error of `at` in either direction; null if unbounded.
        what: line, outage, loss, unclean, absence or audit.
        mark: certainty: observed, inferred, bounded or open for the ends of an outage; certain or uncertain for others.
        who: writer of the line; "kactl" for results of jobs.
        said: description.
        also: other writers of the same line, later.
        path, offset: position of the line.
    """

    at: Time
    error_ms: float | None = None
    life: int = 0
    what: str
    mark: str = ""
    who: str
    said: str
    also: tuple[str, ...] = ()
    level: str | None = None
    format: str | None = None
    path: str | None = None
    offset: int | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in order of time; `more` is true if there are lines after the last of them."""

    topic: str
    partition: int
    entries: tuple[Entry, ...]
    more: bool


def timeline(
    tables: Mapping[str, DataFrame],
    topic: str,
    partition: int,
    *,
    begin: Time | None = None,
    end: Time | None = None,
    limit: int = LIMIT,
) -> Timeline:
    """Returns everything known of a partition, between `begin` and `end` if given, with at most `limit` log lines."""
    rows = _lines(tables["timed"], topic, partition, begin, end, limit + 1)
    more = len(rows) > limit
    rows = rows[:limit]
    paths = _paths(tables["files"], {row["file_id"] for row in rows})
    last = moment(rows[-1]["at_us"]) if more else None
    ends = [time for time in (end, last) if time is not None]
    entries = [
        entry
        for entry in (*_line_entries(rows, paths), *_job_entries(tables, topic, partition))
        if (begin is None or entry.at >= begin) and all(entry.at <= time for time in ends)
    ]
    # Lines of one millisecond keep the order of their files.
    entries.sort(key=lambda entry: (entry.at, entry.what != "line", "" if entry.what == "line" else entry.said))
    return Timeline(topic=topic, partition=partition, entries=tuple(entries), more=more)


# -- lines -------------------------------------------------------------------------------------------------------------


def _lines(
    timed: DataFrame, topic: str, partition: int, begin: Time | None, end: Time | None, limit: int
) -> list[dict[str, Any]]:
    """Returns the first `limit` lines about the partition, in order of time."""
    name = rf"(?<![A-Za-z0-9._-]){re.escape(topic)}-{partition}(?![0-9])"
    by_name = (f.col("topic") == topic) & (f.col("partition") == partition)
    in_text = is_a(*_NAMING) & f.col("topic").isNull() & f.col("text").rlike(name)
    names = f.transform(f.split("topic", ","), f.trim)
    of_topic = is_a(*_TOPIC_TYPES) & f.col("partition").isNull() & f.array_contains(names, topic)
    lines = timed.where((by_name | in_text | of_topic) & f.col("at").isNotNull())
    if begin is not None:
        lines = lines.where(f.col("at") >= f.lit(begin))
    if end is not None:
        lines = lines.where(f.col("at") <= f.lit(end))
    columns = [name for name in lines.columns if name not in ("ts", "ts_logged", "at", "day", "kind")]
    ordered = lines.select(f.unix_micros("at").alias("at_us"), *columns).orderBy("at_us", "file_id", "offset")
    return [row.asDict(recursive=True) for row in ordered.limit(limit).collect()]


def _line_entries(rows: Iterable[dict[str, Any]], paths: Mapping[int, str]) -> Iterator[Entry]:
    """Returns an entry per line. Equal metadata that all brokers receive is one entry."""
    metadata: dict[str, list[Entry]] = {}
    for row in rows:
        entry = _line_entry(row, paths)
        if row["type"] == EventType.METADATA_PARTITION:
            metadata.setdefault(entry.said, []).append(entry)
        else:
            yield entry
    for first, *others in metadata.values():
        yield msgspec.structs.replace(first, also=tuple(dict.fromkeys(entry.who for entry in others)))


def _line_entry(row: dict[str, Any], paths: Mapping[int, str]) -> Entry:
    return Entry(
        at=known_moment(row["at_us"]),
        error_ms=None if row["at_error_us"] is None else row["at_error_us"] / 1000,
        life=row["life"] or 0,
        what="line",
        who=writer(row),
        said=describe(row),
        level=row["level"],
        format=row["format"],
        path=paths.get(row["file_id"]),
        offset=row["offset"],
    )


def _paths(files: DataFrame, ids: set[int]) -> dict[int, str]:
    if not ids:
        return {}
    rows = files.where(f.col("file_id").isin(sorted(ids))).select("file_id", "path").collect()
    return {row["file_id"]: row["path"] for row in rows}


# -- results of jobs ---------------------------------------------------------------------------------------------------


def _job_entries(tables: Mapping[str, DataFrame], topic: str, partition: int) -> Iterator[Entry]:
    def rows(name: str, *times: str) -> list[dict[str, Any]]:
        table = tables[name].where((f.col("topic") == topic) & (f.col("partition") == partition))
        rows: list[dict[str, Any]] = table.drop("isr_down").orderBy(*times).limit(_ROWS_MAX).toArrow().to_pylist()
        return rows

    for row in rows("outages", "begin", "begin_low", "begin_high", "end", "end_low", "end_high"):
        yield from _outage(row)
    for row in rows("losses", "at", "replica_at"):
        yield from _loss(row)
    for row in rows("unclean", "at", "out_at"):
        yield from _unclean(row)
    for row in rows("audit", "at"):
        text = f"violation of {row['rule']}: expected {row['expected']}, found {row['found']}"
        yield from _result(row, row["at"], "audit", "", text)
    yield from _absences(tables, topic, partition)


def _outage(row: dict[str, Any]) -> Iterator[Entry]:
    planned = ", on request" if row["planned"] else ""
    lost = "" if row["broker"] is None else f", broker {row['broker']} led before"
    text = f"no leader from here on: {row['cause']}{planned}{lost}"
    bounds = (row["begin_low"], row["begin_high"])
    yield from _result(row, row["begin"], "outage", row["begin_kind"], text, bounds)
    leader = "a leader" if row["new_leader"] is None else f"leader {row['new_leader']}"
    unclean = ", elected uncleanly" if row["unclean"] else ""
    text = f"{leader} is available again{unclean}, after {duration(row['duration_ms'])}"
    yield from _result(row, row["end"], "outage", row["end_kind"], text, (row["end_low"], row["end_high"]))


def _loss(row: dict[str, Any]) -> Iterator[Entry]:
    committed = row["committed_records"]
    at_least = f", of them at least {committed:,} committed" if committed else ""
    records = "an unknown number of records" if row["tail_records"] is None else f"{row['tail_records']:,} records"
    ends = "" if row["replica_log_end"] is None else f" (log ends {row['replica_log_end']} and {row['log_end']})"
    text = (
        f"broker {row['replica']} had more than leader {row['leader']} of epoch {row['leader_epoch']}{ends}: "
        f"{records} truncated{at_least}"
    )
    yield from _result(row, row["at"] or row["replica_at"], "loss", _certainty(row), text)


def _unclean(row: dict[str, Any]) -> Iterator[Entry]:
    isr = ",".join(map(str, row["prev_isr"] or ())) or "?"
    out = "" if row["out_ms"] is None else f", out of sync for {duration(row['out_ms'])}"
    text = f"unclean election: {row['leader']} leads, last in sync were {isr}{out}"
    yield from _result(row, row["at"], "unclean", _certainty(row), text)


def _certainty(row: dict[str, Any]) -> str:
    return "certain" if row["certain"] else "uncertain"


def _result(
    row: dict[str, Any],
    time: Time | None,
    what: str,
    mark: str,
    text: str,
    bounds: tuple[Time | None, Time | None] = (None, None),
) -> Iterator[Entry]:
    """Returns an entry, or none if the time is unknown."""
    if time is None:
        return
    low, high = bounds
    error = None if low is None or high is None else max(time - low, high - time).total_seconds() * 1000
    yield Entry(at=time, error_ms=error, life=row["life"] or 0, what=what, mark=mark, who="kactl", said=text)


def _absences(tables: Mapping[str, DataFrame], topic: str, partition: int) -> Iterator[Entry]:
    """Returns the absences of all brokers that led the partition or had a replica of it."""
    led = tables["leadership"].where((f.col("topic") == topic) & (f.col("partition") == partition))
    replicas = f.coalesce("replicas", f.array().cast("array<int>"))
    brokers = led.select(f.explode(f.concat(f.array("leader"), replicas)).alias("broker")).distinct()
    absences = tables["absences"].join(f.broadcast(brokers), "broker", "left_semi")
    times = ("detected_at", "back_at", "last_sign_at")
    for row in absences.select("broker", "how", *times).limit(_ROWS_MAX).toArrow().to_pylist():
        detected, back, last_sign = (row[time] for time in times)
        how = f" ({row['how']})" if row["how"] else ""
        for time, text in ((detected or last_sign, f"is detected as absent{how}"), (back, "is back")):
            if time is not None:
                yield Entry(at=time, what="absence", who="kactl", said=f"broker {row['broker']} {text}")
