"""What waits for the controller, what it has in hand, and how long events of each kind have taken.

Kept by the loop as it goes; people look at it while something hangs, so nothing here waits for the loop.

Source: the classic controller's ControllerEventManager, QueuedEvent.
"""

import dataclasses
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from kactl.clock import Clock
from kactl.messages.events import Event
from kactl.telemetry.durations import Durations, Summary

from .priority_inbox import PriorityInbox

# After so long without an event the waits of before say nothing of the present. Kafka's number.
IDLE_MS: Final = 300_000
# How many of the events that wait are named at the most.
NAMED_MAX: Final = 1000


class Current(msgspec.Struct, frozen=True):
    """The event in hand. `state` as Kafka numbers it.

    Attributes:
        between: the small event that is being handled between two chunks of it; empty if none is.
    """

    label: str
    state: int
    since_ms: int  # wall clock
    for_ms: float
    between: str = ""


class Waiting(msgspec.Struct, frozen=True):
    """An event that waits. `asked`: somebody waits for its answer."""

    label: str
    waited_ms: float
    asked: bool


class Kind(msgspec.Struct, frozen=True):
    """What became of the events of one kind.

    Attributes:
        handled: to their end, in error or not, or passed over because another instance is the controller.
        failed: of these, in error.
        preempted: never begun, since a session ended or the instance stopped before.
    """

    label: str
    handled: int
    failed: int
    preempted: int
    wait: Summary
    process: Summary


class QueueView(msgspec.Struct, frozen=True):
    """See the module.

    Attributes:
        oldest_ms: for how long the oldest event has waited; 0 if none does.
        refused: how often something was not taken, because too much waited already.
        next: the first of those that wait, in order.
        kinds: by label; those of which there was none are left out.
        wait: of events of all kinds, as long as there was one in the last five minutes.
    """

    depth: int
    oldest_ms: float
    refused: int
    current: Current | None
    next: list[Waiting]
    kinds: list[Kind]
    wait: Summary


class _Tally:
    def __init__(self) -> None:
        self.handled = self.failed = self.preempted = 0
        self.wait = Durations()
        self.process = Durations()


@dataclasses.dataclass(slots=True)
class _InHand:
    event: Event
    since_ms: int
    began_ms: float
    held_ms: float = 0.0  # spent on events that were handled between chunks of it
    failed: bool = False


class EventStats:
    """Which event's turn it is, and what became of those before. Kept by the loop.

    A large event stays in hand while small ones are handled between its chunks. What these take counts as theirs.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tallies: dict[str, _Tally] = {}
        self._wait = Durations(idle_ms=IDLE_MS)
        self._hand: list[_InHand] = []

    @property
    def depth(self) -> int:
        """How many events are in hand: 0, 1, or 2 while a small one is handled between chunks of a large one."""
        return len(self._hand)

    def begin(self, event: Event, waited_ms: float) -> None:
        now_ms = self._clock.monotonic_ms()
        self._tally(event).wait.add(waited_ms, now_ms=now_ms)
        self._wait.add(waited_ms, now_ms=now_ms)
        self._hand.append(_InHand(event, self._clock.now_ms(), now_ms))

    def fail(self) -> None:
        """The event that was begun last has failed."""
        self._hand[-1].failed = True

    def end(self) -> float:
        """The event that was begun last is done; how long it took by itself, in ms."""
        done = self._hand.pop()
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - done.began_ms
        if self._hand:
            self._hand[-1].held_ms += took_ms
        tally = self._tally(done.event)
        tally.handled += 1
        tally.failed += done.failed
        tally.process.add(took_ms - done.held_ms, now_ms=now_ms)
        return took_ms - done.held_ms

    def preempted(self, events: Iterable[Event]) -> None:
        for event in events:
            self._tally(event).preempted += 1

    def _tally(self, event: Event) -> _Tally:
        return self._tallies.setdefault(event.label, _Tally())

    def view(self, inbox: PriorityInbox[Event], *, limit: int) -> QueueView:
        """Everything at this moment; of the events that wait, `limit` are named, and NAMED_MAX at the most."""
        now_ms = self._clock.monotonic_ms()
        named = islice(inbox.waiting(), min(limit, NAMED_MAX))
        return QueueView(
            depth=len(inbox),
            oldest_ms=inbox.oldest_ms,
            refused=inbox.refused,
            current=self._in_hand(now_ms),
            next=[Waiting(event.label, waited_ms, asked) for event, waited_ms, asked in named],
            kinds=[
                Kind(
                    label,
                    tally.handled,
                    tally.failed,
                    tally.preempted,
                    tally.wait.summary(now_ms=now_ms),
                    tally.process.summary(now_ms=now_ms),
                )
                for label, tally in sorted(self._tallies.items())
            ],
            wait=self._wait.summary(now_ms=now_ms),
        )

    def _in_hand(self, now_ms: float) -> Current | None:
        if not self._hand:
            return None
        held, *between = self._hand
        return Current(
            held.event.label,
            int(held.event.state),
            held.since_ms,
            now_ms - held.began_ms,
            between[0].event.label if between else "",
        )
