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
from kactl.runtime.escaping import harmless_json

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

STATE_NAME_TYPES: Final[Mapping[Any, Any]] = {PartitionState: PartitionStateName, ReplicaState: ReplicaStateName}


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something changed: the controller event during which it did, and what led to that event.

    Attributes:
        event: id of the controller event. Ids rise, also across restarts.
        trigger: kind of that event, such as BrokerChange.
        origin: id of the first event of the chain, if that is another: one with requests that this one answers, or with
            writes to the store that this one carries out.
        strategy: of the election, such as offline; "first" for the first leader of a partition; empty without one.
        request: id of the request to the admin API; empty if the event was not requested there.
        caller: the client that sent the request, over any interface: its name, or its address if it has none.
    """

    event: int
    trigger: str
    origin: int = 0
    strategy: str = ""
    request: str = ""
    caller: str = ""


class Event(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Record of the event log.

    Attributes:
        seq: number of the record. It rises by one from record to record, and never goes back.
        time_ms: time of the controller's clock, in milliseconds since 1970.
        controller_epoch: epoch of the controller that wrote the record.
    """

    seq: int = 0
    time_ms: int = 0
    controller_epoch: int = 0


class ControllerEvent(Event, frozen=True, kw_only=True, tag="controller"):
    """The controllership came or went.

    Attributes:
        what: elected, resigned, or ended: a later process of the instance found that an earlier one had ended without
            resigning.
        began_ms: when the election was won, in milliseconds since 1970. Its event follows once the takeover is
            complete. Null in events of older versions.
    """

    what: str
    controller_id: int
    cause: str = ""
    began_ms: int | None = None


class BrokerEvent(Event, frozen=True, kw_only=True, tag="broker"):
    """A broker came or went.

    Attributes:
        what: started, bounced, failed, modified, directory-failed, shutting-down, restored, drained, undrained,
            evicted.
        detail: of a drain: by whom, since and until when, and why; of its end: why it has ended. Otherwise null.
    """

    what: str
    broker: int
    broker_epoch: int
    because: Cause | None = None
    detail: str | None = None


class TopicEvent(Event, frozen=True, kw_only=True, tag="topic"):
    """A topic came, grew or went.

    Attributes:
        what: created, grown, vanished, deletion started, deletion halted, deleted.
        cause: why a deletion does not go on; empty otherwise.
    """

    what: str
    topic: str
    cause: str = ""
    because: Cause | None = None


class PartitionEvent(Event, frozen=True, kw_only=True, tag="partition"):
    """A partition changed its state or leader, or could not.

    Attributes:
        refused: why it could not; otherwise empty.
        replicas: the assignment, preferred replica first; null in events of older versions.
    """

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
    replicas: tuple[int, ...] | None = None
    because: Cause | None = None


class ReplicaEvent(Event, frozen=True, kw_only=True, tag="replica"):
    """A replica changed its state, or could not.

    Attributes:
        refused: why it could not; `to_state` is then the former state. Otherwise empty.
    """

    topic: str
    partition: int
    broker: int
    from_state: ReplicaState
    to_state: ReplicaState
    refused: str = ""
    because: Cause | None = None


class HandlerEvent(Event, frozen=True, kw_only=True, tag="handler"):
    """A participant has reported that a replica is not in its normal state, or is again.

    Attributes:
        leader_epoch: of the last order to the replica.
        status: ready, not_ready, failed, stuck, error, busy, retrying; see `kactl.model.ReplicaStatus`.
        detail: what the handler has raised, with the reason of a leader that has resigned; may be empty.
    """

    topic: str
    partition: int
    broker: int
    leader_epoch: int
    status: str
    detail: str = ""


class RequestEvent(Event, frozen=True, kw_only=True, tag="request"):
    """A request over the admin API changed something, or may have. Rejected requests are not events.

    Attributes:
        action: such as "delete topic".
        target: what the action was applied to.
        outcome: done, partly (some of several partitions), unfinished (still running), unknown (no store response).
        detail: on the outcome; may be empty.
        reason: as the client gave it; may be empty.
        principal: the client, as the program that embeds the API has identified it; may be empty.
        request: the id in the response's `X-Request-Id`, and in the `because` of what the request changed; null in
            events of older versions.
    """

    action: str
    target: str
    outcome: str
    detail: str = ""
    reason: str = ""
    principal: str = ""
    request: str | None = None


class Recipient(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broker that received requests of one controller event. Times in microseconds since the detection.

    Attributes:
        requests: number of requests queued for it.
        sent_us: when the first of them was queued.
        acked_us: when it had answered all of them; None before.
        dropped: number of requests that were dropped, because the broker failed or the controllership ended.
    """

    broker: int
    requests: int
    sent_us: int
    acked_us: int | None = None
    dropped: int = 0


# Begin, end and time in use of one stage, in microseconds; begin and end since the detection. A stage of several chunks
# is in use for less time than between its begin and its end.
Span = tuple[int, int, int]


class Stages(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stages of one controller event; None for those that did not occur.

    Attributes:
        queue: wait in the controller's inbox, from the detection on.
        plan: choose states and leaders.
        commit: write to the store.
        apply: change the controller's own table and record events.
        encode: build the requests to brokers. Their bytes are encoded when they are sent.
    """

    queue: Span
    plan: Span | None = None
    commit: Span | None = None
    apply: Span | None = None
    encode: Span | None = None


class Outage(msgspec.Struct, frozen=True):
    """Time without a leader of the partitions to which one event gave one: until the leader's acknowledgement.

    Attributes:
        planned: of these, partitions whose leader moved without a failure.
    """

    partitions: int
    planned: int
    p50_us: int
    max_us: int


class ElectionEvent(Event, frozen=True, kw_only=True, tag="election"):
    """A controller event that moved leadership, with its course. Times in microseconds are since `detected_ms`.

    It is written once, when its last acknowledgement has arrived. The event stream repeats an election in progress as
    it grows, with `complete` false, `seq` 0 and without an id.

    Attributes:
        because: event id, trigger, first strategy, and request.
        detected_ms: wall clock at which the event was queued.
        handled_us: when the controller was done with it, since the detection; null while it is in progress.
        complete: whether all its requests were acknowledged or dropped.
        failed: whether the event ended with an error.
        planned: partitions that were planned; those that are planned again count again.
        committed: of these, written to the store.
        rejected: of these, refused, or changed by another writer.
        moved: of these, changed their leader.
        stages: begin, end and time in use of each stage; absent if it did not occur.
        brokers: recipients of requests, by id.
        first_ack_us, last_ack_us: since the detection; null while there is none.
        outage: time without a leader, of partitions that had lost their leader or whose leader was moved.
    """

    because: Cause
    detected_ms: int
    handled_us: int | None
    complete: bool
    failed: bool
    planned: int
    committed: int
    rejected: int
    moved: int
    stages: Stages
    brokers: tuple[Recipient, ...]
    first_ack_us: int | None
    last_ack_us: int | None
    outage: Outage | None = None


class Reset(Event, frozen=True, kw_only=True, tag="reset"):
    """Events before `seq` + 1 are lost to this reader: read the present state, then go on."""


AnyEvent = (
    ControllerEvent
    | BrokerEvent
    | TopicEvent
    | PartitionEvent
    | ReplicaEvent
    | HandlerEvent
    | RequestEvent
    | ElectionEvent
    | Reset
)
KINDS: Final = ("controller", "broker", "topic", "partition", "replica", "handler", "request", "election")


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
        return harmless_json(_ENCODER.encode(event))
    record, names, position = with_states
    # By position: a keyword for each field would double the time.
    values = list(msgspec.structs.astuple(event))
    values[position], values[position + 1] = names[values[position]], names[values[position + 1]]
    return harmless_json(_ENCODER.encode(record(*values)))


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
    """Returns the type that decodes an event: the same fields, but states are names, and all are required
    except those that may be None, which lines of earlier versions lack.
    """
    fields: list[tuple[Any, ...]] = [
        (field.name, STATE_NAME_TYPES.get(field.type, field.type), *([None] if field.default is None else ()))
        for field in msgspec.structs.fields(event)
    ]
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
