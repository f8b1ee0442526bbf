"""Gaps in the logs of each broker: time without lines in which its logs would have had some.

A log covers the time from its first to its last line, without its long pauses. A pause is long if it is ten times as
long as the broker's usual one and longer than `PAUSE_MS`, or, of a broker that logs too little to have a usual one,
longer than `PAUSE_UNUSUAL_MS`. A broker that was absent had nothing to log.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.wording import Time

from .rows import known_moment

PAUSE_MS: Final = 600_000
PAUSE_UNUSUAL_MS: Final = 3_600_000
_TIMES_USUAL: Final = 10
_PAUSES_MIN: Final = 10
# A log with more lines for each pause is busy: most of its lines follow each other at once.
_LINES_PER_PAUSE: Final = 3
# The longest pauses of all logs; a year with one each hour has fewer.
_PAUSES_READ: Final = 10_000
_HOUR_US: Final = 3_600_000_000
# Logs of records, which are complete without any pause being a gap.
_COMPLETE: Final = (Kind.DUMP, Kind.KACTL)

# Begin and end, microseconds since 1970.
Interval = tuple[int, int]


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Time without lines of a broker."""

    broker: int
    begin: Time
    end: Time

    @property
    def ms(self) -> int:
        return round((self.end - self.begin).total_seconds() * 1000)


class _Log(msgspec.Struct, frozen=True):
    """A file: its period, and its lines without a row of their own, which are dated by the first of their hour."""

    file_id: int
    broker: int | None
    begin: int
    end: int
    summed: int


def gaps(tables: Mapping[str, DataFrame], within: Interval, speakers: Iterable[int]) -> tuple[Gap, ...]:
    """Returns the gaps in order of brokers and time, from the tables of files, events and absences.

    Args:
        within: the period of all logs.
        speakers: brokers with a line of their own. A log of several brokers counts for each of them.
    """
    complete = [str(kind) for kind in _COMPLETE]
    files = tables["files"].where(f.col("begin").isNotNull() & ~f.col("kind").isin(complete))
    logs = [
        _Log(row["file_id"], row["broker"], row["begin"], row["end"], row["summed"])
        for row in files.select(
            "file_id",
            "broker",
            f.unix_micros("begin").alias("begin"),
            f.unix_micros("end").alias("end"),
            (f.coalesce("other", f.lit(0)) + f.coalesce("harmless", f.lit(0))).alias("summed"),
        ).collect()
    ]
    silences = tables["events"].where(f.col("type") == EventType.SILENT)
    usual = silences.groupBy("file_id").agg(
        f.count("*").alias("pauses"), f.percentile_approx("took_ms", 0.5).alias("median_ms")
    )
    long = silences.where(f.col("took_ms") >= PAUSE_MS).orderBy(f.desc("took_ms")).limit(_PAUSES_READ)
    pauses: dict[int, list[Interval]] = {}
    for row in long.select("file_id", f.unix_micros("ts").alias("end"), "took_ms").collect():
        pauses.setdefault(row["file_id"], []).append((row["end"] - row["took_ms"] * 1000, row["end"]))
    rows = {row["file_id"]: (row["pauses"], row["median_ms"]) for row in usual.collect()}
    away = _away(tables["absences"])
    return tuple(
        Gap(broker=broker, begin=known_moment(begin), end=known_moment(end))
        for broker in sorted(speakers)
        for begin, end in _of_broker(
            [log for log in logs if log.broker in (broker, None)], pauses, rows, within, away.get(broker, [])
        )
    )


def _away(absences: DataFrame) -> dict[int, list[tuple[int | None, int | None]]]:
    """Returns when brokers were absent; null for an unknown begin, or no end."""
    times = ("last_sign_at", "shutdown_at", "detected_at", "first_sign_at", "back_at")
    chosen = absences.select("broker", *(f.unix_micros(name).alias(name) for name in times))
    away: dict[int, list[tuple[int | None, int | None]]] = {}
    for row in chosen.collect():
        begins = [row[name] for name in times[:3] if row[name] is not None]
        ends = [row[name] for name in times[3:] if row[name] is not None]
        away.setdefault(row["broker"], []).append((min(begins, default=None), min(ends, default=None)))
    return away


def _of_broker(
    logs: Sequence[_Log],
    pauses: Mapping[int, Sequence[Interval]],
    usual: Mapping[int, tuple[int, int]],
    within: Interval,
    away: Sequence[tuple[int | None, int | None]],
) -> list[Interval]:
    begin, end = within
    known = [usual[log.file_id] for log in logs if usual.get(log.file_id, (0, 0))[0] >= _PAUSES_MIN]
    least_ms = PAUSE_UNUSUAL_MS
    if known:
        least_ms = max(PAUSE_MS, _TIMES_USUAL * round(statistics.median(median for _, median in known)))
    covered = [
        interval
        for log in logs
        for interval in _covered(log, pauses.get(log.file_id, ()), usual.get(log.file_id, (0, 0))[0], least_ms)
    ]
    for since, until in away:
        # A log that does not reach the absence began after it, or was lost.
        if since is None or any(first <= since <= last + least_ms * 1000 for first, last in covered):
            covered.append((begin if since is None else since, end if until is None else until))
    found: list[Interval] = []
    reached = begin
    for first, last in [*sorted(covered), (end, end)]:
        if first - reached > least_ms * 1000:
            found.append((reached, first))
        reached = max(reached, last)
    return found


def _covered(log: _Log, pauses: Sequence[Interval], pauses_all: int, least_ms: int) -> list[Interval]:
    """Returns the parts of a log's period without its long pauses."""
    parts, begin = [], log.begin
    for since, until in sorted(pauses):
        if until - since > least_ms * 1000:
            parts.append((begin, since))
            begin = until
    # The last of many lines may be up to an hour later than the known end.
    is_busy = log.summed > _LINES_PER_PAUSE * pauses_all
    return [*parts, (begin, (log.end // _HOUR_US + 1) * _HOUR_US if is_busy else log.end)]
