"""Pace of a run: the length of its first phase, and how often faults and requests occur in it.

Most runs are short and dense: what later events would repair is only found at the end of a run. More than a third is
calm: a long time in which each fault mostly ends before the next one begins, so that timers fire, leaders return to the
preferred replicas, and a node meets what it has remembered for minutes.
"""

import random
from typing import Final, NamedTuple

# Share of the calm runs.
CALM: Final = 0.38
# Lengths in minutes with their weights, of dense runs and of calm ones.
_DENSE_MINUTES: Final = ((0.4, 100), (0.8, 60), (2, 28), (4, 8), (8, 3), (20, 1))
_CALM_MINUTES: Final = ((2, 5), (5, 10), (10, 25), (20, 60))
# Length for large clusters.
_LARGE_MINUTES: Final = 0.8
# Mean times between two occurrences of faults in calm runs, whatever their kinds. Most are several faults.
_CALM_FAULTS_MS: Final = (12_000.0, 16_000.0, 20_000.0)
# Requests per second.
_DENSE_RATES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
_CALM_RATES: Final = (0.05, 0.1)


class Pace(NamedTuple):
    """Pace of one run.

    Attributes:
        minutes: length of the first phase.
        faults_ms: mean time between two occurrences of faults, if the drawn kinds would occur more often; 0 for no such
            limit.
        rates: of requests per second, from which the run draws one.
    """

    minutes: float
    faults_ms: float = 0.0
    rates: tuple[float, ...] = _DENSE_RATES

    @property
    def is_calm(self) -> bool:
        return self.faults_ms > 0

    def stretched(self, interval_ms: float, all_per_ms: float) -> float:
        """Returns the mean time between two occurrences of one kind of faults.

        Args:
            interval_ms: that of the kind, by its rate.
            all_per_ms: occurrences of all kinds in each millisecond, by their rates.
        """
        return interval_ms * max(1.0, self.faults_ms * all_per_ms)


def drawn_pace(rng: random.Random, script: random.Random, *, large: bool, calm: bool = True) -> Pace:
    """Draw a pace.

    Args:
        rng: stream of the pace alone.
        script: stream from which the length of a dense run is drawn; it is drawn in each case.
        calm: whether the run may be calm.
    """
    minutes = _drawn_minutes(script, _DENSE_MINUTES)
    if large:
        return Pace(_LARGE_MINUTES)
    if rng.random() >= CALM or not calm:
        return Pace(minutes)
    return Pace(_drawn_minutes(rng, _CALM_MINUTES), rng.choice(_CALM_FAULTS_MS), _CALM_RATES)


def _drawn_minutes(rng: random.Random, weights: tuple[tuple[float, int], ...]) -> float:
    return rng.choices([length for length, _ in weights], [weight for _, weight in weights])[0]
