"""How much moved in each hour, and which minutes were storms."""

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.jobs import churn, leadership, states

from .tables import moment, rows, table, timed_table

HOUR = 3600


def led(seconds: float, topic: str = "a", *, how: str = "offline", prev: int = 1, leader: int = 2) -> dict[str, Any]:
    planned = {"offline": False, "preferred": True}.get(how)
    return {
        "topic": topic, "partition": 0, "life": 0, "leader_epoch": int(seconds), "leader": leader, "prev_leader": prev,
        "begin": moment(seconds), "how": how, "planned": planned,
    }  # fmt: skip


def in_sync(seconds: float, version: int, isr: list[int]) -> dict[str, Any]:
    return {
        "topic": "a", "partition": 0, "life": 0, "leader_epoch": 1, "partition_epoch": version, "leader": 1,
        "isr": isr, "at": moment(seconds), "formats": ["P2b"],
    }  # fmt: skip


def run(spark: SparkSession, elections: Iterable[dict[str, Any]], isrs: Iterable[dict[str, Any]] = ()) -> DataFrame:
    return churn.churn(
        table(spark, leadership.COLUMNS, elections), table(spark, states.COLUMNS, isrs), timed_table(spark, [])
    )


def minutes(*counts: int) -> list[dict[str, Any]]:
    """So many elections in each minute from ten on, one minute after the other."""
    return [led(60 * minute, f"t{n}") for minute, count in enumerate(counts) for n in range(count)]


def test_hours_count_elections_and_isr_changes(spark: SparkSession) -> None:
    elections = [
        led(60),
        led(61, "b"),
        led(300, how="preferred", prev=2, leader=1),
        led(400, how="isr", prev=1, leader=1),
        led(HOUR - 0.001),
        led(HOUR, how="unknown"),
    ]
    isrs = [in_sync(0, 1, [1, 2]), in_sync(60, 2, [1]), in_sync(2 * HOUR, 3, [1, 2]), in_sync(2 * HOUR + 9, 4, [2])]

    found = rows(run(spark, elections, isrs), "hour")

    assert found == [
        {
            "hour": moment(0), "elections": 4, "planned": 1, "forced": 3, "partitions": 2, "shrinks": 1, "expands": 0,
            "most_in_a_minute": 2, "storm": False,
        },
        {
            "hour": moment(HOUR), "elections": 1, "planned": 0, "forced": 0, "partitions": 1, "shrinks": 0,
            "expands": 0, "most_in_a_minute": 1, "storm": False,
        },
        {
            "hour": moment(2 * HOUR), "elections": 0, "planned": 0, "forced": 0, "partitions": 0, "shrinks": 1,
            "expands": 1, "most_in_a_minute": 0, "storm": False,
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("elections", "storm"),
    [
        pytest.param(minutes(50), True, id="one bad night has nothing that is usual"),
        pytest.param(minutes(49), False, id="a few are no storm"),
        pytest.param(minutes(*[6] * 11, 60), True, id="ten times the median"),
        pytest.param(minutes(*[6] * 11, 59), False, id="not quite ten times"),
    ],
)
def test_a_storm_is_many_and_far_more_than_usual(
    spark: SparkSession, elections: list[dict[str, Any]], storm: bool
) -> None:
    (found,) = rows(run(spark, elections))

    assert found["storm"] is storm


def test_no_lines_give_no_hours(spark: SparkSession) -> None:
    assert rows(run(spark, [])) == []
