"""Columns that grow: one value per row, or one per slot of a row, in numpy arrays that are allocated together."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, NO_VERSION, PartitionState, ReplicaState

from .rows import RowNumbers

# One growth step; small, because a table that is loaded in bulk is allocated to its size.
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
PER_SLOT: Final[Mapping[str, tuple[Any, int]]] = {
    "replicas": (np.int32, NO_BROKER),
    "assigned": (np.bool_, False),
    "in_sync": (np.bool_, False),
    "adding": (np.bool_, False),
    "removing": (np.bool_, False),
    "dir_offline": (np.bool_, False),
    "replica_state": (np.uint8, ReplicaState.ABSENT),
}


class Columns:
    """Rows are handed out and taken back; a free row holds what `PER_ROW` and `PER_SLOT` call empty.

    Args:
        width: slots of a row at the beginning.
    """

    def __init__(self, *, width: int = 3) -> None:
        self._columns: dict[str, Any] = {}
        self._used = 0  # rows at and above this were never used
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
        """Bytes of the columns as allocated."""
        total: int = sum(column.nbytes for column in self._columns.values())
        return total

    def _column(self, name: str) -> Any:
        return self._columns[name][..., : self._used]

    def _widen(self, width: int) -> None:
        missing = width - self.width
        for name, (dtype, empty) in PER_SLOT.items():
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
            roomy = needed if not capacity else max(needed, int(capacity * _GROWTH), ROWS_MIN)
            self._resize(roomy)
        at = np.concatenate([np.array(reused, np.intp), np.arange(self._used, needed, dtype=np.intp)])
        self._used = needed
        return at

    def _resize(self, capacity: int) -> None:
        for name, column in self._columns.items():
            _, empty = PER_ROW.get(name) or PER_SLOT[name]
            grown = np.full((*column.shape[:-1], capacity), empty, column.dtype)
            grown[..., : column.shape[-1]] = column
            self._columns[name] = grown

    def _release(self, at: RowNumbers) -> None:
        """Empty rows, and take them back."""
        for name, (_, empty) in (*PER_ROW.items(), *PER_SLOT.items()):
            self._columns[name][..., at] = empty
        self._free = sorted(self._free + at.tolist())
