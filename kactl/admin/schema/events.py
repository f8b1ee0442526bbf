"""Events. The types of the responses are made from those of the log."""

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, cast, get_args

import msgspec
from msgspec import Meta

from kactl.decide.messages import log

from .common import LIMIT_DEFAULT, Answer, AsOf, EventKind, Limit, Question


def _answer(event: type[log.AnyEvent]) -> type[msgspec.Struct]:
    """Returns the response for an event of the log: the same fields, all of them always present, and states by name."""
    fields = [(field.name, log.STATE_NAME_TYPES.get(field.type, field.type)) for field in msgspec.structs.fields(event)]
    name, tag = event.__name__, event.__struct_config__.tag
    return msgspec.defstruct(
        name if name.endswith("Event") else f"{name}Event",
        fields,
        bases=(Answer,),
        namespace={"__doc__": event.__doc__},
        tag_field="kind",
        tag=tag,
        frozen=True,
        kw_only=True,
    )


_ANSWERS: Final = {event: _answer(event) for event in get_args(log.AnyEvent)}
# For type checkers they are those of the log, whose fields they have; only states are strings here.
if TYPE_CHECKING:
    from kactl.decide.messages.log import (
        AnyEvent,
        BrokerEvent,
        ControllerEvent,
        ElectionEvent,
        HandlerEvent,
        PartitionEvent,
        ReplicaEvent,
        RequestEvent,
        TopicEvent,
    )
    from kactl.decide.messages.log import Reset as ResetEvent
else:
    AnyEvent = functools.reduce(operator.or_, _ANSWERS.values())
    (
        ControllerEvent,
        BrokerEvent,
        TopicEvent,
        PartitionEvent,
        ReplicaEvent,
        HandlerEvent,
        RequestEvent,
        ElectionEvent,
        ResetEvent,
    ) = _ANSWERS.values()

E = TypeVar("E", bound=log.Event)


def event_view(event: E) -> E:
    """Returns an event of the log as the type that the API documents."""
    return cast(E, _ANSWERS[type(event)](**log.to_fields(cast(log.AnyEvent, event))))


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
