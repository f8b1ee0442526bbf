"""Lookup of a name in the logs: a partition, a topic, or neither, and the nearest names that exist."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.jobs.losses.sums import by_partition, sums
from kactl.forensics.jobs.outages.totals import totals
from kactl.forensics.report.rows import values
from kactl.forensics.wording import Time
from kactl.model.errors import NotFound

_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")
_NEAREST: Final = 3
# Longer lists are not readable; `kactl forensics sql` returns all partitions.
PARTITIONS_MAX: Final = 5000


class Incarnation(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of one incarnation of a topic: its last leader, and its outages and losses.

    Attributes:
        life: number of the incarnation, from 0: a topic may be deleted and created again.
    """

    topic: str
    partition: int
    life: int
    leader: int | None
    leader_epoch: int | None
    elections: int
    outages: int
    unavailable_ms: int
    committed_lost: int
    cut_off: int
    first_at: Time | None
    last_at: Time | None


class NoSuchName(NotFound):
    """No line contains a partition or topic of this name."""

    def __init__(self, name: str, nearest: list[str]) -> None:
        super().__init__("partition or topic", name)
        hint = f"nearest: {', '.join(nearest)}" if nearest else "the logs contain no topic"
        self.args = (f"these logs contain no partition or topic {name!r}: {hint}",)


def split(name: str) -> tuple[str, int] | None:
    """Returns the topic and partition of a name such as `orders-3`, or None if it cannot be a partition.

    The name is split at the last dash, because topics may contain dashes.
    """
    match = _NAME.fullmatch(name)
    return None if match is None else (match["topic"], int(match["partition"]))


def find(tables: Mapping[str, DataFrame], name: str) -> tuple[str, int | None]:
    """Returns the topic and partition of a name; the partition is None if the name is that of a topic.

    Raises:
        NoSuchName: it is neither.
    """
    parts = split(name)
    topics = [name] if parts is None else [name, parts[0]]
    number = None if parts is None else parts[1]
    led = tables["leadership"].where(f.col("topic").isin(topics))
    rows = led.select("topic", f.col("partition").eqNullSafe(f.lit(number)).alias("is_same")).distinct().collect()
    known = {(row["topic"], row["is_same"]) for row in rows}
    if parts is not None and (parts[0], True) in known:
        return parts
    if any(topic == name for topic, _ in known):
        return name, None
    if parts is not None and _has_line(tables["timed"], *parts):
        return parts
    raise NoSuchName(name, nearest(tables, name, topics[-1]))


def _has_line(timed: DataFrame, topic: str, partition: int) -> bool:
    """Returns whether any line is about a partition, even if none has its leader."""
    return bool(timed.where((f.col("topic") == topic) & (f.col("partition") == partition)).limit(1).count())


def nearest(tables: Mapping[str, DataFrame], name: str, topic: str) -> list[str]:
    """Returns the range of partitions of `topic` if it exists, or else the topics with the nearest names to `name`."""
    own = tables["leadership"].where(f.col("topic") == topic).agg(f.min("partition"), f.max("partition")).collect()
    if own and own[0][0] is not None:
        return [span(topic, *own[0])]
    topics = tables["leadership"].select("topic").distinct()
    near = topics.orderBy(f.levenshtein("topic", f.lit(topic)), "topic").limit(_NEAREST)
    return [row["topic"] for row in near.collect()]


def span(topic: str, first: int, last: int) -> str:
    """Returns the names of a range of partitions."""
    return f"{topic}-{first}" if first == last else f"{topic}-{first} to {topic}-{last}"


def incarnations(tables: Mapping[str, DataFrame], topic: str) -> list[Incarnation]:
    """Returns the partitions of a topic by number, at most `PARTITIONS_MAX`."""
    keys = ["partition", "life"]
    of_topic = f.col("topic") == topic
    led = tables["leadership"].where(of_topic)
    led = led.groupBy(*keys).agg(
        f.max_by(f.struct("leader", "leader_epoch"), "begin").alias("last"),
        f.sum(f.coalesce((f.col("leader") != f.col("prev_leader")).cast("long"), f.lit(0))).alias("elections"),
        f.min("begin").alias("first_at"),
        f.max("begin").alias("last_at"),
    )
    outages = totals(tables["outages"].where(of_topic & ~f.coalesce("planned", f.lit(False))), *keys)
    losses = sums(by_partition(tables["losses"].where(of_topic)), *keys).select(
        *keys, f.col("committed_records").alias("committed_lost"), f.col("tail_records").alias("cut_off")
    )
    led = led.select("*", "last.*").drop("last")
    joined = led.join(outages.select(*keys, "outages", "unavailable_ms"), keys, "left").join(losses, keys, "left")
    rows = joined.fillna(0, ["outages", "unavailable_ms", "committed_lost", "cut_off"]).orderBy(*keys)
    return list(values(rows.limit(PARTITIONS_MAX).withColumn("topic", f.lit(topic)), Incarnation))
