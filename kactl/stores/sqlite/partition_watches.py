"""Single partitions whose leadership is watched, and which of them were written.

Nothing is stored of it: every process sees every change in the journal anyway, and here it looks at what it sees.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kactl.model import TopicPartition
from kactl.stores.entries import Entries

Key = tuple[int, int]  # the number of a topic, and a partition


class PartitionWatches:
    """See the module."""

    def __init__(self) -> None:
        self._names: dict[int, TopicPartition] = {}
        self._keys = np.zeros(0, np.int64)
        self._written: dict[TopicPartition, None] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def watch(self, names: Mapping[Key, TopicPartition]) -> None:
        """These and no others, from now on."""
        self._names = {_key(*key): name for key, name in names.items()}
        self._keys = np.array(list(self._names), np.int64)
        self._written.clear()

    def see(self, entries: Entries) -> None:
        """Some entries were written."""
        if self._names:
            keys = (entries.topic.astype(np.int64) << 32) | entries.partition
            self._note(np.intersect1d(keys, self._keys))

    def see_all(self) -> None:
        """What was written is not known one by one."""
        self._note(self._keys)

    def _note(self, keys: npt.NDArray[np.int64]) -> None:
        self._written |= dict.fromkeys(self._names[key] for key in keys.tolist())

    def take(self) -> list[TopicPartition]:
        """Those that were written since this was last asked."""
        written = list(self._written)
        self._written.clear()
        return written


def _key(topic: int, partition: int) -> int:
    return (topic << 32) | partition
