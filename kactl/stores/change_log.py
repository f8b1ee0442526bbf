"""Log of recently written entries, for clients that keep a copy of them: see `Store.changes`.

Changes are numbered, and the most recent ones are kept. A query that begins before the oldest kept change is answered
with "unknown".
"""

import collections
from typing import Final

import numpy as np

from kactl.decide.state.rows import Ints

# At 8 bytes each this is 8 MiB: all that a failover of a very large cluster writes.
ROWS_MAX: Final = 1 << 20
# A change of one row takes about 400 bytes, nearly all of it overhead: at most 13 MB of them, and more changes than are
# written between two queries of a client.
CHANGES_MAX: Final = 1 << 15


class ChangeLog:
    """A bounded log of changes. Topics are numbered as the store numbers them."""

    def __init__(self) -> None:
        self._changes: collections.deque[tuple[int, Ints, Ints]] = collections.deque()
        self._rows = 0
        self._complete_after = 0

    def add(self, seq: int, topic: Ints, partition: Ints) -> None:
        """Record that change `seq` wrote these entries; numbers ascend."""
        # Copies: the columns may be views of a whole change, which would be kept in memory along with them.
        self._changes.append((seq, topic.copy(), partition.copy()))
        self._rows += len(topic)
        while self._rows > ROWS_MAX or len(self._changes) > CHANGES_MAX:
            self._complete_after, topics, _ = self._changes.popleft()
            self._rows -= len(topics)

    def begin(self, seq: int) -> None:
        """Discard the log; changes up to `seq` are unknown."""
        self._changes.clear()
        self._rows, self._complete_after = 0, seq

    def since(self, seq: int) -> tuple[Ints, Ints] | None:
        """Returns topic and partition of each entry written after change `seq`, possibly repeated; None if unknown."""
        if seq < self._complete_after:
            return None
        changes = []
        for change in reversed(self._changes):
            if change[0] <= seq:
                break
            changes.append(change)
        if not changes:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        topics, partitions = [topic for _, topic, _ in changes], [partition for _, _, partition in changes]
        return np.concatenate(topics), np.concatenate(partitions)
