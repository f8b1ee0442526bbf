"""Event log: a bounded ring of events, read by `watch`, the event stream and subscribers.

A change of a hundred thousand partitions is stored as columns and expanded to single events only when it is read, so
recording costs a copy of a few columns. A reader that falls behind the ring receives a `Reset` and must read the
present state again.
"""

import asyncio
import collections
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from kactl.decide.messages.control import OrderReason
from kactl.decide.messages.log import (
    AnyEvent,
    BrokerEvent,
    ControllerEvent,
    ElectionEvent,
    HandlerEvent,
    PartitionEvent,
    ReplicaEvent,
    RequestEvent,
    Reset,
    TopicEvent,
)
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.rows import Bools, Rows
from kactl.decide.state.topics import AllTopics
from kactl.model import PartitionState, ReplicaState
from kactl.model.errors import IllegalState
from kactl.runtime.clock import Clock

from .event_record import EventRecord, traceparent
from .log_entries import Entry, Partitions, Replicas, Single, TransitionCounts
from .outages import Outages

# A restart of a large cluster fits; at some 60 bytes an entry this is a few megabytes.
RING_LIMIT: Final = 100_000
# Strategy of the first leader of a partition.
FIRST: Final = "first"
# Number of events that one read returns before other tasks run.
_READ_AT_ONCE: Final = 500
# Number of entries that are searched before other tasks run; at some 3 µs each.
_ENTRIES_AT_ONCE: Final = 500


class EventLog:
    """The ring. Written by the controller's own actors, read by any task of the same event loop.

    Args:
        limit: number of events that are kept; the newest entry is kept complete, whatever its size.
        first: number of the first event. If it is higher than all numbers of the previous process, a reader that
            returns after a restart detects that it missed events.

    Attributes:
        current: the controller event in progress, which is the cause of what is added; `idle` between events.
        outages: partitions without a leader.
    """

    def __init__(self, clock: Clock, *, limit: int = RING_LIMIT, first: int = 1) -> None:
        self._clock = clock
        self._started_ms = clock.now_ms()
        self.current = self.idle = EventRecord(clock)
        self.outages = Outages()
        self._limit = limit
        self._ring: collections.deque[Entry] = collections.deque()
        self._stored = 0
        self._dropped = False
        self._next = first
        self._first = first
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def seq(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return self._next - 1

    @property
    def oldest(self) -> int:
        """The number of the oldest event that is still stored."""
        return self._ring[0].first if self._ring else self._next

    @property
    def first(self) -> int:
        """The number of the first event of this process; lower numbers were read back from earlier ones."""
        return self._first

    def restore(self, events: Sequence[AnyEvent], *, orderly: bool) -> None:
        """Insert the last events of earlier processes, and continue their numbers. The ring must be empty.

        Args:
            events: with ascending numbers, and gaps between processes; the oldest ones beyond the limit are dropped.
            orderly: whether nothing happened after the last of them. If not, a Reset follows it.
        """
        if self._ring:
            raise IllegalState(
                "events of earlier processes must be restored before the first event of this one is added"
            )
        if not events:
            return
        # One more for the Reset. Numbers start at the wall clock, which may have been set back since.
        self._next = self._first = max(self._next, events[-1].seq + 2)
        entries = [Single(event.seq, event) for event in events[-self._limit :]]
        if not orderly:
            entries.append(Single(self._next - 1, Reset(seq=self._next - 1, time_ms=self._clock.now_ms())))
        self._ring.extend(entries)
        self._stored = len(entries)

    def reason(self, strategy: str = "") -> OrderReason | None:
        """Returns why orders are sent now; None if no event is in progress.

        Args:
            strategy: of the election that chose the leaders.
        """
        because = self.current.because
        if because is None:
            return None
        return OrderReason(because.trigger, strategy, because.event, because.origin, traceparent(self.current.anchor))

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, event: AnyEvent) -> AnyEvent:
        """Append one event. Returns it with its number and time, which are set here."""
        stamp: dict[str, Any] = {"seq": self._next, "time_ms": self._clock.now_ms()}
        if isinstance(event, BrokerEvent | TopicEvent) and event.because is None:
            stamp["because"] = self.current.because
        stamped = msgspec.structs.replace(event, **stamp)
        self._append(Single(self._next, stamped))
        return stamped

    def add_partitions(
        self,
        change: Change,
        topics: AllTopics,
        *,
        controller_epoch: int,
        which: Bools | None = None,
        strategy: str = "",
    ) -> None:
        """Append the committed or rejected changes of some partitions; only of `which`, bool[n], if given.

        Args:
            strategy: of the election that made the changes.
        """
        positions = range(len(change)) if which is None or which.all() else np.flatnonzero(which)
        if len(positions):
            self._append(
                Partitions(
                    self._next,
                    self._clock.now_ms(),
                    controller_epoch,
                    topics,
                    change.rows.state,
                    change.after(),
                    change.refusal,
                    positions,
                    self.current.by(strategy),
                )
            )

    def add_replicas(
        self,
        rows: Rows,
        moved: Bools,
        after: ReplicaState,
        topics: AllTopics,
        *,
        controller_epoch: int,
        refusal: Refusal = Refusal.NONE,
    ) -> None:
        """Append the state changes of the replicas `moved`, bool[W, n]; changes to the same state are skipped.

        Args:
            refusal: why none of them has changed its state to `after`; NONE if they have.
        """
        moved = moved & ((rows.replica_state != after) | (refusal is not Refusal.NONE))
        count = int(np.count_nonzero(moved))
        if count:
            self._append(
                Replicas(
                    self._next,
                    self._clock.now_ms(),
                    controller_epoch,
                    topics,
                    rows.topic,
                    rows.partition,
                    rows.replicas,
                    rows.replica_state,
                    moved,
                    count,
                    int(after),
                    self.current.because,
                    refusal,
                )
            )

    def record_leaders(self, change: Change, target: PartitionState | None = None, strategy: str = "") -> None:
        """Count the new leaders of an applied change for the event in progress, and for the outages.

        Args:
            target: the state to which all partitions have moved; None if they moved to none.
        """
        event = self.current
        count = int(np.count_nonzero(change.leader != change.rows.leader))
        event.moved += count
        if target is None:
            return
        if count and target == PartitionState.ONLINE:
            event.strategy = event.strategy or strategy
        if len(change):
            self.outages.note(change, target, event, self._clock.monotonic_ms())

    def _append(self, entry: Entry) -> None:
        self._ring.append(entry)
        self._stored += len(entry)
        self._next += len(entry)
        # The newest entry is kept complete, whatever its size.
        while self._stored > self._limit and len(self._ring) > 1:
            self._stored -= len(self._ring.popleft())
            self._dropped = True
        self.wake()

    def wake(self) -> None:
        """End the waits of all callers of `changed`: something without an event of its own has changed."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(
        self, after: int, *, limit: int = _READ_AT_ONCE, kinds: Collection[str] = ()
    ) -> tuple[list[AnyEvent], int]:
        """Returns the events after number `after`; 0 is before the oldest one, of this process or of those before it.

        Args:
            kinds: of `KINDS`; all if empty. A Reset is of every kind.

        Returns:
            At most `limit` events, and the number to continue from. The first event is a Reset if events after `after`
            are no longer stored, or `after` is in the future (a number of another process).
        """
        events: list[AnyEvent] = []
        if after == 0 and not self._dropped:
            after = self.oldest - 1
        if after > self.seq or after < self.oldest - 1:
            after = self.seq if after > self.seq else self.oldest - 1
            events.append(Reset(seq=after, time_ms=self._clock.now_ms()))
        wanted = _TAGS if not kinds else {tag: kind for tag, kind in _TAGS.items() if kind in kinds}
        seq = after
        for entry in self._behind(after):
            if isinstance(entry, Partitions | Replicas) and _KIND_OF[type(entry)] not in wanted.values():
                seq = entry.first + len(entry) - 1
                continue
            for event in entry.expand(max(0, after + 1 - entry.first)):
                if len(events) >= limit:
                    return events, seq
                seq = event.seq
                if type(event) in wanted or type(event) is Reset:
                    events.append(event)
        return events, self.seq  # after the last entry, and after the gap that an earlier process left behind it

    def _behind(self, after: int) -> Iterator[Entry]:
        """Returns the entries with events after number `after`, oldest first. Searches from the newest entry."""
        entries = []
        for entry in reversed(self._ring):
            if entry.first + len(entry) - 1 <= after:
                break
            entries.append(entry)
        return reversed(entries)

    async def of_partition(self, topic: str, partition: int, *, limit: int) -> list[AnyEvent]:
        """Returns the newest events of one partition and its replicas, at most `limit`, oldest first."""
        found: list[AnyEvent] = []
        async for entry in self._newest_first():
            found += reversed(list(entry.of_partition(topic, partition)))
            if len(found) >= limit:
                break
        return found[:limit][::-1]

    def last_before(self, time_ms: int) -> int:
        """Returns the number of the last event before a time by the wall clock; the one before the oldest for none."""
        for entry in reversed(self._ring):
            if entry.time_ms < time_ms:
                return entry.first + len(entry) - 1
        return self.oldest - 1

    def oldest_ms(self) -> int | None:
        """Returns the time of the oldest event that is still stored; None if there is none."""
        return self._ring[0].time_ms if self._ring else None

    async def transitions(self, since_ms: int) -> tuple[TransitionCounts, int]:
        """Count the transitions of this process since a time by the wall clock.

        Returns:
            The counts, and the time from which they are complete: later than `since_ms` if this process is younger, or
            if older events are no longer stored.
        """
        counts, oldest_ms = TransitionCounts(), self._clock.now_ms()
        complete_ms = max(since_ms, self._started_ms)
        is_whole = not self._dropped
        async for entry in self._newest_first():
            if entry.first < self._first or entry.time_ms < since_ms:
                return counts, complete_ms
            entry.tally(counts)
            oldest_ms = entry.time_ms
        return counts, complete_ms if is_whole else oldest_ms

    async def _newest_first(self) -> AsyncIterator[Entry]:
        """Yields the present entries. Other tasks run at intervals."""
        for number, entry in enumerate(reversed(list(self._ring)), start=1):
            yield entry
            if number % _ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def follow(self, after: int | None = None, *, kinds: Collection[str] = ()) -> AsyncIterator[AnyEvent]:
        """Yields the events from now on, or after number `after`, until the reader stops."""
        seq = self.seq if after is None else after
        while True:
            events, seq = self.read(seq, kinds=kinds)
            for event in events:
                yield event
            if not events and seq >= self.seq:
                await self.changed()

    async def changed(self) -> None:
        """Wait until an event is added, or `wake` is called."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            # A reader that stops must not stay registered until the next event, which may be weeks away.
            self._waiting.discard(future)


_TAGS: Final[dict[type, str]] = {
    ControllerEvent: "controller",
    BrokerEvent: "broker",
    TopicEvent: "topic",
    PartitionEvent: "partition",
    ReplicaEvent: "replica",
    HandlerEvent: "handler",
    RequestEvent: "request",
    ElectionEvent: "election",
    Reset: "reset",
}
_KIND_OF: Final[dict[type, str]] = {Partitions: "partition", Replicas: "replica"}
