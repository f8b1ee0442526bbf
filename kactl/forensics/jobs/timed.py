"""Job `timed`: the events on one clock, with topics of the same name told apart.

Nearly every job reads these events, most of them several times and each time only a few types of lines. They are
therefore stored once more, in full.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import columns, names_of
from kactl.forensics.event_types import EventType, Role
from kactl.forensics.events import COLUMNS as OF_EVENTS

from .expressions import all_known, is_a
from .job import Job
from .skew import on_one_clock
from .topic_incarnations import topic_incarnations

# Columns that `timed` adds to those of events.
COLUMNS: Final = columns(
    """
    at           time  `ts` on the reference's clock
    at_error_us  long  maximum error of `at` in either direction; null if unbounded
    life         id    0 for the first topic of this name in the logs, 1 for the second, ...; null without a topic
    """
)
# Columns that follow those of events when these are opened: the names of the folders.
FOLDERS: Final = columns(
    """
    kind  text  kind of the file that contains it
    day   date  of `ts`, in UTC
    """
)
# A line of a clock that is not well known may seem this much older than the creation that it follows.
SLACK_US: Final = 1_000_000
SLACK_US_MAX: Final = 10_000_000


def timed(events: DataFrame, skew: DataFrame, lives: DataFrame | None = None) -> DataFrame:
    """Return all events with `COLUMNS` appended.

    Args:
        lives: see `topic_incarnations.COLUMNS`; computed by another pass over the events if it is None.
    """
    at_once = with_topic_names(on_one_clock(events, skew).drop("clock_known"), events)
    if lives is None:
        lives = topic_incarnations(on_one_clock(events, skew))
    births = (
        lives.where("born_at is not null and life > 0")
        .groupBy("topic")
        .agg(f.collect_list(f.unix_micros("born_at")).alias("births"))
    )
    # Few topics are created twice, and most events have none: events are not shuffled.
    joined = at_once.join(f.broadcast(births), "topic", "left")
    at_us = f.unix_micros("at") + _slack_us()
    over = f.filter("births", lambda born: born <= at_us)
    life = f.when(f.col("topic").isNotNull(), f.when(f.col("births").isNull(), f.lit(0)).otherwise(f.size(over)))
    return joined.withColumn("life", life).select(*events.columns, *names_of(COLUMNS))


def with_topic_names(lines: DataFrame, events: DataFrame) -> DataFrame:
    """Add the topic's name to lines that only have its id, if any line of `events` has both (K5, K6, K18, B4).

    No later job looks up a name by its id: a line of `timed` without a name has an id that no line names.
    """
    both = events.where(all_known("topic", "topic_id"))
    names = both.groupBy("topic_id").agg(f.min("topic").alias("name"))
    # Topics are few, and most events have no id: events are not shuffled.
    joined = lines.join(f.broadcast(names), "topic_id", "left")
    return joined.withColumn("topic", f.coalesce("topic", "name")).select(*lines.columns)


def _slack_us() -> Value:
    """The clock error by which a broker's line about a new partition may seem older than the partition."""
    begins = is_a(EventType.LEADS, EventType.FOLLOWS, EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION)
    is_new = (f.col("role") == Role.BROKER) & (f.col("leader_epoch") == 0) & begins
    error = f.least(f.coalesce("at_error_us", f.lit(SLACK_US)), f.lit(SLACK_US_MAX))
    return f.when(is_new, error).otherwise(f.lit(0))


JOB: Final = Job("timed", "The events, on one clock.", (*OF_EVENTS, *FOLDERS, *COLUMNS), timed)
