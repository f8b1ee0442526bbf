"""The events, on one clock and told apart where a topic's name was used again.

Nearly every job reads them, most of them several times, and each time only a few kinds of lines: so they are written
down once more, as large as they are.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.events import COLUMNS as OF_EVENTS
from kactl.forensics.events import Column

from .clocks import UNKNOWN
from .job import DATE, INT, LONG, TEXT, TIME, Job
from .lines import is_a
from .skew import NAMELESS, clock

# What comes on top of the columns of events.
COLUMNS: Final = (
    Column("at", TIME, "`ts` on the reference's clock"),
    Column("at_error_us", LONG, "by how much `at` may be wrong, either way; null if nothing bounds it"),
    Column("life", INT, "0 for the first topic of this name in the logs, 1 for the second, ...; null without a topic"),
)
# Behind the columns of events where these were opened: what their folders are called by.
FOLDERS: Final = (
    Column("kind", TEXT, "which kind of file it stands in"),
    Column("day", DATE, "of `ts`, in UTC"),
)
# A line by a clock that is not known well may seem to be this much older than the birth that it followed.
SLACK_US: Final = 1_000_000
SLACK_US_MAX: Final = 10_000_000


def timed(events: DataFrame, skew: DataFrame, lives: DataFrame | None = None) -> DataFrame:
    """All events, with `COLUMNS` behind theirs.

    Args:
        lives: see `lives.COLUMNS`; found out if it is not given, by another pass over the events.
    """
    at_once = _with_names(on_one_clock(events, skew).drop("clock_known"), events)
    if lives is None:
        from .lives import lives as find

        lives = find(on_one_clock(events, skew))
    births = (
        lives.where("born_at is not null and life > 0")
        .groupBy("topic")
        .agg(f.collect_list(f.unix_micros("born_at")).alias("births"))
    )
    # Few topics are made twice, and most events have none: events stay where they are.
    joined = at_once.join(f.broadcast(births), "topic", "left")
    at_us = f.unix_micros("at") + _slack_us()
    over = f.filter("births", lambda born: born <= at_us)
    life = f.when(f.col("topic").isNotNull(), f.when(f.col("births").isNull(), f.lit(0)).otherwise(f.size(over)))
    return joined.withColumn("life", life).select(*events.columns, *(each.name for each in COLUMNS))


def on_one_clock(events: DataFrame, skew: DataFrame) -> DataFrame:
    """All events with `at`, `at_error_us` and `clock_known`: whether anything links the writer's clock to others."""
    apart = f.greatest(f.col("high_us") - f.col("offset_us"), f.col("offset_us") - f.col("low_us"))
    error = f.when(f.col("high_us").isNotNull() & f.col("low_us").isNotNull(), apart)
    clocks = skew.select(
        f.coalesce("broker", f.lit(NAMELESS)).alias("clock"),
        "offset_us",
        error.alias("at_error_us"),
        (f.col("how") != UNKNOWN).alias("clock_known"),
    )
    joined = events.withColumn("clock", clock()).join(f.broadcast(clocks), "clock", "left")
    at = f.timestamp_micros(f.unix_micros("ts") - f.coalesce("offset_us", f.lit(0)))
    known = f.coalesce("clock_known", f.lit(False))
    return joined.withColumn("at", at).select(*events.columns, "at", "at_error_us", known.alias("clock_known"))


def _with_names(lines: DataFrame, events: DataFrame) -> DataFrame:
    """Lines with the topic's name where they have its id only, if any line has both (K5, K6, K18, B4)."""
    both = events.where(f.col("topic").isNotNull() & f.col("topic_id").isNotNull())
    names = both.groupBy("topic_id").agg(f.min("topic").alias("name"))
    # Topics are few, and most events have no id: events stay where they are.
    joined = lines.join(f.broadcast(names), "topic_id", "left")
    return joined.withColumn("topic", f.coalesce("topic", "name")).select(*lines.columns)


def _slack_us() -> Value:
    """A broker's line about a new partition may seem to be older than its birth, by what its clock may be wrong."""
    is_new = (f.col("role") == Role.BROKER) & (f.col("leader_epoch") == 0) & _is_of_a_birth()
    error = f.least(f.coalesce("at_error_us", f.lit(SLACK_US)), f.lit(SLACK_US_MAX))
    return f.when(is_new, error).otherwise(f.lit(0))


def _is_of_a_birth() -> Value:
    return is_a(EventType.LEADS, EventType.FOLLOWS, EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION)


JOB: Final = Job(
    name="timed",
    says="The events, on one clock.",
    needs=("events", "skew", "lives"),
    columns=(*OF_EVENTS, *FOLDERS, *COLUMNS),
    run=timed,
)
