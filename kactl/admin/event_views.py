"""Conversion of log events to the types of the API, which have the same fields."""

from collections.abc import Callable
from typing import Final

from kactl.messages import log

from . import schema


def event_view(event: log.AnyEvent) -> schema.AnyEvent:
    """Returns one event in the type that the API documents."""
    return _VIEWS[type(event)](**log.to_fields(event))


_VIEWS: Final[dict[type[log.AnyEvent], Callable[..., schema.AnyEvent]]] = {
    log.ControllerEvent: schema.ControllerEvent,
    log.BrokerEvent: schema.BrokerEvent,
    log.TopicEvent: schema.TopicEvent,
    log.PartitionEvent: schema.PartitionEvent,
    log.ReplicaEvent: schema.ReplicaEvent,
    log.RequestEvent: schema.RequestEvent,
    log.Reset: schema.ResetEvent,
}
