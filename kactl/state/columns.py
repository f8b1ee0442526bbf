"""Growable numpy columns: one value per row, or one per replica slot of a row, allocated together.

Assigned replicas fill the first slots of a row in assignment order. The slots after them hold brokers that are in sync,
or have a state, but are not assigned.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, NO_VERSION, Assignment, PartitionState, ReplicaState

from .records import Assignments
from .rows import Ints, RowNumbers, some

# Growth factor of one step. It is small because a table that is loaded in bulk is allocated to its size.
_GROWTH: Final = 1.25
ROWS_MIN: Final = 64

PER_ROW: Final[Mapping[str, tuple[Any, int]]] = {
    "topic": (np.int32, -1),
    "partition": (np.int32, -1),
    "state": (np.uint8, PartitionState.ABSENT),
    "leader": (np.int32, NO_LEADER),
    "leader_epoch": (np.int32, NO_EPOCH),
    "partition_epoch": (np.int32, NO_VERSION),
    "controller_epoch": (np.int32, NO_EPOCH),
    "recovering": (np.bool_, False),
}
# What `kactl.state.holds` knows of each row. It is not part of the rows that machines compute with, and takes no memory
# before it is used: Kafka's brokers hold nothing.
PER_HOLD: Final[Mapping[str, tuple[Any, int]]] = {
    "holder": (np.int32, NO_BROKER),
    "holder_epoch": (np.int32, NO_EPOCH),
    "ended_epoch": (np.int32, NO_EPOCH),
    "waiting_epoch": (np.int32, NO_EPOCH),
}
PER_SLOT: Final[Mapping[str, tuple[Any, int]]] = {
    "replicas": (np.int32, NO_BROKER),
    "assigned": (np.bool_, False),
    "in_sync": (np.bool_, False),
    "adding": (np.bool_, False),
    "removing": (np.bool_, False),
    "dir_offline": (np.bool_, False),
    "replica_state": (np.uint8, ReplicaState.ABSENT),
}
_EMPTY: Final = {name: empty for columns in (PER_ROW, PER_HOLD, PER_SLOT) for name, (_, empty) in columns.items()}


def grown(column: Any, capacity: int, empty: Any) -> Any:
    """Returns a copy of `column`, [..., n], with `capacity` >= n entries; the new ones hold `empty`."""
    longer = np.full((*column.shape[:-1], capacity), empty, column.dtype)
    longer[..., : column.shape[-1]] = column
    return longer


class Columns:
    """Storage of the partition table. A free row holds the empty values of `PER_ROW` and `PER_SLOT`.

    Args:
        width: initial number of slots of a row.
    """

    def __init__(self, *, width: int = 3) -> None:
        self._columns: dict[str, Any] = {}
        self._used = 0  # this row and all above it have never been used
        self._free: list[int] = []
        for name, (dtype, empty) in PER_ROW.items():
            self._columns[name] = np.full(0, empty, dtype)
        for name, (dtype, empty) in PER_SLOT.items():
            self._columns[name] = np.full((width, 0), empty, dtype)

    def __len__(self) -> int:
        """The number of partitions."""
        return self._used - len(self._free)

    @property
    def width(self) -> int:
        return len(self._columns["replicas"])

    @property
    def nbytes(self) -> int:
        """Allocated size of the columns in bytes."""
        total: int = sum(column.nbytes for column in self._columns.values())
        return total

    def admit(self, rows: RowNumbers, brokers: Ints) -> None:
        """Ensure that every broker of int32[K, n] `brokers` has a slot in its row; NO_BROKER is skipped.

        A broker that gets a new slot is not assigned, not in sync, and has no state.
        """
        for line in brokers:
            while True:
                replicas = self._columns["replicas"][:, rows]
                missing = (line != NO_BROKER) & ~some(replicas == line)
                if not missing.any():
                    break
                room = replicas == NO_BROKER
                if not some(room)[missing].all():
                    self._widen(self.width + 1)
                    continue
                slot = np.argmax(room, axis=0)
                self._columns["replicas"][slot[missing], rows[missing]] = line[missing]

    def _column(self, name: str) -> Any:
        return self._columns[name][..., : self._used]

    def _widen(self, width: int) -> None:
        missing = width - self.width
        for name, (dtype, empty) in PER_SLOT.items():
            column = self._columns[name]
            pad = np.full((missing, column.shape[1]), empty, dtype)
            self._columns[name] = np.concatenate([column, pad])

    def _allocate(self, count: int) -> RowNumbers:
        """Returns row numbers for `count` new partitions: freed rows first, in ascending order."""
        reused = self._free[:count]
        del self._free[:count]
        fresh = count - len(reused)
        needed = self._used + fresh
        capacity = len(self._columns["topic"])
        if needed > capacity:
            roomy = needed if not capacity else max(needed, int(capacity * _GROWTH), ROWS_MIN)
            self._resize(roomy)
        rows = np.concatenate([np.array(reused, np.intp), np.arange(self._used, needed, dtype=np.intp)])
        self._used = needed
        return rows

    def _resize(self, capacity: int) -> None:
        for name, column in self._columns.items():
            self._columns[name] = grown(column, capacity, _EMPTY[name])

    def _add_holds(self) -> None:
        """Add the columns of holds, unless they exist."""
        if "holder" not in self._columns:
            capacity = len(self._columns["topic"])
            for name, (dtype, empty) in PER_HOLD.items():
                self._columns[name] = np.full(capacity, empty, dtype)

    def _release(self, rows: RowNumbers) -> None:
        """Empty rows and make them available for reuse."""
        for name, column in self._columns.items():
            column[..., rows] = _EMPTY[name]
        self._free = sorted(self._free + rows.tolist())

    def _assign(self, rows: RowNumbers, loaded: Assignments) -> None:
        """Fill the slots of n rows from n assignments that fit the width. Brokers keep ISR membership and state."""
        # Only rows without any replica are filled in bulk: in other rows a broker may have a state or a mark.
        known = some(self._columns["replicas"][:, rows] != NO_BROKER)
        new, fresh = rows[~known], ~known
        depth = len(loaded.replicas)
        for name in ("replicas", "adding", "removing"):
            self._columns[name][:depth, new] = getattr(loaded, name)[:, fresh]
        self._columns["assigned"][:depth, new] = loaded.replicas[:, fresh] != NO_BROKER
        for position in np.flatnonzero(known).tolist():
            self._reassign(int(rows[position]), loaded.one(position))

    def _reassign(self, row: int, assignment: Assignment) -> None:
        """Refill the slots of one row: the assigned brokers, then other brokers that are in sync or have a state."""
        columns = self._columns
        before = {
            int(broker): (
                bool(columns["in_sync"][slot, row]),
                bool(columns["dir_offline"][slot, row]),
                int(columns["replica_state"][slot, row]),
            )
            for slot, broker in enumerate(columns["replicas"][:, row])
            if broker != NO_BROKER
        }
        unassigned = [
            broker
            for broker, (in_sync, _, state) in before.items()
            if broker not in assignment.replicas and (in_sync or state != ReplicaState.ABSENT)
        ]
        brokers = [*dict.fromkeys(assignment.replicas), *unassigned]
        if len(brokers) > self.width:
            self._widen(len(brokers))
            columns = self._columns
        for name, (_, empty) in PER_SLOT.items():
            columns[name][:, row] = empty
        for slot, broker in enumerate(brokers):
            in_sync, dir_offline, state = before.get(broker, (False, False, int(ReplicaState.ABSENT)))
            columns["replicas"][slot, row] = broker
            columns["assigned"][slot, row] = broker in assignment.replicas
            columns["adding"][slot, row] = broker in assignment.adding
            columns["removing"][slot, row] = broker in assignment.removing
            columns["in_sync"][slot, row] = in_sync
            columns["dir_offline"][slot, row] = dir_offline
            columns["replica_state"][slot, row] = state
