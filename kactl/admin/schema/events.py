"""Events. Where no state has to be named, the types of the responses are made from those of the log."""

from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from kactl.decide.messages import log

from .common import LIMIT_DEFAULT, Answer, AsOf, EventKind, Limit, PartitionStateName, Question, ReplicaStateName


class PartitionEvent(Answer, frozen=True, tag_field="kind", tag="partition"):
    __doc__ = log.PartitionEvent.__doc__

    seq: int
    time_ms: int
    controller_epoch: int
    topic: str
    partition: int
    from_state: PartitionStateName
    to_state: PartitionStateName
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool
    refused: str
    replicas: tuple[int, ...] | None
    because: log.Cause | None


class ReplicaEvent(Answer, frozen=True, tag_field="kind", tag="replica"):
    __doc__ = log.ReplicaEvent.__doc__

    seq: int
    time_ms: int
    controller_epoch: int
    topic: str
    partition: int
    broker: int
    from_state: ReplicaStateName
    to_state: ReplicaStateName
    refused: str
    because: log.Cause | None


def _answer(event: type[log.AnyEvent], name: str = "") -> type[msgspec.Struct]:
    """Returns the response for an event of the log: its fields, which are all in every response."""
    return msgspec.defstruct(
        name or event.__name__,
        [(field.name, field.type) for field in msgspec.structs.fields(event)],
        bases=(Answer,),
        namespace={"__doc__": event.__doc__},
        tag_field="kind",
        tag=event.__struct_config__.tag,
        frozen=True,
        kw_only=True,
    )


if TYPE_CHECKING:
    from kactl.decide.messages.log import BrokerEvent as BrokerEvent
    from kactl.decide.messages.log import ControllerEvent as ControllerEvent
    from kactl.decide.messages.log import HandlerEvent as HandlerEvent
    from kactl.decide.messages.log import RequestEvent as RequestEvent
    from kactl.decide.messages.log import TopicEvent as TopicEvent

    ResetEvent = log.Reset

    class ElectionEvent(log.ElectionEvent, Answer, frozen=True): ...
else:
    ControllerEvent, BrokerEvent, TopicEvent = map(_answer, (log.ControllerEvent, log.BrokerEvent, log.TopicEvent))
    HandlerEvent, RequestEvent, ElectionEvent = map(_answer, (log.HandlerEvent, log.RequestEvent, log.ElectionEvent))
    ResetEvent = _answer(log.Reset, "ResetEvent")

AnyEvent = (
    ControllerEvent
    | BrokerEvent
    | TopicEvent
    | PartitionEvent
    | ReplicaEvent
    | HandlerEvent
    | RequestEvent
    | ElectionEvent
    | ResetEvent
)
# Both unions have the same order.
_ANSWERS: Final = dict(zip(get_args(log.AnyEvent), get_args(AnyEvent), strict=True))


def event_view(event: log.AnyEvent) -> Any:
    """Returns an event of the log as the type that the API documents."""
    return _ANSWERS[type(event)](**log.to_fields(event))


class ElectionPath(Question, frozen=True):
    """An election, by the id of its controller event."""

    event: Annotated[int, Meta(ge=1, description="id of the controller event: `because.event` of its events")]


class ElectionQuery(Question, frozen=True):
    """Selects elections."""

    limit: Annotated[int, Meta(ge=1, le=1000, description="maximum number of elections, the newest ones")] = 100


class ElectionList(Answer, frozen=True):
    """Elections, newest first; those in progress come first."""

    items: tuple[ElectionEvent, ...]
    as_of: AsOf


class EventPage(Answer, frozen=True):
    """One page of events. `next_after`: the `after` of the next page; `as_of.seq`: the newest event."""

    items: tuple[AnyEvent, ...]
    next_after: int
    as_of: AsOf


Kinds = Annotated[list[EventKind], Meta(description="only events of these kinds")]


class StreamQuery(Question, frozen=True):
    """Start of the stream. `Last-Event-ID` takes precedence over `after`; without both, only new events are sent."""

    after: Annotated[int, Meta(ge=0, description="only events after this number")] | None = None
    kinds: Kinds = []


class EventQuery(Question, frozen=True):
    """Selects events. Without `after` and `since`, from the oldest event in the event log."""

    after: Annotated[int, Meta(ge=0, description="only events after this number")] | None = None
    since: (
        Annotated[str, Meta(max_length=50, description="from this time on: RFC 3339 with an offset, or ms since 1970")]
        | None
    ) = None
    kinds: Kinds = []
    limit: Limit = LIMIT_DEFAULT
