"""Which entries were written lately, for those who keep a copy of them: see `Store.changes`.

Changes are numbered, and the newest are held. Whoever asks for what came after a number that is no longer covered is
told that nothing can be said.
"""

import collections
from typing import Final

import numpy as np

from kactl.state.rows import Ints

# At eight bytes each this is eight megabytes: all that a failover of a very large cluster writes.
ROWS_MAX: Final = 1 << 20
# A change of one row takes some 400 bytes, nearly all of it for being one: this is no more than 13 megabytes of them,
# and more than is written between two looks of whoever keeps a copy.
CHANGES_MAX: Final = 1 << 15


class ChangeLog:
    """See the module. Topics are numbered as the store numbers them."""

    def __init__(self) -> None:
        self._changes: collections.deque[tuple[int, Ints, Ints]] = collections.deque()
        self._rows = 0
        self._complete_after = 0

    def add(self, seq: int, topic: Ints, partition: Ints) -> None:
        """Change `seq` wrote these entries; numbers rise."""
        # Copies: the columns may be views of a whole change, which would be held along with them.
        self._changes.append((seq, topic.copy(), partition.copy()))
        self._rows += len(topic)
        while self._rows > ROWS_MAX or len(self._changes) > CHANGES_MAX:
            self._complete_after, gone, _ = self._changes.popleft()
            self._rows -= len(gone)

    def begin(self, seq: int) -> None:
        """Nothing is known of what was written up to change `seq`."""
        self._changes.clear()
        self._rows, self._complete_after = 0, seq

    def since(self, seq: int) -> tuple[Ints, Ints] | None:
        """Topic and partition of every entry that was written after change `seq`, some perhaps twice; None: unknown."""
        if seq < self._complete_after:
            return None
        found = []
        for change in reversed(self._changes):
            if change[0] <= seq:
                break
            found.append(change)
        if not found:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        return np.concatenate([topic for _, topic, _ in found]), np.concatenate([at for _, _, at in found])
