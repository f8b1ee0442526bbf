"""Counts of ISR updates by leaders: proposed to the controller, or written to the store.

Changes that the controller makes itself, as when a broker fails, are not among them.

Source: ReplicaManager's IsrShrinksPerSec, IsrExpandsPerSec and FailedIsrUpdatesPerSec, which each broker counts for
the partitions that it leads.
"""

from collections import Counter

import numpy as np

from kactl.decide.state.rows import Bools, Ints


def isr_sizes(in_sync: Bools) -> Ints:
    """Returns int32[n], the number of in-sync replicas of each row, from a column of shape [slot, row]."""
    sizes: Ints = np.sum(in_sync, axis=0, dtype=np.int32)
    return sizes


def count_operations(counts: Counter[str], before: Ints, after: Ints) -> None:
    """Count the rows whose ISR has become smaller or larger."""
    counts["shrink"] += int(np.count_nonzero(after < before))
    counts["expand"] += int(np.count_nonzero(after > before))
