"""Records of the stores as columns: assignments, leadership, writes, and results of writes.

A store processes a hundred thousand partitions in one call as well as one. Objects are built from the columns on
demand.
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
    """Assignments of n partitions, as columns.

    Attributes:
        topics: the topics of the rows; a topic may have no rows.
        topic: int32[n], index into `topics`.
        partition: int32[n].
        replicas: int32[W, n] in assignment order, then NO_BROKER.
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
        """Returns the assignment at one position as an object."""
        replicas = self.replicas[:, position]
        is_broker = replicas != NO_BROKER
        return Assignment(
            tuple(replicas[is_broker].tolist()),
            tuple(replicas[is_broker & self.adding[:, position]].tolist()),
            tuple(replicas[is_broker & self.removing[:, position]].tolist()),
        )

    def take(self, which: Bools | RowNumbers) -> "Assignments":
        """Returns some rows, or all rows in another order; `topics` stays complete."""
        return Assignments(
            self.topics,
            self.topic[which],
            self.partition[which],
            self.replicas[:, which],
            self.adding[:, which],
            self.removing[:, which],
        )

    def items(self) -> Iterable[tuple[TopicPartition, Assignment]]:
        """Returns all rows as objects; for small collections."""
        for position, (topic, partition) in enumerate(zip(self.topic.tolist(), self.partition.tolist(), strict=True)):
            yield TopicPartition(self.topics[topic].name, partition), self.one(position)

    @classmethod
    def of(
        cls, assignments: Mapping[TopicPartition, Assignment], ids: Mapping[str, bytes] | None = None
    ) -> "Assignments":
        """Returns the columns of some assignments. A broker that is named twice is kept once."""
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
        for row, assignment in enumerate(assignments.values()):
            for slot, broker in enumerate(dict.fromkeys(assignment.replicas)):
                columns.replicas[slot, row] = broker
                columns.adding[slot, row] = broker in assignment.adding
                columns.removing[slot, row] = broker in assignment.removing
        return columns


class Found(enum.IntEnum):
    """Result of reading the leadership of one partition."""

    FOUND = 0
    MISSING = 1  # no leadership is stored
    UNREADABLE = 2  # the stored record is not a leadership record
    FAILED = 3  # the store failed to read this record


@dataclasses.dataclass(frozen=True, slots=True)
class Leaderships:
    """Leadership of n partitions, as columns, in the order of the request.

    Attributes:
        status: uint8[n] of `Found`. Rows that are not FOUND have -1 and False in the other columns.
        isr: int32[K, n], a set; unused positions hold NO_BROKER.
        partition_epoch: the version of the stored record.
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
        is_found: Bools = self.status == Found.FOUND
        return is_found

    def take(self, which: Bools) -> "Leaderships":
        return Leaderships(**{f.name: getattr(self, f.name)[..., which] for f in dataclasses.fields(self)})

    @classmethod
    def of(cls, states: Sequence[Leadership | None]) -> "Leaderships":
        """Returns the columns of some leaderships; None is MISSING."""
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
        for row, state in enumerate(states):
            if state is None:
                continue
            columns.leader[row], columns.leader_epoch[row] = state.leader, state.leader_epoch
            columns.isr[: len(state.isr), row] = state.isr
            columns.partition_epoch[row], columns.controller_epoch[row] = state.partition_epoch, state.controller_epoch
            columns.recovering[row] = state.recovering
        return columns

    def one(self, row: int) -> Leadership | None:
        """Returns one row as an object; None unless it is FOUND."""
        if self.status[row] != Found.FOUND:
            return None
        isr = self.isr[:, row]
        return Leadership(
            leader=int(self.leader[row]),
            leader_epoch=int(self.leader_epoch[row]),
            isr=tuple(isr[isr != NO_BROKER].tolist()),
            partition_epoch=int(self.partition_epoch[row]),
            controller_epoch=int(self.controller_epoch[row]),
            recovering=bool(self.recovering[row]),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """Names of n partitions, as columns: `topics[topic[i]].name`-`partition[i]`."""

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
    """New leadership for n distinct partitions.

    Attributes:
        names: the partitions.
        leader, leader_epoch: int32[n].
        isr: int32[W, n], NO_BROKER in unused positions, which may be anywhere; written in slot order.
        recovering: bool[n].
        expected: int32[n], the version that must be stored now; NO_VERSION if nothing may be stored yet.
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
    """Result of one row of a write."""

    COMMITTED = 0
    CONFLICT = 1  # another version is stored, a record exists that must not, or the record is missing
    FAILED = 2  # the store returned another error for this row


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """Result of a write, row by row. Partial success is normal.

    Attributes:
        outcome: uint8[n] of `Outcome`.
        version: int32[n], the new version; NO_VERSION where the row was not committed.
    """

    outcome: Bytes
    version: Ints

    @property
    def committed(self) -> Bools:
        committed: Bools = self.outcome == Outcome.COMMITTED
        return committed


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Changes since an earlier position, for a client that keeps a copy of the stored data.

    Attributes:
        position: the end of this result and the start of the next one. It is valid for the same client only.
        whole: the changes before `position` are unknown, so all data must be read again. The other attributes are empty
            then.
        topics: names of the topics with a created or written entry. Removed topics may be missing, because the list
            of topics shows them; recreated topics are included.
        partitions: partitions with written leadership, some possibly twice. Those of removed topics may be
            missing.
    """

    position: tuple[int, ...]
    whole: bool
    topics: frozenset[str]
    partitions: Names

    @classmethod
    def unknown(cls, position: tuple[int, ...]) -> "Changes":
        return cls(position, True, frozenset(), Names.of([]))


def named(topic: Ints, partition: Ints, names: Mapping[int, str]) -> Names:
    """Returns the names of n partitions by topic number; rows with a number that is not in `names` are left out."""
    numbers, index = np.unique(topic, return_inverse=True)
    known = [number in names for number in numbers.tolist()]
    refs = tuple(TopicRef(names.get(number, "")) for number in numbers.tolist())
    result = Names(refs, index.astype(np.int32), partition)
    return result.take(np.array(known, np.bool_)[index]) if not all(known) else result
