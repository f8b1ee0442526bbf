"""Partitions that were reassigned to other replicas, with a topic for each scenario."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import reassignments, states

from .tables import as_timed, controller_line, events, line, moment, rows, table, timed_table


def asked(seconds: float, topic: str, target: str) -> str:
    return controller_line(seconds, 1, f"Handling reassignment of partition {topic}-0 to new replicas {target}")


def caught_up(seconds: float, topic: str, count: int, of: int) -> str:
    message = f"{count}/{of} replicas have caught up with the leader for partition {topic}-0 being reassigned"
    return controller_line(seconds, 1, f"{message}. Replica(s) 5 still need to catch up")


def written(seconds: float, topic: str, replicas: str) -> str:
    message = f"Sent LeaderAndIsr request LeaderAndIsr(leader=1) with new replica assignment {replicas} to leader 1"
    return line(seconds, f"[Controller id=1 epoch=5] {message} for partition being reassigned {topic}-0")


def written_before_1_0(seconds: float, topic: str, replicas: str) -> str:
    state = "(Leader:1,ISR:1,2,LeaderEpoch:7,ControllerEpoch:5)"
    message = f"sent LeaderAndIsr request {state} with new assigned replica list {replicas} to leader 1"
    return line(seconds, f"Controller 1 epoch 5 {message} for partition being reassigned [{topic},0]", level="TRACE")


def stored(seconds: float, topic: str, replicas: str, adding: str, removing: str) -> str:
    held = f"ReplicaAssignment(replicas={replicas}, addingReplicas={adding}, removingReplicas={removing})"
    return controller_line(seconds, 1, f"Successfully updated assignment of partition {topic}-0 to {held}")


def assigned(seconds: float, topic: str, replicas: str) -> str:
    """Returns the line in the format up to 2.3, or of 2.4 with the changes after the replicas."""
    return controller_line(
        seconds, 1, f"Updated assigned replicas for partition {topic}-0 being reassigned to {replicas}"
    )


def leader_stays(seconds: float, topic: str, replicas: str) -> str:
    message = f"Leader 1 for partition {topic}-0 being reassigned, is already in the new list of replicas {replicas}"
    return controller_line(seconds, 1, f"{message} and is alive")


def received(
    seconds: float, topic: str, epoch: int, replicas: list[int], adding: list[int], removing: list[int]
) -> str:
    message = (
        f"Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='{topic}', partitionIndex=0, "
        f"controllerEpoch=5, leader=2, leaderEpoch={epoch}, isr=[1, 2], zkVersion={epoch}, replicas={replicas}, "
        f"addingReplicas={adding}, removingReplicas={removing}, isNew=false) correlation id 7 from controller 1 epoch 5"
    )
    return line(seconds, f"[Broker id=2] {message}", level="TRACE")


def leads(seconds: float, topic: str, epoch: int, isr: str, adding: str, removing: str) -> str:
    message = f"Leader {topic}-0 starts at leader epoch {epoch} from offset 9 with high watermark 9 ISR [{isr}]"
    return line(
        seconds,
        f"[Broker id=2] {message} addingReplicas [{adding}] removingReplicas [{removing}]. Previous leader epoch was "
        f"{epoch - 1}.",
    )


def was(topic: str, *told: tuple[float, list[int] | None, list[int] | None]) -> list[dict[str, Any]]:
    """Returns states, each with its begin, replicas and ISR."""
    return [
        {
            "topic": topic,
            "partition": 0,
            "life": 0,
            "leader_epoch": 1,
            "partition_epoch": number,
            "leader": 1,
            "at": moment(seconds),
            "replicas": replicas,
            "isr": isr,
            "formats": [],
        }
        for number, (seconds, replicas, isr) in enumerate(told)
    ]


CONTROLLER = [
    asked(10, "old", "List(4, 5)"), caught_up(20, "old", 1, 2), caught_up(30.05, "old", 2, 2),
    asked(10, "oldest", "List(4, 5)"), caught_up(20, "oldest", 1, 2), caught_up(30.05, "oldest", 2, 2),
    asked(10, "never", "4,5"),
    asked(10, "overtaken", "4"), asked(20, "overtaken", "5"),
    asked(10, "said-again", "4"), asked(15, "said-again", "4"),
    asked(10, "there-and-back", "4"), asked(20, "there-and-back", "1"),
    stored(10, "stored", "2,3,1", "3", "1"), leader_stays(30, "stored", "2,3"), stored(40, "stored", "2,3", "", ""),
    stored(50, "stored", "1,3,2", "1", "2"), stored(55, "stored", "2,3,1", "2", "1"),
    stored(60, "stored", "2,3", "", ""),
    asked(10, "assigned", "4,5"), assigned(10.1, "assigned", "4,5,1,2 "), assigned(30, "assigned", "4,5 "),
    assigned(10, "in-2.4", "3,2 (addingReplicas: 3, removingReplicas: 1)"),
    assigned(40, "in-2.4", "3,2 (addingReplicas: , removingReplicas: )"),
    controller_line(50, 1, "Target replicas 4,5 have all caught up with the leader for reassigning partition tail-0"),
    controller_line(100, 1, "Processing automatic preferred replica leader election"),
]  # fmt: skip
STATE_CHANGE = [
    written(10.1, "old", "4,5,1,2"), written(30.1, "old", "4,5"),
    written_before_1_0(10.1, "oldest", "4,5,1,2"), written_before_1_0(30.1, "oldest", "4,5"),
    received(10, "new", 5, [2, 3, 1], [3], [1]),
    received(40, "new", 6, [2, 3], [], []),
    received(40.5, "new", 5, [2, 3, 1], [3], [1]),  # of a slow broker
    received(10, "still", 5, [1, 2], [], []),
    leads(10, "info", 5, "1,2", "3", "1"), leads(40, "info", 6, "2,3", "", ""),
    leads(10, "given-up", 5, "1,2", "3", "1"), leads(40, "given-up", 6, "1,2", "", ""),
    leads(10, "fewer", 5, "1,2", "", "1"), leads(10.5, "fewer", 6, "2", "", ""),
]  # fmt: skip
STATES = [
    *was("old", (0, [1, 2], [1, 2]), (10.1, [4, 5, 1, 2], [1, 2]), (20, [4, 5, 1, 2], [1, 2, 4]),
         (30, [4, 5, 1, 2], [1, 2, 4, 5]), (30.2, [4, 5], [4, 5])),
    *was("oldest", (0, [1, 2], [1, 2]), (30, None, [1, 2, 4, 5]), (30.2, None, [4, 5])),
    *was("new", (0, [1, 2], [1, 2]), (10, [2, 3, 1], [1, 2]), (30, [2, 3, 1], [1, 2, 3]), (40, [2, 3], [2, 3])),
    *was("info", (0, [1, 2], [1, 2])),
    *was("stored", (0, [1, 2], [1, 2])),
    *was("assigned", (0, [1, 2], [1, 2])),
    *was("in-2.4", (0, [1, 2], [1, 2])),
    *was("given-up", (0, [1, 2], [1, 2])),
    *was("fewer", (0, [1, 2], [1, 2])),
    *was("never", (0, [1, 2], [1, 2]), (20, [4, 5, 1, 2], [1, 2, 4]), (30, [4, 5, 1, 2], [1, 2])),
    *was("overtaken", (0, [1], [1]), (30, [5], [5])),
    *was("said-again", (0, [1], [1]), (30, [4], [4])),
    *was("there-and-back", (0, [1], [1]), (15, [4], [4]), (25, [1], [1])),
]  # fmt: skip
RECORD = {"kind": "dump", "role": "controller", "type": "leadership", "topic": "kraft", "partition": 0, "life": 0}
DUMP = [
    RECORD
    | {
        "type": "partition-created", "at": moment(0), "replicas": [1, 2], "isr": [1, 2], "adding": [], "removing": [],
        "leader": 1, "leader_epoch": 0, "partition_epoch": 0, "offset": 1,
    },
    RECORD | {"at": moment(10), "replicas": [3, 2, 1], "adding": [3], "removing": [1], "offset": 2},
    RECORD | {"at": moment(20), "isr": [1, 2, 3], "offset": 3},
    RECORD
    | {
        "at": moment(21), "replicas": [3, 2], "isr": [2, 3], "leader": 2, "adding": [], "removing": [], "offset": 4,
    },
    # A broker that logs it later.
    {
        "kind": "server", "role": "broker", "type": "leads", "topic": "kraft", "partition": 0, "life": 0,
        "at": moment(22), "leader_epoch": 0, "isr": [1, 2], "adding": [3], "removing": [1],
    },
]  # fmt: skip
STATES += was("kraft", (0, [1, 2], [1, 2]), (10, [3, 2, 1], [1, 2]), (20, [3, 2, 1], [1, 2, 3]), (21, [3, 2], [2, 3]))

Found = Mapping[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    # The controller's lines are in two files.
    logs = {(1, Kind.CONTROLLER): CONTROLLER, (1, Kind.STATE_CHANGE): STATE_CHANGE, (7, Kind.CONTROLLER): CONTROLLER}
    timed = as_timed(events(spark, logs)).unionByName(timed_table(spark, DUMP))
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for row in rows(reassignments.reassignments(timed, table(spark, states.COLUMNS, STATES)), "topic", "started_at"):
        by_topic.setdefault(row["topic"], []).append(row)
    return by_topic


def test_written_assignment_shows_the_end_up_to_2_3(found: Found) -> None:
    assert found["old"] == [
        {
            "topic": "old", "partition": 0, "life": 0, "started_at": moment(10), "caught_up_at": moment(30.05),
            "done_at": moment(30.1), "span_ms": 20_100, "origin": [1, 2], "target": [4, 5], "copy_ms": 20_050,
            "waits": 1, "waiting_for": [], "finished": True,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "started", "caught_up", "done", "origin", "target"),
    [
        pytest.param("new", 10, 30, 40, [1, 2], [2, 3], id="by what requests say, also a late one"),
        pytest.param("info", 10, None, 40, [1, 2], [2, 3], id="by what leaders say at INFO"),
        pytest.param("fewer", 10, 10, 10.5, [1, 2], [2], id="with nobody to add"),
        pytest.param("kraft", 10, 20, 21, [1, 2], [3, 2], id="by the metadata log, whatever brokers say later"),
    ],
)
def test_no_added_or_removed_replicas_show_the_end_from_2_4(
    found: Found,
    topic: str,
    started: float,
    caught_up: float | None,
    done: float,
    origin: list[int],
    target: list[int],
) -> None:
    (row,) = found[topic]

    assert (row["started_at"], row["done_at"]) == (moment(started), moment(done))
    assert row["caught_up_at"] == (None if caught_up is None else moment(caught_up))
    assert (row["origin"], sorted(row["target"])) == (origin, sorted(target))
    assert (row["finished"], row["waiting_for"]) == (True, [])
    assert row["span_ms"] == (done - started) * 1000


def test_replicas_are_known_from_requests_before_1_0(found: Found) -> None:
    (row,) = found["oldest"]

    assert (row["origin"], row["target"], row["done_at"]) == ([1, 2], [4, 5], moment(30.1))


def test_stored_assignments_show_reassignments_without_requests(found: Found) -> None:
    first, turned, back = found["stored"]

    assert (first["started_at"], first["caught_up_at"], first["done_at"]) == (moment(10), moment(30), moment(40))
    assert (first["origin"], first["target"], first["finished"]) == ([1, 2], [2, 3], True)
    # Another target while it was under way.
    assert (turned["target"], turned["finished"], turned["span_ms"]) == ([1, 3], False, 5_000)
    assert (back["target"], back["done_at"], back["finished"]) == ([2, 3], moment(60), True)


@pytest.mark.parametrize(("topic", "done"), [("assigned", 30), ("in-2.4", 40)])
def test_stored_assignment_shows_the_end_up_to_2_4(found: Found, topic: str, done: float) -> None:
    (row,) = found[topic]

    assert (row["started_at"], row["done_at"], row["finished"]) == (moment(10), moment(done), True)


def test_cancelled_reassignment_is_not_finished(found: Found) -> None:
    (row,) = found["given-up"]

    assert (row["finished"], row["done_at"], row["span_ms"], row["waiting_for"]) == (False, None, 30_000, [3])


def test_open_reassignment_lists_missing_replicas(found: Found) -> None:
    (row,) = found["never"]

    # 4 had caught up once; the controller's last line is at 100.
    assert (row["finished"], row["waiting_for"], row["span_ms"]) == (False, [5], 90_000)
    assert (row["caught_up_at"], row["copy_ms"]) == (None, None)


def test_another_target_is_another_reassignment(found: Found) -> None:
    told = [(row["target"], row["finished"], row["span_ms"]) for row in found["overtaken"]]

    assert told == [([4], False, 10_000), ([5], True, 10_000)]


def test_repeated_request_is_the_same_reassignment(found: Found) -> None:
    (row,) = found["said-again"]

    assert (row["started_at"], row["done_at"]) == (moment(10), moment(30))


def test_move_and_return_are_two_reassignments(found: Found) -> None:
    told = [(row["origin"], row["target"], row["done_at"]) for row in found["there-and-back"]]

    assert told == [([1], [4], moment(15)), ([4], [1], moment(25))]


def test_reassignment_from_before_the_logs_has_its_end(found: Found) -> None:
    (row,) = found["tail"]

    assert (row["started_at"], row["caught_up_at"], row["target"]) == (None, moment(50), [4, 5])
    assert (row["finished"], row["waiting_for"], row["span_ms"]) == (None, [], None)


def test_unmoved_partition_has_no_row(found: Found) -> None:
    assert "still" not in found
