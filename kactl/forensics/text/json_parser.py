"""Parser for lines that carry JSON: KRaft's metadata log, as Kafka's dump tool prints it, and kactl's own log.

The metadata log is complete for partitions and brokers. A record that changes a partition contains only the changed
fields; null means unchanged. Leader -1 means that there is none. A change of leader raises the leader epoch by one, and
every change raises the partition epoch, although neither epoch is part of the record.

kactl's log has one event per line, as printed by `kactl watch -o jsonl`. Times in both logs are UTC.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.events import SCHEMA
from kactl.model import NO_LEADER, PARTITION_STATE_NAMES, REPLICA_STATE_NAMES

from . import columns
from .columns import TEXT_LIMIT, readable
from .envelope import DUMP, JSON, KACTL
from .source import Readable, lines
from .zone import END_US

# Time in ms since 1970, name of the format, and columns.
Read = tuple[int, str, dict[str, Any]]


def events(
    file: Readable, layout: str, *, file_id: int, kind: Kind, broker: int | None, start: int, end: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields the events of one split; see `records.records` for its bounds. Every line is a record of its own.

    Raises:
        source.Broken: the rest cannot be read; everything before it has been yielded.
    """
    read = _READ[layout]
    for offset, texts in lines(file, start=max(0, start - 1), discard_first=start > 0):
        rows = []
        for text in texts:
            if end is not None and offset >= end:
                break
            rows.append(_row(text, read(text), offset))
            offset += len(text) + 1
        if rows:
            yield _batch(rows, file_id=file_id, kind=kind, broker=broker)
        if end is not None and offset >= end:
            return


def _row(text: bytes, result: Read | None, offset: int) -> dict[str, Any]:
    if result is None:
        if not text.strip() or _FRAME.match(text) is not None:
            return {"type": EventType.OTHER, "offset": offset}
        return {"type": EventType.UNPARSED, "offset": offset, "text": readable(text[:TEXT_LIMIT])}
    time_ms, form, values = result
    time = {"ts": time_ms * 1000} if 0 <= time_ms * 1000 < END_US else {}
    if not values:
        return {"type": EventType.OTHER, "offset": offset, **time}
    if not time:
        return {"type": EventType.UNPARSED, "offset": offset, "text": readable(text[:TEXT_LIMIT])}
    return {"format": form, "role": Role.CONTROLLER, "offset": offset, **time, **values}


def _batch(rows: Sequence[dict[str, Any]], *, file_id: int, kind: Kind, broker: int | None) -> pa.RecordBatch:
    count = len(rows)
    names = {name for row in rows for name in row} - {"ts"}
    given = {name: _array([row.get(name) for row in rows], SCHEMA.field(name).type) for name in names}
    known = np.array(["ts" in row for row in rows], np.bool_)
    instants = np.array([row.get("ts", 0) for row in rows], np.int64)
    given.update(columns.times(instants, instants, known))
    for name, value in (("lines", 1), ("file_id", file_id), ("kind", kind), ("speaker", broker)):
        given[name] = columns.constant(name, value, count)
    return columns.batch(given, count)


def _array(values: list[Any], kind: pa.DataType) -> Any:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Some value is out of range or of another type, such as a list for a number: it becomes null.
        return pa.array([_usable(value, kind) for value in values], kind)


def _usable(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


# -- the metadata log --------------------------------------------------------------------------------------------------

_LINE: Final = re.compile(JSON[DUMP])
# The tool's own lines around the records, and records about the quorum itself.
_FRAME: Final = re.compile(
    rb"Dumping .*|Log starting offset.*|Snapshot end offset.*|baseOffset: .*|"
    rb"\| offset: \d+ .*(?:LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters|endTxnMarker|"
    rb"controlType: ).*",
    re.DOTALL,
)
_RECOVERY: Final = {0: "RECOVERED", 1: "RECOVERING"}
_UNCHANGED: Final = -2
# A time with more digits is invalid.
_DIGITS_LIMIT: Final = 18

# Columns and the fields that fill them.
_PARTITION: Final = {
    "topic_id": "topicId", "partition": "partitionId", "replicas": "replicas", "isr": "isr", "adding": "addingReplicas",
    "removing": "removingReplicas", "leader": "leader", "recovery": "leaderRecoveryState",
}  # fmt: skip
_EPOCHS: Final = {"leader_epoch": "leaderEpoch", "partition_epoch": "partitionEpoch"}
_BROKER: Final = {"broker": "brokerId", "broker_epoch": "brokerEpoch"}
_FENCED_BROKER: Final = {"broker": "id", "broker_epoch": "epoch"}
_REGISTRATION_CHANGE: Final = "BROKER_REGISTRATION_CHANGE_RECORD"
_RECORDS: Final[dict[str, tuple[EventType, dict[str, str]]]] = {
    "TOPIC_RECORD": (EventType.TOPIC_CREATED, {"topic": "name", "topic_id": "topicId"}),
    "REMOVE_TOPIC_RECORD": (EventType.TOPIC_REMOVED, {"topic_id": "topicId"}),
    "PARTITION_RECORD": (EventType.PARTITION_CREATED, _PARTITION | _EPOCHS),
    "PARTITION_CHANGE_RECORD": (EventType.LEADERSHIP, _PARTITION),
    "REGISTER_BROKER_RECORD": (EventType.BROKER_REGISTERED, _BROKER),
    "FENCE_BROKER_RECORD": (EventType.BROKER_FENCED, _FENCED_BROKER),
    "UNFENCE_BROKER_RECORD": (EventType.BROKER_UNFENCED, _FENCED_BROKER),
    _REGISTRATION_CHANGE: (EventType.BROKER_STOPPING, _BROKER),  # or fenced, or unfenced; see `_registration_change`
}


class _Payload(msgspec.Struct, frozen=True):
    type: str
    data: dict[str, Any] = {}


_PAYLOAD: Final = msgspec.json.Decoder(_Payload)


def read_metadata(line: bytes) -> Read | None:
    """Reads a line of the metadata log.

    Returns:
        The time, the type of record and the columns it fills, without columns for other types of record; None for a
        line of another form.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    try:
        payload = _PAYLOAD.decode(match[3])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    time_ms = int(match[2]) if len(match[2]) <= _DIGITS_LIMIT else -1
    record = _RECORDS.get(payload.type)
    if record is None:
        return time_ms, payload.type, {}
    type, fields = record
    values = {"type": type} | {column: payload.data.get(field) for column, field in fields.items()}
    if "recovery" in values:
        values["recovery"] = _RECOVERY.get(_number(payload.data, "leaderRecoveryState", default=-1))
        values["leader"] = None if values["leader"] == _UNCHANGED else values["leader"]
    if payload.type == _REGISTRATION_CHANGE:
        values = _registration_change(payload.data, values)
    return time_ms, payload.type, {name: value for name, value in values.items() if value is not None}


def _registration_change(data: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    fenced = _number(data, "fenced", default=0)
    if _number(data, "inControlledShutdown", default=0):
        return values
    if not fenced:
        return {}
    return values | {"type": EventType.BROKER_FENCED if fenced > 0 else EventType.BROKER_UNFENCED}


def _number(data: dict[str, Any], field: str, *, default: int) -> int:
    """Returns a field's value; the default if it is absent or not a number."""
    value = data.get(field, default)
    return value if isinstance(value, int) else default


# -- kactl's log -------------------------------------------------------------------------------------------------------

# kactl's name of a state -> Kafka's.
PARTITION_STATES: Final = {state.name.lower(): name for state, name in PARTITION_STATE_NAMES.items()}
REPLICA_STATES: Final = {state.name.lower(): name for state, name in REPLICA_STATE_NAMES.items()}
_TYPES: Final = {
    ("controller", "elected"): EventType.CONTROLLER_ELECTED,
    ("controller", "resigned"): EventType.CONTROLLER_RESIGNED,
    ("broker", "started"): EventType.BROKER_STARTED,
    ("broker", "bounced"): EventType.BROKERS_CHANGED,
    ("broker", "failed"): EventType.BROKER_FAILED,
    ("broker", "directory-failed"): EventType.REPLICAS_OFFLINE,
    ("broker", "shutting-down"): EventType.BROKER_STOPPING,
    ("broker", "restored"): EventType.BROKER_STOPPED_COUNTING,
    ("topic", "created"): EventType.TOPIC_CREATED,
    ("topic", "deletion started"): EventType.DELETION_STARTED,
    ("topic", "deletion halted"): EventType.DELETION_HALTED,
    ("topic", "deleted"): EventType.DELETION_DONE,
}
# The list column to which an event of one broker adds the broker.
_LISTS: Final = {"started": "brokers_added", "failed": "brokers_removed", "bounced": "brokers_bounced"}


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    time_ms: int
    controller_epoch: int = 0
    what: str = ""
    cause: str = ""
    controller_id: int | None = None
    broker: int | None = None
    broker_epoch: int | None = None
    topic: str | None = None
    partition: int | None = None
    from_state: str = ""
    to_state: str = ""
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: list[int] = []
    partition_epoch: int = -1
    recovering: bool = False
    refused: str = ""


_EVENT: Final = msgspec.json.Decoder(_Event)


def read_kactl(line: bytes) -> Read | None:
    """Reads a line of kactl's log.

    Returns:
        The time, the kind of event and the columns it fills, without columns for events that no Kafka log has; None for
        a line of another form.
    """
    try:
        event = _EVENT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if event.kind == "partition":
        values = _partition_event(event)
    elif event.kind == "replica":
        values = {
            "type": EventType.REPLICA,
            "broker": event.broker,
            "from_state": REPLICA_STATES.get(event.from_state, event.from_state),
            "to_state": REPLICA_STATES.get(event.to_state, event.to_state),
        }
    else:
        values = _other_event(event)
    if values:
        values |= {"topic": event.topic, "partition": event.partition, "controller_epoch": event.controller_epoch}
    return event.time_ms, event.kind, {name: value for name, value in values.items() if value is not None}


def _partition_event(event: _Event) -> dict[str, Any]:
    return {
        "type": EventType.PARTITION_FAILED if event.refused else EventType.PARTITION,
        "from_state": PARTITION_STATES.get(event.from_state, event.from_state),
        "to_state": PARTITION_STATES.get(event.to_state, event.to_state),
        "leader": event.leader,
        "leader_epoch": event.leader_epoch,
        "isr": event.isr,
        "partition_epoch": event.partition_epoch,
        "recovery": "RECOVERING" if event.recovering else "RECOVERED",
        "reason": event.refused or None,
    }


def _other_event(event: _Event) -> dict[str, Any]:
    """Returns the columns of an event of a controller, broker or topic; none if no Kafka log has such an event."""
    type = _TYPES.get((event.kind, event.what))
    if type is None:
        return {}
    values: dict[str, Any] = {"type": type, "controller": event.controller_id, "reason": event.cause or None}
    if event.broker is not None:
        values |= {"broker": event.broker, "broker_epoch": event.broker_epoch}
        if event.what in _LISTS:
            values[_LISTS[event.what]] = [event.broker]
    return values


_READ: Final[dict[str, Callable[[bytes], Read | None]]] = {DUMP: read_metadata, KACTL: read_kactl}
