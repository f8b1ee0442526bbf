"""Medians and their spread.

A median is shown with the smallest and the largest run, and with the quartiles. Standard deviations are not used,
because times are skewed to one side and runs are few.

A ratio of two medians has a spread as well, that of the *worst and the best pairing*: from the smallest numerator
over the largest denominator to the largest numerator over the smallest denominator. With three or five runs per side
a bootstrap would sample the same few values repeatedly and return an interval that is too narrow. Pairing assumes
nothing: the ratio of any two runs lies within the spread."""

import statistics
from collections.abc import Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Median and spread, in the unit of the runs.

    Attributes:
        low, high: quartiles, which enclose half of the runs; equal to the run if there is only one.
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
    """Returns the spread of at least one run.

    Raises:
        ValueError: there is no run.
    """
    if not runs:
        raise ValueError("no run has no median")
    low = high = runs[0]
    if len(runs) > 1:
        # The runs are the population, not a sample: no quartile lies outside of the runs.
        low, _, high = statistics.quantiles(runs, n=4, method="inclusive")
    return Spread(len(runs), min(runs), low, statistics.median(runs), high, max(runs))


class Ratio(msgspec.Struct, frozen=True):
    """Ratio of medians, and the range over all pairings of runs."""

    value: float
    least: float
    greatest: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.least:.3g}-{self.greatest:.3g})"


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Returns the median of the runs `above` divided by that of the runs `below`.

    Raises:
        ValueError: one of them has no run, or a run in the denominator is not positive.
    """
    top, bottom = spread(above), spread(below)
    if bottom.least <= 0:
        raise ValueError(f"nothing can be said in multiples of {bottom.least}")
    return Ratio(top.median / bottom.median, top.least / bottom.greatest, top.greatest / bottom.least)
