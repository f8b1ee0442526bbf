"""What happened, in order: the ring from which `watch`, the event stream and subscribers read.

A change of a hundred thousand partitions is kept as the columns it came in and becomes single events only when
somebody reads them, so that recording costs a copy of a few columns. The ring has a bound; who falls behind it is told
by a `Reset` to read the present state anew.
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
# How many events one read hands over before others get a turn.
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
    which: RowNumbers | range  # the positions that are events; the others only came along

    def __len__(self) -> int:
        return len(self.which)

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        rows = self.after
        for number in range(begin, len(self)):
            at = int(self.which[number])
            isr = rows.replicas[:, at][rows.in_sync[:, at]]
            yield PartitionEvent(
                seq=self.first + number,
                time_ms=self.time_ms,
                controller_epoch=self.controller_epoch,
                topic=self.topics[int(rows.topic[at])].name,
                partition=int(rows.partition[at]),
                from_state=PartitionState(int(self.before[at])),
                to_state=PartitionState(int(rows.state[at])),
                leader=int(rows.leader[at]),
                leader_epoch=int(rows.leader_epoch[at]),
                isr=tuple(isr.tolist()),
                partition_epoch=int(rows.partition_epoch[at]),
                recovering=bool(rows.recovering[at]),
                refused=REFUSAL_TEXT[Refusal(int(self.refusal[at]))],
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
    # Where they stand; looked for when somebody reads them.
    _found: tuple[RowNumbers, ...] | None = None

    def __len__(self) -> int:
        return self.count

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        if self._found is None:
            self._found = np.nonzero(self.moved)
        slots, positions = self._found
        for number in range(begin, len(self)):
            slot, at = int(slots[number]), int(positions[number])
            yield ReplicaEvent(
                seq=self.first + number,
                time_ms=self.time_ms,
                controller_epoch=self.controller_epoch,
                topic=self.topics[int(self.topic[at])].name,
                partition=int(self.partition[at]),
                broker=int(self.brokers[slot, at]),
                from_state=ReplicaState(int(self.before[slot, at])),
                to_state=ReplicaState(self.after),
            )


class History:
    """The ring. Written by the controller's own actors, read by anybody in the same event loop.

    Args:
        limit: how many events are held; the newest entry is held whole, however many it is.
        first: the number of the first event. One that is higher than any number of the process before lets a reader
            who comes back after a restart see that it missed something.
    """

    def __init__(self, clock: Clock, *, limit: int = RING_LIMIT, first: int = 1) -> None:
        self._clock = clock
        self._limit = limit
        self._ring: collections.deque[_Single | _Partitions | _Replicas] = collections.deque()
        self._held = 0
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
        """The number of the oldest event that is still held."""
        return self._ring[0].first if self._ring else self._next

    @property
    def first(self) -> int:
        """The number of the first event of this process; lower numbers were read back from earlier ones."""
        return self._first

    def restore(self, events: Sequence[AnyEvent], *, orderly: bool) -> None:
        """Hold the last events of earlier processes, and continue their numbers. Nothing may have been added yet.

        Args:
            events: numbers ascend, with gaps between processes; those that the limit leaves no room for are dropped.
            orderly: whether nothing happened after the last of them. If not, a Reset follows it.
        """
        if self._ring:
            raise IllegalState("the history of earlier processes comes before the first event of this one")
        if not events:
            return
        # One more for the Reset. The wall clock, by which numbers begin, may have been set back since.
        self._next = self._first = max(self._next, events[-1].seq + 2)
        kept = [_Single(event.seq, event) for event in events[-self._limit :]]
        if not orderly:
            kept.append(_Single(self._next - 1, Reset(seq=self._next - 1, time_ms=self._clock.now_ms())))
        self._ring.extend(kept)
        self._held = len(kept)

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, event: AnyEvent) -> None:
        """One event; its number and time are set here."""
        stamped = msgspec.structs.replace(event, seq=self._next, time_ms=self._clock.now_ms())
        self._append(_Single(self._next, stamped))

    def add_partitions(
        self, change: Change, topics: AllTopics, *, controller_epoch: int, which: Bools | None = None
    ) -> None:
        """What was committed and applied, or refused, of some partitions; of those of `which`, bool[n], if given."""
        told = range(len(change)) if which is None or which.all() else np.flatnonzero(which)
        if len(told):
            self._append(
                _Partitions(
                    self._next,
                    self._clock.now_ms(),
                    controller_epoch,
                    topics,
                    change.rows.state,
                    change.after(),
                    change.refusal,
                    told,
                )
            )

    def add_replicas(
        self, rows: Rows, moved: Bools, after: ReplicaState, topics: AllTopics, *, controller_epoch: int
    ) -> None:
        """The moves of the replicas `moved`, bool[W, n]; moves to the same state are passed over."""
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
        self._held += len(entry)
        self._next += len(entry)
        # The newest entry stays whole, however large it is.
        while self._held > self._limit and len(self._ring) > 1:
            self._held -= len(self._ring.popleft())
            self._dropped = True
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(
        self, after: int, *, limit: int = _READ_AT_ONCE, kinds: Collection[str] = ()
    ) -> tuple[list[AnyEvent], int]:
        """Events behind number `after`; 0 is the oldest one, of this process or of those before it.

        Args:
            kinds: of `KINDS`; all if empty. A Reset is of every kind.

        Returns:
            at the most `limit` events, and the number behind which the next read should go on. The first is a Reset
            where events behind `after` are no longer held, or `after` lies in the future (another process counted).
        """
        found: list[AnyEvent] = []
        if after == 0 and not self._dropped:
            after = self.oldest - 1
        if after > self.seq or after < self.oldest - 1:
            after = self.seq if after > self.seq else self.oldest - 1
            found.append(Reset(seq=after, time_ms=self._clock.now_ms()))
        wanted = _TAGS if not kinds else {tag: kind for tag, kind in _TAGS.items() if kind in kinds}
        at = after
        for entry in self._behind(after):
            if isinstance(entry, _Partitions | _Replicas) and _KIND_OF[type(entry)] not in wanted.values():
                at = entry.first + len(entry) - 1
                continue
            for event in entry.expand(max(0, after + 1 - entry.first)):
                if len(found) >= limit:
                    return found, at
                at = event.seq
                if type(event) in wanted or type(event) is Reset:
                    found.append(event)
        return found, self.seq  # behind the last entry, and behind the gap that an earlier process left after it

    def _behind(self, after: int) -> Iterator[_Single | _Partitions | _Replicas]:
        """The entries that hold events behind number `after`, oldest first; found from the newest on."""
        found = []
        for entry in reversed(self._ring):
            if entry.first + len(entry) - 1 <= after:
                break
            found.append(entry)
        return reversed(found)

    async def follow(self, after: int | None = None, *, kinds: Collection[str] = ()) -> AsyncIterator[AnyEvent]:
        """Events from now on, or from behind number `after`, for as long as the reader reads."""
        at = self.seq if after is None else after
        while True:
            events, at = self.read(at, kinds=kinds)
            for event in events:
                yield event
            if not events and at >= self.seq:
                await self.changed()

    async def changed(self) -> None:
        """Wait until something is added."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            # Whoever gives up must not be kept until something happens, in a cluster that rests for weeks.
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
