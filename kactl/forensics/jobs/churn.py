"""How much leaders and ISRs moved, by the hour; `flapping.py` has the same by partition."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.events import Column

from .job import BOOL, LONG, TIME, Job
from .moves import KEY, elections, isr_course

COLUMNS: Final = (
    Column("hour", TIME, "the hour's beginning"),
    Column("elections", LONG, "leaders that took over from another one, or from nobody"),
    Column("planned", LONG, "of them, those that somebody wanted"),
    Column("forced", LONG, "of them, those after a failure"),
    Column("partitions", LONG, "partitions that they concerned"),
    Column("shrinks", LONG, "ISRs that lost somebody"),
    Column("expands", LONG, "ISRs that won somebody"),
    Column("most_in_a_minute", LONG, "elections in its worst minute"),
    Column("storm", BOOL, "whether that minute had many times what is usual in these logs; see `churn.STORM_FACTOR`"),
)
# A minute is a storm if it has at least so many elections, and so many times the median of all minutes with any. A
# broker of a small cluster that restarts stays below the one; hourly rebalancing of leaders below the other.
STORM_FLOOR: Final = 50
STORM_FACTOR: Final = 10
# With fewer minutes than these nothing is usual, and the floor alone decides: logs of one bad night have no other.
USUAL_MINUTES: Final = 10


def churn(leadership: DataFrame, states: DataFrame, timed: DataFrame) -> DataFrame:
    """The hours in which anything moved.

    Elections are leaderships, of which there is one for each epoch; changes of ISRs are those of `moves.isr_course`.
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
        .select(*(each.name for each in COLUMNS))
    )


def _moves(leadership: DataFrame, states: DataFrame, timed: DataFrame) -> DataFrame:
    """One row for each election and each change of an ISR: the key, `at`, and 1 in the columns it counts in."""
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
    """Elections in a minute that has any, as a median over all of the logs; 0 if that tells nothing."""
    busy = minutes.where("elections > 0")
    median = f.when(f.count("*") >= USUAL_MINUTES, f.median("elections")).otherwise(f.lit(0.0))
    return busy.agg(median.alias("usual")).scalar()


JOB: Final = Job(
    name="churn",
    description="How much leaders and ISRs moved in each hour.",
    needs=("leadership", "states", "timed"),
    columns=COLUMNS,
    run=churn,
)
