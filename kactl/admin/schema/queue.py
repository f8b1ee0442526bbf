"""The controller's event queue, and the history of controllers."""

from typing import Annotated

from msgspec import Meta

from .common import Answer, AsOf, Question

NAMED_DEFAULT = 20
NAMED_MAX = 1000


class TermInfo(Answer, frozen=True):
    """One term of a controller. `ended_ms`: null while it lasts; `cause`: why it ended; `ours`: of this instance."""

    epoch: int
    controller_id: int
    began_ms: int
    ended_ms: int | None
    cause: str
    ours: bool


class TermList(Answer, frozen=True):
    """Controllers that this instance has observed, oldest first."""

    items: tuple[TermInfo, ...]
    as_of: AsOf


class QueueQuery(Question, frozen=True):
    """Options of the queue summary."""

    limit: Annotated[int, Meta(ge=0, le=NAMED_MAX, description="maximum length of `next`")] = NAMED_DEFAULT


class Took(Answer, frozen=True):
    """Distribution of `count` durations; zeros if there are none."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


class CurrentEvent(Answer, frozen=True):
    """The event being handled. `state`: with Kafka's number. `between`: the small event that is handled between
    two chunks of it; otherwise empty.
    """

    label: str
    state: int
    since_ms: int
    for_ms: float
    between: str


class WaitingEvent(Answer, frozen=True):
    """A waiting event. `asked`: a caller waits for its result."""

    label: str
    waited_ms: float
    asked: bool


class EventTally(Answer, frozen=True):
    """Statistics of one kind of event. `preempted`: discarded, because a session ended before they began."""

    label: str
    handled: int
    failed: int
    preempted: int
    wait: Took
    process: Took


class QueueInfo(Answer, frozen=True):
    """The controller's event queue.

    Attributes:
        oldest_ms: age of the oldest waiting event.
        refused: number of events rejected because the queue was full.
        next: the first waiting events, in order.
        wait: of events of all kinds, if there was one in the last five minutes.
    """

    depth: int
    oldest_ms: float
    refused: int
    current: CurrentEvent | None
    next: tuple[WaitingEvent, ...]
    kinds: tuple[EventTally, ...]
    wait: Took
    as_of: AsOf
