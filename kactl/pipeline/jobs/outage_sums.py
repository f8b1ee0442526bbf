"""Sums over outages: by topic and by broker, percentiles, and what an objective has left.

All are functions of the table of outages, or of some of its rows: one incident's, one topic's. Outages of planned moves
are told apart; `forced` are all others, also those of which nobody knows whether they were planned.
"""

from typing import TYPE_CHECKING, Final

from kactl.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import Column as Value
    from pyspark.sql import DataFrame

PARTS: Final = ("detection", "queue", "waiting", "election", "send", "apply")
MEASURES: Final = ("duration", *PARTS)
_MINUTE_MS: Final = 60_000


def totals(outages: "DataFrame", *by: str) -> "DataFrame":
    """One row for each value of `by`; one row in all if there is none, also of no outages.

    Returns:
        outages, forced, partitions, open, unclean: how many. unavailable_ms, forced_ms: the sum over partitions;
        least_ms, most_ms: no less and no more than that, the latter null if an outage has no upper bound.
        partition_minutes: `unavailable_ms` in minutes. longest_ms; first_at, last_at: the first and last begin.
    """
    from pyspark.sql import functions as f

    forced = _is_forced()
    has_bounds = f.count("duration_max_ms") == f.count("*")
    return outages.groupBy(*by).agg(
        f.count("*").alias("outages"),
        f.count(f.when(forced, 1)).alias("forced"),
        f.countDistinct("topic", "partition", "life").alias("partitions"),
        f.count(f.when(f.col("end_kind") == "open", 1)).alias("open"),
        f.count(f.when(f.col("unclean"), 1)).alias("unclean"),
        _sum("duration_ms").alias("unavailable_ms"),
        f.coalesce(f.sum(f.when(forced, f.col("duration_ms"))), f.lit(0)).alias("forced_ms"),
        _sum("duration_min_ms").alias("least_ms"),
        f.when(has_bounds, _sum("duration_max_ms")).alias("most_ms"),
        (_sum("duration_ms") / _MINUTE_MS).alias("partition_minutes"),
        f.max("duration_ms").alias("longest_ms"),
        f.min("begin").alias("first_at"),
        f.max("begin").alias("last_at"),
    )


def by_topic(outages: "DataFrame") -> "DataFrame":
    """`totals` of each topic."""
    return totals(outages, "topic")


def by_broker(outages: "DataFrame") -> "DataFrame":
    """`totals` for each broker whose leadership was lost; null where nobody knows whose."""
    return totals(outages, "broker")


def percentiles(outages: "DataFrame", *by: str) -> "DataFrame":
    """How long outages and their parts were, planned and forced ones apart.

    Returns:
        `by`, planned, measure (`MEASURES`), known (of how many outages it is), p50_ms, p90_ms, p99_ms, max_ms: one row
        for each measure that is known of any.
    """
    from pyspark.sql import functions as f

    each = f.explode(
        f.array(*(f.struct(f.lit(name).alias("measure"), f.col(f"{name}_ms").alias("ms")) for name in MEASURES))
    )
    values = outages.select(*by, (~_is_forced()).alias("planned"), each.alias("one")).where("one.ms is not null")
    return (
        values.groupBy(*by, "planned", f.col("one.measure").alias("measure"))
        .agg(
            f.count("*").alias("known"),
            f.percentile("one.ms", [0.5, 0.9, 0.99]).alias("at"),
            f.max("one.ms").alias("max_ms"),
        )
        .select(
            *by,
            "planned",
            "measure",
            "known",
            *(f.col("at")[place].alias(name) for place, name in enumerate(("p50_ms", "p90_ms", "p99_ms"))),
            "max_ms",
        )
    )


def slo(outages: "DataFrame", *, objective: float, period_ms: int, partitions: int) -> "DataFrame":
    """One row: what an objective of availability allowed, and what of it was lost.

    Args:
        objective: the share of time for which a partition is to be available: 0.9995.
        period_ms: the time that the objective is about: a month, or that of the logs.
        partitions: how many there are, with those that were never unavailable.

    Returns:
        budget_minutes, lost_minutes: partition-minutes that were allowed, and that were lost. used: the share of the
        first that the second is. excess_minutes: what partitions lost beyond what each of them was allowed.
        partitions_over: how many lost more than that.

    Raises:
        BadRequest: one of the three is out of range.
    """
    from pyspark.sql import functions as f

    if not 0 < objective < 1:
        raise BadRequest("objective", f"{objective} is no share of time: say 0.999 for 99.9 %")
    if period_ms <= 0 or partitions <= 0:
        raise BadRequest("objective", "is about a time and partitions: both have to be more than 0")
    allowed_ms = (1 - objective) * period_ms
    budget = allowed_ms * partitions / _MINUTE_MS
    each = outages.groupBy("topic", "partition", "life").agg(_sum("duration_ms").alias("lost_ms"))
    over_ms = f.greatest(f.col("lost_ms") - allowed_ms, f.lit(0.0))
    lost = _sum("lost_ms") / _MINUTE_MS
    return each.agg(
        f.lit(budget).alias("budget_minutes"),
        lost.alias("lost_minutes"),
        (lost / budget).alias("used"),
        f.coalesce(f.sum(over_ms) / _MINUTE_MS, f.lit(0.0)).alias("excess_minutes"),
        f.count(f.when(over_ms > 0, 1)).alias("partitions_over"),
    )


def _is_forced() -> "Value":
    from pyspark.sql import functions as f

    return ~f.coalesce("planned", f.lit(False))


def _sum(name: str) -> "Value":
    from pyspark.sql import functions as f

    return f.coalesce(f.sum(name), f.lit(0))
