"""Event log: a bounded ring of events, read by `watch`, the event stream and subscribers.

A change of a hundred thousand partitions is stored as columns and expanded to single events only when it is read, so
recording costs a copy of a few columns. A reader that falls behind the ring receives a `Reset` and must read the
present state again.
"""

import asyncio
import collections
import dataclasses
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from kactl.clock import Clock
from kactl.errors import IllegalState
from kactl.messages.log import (
    AnyEvent,
    BrokerEvent,
    ControllerEvent,
    PartitionEvent,
    ReplicaEvent,
    RequestEvent,
    Reset,
    TopicEvent,
)
from kactl.model import PartitionState, ReplicaState
from kactl.state.change import REFUSAL_TEXT, Change, Refusal
from kactl.state.rows import Bools, Bytes, Ints, RowNumbers, Rows
from kactl.state.topics import AllTopics

# A restart of a large cluster fits; at some 60 bytes an entry this is a few megabytes.
RING_LIMIT: Final = 100_000
# Number of events that one read returns before other tasks run.
_READ_AT_ONCE: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class _Single:
    first: int
    event: AnyEvent

    def __len__(self) -> int:
        return 1

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        yield self.event


@dataclasses.dataclass(frozen=True, slots=True)
class _Partitions:
    """Many partition events, as columns."""

    first: int
    time_ms: int
    controller_epoch: int
    topics: AllTopics
    before: Bytes
    after: Rows
    refusal: Bytes
    which: RowNumbers | range  # the positions that are events; the other rows were only planned with them

    def __len__(self) -> int:
        return len(self.which)

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        rows = self.after
        for number in range(begin, len(self)):
            row = int(self.which[number])
            isr = rows.replicas[:, row][rows.in_sync[:, row]]
            yield PartitionEvent(
                seq=self.first + number,
                time_ms=self.time_ms,
                controller_epoch=self.controller_epoch,
                topic=self.topics[int(rows.topic[row])].name,
                partition=int(rows.partition[row]),
                from_state=PartitionState(int(self.before[row])),
                to_state=PartitionState(int(rows.state[row])),
                leader=int(rows.leader[row]),
                leader_epoch=int(rows.leader_epoch[row]),
                isr=tuple(isr.tolist()),
                partition_epoch=int(rows.partition_epoch[row]),
                recovering=bool(rows.recovering[row]),
                refused=REFUSAL_TEXT[Refusal(int(self.refusal[row]))],
            )


@dataclasses.dataclass(slots=True)
class _Replicas:
    """Many replica events, as columns: the replicas `moved`, bool[W, n], by slot and then by row."""

    first: int
    time_ms: int
    controller_epoch: int
    topics: AllTopics
    topic: Ints
    partition: Ints
    brokers: Ints  # [W, n]
    before: Bytes  # [W, n]
    moved: Bools
    count: int
    after: int
    # Positions of the moved replicas; computed at the first read.
    _positions: tuple[RowNumbers, ...] | None = None

    def __len__(self) -> int:
        return self.count

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        if self._positions is None:
            self._positions = np.nonzero(self.moved)
        slots, positions = self._positions
        for number in range(begin, len(self)):
            slot, row = int(slots[number]), int(positions[number])
            yield ReplicaEvent(
                seq=self.first + number,
                time_ms=self.time_ms,
                controller_epoch=self.controller_epoch,
                topic=self.topics[int(self.topic[row])].name,
                partition=int(self.partition[row]),
                broker=int(self.brokers[slot, row]),
                from_state=ReplicaState(int(self.before[slot, row])),
                to_state=ReplicaState(self.after),
            )


class EventLog:
    """The ring. Written by the controller's own actors, read by any task of the same event loop.

    Args:
        limit: number of events that are kept; the newest entry is kept complete, whatever its size.
        first: number of the first event. If it is higher than all numbers of the previous process, a reader that
            returns after a restart detects that it missed events.
    """

    def __init__(self, clock: Clock, *, limit: int = RING_LIMIT, first: int = 1) -> None:
        self._clock = clock
        self._limit = limit
        self._ring: collections.deque[_Single | _Partitions | _Replicas] = collections.deque()
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
        entries = [_Single(event.seq, event) for event in events[-self._limit :]]
        if not orderly:
            entries.append(_Single(self._next - 1, Reset(seq=self._next - 1, time_ms=self._clock.now_ms())))
        self._ring.extend(entries)
        self._stored = len(entries)

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, event: AnyEvent) -> None:
        """Append one event. Its number and time are set here."""
        stamped = msgspec.structs.replace(event, seq=self._next, time_ms=self._clock.now_ms())
        self._append(_Single(self._next, stamped))

    def add_partitions(
        self, change: Change, topics: AllTopics, *, controller_epoch: int, which: Bools | None = None
    ) -> None:
        """Append the committed or rejected changes of some partitions; only of `which`, bool[n], if given."""
        positions = range(len(change)) if which is None or which.all() else np.flatnonzero(which)
        if len(positions):
            self._append(
                _Partitions(
                    self._next,
                    self._clock.now_ms(),
                    controller_epoch,
                    topics,
                    change.rows.state,
                    change.after(),
                    change.refusal,
                    positions,
                )
            )

    def add_replicas(
        self, rows: Rows, moved: Bools, after: ReplicaState, topics: AllTopics, *, controller_epoch: int
    ) -> None:
        """Append the state changes of the replicas `moved`, bool[W, n]; changes to the same state are skipped."""
        moved = moved & (rows.replica_state != after)
        count = int(np.count_nonzero(moved))
        if count:
            self._append(
                _Replicas(
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
                )
            )

    def _append(self, entry: _Single | _Partitions | _Replicas) -> None:
        self._ring.append(entry)
        self._stored += len(entry)
        self._next += len(entry)
        # The newest entry is kept complete, whatever its size.
        while self._stored > self._limit and len(self._ring) > 1:
            self._stored -= len(self._ring.popleft())
            self._dropped = True
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
            if isinstance(entry, _Partitions | _Replicas) and _KIND_OF[type(entry)] not in wanted.values():
                seq = entry.first + len(entry) - 1
                continue
            for event in entry.expand(max(0, after + 1 - entry.first)):
                if len(events) >= limit:
                    return events, seq
                seq = event.seq
                if type(event) in wanted or type(event) is Reset:
                    events.append(event)
        return events, self.seq  # after the last entry, and after the gap that an earlier process left behind it

    def _behind(self, after: int) -> Iterator[_Single | _Partitions | _Replicas]:
        """Returns the entries with events after number `after`, oldest first. Searches from the newest entry."""
        entries = []
        for entry in reversed(self._ring):
            if entry.first + len(entry) - 1 <= after:
                break
            entries.append(entry)
        return reversed(entries)

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
        """Wait until an event is added."""
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
    RequestEvent: "request",
    Reset: "reset",
}
_KIND_OF: Final[dict[type, str]] = {_Partitions: "partition", _Replicas: "replica"}
