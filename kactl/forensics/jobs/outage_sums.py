"""Sums over outages: by whatever there is a column for, percentiles, and what objectives of availability have left.

All are functions of the table of outages, or of some of its rows: one incident's, one topic's. Three kinds of outages
are told apart: forced (the leader was lost), planned (a live leader was moved, as somebody wanted), and unexplained (a
live leader was moved, and no line says why).
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.errors import BadRequest

PARTS: Final = ("detection", "queue", "waiting", "election", "send", "apply")
MEASURES: Final = ("duration", *PARTS)
FORCED: Final = "forced"
PLANNED: Final = "planned"
UNEXPLAINED: Final = "unexplained"
KINDS: Final = (FORCED, PLANNED, UNEXPLAINED)
# How well an outage is known, by the worse of its two ends.
OBSERVED: Final = "observed"
KNOWN: Final = (OBSERVED, "inferred", "bounded")
_MINUTE_MS: Final = 60_000
# Percentiles of so many values are exact, and close beyond: a large cluster's would not fit into memory at once.
_ACCURACY: Final = 10_000
_PERCENTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
_FIELDS: Final = ("known", *_PERCENTILES, "max_ms")


def totals(outages: DataFrame, *by: str, times: bool = False) -> DataFrame:
    """One row for each value of `by`; one row in all if there is none, also of no outages.

    Args:
        times: with percentiles beside the sums, in the same pass.

    Returns:
        outages, forced, planned, unexplained, partitions, topics, open, unclean: how many; observed, inferred, bounded:
        how many are known how well. attempts_failed: elections that failed meanwhile. unavailable_ms, forced_ms,
        planned_ms, unexplained_ms: the sum over partitions; least_ms, most_ms: no less and no more than that, the
        latter null if an outage has no upper bound. partition_minutes: `unavailable_ms` in minutes. longest_ms;
        first_at, last_at: the first and last begin. With `times` a struct for each of `MEASURES`: known (of how many
        outages it is), p50_ms, p90_ms, p99_ms, max_ms; a percentile is a value that occurs, and that so many do not
        exceed.
    """
    has_bounds = f.count("duration_max_ms") == f.count("*")
    return outages.groupBy(*by).agg(
        f.count("*").alias("outages"),
        *(f.count_if(kind_of() == name).alias(name) for name in KINDS),
        f.countDistinct("topic", "partition", "life").alias("partitions"),
        f.countDistinct("topic").alias("topics"),
        f.count_if(f.col("end_kind") == "open").alias("open"),
        f.count_if("unclean").alias("unclean"),
        *(f.count_if(how_known() == name).alias(name) for name in KNOWN),
        _sum("attempts_failed").alias("attempts_failed"),
        _sum("duration_ms").alias("unavailable_ms"),
        *(_sum(f.when(kind_of() == name, f.col("duration_ms"))).alias(f"{name}_ms") for name in KINDS),
        _sum("duration_min_ms").alias("least_ms"),
        f.when(has_bounds, _sum("duration_max_ms")).alias("most_ms"),
        (_sum("duration_ms") / _MINUTE_MS).alias("partition_minutes"),
        f.max("duration_ms").alias("longest_ms"),
        f.min("begin").alias("first_at"),
        f.max("begin").alias("last_at"),
        *(_times() if times else ()),
    )


def by_topic(outages: DataFrame) -> DataFrame:
    """`totals` of each topic."""
    return totals(outages, "topic")


def by_broker(outages: DataFrame) -> DataFrame:
    """`totals` for each broker whose leadership was lost; null where nobody knows whose."""
    return totals(outages, "broker")


def percentiles(outages: DataFrame, *by: str) -> DataFrame:
    """How long outages and their parts were, each kind apart.

    Returns:
        `by`, kind (`KINDS`), measure (`MEASURES`), known (of how many outages it is), p50_ms, p90_ms, p99_ms, max_ms:
        one row for each measure that is known of any.
    """
    measured = outages.groupBy(*by, kind_of().alias("kind")).agg(*_times())
    each = [
        f.struct(f.lit(name).alias("measure"), *(f.col(f"{name}.{field}").alias(field) for field in _FIELDS))
        for name in MEASURES
    ]
    return measured.select(*by, "kind", f.inline(f.array(*each))).where("known > 0")


def kind_of() -> Value:
    """The kind of an outage: one of `KINDS`."""
    planned = f.col("planned")
    return f.when(planned, PLANNED).when(~planned, FORCED).otherwise(UNEXPLAINED)


def how_known() -> Value:
    """How well an outage is known: one of `KNOWN`."""
    kinds = f.array("begin_kind", "end_kind")
    worse = reversed(KNOWN[1:])
    return f.coalesce(*(f.when(f.array_contains(kinds, name), name) for name in worse), f.lit(OBSERVED))


def _times() -> list[Value]:
    """For each measure a struct; of what is known of no outage, all but `known` is null."""
    made = []
    for name in MEASURES:
        time = f.col(f"{name}_ms")
        at = (f.percentile_approx(time, share, _ACCURACY).alias(label) for label, share in _PERCENTILES.items())
        made.append(f.struct(f.count(time).alias("known"), *at, f.max(time).alias("max_ms")).alias(name))
    return made


# -- objectives --------------------------------------------------------------------------------------------------------


def slo(
    outages: DataFrame,
    *by: str,
    objectives: Sequence[float],
    period_ms: int,
    partitions: int | DataFrame,
) -> DataFrame:
    """What objectives of availability allow, and what of it was lost: a row for each value of `by` and objective.

    Args:
        outages: those that count, whatever their kind.
        objectives: shares of time for which a partition is to be available: 0.9995.
        period_ms: the time that an objective is about: a month, or that of the logs.
        partitions: how many there are, with those that were never unavailable; or a table of it, with some of `by`.

    Returns:
        `by`, objective, partitions. budget_minutes, lost_minutes: partition-minutes that were allowed, and that were
        lost. used: the share of the first that the second is. excess_minutes: what partitions lost beyond what each of
        them was allowed. partitions_over: how many lost more than that. Without `by` there is a row for each objective
        also of no outages; where nobody knows how many partitions there are, budget and share are null.

    Raises:
        BadRequest: an objective, the period, or the number of partitions is out of range.
    """
    if strange := [each for each in objectives if not 0 < each < 1]:
        raise BadRequest("objective", f"{strange[0]} is no share of time: say 0.999 for 99.9 %")
    if period_ms <= 0 or (isinstance(partitions, int) and partitions <= 0):
        raise BadRequest("objective", "is about a time and partitions: both have to be more than 0")
    key = dict.fromkeys((*by, "topic", "partition", "life"))
    each = outages.groupBy(*key).agg(_sum("duration_ms").alias("lost_ms"))
    spent = each.groupBy(*by).agg(
        (_sum("lost_ms") / _MINUTE_MS).alias("lost_minutes"),
        f.array(*(_against(objective, (1 - objective) * period_ms) for objective in objectives)).alias("against"),
    )
    if isinstance(partitions, int):
        counted = spent.withColumn("partitions", f.lit(partitions).cast("long"))
    else:
        counted = spent.join(partitions, [name for name in by if name in partitions.columns], "left")
    budget = f.col("allowed_ms") * f.col("partitions") / _MINUTE_MS
    return counted.select(*by, "partitions", "lost_minutes", f.inline("against")).select(
        *by,
        "objective",
        "partitions",
        budget.alias("budget_minutes"),
        "lost_minutes",
        (f.col("lost_minutes") / budget).alias("used"),
        "excess_minutes",
        "partitions_over",
    )


def _against(objective: float, allowed_ms: float) -> Value:
    """One objective, over the partitions and what each lost."""
    over_ms = f.greatest(f.col("lost_ms") - allowed_ms, f.lit(0.0))
    return f.struct(
        f.lit(objective).alias("objective"),
        f.lit(allowed_ms).alias("allowed_ms"),
        f.coalesce(f.sum(over_ms) / _MINUTE_MS, f.lit(0.0)).alias("excess_minutes"),
        f.count_if(over_ms > 0).alias("partitions_over"),
    )


def _sum(of: Value | str) -> Value:
    return f.coalesce(f.sum(of), f.lit(0))
