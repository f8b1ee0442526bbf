"""Incidents: groups of failures without ten minutes of quiet in between.

Planned outages (a preferred election, a controlled shutdown) do not form an incident, nor do those of a live leader
that was moved without a line that gives the reason. An incident that does not end within the logs includes everything
after it.

A day is divided into buckets as long as the quiet that separates incidents, so two outages that begin in the same
bucket belong to the same incident. The driver receives a row for each bucket in which something began: at most 52,560
for a year of logs, however many partitions there are. Rows find their incident by their bucket, with an ordinary join.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics.tables import of_tuples

QUIET_US: Final = 10 * 60 * 1_000_000
# Number of incidents shown in full, with pictures: those with the greatest loss.
SHOWN: Final = 8
# Number of further incidents in the list.
LISTED: Final = 200
# Number of slots in the picture of an incident.
SLOTS: Final = 120


class Interval(NamedTuple):
    """Interval of an incident; microseconds since 1970."""

    begin: int
    end: int
    buckets: tuple[int, ...]


def merge(buckets: Iterable[tuple[int, int, int]]) -> list[Interval]:
    """Returns incidents in order of time, from (bucket, first begin, last end) of each bucket, in any order."""
    merged: list[Interval] = []
    for bucket, begin, end in sorted(buckets):
        if merged and begin - merged[-1].end < QUIET_US:
            last = merged[-1]
            merged[-1] = Interval(min(last.begin, begin), max(last.end, end), (*last.buckets, bucket))
        else:
            merged.append(Interval(begin, end, (bucket,)))
    return merged


def bucket_of(time: Value) -> Value:
    """Returns the bucket of a column of microseconds."""
    return f.floor(time / QUIET_US).cast("long")


def intervals(outages: DataFrame, points: Iterable[DataFrame]) -> list[Interval]:
    """Returns all incidents.

    Args:
        outages: with `bucket`, `begin_us` and `end_us`.
        points: findings of one point in time each, with `bucket` and `at_us`.
    """
    events = outages.select("bucket", "begin_us", "end_us")
    for table in points:
        events = events.unionByName(table.selectExpr("bucket", "at_us AS begin_us", "at_us AS end_us"))
    buckets = events.where("bucket is not null").groupBy("bucket").agg(f.min("begin_us"), f.max("end_us"))
    return merge((row[0], row[1], row[2]) for row in buckets.collect())


def numbered(spark: SparkSession, intervals: Mapping[int, Interval]) -> DataFrame:
    """Returns a small table of buckets with the incident of each, its beginning and the width of its slots."""
    rows = [
        (bucket, number, interval.begin, slot_us(interval))
        for number, interval in intervals.items()
        for bucket in interval.buckets
    ]
    types = {"bucket": pa.int64(), "incident": pa.int32(), "incident_begin_us": pa.int64(), "slot_us": pa.int64()}
    return f.broadcast(of_tuples(spark, pa.schema(types), rows))


def slot_us(interval: Interval) -> int:
    """Returns the length of one slot, at least a millisecond, which is the resolution of logs."""
    return max(1000, -(-(interval.end - interval.begin + 1) // SLOTS))
