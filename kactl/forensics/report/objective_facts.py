"""Queries about availability objectives: the share of error budgets that outages used.

A budget is that of all partitions in the logs, including those that always had a leader. `jobs/outages/totals.py`
defines objectives and how lost time adds up.
"""

from typing import Any, Final, NamedTuple, TypeVar

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.jobs.outages.totals import slo

from .facts import Sources
from .model import Asked, Budget, Spent

# Usual objectives, and their period.
OBJECTIVES: Final = (0.999, 0.9995, 0.9999)
PERIOD_MS: Final = 30 * 86_400_000
TOPICS_SHOWN: Final = 5
_Key = TypeVar("_Key", int, str)


class Known(NamedTuple):
    """Partitions that budgets belong to.

    Attributes:
        topics: see `counted`.
        partitions: of all topics; 0 if there are none in the logs.
    """

    topics: DataFrame
    partitions: int


def counted(leadership: DataFrame, outages: DataFrame) -> DataFrame:
    """Returns each topic with the number of its partitions in the logs."""
    # A topic that was deleted and created again counts its partitions once.
    keys = ["topic", "partition"]
    both = leadership.select(keys).unionByName(outages.select(keys)).distinct()
    return both.groupBy("topic").agg(f.count("*").alias("partitions"))


def known(topics: DataFrame) -> Known:
    """Returns the result of `counted` with its sum."""
    (row,) = topics.agg(f.sum("partitions").alias("partitions")).collect()
    return Known(topics, row["partitions"] or 0)


def period_of(sources: Sources, asked: Asked) -> int:
    """Returns the period of objectives in milliseconds: the usual one, or the whole time if that is longer."""
    if sources.begin is None or sources.end is None:
        return PERIOD_MS
    begin, end = max(sources.begin, asked.begin or sources.begin), min(sources.end, asked.end or sources.end)
    return max(PERIOD_MS, round((end - begin).total_seconds() * 1000))


def spent(
    outages: DataFrame, by: str, kind: type[_Key], *, of: Known, period_ms: int = PERIOD_MS
) -> dict[_Key, tuple[Spent, ...]]:
    """Returns, for each value of `by`, of kind `kind`: the consumption in all, and by the topics that used most of
    theirs.

    Args:
        period_ms: period of the objectives.
    """
    if not of.partitions:
        return {}
    all_ = slo(outages, by, objectives=OBJECTIVES, period_ms=period_ms, partitions=of.partitions)
    each = slo(outages, by, "topic", objectives=OBJECTIVES, period_ms=period_ms, partitions=of.topics)
    # Mean loss of a partition: every objective ranks topics equally, so rows of one rank belong to one topic.
    mean = f.col("lost_minutes") / f.col("partitions")
    worst = Window.partitionBy(by, "objective").orderBy(f.desc(mean), f.desc("lost_minutes"), "topic")
    placed = each.withColumn("place", f.row_number().over(worst)).where(f.col("place") <= TOPICS_SHOWN)
    rows = all_.withColumns({"topic": f.lit(None).cast("string"), "place": f.lit(0)}).unionByName(placed).collect()
    found: dict[_Key, dict[int, list[Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["place"], row["objective"])):
        found.setdefault(kind(row[by]), {}).setdefault(row["place"], []).append(row)
    return {key: tuple(_spent(rows) for rows in places.values()) for key, places in found.items()}


def _spent(rows: list[Any]) -> Spent:
    first = rows[0]
    return Spent(
        topic=first["topic"],
        partitions=first["partitions"],
        lost_minutes=first["lost_minutes"],
        budgets=tuple(
            Budget(
                objective=row["objective"],
                minutes=row["budget_minutes"],
                used=row["used"],
                partitions_over=row["partitions_over"],
            )
            for row in rows
        ),
    )
