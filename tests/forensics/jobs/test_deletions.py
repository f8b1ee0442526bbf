"""Topics with completed and blocked deletions, with a topic for each scenario."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs import deletions, timed

from .tables import as_timed, controller_line, events, line, moment, rows, timed_table


def said(seconds: float, message: str, *, level: str = "INFO") -> str:
    return line(seconds, f"[Topic Deletion Manager 1] {message}", level=level, logger="kafka.controller.X")


def replica(seconds: float, topic: str, partition: int, broker: int, before: str, after: str) -> str:
    message = f"Changed state of replica {broker} for partition {topic}-{partition} from {before} to {after}"
    return line(seconds, f"[Controller id=1 epoch=5] {message}", level="TRACE")


def born(seconds: float, topic: str, partition: int = 0) -> str:
    message = f"Changed partition {topic}-{partition} state from NonExistentPartition to NewPartition"
    return line(seconds, f"[Controller id=1 epoch=5] {message} with assigned replicas 1,2")


CONTROLLER = [
    controller_line(10, 1, "Starting topic deletion for topics smooth,blocked"),
    said(10.01, "Handling deletion for topics smooth,blocked"),
    said(10.02, "Deletion of topic smooth (re)started"),
    said(10.02, "Deletion of topic blocked (re)started"),
    said(12.5, "Deletion of topic smooth successfully completed"),
    line(
        13, "[ReplicaStateMachine controllerId=1] Dead Replicas ([Topic=blocked,Partition=0,Replica=3],"
        "[Topic=blocked,Partition=1,Replica=12]) found for topic blocked", level="DEBUG", logger="kafka.controller.X",
    ),
    said(13.1, "Halted deletion of topics blocked due to replica deletion failed"),
    said(20, "Deletion of topic blocked (re)started"),
    said(21, "Halted deletion of topics blocked due to replica deletion failed on 3"),
    said(22, "Not retrying deletion of topic blocked at this time since it is marked ineligible for deletion"),
    controller_line(32, 1, "Starting topic deletion for topics unexplained"),
    said(33, "Deletion failed for replicas [Topic=unexplained,Partition=0,Replica=13]. Halting deletion for topics "
         "Set(unexplained)", level="DEBUG"),
    said(33, "Halted deletion of topics unexplained"),
    said(34, "Not retrying deletion of topic unexplained at this time since it is marked ineligible for deletion"),
    # The same name, three times.
    controller_line(30, 1, "Starting topic deletion for topics again"),
    said(31, "Deletion of topic again successfully completed"),
    controller_line(40, 1, "Starting topic deletion for topics again"),
    said(40.1, "Deletion of topic again (re)started"),
    controller_line(60, 1, "Starting topic deletion for topics again"),
    # Only the end of the deletion is in the logs.
    said(5, "Deletion of topic middle successfully completed"),
    controller_line(35, 1, "Handling reassignment of partition moving-0 to new replicas 7,8"),
    controller_line(36, 1, "Starting topic deletion for topics moving"),
    said(36.1, "Halted deletion of topics moving due to topic reassignment in progress"),
    controller_line(37, 1, "Starting topic deletion for topics Set(in-a-set, in-a-set-2)"),
    controller_line(100, 1, "Processing automatic preferred replica leader election"),
]  # fmt: skip
STATE_CHANGE = [
    replica(10.1, "smooth", 0, 2, "OfflineReplica", "ReplicaDeletionStarted"),
    replica(10.2, "smooth", 0, 2, "ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
    replica(10.1, "blocked", 0, 2, "OfflineReplica", "ReplicaDeletionStarted"),
    replica(10.1, "blocked", 1, 2, "OfflineReplica", "ReplicaDeletionStarted"),
    replica(10.3, "blocked", 0, 2, "ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
    replica(10.3, "blocked", 1, 2, "ReplicaDeletionStarted", "ReplicaDeletionIneligible"),
    replica(10.1, "blocked", 2, 5, "OfflineReplica", "ReplicaDeletionStarted"),
    # Both within one millisecond.
    replica(10.1, "blocked", 2, 6, "OfflineReplica", "ReplicaDeletionStarted"),
    replica(10.1, "blocked", 2, 6, "ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
    born(50, "again"),
    # Not deletions: a replica is removed by a reassignment, and partitions are added.
    replica(10.1, "moved", 0, 2, "OfflineReplica", "ReplicaDeletionStarted"),
    born(11, "blocked", 7),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Mapping[str, list[dict[str, Any]]]:
    logs = {(1, Kind.CONTROLLER): CONTROLLER, (1, Kind.STATE_CHANGE): STATE_CHANGE, (7, Kind.CONTROLLER): CONTROLLER}
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for row in rows(deletions.deletions(as_timed(events(spark, logs))), "topic", "asked_at"):
        by_topic.setdefault(row["topic"], []).append(row)
    return by_topic


def test_deletion_lasts_from_request_to_end(found: Mapping[str, list[dict[str, Any]]]) -> None:
    assert found["smooth"] == [
        {
            "topic": "smooth", "asked_at": moment(10), "started_at": moment(10.02), "done_at": moment(12.5),
            "span_ms": 2500, "restarts": 0, "halts": 0, "reason": None, "blocked_by": [], "finished": True,
        }
    ]  # fmt: skip


def test_blocking_brokers_are_dead_failed_or_silent(found: Mapping[str, list[dict[str, Any]]]) -> None:
    (row,) = found["blocked"]

    # 3 and 12 are dead, 2 failed for partition 1, and 5 received the request and logged no result.
    assert row["blocked_by"] == [2, 3, 5, 12]
    assert (row["finished"], row["restarts"], row["halts"]) == (False, 1, 2)
    assert row["reason"] == "replica deletion failed on 3"
    assert (row["started_at"], row["done_at"]) == (moment(20), None)
    assert row["span_ms"] == 90_000  # to the last line of the controller


def test_deletion_that_is_not_retried_is_halted_once(found: Mapping[str, list[dict[str, Any]]]) -> None:
    (row,) = found["unexplained"]

    assert (row["halts"], row["reason"]) == (1, "it is marked ineligible for deletion")
    assert row["blocked_by"] == [13]


def test_reused_name_is_another_deletion(found: Mapping[str, list[dict[str, Any]]]) -> None:
    told = [(row["asked_at"], row["done_at"], row["finished"]) for row in found["again"]]

    # The end of the second deletion is not in the logs, but a new topic of the same name exists.
    assert told == [
        (moment(30), moment(31), True),
        (moment(40), None, True),
        (moment(60), None, False),
    ]
    assert [row["span_ms"] for row in found["again"]] == [1000, None, 40_000]


def test_request_before_the_logs_has_null_span(found: Mapping[str, list[dict[str, Any]]]) -> None:
    (row,) = found["middle"]

    assert (row["asked_at"], row["done_at"], row["span_ms"], row["finished"]) == (None, moment(5), None, True)


def test_moving_topic_is_blocked_by_new_replicas(found: Mapping[str, list[dict[str, Any]]]) -> None:
    (row,) = found["moving"]

    assert (row["blocked_by"], row["reason"]) == ([7, 8], "topic reassignment in progress")


def test_each_listed_topic_is_one_deletion(found: Mapping[str, list[dict[str, Any]]]) -> None:
    assert found.keys() == {
        "smooth", "blocked", "again", "middle", "moving", "in-a-set", "in-a-set-2", "unexplained",
    }  # fmt: skip


def test_last_name_of_truncated_list_is_dropped(spark: SparkSession) -> None:
    names = [f"topic-{number:04}" for number in range(500)]
    logs = {(1, Kind.CONTROLLER): [controller_line(1, 1, f"Starting topic deletion for topics {','.join(names)}")]}

    found = {row["topic"] for row in rows(deletions.deletions(as_timed(events(spark, logs))))}

    assert found < set(names)
    assert len(found) == 4096 // len("topic-0000,")


def test_kraft_deletion_is_found_by_topic_id(spark: SparkSession) -> None:
    removed = {"kind": "dump", "type": "topic-removed", "role": "controller", "at": moment(9)}
    made = timed_table(
        spark,
        [
            {"kind": "dump", "type": "topic-created", "topic": "a", "topic_id": "AAA", "life": 0, "at": moment(1)},
            removed | {"topic_id": "AAA", "file_id": 1},
            removed | {"topic_id": "AAA", "file_id": 2},
            removed | {"topic_id": "BBB"},
        ],
    )

    found = rows(deletions.deletions(timed.with_topic_names(made, made)), "topic")

    assert [(row["topic"], row["done_at"], row["finished"], row["span_ms"]) for row in found] == [
        ("BBB", moment(9), True, None),
        ("a", moment(9), True, None),
    ]


def test_kactl_log_gives_the_same_deletion(spark: SparkSession) -> None:
    from kactl.forensics.text.json_parser import read_kactl

    said = [
        {"kind": "topic", "time_ms": 1000, "what": "deletion started", "topic": "a", "controller_epoch": 3},
        {"kind": "topic", "time_ms": 2000, "what": "deletion halted", "topic": "a", "cause": "broker 3 is dead"},
        {"kind": "topic", "time_ms": 3000, "what": "deletion started", "topic": "a"},
        {"kind": "topic", "time_ms": 5000, "what": "deleted", "topic": "a"},
    ]
    read = [read_kactl(json.dumps(each).encode()) for each in said]
    lines = [
        columns | {"kind": "kactl", "role": "controller", "at": moment(time_ms / 1000)}
        for time_ms, _, columns in filter(None, read)
    ]

    (found,) = rows(deletions.deletions(timed_table(spark, lines)))

    assert (found["started_at"], found["done_at"]) == (moment(3), moment(5))
    assert (found["restarts"], found["halts"], found["reason"]) == (1, 1, "broker 3 is dead")
