"""Job `churn`, and the elections and ISR changes that it counts."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import churn, leadership, states
from kactl.forensics.jobs.churn import elections, isr_course

from .tables import as_timed, events, line, moment, rows, table, timed_table

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
    """Returns elections, with a count for each minute from ten o'clock on."""
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
def test_storm_is_above_floor_and_factor(spark: SparkSession, elections: list[dict[str, Any]], storm: bool) -> None:
    (found,) = rows(run(spark, elections))

    assert found["storm"] is storm


def test_no_lines_give_no_hours(spark: SparkSession) -> None:
    assert rows(run(spark, [])) == []


# -- elections and ISR changes -----------------------------------------------------------------------------------------

ALL = [1, 2, 3]
PARTITION = "kafka.cluster.Partition"


def state(topic: str, seconds: float, version: int | None, isr: list[int], **more: Any) -> dict[str, Any]:
    row = {
        "topic": topic, "partition": 0, "life": 0, "leader_epoch": 1, "partition_epoch": version, "leader": 1,
        "isr": isr, "replicas": ALL, "at": moment(seconds), "formats": ["P2b"],
    }  # fmt: skip
    return row | more


def said(topic: str, seconds: float, message: str) -> str:
    return line(seconds, f"[Partition {topic}-0 broker=1] {message}", logger=PARTITION)


STATES = [
    state("versions", 0, 1, ALL),
    state("versions", 10.01, 2, [1, 2]),
    state("lines", 0, 1, ALL),
    state("lines", 30, 4, ALL, leader_epoch=2),
    state("zombie", 0, 1, ALL),
    state("zombie", 30, 3, [2, 3], leader_epoch=2, leader=2),
    state("clocks", 0, 1, ALL),
    state("clocks", 10, 2, [1, 2]),
    state("clocks", 9.99, 3, ALL),
    state("copied", 0, 1, ALL),
    state("open", 0, 1, ALL),
    state("deleted", 0, 1, ALL),
    state("deleted", 10, 2, [1, 2]),
    state("deleted", 20, 3, [], leader=-2),
    state("cut", 0, 1, ALL),
    state("cut", 10, None, [2, 3], leader_epoch=2),
    state("cut", 20, 3, [2, 3], leader_epoch=3),
    state("news", 0, 1, ALL),
    state("news", 10, 2, [1, 2]),
    state("news", 11, None, ALL),
    state("news", 20, 3, [1, 2], leader_epoch=2),
    state("old", 0, None, ALL, leader_epoch=1),
    state("old", 30, None, [1, 2], leader_epoch=2),
    state("middle", 5, None, ALL, leader_epoch=None, formats=["PARTITION_CHANGE_RECORD"]),
    state("middle", 10, None, [1, 2], leader_epoch=None, formats=["PARTITION_CHANGE_RECORD"]),
    state("middle", 20, None, ALL, leader_epoch=None, formats=["PARTITION_CHANGE_RECORD"]),
    state("order", 0, 1, ALL),
    state("order", 10, 2, [3, 1, 2]),
]
SHRINKS = "Shrinking ISR from 1,2,3 to 1,2. Leader: (highWatermark: 5, endOffset: 9). Out of sync replicas: 3."
LINES = [
    said("versions", 10, SHRINKS),
    said("versions", 10.01, "ISR updated to 1,2 and version updated to 2"),
    said("lines", 10, "Shrinking ISR from 1,2,3 to 1,2"),
    said("lines", 20, "Expanding ISR from 1,2 to 1,2,3"),
    said("zombie", 10, "Shrinking ISR from 1,2,3 to 1"),
    said("zombie", 10.002, "Cached zkVersion [1] not equal to that in zookeeper, skip updating ISR"),
    said("zombie", 20, "Shrinking ISR from 1,2,3 to 1"),
    said("zombie", 20.002, "Cached zkVersion [1] not equal to that in zookeeper, skip updating ISR"),
    said("copied", 10, "Shrinking ISR from 1,2,3 to 1,2"),
    said("open", 10, "Shrinking ISR from 1,2,3 to 1,2"),
    said("open", 20, "Expanding ISR from 1,2 to 1,2,3"),
    said("open", 30, "Shrinking ISR from 1,2,3 to 1,2"),
    said("old", 10, "Shrinking ISR from 1,2,3 to 1,2"),
    said("alone", 10, "Shrinking ISR from 1,2,3 to 1,2"),
]

Moved = list[tuple[float, list[int], list[int]]]


@pytest.fixture(scope="module")
def moved(spark: SparkSession) -> Mapping[str, Moved]:
    """Returns, for each topic: time, brokers that left the ISR, and brokers that joined."""
    # The second file is a copy.
    logs = {(1, Kind.SERVER): LINES, (7, Kind.SERVER): LINES}
    course = isr_course(table(spark, states.COLUMNS, STATES), as_timed(events(spark, logs)))
    found: dict[str, Moved] = {row["topic"]: [] for row in STATES}
    for row in rows(course, "topic", "at"):
        if row["lost"] or row["won"]:
            seconds = (row["at"] - moment(0)).total_seconds()
            found.setdefault(row["topic"], []).append((seconds, row["lost"], row["won"]))
    return found


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("versions", [(10.01, [3], [])]),
        ("lines", [(10, [3], []), (20, [], [3])]),
        ("zombie", [(30, [1], [])]),
        ("clocks", [(10, [3], []), (10, [], [3])]),
        ("copied", [(10, [3], [])]),
        ("open", [(10, [3], []), (20, [], [3]), (30, [3], [])]),
        ("deleted", [(10, [3], [])]),
        ("cut", [(10, [1], [])]),
        ("news", [(10, [3], [])]),
        ("old", [(10, [3], [])]),
        ("middle", [(10, [3], []), (20, [], [3])]),
        ("order", []),
        ("alone", [(10, [3], [])]),
    ],
)
def test_each_isr_change_counts_once(moved: Mapping[str, Moved], topic: str, expected: Moved) -> None:
    assert moved[topic] == expected


LED = {
    "first": {"how": "initial", "leader": 1, "prev_leader": -1},
    "follows": {"how": "preferred", "leader": 1, "prev_leader": 2},
    "returns": {"how": "offline", "leader": 1, "prev_leader": 1},
    "found-led": {"how": "unknown", "leader": 1},
    "found-elected": {"how": "offline", "leader": 1},
    "stays": {"how": "reassign", "leader": 1, "prev_leader": 1},
    "cut-off": {"how": "isr", "leader": -1, "prev_leader": 1},
    "unexplained": {"how": "unknown", "leader": 2, "prev_leader": 1},
}


def test_election_brings_another_leader_or_ends_none(spark: SparkSession) -> None:
    led = [{"topic": name, "partition": 0, "life": 0, "begin": moment(0)} | row for name, row in LED.items()]

    found = rows(elections(table(spark, leadership.COLUMNS, led)), "topic")

    assert [row["topic"] for row in found] == ["follows", "found-elected", "returns", "unexplained"]
