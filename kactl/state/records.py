"""What stores are given and give back, as columns: assignments, leadership, writes, and what became of them.

A store is asked for a hundred thousand partitions as easily as for one; objects are made of a column on demand.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from kactl.model import (
    NO_BROKER,
    NO_EPOCH,
    NO_LEADER,
    NO_VERSION,
    ZERO_ID,
    Assignment,
    Leadership,
    TopicPartition,
    TopicRef,
)

from .rows import Bools, Bytes, Ints, RowNumbers


@dataclasses.dataclass(frozen=True, slots=True)
class Assignments:
    """n assignments of some topics, as columns.

    Attributes:
        topics: the topics that the rows speak of; a topic may have no rows.
        topic: int32[n], index into `topics`.
        partition: int32[n].
        replicas: int32[W, n] in assignment order, NO_BROKER behind the last.
        adding, removing: bool[W, n], by slot of `replicas`.
    """

    topics: tuple[TopicRef, ...]
    topic: Ints
    partition: Ints
    replicas: Ints
    adding: Bools
    removing: Bools

    def __len__(self) -> int:
        return len(self.partition)

    def one(self, position: int) -> Assignment:
        """The assignment at one position as an object."""
        held = self.replicas[:, position]
        which = held != NO_BROKER
        return Assignment(
            tuple(held[which].tolist()),
            tuple(held[which & self.adding[:, position]].tolist()),
            tuple(held[which & self.removing[:, position]].tolist()),
        )

    def take(self, which: Bools | RowNumbers) -> "Assignments":
        """Some of them, or all in another order; all topics stay listed."""
        return Assignments(
            self.topics,
            self.topic[which],
            self.partition[which],
            self.replicas[:, which],
            self.adding[:, which],
            self.removing[:, which],
        )

    def items(self) -> Iterable[tuple[TopicPartition, Assignment]]:
        """All of them as objects; for small ones."""
        for position, (topic, partition) in enumerate(zip(self.topic.tolist(), self.partition.tolist(), strict=True)):
            yield TopicPartition(self.topics[topic].name, partition), self.one(position)

    @classmethod
    def of(
        cls, assignments: Mapping[TopicPartition, Assignment], ids: Mapping[str, bytes] | None = None
    ) -> "Assignments":
        """Columns of some assignments; a broker named twice is kept once."""
        names = list(dict.fromkeys(name.topic for name in assignments))
        number = {name: index for index, name in enumerate(names)}
        width = max((len(assignment.replicas) for assignment in assignments.values()), default=0)
        columns = cls(
            topics=tuple(TopicRef(name, (ids or {}).get(name, ZERO_ID)) for name in names),
            topic=np.array([number[name.topic] for name in assignments], np.int32),
            partition=np.array([name.partition for name in assignments], np.int32),
            replicas=np.full((width, len(assignments)), NO_BROKER, np.int32),
            adding=np.zeros((width, len(assignments)), np.bool_),
            removing=np.zeros((width, len(assignments)), np.bool_),
        )
        for at, assignment in enumerate(assignments.values()):
            for slot, broker in enumerate(dict.fromkeys(assignment.replicas)):
                columns.replicas[slot, at] = broker
                columns.adding[slot, at] = broker in assignment.adding
                columns.removing[slot, at] = broker in assignment.removing
        return columns


class Found(enum.IntEnum):
    """What was found of one partition's leadership."""

    FOUND = 0
    MISSING = 1  # nothing is stored
    UNREADABLE = 2  # something is stored that is no leadership
    FAILED = 3  # this one read failed


@dataclasses.dataclass(frozen=True, slots=True)
class Leaderships:
    """Leadership of n partitions, as columns, in the order in which they were asked for.

    Attributes:
        status: uint8[n] of `Found`; the other columns hold -1 and False where it is not FOUND.
        isr: int32[K, n], NO_BROKER in free places; a set.
        partition_epoch: the version under which it is stored.
    """

    status: Bytes
    leader: Ints
    leader_epoch: Ints
    isr: Ints
    partition_epoch: Ints
    controller_epoch: Ints
    recovering: Bools

    def __len__(self) -> int:
        return len(self.leader)

    @property
    def found(self) -> Bools:
        found: Bools = self.status == Found.FOUND
        return found

    def take(self, which: Bools) -> "Leaderships":
        return Leaderships(**{f.name: getattr(self, f.name)[..., which] for f in dataclasses.fields(self)})

    @classmethod
    def of(cls, states: Sequence[Leadership | None]) -> "Leaderships":
        """Columns of some leaderships; None is MISSING."""
        count = len(states)
        width = max((len(state.isr) for state in states if state), default=0)
        columns = cls(
            status=np.array([Found.FOUND if state else Found.MISSING for state in states], np.uint8),
            leader=np.full(count, NO_LEADER, np.int32),
            leader_epoch=np.full(count, NO_EPOCH, np.int32),
            isr=np.full((width, count), NO_BROKER, np.int32),
            partition_epoch=np.full(count, NO_VERSION, np.int32),
            controller_epoch=np.full(count, NO_EPOCH, np.int32),
            recovering=np.zeros(count, np.bool_),
        )
        for at, state in enumerate(states):
            if state is None:
                continue
            columns.leader[at], columns.leader_epoch[at] = state.leader, state.leader_epoch
            columns.isr[: len(state.isr), at] = state.isr
            columns.partition_epoch[at], columns.controller_epoch[at] = state.partition_epoch, state.controller_epoch
            columns.recovering[at] = state.recovering
        return columns

    def one(self, at: int) -> Leadership | None:
        """One of them as an object; None unless FOUND."""
        if self.status[at] != Found.FOUND:
            return None
        isr = self.isr[:, at]
        return Leadership(
            leader=int(self.leader[at]),
            leader_epoch=int(self.leader_epoch[at]),
            isr=tuple(isr[isr != NO_BROKER].tolist()),
            partition_epoch=int(self.partition_epoch[at]),
            controller_epoch=int(self.controller_epoch[at]),
            recovering=bool(self.recovering[at]),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """n partitions by name, as columns: `topics[topic[i]].name`-`partition[i]`."""

    topics: Sequence[TopicRef]
    topic: Ints
    partition: Ints

    def __len__(self) -> int:
        return len(self.partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, partition in zip(self.topic.tolist(), self.partition.tolist(), strict=True):
            yield TopicPartition(self.topics[topic].name, partition)

    def take(self, which: Bools) -> "Names":
        return Names(self.topics, self.topic[which], self.partition[which])

    @classmethod
    def of(cls, names: Sequence[TopicPartition]) -> "Names":
        topics = list(dict.fromkeys(name.topic for name in names))
        number = {name: index for index, name in enumerate(topics)}
        return cls(
            tuple(TopicRef(name) for name in topics),
            np.array([number[name.topic] for name in names], np.int32),
            np.array([name.partition for name in names], np.int32),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """New leadership for n partitions, no partition twice.

    Attributes:
        names: which.
        leader, leader_epoch: int32[n].
        isr: int32[W, n], NO_BROKER in free places, at any place; written in slot order.
        recovering: bool[n].
        expected: int32[n], the version that must stand there now; NO_VERSION where nothing may stand there yet.
    """

    names: Names
    leader: Ints
    leader_epoch: Ints
    isr: Ints
    recovering: Bools
    expected: Ints

    def __len__(self) -> int:
        return len(self.expected)


class Outcome(enum.IntEnum):
    """What became of one row of a write."""

    COMMITTED = 0
    CONFLICT = 1  # another version stands there, or something stands there already, or nothing
    FAILED = 2  # the store answered with another error for this row


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """What became of a write, row by row. Partial success is normal.

    Attributes:
        outcome: uint8[n] of `Outcome`.
        version: int32[n], the new version; NO_VERSION where it was not kept.
    """

    outcome: Bytes
    version: Ints

    @property
    def kept(self) -> Bools:
        kept: Bools = self.outcome == Outcome.COMMITTED
        return kept


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """What was written since an earlier look, for whoever keeps a copy of it.

    Attributes:
        position: where this look ends; the next begins there. It means something to the same client only.
        whole: nothing can be said of the time before `position`: all has to be read again. The others are empty then.
        topics: whose entry was made or written, by name. Those that are gone need not be among them, since the list of
            topics tells; those that were made again are.
        partitions: whose leadership was written, some perhaps twice; those of topics that are gone may be missing.
    """

    position: tuple[int, ...]
    whole: bool
    topics: frozenset[str]
    partitions: Names

    @classmethod
    def unknown(cls, position: tuple[int, ...]) -> "Changes":
        return cls(position, True, frozenset(), Names.of([]))


def named(topic: Ints, partition: Ints, names: Mapping[int, str]) -> Names:
    """n partitions by name, where topics are numbered as `names` says; those of other numbers are left out."""
    numbers, index = np.unique(topic, return_inverse=True)
    known = [number in names for number in numbers.tolist()]
    refs = tuple(TopicRef(names.get(number, "")) for number in numbers.tolist())
    all_of_them = Names(refs, index.astype(np.int32), partition)
    return all_of_them.take(np.array(known, np.bool_)[index]) if not all(known) else all_of_them
