"""Sums over outages, of a table made by hand: three forced ones, a planned one, and one that goes on."""

from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.errors import BadRequest
from kactl.pipeline.jobs import outages
from kactl.pipeline.jobs.outage_sums import by_broker, by_topic, percentiles, slo, totals

from .tables import moment, rows, table


def _outage(topic: str, partition: int, begin: float, ms: int, **more: Any) -> dict[str, Any]:
    row = {"topic": topic, "partition": partition, "life": 0, "begin": moment(begin), "duration_ms": ms, "broker": 3}
    return (
        row | {"planned": False, "end_kind": "observed", "duration_min_ms": ms - 10, "duration_max_ms": ms + 10} | more
    )


OUTAGES: Final = (
    _outage("a", 0, 10, 60_000, detection_ms=59_000, unclean=True),
    _outage("a", 0, 500, 30_000, detection_ms=29_000),
    _outage("a", 1, 10, 90_000),
    _outage("a", 1, 900, 20, planned=True, broker=4, apply_ms=5),
    _outage("b", 0, 20, 120_000, end_kind="open", duration_max_ms=None, planned=None, broker=None),
)


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> DataFrame:
    return table(spark, outages.COLUMNS, OUTAGES)


def test_totals_count_partitions_once_and_time_as_often_as_it_was_lost(made: DataFrame) -> None:
    (row,) = rows(totals(made))

    assert (row["outages"], row["forced"], row["partitions"], row["open"], row["unclean"]) == (5, 4, 3, 1, 1)
    assert (row["unavailable_ms"], row["forced_ms"], row["least_ms"]) == (300_020, 300_000, 299_970)
    assert row["most_ms"] is None  # of the open one nobody knows
    assert row["partition_minutes"] == pytest.approx(300_020 / 60_000)
    assert (row["longest_ms"], row["first_at"], row["last_at"]) == (120_000, moment(10), moment(900))


def test_no_outages_are_a_row_of_zeros(made: DataFrame) -> None:
    (row,) = rows(totals(made.where("topic = 'none'")))

    assert (row["outages"], row["unavailable_ms"], row["forced_ms"], row["partition_minutes"]) == (0, 0, 0, 0)
    assert row["longest_ms"] is None


def test_topics_and_brokers_have_their_own(made: DataFrame) -> None:
    topics = {row["topic"]: row for row in rows(by_topic(made))}
    brokers = {row["broker"]: row for row in rows(by_broker(made))}

    assert {name: row["unavailable_ms"] for name, row in topics.items()} == {"a": 180_020, "b": 120_000}
    assert topics["a"]["most_ms"] == 180_060
    assert {name: row["outages"] for name, row in brokers.items()} == {3: 3, 4: 1, None: 1}


def test_percentiles_are_of_what_is_known_and_keep_planned_moves_apart(made: DataFrame) -> None:
    found = {(row["planned"], row["measure"]): row for row in rows(percentiles(made))}

    assert set(found) == {(False, "duration"), (False, "detection"), (True, "duration"), (True, "apply")}
    forced = found[False, "duration"]
    assert (forced["known"], forced["p50_ms"], forced["max_ms"]) == (4, 75_000, 120_000)
    # Between the third and the fourth of 30, 60, 90 and 120 s.
    assert (forced["p90_ms"], forced["p99_ms"]) == (pytest.approx(111_000), pytest.approx(119_100))
    assert found[False, "detection"]["known"] == 2
    assert found[True, "duration"]["p50_ms"] == 20


def test_percentiles_of_each_topic(made: DataFrame) -> None:
    found = {(row["topic"], row["planned"], row["measure"]): row["max_ms"] for row in rows(percentiles(made, "topic"))}

    assert found["b", False, "duration"] == 120_000
    assert found["a", True, "duration"] == 20


def test_an_objective_is_for_each_partition_and_for_all_of_them(made: DataFrame) -> None:
    # 99 % of 100 minutes leave a minute to each of five partitions.
    (row,) = rows(slo(made, objective=0.99, period_ms=100 * 60_000, partitions=5))

    assert row["budget_minutes"] == pytest.approx(5)
    assert row["lost_minutes"] == pytest.approx(300_020 / 60_000)
    assert row["used"] == pytest.approx(300_020 / 300_000)
    # a-0 lost 1.5 minutes, a-1 1.5 and 20 ms, b-0 2: half a minute, half a minute and 20 ms, one minute too much.
    assert row["excess_minutes"] == pytest.approx(2 + 20 / 60_000)
    assert row["partitions_over"] == 3


def test_nothing_was_lost_without_outages(made: DataFrame) -> None:
    (row,) = rows(slo(made.where("topic = 'none'"), objective=0.99, period_ms=60_000, partitions=5))

    assert (row["lost_minutes"], row["used"], row["excess_minutes"], row["partitions_over"]) == (0, 0, 0, 0)
    assert row["budget_minutes"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("objective", "period_ms", "partitions"), [(99.9, 1, 1), (0, 1, 1), (1, 1, 1), (0.9, 0, 1), (0.9, 1, 0)]
)
def test_what_is_no_objective_is_refused(made: DataFrame, objective: float, period_ms: int, partitions: int) -> None:
    with pytest.raises(BadRequest, match="objective"):
        slo(made, objective=objective, period_ms=period_ms, partitions=partitions)
