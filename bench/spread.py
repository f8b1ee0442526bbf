"""Medians, and how far they can be trusted: the arithmetic of all figures.

A median stands beside the least and the greatest run, which are facts, and the quartiles, which say where most runs
lie. Nothing is called a standard deviation: times are skewed to one side, and runs are few.

A ratio of two medians has a spread as well. It is that of the *worst and the best pairing*: from the least run above
to the greatest below, up to the greatest above and the least below. With three or five runs of each side a bootstrap
would draw the same few values again and again and give an interval that is too narrow; pairing assumes nothing, and
whatever two runs somebody takes, their ratio lies within it.
"""

import statistics
from collections.abc import Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """A median and what lies around it, in the unit of the runs.

    Attributes:
        low, high: the quartiles, between which half of the runs lie; of one run the run itself.
    """

    count: int
    least: float
    low: float
    median: float
    high: float
    greatest: float

    @property
    def interquartile(self) -> float:
        return self.high - self.low


def spread(runs: Sequence[float]) -> Spread:
    """Of at least one run.

    Raises:
        ValueError: there is none.
    """
    if not runs:
        raise ValueError("no run has no median")
    low = high = runs[0]
    if len(runs) > 1:
        # Of all runs there are, not of a sample of more: no quartile lies outside of the runs.
        low, _, high = statistics.quantiles(runs, n=4, method="inclusive")
    return Spread(len(runs), min(runs), low, statistics.median(runs), high, max(runs))


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of medians, and what any pairing of runs lies between."""

    value: float
    least: float
    greatest: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.least:.3g}-{self.greatest:.3g})"


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The median of the runs `above` over that of the runs `below`.

    Raises:
        ValueError: one of them has no run, or a run below is not above zero.
    """
    top, bottom = spread(above), spread(below)
    if bottom.least <= 0:
        raise ValueError(f"nothing can be said in multiples of {bottom.least}")
    return Ratio(top.median / bottom.median, top.least / bottom.greatest, top.greatest / bottom.least)
