"""Entries of the event log's ring: one event, or the events of one change of many partitions as columns.

A column of events is expanded to single events, searched for one partition, and counted by transition without making an
object for each event.
"""

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kactl.decide.messages.log import AnyEvent, Cause, HandlerEvent, PartitionEvent, ReplicaEvent
from kactl.decide.state.change import REFUSAL_TEXT, Refusal
from kactl.decide.state.rows import Bools, Bytes, Ints, RowNumbers, Rows
from kactl.decide.state.topics import AllTopics
from kactl.model import PartitionState, ReplicaState

# Above the number of every state.
_STATES: Final = 8


@dataclasses.dataclass(slots=True)
class TransitionCounts:
    """Transitions of some time, by (from, to).

    Attributes:
        partitions, replicas: changes of the state. A partition that stays online counts if it got a leader.
        illegal: attempts that the transition table of partitions does not allow, by state.
        refused: other attempts that failed, by state.
    """

    partitions: collections.Counter[tuple[int, int]] = dataclasses.field(default_factory=collections.Counter)
    replicas: collections.Counter[tuple[int, int]] = dataclasses.field(default_factory=collections.Counter)
    illegal: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    refused: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)


@dataclasses.dataclass(frozen=True, slots=True)
class Single:
    first: int
    event: AnyEvent

    def __len__(self) -> int:
        return 1

    @property
    def time_ms(self) -> int:
        return self.event.time_ms

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        yield self.event

    def of_partition(self, topic: str, partition: int) -> Iterator[AnyEvent]:
        event = self.event
        if not isinstance(event, PartitionEvent | ReplicaEvent | HandlerEvent):
            return
        if event.topic == topic and event.partition == partition:
            yield event

    def tally(self, counts: TransitionCounts) -> None:
        pass  # only entries of earlier processes have single events of partitions


@dataclasses.dataclass(frozen=True, slots=True)
class Partitions:
    """Many partition events, as columns."""

    first: int
    time_ms: int
    controller_epoch: int
    topics: AllTopics
    before: Bytes
    after: Rows
    refusal: Bytes
    which: RowNumbers | range  # the positions that are events; the other rows were only planned with them
    because: Cause | None

    def __len__(self) -> int:
        return len(self.which)

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        return map(self._event, range(begin, len(self)))

    def of_partition(self, topic: str, partition: int) -> Iterator[AnyEvent]:
        same = np.flatnonzero(self._of(self.after.partition) == partition).tolist()
        for number in same:
            if self.topics[int(self.after.topic[self.which[number]])].name == topic:
                yield self._event(number)

    def tally(self, counts: TransitionCounts) -> None:
        before, after, refusal = self._of(self.before), self._of(self.after.state), self._of(self.refusal)
        accepted = refusal == Refusal.NONE
        if self.because is None or not self.because.strategy:
            # Of the partitions that keep their state, only those that got a leader have made a transition.
            accepted &= before != after
        _count_pairs(before[accepted], after[accepted], counts.partitions)
        illegal = refusal == Refusal.ILLEGAL_MOVE
        _count_states(before[illegal], counts.illegal)
        _count_states(before[~illegal & (refusal != Refusal.NONE)], counts.refused)

    def _of(self, column: Any) -> Any:
        """Returns the values of the events. A range selects all rows."""
        return column if isinstance(self.which, range) else column[self.which]

    def _event(self, number: int) -> PartitionEvent:
        rows = self.after
        row = int(self.which[number])
        replicas = rows.replicas[:, row]
        isr, assigned = replicas[rows.in_sync[:, row]], replicas[rows.assigned[:, row]]
        return PartitionEvent(
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
            replicas=tuple(assigned.tolist()),
            because=self.because,
        )


@dataclasses.dataclass(slots=True)
class Replicas:
    """Many replica events, as columns: the replicas `moved`, bool[W, n], by slot and then by row.

    Attributes:
        refusal: why they have not changed to the state `after`; NONE if they have.
    """

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
    because: Cause | None
    refusal: Refusal = Refusal.NONE
    # Positions of the moved replicas; computed at the first read.
    _positions: tuple[RowNumbers, ...] | None = None

    def __len__(self) -> int:
        return self.count

    def expand(self, begin: int) -> Iterator[AnyEvent]:
        return map(self._event, range(begin, len(self)))

    def of_partition(self, topic: str, partition: int) -> Iterator[AnyEvent]:
        _, rows = self._found()
        for number in np.flatnonzero(self.partition[rows] == partition).tolist():
            if self.topics[int(self.topic[rows[number]])].name == topic:
                yield self._event(number)

    def tally(self, counts: TransitionCounts) -> None:
        if self.refusal is not Refusal.NONE:
            return  # counted by the machine
        before = self.before[self._found()]
        _count_pairs(before, np.full_like(before, self.after), counts.replicas)

    def _found(self) -> tuple[RowNumbers, ...]:
        if self._positions is None:
            self._positions = np.nonzero(self.moved)
        return self._positions

    def _event(self, number: int) -> ReplicaEvent:
        slots, rows = self._found()
        slot, row = int(slots[number]), int(rows[number])
        before = ReplicaState(int(self.before[slot, row]))
        is_refused = self.refusal is not Refusal.NONE
        return ReplicaEvent(
            seq=self.first + number,
            time_ms=self.time_ms,
            controller_epoch=self.controller_epoch,
            topic=self.topics[int(self.topic[row])].name,
            partition=int(self.partition[row]),
            broker=int(self.brokers[slot, row]),
            from_state=before,
            to_state=before if is_refused else ReplicaState(self.after),
            refused=f"cannot become {ReplicaState(self.after).name}: {REFUSAL_TEXT[self.refusal]}"
            if is_refused
            else "",
            because=self.because,
        )


Entry = Single | Partitions | Replicas


def _count_pairs(before: Bytes, after: Bytes, counts: collections.Counter[tuple[int, int]]) -> None:
    pairs = np.bincount(before.astype(np.intp) * _STATES + after, minlength=_STATES * _STATES)
    for pair in np.flatnonzero(pairs).tolist():
        counts[divmod(pair, _STATES)] += int(pairs[pair])


def _count_states(states: Bytes, counts: collections.Counter[int]) -> None:
    numbers = np.bincount(states, minlength=_STATES)
    for state in np.flatnonzero(numbers).tolist():
        counts[state] += int(numbers[state])
