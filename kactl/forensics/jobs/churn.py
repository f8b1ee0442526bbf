"""Job `churn`: elections and ISR changes by hour; `flapping` has the same by partition."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import BOOL, KEY, LONG, TIME, Column, names_of

from .job import Job
from .moves import elections, isr_course

COLUMNS: Final = (
    Column("hour", TIME, "the hour's beginning"),
    Column("elections", LONG, "leaders that took over from another one, or from none", title="leaders"),
    Column("planned", LONG, "of them, those that were requested", title="wanted"),
    Column("forced", LONG, "of them, those after a failure", title="after a failure"),
    Column("partitions", LONG, "partitions with an election"),
    Column("shrinks", LONG, "ISR changes that removed a replica", title="ISRs shrank"),
    Column("expands", LONG, "ISR changes that added a replica", title="grew"),
    Column("most_in_a_minute", LONG, "elections in its worst minute", title="in its worst minute"),
    Column("storm", BOOL, "whether that minute had many times the usual number; see `churn.STORM_FACTOR`"),
)
# A minute is a storm if it has at least this many elections, and this many times the median of all minutes with any. A
# broker restart in a small cluster stays below the floor; hourly rebalancing of leaders stays below the factor.
STORM_FLOOR: Final = 50
STORM_FACTOR: Final = 10
# With fewer minutes than these the median means nothing, and the floor alone decides: logs of one incident have no
# other minutes.
USUAL_MINUTES: Final = 10


def churn(leadership: DataFrame, states: DataFrame, timed: DataFrame) -> DataFrame:
    """Return the hours with any election or ISR change.

    Elections are rows of `leadership`, one for each epoch; ISR changes are those of `moves.isr_course`.
    """
    moved = _moves(leadership, states, timed)
    sums = ("elections", "planned", "forced", "shrinks", "expands")
    minutes = moved.groupBy(f.date_trunc("minute", "at").alias("minute")).agg(
        *(f.sum(name).alias(name) for name in sums)
    )
    hours = minutes.groupBy(f.date_trunc("hour", "minute").alias("hour")).agg(
        *(f.sum(name).alias(name) for name in sums), f.max("elections").alias("most_in_a_minute")
    )
    concerned = (
        moved.where("elections > 0")
        .select(f.date_trunc("hour", "at").alias("hour"), *KEY)
        .distinct()
        .groupBy("hour")
        .agg(f.count("*").alias("partitions"))
    )
    many = f.col("most_in_a_minute") >= f.lit(STORM_FLOOR)
    unusual = f.col("most_in_a_minute") >= _usual(minutes) * STORM_FACTOR
    return (
        hours.join(concerned, "hour", "left")
        .withColumns({"partitions": f.coalesce("partitions", f.lit(0)), "storm": many & unusual})
        .select(*names_of(COLUMNS))
    )


def _moves(leadership: DataFrame, states: DataFrame, timed: DataFrame) -> DataFrame:
    """One row for each election and each ISR change: the key, `at`, and 1 in the columns that count it."""
    nothing = f.lit(0).cast("long")
    elected = elections(leadership).select(
        *KEY,
        f.col("begin").alias("at"),
        f.lit(1).cast("long").alias("elections"),
        f.coalesce(f.col("planned").cast("long"), nothing).alias("planned"),
        f.coalesce((~f.col("planned")).cast("long"), nothing).alias("forced"),
        nothing.alias("shrinks"),
        nothing.alias("expands"),
    )
    changed = isr_course(states, timed).select(
        *KEY,
        "at",
        nothing.alias("elections"),
        nothing.alias("planned"),
        nothing.alias("forced"),
        (f.size("lost") > 0).cast("long").alias("shrinks"),
        (f.size("won") > 0).cast("long").alias("expands"),
    )
    return elected.unionByName(changed.where("shrinks + expands > 0"))


def _usual(minutes: DataFrame) -> Value:
    """Median number of elections in a minute with any, over all logs; 0 if there are too few minutes."""
    busy = minutes.where("elections > 0")
    median = f.when(f.count("*") >= USUAL_MINUTES, f.median("elections")).otherwise(f.lit(0.0))
    return busy.agg(median.alias("usual")).scalar()


JOB: Final = Job(
    name="churn",
    description="Elections and ISR changes of each hour.",
    needs=("leadership", "states", "timed"),
    columns=COLUMNS,
    run=churn,
)
