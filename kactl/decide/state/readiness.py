"""Leaderships with leaders that act: the application's code runs under a lease.

A leader reports when its code begins and when it ends. A new controller knows nothing and receives the reports again.
Rows are compared with the partition and the leader epoch that were reported, so a row that is used for another
partition, or has another leader, is not ready. A report also counts under the epochs after it in which no other broker
has led.
"""

import math
from typing import Any, Final

import numpy as np

from kactl.model import NO_EPOCH

from .columns import grown
from .rows import Bools, Ints, RowNumbers

# A handler that cannot reach its database fails soon after its call. A leadership that acts proves nothing until then.
SETTLED_MS: Final = 200.0


class Readiness:
    """The last reported leadership of each row of a table.

    Attributes:
        revision: rises with every report.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._columns: Any = np.full((3, 0), NO_EPOCH, np.int32)  # topic number, partition, leader epoch
        self._since_ms: Any = np.zeros(0)

    def put(
        self,
        rows: RowNumbers,
        topic: Ints,
        partition: Ints,
        leader_epoch: Ints,
        ready: Bools,
        *,
        now_ms: float = -math.inf,
    ) -> None:
        """Store reports about n rows. One that ends an earlier leadership than the stored one has no effect."""
        if not len(rows):
            return
        if int(rows.max()) >= self._columns.shape[1]:
            self._columns = grown(self._columns, max(int(rows.max()) + 1, 2 * self._columns.shape[1]), NO_EPOCH)
        if len(self._since_ms) < self._columns.shape[1]:
            self._since_ms = grown(self._since_ms, self._columns.shape[1], 0.0)
        reported = np.stack([topic, partition, leader_epoch])
        stored = self._columns[:, rows]
        same = (stored[0] == topic) & (stored[1] == partition)
        begins = ready & ~(same & (stored[2] > leader_epoch))
        ends = ~ready & same & (stored[2] <= leader_epoch)
        self._since_ms[rows[begins & ~(same & (stored[2] == leader_epoch))]] = now_ms
        self._columns[:, rows[begins]] = reported[:, begins]
        self._columns[2, rows[ends]] = NO_EPOCH
        self.revision += 1

    def are_settled(self, rows: RowNumbers, now_ms: float) -> Bools:
        """Returns bool[n]: whether the reports of n rows for which one `holds` are old enough to prove anything."""
        known = rows < len(self._since_ms)
        result = np.ones(len(rows), np.bool_)
        result[known] = self._since_ms[rows[known]] + SETTLED_MS <= now_ms
        return result

    def holds(
        self, rows: RowNumbers, topic: Ints, partition: Ints, leader_epoch: Ints, since: Ints | None = None
    ) -> Bools:
        """Returns bool[n] for n rows.

        Args:
            since: int32[n], the first leader epoch that counts; None for `leader_epoch`.
        """
        if len(rows) and int(rows.max()) >= self._columns.shape[1]:
            self._columns = grown(self._columns, int(rows.max()) + 1, NO_EPOCH)
        stored = self._columns[:, rows]
        same: Bools = (stored[0] == topic) & (stored[1] == partition) & (stored[2] <= leader_epoch)
        same &= (stored[2] >= (leader_epoch if since is None else since)) & (stored[2] != NO_EPOCH)
        return same

    def of(self, topic: Ints, partition: Ints, leader_epoch: Ints, since: Ints | None = None) -> Bools:
        """Returns bool[P] for the columns of a table."""
        return self.holds(np.arange(len(topic)), topic, partition, leader_epoch, since)
