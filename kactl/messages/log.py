"""Records of the event log: one type of event for each type of object, and their JSON form.

In JSON an event is an object with its `kind`, then its fields; states are written by name. The state-change log and the
event stream of the admin API have this form.
"""

import functools
import operator
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from kactl.model import PartitionState, ReplicaState

PartitionStateName = Literal["new", "online", "offline", "absent"]
ReplicaStateName = Literal[
    "new", "online", "offline", "deletion_started", "deletion_successful", "deletion_ineligible", "absent"
]
PARTITION_STATE_NAMES: Final[Mapping[int, PartitionStateName]] = {
    PartitionState.NEW: "new",
    PartitionState.ONLINE: "online",
    PartitionState.OFFLINE: "offline",
    PartitionState.ABSENT: "absent",
}
REPLICA_STATE_NAMES: Final[Mapping[int, ReplicaStateName]] = {
    ReplicaState.NEW: "new",
    ReplicaState.ONLINE: "online",
    ReplicaState.OFFLINE: "offline",
    ReplicaState.DELETION_STARTED: "deletion_started",
    ReplicaState.DELETION_SUCCESSFUL: "deletion_successful",
    ReplicaState.DELETION_INELIGIBLE: "deletion_ineligible",
    ReplicaState.ABSENT: "absent",
}


class Event(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Common to all: `seq` rises by one from event to event, and never goes back."""

    seq: int = 0
    time_ms: int = 0
    controller_epoch: int = 0


class ControllerEvent(Event, frozen=True, kw_only=True, tag="controller"):
    """The controllership came or went. `what`: elected, resigned."""

    what: str
    controller_id: int
    cause: str = ""


class BrokerEvent(Event, frozen=True, kw_only=True, tag="broker"):
    """A broker came or went. `what`: started, bounced, failed, modified, directory-failed,
    shutting-down, restored."""

    what: str
    broker: int
    broker_epoch: int


class TopicEvent(Event, frozen=True, kw_only=True, tag="topic"):
    """A topic came, grew or went. `what`: created, grown, vanished, deletion started, deletion halted, deleted.

    Attributes:
        cause: why a deletion does not go on; empty otherwise.
    """

    what: str
    topic: str
    cause: str = ""


class PartitionEvent(Event, frozen=True, kw_only=True, tag="partition"):
    """A partition moved, got a leader, or could not. `refused` is empty unless it could not."""

    topic: str
    partition: int
    from_state: PartitionState
    to_state: PartitionState
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False
    refused: str = ""


class ReplicaEvent(Event, frozen=True, kw_only=True, tag="replica"):
    """A replica moved."""

    topic: str
    partition: int
    broker: int
    from_state: ReplicaState
    to_state: ReplicaState


class RequestEvent(Event, frozen=True, kw_only=True, tag="request"):
    """A request over the admin API changed something, or may have.

    Attributes:
        action: such as "delete topic".
        target: what the action was applied to.
        outcome: done, partly, unfinished, unknown; see `kactl.admin.audit`.
        detail: on the outcome; may be empty.
        reason: as the client gave it; may be empty.
    """

    action: str
    target: str
    outcome: str
    detail: str = ""
    reason: str = ""


class Reset(Event, frozen=True, kw_only=True, tag="reset"):
    """Events before `seq` + 1 are lost to this reader: read the present state, then go on."""


AnyEvent = ControllerEvent | BrokerEvent | TopicEvent | PartitionEvent | ReplicaEvent | RequestEvent | Reset
KINDS: Final = ("controller", "broker", "topic", "partition", "replica", "request")


# -- JSON --------------------------------------------------------------------------------------------------------------


def to_fields(event: AnyEvent) -> dict[str, Any]:
    """Returns the fields of an event by name, the common ones first; states are names."""
    fields = msgspec.structs.asdict(event)
    names = _STATE_NAMES.get(type(event))
    if names is not None:
        fields["from_state"] = names[fields["from_state"]]
        fields["to_state"] = names[fields["to_state"]]
    return fields


def encode(event: AnyEvent) -> bytes:
    """Returns an event in JSON, without a newline."""
    with_states = _WITH_STATES.get(type(event))
    if with_states is None:
        return _ENCODER.encode(event)
    record, names, position = with_states
    # By position: a keyword for each field would double the time.
    values = list(msgspec.structs.astuple(event))
    values[position], values[position + 1] = names[values[position]], names[values[position + 1]]
    return _ENCODER.encode(record(*values))


def decode(line: bytes | str) -> AnyEvent:
    """Returns the event that `encode` wrote.

    Raises:
        msgspec.MsgspecError: the line is not JSON, or not an event, or one of its fields is missing or invalid.
        UnicodeDecodeError: the line is not UTF-8.
    """
    record = _DECODER.decode(line)
    event = _EVENTS[type(record)]
    fields = msgspec.structs.asdict(record)
    states = _STATES.get(event)
    if states is not None:
        fields["from_state"] = states[fields["from_state"]]
        fields["to_state"] = states[fields["to_state"]]
    return event(**fields)


def _record_type(event: type[AnyEvent]) -> type[msgspec.Struct]:
    """Returns the type that decodes an event: the same fields, but all are required and states are names."""
    types = {PartitionState: PartitionStateName, ReplicaState: ReplicaStateName}
    fields = [(field.name, types.get(field.type, field.type)) for field in msgspec.structs.fields(event)]
    config = event.__struct_config__
    return msgspec.defstruct(event.__name__, fields, tag_field=config.tag_field, tag=config.tag, frozen=True, gc=False)


def _state_position(event: type[AnyEvent]) -> int:
    """Returns the position of `from_state` among the fields; `to_state` follows it."""
    fields = event.__struct_fields__
    assert fields[fields.index("from_state") + 1] == "to_state"
    return fields.index("from_state")


_STATE_NAMES: Final[dict[type[AnyEvent], Mapping[int, str]]] = {
    PartitionEvent: PARTITION_STATE_NAMES,
    ReplicaEvent: REPLICA_STATE_NAMES,
}
_STATES: Final[dict[type[AnyEvent], Mapping[str, int]]] = {
    PartitionEvent: {name: PartitionState(state) for state, name in PARTITION_STATE_NAMES.items()},
    ReplicaEvent: {name: ReplicaState(state) for state, name in REPLICA_STATE_NAMES.items()},
}
_EVENTS: Final[dict[type[msgspec.Struct], type[AnyEvent]]] = {
    _record_type(event): event for event in get_args(AnyEvent)
}
# The other kinds are written as they are.
_WITH_STATES: Final[dict[type[AnyEvent], tuple[type[msgspec.Struct], Mapping[int, str], int]]] = {
    event: (record, _STATE_NAMES[event], _state_position(event))
    for record, event in _EVENTS.items()
    if event in _STATES
}
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(functools.reduce(operator.or_, _EVENTS))
