"""Statistics of the controller's events: those that wait, the one in progress, and the durations of each kind.

The loop updates them. They are read while an event hangs, so nothing here waits for the loop.

Source: the classic controller's ControllerEventManager, QueuedEvent.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

import msgspec

from kactl.decide.messages.events import Event
from kactl.runtime.clock import Clock
from kactl.telemetry.durations import Durations, Summary

from .priority_inbox import PriorityInbox

# Without an event for this long, earlier waiting times are dropped. Kafka's number.
IDLE_MS: Final = 300_000
# At most this many waiting events are listed.
NAMED_MAX: Final = 1000


class Current(msgspec.Struct, frozen=True):
    """The event in progress. `state` as Kafka numbers it.

    Attributes:
        between: the small event that is handled between two chunks of it; empty if there is none.
    """

    label: str
    state: int
    since_ms: int  # wall clock
    for_ms: float
    between: str = ""


class Waiting(msgspec.Struct, frozen=True):
    """An event that waits, and whether a caller waits for its result."""

    label: str
    waited_ms: float
    asked: bool


class Kind(msgspec.Struct, frozen=True):
    """Statistics of the events of one kind.

    Attributes:
        handled: completed, with an error or not, or ignored because another instance is the controller.
        failed: of these, with an error.
        preempted: never begun, since the session ended or the instance stopped before.
    """

    label: str
    handled: int
    failed: int
    preempted: int
    wait: Summary
    process: Summary


class QueueView(msgspec.Struct, frozen=True):
    """The controller's inbox and its statistics, at one moment.

    Attributes:
        oldest_ms: how long the oldest event has waited; 0 if there is none.
        refused: number of events that were rejected because the inbox was full.
        next: the first waiting events, in order.
        kinds: by label; kinds without an event are left out.
        wait: of all kinds; empty if there was no event in the last five minutes.
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
        self.started = self.handled = self.failed = self.preempted = self.unchanged = 0
        self.wait = Durations()
        self.process = Durations()


@dataclasses.dataclass(slots=True)
class _InHand:
    event: Event
    since_ms: int
    began_ms: float
    held_ms: float = 0.0  # spent on events that preempted it
    failed: bool = False


class EventStats:
    """Collects the statistics.

    A large event stays in progress while small ones preempt it. The time of these does not count as its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tallies: dict[str, _Tally] = {}
        self._wait = Durations(idle_ms=IDLE_MS)
        self._hand: list[_InHand] = []

    @property
    def depth(self) -> int:
        """Returns the number of events in progress: 0, 1, or 2 while a small one preempts a large one."""
        return len(self._hand)

    @property
    def started(self) -> Mapping[str, int]:
        """Returns the number of events that were begun, by label; the one in progress included."""
        return {label: tally.started for label, tally in self._tallies.items()}

    @property
    def unchanged(self) -> Mapping[str, int]:
        """Returns the number of events that have changed nothing, by label."""
        return {label: tally.unchanged for label, tally in self._tallies.items() if tally.unchanged}

    def begin(self, event: Event, waited_ms: float) -> None:
        now_ms = self._clock.monotonic_ms()
        tally = self._tally(event)
        tally.started += 1
        tally.wait.add(waited_ms, now_ms=now_ms)
        self._wait.add(waited_ms, now_ms=now_ms)
        self._hand.append(_InHand(event, self._clock.now_ms(), now_ms))

    def fail(self) -> None:
        """Count the event that was begun last as failed."""
        self._hand[-1].failed = True

    def no_change(self) -> None:
        """Count the event that was begun last as one that has changed nothing."""
        done = self._hand[-1]
        self._tally(done.event).unchanged += not done.failed

    def end(self) -> float:
        """End the event that was begun last. Returns how long it took by itself, in ms."""
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
        """Returns the statistics at this moment, with the first `limit` waiting events, at most NAMED_MAX."""
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
        outer, *between = self._hand
        return Current(
            outer.event.label,
            int(outer.event.state),
            outer.since_ms,
            now_ms - outer.began_ms,
            between[0].event.label if between else "",
        )
