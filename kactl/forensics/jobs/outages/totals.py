"""Aggregates of outages by any column, percentiles, and the remaining error budget of availability objectives.

Every function takes the table of outages or some of its rows, such as those of one incident or topic. Outages are of
three kinds: forced (the leader was lost), planned (a live leader was moved on request), and unexplained (a live leader
was moved, and no line gives the reason).
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.model.errors import BadRequest

PARTS: Final = ("detection", "queue", "waiting", "election", "send", "apply")
MEASURES: Final = ("duration", *PARTS)
FORCED: Final = "forced"
PLANNED: Final = "planned"
UNEXPLAINED: Final = "unexplained"
KINDS: Final = (FORCED, PLANNED, UNEXPLAINED)
# How well an outage is known, by the weaker of its two ends.
OBSERVED: Final = "observed"
KNOWN: Final = (OBSERVED, "inferred", "bounded")
_MINUTE_MS: Final = 60_000
# Percentiles of up to this many values are exact, and approximate beyond: those of a large cluster would not fit into
# memory.
_ACCURACY: Final = 10_000
_PERCENTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


def totals(outages: DataFrame, *by: str, times: bool = False) -> DataFrame:
    """Aggregate outages by the columns `by`.

    Args:
        times: include percentiles, computed in the same pass.

    Returns:
        One row for each value of `by`; without `by` one row, also if there are no outages. outages, partitions, topics,
            open, unclean: counts.
        observed, inferred, bounded: number of outages known to that degree. attempts_failed: elections that failed
            during them.
        unavailable_ms: the sum over partitions. least_ms, most_ms: its lower and upper bound, the latter null if an
            outage has no upper bound. longest_ms: the longest outage.
        With `times` a struct for each of `MEASURES`: known (the number of outages with a value), p50_ms, p90_ms,
            p99_ms, max_ms. A percentile is a value that occurs, and that this share of values does not exceed.
    """
    has_bounds = f.count("duration_max_ms") == f.count("*")
    return outages.groupBy(*by).agg(
        f.count("*").alias("outages"),
        f.countDistinct("topic", "partition", "life").alias("partitions"),
        f.countDistinct("topic").alias("topics"),
        f.count_if(f.col("end_kind") == "open").alias("open"),
        f.count_if("unclean").alias("unclean"),
        *(f.count_if(how_known() == name).alias(name) for name in KNOWN),
        _sum("attempts_failed").alias("attempts_failed"),
        _sum("duration_ms").alias("unavailable_ms"),
        _sum("duration_min_ms").alias("least_ms"),
        f.when(has_bounds, _sum("duration_max_ms")).alias("most_ms"),
        f.max("duration_ms").alias("longest_ms"),
        *(_times() if times else ()),
    )


def kind_of() -> Value:
    """Returns the kind of an outage: one of `KINDS`."""
    planned = f.col("planned")
    return f.when(planned, PLANNED).when(~planned, FORCED).otherwise(UNEXPLAINED)


def how_known() -> Value:
    """Returns how well an outage is known: one of `KNOWN`."""
    kinds = f.array("begin_kind", "end_kind")
    worse = reversed(KNOWN[1:])
    return f.coalesce(*(f.when(f.array_contains(kinds, name), name) for name in worse), f.lit(OBSERVED))


def _times() -> list[Value]:
    """Percentiles of each measure, as a struct. All fields but `known` are null if no outage has a value."""
    structs = []
    for name in MEASURES:
        time = f.col(f"{name}_ms")
        at = (f.percentile_approx(time, share, _ACCURACY).alias(label) for label, share in _PERCENTILES.items())
        structs.append(f.struct(f.count(time).alias("known"), *at, f.max(time).alias("max_ms")).alias(name))
    return structs


# -- objectives --------------------------------------------------------------------------------------------------------


def slo(
    outages: DataFrame,
    *by: str,
    objectives: Sequence[float],
    period_ms: int,
    partitions: int | DataFrame,
) -> DataFrame:
    """Compute the unavailability that availability objectives allow, and the share of it that was used.

    Args:
        outages: those that count, whatever their kind.
        objectives: shares of time for which a partition is to be available: 0.9995.
        period_ms: the period of the objective: a month, or that of the logs.
        partitions: number of partitions, including those that were never unavailable; or a table of it with some
            columns of `by`.

    Returns:
        One row for each value of `by` and objective: `by`, objective, partitions. budget_minutes, lost_minutes: allowed
            and lost partition-minutes. used: lost / budget. partitions_over: number of partitions that exceed the
            allowance of a single partition.
        Without `by` there is a row for each objective also if there are no outages. Budget and share are null if the
            number of partitions is unknown.

    Raises:
        BadRequest: an objective, the period, or the number of partitions is out of range.
    """
    if strange := [by_partition for by_partition in objectives if not 0 < by_partition < 1]:
        raise BadRequest("objective", f"{strange[0]} is not a share of time: use 0.999 for 99.9 %")
    if period_ms <= 0 or (isinstance(partitions, int) and partitions <= 0):
        raise BadRequest("objective", "the period and the number of partitions must be greater than 0")
    key = dict.fromkeys((*by, "topic", "partition", "life"))
    by_partition = outages.groupBy(*key).agg(_sum("duration_ms").alias("lost_ms"))
    spent = by_partition.groupBy(*by).agg(
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
        "partitions_over",
    )


def _against(objective: float, allowed_ms: float) -> Value:
    """Compare the loss of each partition with one objective."""
    return f.struct(
        f.lit(objective).alias("objective"),
        f.lit(allowed_ms).alias("allowed_ms"),
        f.count_if(f.col("lost_ms") > allowed_ms).alias("partitions_over"),
    )


def _sum(value: Value | str) -> Value:
    return f.coalesce(f.sum(value), f.lit(0))
