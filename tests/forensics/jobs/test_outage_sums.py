"""Totals of outages: three forced ones, a planned one, and an unexplained one that is open."""

from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.jobs import outages
from kactl.forensics.jobs.outages.totals import KINDS, kind_of, slo, totals
from kactl.model.errors import BadRequest

from .tables import moment, rows, table


def _outage(topic: str, partition: int, begin: float, ms: int, **more: Any) -> dict[str, Any]:
    row = {"topic": topic, "partition": partition, "life": 0, "begin": moment(begin), "duration_ms": ms, "broker": 3}
    known = {"begin_kind": "observed", "end_kind": "observed", "duration_min_ms": ms - 10, "duration_max_ms": ms + 10}
    return row | known | {"planned": False} | more


OUTAGES: Final = (
    _outage("a", 0, 10, 60_000, detection_ms=59_000, unclean=True),
    _outage("a", 0, 500, 30_000, detection_ms=29_000, begin_kind="inferred", attempts_failed=2),
    _outage("a", 1, 10, 90_000, begin_kind="inferred", end_kind="bounded", attempts_failed=1),
    _outage("a", 1, 900, 20, planned=True, broker=4, apply_ms=5),
    _outage("b", 0, 20, 120_000, end_kind="open", duration_max_ms=None, planned=None, broker=None),
)


# The percentiles above the median.
HIGH: Final = ("p90_ms", "p99_ms", "max_ms")


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> DataFrame:
    return table(spark, outages.COLUMNS, OUTAGES)


def test_totals_count_partitions_once_and_add_time(made: DataFrame) -> None:
    (row,) = rows(totals(made))

    assert (row["outages"], row["partitions"], row["topics"], row["open"], row["unclean"]) == (5, 3, 2, 1, 1)
    assert (row["unavailable_ms"], row["least_ms"], row["attempts_failed"]) == (300_020, 299_970, 3)
    assert row["most_ms"] is None  # the open outage has no upper bound
    assert row["longest_ms"] == 120_000


def test_unexplained_change_is_neither_forced_nor_planned(made: DataFrame) -> None:
    kinds = {row["kind"]: row for row in rows(totals(made.withColumn("kind", kind_of()), "kind"))}

    assert {kind: (kinds[kind]["outages"], kinds[kind]["unavailable_ms"]) for kind in KINDS} == {
        "forced": (3, 180_000),
        "planned": (1, 20),
        "unexplained": (1, 120_000),
    }


def test_outage_is_known_as_its_weaker_end(made: DataFrame) -> None:
    (row,) = rows(totals(made))

    assert (row["observed"], row["inferred"], row["bounded"]) == (3, 1, 1)


def test_totals_without_outages_are_zero(made: DataFrame) -> None:
    (row,) = rows(totals(made.where("topic = 'none'"), times=True))

    assert (row["outages"], row["unavailable_ms"], row["attempts_failed"]) == (0, 0, 0)
    assert row["longest_ms"] is None
    assert row["duration"] == {"known": 0, "p50_ms": None, "p90_ms": None, "p99_ms": None, "max_ms": None}


def test_topics_and_brokers_have_own_totals(made: DataFrame) -> None:
    topics = {row["topic"]: row for row in rows(totals(made, "topic"))}
    brokers = {row["broker"]: row for row in rows(totals(made, "broker"))}

    assert {name: row["unavailable_ms"] for name, row in topics.items()} == {"a": 180_020, "b": 120_000}
    assert topics["a"]["most_ms"] == 180_060
    assert {name: row["outages"] for name, row in brokers.items()} == {3: 3, 4: 1, None: 1}


def test_percentiles_use_known_values_of_each_kind(made: DataFrame) -> None:
    times = {row["kind"]: row for row in rows(totals(made.withColumn("kind", kind_of()), "kind", times=True))}

    # Of 30, 60 and 90 s, half take no more than 60, and nine of ten no more than 90.
    assert times["forced"]["duration"] == {"known": 3, "p50_ms": 60_000} | dict.fromkeys(HIGH, 90_000)
    assert times["forced"]["detection"] == {"known": 2, "p50_ms": 29_000} | dict.fromkeys(HIGH, 59_000)
    assert times["planned"]["duration"]["p50_ms"] == 20
    assert times["planned"]["apply"]["known"] == 1
    assert {kind: row["queue"]["known"] for kind, row in times.items()} == dict.fromkeys(KINDS, 0)


def test_percentiles_of_each_topic(made: DataFrame) -> None:
    times = {row["topic"]: row["duration"]["max_ms"] for row in rows(totals(made, "topic", times=True))}

    assert times == {"a": 90_000, "b": 120_000}


def test_objective_applies_to_each_and_all_partitions(made: DataFrame) -> None:
    # 99 % of 100 minutes leave one minute to each of five partitions.
    (row,) = rows(slo(made, objectives=[0.99], period_ms=100 * 60_000, partitions=5))

    assert row["budget_minutes"] == pytest.approx(5)
    assert row["lost_minutes"] == pytest.approx(300_020 / 60_000)
    assert row["used"] == pytest.approx(300_020 / 300_000)
    # a-0 lost 1.5 minutes, a-1 1.5 and 20 ms, b-0 2.
    assert row["partitions_over"] == 3


def test_objectives_use_the_same_outages(made: DataFrame) -> None:
    mild, strict = rows(slo(made, objectives=[0.999, 0.99], period_ms=200 * 60_000, partitions=5), "objective")

    assert (mild["objective"], strict["objective"]) == (0.99, 0.999)
    assert mild["lost_minutes"] == strict["lost_minutes"]
    assert strict["used"] == pytest.approx(10 * mild["used"])
    assert (mild["partitions_over"], strict["partitions_over"]) == (0, 3)  # two minutes each, and twelve seconds


def test_each_topic_has_a_budget_of_its_own_partitions(spark: SparkSession, made: DataFrame) -> None:
    counted = spark.createDataFrame([("a", 10), ("c", 99)], "topic string, partitions long")

    found = rows(slo(made, "topic", objectives=[0.99], period_ms=100 * 60_000, partitions=counted), "topic")

    assert [(row["topic"], row["partitions"]) for row in found] == [("a", 10), ("b", None)]
    assert found[0]["used"] == pytest.approx(180_020 / 600_000)
    assert (found[1]["lost_minutes"], found[1]["budget_minutes"], found[1]["used"]) == (2, None, None)


def test_no_budget_is_used_without_outages(made: DataFrame) -> None:
    (row,) = rows(slo(made.where("topic = 'none'"), objectives=[0.99], period_ms=60_000, partitions=5))

    assert (row["lost_minutes"], row["used"], row["partitions_over"]) == (0, 0, 0)
    assert row["budget_minutes"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("objective", "period_ms", "partitions"), [(99.9, 1, 1), (0, 1, 1), (1, 1, 1), (0.9, 0, 1), (0.9, 1, 0)]
)
def test_invalid_objective_is_rejected(made: DataFrame, objective: float, period_ms: int, partitions: int) -> None:
    with pytest.raises(BadRequest, match="objective"):
        slo(made, objectives=[0.9, objective], period_ms=period_ms, partitions=partitions)
