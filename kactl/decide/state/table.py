"""The partition table: one row per partition, one column per attribute.

Row arithmetic is confined to this module, `columns` and `topic_index`. Other modules request row numbers by meaning
(`led_by`, `in_state`, `with_replica_on`), gather them as `Rows`, and return a `Change`. The rows of a removed topic are
free and are reused. A free row has no topic, no replicas, no leadership, and the state ABSENT.
"""

import copy
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from kactl.model import (
    NO_BROKER,
    NO_EPOCH,
    NO_LEADER,
    ZERO_ID,
    Assignment,
    PartitionState,
    PartitionView,
    ReplicaState,
    TopicPartition,
)

from .change import CHANGED_COLUMNS, Change
from .columns import PER_HOLD, PER_ROW, PER_SLOT, ROWS_MIN, Columns
from .holds import HoldColumns
from .records import Assignments, Leaderships, Names
from .rows import Bools, BrokerSet, Ints, RowNumbers, Rows, some
from .topics import NO_ROW, AllTopics, Topic, TopicIndex, Topics, rows_of_all

__all__ = ["NO_ROW", "Table", "Topic", "in_sync_of"]

# Applied together: a row that was reloaded from the store may differ from the table in any of these columns.
_LEADERSHIP: Final = frozenset(
    ("leader", "leader_epoch", "in_sync", "recovering", "partition_epoch", "controller_epoch")
)
# The columns that `Rows` has from here.
_GATHERED: Final = (*PER_ROW, *PER_SLOT)


class Table(Columns):
    """Columns over all partitions, and the index of the topics that the partitions belong to.

    Attributes:
        revision: rises with every change of a leadership, an assignment or the list of topics.
    """

    def __init__(self, *, width: int = 3) -> None:
        super().__init__(width=width)
        self.revision = 0
        self._index = TopicIndex()
        self._queued = np.zeros(0, np.bool_)  # by topic number: the topic is queued for deletion
        self._owned: set[int] = set()  # numbers of topics of the kind ownership
        self._dirs_offline = False  # whether any row has a failed directory; if not, the column is not read

    @property
    def nbytes(self) -> int:
        """Allocated size in bytes of the columns and of the rows by partition number."""
        return super().nbytes + self._index.nbytes

    # -- topics --------------------------------------------------------------------------------------------------------

    @property
    def refs(self) -> AllTopics:
        """Every topic that the table ever had, by number, including removed ones."""
        return self._index.refs

    def topic(self, name: str) -> Topic | None:
        return self._index.named(name)

    def topic_with_id(self, topic_id: bytes) -> Topic | None:
        """Returns the topic with an id; None for ZERO_ID, which no topic has."""
        return self._index.with_id(topic_id)

    def topics(self) -> Iterable[Topic]:
        """Returns all topics in the order in which they were added."""
        return self._index.all()

    def topic_count(self) -> int:
        return len(self._index)

    def topic_at(self, number: int) -> Topic:
        return self._index.numbered(number)

    def topics_of(self, numbers: Ints) -> tuple[Topics, Ints]:
        """Returns the distinct topics in a column of topic numbers, and for each row the position of its topic.

        If the column ascends, as it does in table order, the topics are in the order of the rows.
        """
        return self._index.topics_of(numbers)

    def add_topic(self, name: str, topic_id: bytes = ZERO_ID) -> Topic:
        """Returns the topic of that name; adds it if it is unknown. ZERO_ID does not replace a known id.

        Raises:
            IllegalState: the topic is known under another id.
        """
        topic = self._index.add(name, topic_id)
        if topic.number >= len(self._queued):
            self._queued = np.concatenate([self._queued, np.zeros(max(64, len(self._queued)), np.bool_)])
        if topic.ref.is_ownership:
            self._owned.add(topic.number)
        return topic

    def remove_topics(self, names: Iterable[str]) -> None:
        """Remove topics and their partitions; unknown names are ignored."""
        self.revision += 1
        removed = self._index.remove(names)
        for topic in removed:
            self._queued[topic.number] = False
            self._owned.discard(topic.number)
        if removed:
            self._release(rows_of_all(removed))

    def queue_topic(self, name: str, queued: bool) -> None:
        """Mark a topic as queued for deletion, or remove the mark."""
        topic = self.topic(name)
        if topic is not None:
            self.revision += 1
            self._queued[topic.number] = queued

    # -- assignments, leadership, states -------------------------------------------------------------------------------

    def put_assignments(self, loaded: Assignments) -> RowNumbers:
        """Store assignments in bulk. Known partitions keep their leadership, and their states by broker.

        Returns:
            The row of each of the n assignments.
        """
        self.revision += 1
        if len(loaded.replicas) > self.width:
            self._widen(len(loaded.replicas))
        if not self._used and len(loaded) > ROWS_MIN:
            self._resize(len(loaded))
        numbers = np.array([self.add_topic(ref.name, ref.id).number for ref in loaded.topics], np.int32)
        rows, new = self._index.place(loaded, numbers, self._allocate)
        self._columns["topic"][rows[new]] = numbers[loaded.topic[new]]
        self._columns["partition"][rows[new]] = loaded.partition[new]
        self._assign(rows, loaded)
        return rows

    def put_assignment(self, name: TopicPartition, assignment: Assignment) -> int:
        """Store one assignment and return its row. Slots take the new order; leadership and states stay."""
        return int(self.put_assignments(Assignments.of({name: assignment}, self._index.ids_of([name.topic])))[0])

    def put_leaderships(self, rows: RowNumbers, loaded: Leaderships) -> None:
        """Store the leadership that was loaded for `rows`. Rows without readable leadership do not change."""
        is_found = loaded.found
        if not is_found.all():
            rows, loaded = rows[is_found], loaded.take(is_found)
        self.revision += 1
        self.admit(rows, loaded.isr)
        columns = self._columns
        columns["in_sync"][:, rows] = in_sync_of(columns["replicas"][:, rows], loaded.isr)
        for name in ("leader", "leader_epoch", "partition_epoch", "controller_epoch", "recovering"):
            columns[name][rows] = getattr(loaded, name)

    def assign_owned(self, rows: RowNumbers) -> None:
        """Take the leader and the ISR of some rows for their assignment: that of an ownership topic is not stored."""
        if not len(rows):
            return
        columns = self._columns
        replicas, in_sync = columns["replicas"][:, rows], columns["in_sync"][:, rows]
        members = np.where(in_sync, replicas, NO_BROKER)
        # The leader first, then the others in their order.
        order = np.argsort(~in_sync * 2 + (replicas != columns["leader"][rows]), axis=0, kind="stable")
        names, none = self.names(rows), np.zeros(members.shape, np.bool_)
        members = np.take_along_axis(members, order, axis=0)
        self._assign(rows, Assignments(tuple(names.topics), names.topic, names.partition, members, none, none))

    def set_states(self, rows: RowNumbers, state: Any) -> None:
        """Set partition states without a check or a counter. Only for start-up and tests."""
        self._columns["state"][rows] = state

    def set_replica_states(self, rows: RowNumbers, state: Any) -> None:
        """Set replica states, uint8[W, n] or one state for all slots, without a check. Only for start-up and tests.

        Free slots stay without a state, because a broker that is admitted later must start without one.
        """
        taken = self._columns["replicas"][:, rows] != NO_BROKER
        self._columns["replica_state"][:, rows] = np.where(taken, state, np.uint8(ReplicaState.ABSENT))

    def admit_replica(self, row: int, broker: int, state: ReplicaState) -> None:
        """Set the state of one replica, in a new slot if the broker has none."""
        self.admit(np.array([row], np.intp), np.array([[broker]], np.int32))
        slot = int(np.argmax(self._columns["replicas"][:, row] == broker))
        self._columns["replica_state"][slot, row] = state

    def mark_dirs(self, broker: int, rows: RowNumbers, offline: bool) -> None:
        """Mark the log directory of a broker's replicas as failed, or as working again."""
        slots = self._columns["replicas"][:, rows] == broker
        marks = self._columns["dir_offline"][:, rows]
        self._columns["dir_offline"][:, rows] = np.where(slots, offline, marks)
        self._dirs_offline |= offline

    def dirs_offline(self, broker: int) -> RowNumbers:
        """Returns the rows with a replica on `broker` in a failed log directory."""
        if not self._dirs_offline:
            return np.zeros(0, np.intp)
        return np.flatnonzero(some((self._column("replicas") == broker) & self._column("dir_offline")))

    def for_reading(self) -> "Table":
        """Returns a table that shares the rows but has its own states. It is valid until this table changes."""
        result = copy.copy(self)
        copied = ("state", "replica_state")
        result._columns = {name: column.copy() if name in copied else column for name, column in self._columns.items()}
        result._queued = self._queued.copy()
        return result

    # -- row numbers by name -------------------------------------------------------------------------------------------

    def row(self, name: TopicPartition) -> int:
        """Returns the row of a partition, NO_ROW if it is unknown."""
        return self._index.row(name)

    def rows_named(self, names: Iterable[TopicPartition]) -> RowNumbers:
        """Returns the rows of partitions that must be known, in the order given.

        Raises:
            NotFound: one of them is unknown.
        """
        return self._index.rows_named(names)

    def rows_known(self, names: Iterable[TopicPartition]) -> RowNumbers:
        """Returns the rows of those partitions that are known, in the order given."""
        return np.array([row for name in names if (row := self.row(name)) != NO_ROW], np.intp)

    def rows_at(self, names: Names) -> RowNumbers:
        """Returns the row of each partition, NO_ROW if it is unknown."""
        return self._index.rows_named_in([ref.name for ref in names.topics], names.topic, names.partition)

    def rows_named_in(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """Returns the row of each partition `topics[topic[i]]`-`partition[i]`, NO_ROW if it is unknown."""
        return self._index.rows_named_in(topics, topic, partition)

    def rows_by_topic(self, names: Sequence[str]) -> tuple[RowNumbers, Ints]:
        """Returns the rows of some topics, topic by topic, and for each row the position of its topic in `names`.

        An unknown topic has no rows.
        """
        return self._index.rows_by_topic(names)

    def rows_of(self, topic: Topic) -> RowNumbers:
        return rows_of_all([topic])

    def rows_of_all(self, topics: Iterable[Topic]) -> RowNumbers:
        """Returns the rows of some topics, topic by topic, each by partition number."""
        return rows_of_all(topics)

    def names(self, rows: RowNumbers) -> Names:
        """Returns the partitions of some rows."""
        refs, topic = self.topics_of(self._columns["topic"][rows])
        return Names(refs, topic, self._columns["partition"][rows])

    def versions(self, rows: RowNumbers) -> Ints:
        """Returns int32[n]: the version under which the leadership of each row is stored, as far as known."""
        versions: Ints = self._columns["partition_epoch"][rows]
        return versions

    # -- row numbers by condition --------------------------------------------------------------------------------------

    def all(self) -> RowNumbers:
        return np.flatnonzero(self._column("topic") >= 0)

    def in_state(self, *states: PartitionState) -> RowNumbers:
        """Returns rows in one of the states, without topics that are queued for deletion."""
        column = self._column("state")
        in_state = np.zeros(len(column), np.bool_)
        for state in states:
            in_state |= column == state
        rows = np.flatnonzero(in_state)
        return self.not_queued(rows[self._columns["topic"][rows] >= 0])

    def led_by_none_of(self, live: BrokerSet) -> RowNumbers:
        """Returns rows with leadership that have no online leader; a leader of NO_LEADER is not online.

        Topics that are queued for deletion are left out.
        """
        leader = self._column("leader")
        offline = ~live[leader]
        if self._dirs_offline:
            is_leader = self._column("replicas") == leader
            offline |= some(is_leader & self._column("dir_offline")) & (leader != NO_LEADER)
        offline &= self._column("leader_epoch") != NO_EPOCH
        return self.not_queued(np.flatnonzero(offline))

    def led_by(self, broker: int) -> RowNumbers:
        """Returns rows that `broker` leads and that have several replicas, without topics queued for deletion."""
        rows = np.flatnonzero(self._column("leader") == broker)
        return self.not_queued(rows[self._columns["assigned"][:, rows].sum(axis=0) > 1])

    def with_replica_on(self, brokers: Iterable[int] | BrokerSet) -> RowNumbers:
        """Returns rows with an assigned replica on one of the brokers."""
        ids = brokers.ids if isinstance(brokers, BrokerSet) else frozenset(brokers)
        replicas, assigned = self._column("replicas"), self._column("assigned")
        if len(ids) == 1:
            (broker,) = ids
            return np.flatnonzero(some((replicas == broker) & assigned))
        return np.flatnonzero(some(BrokerSet(ids)[replicas] & assigned))

    def replicas_within(self, ids: range) -> frozenset[int]:
        """Returns those of some broker ids that have an assigned replica."""
        replicas = self._column("replicas")
        found = (replicas >= ids.start) & (replicas < ids.stop) & self._column("assigned")
        return frozenset(np.unique(replicas[found]).tolist())

    def with_unassigned_in_sync(self) -> RowNumbers:
        """Returns the rows with an in-sync replica that is not assigned, without topics queued for deletion."""
        return self.not_queued(np.flatnonzero(some(self._column("in_sync") & ~self._column("assigned"))))

    def with_leadership(self) -> RowNumbers:
        """Returns rows with leadership information, without topics queued for deletion."""
        return self.not_queued(np.flatnonzero(self._column("leader_epoch") != NO_EPOCH))

    def under_replicated(self) -> RowNumbers:
        """Returns rows with leadership and an ISR without all assigned replicas, without topics queued for deletion."""
        missing = some(self._column("assigned") & ~self._column("in_sync"))
        return self.not_queued(np.flatnonzero(missing & (self._column("leader_epoch") != NO_EPOCH)))

    def leadership_count(self) -> int:
        return int(np.count_nonzero(self._column("leader_epoch") != NO_EPOCH))

    def not_queued(self, rows: RowNumbers) -> RowNumbers:
        """Returns `rows` without those of topics that are queued for deletion."""
        return rows[~self._queued[self._columns["topic"][rows]]] if self._queued.any() else rows

    def owned_topics(self) -> list[Topic]:
        """Returns the topics of the kind ownership, in the order in which they were added."""
        return [self.topic_at(number) for number in sorted(self._owned)]

    def owned(self, rows: RowNumbers) -> RowNumbers:
        """Returns those of `rows` that belong to topics of the kind ownership."""
        return rows[np.isin(self._columns["topic"][rows], list(self._owned))] if self._owned else rows[:0]

    def queued(self, rows: RowNumbers) -> RowNumbers:
        """Returns those of `rows` that belong to topics queued for deletion."""
        return rows[self._queued[self._columns["topic"][rows]]] if self._queued.any() else rows[:0]

    def hold_columns(self) -> HoldColumns:
        """Returns views of the columns of holds, free rows included. Valid until rows are added."""
        self._add_holds()
        return HoldColumns(*(self._column(name) for name in ("leader", "leader_epoch", "topic", *PER_HOLD)))

    def led_since(self) -> Ints:
        """Returns, free rows included, since which leader epoch each leader leads, as far as it is known."""
        leader_epoch: Ints = self._column("leader_epoch")
        if "led_since" not in self._columns:
            return leader_epoch
        since = self._column("led_since")
        return np.where(since == NO_EPOCH, leader_epoch, since)

    def column(self, name: str) -> Any:
        """Returns a read-only view of a whole column, free rows included. Valid until the table changes."""
        view = self._column(name)
        view.flags.writeable = False
        return view

    # -- gathering and applying ----------------------------------------------------------------------------------------

    def rows(self, rows: RowNumbers) -> Rows:
        """Returns a copy of some rows."""
        index = np.asarray(rows, np.intp)
        # For narrow columns, `take` needs a third of the time of indexing.
        gathered = {name: self._columns[name].take(index, axis=-1) for name in _GATHERED}
        return Rows(index=index, queued=self._queued.take(gathered["topic"]), **gathered)

    def apply(self, change: Change) -> None:
        """Write the columns that `change` alters. Slots may have been added since it was planned, but never moved.

        The columns of leadership are written all or none: for rows that were reloaded from the store, the change is
        newer than the table even in columns that it does not alter.
        """
        self.revision += 1
        rows = change.rows.index
        altered = altered_columns(change)
        for name in sorted(altered):
            column = getattr(change, name)
            if column.ndim == 1:
                self._columns[name][rows] = column
            else:
                # Writing slot by slot is twice as fast as writing all slots at once.
                for slot, line in enumerate(column):
                    self._columns[name][slot][rows] = line

    def assignment(self, row: int) -> Assignment:
        """Returns the assignment of one partition."""
        columns = self._columns
        replicas = columns["replicas"][:, row].tolist()
        return Assignment(
            *(
                tuple(itertools.compress(replicas, columns[name][:, row].tolist()))
                for name in ("assigned", "adding", "removing")
            )
        )

    def view(self, row: int) -> PartitionView:
        """Returns one partition as an object."""
        columns = self._columns
        slots = [slot for slot, broker in enumerate(columns["replicas"][:, row].tolist()) if broker != NO_BROKER]

        def brokers_in(name: str) -> tuple[int, ...]:
            return tuple(int(columns["replicas"][slot, row]) for slot in slots if columns[name][slot, row])

        return PartitionView(
            topic=self.topic_at(int(columns["topic"][row])).name,
            partition=int(columns["partition"][row]),
            state=PartitionState(int(columns["state"][row])),
            leader=int(columns["leader"][row]),
            leader_epoch=int(columns["leader_epoch"][row]),
            isr=brokers_in("in_sync"),
            replicas=brokers_in("assigned"),
            adding=brokers_in("adding"),
            removing=brokers_in("removing"),
            partition_epoch=int(columns["partition_epoch"][row]),
            controller_epoch=int(columns["controller_epoch"][row]),
            recovering=bool(columns["recovering"][row]),
            replica_states={
                int(columns["replicas"][slot, row]): ReplicaState(int(columns["replica_state"][slot, row]))
                for slot in slots
                if columns["assigned"][slot, row] or columns["replica_state"][slot, row] != ReplicaState.ABSENT
            },
        )


def altered_columns(change: Change) -> frozenset[str]:
    """Returns the columns that `Table.apply` writes: of those of leadership, all or none."""
    altered = {name for name in CHANGED_COLUMNS if getattr(change, name) is not getattr(change.rows, name)}
    return _LEADERSHIP.union(altered) if not altered.isdisjoint(_LEADERSHIP) else frozenset(altered)


def in_sync_of(replicas: Ints, isr: Ints) -> Bools:
    """Returns bool[W, n]: the slots of int32[W, n] `replicas` with a broker of int32[K, n] `isr`."""
    in_sync = np.zeros(replicas.shape, np.bool_)
    for line in isr:
        in_sync |= (replicas == line) & (line != NO_BROKER)
    return in_sync
