"""What waits for the controller, and who held the controllership before."""

from typing import Annotated

from msgspec import Meta

from .words import Answer, AsOf, Question

NAMED_DEFAULT = 20
NAMED_MAX = 1000


class TermInfo(Answer, frozen=True):
    """One controllership. `ended_ms`: null while it lasts; `cause`: why it ended; `ours`: this instance's."""

    epoch: int
    controller_id: int
    began_ms: int
    ended_ms: int | None
    cause: str
    ours: bool


class TermList(Answer, frozen=True):
    """Who has been the controller, as far as this instance has seen it; the oldest first."""

    items: tuple[TermInfo, ...]
    as_of: AsOf


class QueueQuery(Question, frozen=True):
    """How much to tell."""

    limit: Annotated[int, Meta(ge=0, le=NAMED_MAX, description="how many of those that wait are named")] = NAMED_DEFAULT


class Took(Answer, frozen=True):
    """How long something took, `count` times; zeros if never."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


class CurrentEvent(Answer, frozen=True):
    """The event in hand. `state`: as Kafka numbers it. `between`: the small event that is handled between two chunks
    of it; empty if none is."""

    label: str
    state: int
    since_ms: int
    for_ms: float
    between: str


class WaitingEvent(Answer, frozen=True):
    """An event that waits. `asked`: somebody waits for its answer."""

    label: str
    waited_ms: float
    asked: bool


class EventTally(Answer, frozen=True):
    """What became of the events of one kind. `preempted`: never begun, since a session ended before."""

    label: str
    handled: int
    failed: int
    preempted: int
    wait: Took
    process: Took


class QueueInfo(Answer, frozen=True):
    """The controller's queue.

    Attributes:
        oldest_ms: for how long the oldest event has waited.
        refused: how often something was not taken, because too much waited already.
        next: the first of those that wait, in order.
        wait: of events of all kinds, as long as there was one in the last five minutes.
    """

    depth: int
    oldest_ms: float
    refused: int
    current: CurrentEvent | None
    next: tuple[WaitingEvent, ...]
    kinds: tuple[EventTally, ...]
    wait: Took
    as_of: AsOf
