"""The partition table: one row per partition, one column per thing known of it.

The only place that does arithmetic on rows. Everybody else asks for row numbers by what they mean (`led_by`,
`in_state`, `with_replica_on`), gathers them as `Rows`, and gives back a `Change`. Rows of a topic that was removed are
free and are used again; a free row has no topic, no replicas, no leadership, and state ABSENT.

Topics are few and stay objects; each knows its rows by partition number.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kactl.errors import IllegalState, NotFound
from kactl.model import (
    NO_BROKER,
    NO_EPOCH,
    NO_LEADER,
    NO_VERSION,
    ZERO_ID,
    Assignment,
    PartitionState,
    PartitionView,
    ReplicaState,
    TopicPartition,
    TopicRef,
)
from kactl.rows import CHANGED_COLUMNS, Bools, Change, Ints, Live, RowNumbers, Rows, some
from kactl.store import Assignments, Leaderships, Names
from kactl.topics import AllTopics, Topics

# One growth step; small, because a table that is loaded in bulk is allocated to its size.
_GROWTH: Final = 1.25
_ROWS_MIN: Final = 64
NO_ROW: Final = -1

_PER_ROW: Final[Mapping[str, tuple[Any, int]]] = {
    "topic": (np.int32, -1),
    "partition": (np.int32, -1),
    "state": (np.uint8, PartitionState.ABSENT),
    "leader": (np.int32, NO_LEADER),
    "leader_epoch": (np.int32, NO_EPOCH),
    "partition_epoch": (np.int32, NO_VERSION),
    "controller_epoch": (np.int32, NO_EPOCH),
    "recovering": (np.bool_, False),
}
_PER_SLOT: Final[Mapping[str, tuple[Any, int]]] = {
    "replicas": (np.int32, NO_BROKER),
    "assigned": (np.bool_, False),
    "in_sync": (np.bool_, False),
    "adding": (np.bool_, False),
    "removing": (np.bool_, False),
    "dir_offline": (np.bool_, False),
    "replica_state": (np.uint8, ReplicaState.ABSENT),
}
_LEADERSHIP: Final = frozenset(
    ("leader", "leader_epoch", "in_sync", "recovering", "partition_epoch", "controller_epoch")
)


@dataclasses.dataclass(slots=True)
class Topic:
    """One topic. `rows[partition]` is its row in the table, NO_ROW where there is no such partition."""

    number: int
    ref: TopicRef
    rows: Ints

    @property
    def name(self) -> str:
        return self.ref.name


class Table:
    """Columns over all partitions, and the topics that they belong to."""

    def __init__(self, *, width: int = 3) -> None:
        self._columns: dict[str, Any] = {}
        self._used = 0  # rows at and above this were never used
        self._free: list[int] = []
        self._topics: dict[str, Topic] = {}
        self._by_number: list[Topic | None] = []
        self._refs = AllTopics()
        self._queued = np.zeros(0, np.bool_)  # by topic number
        self._dirs_offline = False  # whether a failed directory is marked anywhere; spares a column where not
        for name, (dtype, empty) in _PER_ROW.items():
            self._columns[name] = np.full(0, empty, dtype)
        for name, (dtype, empty) in _PER_SLOT.items():
            self._columns[name] = np.full((width, 0), empty, dtype)

    # -- size ----------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of partitions."""
        return self._used - len(self._free)

    @property
    def width(self) -> int:
        return len(self._columns["replicas"])

    @property
    def nbytes(self) -> int:
        """Bytes of the columns as allocated, and of what finds their rows by partition number."""
        columns: int = sum(column.nbytes for column in self._columns.values())
        return columns + sum(topic.rows.nbytes for topic in self._topics.values())

    def _column(self, name: str) -> Any:
        return self._columns[name][..., : self._used]

    def _widen(self, width: int) -> None:
        missing = width - self.width
        for name, (dtype, empty) in _PER_SLOT.items():
            column = self._columns[name]
            pad = np.full((missing, column.shape[1]), empty, dtype)
            self._columns[name] = np.concatenate([column, pad])

    def _allocate(self, count: int) -> RowNumbers:
        """Row numbers for `count` new partitions: freed ones first, in ascending order."""
        reused = self._free[:count]
        del self._free[:count]
        fresh = count - len(reused)
        needed = self._used + fresh
        capacity = len(self._columns["topic"])
        if needed > capacity:
            roomy = needed if not capacity else max(needed, int(capacity * _GROWTH), _ROWS_MIN)
            self._resize(roomy)
        at = np.concatenate([np.array(reused, np.intp), np.arange(self._used, needed, dtype=np.intp)])
        self._used = needed
        return at

    def _resize(self, capacity: int) -> None:
        for name, column in self._columns.items():
            _, empty = _PER_ROW.get(name) or _PER_SLOT[name]
            grown = np.full((*column.shape[:-1], capacity), empty, column.dtype)
            grown[..., : column.shape[-1]] = column
            self._columns[name] = grown

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topics(self) -> Iterable[Topic]:
        """All topics, in the order in which they were first seen."""
        return self._topics.values()

    def topic_count(self) -> int:
        return len(self._topics)

    def topic_at(self, number: int) -> Topic:
        topic = self._by_number[number]
        if topic is None:
            raise IllegalState(f"topic number {number} is free")
        return topic

    @property
    def refs(self) -> AllTopics:
        """Every topic there ever was by number, also those that are gone; for those who keep numbers."""
        return self._refs

    def add_topic(self, name: str, topic_id: bytes = ZERO_ID) -> Topic:
        """The topic of that name, made if there is none. A known id is not replaced by ZERO_ID.

        Raises:
            IllegalState: it is known under another id.
        """
        topic = self._topics.get(name)
        if topic is None:
            topic = Topic(len(self._by_number), TopicRef(name, topic_id), np.full(0, NO_ROW, np.int32))
            self._topics[name] = topic
            self._by_number.append(topic)
            self._refs.add(topic.ref)
            if topic.number >= len(self._queued):
                self._queued = np.concatenate([self._queued, np.zeros(max(64, len(self._queued)), np.bool_)])
        elif topic_id != ZERO_ID:
            if topic.ref.id not in (ZERO_ID, topic_id):
                raise IllegalState(f"topic {name} has the id {topic.ref.id.hex()} and was given {topic_id.hex()}")
            if topic.ref.id != topic_id:
                topic.ref = TopicRef(name, topic_id)
                self._refs.replace(topic.number, topic.ref)
        return topic

    def remove_topic(self, name: str) -> None:
        """Forget a topic with all that is known of its partitions; nothing happens if it is unknown."""
        topic = self._topics.pop(name, None)
        if topic is None:
            return
        self._by_number[topic.number] = None
        self._queued[topic.number] = False
        at = topic.rows[topic.rows != NO_ROW]
        for name_, (_, empty) in (*_PER_ROW.items(), *_PER_SLOT.items()):
            self._columns[name_][..., at] = empty
        self._free = sorted(self._free + at.tolist())

    def queue_topic(self, name: str, queued: bool) -> None:
        """Mark that a topic waits for deletion, or no longer does."""
        topic = self._topics.get(name)
        if topic is not None:
            self._queued[topic.number] = queued

    # -- what is loaded ------------------------------------------------------------------------------------------------

    def put_assignments(self, loaded: Assignments) -> RowNumbers:
        """Put what is assigned, in bulk; partitions that are known keep leadership and states by broker.

        Returns:
            the row of each of the n assignments.
        """
        if len(loaded.replicas) > self.width:
            self._widen(len(loaded.replicas))
        if not self._used and len(loaded) > _ROWS_MIN:
            self._resize(len(loaded))
        numbers = np.array([self.add_topic(ref.name, ref.id).number for ref in loaded.topics], np.int32)
        at = self._rows_for(loaded, numbers)
        # A row is laid in bulk only while no slot of it is taken; any broker in it may have a state or a mark.
        known = some(self._columns["replicas"][:, at] != NO_BROKER)
        new, fresh = at[~known], ~known
        depth = len(loaded.replicas)
        for name in ("replicas", "adding", "removing"):
            self._columns[name][:depth, new] = getattr(loaded, name)[:, fresh]
        self._columns["assigned"][:depth, new] = loaded.replicas[:, fresh] != NO_BROKER
        for position in np.flatnonzero(known).tolist():
            self._reassign(int(at[position]), loaded.one(position))
        return at

    def _rows_for(self, loaded: Assignments, numbers: Ints) -> RowNumbers:
        """The row of each assignment, allocated where it is new."""
        at = np.full(len(loaded), NO_ROW, np.intp)
        topic, partition = loaded.topic, loaded.partition
        order = np.argsort(topic, kind="stable")
        bounds = np.searchsorted(topic[order], np.arange(len(numbers) + 1))
        for index, number in enumerate(numbers.tolist()):
            positions = order[bounds[index] : bounds[index + 1]]
            if not len(positions):
                continue
            home = self.topic_at(number)
            which = partition[positions]
            highest = int(which.max()) + 1
            if highest > len(home.rows):
                home.rows = np.concatenate([home.rows, np.full(highest - len(home.rows), NO_ROW, np.int32)])
            missing = which[home.rows[which] == NO_ROW]
            if len(missing):
                rows = self._allocate(len(missing))
                home.rows[missing] = rows
                self._columns["topic"][rows] = number
                self._columns["partition"][rows] = missing
            at[positions] = home.rows[which]
        return at

    def put_assignment(self, name: TopicPartition, assignment: Assignment) -> int:
        """Put one assignment and answer its row. Slots are put in the new order; leadership and states stay."""
        return int(self.put_assignments(Assignments.of({name: assignment}, self._ids_of([name.topic])))[0])

    def _ids_of(self, names: Iterable[str]) -> dict[str, bytes]:
        return {name: topic.ref.id for name in names if (topic := self._topics.get(name)) is not None}

    def _reassign(self, row: int, assignment: Assignment) -> None:
        """Lay the slots of one row anew: the assignment first, then whoever is in sync or has a state."""
        columns = self._columns
        kept = {
            int(broker): (
                bool(columns["in_sync"][slot, row]),
                bool(columns["dir_offline"][slot, row]),
                int(columns["replica_state"][slot, row]),
            )
            for slot, broker in enumerate(columns["replicas"][:, row])
            if broker != NO_BROKER
        }
        strays = [
            broker
            for broker, (in_sync, _, state) in kept.items()
            if broker not in assignment.replicas and (in_sync or state != ReplicaState.ABSENT)
        ]
        brokers = [*dict.fromkeys(assignment.replicas), *strays]
        if len(brokers) > self.width:
            self._widen(len(brokers))
            columns = self._columns
        for name, (_, empty) in _PER_SLOT.items():
            columns[name][:, row] = empty
        for slot, broker in enumerate(brokers):
            in_sync, dir_offline, state = kept.get(broker, (False, False, int(ReplicaState.ABSENT)))
            columns["replicas"][slot, row] = broker
            columns["assigned"][slot, row] = broker in assignment.replicas
            columns["adding"][slot, row] = broker in assignment.adding
            columns["removing"][slot, row] = broker in assignment.removing
            columns["in_sync"][slot, row] = in_sync
            columns["dir_offline"][slot, row] = dir_offline
            columns["replica_state"][slot, row] = state

    def admit(self, at: RowNumbers, brokers: Ints) -> None:
        """Make sure that every broker of a column int32[K, n] has a slot in its row; NO_BROKER is passed over.

        A broker that gets one is not assigned, not in sync and has no state.
        """
        for line in brokers:
            while True:
                replicas = self._columns["replicas"][:, at]
                missing = (line != NO_BROKER) & ~some(replicas == line)
                if not missing.any():
                    break
                room = replicas == NO_BROKER
                if not some(room)[missing].all():
                    self._widen(self.width + 1)
                    continue
                slot = np.argmax(room, axis=0)
                self._columns["replicas"][slot[missing], at[missing]] = line[missing]

    def put_leaderships(self, at: RowNumbers, loaded: Leaderships) -> None:
        """Put what the store holds of the rows `at`; rows of which nothing readable is stored stay as they are."""
        found = loaded.found
        rows, some_loaded = (at, loaded) if found.all() else (at[found], loaded.take(found))
        self.admit(rows, some_loaded.isr)
        columns = self._columns
        columns["in_sync"][:, rows] = in_sync_of(columns["replicas"][:, rows], some_loaded.isr)
        for name in ("leader", "leader_epoch", "partition_epoch", "controller_epoch", "recovering"):
            columns[name][rows] = getattr(some_loaded, name)

    def set_states(self, at: RowNumbers, state: Any) -> None:
        """Put partition states directly: no check, no counting. Only for start-up and tests."""
        self._columns["state"][at] = state

    def set_replica_states(self, at: RowNumbers, state: Any) -> None:
        """Put replica states directly, uint8[W, n] or one for all slots. Only for start-up and tests.

        Free slots keep none: a broker that is given one later has to begin without a state.
        """
        taken = self._columns["replicas"][:, at] != NO_BROKER
        self._columns["replica_state"][:, at] = np.where(taken, state, np.uint8(ReplicaState.ABSENT))

    def admit_replica(self, row: int, broker: int, state: ReplicaState) -> None:
        """Give one replica a state, with a slot of its own if the assignment does not name it."""
        self.admit(np.array([row], np.intp), np.array([[broker]], np.int32))
        slot = int(np.argmax(self._columns["replicas"][:, row] == broker))
        self._columns["replica_state"][slot, row] = state

    def mark_dirs(self, broker: int, at: RowNumbers, offline: bool) -> None:
        """Note that the directory of a broker's replicas failed, or that it serves again."""
        slots = self._columns["replicas"][:, at] == broker
        marks = self._columns["dir_offline"][:, at]
        self._columns["dir_offline"][:, at] = np.where(slots, offline, marks)
        self._dirs_offline |= offline

    def dirs_offline(self, broker: int) -> RowNumbers:
        """The rows of which `broker` has said that its replica's directory failed."""
        if not self._dirs_offline:
            return np.zeros(0, np.intp)
        return np.flatnonzero(some((self._column("replicas") == broker) & self._column("dir_offline")))

    # -- which rows ----------------------------------------------------------------------------------------------------

    def row(self, name: TopicPartition) -> int:
        """The row of a partition; NO_ROW if it is unknown."""
        topic = self._topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.rows):
            return NO_ROW
        return int(topic.rows[name.partition])

    def rows_named(self, names: Iterable[TopicPartition]) -> RowNumbers:
        """The rows of partitions that must be known, in the order given.

        Raises:
            NotFound: one of them is unknown.
        """
        at = []
        for name in names:
            row = self.row(name)
            if row == NO_ROW:
                raise NotFound("partition", name)
            at.append(row)
        return np.array(at, np.intp)

    def names(self, at: RowNumbers) -> Names:
        """Which partitions stand in some rows."""
        refs, topic = self.topics_of(self._columns["topic"][at])
        return Names(refs, topic, self._columns["partition"][at])

    def topics_of(self, numbers: Ints) -> tuple[Topics, Ints]:
        """The topics that a column of topic numbers names, and for each row its place among them.

        Where the column ascends, as it does in table order, the topics are in the order of the rows.
        """
        begins = np.empty(len(numbers), np.bool_)
        begins[:1] = True
        step = np.diff(numbers)
        if (step < 0).any():
            named, place = np.unique(numbers, return_inverse=True)
            return Topics(self._refs, named), place.astype(np.int32)
        np.not_equal(step, 0, out=begins[1:])
        return Topics(self._refs, numbers[begins]), np.cumsum(begins, dtype=np.int32) - np.int32(1)

    def rows_at(self, names: Names) -> RowNumbers:
        """The row of each partition, NO_ROW where it is unknown."""
        return self.rows_named_in([ref.name for ref in names.topics], names.topic, names.partition)

    def rows_named_in(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """The row of each partition `topics[topic[i]]`-`partition[i]`, NO_ROW where it is unknown."""
        at = np.full(len(partition), NO_ROW, np.intp)
        order = np.argsort(topic, kind="stable")
        bounds = np.searchsorted(topic[order], np.arange(len(topics) + 1))
        for index, name in enumerate(topics):
            known = self._topics.get(name)
            if known is None:
                continue
            positions = order[bounds[index] : bounds[index + 1]]
            number = partition[positions]
            there = (number >= 0) & (number < len(known.rows))
            at[positions[there]] = known.rows[number[there]]
        return at

    def versions(self, at: RowNumbers) -> Ints:
        """int32[n]: the version under which each row's leadership is known to be stored."""
        versions: Ints = self._columns["partition_epoch"][at]
        return versions

    def rows_of(self, topic: Topic) -> RowNumbers:
        at: RowNumbers = topic.rows[topic.rows != NO_ROW].astype(np.intp)
        return at

    def all(self) -> RowNumbers:
        return np.flatnonzero(self._column("topic") >= 0)

    def in_state(self, *states: PartitionState) -> RowNumbers:
        """Rows in one of the states, those of topics that wait for deletion left out."""
        column = self._column("state")
        at = np.flatnonzero(np.logical_or.reduce([column == state for state in states]))
        return self.not_queued(at[self._columns["topic"][at] >= 0])

    def led_by_none_of(self, live: Live) -> RowNumbers:
        """Rows with leadership whose leader is not an online replica; a leader of NO_LEADER is none.

        Topics that wait for deletion are left out.
        """
        leader = self._column("leader")
        offline = ~live[leader]
        if self._dirs_offline:
            here = self._column("replicas") == leader
            offline |= some(here & self._column("dir_offline")) & (leader != NO_LEADER)
        offline &= self._column("leader_epoch") != NO_EPOCH
        return self.not_queued(np.flatnonzero(offline))

    def led_by(self, broker: int) -> RowNumbers:
        """Rows that `broker` leads and that have more than one replica, topics that wait for deletion left out."""
        at = np.flatnonzero(self._column("leader") == broker)
        return self.not_queued(at[self._columns["assigned"][:, at].sum(axis=0) > 1])

    def with_replica_on(self, brokers: Iterable[int] | Live) -> RowNumbers:
        """Rows with an assigned replica on one of the brokers."""
        ids = brokers.ids if isinstance(brokers, Live) else frozenset(brokers)
        replicas, assigned = self._column("replicas"), self._column("assigned")
        if len(ids) == 1:
            (broker,) = ids
            return np.flatnonzero(some((replicas == broker) & assigned))
        return np.flatnonzero(some(Live(ids)[replicas] & assigned))

    def with_leadership(self) -> RowNumbers:
        """Rows with leadership information, topics that wait for deletion left out."""
        return self.not_queued(np.flatnonzero(self._column("leader_epoch") != NO_EPOCH))

    def under_replicated(self) -> RowNumbers:
        """Rows with leadership whose ISR does not hold the whole assignment, queued topics left out."""
        missing = some(self._column("assigned") & ~self._column("in_sync"))
        return self.not_queued(np.flatnonzero(missing & (self._column("leader_epoch") != NO_EPOCH)))

    def leadership_count(self) -> int:
        return int(np.count_nonzero(self._column("leader_epoch") != NO_EPOCH))

    def not_queued(self, at: RowNumbers) -> RowNumbers:
        """The rows of `at` whose topics do not wait for deletion."""
        return at[~self._queued[self._columns["topic"][at]]] if self._queued.any() else at

    def column(self, name: str) -> Any:
        """A whole column, free rows included, for readers who filter; to be read now, kept by nobody, never written."""
        view = self._column(name)
        view.flags.writeable = False
        return view

    # -- in and out ----------------------------------------------------------------------------------------------------

    def rows(self, at: RowNumbers) -> Rows:
        """Gather some rows by value."""
        at = np.asarray(at, np.intp)
        gathered = {name: column[..., at] for name, column in self._columns.items()}
        return Rows(at=at, queued=self._queued[gathered["topic"]], **gathered)

    def apply(self, change: Change) -> None:
        """Write the columns that `change` alters. Slots may have been added since it was planned, never moved.

        Leadership is taken over whole or not at all: rows that were read again from the store know more of it than
        the table, also in columns that the change leaves as they were read.
        """
        at = change.rows.at
        altered = {name for name in CHANGED_COLUMNS if getattr(change, name) is not getattr(change.rows, name)}
        if not altered.isdisjoint(_LEADERSHIP):
            altered |= _LEADERSHIP
        for name in sorted(altered):
            column = getattr(change, name)
            if column.ndim == 1:
                self._columns[name][at] = column
            else:
                self._columns[name][: len(column), at] = column

    def view(self, row: int) -> PartitionView:
        """One partition as an object."""
        columns = self._columns
        slots = [slot for slot, broker in enumerate(columns["replicas"][:, row].tolist()) if broker != NO_BROKER]

        def listed(name: str) -> tuple[int, ...]:
            return tuple(int(columns["replicas"][slot, row]) for slot in slots if columns[name][slot, row])

        return PartitionView(
            topic=self.topic_at(int(columns["topic"][row])).name,
            partition=int(columns["partition"][row]),
            state=PartitionState(int(columns["state"][row])),
            leader=int(columns["leader"][row]),
            leader_epoch=int(columns["leader_epoch"][row]),
            isr=listed("in_sync"),
            replicas=listed("assigned"),
            adding=listed("adding"),
            removing=listed("removing"),
            partition_epoch=int(columns["partition_epoch"][row]),
            controller_epoch=int(columns["controller_epoch"][row]),
            recovering=bool(columns["recovering"][row]),
            replica_states={
                int(columns["replicas"][slot, row]): ReplicaState(int(columns["replica_state"][slot, row]))
                for slot in slots
                if columns["assigned"][slot, row] or columns["replica_state"][slot, row] != ReplicaState.ABSENT
            },
        )


def in_sync_of(replicas: Ints, isr: Ints) -> Bools:
    """bool[W, n]: the slots of int32[W, n] `replicas` whose broker is among int32[K, n] `isr`."""
    found = np.zeros(replicas.shape, np.bool_)
    for line in isr:
        found |= (replicas == line) & (line != NO_BROKER)
    return found
