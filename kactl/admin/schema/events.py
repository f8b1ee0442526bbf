"""Events."""

from typing import Annotated

from msgspec import Meta

from .common import LIMIT_DEFAULT, Answer, AsOf, EventKind, Limit, PartitionStateName, Question, ReplicaStateName


class Event(Answer, frozen=True, tag_field="kind"):
    """Fields of every event. `seq` increases by one from event to event, and by more when a new process starts."""

    seq: int
    time_ms: int
    controller_epoch: int


class ControllerEvent(Event, frozen=True, tag="controller"):
    """The controller was elected or resigned. `what`: elected, resigned."""

    what: str
    controller_id: int
    cause: str


class BrokerEvent(Event, frozen=True, tag="broker"):
    """A broker changed. `what`: started, bounced, failed, modified, directory-failed,
    shutting-down, restored.
    """

    what: str
    broker: int
    broker_epoch: int


class TopicEvent(Event, frozen=True, tag="topic"):
    """A topic changed. `what`: created, grown, vanished, deletion started, deletion halted, deleted.

    `cause`: why a deletion is halted; otherwise empty.
    """

    what: str
    topic: str
    cause: str


class PartitionEvent(Event, frozen=True, tag="partition"):
    """A partition changed its state or leader, or could not. `refused`: why it could not; otherwise empty."""

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


class ReplicaEvent(Event, frozen=True, tag="replica"):
    """A replica changed its state."""

    topic: str
    partition: int
    broker: int
    from_state: ReplicaStateName
    to_state: ReplicaStateName


class RequestEvent(Event, frozen=True, tag="request"):
    """A request over this API changed something, or may have. Rejected requests are not events.

    `outcome`: done, partly (some of several partitions), unfinished (still running), unknown (no store response).
    `detail`: details of the outcome; may be empty. `reason`: given by the client; may be empty.
    """

    action: str
    target: str
    outcome: str
    detail: str
    reason: str


class ResetEvent(Event, frozen=True, tag="reset"):
    """Events up to `seq` are lost to this reader: read the present state, then continue after `seq`."""


AnyEvent = ControllerEvent | BrokerEvent | TopicEvent | PartitionEvent | ReplicaEvent | RequestEvent | ResetEvent


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
    """Selects events. Without `after`, from the oldest event in the event log."""

    after: Annotated[int, Meta(ge=0, description="only events after this number")] | None = None
    kinds: Kinds = []
    limit: Limit = LIMIT_DEFAULT
