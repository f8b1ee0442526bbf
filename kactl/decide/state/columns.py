"""Growable numpy columns: one value per row, or one per replica slot of a row, allocated together.

Assigned replicas fill the first slots of a row in assignment order. The slots after them hold brokers that are in sync,
or have a state, but are not assigned.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, NO_VERSION, PartitionState, ReplicaState

from .records import Assignments
from .rows import Bools, Ints, RowNumbers, some

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
# What `kactl.decide.state.holds` knows of each row. It is not part of the rows that machines compute with, and takes no
# memory before it is used: Kafka's brokers hold nothing.
PER_HOLD: Final[Mapping[str, tuple[Any, int]]] = {
    "holder": (np.int32, NO_BROKER),
    "holder_epoch": (np.int32, NO_EPOCH),
    "ended_epoch": (np.int32, NO_EPOCH),
    "waiting_epoch": (np.int32, NO_EPOCH),
    "led_since": (np.int32, NO_EPOCH),
    "back_since": (np.int32, NO_EPOCH),
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
# Columns whose values a broker keeps in another assignment.
_KEPT: Final = ("in_sync", "dir_offline", "replica_state")
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
        if known.any():
            self._reassign(rows[known], loaded, known)

    def _reassign(self, rows: RowNumbers, loaded: Assignments, which: Bools) -> None:
        """Refill the slots of k rows: the assigned brokers, then other brokers that are in sync or have a state."""
        # D slots of the assignments, then W slots of the rows as they are: each broker is taken once.
        new, old = loaded.replicas[:, which], self._columns["replicas"][:, rows]
        depth = len(new)
        same = (new[:, np.newaxis] == old) & (old != NO_BROKER)  # bool[D, W, k]
        assigned = new != NO_BROKER
        for slot in range(1, depth):
            assigned[slot] &= (new[:slot] != new[slot]).all(axis=0)
        in_sync, dir_offline, states = (self._columns[name][:, rows] for name in _KEPT)
        left = (old != NO_BROKER) & ~same.any(axis=0) & (in_sync | (states != ReplicaState.ABSENT))
        none = np.zeros(old.shape, np.bool_)
        sources = {
            "replicas": (new, old),
            "assigned": (assigned, none),
            "in_sync": ((same & in_sync).any(axis=1), in_sync),
            "adding": (loaded.adding[:, which], none),
            "removing": (loaded.removing[:, which], none),
            "dir_offline": ((same & dir_offline).any(axis=1), dir_offline),
            # A broker has one slot; ABSENT is the largest number.
            "replica_state": (np.where(same, states, np.uint8(ReplicaState.ABSENT)).min(axis=1), states),
        }
        taken = np.concatenate([assigned, left])
        needed = int(taken.sum(axis=0).max())
        if needed > self.width:
            self._widen(needed)
        order = np.argsort(~taken, axis=0, kind="stable")[: self.width]
        filled = np.take_along_axis(taken, order, axis=0)
        for name, (_, empty) in PER_SLOT.items():
            column = np.take_along_axis(np.concatenate(sources[name]), order, axis=0)
            self._columns[name][:, rows] = np.where(filled, column, empty)
