"""Events."""

from typing import Annotated

from msgspec import Meta

from kactl.decide.messages.log import Cause as Cause
from kactl.decide.messages.log import Outage, Recipient, Stages

from .common import LIMIT_DEFAULT, Answer, AsOf, EventKind, Limit, PartitionStateName, Question, ReplicaStateName


class Event(Answer, frozen=True, tag_field="kind"):
    """Fields of every event. `seq` increases by one from event to event, and by more when a new process starts."""

    seq: int
    time_ms: int
    controller_epoch: int


class ControllerEvent(Event, frozen=True, tag="controller"):
    """The controller was elected or resigned. `what`: elected, resigned, ended.

    It is `ended` where a later process of the instance found that an earlier one had ended without resigning.
    `began_ms`: when the election was won, in milliseconds since 1970; null in events of older versions.
    """

    what: str
    controller_id: int
    cause: str
    began_ms: int | None = None


class BrokerEvent(Event, frozen=True, tag="broker"):
    """A broker changed. `what`: started, bounced, failed, modified, directory-failed,
    shutting-down, restored, drained, undrained.

    `detail`: by whom it was drained, until when and why, or why its drain has ended; otherwise null.
    """

    what: str
    broker: int
    broker_epoch: int
    because: Cause | None
    detail: str | None = None


class TopicEvent(Event, frozen=True, tag="topic"):
    """A topic changed. `what`: created, grown, vanished, deletion started, deletion halted, deleted.

    `cause`: why a deletion is halted; otherwise empty.
    """

    what: str
    topic: str
    cause: str
    because: Cause | None


class PartitionEvent(Event, frozen=True, tag="partition"):
    """A partition changed its state or leader, or could not. `refused`: why it could not; otherwise empty.

    `replicas`: the assignment, preferred replica first.
    """

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
    because: Cause | None


class ReplicaEvent(Event, frozen=True, tag="replica"):
    """A replica changed its state, or could not. `refused`: why it could not; otherwise empty."""

    topic: str
    partition: int
    broker: int
    from_state: ReplicaStateName
    to_state: ReplicaStateName
    refused: str
    because: Cause | None


class HandlerEvent(Event, frozen=True, tag="handler"):
    """A participant has reported that a replica is not in its normal state, or is again.

    `status`: ready, not_ready, failed, stuck, error, busy, retrying. `detail`: what the handler has raised, with the
    reason of a leader that has resigned; may be empty. `leader_epoch`: of the last order to the replica.
    """

    topic: str
    partition: int
    broker: int
    leader_epoch: int
    status: str
    detail: str


class RequestEvent(Event, frozen=True, tag="request"):
    """A request over this API changed something, or may have. Rejected requests are not events.

    `outcome`: done, partly (some of several partitions), unfinished (still running), unknown (no store response).
    `detail`: details of the outcome; may be empty. `reason`: given by the client; may be empty.
    `principal`: the client, as the program that embeds the API has identified it; may be empty.
    `request`: the id in the response's `X-Request-Id`, and in the `because` of what the request changed.
    """

    action: str
    target: str
    outcome: str
    detail: str
    reason: str
    principal: str = ""
    request: str | None = None


class ElectionEvent(Event, frozen=True, tag="election"):
    """A controller event that moved leadership, with its course.

    `detected_ms` is the wall clock at which the event was queued; all other times are microseconds since then.

    `because`: event id, trigger, strategy and request. `handled_us`: when the controller was done. `stages`: begin,
    end and time in use of each stage; absent if it did not occur. `planned`, `committed`, `rejected`, `moved`:
    partitions that were planned, written to the store, refused or in conflict, and that changed their leader.
    `brokers`: the recipients, with the number of requests and the times of the first one and the last acknowledgement.
    `complete`: all requests are acknowledged or dropped. `outage`: time without a leader, of partitions that had lost
    their leader or whose leader was moved.

    The event stream repeats an election in progress as it grows, with `complete: false`, `seq` 0 and without an id.
    The complete one is an event of the log.
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
    outage: Outage | None


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


class ResetEvent(Event, frozen=True, tag="reset"):
    """Events up to `seq` are lost to this reader: read the present state, then continue after `seq`."""


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
