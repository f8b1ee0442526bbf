"""Logs with JSON: KRaft's metadata log as the dump tool prints it, and kactl's own log."""

import datetime
import io
import json
from typing import Any

import pyarrow as pa
import pytest

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.text import json_parser
from kactl.forensics.text.columns import WRITTEN

TOPIC_ID = "AbC-dEf_GhIjKlMnOpQrSt"


def dumped(kind: str, *, offset: int = 1, **data: Any) -> str:
    payload = json.dumps({"type": kind, "version": 0, "data": data}, separators=(",", ":"))
    return (
        f"| offset: {offset} CreateTime: 1714550400123 keySize: -1 valueSize: 42 sequence: -1 headerKeys: [] "
        f"payload: {payload}\n"
    )


def events_of(text: str, layout: str, *, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    file = io.BytesIO(text.encode())
    file.seek(max(0, start - 1))
    kind = Kind.DUMP if layout == "payloads" else Kind(layout)
    found = list(json_parser.events(file, layout, file_id=1, kind=kind, broker=None, start=start, end=end))
    rows: list[dict[str, Any]] = pa.Table.from_batches(found, WRITTEN).to_pylist()
    return rows


DUMPED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "TOPIC_RECORD": ({"name": "a", "topicId": TOPIC_ID}, {"type": "topic-created", "topic": "a", "topic_id": TOPIC_ID}),
    "REMOVE_TOPIC_RECORD": ({"topicId": TOPIC_ID}, {"type": "topic-removed", "topic_id": TOPIC_ID}),
    "PARTITION_RECORD": (
        {
            "partitionId": 3, "topicId": TOPIC_ID, "replicas": [1, 2], "isr": [1, 2], "removingReplicas": [],
            "addingReplicas": [2], "leader": 1, "leaderRecoveryState": 0, "leaderEpoch": 0, "partitionEpoch": 0,
        },
        {
            "type": "partition-created", "topic_id": TOPIC_ID, "partition": 3, "replicas": [1, 2], "isr": [1, 2],
            "adding": [2], "removing": [], "leader": 1, "recovery": "RECOVERED", "leader_epoch": 0,
            "partition_epoch": 0,
        },
    ),
    "PARTITION_CHANGE_RECORD": (
        {"partitionId": 3, "topicId": TOPIC_ID, "isr": [1], "leader": -1},
        {"type": "leadership", "topic_id": TOPIC_ID, "partition": 3, "isr": [1], "leader": -1, "leader_epoch": None},
    ),
    "PARTITION_CHANGE_RECORD unchanged leader": (
        {"partitionId": 3, "topicId": TOPIC_ID, "isr": [1], "leader": -2},
        {"type": "leadership", "isr": [1], "leader": None},
    ),
    "REGISTER_BROKER_RECORD": (
        {"brokerId": 2, "brokerEpoch": 99},
        {"type": "broker-registered", "broker": 2, "broker_epoch": 99},
    ),
    "FENCE_BROKER_RECORD": ({"id": 2, "epoch": 99}, {"type": "broker-fenced", "broker": 2, "broker_epoch": 99}),
    "UNFENCE_BROKER_RECORD": ({"id": 2, "epoch": 99}, {"type": "broker-unfenced", "broker": 2}),
    "BROKER_REGISTRATION_CHANGE_RECORD": (
        {"brokerId": 2, "brokerEpoch": 99, "fenced": 1},
        {"type": "broker-fenced", "broker": 2},
    ),
    "BROKER_REGISTRATION_CHANGE_RECORD unfenced": (
        {"brokerId": 2, "brokerEpoch": 99, "fenced": -1},
        {"type": "broker-unfenced", "broker": 2},
    ),
    "BROKER_REGISTRATION_CHANGE_RECORD stopping": (
        {"brokerId": 2, "brokerEpoch": 99, "inControlledShutdown": 1},
        {"type": "broker-stopping", "broker": 2},
    ),
    "NO_OP_RECORD": ({}, {"type": "other"}),
    "FEATURE_LEVEL_RECORD": ({"name": "metadata.version", "featureLevel": 19}, {"type": "other"}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "data", "columns"), [(name, *both) for name, both in DUMPED.items()], ids=DUMPED)
def test_record_of_the_metadata_log_fills_its_columns(name: str, data: dict[str, Any], columns: dict[str, Any]) -> None:
    (event,) = events_of(dumped(name.split(" ")[0], **data), "dump")

    assert {column: event[column] for column in columns} == columns
    assert event["ts"] == datetime.datetime(2024, 5, 1, 8, 0, 0, 123_000, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "line",
    [
        "something else",
        dumped("PARTITION_RECORD").replace('"data"', '"data').strip(),
    ],
)
def test_line_without_a_record_is_unparsed(line: str) -> None:
    (event,) = events_of(line + "\n", "dump")

    assert (event["type"], event["text"]) == ("unparsed", line)


def batch(offset: int, *, time_ms: int) -> str:
    return (
        f"baseOffset: {offset} lastOffset: {offset} count: 1 baseSequence: -1 partitionLeaderEpoch: 2 isControl: false "
        f"position: 90 CreateTime: {time_ms} size: 83 magic: 2 compresscodec: none crc: 7 isvalid: true\n"
    )


def payload(kind: str, **data: Any) -> str:
    return " " + dumped(kind, **data).partition("headerKeys: [] ")[2]


# As printed with --skip-record-metadata.
PAYLOADS = (
    "Dumping /data/__cluster_metadata-0/00000000000000000000.log\nStarting offset: 0\n"
    + batch(3, time_ms=1_714_550_400_001)
    + "\n"
    + batch(4, time_ms=1_714_550_400_123)
    + payload("TOPIC_RECORD", name="a", topicId=TOPIC_ID)
    + payload("PARTITION_RECORD", partitionId=3, topicId=TOPIC_ID, leader=2)
    + batch(6, time_ms=1_714_550_401_000)
    + payload("FENCE_BROKER_RECORD", id=2, epoch=99)
)


def test_payloads_without_metadata_have_the_time_of_their_batch() -> None:
    rows = [row for row in events_of(PAYLOADS, "payloads") if row["type"] != "other"]

    assert [(row["type"], row["ts"].timestamp()) for row in rows] == [
        ("topic-created", 1_714_550_400.123),
        ("partition-created", 1_714_550_400.123),
        ("broker-fenced", 1_714_550_401.0),
    ]
    assert (rows[1]["partition"], rows[1]["leader"], rows[2]["broker_epoch"]) == (3, 2, 99)


def test_payloads_belong_to_the_split_of_their_batch() -> None:
    whole = events_of(PAYLOADS, "payloads")

    for cut in range(1, len(PAYLOADS) + 1):
        parts = events_of(PAYLOADS, "payloads", end=cut), events_of(PAYLOADS, "payloads", start=cut)
        assert parts[0] + parts[1] == whole


def test_payload_without_a_batch_is_unparsed() -> None:
    (event,) = events_of(payload("TOPIC_RECORD", name="a", topicId=TOPIC_ID), "payloads")

    assert (event["type"], event["ts"]) == ("unparsed", None)


@pytest.mark.parametrize(
    "line",
    [
        "Dumping 00000000000000000000.log",
        "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 isvalid: true",
        "| offset: 0 CreateTime: 1714550400123 keySize: 4 valueSize: 19 sequence: -1 headerKeys: [] LeaderChange: {}",
        "| offset: 0 CreateTime: 1714550400123 keySize: 4 valueSize: 34 sequence: -1 headerKeys: [] "
        "controlType: LEADER_CHANGE(2)",
    ],
)
def test_lines_around_records_are_not_events(line: str) -> None:
    (event,) = events_of(line + "\n", "dump")

    assert (event["type"], event["lines"]) == ("other", 1)


def test_numbers_out_of_range_are_null_and_the_rest_is_kept() -> None:
    (event,) = events_of(dumped("PARTITION_CHANGE_RECORD", partitionId=2**40, topicId=TOPIC_ID, isr=7), "dump")

    assert (event["partition"], event["isr"], event["topic_id"]) == (None, None, TOPIC_ID)


@pytest.mark.parametrize(
    ("name", "data", "type"),
    [
        ("BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": 2, "fenced": "1"}, "other"),
        ("BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": 2, "inControlledShutdown": [1]}, "other"),
        ("PARTITION_CHANGE_RECORD", {"partitionId": 3, "leaderRecoveryState": [1]}, "leadership"),
    ],
)
def test_values_of_another_type_are_ignored(name: str, data: dict[str, Any], type: str) -> None:
    (event,) = events_of(dumped(name, **data), "dump")

    assert (event["type"], event["recovery"]) == (type, None)


def test_splits_at_any_byte_have_the_events_of_the_file() -> None:
    text = "".join(dumped(name.split(" ")[0], offset=at, **data) for at, (name, (data, _)) in enumerate(DUMPED.items()))
    whole = events_of(text, "dump")

    for cut in range(1, len(text), 7):
        assert events_of(text, "dump", end=cut) + events_of(text, "dump", start=cut) == whole


COMMON = {"seq": 1, "time_ms": 1714550400123, "controller_epoch": 5}
KACTL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "partition": (
        {
            "topic": "a-b", "partition": 3, "from_state": "offline", "to_state": "online", "leader": 2,
            "leader_epoch": 7, "isr": [2, 3], "partition_epoch": 12, "recovering": False, "refused": "",
        },
        {
            "type": "partition", "topic": "a-b", "partition": 3, "from_state": "OfflinePartition",
            "to_state": "OnlinePartition", "leader": 2, "leader_epoch": 7, "isr": [2, 3], "partition_epoch": 12,
            "recovery": "RECOVERED", "controller_epoch": 5,
        },
    ),
    "partition refused": (
        {"topic": "a", "partition": 0, "from_state": "offline", "to_state": "online", "refused": "no live replica"},
        {"type": "partition-failed", "reason": "no live replica"},
    ),
    "replica": (
        {"topic": "a", "partition": 0, "broker": 3, "from_state": "online", "to_state": "deletion_started"},
        {"type": "replica", "broker": 3, "from_state": "OnlineReplica", "to_state": "ReplicaDeletionStarted"},
    ),
    "controller": (
        {"what": "elected", "controller_id": 1, "cause": ""},
        {"type": "controller-elected", "controller": 1, "controller_epoch": 5},
    ),
    "broker": (
        {"what": "failed", "broker": 3, "broker_epoch": 9},
        {"type": "broker-failed", "broker": 3, "brokers_removed": [3], "broker_epoch": 9},
    ),
    "topic": (
        {"what": "deletion halted", "topic": "a", "cause": "broker 3 is dead"},
        {"type": "deletion-halted", "topic": "a", "reason": "broker 3 is dead"},
    ),
    "reset": ({}, {"type": "other"}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "data", "columns"), [(name, *both) for name, both in KACTL.items()], ids=KACTL)
def test_line_of_kactls_log_has_its_event(name: str, data: dict[str, Any], columns: dict[str, Any]) -> None:
    line = json.dumps({"kind": name.split(" ")[0], **COMMON, **data})

    (event,) = events_of(line + "\n", "kactl")

    assert {column: event[column] for column in columns} == columns
    assert event["type"] in set(EventType)
