"""What belongs together: everything that happened with less than ten minutes of quiet in between is one incident.

Outages that somebody wanted (a preferred election, a broker that was shut down in order) make no incident, nor do those
of a leader that was moved alive and no line says why. One that does not end within the logs makes all that follows part
of its own.

A day is cut into buckets as long as the quiet that parts incidents, so two outages that begin in the same bucket are of
the same incident. What comes to the driver is a row for each bucket in which something began: at the most 52,560 for a
year of logs, however many partitions there are; and rows find their incident by their bucket, with an ordinary join.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

QUIET_US: Final = 10 * 60 * 1_000_000
# Shown in full, with pictures; chosen by what they cost.
SHOWN: Final = 8
# Of the rest, so many are listed.
LISTED: Final = 200
# In so many slots the time of an incident is cut to be drawn.
SLOTS: Final = 120


class Stretch(NamedTuple):
    """An incident as far as its time goes; microseconds since 1970."""

    begin: int
    end: int
    buckets: tuple[int, ...]


def merge(found: Iterable[tuple[int, int, int]]) -> list[Stretch]:
    """Incidents in order of time, from (bucket, first begin, last end) of each bucket, in any order."""
    merged: list[Stretch] = []
    for bucket, begin, end in sorted(found):
        if merged and begin - merged[-1].end < QUIET_US:
            last = merged[-1]
            merged[-1] = Stretch(min(last.begin, begin), max(last.end, end), (*last.buckets, bucket))
        else:
            merged.append(Stretch(begin, end, (bucket,)))
    return merged


def bucket_of(time: Any) -> Any:
    """The bucket of a column of microseconds."""
    return f.floor(time / QUIET_US).cast("long")


def stretches(outages: DataFrame, points: Iterable[DataFrame]) -> list[Stretch]:
    """All incidents.

    Args:
        outages: with `bucket`, `begin_us` and `end_us`.
        points: what happened at one time each, with `bucket` and `at_us`.
    """
    both = outages.select("bucket", "begin_us", "end_us")
    for each in points:
        both = both.unionByName(each.select("bucket", f.col("at_us").alias("begin_us"), f.col("at_us").alias("end_us")))
    found = both.where("bucket is not null").groupBy("bucket").agg(f.min("begin_us"), f.max("end_us"))
    return merge((row[0], row[1], row[2]) for row in found.collect())


def numbered(spark: SparkSession, stretches: Mapping[int, Stretch]) -> DataFrame:
    """A small table of buckets and the incident each is of, with its beginning and the width of its slots."""
    rows = [
        (bucket, number, each.begin, slot_us(each)) for number, each in stretches.items() for bucket in each.buckets
    ]
    names = "bucket long, incident int, incident_begin_us long, slot_us long"
    return f.broadcast(spark.createDataFrame(rows, names))


def slot_us(stretch: Stretch) -> int:
    """How long one slot is: no less than a millisecond, which is how finely logs tell."""
    return max(1000, -(-(stretch.end - stretch.begin + 1) // SLOTS))
