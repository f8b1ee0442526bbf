"""KRaft's metadata log, as Kafka's dump tool prints it: the whole truth about partitions and brokers.

A record that changes a partition has only what changed: null is "as it was". Leader -1 is nobody; a change of leader
raises the leader epoch by one, and every change the partition epoch, without either standing there. Times are UTC.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kactl.forensics.event_types import EventType

from .envelope import DUMP, JSON

_LINE: Final = re.compile(JSON[DUMP])
_RECOVERY: Final = {0: "RECOVERED", 1: "RECOVERING"}
_UNCHANGED: Final = -2
# A time with more digits is none.
_DIGITS_LIMIT: Final = 18


class _Payload(msgspec.Struct, frozen=True):
    type: str
    data: dict[str, Any] = {}


_DECODER: Final = msgspec.json.Decoder(_Payload)


# What the tool says around the records, and records about the quorum itself.
_AROUND: Final = re.compile(
    rb"Dumping .*|Log starting offset.*|Snapshot end offset.*|baseOffset: .*|"
    rb"\| offset: \d+ .*(?:LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters|endTxnMarker|"
    rb"controlType: ).*",
    re.DOTALL,
)


def is_around(line: bytes) -> bool:
    """Whether a line is no record of partitions, topics or brokers, and need not be understood."""
    return _AROUND.match(line) is not None


def read(line: bytes) -> tuple[int, str, dict[str, Any]] | None:
    """What a line says.

    Returns:
        ms since 1970, the kind of record, and the columns that it fills; None for a line of another form, and no
        columns for records that are about something else.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    try:
        payload = _DECODER.decode(found[3])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    read_data = _RECORDS.get(payload.type)
    columns = {} if read_data is None else {name: value for name, value in read_data(payload.data) if value is not None}
    time_ms = int(found[2]) if len(found[2]) <= _DIGITS_LIMIT else -1
    return time_ms, payload.type, columns


_Columns = Iterator[tuple[str, Any]]


def _topic(data: dict[str, Any]) -> _Columns:
    yield "type", EventType.TOPIC_CREATED
    yield "topic", data.get("name")
    yield "topic_id", data.get("topicId")


def _remove_topic(data: dict[str, Any]) -> _Columns:
    yield "type", EventType.TOPIC_REMOVED
    yield "topic_id", data.get("topicId")


def _partition(data: dict[str, Any]) -> _Columns:
    yield "type", EventType.PARTITION_CREATED
    yield from _state(data)
    yield "leader_epoch", data.get("leaderEpoch")
    yield "partition_epoch", data.get("partitionEpoch")


def _change(data: dict[str, Any]) -> _Columns:
    yield "type", EventType.LEADERSHIP
    yield from _state(data)


def _state(data: dict[str, Any]) -> _Columns:
    yield "topic_id", data.get("topicId")
    yield "partition", data.get("partitionId")
    yield "replicas", data.get("replicas")
    yield "isr", data.get("isr")
    yield "adding", data.get("addingReplicas")
    yield "removing", data.get("removingReplicas")
    leader = data.get("leader")
    yield "leader", None if leader == _UNCHANGED else leader
    yield "recovery", _RECOVERY.get(data.get("leaderRecoveryState", -1))


def _register(data: dict[str, Any]) -> _Columns:
    yield "type", EventType.BROKER_REGISTERED
    yield "broker", data.get("brokerId")
    yield "broker_epoch", data.get("brokerEpoch")


def _fence(data: dict[str, Any]) -> _Columns:
    yield "type", EventType.BROKER_FENCED
    yield "broker", data.get("id")
    yield "broker_epoch", data.get("epoch")


def _unfence(data: dict[str, Any]) -> _Columns:
    yield "type", EventType.BROKER_UNFENCED
    yield "broker", data.get("id")
    yield "broker_epoch", data.get("epoch")


def _registration_change(data: dict[str, Any]) -> _Columns:
    fenced, stopping = data.get("fenced", 0), data.get("inControlledShutdown", 0)
    if stopping:
        yield "type", EventType.BROKER_STOPPING
    elif fenced:
        yield "type", EventType.BROKER_FENCED if fenced > 0 else EventType.BROKER_UNFENCED
    else:
        return
    yield "broker", data.get("brokerId")
    yield "broker_epoch", data.get("brokerEpoch")


_RECORDS: Final = {
    "TOPIC_RECORD": _topic,
    "REMOVE_TOPIC_RECORD": _remove_topic,
    "PARTITION_RECORD": _partition,
    "PARTITION_CHANGE_RECORD": _change,
    "REGISTER_BROKER_RECORD": _register,
    "FENCE_BROKER_RECORD": _fence,
    "UNFENCE_BROKER_RECORD": _unfence,
    "BROKER_REGISTRATION_CHANGE_RECORD": _registration_change,
}
