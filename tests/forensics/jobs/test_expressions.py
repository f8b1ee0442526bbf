"""Spark expressions that the jobs share: conditions with unknown values, and neighbours of a row."""

from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics.jobs.expressions import all_known, best_only, is_true, no_ids, null, rows_of

# Two rows at the same time, and a row of another topic.
_ROWS: Final = (("a", 1, 5, 1), ("a", 2, None, 1), ("a", 2, 7, 0), ("a", 3, None, 1), ("b", 1, None, 0))


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(_ROWS), "topic string, at int, leader int, rank int")


def _values(table: DataFrame, **columns: Any) -> list[tuple[Any, ...]]:
    rows = table.withColumns(columns).orderBy("topic", "at", "rank").select(*columns).collect()
    return [tuple(row) for row in rows]


def test_neighbours_are_of_the_same_key(table: DataFrame) -> None:
    order = rows_of("topic").in_order("at", "rank")

    values = _values(table, before=order.previous("leader"), until=order.next("at"), number=order.number())

    assert values == [(None, 2, 1), (5, 2, 2), (7, 3, 3), (None, None, 4), (None, None, 1)]


def test_latest_is_the_last_known_value(table: DataFrame) -> None:
    order = rows_of("topic").in_order("at", "rank")

    values = _values(table, latest=order.latest("leader"), before=order.latest_before("leader"))

    assert values == [(5, None), (7, 5), (7, 7), (7, 7), (None, None)]


def test_equal_rows_count_only_where_wanted(table: DataFrame) -> None:
    by_time, order = rows_of("topic").in_order("at"), rows_of("topic").in_order("at", "rank")

    values = _values(
        table,
        running=order.running(f.count("leader")),
        before=order.running_before(f.count("leader")),
        equals=by_time.so_far(f.count("leader")),
        all=rows_of("topic").over_all(f.count("leader")),
    )

    assert values == [(1, 0, 1, 2), (2, 1, 2, 2), (2, 2, 2, 2), (2, 2, 2, 2), (0, 0, 0, 0)]


def test_unknown_values_make_no_condition_true(table: DataFrame) -> None:
    values = _values(
        table, is_five=is_true(f.col("leader") == 5), known=all_known("leader", "at"), none=null("int"), ids=no_ids()
    )

    assert values == [(leader == 5, leader is not None, None, []) for leader in (5, 7, None, None, None)]


def test_only_the_best_rank_of_each_key_is_left(table: DataFrame) -> None:
    rows = best_only(table, "rank", "topic").orderBy("topic", "at").collect()

    assert [tuple(row) for row in rows] == [("a", 1, 5), ("a", 2, None), ("a", 3, None), ("b", 1, None)]
