"""Parser for lines that carry JSON: KRaft's metadata log, as Kafka's dump tool prints it, and kactl's own log.

The metadata log is complete for partitions and brokers. A record that changes a partition contains only the changed
fields; null means unchanged. Leader -1 means that there is none. A change of leader raises the leader epoch by one, and
every change raises the partition epoch, although neither epoch is part of the record. Without the metadata of records
(`--skip-record-metadata`), the time of a record is that of its batch, on a line before it.

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
from .source import Readable, lines
from .zone import END_US

DUMP: Final = "dump"
# A dump with --skip-record-metadata: the time is on the line of the batch, before the payloads.
PAYLOADS: Final = "payloads"
KACTL: Final = "kactl"
JSON: Final = {
    PAYLOADS: rb" payload: (\{.*\})\s*",
    DUMP: rb"\| offset: (\d+) .*?CreateTime: (-?\d+) .*? payload: (\{.*\})\s*",
    KACTL: rb'\{"kind":"(\w+)","seq":\d+.*\}\s*',
}

# A line of a dump between the records, one for each batch.
BATCH: Final = rb"baseOffset: \d+ .*?CreateTime: (-?\d+) .*"


# Time in ms since 1970, name of the format, and columns.
Read = tuple[int, str, dict[str, Any]]


def events(
    file: Readable, layout: str, *, file_id: int, kind: Kind, broker: int | None, start: int, end: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields the events of one split; see `records.records` for its bounds.

    Every line is a record of its own, except payloads, which continue the line of their batch.

    Raises:
        source.Broken: the rest cannot be read; everything before it has been yielded.
    """
    payloads = _Payloads(is_first=start == 0) if layout == PAYLOADS else None
    read = _READ[layout] if payloads is None else payloads.read
    for offset, texts in lines(file, start=max(0, start - 1), discard_first=start > 0):
        rows, is_end = [], False
        for text in texts:
            is_end = end is not None and offset >= end and not (payloads is not None and payloads.continues(text))
            if is_end:
                break
            if payloads is None or payloads.is_ours(text):
                rows.append(_row(text, read(text), offset))
            offset += len(text) + 1
        if rows:
            yield _batch(rows, file_id=file_id, kind=kind, broker=broker)
        if is_end or (payloads is None and end is not None and offset >= end):
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
_PAYLOAD_LINE: Final = re.compile(JSON[PAYLOADS])
_BATCH: Final = re.compile(BATCH)


def detect(lines: Sequence[bytes]) -> str | None:
    """Returns DUMP, PAYLOADS or KACTL for a file with such lines, else None."""
    batches = sum(_BATCH.fullmatch(line) is not None for line in lines)
    for name, expression in JSON.items():
        matching = sum(re.fullmatch(expression, line) is not None for line in lines)
        # Half of the lines of a dump are of batches if each batch has one record.
        around = 0 if name == KACTL else min(batches, matching)
        if matching and matching + around > len(lines) // 2:
            return name
    return None


_DUMPING: Final = re.compile(rb"Dumping ")
# The tool's own lines around the records, and records about the quorum itself.
_FRAME: Final = re.compile(
    rb"Dumping .*|(?:Log s|S)tarting offset.*|Snapshot end offset.*|baseOffset: .*|"
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


class _Payloads:
    """Reader of payloads without metadata, which takes their time from the line of the batch.

    Args:
        is_first: whether it begins at the beginning of the file. Elsewhere, the first payloads belong to the split that
            contains the line of their batch.
    """

    def __init__(self, *, is_first: bool) -> None:
        self._time_ms = -1
        self._has_begun = is_first

    def continues(self, line: bytes) -> bool:
        """Returns whether a line belongs to the batch before it."""
        return _BATCH.fullmatch(line) is None and _DUMPING.match(line) is None

    def is_ours(self, line: bytes) -> bool:
        """Returns whether a line belongs to this split."""
        self._has_begun = self._has_begun or not self.continues(line)
        return self._has_begun

    def read(self, line: bytes) -> "Read | None":
        batch = _BATCH.fullmatch(line)
        if batch is not None:
            self._time_ms = _time(batch[1])
            return None
        match = _PAYLOAD_LINE.fullmatch(line)
        return None if match is None else _record(match[1], self._time_ms)


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
    return None if match is None else _record(match[3], _time(match[2]))


def _time(digits: bytes) -> int:
    """Returns a time in ms since 1970; -1 if it is invalid."""
    return int(digits) if len(digits) <= _DIGITS_LIMIT else -1


def _record(text: bytes, time_ms: int) -> Read | None:
    """Returns what `read_metadata` does, for the payload of a record."""
    try:
        payload = _PAYLOAD.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
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
    ("broker", "drained"): EventType.BROKER_STOPPING,
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
            "type": EventType.REPLICA_FAILED if event.refused else EventType.REPLICA,
            "reason": event.refused or None,
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
