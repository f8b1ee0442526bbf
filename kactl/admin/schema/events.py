"""What happened."""

from typing import Annotated

from msgspec import Meta

from .words import LIMIT_DEFAULT, Answer, AsOf, EventKind, Limit, PartitionStateName, Question, ReplicaStateName


class Event(Answer, frozen=True, tag_field="kind"):
    """Common to all: `seq` rises by one from event to event, and by more from one process to the next."""

    seq: int
    time_ms: int
    controller_epoch: int


class ControllerEvent(Event, frozen=True, tag="controller"):
    """The controllership came or went. `what`: elected, resigned."""

    what: str
    controller_id: int
    cause: str


class BrokerEvent(Event, frozen=True, tag="broker"):
    """A broker came or went. `what`: started, bounced, failed, modified, directory-failed,
    shutting-down, restored."""

    what: str
    broker: int
    broker_epoch: int


class TopicEvent(Event, frozen=True, tag="topic"):
    """A topic came, grew or went. `what`: created, grown, vanished, deletion started, deletion halted, deleted.

    `cause`: why a deletion does not go on; else empty.
    """

    what: str
    topic: str
    cause: str


class PartitionEvent(Event, frozen=True, tag="partition"):
    """A partition moved, got a leader, or could not. `refused`: why it could not; else empty."""

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
    """A replica moved."""

    topic: str
    partition: int
    broker: int
    from_state: ReplicaStateName
    to_state: ReplicaStateName


class RequestEvent(Event, frozen=True, tag="request"):
    """A request over this API changed something, or may have. A request that was refused is no event.

    `outcome`: done, partly (of several partitions), unfinished (it goes on), unknown (the store did not answer).
    `detail`: on the outcome; may be empty. `reason`: as the client gave it; may be empty.
    """

    action: str
    target: str
    outcome: str
    detail: str
    reason: str


class ResetEvent(Event, frozen=True, tag="reset"):
    """Events up to `seq` are lost to this reader: read the present state, then go on behind `seq`."""


AnyEvent = ControllerEvent | BrokerEvent | TopicEvent | PartitionEvent | ReplicaEvent | RequestEvent | ResetEvent


class EventPage(Answer, frozen=True):
    """Some events. `next_after`: behind which to read on; `as_of.seq`: the newest that there is."""

    items: tuple[AnyEvent, ...]
    next_after: int
    as_of: AsOf


Kinds = Annotated[list[EventKind], Meta(description="of these kinds only")]


class StreamQuery(Question, frozen=True):
    """Where to begin. `Last-Event-ID` goes before `after`; without both, with what happens from now on."""

    after: Annotated[int, Meta(ge=0, description="behind the event of this number")] | None = None
    kinds: Kinds = []


class EventQuery(Question, frozen=True):
    """Which events. Without `after`, from the oldest that is kept."""

    after: Annotated[int, Meta(ge=0, description="behind the event of this number")] | None = None
    kinds: Kinds = []
    limit: Limit = LIMIT_DEFAULT
