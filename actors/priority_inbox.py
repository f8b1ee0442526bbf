"""Inbox of the controller: priorities, events that are queued at most once or after a delay, and preemption.

The controller handles one event completely before the next starts. An event that concerns a hundred thousand partitions
takes long, and a request for a single election would wait for all of it. A large event therefore yields between two of
its chunks, at explicit yield points (`ControllerContext.yield_point`). Nothing of it is in flight there: what it has
decided is committed, applied and sent, and of the rest nothing was begun. A small event finds the cluster as if the
rest had not been looked at yet. Afterwards the rows of the rest are read anew, so that nothing is decided twice.

    BrokerChange    chunk 1, 2 ┐                     ┌ chunk 3, 4 ...
    ReplicaLeaderElection            └ handled ─ response  ┘

The `priority` of an event determines whether it may preempt; see `kactl.decide.messages.events.Priority`. The time of
small events is bounded, so that a flood of them delays the large event without starving it: at one yield point they
may take four times as long as the large event ran since the one before, so that at least a fifth of the time is its
own. At least one event is handled at each. Under any lower load all of them are handled, since a small event may well
be a write that is forced to disk, as a chunk is.
"""

import asyncio
import collections
import heapq
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kactl.decide.messages.events import Event, Priority
from kactl.model.errors import KactlError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.runtime.tasks import Tasks
from kactl.telemetry.event_record import Origin, present

from .actor import INBOX_LIMIT, Entry, Inbox

log = logger(__name__)


M = TypeVar("M")

# Number of lanes, one for each priority.
LANES: Final = 3
# This many messages of lane 2 may pass one of lane 1.
OVERTAKEN_MAX: Final = 20

# Responses of brokers preempt a large event only after this time: its next chunk is not planned before they are
# handled, though the store could be writing it meanwhile.
BETWEEN_AFTER_MS: Final = 100
# Small events are expected for this long after the last one.
HIGH_RATE_MS: Final = 1_000.0


class _Queued(NamedTuple):
    """A message in a lane. `number` is its position among all that were ever queued."""

    number: int
    message: Any
    reply_to: asyncio.Future[Any] | None
    put_ms: float
    once: bool
    origin: Origin


class PriorityInbox(Inbox[M]):
    """Inbox with lanes: messages of lane 2 pass those of lane 1, and otherwise the order is kept.

    A message that no caller waits for is in lane 1. It is passed by at most OVERTAKEN_MAX others.

    Args:
        lane: returns the lane of a message, below LANES.
    """

    def __init__(
        self, owner: str, limit: int = INBOX_LIMIT, *, now: Callable[[], float], lane: Callable[[M], int]
    ) -> None:
        super().__init__(owner, limit, now=now)
        self._lane = lane
        self._lanes: tuple[collections.deque[_Queued], ...] = tuple(collections.deque() for _ in range(LANES))
        self._count = 0  # of all messages that were ever queued
        self._overtaken = 0  # messages of lane 2 that passed those of lane 1 since one of these was taken
        self._once: set[M] = set()  # queued by `put_once` and not taken yet

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    @property
    def oldest_ms(self) -> float:
        return max((self._now() - lane[0].put_ms for lane in self._lanes if lane), default=0.0)

    def oldest_ms_in(self, lane: int) -> float:
        """Returns how long the oldest message of one lane has waited; 0 if there is none."""
        return self._now() - self._lanes[lane][0].put_ms if self._lanes[lane] else 0.0

    def in_lane(self, lane: int) -> Sequence[_Queued]:
        """Returns the messages of one lane, in order; valid until the inbox changes."""
        return self._lanes[lane]

    def holds(self, kind: type[M]) -> bool:
        """Returns whether a message of a type waits."""
        return any(isinstance(queued.message, kind) for lane in self._lanes for queued in lane)

    def waiting(self) -> Iterator[tuple[M, float, bool]]:
        """Yields each message in order, how long it has waited, and whether a caller waits for its result."""
        now_ms = self._now()
        for queued in heapq.merge(*self._lanes, key=_number):
            yield queued.message, now_ms - queued.put_ms, queued.reply_to is not None

    def put_once(self, message: M) -> None:
        """Queue a message that only requests a read, unless an equal one waits already. It has to be hashable.

        The limit does not apply: a change that is notified only once, as by a watch, must not be lost. The number of
        such messages is bounded by the number of objects that can be read.

        Raises:
            ActorStopped: the inbox is closed.
        """
        if message not in self._once:
            self._check_open()
            self._queue(Entry(message, None, self._now(), present(traced=False)), once=True)
            self._once.add(message)

    def take_from(self, *lanes: int) -> tuple[M, asyncio.Future[Any] | None] | None:
        """Return the oldest message of the first of these lanes that has one; None if none has."""
        for lane in lanes:
            if self._lanes[lane]:
                return self._taken(self._pop_from(self._lanes[lane]))
        return None

    def drain(self) -> list[Entry[M]]:
        drained: list[Entry[M]] = [
            Entry(queued.message, queued.reply_to, queued.put_ms) for queued in heapq.merge(*self._lanes, key=_number)
        ]
        for lane in self._lanes:
            lane.clear()
        self._once.clear()
        return drained

    def _bounded(self) -> int:
        return len(self) - len(self._once)

    def _append(self, entry: Entry[M]) -> None:
        self._queue(entry)

    def _queue(self, entry: Entry[M], *, once: bool = False) -> None:
        lane = self._lanes[self._lane(entry.message)]
        lane.append(_Queued(self._count, entry.message, entry.reply_to, entry.put_ms, once, entry.origin))
        self._count += 1
        self._wake_up()

    def _pop(self) -> Entry[M] | None:
        lane = self._next_lane()
        return None if lane is None else self._pop_from(lane)

    def _pop_from(self, lane: collections.deque[_Queued]) -> Entry[M]:
        queued = lane.popleft()
        if queued.once:
            self._once.discard(queued.message)
        return Entry(queued.message, queued.reply_to, queued.put_ms, queued.origin)

    def _next_lane(self) -> collections.deque[_Queued] | None:
        """The lane of the oldest message, or of one that passes it; None if the inbox is empty."""
        taken = [lane for lane in self._lanes if lane]
        if not taken:
            return None
        oldest = min(taken, key=lambda lane: lane[0].number)
        patient, hasty = self._lanes[1], self._lanes[2]
        if oldest is not patient:
            return oldest
        self._overtaken = self._overtaken + 1 if hasty and self._overtaken < OVERTAKEN_MAX else 0
        return hasty if self._overtaken else patient


def _number(queued: _Queued) -> int:
    return queued.number


async def _nothing() -> None: ...


class Preemption:
    """Preemption of the event in progress, which the controller's loop and its machines share.

    Args:
        inbox: the controller's; None if no event is ever preempted.
        now: the monotonic clock, in ms.

    Attributes:
        is_ready: the takeover is complete. Nothing preempts one.
        depth: number of events in progress: 0, 1, or 2 while a small one preempts a large one.
        run_small_events: handles small events that wait. To be called where nothing of the large event is in flight.
            Raises ControllerMoved or IllegalState if a small event ended the controllership, or must end it. The large
            event is over.
    """

    def __init__(self, inbox: PriorityInbox[Any] | None = None, now: Callable[[], float] = lambda: 0.0) -> None:
        self._inbox = inbox
        self._now = now
        self._small_ms = -HIGH_RATE_MS
        self.is_ready = False
        self.depth = 0
        self.run_small_events: Callable[[], Awaitable[None]] = _nothing

    def begun(self, priority: Priority) -> None:
        """Note the begin of an event."""
        self.depth += 1
        if priority is Priority.HIGH:
            self._small_ms = self._now()

    def is_due(self) -> bool:
        """Returns whether a small event waits that should not wait any longer."""
        inbox = self._inbox
        if inbox is None or not (inbox.in_lane(Priority.HIGH) or inbox.oldest_ms_in(Priority.LOW) >= BETWEEN_AFTER_MS):
            return False
        return self.is_allowed()

    def is_allowed(self) -> bool:
        """Returns False during a takeover and during a small event, and if the end of the controllership waits, which
        nothing may overtake."""
        if self._inbox is None or self.depth != 1 or not self.is_ready:
            return False
        return not any(entry.message.on_standby for entry in self._inbox.in_lane(Priority.EXCLUSIVE))

    def is_high_rate(self) -> bool:
        """Returns whether small events have arrived lately, so that more are likely."""
        return self._now() - self._small_ms < HIGH_RATE_MS


# For controllers and machines that handle each event as a whole.
NEVER: Final = Preemption()


class Timers:
    """Queues events after a delay. They are cancelled when the controllership ends.

    Args:
        enqueue: called with an event when its delay has passed.
    """

    def __init__(self, clock: Clock, enqueue: Callable[[Event], object]) -> None:
        self._clock = clock
        self._enqueue = enqueue
        self._tasks = Tasks("the timers of a controller")
        self._running: dict[Event, asyncio.Task[None]] = {}

    def set(self, event: Event, delay_ms: float) -> None:
        """Queue `event` after `delay_ms`. Replaces a timer that is already set for an equal event."""
        self.cancel(event)
        self._running[event] = self._tasks.spawn(self._later(event, delay_ms), name=f"timer: {event.label}")

    async def _later(self, event: Event, delay_ms: float) -> None:
        await self._clock.sleep_ms(delay_ms)
        del self._running[event]
        try:
            self._enqueue(event)
        except KactlError as refused:
            log.info("the timer of %s is dropped: %s", event.label, refused)

    @property
    def events(self) -> tuple[Event, ...]:
        """Events whose timers are set."""
        return tuple(self._running)

    def is_set(self, event: Event) -> bool:
        return event in self._running

    def cancel(self, event: Event) -> None:
        """Cancel the timer of `event`, if one is set."""
        running = self._running.pop(event, None)
        if running is not None:
            running.cancel()

    def cancel_all(self) -> None:
        for event in self.events:
            self.cancel(event)
