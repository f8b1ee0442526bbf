"""States computed from lines, with a partition for each case in one table."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.jobs.states import JOB, states

from . import said
from .tables import as_timed, events, line, moment, rows, timed_table

States = dict[str, list[dict[str, Any]]]
C1, B1, B2, B3 = (1, Kind.STATE_CHANGE), (1, Kind.SERVER), (2, Kind.SERVER), (3, Kind.SERVER)
LOGS: dict[tuple[int, Kind], list[str]] = {C1: [], (1, Kind.CONTROLLER): [], B1: [], B2: [], B3: []}
S, L = LOGS[C1], LOGS[1, Kind.CONTROLLER]

# made-0: created, its leader died, and the next one shrank and grew the ISR. All brokers log it.
S += [
    said.new(0, "made-0"),
    said.online(0.1, "made-0", 1, 0, (1, 2, 3), 0, before=said.NEW),
    said.online(10, "made-0", 2, 1, (2, 3), 1, before=said.OFFLINE),
]
LOGS[B1].append(said.leads(0.2, 1, "made-0", 0, (1, 2, 3)))
LOGS[B2] += [
    said.leads(10.2, 2, "made-0", 1, (2, 3)),
    said.isr_updated(20, 2, "made-0", (2,), 2),
    said.isr_updated(30, 2, "made-0", (2, 1), 3),
]
LOGS[B3].append(said.follows(10.3, 3, "made-0", 1))

# heard-0: only brokers log it, and one of them receives it again much later.
LOGS[B2].append(said.received(5, 2, "heard-0", said.state(3, 4, (3, 2), 9, (3, 2)), 7))
LOGS[B3] += [said.leads(4.9, 3, "heard-0", 4, (3, 2)), said.leads(500, 3, "heard-0", 4, (3, 2))]

# late-0: the leader is known only from its "ISR updated", before and after the leadership of another broker.
LOGS[B1] += [said.isr_updated(1, 1, "late-0", (1, 2), 7), said.isr_updated(9, 1, "late-0", (1,), 12)]
S.append(said.online(5, "late-0", 2, 6, (2, 1), 11))

# cut-0: 2.6 logs no version when a controller shrinks the ISR; afterwards the leader changes it.
S += [said.online(1, "cut-0", 1, 2, (1, 2, 3), 5), said.cut(4, "cut-0", 1, 3, (1, 2), 3)]
LOGS[B1].append(said.isr_updated(8, 1, "cut-0", (1,), 7))

# old-0: 1.0 logs the leader, and sends the epoch a moment later; the last one was never sent.
S += [
    said.online_unnumbered(1, "old-0", 1, before=said.NEW),
    said.sent(1.002, "old-0", said.state(1, 0, (1, 2), 0), 1),
    said.online_unnumbered(50, "old-0", 2, before=said.OFFLINE),
    said.sent(50.002, "old-0", said.state(2, 1, (2,), 1), 2),
    said.online_unnumbered(90, "old-0", 1),
]

# raised-0: a reassignment raised the epoch, and sent it.
L.append(
    line(
        3,
        "[Controller id=1] Updated leader epoch for partition raised-0 to 8",
        logger="kafka.controller.KafkaController",
    )
)
S.append(said.sent(3.1, "raised-0", said.state(2, 8, (2, 3), 15, (2, 3)), 2))

# written-0: from 2.7 on, the controller writes the ISR, and the leader receives it.
S.append(said.online(1, "written-0", 1, 1, (1, 2), 1))
L.append(said.written(5, "written-0", 1, 1, (1,), 2))
LOGS[B1].append(said.isr_updated(5.1, 1, "written-0", (1,), 2))

# gone-0: deleted.
S.append(said.online(1, "gone-0", 1, 0, (1,), 0, before=said.NEW))
LOGS[B2].append(
    line(
        60,
        "[Broker id=2] Deleted partition gone-0 from metadata cache in response to UpdateMetadata request sent by "
        "controller 1 epoch 5 with correlation id 9",
        level="TRACE",
    )
)


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> States:
    logs = LOGS | {(1, Kind.KACTL): S}  # copied lines are duplicates
    return by_topic(rows(states(as_timed(events(spark, logs)))))


def by_topic(listed: list[dict[str, Any]]) -> States:
    """Groups states by topic, in the order of versions, or of time if there are none."""
    found: States = {}
    for row in sorted(listed, key=lambda row: (row["partition_epoch"] or 0, row["at"])):
        found.setdefault(row["topic"], []).append(row)
    return found


def numbers(of: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["leader_epoch"], row["partition_epoch"], row["leader"], row["isr"]) for row in of]


def times(of: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    return [(row["at"], row["told_by"]) for row in of]


def test_lines_about_one_state_give_one_row(found: States) -> None:
    assert numbers(found["made"]) == [(0, 0, 1, [1, 2, 3]), (1, 1, 2, [2, 3]), (1, 2, 2, [2]), (1, 3, 2, [2, 1])]


def test_controller_line_dates_the_state(found: States) -> None:
    assert times(found["made"]) == [
        (moment(0.1), "controller"),
        (moment(10), "controller"),
        (moment(20), "broker"),
        (moment(30), "broker"),
    ]


def test_assignment_holds_until_the_next(found: States) -> None:
    assert [row["replicas"] for row in found["made"]] == [[1, 2, 3]] * 4
    assert [row["replicas"] for row in found["late"]] == [None] * 3


def test_all_formats_of_a_state_are_listed(found: States) -> None:
    assert [row["formats"] for row in found["made"]] == [["B4", "P2b"], ["B4", "B5", "P2b"], ["I3"], ["I3"]]


def test_from_state_is_that_of_the_line(found: States) -> None:
    assert [row["from_state"] for row in found["made"]] == [said.NEW, said.OFFLINE, None, None]
    assert [row["controller_epoch"] for row in found["made"]] == [5, 5, None, None]


def test_earliest_broker_line_dates_the_state(found: States) -> None:
    (row,) = found["heard"]

    assert numbers([row]) == [(4, 9, 3, [3, 2])]
    assert times([row]) == [(moment(4.9), "broker")]
    assert row["replicas"] == [3, 2]


def test_isr_update_belongs_to_an_epoch_of_its_leader(found: States) -> None:
    assert numbers(found["late"]) == [(None, 7, 1, [1, 2]), (6, 11, 2, [2, 1]), (None, 12, 1, [1])]


def test_isr_cut_without_version_is_no_later_change(found: States) -> None:
    assert sorted(numbers(found["cut"]), key=str) == [
        (2, 5, 1, [1, 2, 3]),
        (3, 7, 1, [1]),
        (3, None, 1, [1, 2]),
    ]


def test_leader_without_epoch_is_the_next_sent_one(found: States) -> None:
    told = [(*numbers([row])[0], row["from_state"], row["told_by"]) for row in found["old"]]

    assert sorted(told, key=str) == [
        (0, 0, 1, [1, 2], said.NEW, "controller"),
        (1, 1, 2, [2], said.OFFLINE, "controller"),
        (None, None, 1, None, said.ONLINE, "controller"),
    ]


def test_raised_epoch_is_dated_by_its_line(found: States) -> None:
    assert numbers(found["raised"]) == [(8, 15, 2, [2, 3])]
    assert times(found["raised"]) == [(moment(3), "controller")]


def test_controller_line_dates_its_isr(found: States) -> None:
    assert numbers(found["written"]) == [(1, 1, 1, [1, 2]), (1, 2, 1, [1])]
    assert times(found["written"])[1] == (moment(5), "controller")


def test_deletion_is_a_separate_state(found: States) -> None:
    assert [(row["leader"], row["at"]) for row in found["gone"]] == [(1, moment(1)), (-2, moment(60))]


# -- KRaft -------------------------------------------------------------------------------------------------------------

CREATED, CHANGED = EventType.PARTITION_CREATED, EventType.LEADERSHIP
FIRST: dict[str, Any] = {
    "type": CREATED,
    "leader": 1,
    "isr": [1, 2],
    "replicas": [1, 2],
    "leader_epoch": 0,
    "partition_epoch": 0,
}


def record(seconds: float, topic: str, *, offset: int = 0, **what: Any) -> dict[str, Any]:
    """Returns a record of the metadata log, as ingest reads it."""
    form = "PARTITION_RECORD" if what["type"] == CREATED else "PARTITION_CHANGE_RECORD"
    place = {"file_id": 1, "offset": offset, "kind": "dump", "role": "controller", "format": form}
    return place | {"topic": topic, "partition": 0, "life": 0, "at": moment(seconds), **what}


def said_by_log(seconds: float, topic: str, **what: Any) -> dict[str, Any]:
    """Returns a line of a KRaft controller's log."""
    place = {"file_id": 2, "offset": 0, "kind": "controller", "role": "controller", "speaker": 9, "controller": 9}
    return place | {
        "type": CHANGED,
        "format": "K6b",
        "topic": topic,
        "partition": 0,
        "life": 0,
        "at": moment(seconds),
        **what,
    }


RECORDS = [
    record(0, "whole", **FIRST),
    record(5, "whole", type=CHANGED, isr=[1]),
    record(6, "whole", type=CHANGED, leader=-1),
    # Both within one millisecond, in the order of the file.
    record(9, "whole", type=CHANGED, leader=2, isr=[2], recovery="RECOVERING", offset=1),
    record(9, "whole", type=CHANGED, recovery="RECOVERED", offset=2),
    record(12, "whole", type=CHANGED, leader=2),
    # A snapshot, with the state at its time.
    record(0, "held", **FIRST | {"leader_epoch": 7, "partition_epoch": 20}),
    record(3, "held", type=CHANGED, leader=2),
    # The state before the dump begins is unknown.
    record(1, "cut", type=CHANGED, isr=[2]),
    record(2, "cut", type=CHANGED, leader=3),
    # The controller's own log contains the changed fields.
    said_by_log(1, "log", leader=1, isr=[1, 2], leader_epoch=3, partition_epoch=10, prev_partition_epoch=9),
    said_by_log(2, "log", isr=[1], partition_epoch=11, prev_partition_epoch=10),
    said_by_log(3, "log", leader=2, leader_epoch=4, partition_epoch=12, prev_partition_epoch=11),
    # Version 13 is missing.
    said_by_log(4, "log", leader=3, leader_epoch=6, partition_epoch=14, prev_partition_epoch=13),
]


@pytest.fixture(scope="module")
def in_kraft(spark: SparkSession) -> States:
    twice = [each | {"file_id": 3} for each in RECORDS if each["kind"] == "dump"]
    return by_topic(rows(states(timed_table(spark, [*RECORDS, *twice]))))


def test_kraft_records_get_epochs_and_unchanged_fields(in_kraft: States) -> None:
    assert numbers(in_kraft["whole"]) == [
        (0, 0, 1, [1, 2]),
        (0, 1, 1, [1]),
        (1, 2, -1, [1]),
        (2, 3, 2, [2]),
        (2, 4, 2, [2]),
        (3, 5, 2, [2]),
    ]
    assert [row["recovery"] for row in in_kraft["whole"]] == [None, None, None, "RECOVERING", "RECOVERED", "RECOVERED"]
    assert {row["told_by"] for row in in_kraft["whole"]} == {"controller"}


def test_snapshot_has_state_but_no_time(in_kraft: States) -> None:
    assert numbers(in_kraft["held"]) == [(7, 20, 1, [1, 2]), (8, 21, 2, [1, 2])]
    assert [row["told_by"] for row in in_kraft["held"]] == ["broker", "controller"]


def test_records_without_creation_have_no_epochs(in_kraft: States) -> None:
    assert numbers(in_kraft["cut"]) == [(None, None, None, [2]), (None, None, 3, [2])]


def test_kraft_lines_keep_unnamed_fields_unless_one_is_missing(in_kraft: States) -> None:
    assert numbers(in_kraft["log"]) == [
        (3, 10, 1, [1, 2]),
        (3, 11, 1, [1]),
        (4, 12, 2, [1]),
        (6, 14, 3, None),
    ]


def test_result_has_the_declared_columns(spark: SparkSession) -> None:
    assert states(timed_table(spark, [])).schema.fieldNames() == [each.name for each in JOB.columns]
