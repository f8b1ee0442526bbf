"""Snapshots from tables of logs."""

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.decide.whatif import Kind
from kactl.decide.whatif.analysis import answer
from kactl.decide.whatif.assumptions import Assumptions
from kactl.forensics.jobs import absences, deletions, states
from kactl.forensics.whatif.snapshots import logs
from kactl.forensics.whatif.tables import BadSnapshot
from tests.forensics.jobs.tables import moment
from tests.forensics.jobs.tables import table as job_table


def state(name: str, seconds: float, leader: int, isr: list[int] | None, **more: Any) -> dict[str, Any]:
    """Returns a row of the states. `e`, `v`: leader epoch and partition epoch."""
    topic, _, number = name.rpartition("-")
    said = {"topic": topic, "partition": int(number), "life": 0, "leader": leader, "isr": isr, "at": moment(seconds)}
    named = {"e": "leader_epoch", "v": "partition_epoch"}
    given = {named.get(key, key): value for key, value in more.items()}
    return said | {"leader_epoch": 0, "partition_epoch": 0, "replicas": [1, 2, 3], "told_by": "controller"} | given


STATES = [
    state("plain-0", 0, 1, [1, 2, 3]),
    state("plain-0", 10, 2, [2, 3], e=1, v=1),
    state("plain-0", 20, 2, [2], e=1, v=2),
    # The clock of the last change's writer is behind; its version is not.
    state("skewed-0", 10, 1, [1, 2], v=5),
    state("skewed-0", 9.9, 1, [1, 2, 3], v=6, told_by="broker"),
    # 1.0 has no partition epochs.
    state("old-0", 0, 1, [1, 2], v=None),
    state("old-0", 10, 2, [2], e=1, v=None),
    # A later leader epoch without a version takes precedence over an earlier one with a version.
    state("mixed-0", 0, 1, [1, 2], e=3, v=9),
    state("mixed-0", 10, 2, None, e=4, v=None),
    # An ISR change without a leader epoch in any line.
    state("change-0", 0, 1, [1, 2], e=3, v=9),
    state("change-0", 10, 1, [1], e=None, v=10),
    # The assignment was logged only at creation.
    state("born-0", 0, 3, [3, 1], replicas=[3, 1]),
    state("born-0", 10, 1, [1], e=1, v=1, replicas=None),
    state("nobody-0", 0, 1, [1], replicas=None),
    # A topic of the same name, with fewer partitions.
    state("again-0", 0, 1, [1]),
    state("again-1", 0, 1, [1]),
    state("again-0", 10, 2, [2], life=1),
    state("dropped-0", 0, 1, [1]),
    state("dropped-1", 5, -2, [1]),
    state("going-0", 0, -2, [1]),
    # Deleted and created again; the creation is not in the logs.
    state("reborn-0", 8, 1, [1]),
]
DELETIONS: list[dict[str, Any]] = [
    {"topic": "dropped", "asked_at": moment(6), "done_at": moment(7)},
    {"topic": "reborn", "asked_at": moment(6), "done_at": moment(7)},
    {"topic": "plain", "asked_at": moment(6), "done_at": None},
]


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame, DataFrame]:
    gone: list[dict[str, Any]] = [
        {"broker": 3, "detected_at": moment(5), "back_at": None},
        {"broker": 1, "detected_at": moment(6), "back_at": moment(7)},
        {"broker": 2, "detected_at": moment(1), "back_at": None},  # elected leader since, at 10
        {"broker": 9, "detected_at": None, "back_at": None},
    ]
    return (
        job_table(spark, states.COLUMNS, STATES).persist(),
        job_table(spark, absences.COLUMNS, gone),
        job_table(spark, deletions.COLUMNS, DELETIONS),
    )


@pytest.fixture(scope="module")
def last(frames: tuple[DataFrame, DataFrame, DataFrame]) -> dict[str, dict[str, Any]]:
    return by_name(logs.partitions(frames[0], frames[2], None))


def by_name(found: DataFrame) -> dict[str, dict[str, Any]]:
    rows: list[dict[str, Any]] = found.toArrow().to_pylist()
    return {f"{row['topic']}-{row['partition']}": row for row in rows}


@pytest.mark.parametrize(
    ("name", "leader", "isr", "replicas"),
    [
        ("plain-0", 2, [2], [1, 2, 3]),
        ("skewed-0", 1, [1, 2, 3], [1, 2, 3]),
        ("old-0", 2, [2], [1, 2, 3]),
        ("mixed-0", 2, None, [1, 2, 3]),
        ("change-0", 1, [1], [1, 2, 3]),
        ("born-0", 1, [1], [3, 1]),
        ("nobody-0", 1, [1], None),
        ("again-0", 2, [2], [1, 2, 3]),
        ("reborn-0", 1, [1], [1, 2, 3]),
    ],
)
def test_the_last_state_of_a_partition(
    last: dict[str, dict[str, Any]], name: str, leader: int, isr: list[int] | None, replicas: list[int] | None
) -> None:
    found = last[name]

    assert (found["leader"], found["isr"], found["replicas"]) == (leader, isr, replicas)
    assert (found["elr"], found["min_isr"], found["unclean"], found["weight"]) == (None, None, None, None)


def test_deleted_topics_are_left_out(last: dict[str, dict[str, Any]]) -> None:
    assert not last.keys() & {"again-1", "dropped-0", "dropped-1", "going-0"}
    assert len(last) == 9


def test_later_states_are_ignored(frames: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    found = by_name(logs.partitions(frames[0], frames[2], moment(6.5)))

    assert found["plain-0"]["leader"] == 1
    assert found["again-1"]["leader"] == 1  # the new topic does not exist yet
    assert found["dropped-0"]["leader"] == 1  # and the old one still exists
    assert "reborn-0" not in found


def test_brokers_away_at_a_time(frames: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    gone = {seconds: set(logs.away(frames[1], moment(seconds))) for seconds in (0, 5.5, 6, 7, 8)}

    assert gone == {0: {9}, 5.5: {2, 3, 9}, 6: {1, 2, 3, 9}, 7: {2, 3, 9}, 8: {2, 3, 9}}
    assert set(logs.away(frames[1], None)) == {2, 3, 9}


def test_broker_elected_after_its_absence_is_back(frames: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    found = logs.partitions(frames[0], frames[2], None)

    assert logs.returned(found, logs.away(frames[1], None)) == {2}
    assert logs.returned(found, {}) == frozenset()
    assert logs.returned(found, {2: round(moment(21).timestamp() * 1_000_000), 1: None}) == frozenset()


def test_no_plan_has_a_cross_join_or_one_task_for_all(
    frames: tuple[DataFrame, DataFrame, DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.partitions(frames[0], frames[2], None).explain()
    plan = capsys.readouterr().out

    assert "Exchange hashpartitioning" in plan
    for bad in ("CartesianProduct", "BroadcastNestedLoopJoin", "SinglePartition"):
        assert bad not in plan


@pytest.fixture(params=["1", "2"], ids=["few events", "many events"])
def partitions(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """Configures the session for a number of events."""
    name = "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(name))
    spark.conf.set(name, request.param)
    yield request.param
    spark.conf.set(name, before)


@pytest.mark.usefixtures("partitions")
def test_advice_from_logs(frames: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    assumed = Assumptions(min_isr=2, racks={1: "a", 2: "a"})
    snapshot = logs.of_logs(*frames, "logs", assumed, end_us=7)
    told = answer(snapshot, sweeps=(Kind.BROKERS, Kind.PAIRS, Kind.RACKS), top=2)

    # mixed-0 has an unknown ISR, nobody-0 unknown replicas.
    assert (told.now.partitions, told.now.unknown, told.now.at_us) == (7, 2, 7)
    # 9 has no known replica; 3 left at 5 and did not return.
    assert (told.now.brokers, told.now.away) == ((1, 2), (3,))
    assert [each.kind for each in told.sweeps] == [Kind.BROKERS, Kind.PAIRS, Kind.RACKS]
    singles, pairs, racks = told.sweeps
    assert [each.scenario.name for each in singles.worst] == ["1", "2"]
    # skewed-0 has 1, 2 and 3 in sync; every other partition has either 1 or 2 alone.
    assert (pairs.scenarios, pairs.worst[0].offline) == (1, 7)
    assert racks.worst[0].scenario.name == "rack a"


@pytest.mark.usefixtures("partitions")
def test_advice_without_known_partitions(spark: SparkSession, frames: tuple[DataFrame, DataFrame, DataFrame]) -> None:
    nothing = job_table(spark, states.COLUMNS, [state("x-0", 0, 1, None)])

    with pytest.raises(BadSnapshot, match="logs at TRACE have them"):
        logs.of_logs(nothing, *frames[1:], "logs", Assumptions())
    with pytest.raises(BadSnapshot, match="name a later time"):
        logs.of_logs(*frames, "logs", Assumptions(), at=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
