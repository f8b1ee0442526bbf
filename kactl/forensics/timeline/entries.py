"""All entries of one partition: its lines, and beginnings and ends of what the jobs found, on one clock."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kactl.forensics.event_types import EventType
from kactl.forensics.report.model import Time
from kactl.forensics.report.rows import micros, moment
from kactl.forensics.report.wording import duration

from .describe import describe, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A partition at TRACE over months; what one person can look through ends far below.
LIMIT: Final = 1000
# Of the jobs' tables: a partition that broke more often shows its first ones.
_FOUND_MAX: Final = 1000
# Lines that name partitions in their text, and have none in their columns.
_NAMING: Final = (
    EventType.ELECTION_ASKED,
    EventType.PARTITIONS_CHANGED,
    EventType.PARTITIONS_CREATED,
    EventType.REPLICAS_OFFLINE,
    EventType.TOPICS_CHANGED,
    EventType.UNPARSED,
)
_DELETIONS: Final = (
    EventType.DELETION_ASKED,
    EventType.DELETION_HANDLED,
    EventType.DELETION_STARTED,
    EventType.DELETION_DONE,
    EventType.DELETION_HALTED,
    EventType.DELETION_DEAD,
    EventType.TOPIC_CREATED,
    EventType.TOPIC_REMOVED,
)
_WHERE: Final = ("file_id", "offset", "level", "speaker", "role", "format", "type")


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was known at one time.

    Attributes:
        at: on the reference's clock.
        error_ms: by how much it may be wrong, either way; null if nothing bounds it.
        what: line, outage, loss, unclean, absence or audit.
        mark: how well it is known: of an outage's ends observed, inferred, bounded or open; else certain or uncertain.
        who: who wrote the line; "kactl" for what was concluded.
        also: others who wrote the same afterwards.
        path, offset: where the line stands.
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
    """Entries in order of time; `more` if there are lines behind the last of them."""

    topic: str
    partition: int
    entries: tuple[Entry, ...]
    more: bool


def timeline(
    tables: "Mapping[str, DataFrame]",
    topic: str,
    partition: int,
    *,
    begin: Time | None = None,
    end: Time | None = None,
    limit: int = LIMIT,
) -> Timeline:
    """All that is known of a partition, between two times if they are given; at the most `limit` lines of logs."""
    rows = _lines(tables["timed"], topic, partition, begin, end, limit + 1)
    more = len(rows) > limit
    rows = rows[:limit]
    paths = _paths(tables["files"], {row["file_id"] for row in rows})
    entries = [*_merged(rows, paths), *_found(tables, topic, partition)]
    last = max((each["at_us"] for each in rows), default=None) if more else None
    until = [each for each in (end, moment(last)) if each is not None]
    kept = [
        each for each in entries if (begin is None or each.at >= begin) and all(each.at <= limit_ for limit_ in until)
    ]
    # Lines of one millisecond stay as their files have them.
    kept.sort(key=lambda each: (each.at, each.what != "line", "" if each.what == "line" else each.said))
    return Timeline(topic=topic, partition=partition, entries=tuple(kept), more=more)


# -- lines -------------------------------------------------------------------------------------------------------------


def _lines(
    timed: "DataFrame", topic: str, partition: int, begin: Time | None, end: Time | None, limit: int
) -> list[dict[str, Any]]:
    """The lines that tell of it, the first `limit` of them."""
    from pyspark.sql import functions as f

    named = rf"(?<![A-Za-z0-9._-]){re.escape(topic)}-{partition}(?![0-9])"
    about = (f.col("topic") == topic) & (f.col("partition") == partition)
    named_in_text = (
        f.col("type").isin([str(each) for each in _NAMING]) & f.col("topic").isNull() & f.col("text").rlike(named)
    )
    topics = f.transform(f.split("topic", ","), f.trim)
    deleted = (
        f.col("type").isin([str(each) for each in _DELETIONS])
        & f.col("partition").isNull()
        & f.array_contains(topics, topic)
    )
    ids = timed.where((f.col("topic") == topic) & f.col("topic_id").isNotNull()).select("topic_id").distinct().collect()
    by_id = f.col("topic_id").isin([row["topic_id"] for row in ids]) & (f.col("partition") == partition)
    wanted = about | named_in_text | deleted
    if ids:
        wanted = wanted | (f.col("topic").isNull() & by_id)
    found = timed.where(wanted & f.col("at").isNotNull())
    if begin is not None:
        found = found.where(f.col("at") >= f.lit(begin))
    if end is not None:
        found = found.where(f.col("at") <= f.lit(end))
    columns = [f.col(name) for name in found.columns if name not in ("ts", "ts_logged", "at", "day", "kind")]
    ordered = (
        found.select(f.unix_micros("at").alias("at_us"), *columns).orderBy("at_us", "file_id", "offset").limit(limit)
    )
    return [row.asDict(recursive=True) for row in ordered.collect()]


def _merged(rows: Iterable[dict[str, Any]], paths: Mapping[int, str]) -> Iterator[Entry]:
    """A line for an entry; only what every broker is told alike is told once."""
    told: dict[str, Entry] = {}
    others: dict[str, list[str]] = {}
    for row in rows:
        entry = _line(row, paths)
        if row["type"] != EventType.METADATA_PARTITION:
            yield entry
        elif entry.said in told:
            others.setdefault(entry.said, []).append(entry.who)
        else:
            told[entry.said] = entry
    for text, entry in told.items():
        yield msgspec.structs.replace(entry, also=tuple(dict.fromkeys(others.get(text, ()))))


def _line(row: dict[str, Any], paths: Mapping[int, str]) -> Entry:
    at = moment(row["at_us"])
    assert at is not None
    return Entry(
        at=at,
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


def _paths(files: "DataFrame", ids: set[int]) -> dict[int, str]:
    from pyspark.sql import functions as f

    if not ids:
        return {}
    return {
        row["file_id"]: row["path"]
        for row in files.where(f.col("file_id").isin(sorted(ids))).select("file_id", "path").collect()
    }


# -- what the jobs found -----------------------------------------------------------------------------------------------


def _found(tables: "Mapping[str, DataFrame]", topic: str, partition: int) -> Iterator[Entry]:
    from pyspark.sql import functions as f

    def of(name: str, *times: str) -> list[dict[str, Any]]:
        table = tables[name].where((f.col("topic") == topic) & (f.col("partition") == partition))
        rest = [each for each in table.columns if each not in times and each != "isr_down"]
        chosen = table.select(*rest, *map(micros, times)).orderBy(*times).limit(_FOUND_MAX)
        return [row.asDict(recursive=True) | {name: moment(row[name]) for name in times} for row in chosen.collect()]

    for row in of("outages", "begin", "begin_low", "begin_high", "end", "end_low", "end_high"):
        yield from _outage(row)
    for row in of("losses", "at", "replica_at"):
        yield from _loss(row)
    for row in of("unclean", "at", "out_at"):
        yield from _unclean(row)
    for row in of("audit", "at"):
        if row["at"] is not None:
            found = f"must not be ({row['rule']}): expected {row['expected']}, found {row['found']}"
            yield _conclusion(row, row["at"], "audit", "", found)
    yield from _absences(tables, topic, partition)


def _outage(row: dict[str, Any]) -> Iterator[Entry]:
    planned = ", as somebody wanted" if row["planned"] else ""
    lost = "" if row["broker"] is None else f", broker {row['broker']} led before"
    if row["begin"] is not None:
        text = f"no leader from here on: {row['cause']}{planned}{lost}"
        yield _conclusion(row, row["begin"], "outage", row["begin_kind"], text, row["begin_low"], row["begin_high"])
    if row["end"] is not None:
        leader = "a leader" if row["new_leader"] is None else f"leader {row['new_leader']}"
        unclean = ", elected uncleanly" if row["unclean"] else ""
        text = f"{leader} can be used again{unclean}, after {duration(row['duration_ms'])}"
        yield _conclusion(row, row["end"], "outage", row["end_kind"], text, row["end_low"], row["end_high"])


def _loss(row: dict[str, Any]) -> Iterator[Entry]:
    at = row["at"] or row["replica_at"]
    if at is None:
        return
    had = f"broker {row['replica']} had more than leader {row['leader']} of epoch {row['leader_epoch']}"
    committed = row["committed_records"]
    of = f", of them at least {committed:,} committed" if committed else ""
    tail = "an unknown number of records" if row["tail_records"] is None else f"{row['tail_records']:,} records"
    ends = "" if row["replica_log_end"] is None else f" (log ends {row['replica_log_end']} and {row['log_end']})"
    text = f"{had}{ends}: {tail} cut off{of}"
    yield _conclusion(row, at, "loss", "certain" if row["certain"] else "uncertain", text)


def _unclean(row: dict[str, Any]) -> Iterator[Entry]:
    if row["at"] is None:
        return
    isr = ",".join(map(str, row["prev_isr"] or ())) or "?"
    out = "" if row["out_ms"] is None else f", out of sync for {duration(row['out_ms'])}"
    text = f"unclean election: {row['leader']} leads, last in sync were {isr}{out}"
    yield _conclusion(row, row["at"], "unclean", "certain" if row["certain"] else "uncertain", text)


def _absences(tables: "Mapping[str, DataFrame]", topic: str, partition: int) -> Iterator[Entry]:
    """Of the brokers that were ever assigned, or led."""
    from pyspark.sql import functions as f

    led = tables["leadership"].where((f.col("topic") == topic) & (f.col("partition") == partition))
    none = f.array().cast("array<int>")
    ids = led.select(f.explode(f.concat(f.array("leader"), f.coalesce("replicas", none))).alias("broker")).distinct()
    names = ("detected_at", "back_at", "last_sign_at")
    rows = (
        tables["absences"]
        .join(f.broadcast(ids), "broker", "left_semi")
        .select("broker", "how", "planned", *map(micros, names))
        .limit(_FOUND_MAX)
        .collect()
    )
    for row in rows:
        times = {name: moment(row[name]) for name in names}
        gone = times["detected_at"] or times["last_sign_at"]
        how = f" ({row['how']})" if row["how"] else ""
        if gone is not None:
            yield _absence(gone, f"broker {row['broker']} is seen to be gone{how}")
        if times["back_at"] is not None:
            yield _absence(times["back_at"], f"broker {row['broker']} is back")


def _absence(at: Time, text: str) -> Entry:
    return Entry(at=at, what="absence", who="kactl", said=text)


def _conclusion(
    row: dict[str, Any],
    at: Time,
    what: str,
    mark: str,
    text: str,
    low: Time | None = None,
    high: Time | None = None,
) -> Entry:
    error = None
    if low is not None and high is not None:
        error = max(at - low, high - at).total_seconds() * 1000
    return Entry(at=at, error_ms=error, life=row["life"] or 0, what=what, mark=mark, who="kactl", said=text)
