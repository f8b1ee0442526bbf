"""Timeline of one partition, from lines as Kafka writes them and results of the jobs."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.timeline import entries, lookup
from kactl.forensics.timeline.describe import describe
from kactl.forensics.timeline.entries import Entry
from kactl.forensics.timeline.lookup import NoSuchName
from kactl.forensics.wording import Moments
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
def partition_entries(all_: Mapping[str, DataFrame]) -> tuple[Entry, ...]:
    return entries.timeline(all_, "orders", 1).entries


def of(partition_entries: tuple[Entry, ...], kind: str) -> list[Entry]:
    return [entry for entry in partition_entries if entry.what == kind]


def test_entries_are_in_order_of_time(partition_entries: tuple[Entry, ...]) -> None:
    assert [entry.at for entry in partition_entries] == sorted(entry.at for entry in partition_entries)
    assert {entry.what for entry in partition_entries} == {"line", "outage", "loss", "unclean", "absence", "audit"}


def test_lines_with_the_partition_in_their_text_are_included(partition_entries: tuple[Entry, ...]) -> None:
    assert [(entry.who, entry.said) for entry in of(partition_entries, "line")][:2] == [
        ("controller 2", "unclean election requested, AdminClientTriggered"),
        ("controller 2 epoch 6", "offline -> online, leader 3, epoch 5, ISR 3, version 8"),
    ]


def test_new_leader_is_described_with_offsets_and_isr(partition_entries: tuple[Entry, ...]) -> None:
    (leads,) = [entry for entry in of(partition_entries, "line") if entry.format == "B4-3.3"]

    assert leads.who == "broker 3"
    assert leads.said == (
        "leads, epoch 5, version 8, log end 969, high watermark 969, ISR 3; before: leader 1, epoch 4"
    )
    assert (leads.at, leads.path, leads.offset) == (moment(32), None, 0)


def test_equal_metadata_of_all_brokers_is_one_entry(partition_entries: tuple[Entry, ...]) -> None:
    (cached,) = [entry for entry in of(partition_entries, "line") if entry.format == "B9a"]

    assert (cached.who, cached.also, cached.at) == ("broker 2", ("broker 3",), moment(33))


def test_outage_has_entries_at_both_ends_with_certainty(partition_entries: tuple[Entry, ...]) -> None:
    begin, end = of(partition_entries, "outage")

    assert (begin.at, begin.mark, begin.error_ms) == (moment(2), "inferred", 22_000)
    assert begin.said == "no leader from here on: broker-failure, broker 1 led before"
    assert (end.at, end.mark) == (moment(32), "observed")
    assert end.said == "leader 3 is available again, elected uncleanly, after 30.0 s"


def test_losses_and_violations_are_at_their_times(partition_entries: tuple[Entry, ...]) -> None:
    assert [entry.said for entry in of(partition_entries, "loss")] == [
        "broker 1 had more than leader 3 of epoch 5 (log ends 1000 and 969): 31 records truncated, of them at least 20 "
        "committed",
        "broker 2 had more than leader 3 of epoch 5 (log ends 979 and 969): 10 records truncated, of them at least 10 "
        "committed",
    ]
    assert [entry.at for entry in of(partition_entries, "audit")] == [moment(40), moment(50)]
    assert of(partition_entries, "unclean")[0].said.startswith("unclean election: 3 leads, last in sync were 1,2")


def test_absences_of_assigned_brokers_are_included(partition_entries: tuple[Entry, ...]) -> None:
    assert [(entry.at, entry.said) for entry in of(partition_entries, "absence")] == [
        (moment(10), "broker 1 is detected as absent (failed)"),
        (moment(65), "broker 1 is back"),
    ]


def test_limit_cuts_the_timeline_and_is_reported(all_: Mapping[str, DataFrame]) -> None:
    cut = entries.timeline(all_, "orders", 1, limit=2)

    assert cut.more
    assert [entry.what for entry in cut.entries if entry.what == "line"] == ["line", "line"]
    assert all(entry.at <= moment(31) for entry in cut.entries)


def test_timeline_is_restricted_to_an_interval(all_: Mapping[str, DataFrame]) -> None:
    part = entries.timeline(all_, "orders", 1, begin=moment(30), end=moment(32))

    assert {entry.at for entry in part.entries} == {moment(31), moment(32)}


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "means"), [("orders-1", ("orders", 1)), ("orders", ("orders", None))])
def test_name_is_resolved_to_partition_or_topic(
    all_: Mapping[str, DataFrame], name: str, means: tuple[str, int | None]
) -> None:
    assert lookup.find(all_, name) == means


def test_partition_without_known_leader_is_resolved(all_: Mapping[str, DataFrame]) -> None:
    assert lookup.find(all_, "orders-12") == ("orders", 12)


@pytest.mark.parametrize(
    ("name", "near"), [("order-1", "nearest: orders"), ("orders-77", "nearest: orders-0 to orders-2")]
)
def test_unknown_name_is_rejected_with_the_nearest(all_: Mapping[str, DataFrame], name: str, near: str) -> None:
    with pytest.raises(NoSuchName, match=f"no partition or topic '{name}': {near}"):
        lookup.find(all_, name)


def test_range_of_one_partition_is_its_name() -> None:
    assert [lookup.span("orders", 0, last) for last in (0, 2)] == ["orders-0", "orders-0 to orders-2"]


def test_topic_lists_its_partitions(all_: Mapping[str, DataFrame]) -> None:
    incarnations = lookup.incarnations(all_, "orders")

    assert [
        (incarnation.partition, incarnation.leader, incarnation.leader_epoch, incarnation.outages)
        for incarnation in incarnations
    ] == [
        (0, 1, 4, 2),
        (1, 3, 5, 1),
        (2, 1, 4, 1),  # a requested change is no outage; an unexplained one is
    ]
    assert (incarnations[1].committed_lost, incarnations[1].cut_off, incarnations[1].elections) == (20, 31, 2)


# -- descriptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", [*GOLDEN, *KRAFT], ids=lambda each: each.format)
def test_every_line_of_every_version_has_a_description(golden: Any) -> None:
    rows = [row for row in events_of(log_line(golden)) if row["type"] not in (EventType.OTHER, EventType.CLOCK_BACK)]

    for row in rows:
        assert describe(row)
        assert "None" not in describe(row)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("C12d", "preferred election failed"),
        ("C10j", "reassignment failed: controller has moved to another broker"),
        ("C10h", "assigned to 4,5,1, adding 4,5, removing 1"),
        ("C11c", "ISR update rejected: bad ZK version"),
        ("I4", "ISR update rejected: version 12 is outdated"),
        ("P4a", "transition offline -> online failed: No broker in ISR for partition a-b-0-3 is alive."),
    ],
)
def test_failures_are_described_with_what_failed(form: str, expected: str) -> None:
    golden = next(each for each in GOLDEN if each.format == form)

    assert describe(events_of(log_line(golden))[0]) == expected


def test_times_are_printed_in_any_zone(partition_entries: tuple[Entry, ...]) -> None:
    assert Moments("Asia/Tokyo").full(partition_entries[0].at).startswith("2024-05-01 19:00:")
