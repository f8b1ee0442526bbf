"""Inbox of the controller: priorities, and events that are queued at most once."""

import asyncio
import collections
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kactl.telemetry.event_record import Origin, present

from .actor import INBOX_LIMIT, Entry, Inbox

M = TypeVar("M")

# Number of lanes, one for each priority.
LANES: Final = 3
# This many messages of lane 2 may pass one of lane 1.
OVERTAKEN_MAX: Final = 20


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
