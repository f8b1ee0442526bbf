"""The partition table: one row per partition, one column per thing known of it.

The only place that does arithmetic on rows, together with the files it is laid upon: `columns`, `slots`, `topic_rows`.
Everybody else asks for row numbers by what they mean (`led_by`, `in_state`, `with_replica_on`), gathers them as `Rows`,
and gives back a `Change`. Rows of a topic that was removed are free and are used again; a free row has no topic, no
replicas, no leadership, and state ABSENT.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, PartitionState, PartitionView, ReplicaState

from .change import CHANGED_COLUMNS, Change
from .records import Leaderships
from .rows import Bools, BrokerSet, Ints, RowNumbers, Rows, some
from .topic_index import NO_ROW, Topic, TopicRows

__all__ = ["NO_ROW", "Table", "Topic", "in_sync_of"]

# Taken over whole: a row that was read again may differ from the table in any of them.
_LEADERSHIP: Final = frozenset(
    ("leader", "leader_epoch", "in_sync", "recovering", "partition_epoch", "controller_epoch")
)


class Table(TopicRows):
    """Columns over all partitions, and the topics that they belong to."""

    def __init__(self, *, width: int = 3) -> None:
        super().__init__(width=width)
        self._dirs_offline = False  # whether a failed directory is marked anywhere; spares a column where not

    # -- what is loaded and marked -------------------------------------------------------------------------------------

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

    def for_reading(self) -> "Table":
        """A table over the same rows whose states are its own; valid until this one changes."""
        shown = copy.copy(self)
        own = ("state", "replica_state")
        shown._columns = {name: kept.copy() if name in own else kept for name, kept in self._columns.items()}
        shown._queued = self._queued.copy()
        return shown

    # -- which rows ----------------------------------------------------------------------------------------------------

    def all(self) -> RowNumbers:
        return np.flatnonzero(self._column("topic") >= 0)

    def in_state(self, *states: PartitionState) -> RowNumbers:
        """Rows in one of the states, those of topics that wait for deletion left out."""
        column = self._column("state")
        found = np.zeros(len(column), np.bool_)
        for state in states:
            found |= column == state
        at = np.flatnonzero(found)
        return self.not_queued(at[self._columns["topic"][at] >= 0])

    def led_by_none_of(self, live: BrokerSet) -> RowNumbers:
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

    def with_replica_on(self, brokers: Iterable[int] | BrokerSet) -> RowNumbers:
        """Rows with an assigned replica on one of the brokers."""
        ids = brokers.ids if isinstance(brokers, BrokerSet) else frozenset(brokers)
        replicas, assigned = self._column("replicas"), self._column("assigned")
        if len(ids) == 1:
            (broker,) = ids
            return np.flatnonzero(some((replicas == broker) & assigned))
        return np.flatnonzero(some(BrokerSet(ids)[replicas] & assigned))

    def with_unassigned_in_sync(self) -> RowNumbers:
        """Returns the rows whose ISR contains a replica that is not assigned, without topics queued for deletion."""
        return self.not_queued(np.flatnonzero(some(self._column("in_sync") & ~self._column("assigned"))))

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

    def queued(self, at: RowNumbers) -> RowNumbers:
        """The rows of `at` whose topics wait for deletion."""
        return at[self._queued[self._columns["topic"][at]]] if self._queued.any() else at[:0]

    def column(self, name: str) -> Any:
        """A whole column, free rows included, for readers who filter; to be read now, kept by nobody, never written."""
        view = self._column(name)
        view.flags.writeable = False
        return view

    # -- in and out ----------------------------------------------------------------------------------------------------

    def rows(self, at: RowNumbers) -> Rows:
        """Gather some rows by value."""
        at = np.asarray(at, np.intp)
        # `take` needs a third of the time that brackets need for narrow columns.
        gathered = {name: column.take(at, axis=-1) for name, column in self._columns.items()}
        return Rows(index=at, queued=self._queued.take(gathered["topic"]), **gathered)

    def apply(self, change: Change) -> None:
        """Write the columns that `change` alters. Slots may have been added since it was planned, never moved.

        Leadership is taken over whole or not at all: rows that were read again from the store know more of it than
        the table, also in columns that the change leaves as they were read.
        """
        at = change.rows.index
        altered = {name for name in CHANGED_COLUMNS if getattr(change, name) is not getattr(change.rows, name)}
        if not altered.isdisjoint(_LEADERSHIP):
            altered |= _LEADERSHIP
        for name in sorted(altered):
            column = getattr(change, name)
            if column.ndim == 1:
                self._columns[name][at] = column
            else:
                # Slot by slot is twice as fast as all at once.
                for slot, line in enumerate(column):
                    self._columns[name][slot][at] = line

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
