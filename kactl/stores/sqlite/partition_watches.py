"""Watches on the leadership of single partitions.

They are not stored: every process reads every change of the journal and compares it with its own watches.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kactl.model import TopicPartition
from kactl.stores.entries import Entries

Key = tuple[int, int]  # the number of a topic, and a partition


class PartitionWatches:
    """The watched partitions of one client, and those of them that were written."""

    def __init__(self) -> None:
        self._names: dict[int, TopicPartition] = {}
        self._keys = np.zeros(0, np.int64)
        self._written: dict[TopicPartition, None] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def watch(self, names: Mapping[Key, TopicPartition]) -> None:
        """Watch these partitions and no others."""
        self._names = {_key(*key): name for key, name in names.items()}
        self._keys = np.array(list(self._names), np.int64)
        self._written.clear()

    def record(self, entries: Entries) -> None:
        """Record the watched partitions among some written entries."""
        if self._names:
            keys = (entries.topic.astype(np.int64) << 32) | entries.partition
            self._note(np.intersect1d(keys, self._keys))

    def record_all(self) -> None:
        """Record all watched partitions as written, since the written entries are unknown."""
        self._note(self._keys)

    def _note(self, keys: npt.NDArray[np.int64]) -> None:
        self._written |= dict.fromkeys(self._names[key] for key in keys.tolist())

    def take(self) -> list[TopicPartition]:
        """Returns the partitions written since the last call."""
        written = list(self._written)
        self._written.clear()
        return written


def _key(topic: int, partition: int) -> int:
    return (topic << 32) | partition
