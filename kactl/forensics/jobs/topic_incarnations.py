"""Topics that share a name: a topic that was deleted and created again starts at leader epoch 0.

A life of a topic begins when the first of its partitions is created again (P1 from NonExistentPartition; KRaft: a new
topic id). Lines of a topic from before its first creation in the logs form a life of their own. A partition that is
added to a topic is created once and begins no life.
"""

from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import columns
from kactl.forensics.event_types import EventType
from kactl.forensics.tables import all_kept_if_small

from .expressions import ABSENT, NEW, all_known, is_a, rows_of
from .job import Job
from .skew import on_one_clock

COLUMNS: Final = columns(
    """
    topic    text  the topic's name; only names that were used more than once
    life     id    0 for the first topic of this name in the logs, 1 for the second, ...
    born_at  time  when it was created, on the reference's clock; null if before the logs
    """
)
# A line this much older than the creation is about another topic; no clock with links is that wrong.
_OLDER_US: Final = 10_000_000
# Two creations within this time are the same line in two files.
_TOGETHER_US: Final = 1_000


def topic_incarnations(events: DataFrame) -> DataFrame:
    """Return all lives of names that had several.

    Args:
        events: the events as `skew.on_one_clock` returns them.
    """
    created, earliest = all_kept_if_small(events.sparkSession, [partial(_created, events), partial(_earliest, events)])
    first = created.where("number = 1").select("topic", f.col("born_us").alias("first_us"))
    older = _older(earliest, first)
    counted = (
        created.join(older, "topic", "left")
        .withColumn("shift", f.coalesce(f.col("is_older").cast("int"), f.lit(0)))
        .withColumn("life", f.col("number") - 1 + f.col("shift"))
    )
    again = counted.where("life > 0").select("topic").distinct()
    from_before = older.where("is_older").selectExpr("topic", "0 life", "cast(null as bigint) born_us")
    incarnations = counted.select("topic", "life", "born_us").unionByName(from_before).join(again, "topic", "left_semi")
    return incarnations.select("topic", f.col("life").cast("int"), f.timestamp_micros("born_us").alias("born_at"))


def _created(events: DataFrame) -> DataFrame:
    """topic, number (from 1), born_us of each creation of a topic in the logs."""
    births = _births(events)
    in_order = rows_of("topic", "partition", "topic_id").in_order("at_us")
    # Not the same line in two files. KRaft's controllers log a creation for each partition, and again whenever they
    # replay their log.
    is_another = (f.col("at_us") - f.col("before_us") > _TOGETHER_US) & f.col("topic_id").isNull()
    return (
        births.withColumn("before_us", in_order.previous("at_us"))
        .where(f.col("before_us").isNull() | is_another)
        .withColumn("number", rows_of("topic", "partition").in_order("at_us").number())
        .groupBy("topic", "number")
        .agg(f.min("at_us").alias("born_us"))
    )


def _births(events: DataFrame) -> DataFrame:
    """topic, partition, topic_id, at_us of creations. In KRaft a topic is created as a whole: partition -1, once for
    each id.
    """
    new = is_a(EventType.PARTITION) & (f.col("from_state") == ABSENT) & (f.col("to_state") == NEW)
    in_kraft = is_a(EventType.PARTITION_CREATED) & f.col("topic_id").isNotNull()
    creations = events.where((new | in_kraft) & all_known("topic", "at"))
    return creations.select(
        "topic",
        f.when(in_kraft, f.lit(-1)).otherwise(f.col("partition")).alias("partition"),
        f.when(in_kraft, f.col("topic_id")).alias("topic_id"),
        f.unix_micros("at").alias("at_us"),
    )


def _earliest(events: DataFrame) -> DataFrame:
    """topic, earliest_us: the latest time that the first line of each topic can have."""
    named = all_known("topic", "partition") & f.col("clock_known")
    lines = events.where(named & ~is_a(EventType.REASSIGNMENT_STARTED))
    at_us = f.unix_micros("at") + f.coalesce("at_error_us", f.lit(0))
    return lines.groupBy("topic").agg(f.min(at_us).alias("earliest_us"))


def _older(earliest: DataFrame, first: DataFrame) -> DataFrame:
    """topic, is_older: whether the logs contain lines of a topic from before its first creation in them."""
    return earliest.join(first, "topic").select(
        "topic", (f.col("earliest_us") < f.col("first_us") - _OLDER_US).alias("is_older")
    )


def run(events: DataFrame, skew: DataFrame) -> DataFrame:
    """Compute the lives from unadjusted events."""
    return topic_incarnations(on_one_clock(events, skew))


JOB: Final = Job("lives", "Topics whose name was used more than once, and when each was created.", COLUMNS, run)
