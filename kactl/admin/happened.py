"""Events as they travel: the controller's history in the words of the API."""

from collections.abc import Callable
from typing import Any, Final

from kactl.messages import log as history_events

from . import schema
from .views import REPLICA_STATE_NAMES, STATE_NAMES


def told(event: history_events.AnyEvent) -> schema.AnyEvent:
    """One event as it is told."""
    return _TOLD[type(event)](event)


def _controller(event: history_events.ControllerEvent) -> schema.ControllerEvent:
    return schema.ControllerEvent(
        seq=event.seq,
        time_ms=event.time_ms,
        controller_epoch=event.controller_epoch,
        what=event.what,
        controller_id=event.controller_id,
        cause=event.cause,
    )


def _broker(event: history_events.BrokerEvent) -> schema.BrokerEvent:
    return schema.BrokerEvent(
        seq=event.seq,
        time_ms=event.time_ms,
        controller_epoch=event.controller_epoch,
        what=event.what,
        broker=event.broker,
        broker_epoch=event.broker_epoch,
    )


def _topic(event: history_events.TopicEvent) -> schema.TopicEvent:
    return schema.TopicEvent(
        seq=event.seq,
        time_ms=event.time_ms,
        controller_epoch=event.controller_epoch,
        what=event.what,
        topic=event.topic,
        cause=event.cause,
    )


def _partition(event: history_events.PartitionEvent) -> schema.PartitionEvent:
    return schema.PartitionEvent(
        seq=event.seq,
        time_ms=event.time_ms,
        controller_epoch=event.controller_epoch,
        topic=event.topic,
        partition=event.partition,
        from_state=STATE_NAMES[event.from_state],
        to_state=STATE_NAMES[event.to_state],
        leader=event.leader,
        leader_epoch=event.leader_epoch,
        isr=event.isr,
        partition_epoch=event.partition_epoch,
        recovering=event.recovering,
        refused=event.refused,
    )


def _replica(event: history_events.ReplicaEvent) -> schema.ReplicaEvent:
    return schema.ReplicaEvent(
        seq=event.seq,
        time_ms=event.time_ms,
        controller_epoch=event.controller_epoch,
        topic=event.topic,
        partition=event.partition,
        broker=event.broker,
        from_state=REPLICA_STATE_NAMES[event.from_state],
        to_state=REPLICA_STATE_NAMES[event.to_state],
    )


def _request(event: history_events.RequestEvent) -> schema.RequestEvent:
    return schema.RequestEvent(
        seq=event.seq,
        time_ms=event.time_ms,
        controller_epoch=event.controller_epoch,
        action=event.action,
        target=event.target,
        outcome=event.outcome,
        detail=event.detail,
        reason=event.reason,
    )


def _reset(event: history_events.Reset) -> schema.ResetEvent:
    return schema.ResetEvent(seq=event.seq, time_ms=event.time_ms, controller_epoch=event.controller_epoch)


def heard(event: schema.AnyEvent) -> history_events.AnyEvent:
    """The event that is told so; the reverse of `told`."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    made = _HEARD[type(event)]
    if made is history_events.PartitionEvent:
        values |= {name: _PARTITION_STATES[values[name]] for name in ("from_state", "to_state")}
    elif made is history_events.ReplicaEvent:
        values |= {name: _REPLICA_STATES[values[name]] for name in ("from_state", "to_state")}
    return made(**values)


_PARTITION_STATES: Final = {name: state for state, name in STATE_NAMES.items()}
_REPLICA_STATES: Final = {name: state for state, name in REPLICA_STATE_NAMES.items()}
_HEARD: Final[dict[type, Callable[..., history_events.AnyEvent]]] = {
    schema.ControllerEvent: history_events.ControllerEvent,
    schema.BrokerEvent: history_events.BrokerEvent,
    schema.TopicEvent: history_events.TopicEvent,
    schema.PartitionEvent: history_events.PartitionEvent,
    schema.ReplicaEvent: history_events.ReplicaEvent,
    schema.RequestEvent: history_events.RequestEvent,
    schema.ResetEvent: history_events.Reset,
}
_TOLD: Final[dict[type, Callable[[Any], schema.AnyEvent]]] = {
    history_events.ControllerEvent: _controller,
    history_events.BrokerEvent: _broker,
    history_events.TopicEvent: _topic,
    history_events.PartitionEvent: _partition,
    history_events.ReplicaEvent: _replica,
    history_events.RequestEvent: _request,
    history_events.Reset: _reset,
}
