"""Outages from log lines, computed by all jobs that they depend on."""

import datetime
from collections.abc import Callable
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.absences import absences
from kactl.forensics.jobs.leadership import leadership
from kactl.forensics.jobs.outages import outages
from kactl.forensics.jobs.states import states

from . import dumps
from .chain import chain, kept
from .said import (
    ABSENT,
    NEW,
    OFFLINE,
    ONLINE,
    changed,
    cut,
    follows,
    handling,
    isr_updated,
    leads,
    leads_3,
    moved,
    new,
    online,
    online_unnumbered,
    preferred_asked,
    received,
    sent,
    state,
)
from .tables import as_timed, controller_line, events, line, moment, rows

Rows = Callable[[str], list[dict[str, Any]]]
_KRAFT: Final = "[QuorumController id=3000] "
_QUORUM: Final = "org.apache.kafka.controller.QuorumController"


def failed(seconds: float, tp: str) -> str:
    return line(
        seconds,
        f"[Controller id=1 epoch=5] Controller 1 epoch 5 failed to change state for partition {tp} from {OFFLINE} to "
        f"{ONLINE}\nkafka.common.StateChangeFailedException: Failed to elect leader for partition {tp} under strategy "
        "OfflinePartitionLeaderElectionStrategy(false)\n\tat kafka.controller.X",
        level="ERROR",
    )


# Three brokers; 1 is the controller. 3 gives its last sign at 2, is found dead at 18, and returns at 60.
_CONTROLLER_LOG: Final = [
    changed(0, [1, 2, 3]),
    changed(18, [1, 2], deleted=[3]),
    controller_line(18.01, 1, "Broker failure callback for 3"),
    changed(60, [1, 2, 3], added=[3]),
    preferred_asked(90, "info-0"),
    controller_line(120, 1, "Starting topic deletion for topics gone"),
    controller_line(300, 1, "Processing automatic preferred replica leader election"),
]
_OF_1: Final = [
    # Format of 2.8 at INFO.
    new(0, "info-0", [3, 2]),
    online(0.01, "info-0", 3, 0, [3, 2], 0, before=NEW),
    online(18.2, "info-0", 2, 1, [2], 1, before=OFFLINE),
    online(90.1, "info-0", 3, 2, [2, 3], 3, before=ONLINE),
    # No other broker has a replica.
    new(0, "alone-0", [3]),
    online(0.01, "alone-0", 3, 0, [3], 0, before=NEW),
    failed(18.1, "alone-0"),
    cut(18.3, "alone-0", -1, 1, [3], 3, 1),
    online(60.1, "alone-0", 3, 2, [3], 2, before=OFFLINE),
    # 3 is only a follower.
    new(0, "kept-0", [2, 3]),
    online(0.01, "kept-0", 2, 0, [2, 3], 0, before=NEW),
    cut(18.3, "kept-0", 2, 1, [2], 3, 1),
    # A topic that is deleted.
    new(0, "gone-0", [2, 1]),
    online(0.01, "gone-0", 2, 0, [2, 1], 0, before=NEW),
    cut(120.1, "gone-0", 2, 1, [2], 1, 1),
    cut(120.2, "gone-0", -1, 2, [2], 2, 2),
    # Format of 2.2 at TRACE.
    new(0, "trace-0", [3, 2]),
    online(0.01, "trace-0", 3, 0, [3, 2], 0, before=NEW),
    moved(18.02, "trace-0", ONLINE, OFFLINE),
    online(18.2, "trace-0", 2, 1, [2], 1, before=OFFLINE),
    sent(18.21, "trace-0", state(2, 1, [2], 1, [3, 2]), 2),
    # Format of 1.0, without epochs.
    moved(18.02, "old-0", ONLINE, OFFLINE),
    online_unnumbered(18.2, "old-0", 2, before=OFFLINE),
    sent(18.21, "old-0", state(2, 8, [2], 9, [3, 2]), 2),
    # A topic that is deleted and created again with the same name.
    new(0, "again-0", [2, 1]),
    online(0.01, "again-0", 2, 0, [2, 1], 0, before=NEW),
    moved(150, "again-0", ONLINE, OFFLINE),
    moved(150.001, "again-0", OFFLINE, ABSENT),
    new(200, "again-0", [1, 2]),
    online(200.01, "again-0", 1, 0, [1, 2], 0, before=NEW),
]
_OF_2: Final = [
    handling(18.25, 2, 77),
    leads(18.3, 2, "info-0", 1, [2], before=0),
    leads(18.4, 2, "kept-0", 1, [2], before=0),
    received(18.25, 2, "trace-0", state(2, 1, [2], 1, [3, 2]), 77),
    received(18.25, 2, "old-0", state(2, 8, [2], 9, [3, 2]), 77),
    line(
        18.3,
        "[Partition trace-0 broker=2] trace-0 starts at Leader Epoch 1 from offset 9. Previous Leader Epoch was: 0",
    ),
    line(18.3, "[Partition old-0 broker=2] old-0 starts at Leader Epoch 8 from offset 9. Previous Leader Epoch was: 7"),
    isr_updated(70, 2, "info-0", [2, 3], 2),
    follows(90.15, 2, "info-0", 2, before=1),
    leads(200.05, 1, "again-0", 0, [1, 2]),
]
_OF_3: Final = [
    leads(0.1, 3, "info-0", 0, [3, 2]),
    leads(0.1, 3, "alone-0", 0, [3]),
    leads(0.1, 3, "trace-0", 0, [3, 2]),
    follows(2, 3, "kept-0", 0),
    leads(60.3, 3, "alone-0", 2, [3], before=0),
    leads(90.2, 3, "info-0", 2, [2, 3], before=1),
]
_LOGS: Final = {
    (1, Kind.CONTROLLER): _CONTROLLER_LOG,
    (1, Kind.STATE_CHANGE): _OF_1,
    (2, Kind.STATE_CHANGE): _OF_2,
    (3, Kind.STATE_CHANGE): _OF_3,
}


def _by_topic(found: DataFrame) -> Rows:
    listed = rows(found, "topic", "begin")
    return lambda topic: [row for row in listed if row["topic"] == topic]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Rows:
    made = chain(spark, _LOGS, copied=True)
    return _by_topic(outages(made.timed, made.leadership, made.absences))


def seconds(time: datetime.datetime | None) -> float | None:
    return None if time is None else (time - moment(0)).total_seconds()


def span(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(map(seconds, (row["begin_low"], row["begin"], row["begin_high"], row["end"], row["end_high"])))


def test_dead_leader_outage_lasts_from_last_sign_to_next_leader(found: Rows) -> None:
    lost, moved_back = found("info")

    assert span(lost) == (2, 2, 18, 18.3, 18.3)
    assert (lost["cause"], lost["broker"], lost["new_leader"], lost["unclean"]) == ("broker-failure", 3, 2, False)
    assert [lost[name] for name in ("detection_ms", "queue_ms", "election_ms", "send_ms", "apply_ms")] == [
        16_000, 10, 190, 50, 50,
    ]  # fmt: skip
    assert span(moved_back) == (90.15, 90.15, 90.15, 90.2, 90.2)
    assert (moved_back["cause"], moved_back["planned"], moved_back["broker"]) == ("preferred", True, 2)


def test_single_replica_partition_waits_for_its_broker(found: Rows) -> None:
    (row,) = found("alone")

    assert span(row) == (2, 2, 18, 60.3, 60.3)
    assert (row["cause"], row["attempts_failed"], row["new_leader"]) == ("no-live-replica", 1, 3)
    assert row["waiting_ms"] == 42_000


def test_trace_lines_give_the_same_outages(found: Rows) -> None:
    (row,) = found("trace")

    assert span(row) == (2, 2, 18, 18.3, 18.3)
    assert (row["begin_kind"], row["end_kind"], seconds(row["begun_at"])) == ("inferred", "observed", 18.02)


def test_lines_without_numbers_give_the_same_outages(found: Rows) -> None:
    (row,) = found("old")

    assert row["begin_kind"] == "bounded"
    assert (seconds(row["begin_high"]), seconds(row["end"]), row["new_leader"]) == (18.02, 18.3, 2)


@pytest.mark.parametrize("topic", ["kept", "gone", "again"])
def test_isr_shrinks_and_deletions_are_no_outages(found: Rows, topic: str) -> None:
    assert found(topic) == []


@pytest.fixture(scope="module")
def found_in_part(spark: SparkSession) -> Rows:
    """Returns the outages found in the controller's state-change.log alone."""
    made = chain(spark, {(1, Kind.STATE_CHANGE): _OF_1})
    return _by_topic(outages(made.timed, made.leadership, made.absences))


def test_fewer_logs_widen_bounds_and_add_no_outage(found_in_part: Rows, found: Rows) -> None:
    for topic in ("info", "alone", "trace"):
        whole, part = found(topic)[0], found_in_part(topic)[0]
        assert part["begin_low"] <= whole["begin"] <= part["begin_high"]
        assert part["end_low"] <= whole["end"]
        assert part["end_high"] is None
        assert part["cause"] in ("unknown", "no-live-replica")
    assert [len(found_in_part(topic)) for topic in ("info", "alone", "kept", "gone", "again")] == [2, 1, 0, 0, 0]


# -- KRaft -------------------------------------------------------------------------------------------------------------


# 2 takes over partition 0; partition 1 has no leader until 3 returns; partition 2 loses only a follower.
_DUMP: Final = [
    dumps.topic(0),
    dumps.partition(0, 0, [3, 2]),
    dumps.partition(0, 1, [3]),
    dumps.partition(0, 2, [2, 3]),
    dumps.broker(12, 3, fenced=1),
    dumps.change(12, 0, isr=[2], leader=2),
    dumps.change(12, 1, leader=-1),
    dumps.change(12, 2, isr=[2]),
    dumps.broker(40, 3, fenced=-1),
    dumps.change(40, 1, leader=3),
    dumps.change(50, 0, isr=[2, 3]),
    dumps.record(300, "REMOVE_TOPIC", topicId=dumps.TOPIC_ID),
]


def _kraft_timed(spark: SparkSession, *, with_dump: bool) -> DataFrame:
    brokers = {
        (2, Kind.STATE_CHANGE): [
            leads_3(12.1, 2, "kraft-0", 1, 1, [2], before="Some(3) and previous leader epoch was 0"),
        ],
        (3, Kind.STATE_CHANGE): [
            leads_3(0.1, 3, "kraft-0", 0, 0, [3, 2]),
            leads_3(0.1, 3, "kraft-1", 0, 0, [3]),
            line(
                3,
                "[Partition kraft-0 broker=3] ISR updated to 3,2 and version updated to 0",
                logger="kafka.cluster.Partition",
            ),
            leads_3(40.2, 3, "kraft-1", 2, 2, [3]),
        ],
        (3000, Kind.CONTROLLER): [
            line(12, f"{_KRAFT}Fencing broker 3 because its session has timed out.", logger=_QUORUM),
            line(
                40,
                f"{_KRAFT}The request from broker 3 to unfence has been granted because it has caught up.",
                logger=_QUORUM,
            ),
        ],
    }
    read = events(spark, brokers)
    if with_dump:
        read = read.unionByName(dumps.events(spark, _DUMP))
    return kept(as_timed(read))


@pytest.fixture(scope="module", params=[True, False], ids=["dump", "logs"])
def kraft(request: pytest.FixtureRequest, spark: SparkSession) -> tuple[bool, dict[int, list[dict[str, Any]]]]:
    told = _kraft_timed(spark, with_dump=request.param)
    led = kept(leadership(told, states(told)))
    listed = rows(outages(told, led, absences(told)), "partition", "begin")
    return request.param, {number: [row for row in listed if row["partition"] == number] for number in (0, 1, 2)}


def test_kraft_leader_is_lost_when_its_broker_is_fenced(kraft: tuple[bool, dict[int, Any]]) -> None:
    has_dump, found_by = kraft
    (row,) = found_by[0]

    # From KRaft's default session timeout, because no log contains another.
    assert span(row) == (3, 3.4375, 12, 12.1, 12.1)
    assert (row["cause"], row["broker"], row["new_leader"]) == ("broker-failure", 3, 2)
    assert seconds(row["elected_at"]) == (12 if has_dump else None)


def test_kraft_partition_has_no_leader_until_broker_returns(kraft: tuple[bool, dict[int, Any]]) -> None:
    has_dump, found_by = kraft
    (row,) = found_by[1]

    # Without the dump no line logs that there is no leader; but the broker was fenced, and was the only ISR member.
    assert span(row) == (3, 3.4375, 12, 40.2, 40.2)
    assert (row["broker"], row["new_leader"]) == (3, 3)
    assert row["cause"] == ("no-live-replica" if has_dump else "broker-failure")


def test_kraft_lost_follower_is_no_outage(kraft: tuple[bool, dict[int, Any]]) -> None:
    assert kraft[1][2] == []
