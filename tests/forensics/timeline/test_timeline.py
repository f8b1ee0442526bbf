"""One partition's story out of lines as Kafka writes them, and what jobs concluded."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.report.wording import Moments
from kactl.forensics.timeline import entries, known
from kactl.forensics.timeline.describe import describe
from kactl.forensics.timeline.entries import Entry
from kactl.forensics.timeline.known import NoSuchName
from tests.forensics.golden import GOLDEN
from tests.forensics.golden_kraft import KRAFT
from tests.forensics.jobs.tables import as_timed, controller_line, events, line, moment
from tests.forensics.reading import events_of, log_line
from tests.forensics.report.night import NIGHT, tables

STATE = "LeaderAndIsr(leader=3, leaderEpoch=5, isr=List(3), leaderRecoveryState=RECOVERED, partitionEpoch=8)"
CACHED = (
    "Cached leader info PartitionState(controllerEpoch=6, leader=3, leaderEpoch=5, isr=3, zkVersion=8, replicas=1,2,3, "
    "isNew=false) for partition orders-1 in response to UpdateMetadata request sent by controller 2 epoch 6 with "
    "correlation id {id}"
)
LOGS = {
    (2, Kind.CONTROLLER): [
        controller_line(
            5,
            2,
            "Starting replica leader election (UNCLEAN) for partitions orders-1,orders-12 triggered by "
            "AdminClientTriggered",
        ),
        controller_line(
            6, 2, "Starting replica leader election (UNCLEAN) for partitions orders-12 triggered by ZkTriggered"
        ),
    ],
    (2, Kind.STATE_CHANGE): [
        line(
            31,
            "[Controller id=2 epoch=6] Changed partition orders-1 from OfflinePartition to OnlinePartition with "
            f"state {STATE}",
        ),
        line(
            31,
            "[Controller id=2 epoch=6] Changed partition orders-12 from OfflinePartition to OnlinePartition with "
            f"state {STATE}",
        ),
        line(33, "[Broker id=2] " + CACHED.format(id=4), level="TRACE"),
    ],
    (3, Kind.STATE_CHANGE): [
        line(
            32,
            "[Broker id=3] Leader orders-1 with topic id Some(AAAAAAAAAAAAAAAAAAAAAA) starts at leader epoch 5 from "
            "offset "
            "969 with partition epoch 8, high watermark 969, ISR [3], adding replicas [] and removing replicas [] . "
            "Previous leader Some(1) and previous leader epoch was 4.",
        ),
        line(34, "[Broker id=3] " + CACHED.format(id=5), level="TRACE"),
    ],
}


@pytest.fixture(scope="module")
def all_(spark: SparkSession) -> dict[str, DataFrame]:
    return tables(spark, NIGHT) | {"timed": as_timed(events(spark, LOGS)).persist()}


@pytest.fixture(scope="module")
def told(all_: Mapping[str, DataFrame]) -> tuple[Entry, ...]:
    return entries.timeline(all_, "orders", 1).entries


def of(told: tuple[Entry, ...], what: str) -> list[Entry]:
    return [each for each in told if each.what == what]


def test_entries_are_in_order_of_time(told: tuple[Entry, ...]) -> None:
    assert [each.at for each in told] == sorted(each.at for each in told)
    assert {each.what for each in told} == {"line", "outage", "loss", "unclean", "absence", "audit"}


def test_lines_that_name_the_partition_in_their_text_are_its_own_and_others_are_not(told: tuple[Entry, ...]) -> None:
    assert [(each.who, each.said) for each in of(told, "line")][:2] == [
        ("controller 2", "unclean election asked for, AdminClientTriggered"),
        ("controller 2 epoch 6", "offline -> online, leader 3, epoch 5, ISR 3, version 8"),
    ]


def test_a_new_leader_says_what_it_had(told: tuple[Entry, ...]) -> None:
    (leads,) = [each for each in of(told, "line") if each.format == "B4"]

    assert leads.who == "broker 3"
    assert leads.said == (
        "leads, epoch 5, version 8, log end 969, high watermark 969, ISR 3; before: leader 1, epoch 4"
    )
    assert (leads.at, leads.path, leads.offset) == (moment(32), None, 0)


def test_what_all_brokers_are_told_alike_is_told_once(told: tuple[Entry, ...]) -> None:
    (cached,) = [each for each in of(told, "line") if each.format == "B9a"]

    assert (cached.who, cached.also, cached.at) == ("broker 2", ("broker 3",), moment(33))


def test_an_outage_stands_at_both_its_ends_with_how_well_each_is_known(told: tuple[Entry, ...]) -> None:
    begin, end = of(told, "outage")

    assert (begin.at, begin.mark, begin.error_ms) == (moment(2), "inferred", 22_000)
    assert begin.said == "no leader from here on: broker-failure, broker 1 led before"
    assert (end.at, end.mark) == (moment(32), "observed")
    assert end.said == "leader 3 can be used again, elected uncleanly, after 30.0 s"


def test_what_was_lost_and_what_must_not_be_stands_where_it_was(told: tuple[Entry, ...]) -> None:
    assert [each.said for each in of(told, "loss")] == [
        "broker 1 had more than leader 3 of epoch 5 (log ends 1000 and 969): 31 records cut off, of them at least 20 "
        "committed",
        "broker 2 had more than leader 3 of epoch 5 (log ends 979 and 969): 10 records cut off, of them at least 10 "
        "committed",
    ]
    assert [each.at for each in of(told, "audit")] == [moment(40), moment(50)]
    assert of(told, "unclean")[0].said.startswith("unclean election: 3 leads, last in sync were 1,2")


def test_brokers_that_were_assigned_come_and_go(told: tuple[Entry, ...]) -> None:
    assert [(each.at, each.said) for each in of(told, "absence")] == [
        (moment(10), "broker 1 is seen to be gone (failed)"),
        (moment(65), "broker 1 is back"),
    ]


def test_a_limit_is_kept_and_said(all_: Mapping[str, DataFrame]) -> None:
    cut = entries.timeline(all_, "orders", 1, limit=2)

    assert cut.more
    assert [each.what for each in cut.entries if each.what == "line"] == ["line", "line"]
    assert all(each.at <= moment(31) for each in cut.entries)


def test_a_stretch_of_time_is_kept(all_: Mapping[str, DataFrame]) -> None:
    part = entries.timeline(all_, "orders", 1, begin=moment(30), end=moment(32))

    assert {each.at for each in part.entries} == {moment(31), moment(32)}


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "means"), [("orders-1", ("orders", 1)), ("orders", ("orders", None))])
def test_a_name_is_a_partition_or_a_topic(
    all_: Mapping[str, DataFrame], name: str, means: tuple[str, int | None]
) -> None:
    assert known.find(all_, name) == means


def test_a_partition_without_a_known_leader_is_one_all_the_same(all_: Mapping[str, DataFrame]) -> None:
    assert known.find(all_, "orders-12") == ("orders", 12)


@pytest.mark.parametrize(
    ("name", "near"), [("order-1", "the nearest are orders"), ("orders-77", "the nearest are orders-0 to orders-2")]
)
def test_a_name_that_is_none_is_answered_with_the_nearest(all_: Mapping[str, DataFrame], name: str, near: str) -> None:
    with pytest.raises(NoSuchName, match=f"no partition or topic '{name}': {near}"):
        known.find(all_, name)


def test_a_topic_lists_its_partitions(all_: Mapping[str, DataFrame]) -> None:
    lives = known.lives(all_, "orders")

    assert [(each.partition, each.leader, each.leader_epoch, each.outages) for each in lives] == [
        (0, 1, 4, 2),
        (1, 3, 5, 1),
        (2, 1, 4, 1),  # what somebody wanted is no outage; what nobody explains is
    ]
    assert (lives[1].committed_lost, lives[1].cut_off, lives[1].elections) == (20, 31, 2)


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", [*GOLDEN, *KRAFT], ids=lambda each: each.format)
def test_every_line_of_every_version_can_be_told(golden: Any) -> None:
    rows = [row for row in events_of(log_line(golden)) if row["type"] not in (EventType.OTHER, EventType.CLOCK_BACK)]

    for row in rows:
        assert describe(row)
        assert "None" not in describe(row)


def test_times_of_a_timeline_can_be_printed_in_any_zone(told: tuple[Entry, ...]) -> None:
    assert Moments("Asia/Tokyo").full(told[0].at).startswith("2024-05-01 19:00:")
