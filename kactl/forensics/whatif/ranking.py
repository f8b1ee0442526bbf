"""Outcomes of many scenarios as columns, and which are the worst."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from kactl.state.rows import Bools, RowNumbers

from .classes import Floats
from .failure_model import LONE, LOSSY, OFFLINE, UNDER_MIN, Sums


@dataclasses.dataclass(frozen=True, slots=True)
class Ranking:
    """n scenarios, by number: what was counted, and who leads most.

    Attributes:
        counts: float64[n, 6], see `failure_model.COUNTS`.
        busiest: int[n], a broker's position; `leads`: float64[n], what it leads.
    """

    counts: Floats
    busiest: RowNumbers
    leads: Floats

    @staticmethod
    def of(sums: Sums) -> "Ranking":
        """Of sums with the scenarios along the first axis."""
        busiest = sums.load.argmax(axis=1) if sums.load.size else np.zeros(len(sums.load), np.intp)
        return Ranking(sums.counts, busiest, sums.load[np.arange(len(busiest)), busiest])

    @staticmethod
    def joined(parts: "Sequence[Ranking]") -> "Ranking":
        """One after the other."""
        names = (each.name for each in dataclasses.fields(Ranking))
        return Ranking(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.counts)

    def worst(self, top: int) -> list[int]:
        """The numbers of the worst, the worst first; of equals, the first.

        Worst is what takes most partitions offline; of those that are alike in that, what loses records of most, leaves
        most under min.insync.replicas, leaves most one failure from loss, and puts most on one leader.
        """
        counted = (-self.counts[:, at] for at in (LONE, UNDER_MIN, LOSSY, OFFLINE))
        order = np.lexsort((-np.round(self.leads, 6), *counted))
        return [int(at) for at in order[:top]]

    def harmless(self, before: Floats) -> Bools:
        """bool[n]: no more partitions are offline than before, and none loses records."""
        calm: Bools = (self.counts[:, OFFLINE] <= before[OFFLINE]) & (self.counts[:, LOSSY] == 0)
        return calm
