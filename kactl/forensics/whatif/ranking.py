"""Ranking of scenarios by their outcomes, which are stored as columns."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from kactl.state.rows import Bools, RowNumbers

from .classes import Floats
from .failure_model import LONE, LOSSY, OFFLINE, UNDER_MIN, Sums


@dataclasses.dataclass(frozen=True, slots=True)
class Ranking:
    """Outcomes of n numbered scenarios: counts, and the broker that leads most.

    Attributes:
        counts: float64[n, 6], see `failure_model.COUNTS`.
        busiest: int[n], a broker's position; `leads`: float64[n], what it leads.
    """

    counts: Floats
    busiest: RowNumbers
    leads: Floats

    @staticmethod
    def of(sums: Sums) -> "Ranking":
        """Build a ranking from sums whose first axis is the scenario."""
        busiest = sums.load.argmax(axis=1) if sums.load.size else np.zeros(len(sums.load), np.intp)
        return Ranking(sums.counts, busiest, sums.load[np.arange(len(busiest)), busiest])

    @staticmethod
    def joined(parts: "Sequence[Ranking]") -> "Ranking":
        """Concatenate rankings."""
        names = (each.name for each in dataclasses.fields(Ranking))
        return Ranking(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.counts)

    def worst(self, top: int) -> list[int]:
        """Return the numbers of the worst scenarios, the worst first; of equal ones, the first.

        Scenarios are compared by the number of partitions offline, then by partitions that lose records, partitions
        under min.insync.replicas, partitions one failure from loss, and the load of the busiest leader.
        """
        counted = (-self.counts[:, at] for at in (LONE, UNDER_MIN, LOSSY, OFFLINE))
        order = np.lexsort((-np.round(self.leads, 6), *counted))
        return [int(at) for at in order[:top]]

    def harmless(self, before: Floats) -> Bools:
        """Return bool[n]: whether no more partitions are offline than before and none loses records."""
        calm: Bools = (self.counts[:, OFFLINE] <= before[OFFLINE]) & (self.counts[:, LOSSY] == 0)
        return calm
