"""Clock offsets from bounds: an event of one clock that is known to precede an event of another.

If clock u logged an event before clock v logged another, v is ahead of u by no more than the difference of the two
times, however long the message between them took. Many such bounds, in both directions and through third clocks, leave
an interval for each clock: the shortest paths in a graph whose edges are the bounds.

Clocks drift and are set. Bounds then contradict each other: the sum of a cycle is negative. Such bounds are widened
until they agree, so that the value lies between what both sides claimed. The clock that causes most contradictions is
reported, and no bound passes through it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

# A row and a column for each clock: bounds[u, v] is the most that v is ahead of u, in microseconds.
Bounds = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

REFERENCE: Final = "reference"
BOUNDS: Final = "bounds"
ONE_SIDED: Final = "one-sided"
CONTRADICTORY: Final = "contradictory"
UNKNOWN: Final = "unknown"
# Cycles of three and more are rare; after this many, the bounds of a cycle are dropped instead of widened.
_CYCLES_LIMIT: Final = 100


class Link(NamedTuple):
    """`after` is ahead of `before` by no more than `bound_us`, computed from `pairs` pairs of events."""

    before: int
    after: int
    bound_us: int
    pairs: int


class Clock(NamedTuple):
    """One clock relative to the reference; see `skew.COLUMNS`."""

    broker: int
    reference: int
    offset_us: int
    low_us: int | None
    high_us: int | None
    links: int
    how: str


def solve(brokers: Iterable[int], links: Sequence[Link], jumped: Collection[int] = ()) -> list[Clock]:
    """Compute all clocks relative to the one with the most links (of several, the lowest id).

    Args:
        brokers: the clocks to compute; clocks that links name are added.
        links: at most one for each ordered pair of clocks.
        jumped: clocks that were set back; no bound passes through them.

    Returns:
        One `Clock` for each, by id. Without contradictions the true offset is within `low_us` and `high_us`.
    """
    names = sorted({*brokers, *(link.before for link in links), *(link.after for link in links)})
    if not names:
        return []
    place = {name: row for row, name in enumerate(names)}
    bounds = np.full((len(names), len(names)), np.inf)
    weights = np.zeros(len(names), np.int64)
    for link in links:
        before, after = place[link.before], place[link.after]
        bounds[before, after] = min(bounds[before, after], link.bound_us)
        weights[[before, after]] += link.pairs
    np.fill_diagonal(bounds, 0)
    reference = int(np.argmax(weights))
    bent = _widen(bounds)
    doubtful = _blamed(bent, weights)
    doubtful[[place[name] for name in jumped if name in place]] = True
    paths = _shortest(bounds, through=~doubtful)
    clocks = []
    for row, name in enumerate(names):
        high, low = paths[reference, row], -paths[row, reference]
        doubt = bool(doubtful[row] or bent[reference, row])
        clocks.append(_clock(name, names[reference], low, high, int(weights[row]), doubt=doubt))
    return clocks


def _clock(broker: int, reference: int, low: float, high: float, links: int, *, doubt: bool) -> Clock:
    if broker == reference:
        return Clock(broker, reference, 0, 0, 0, links, REFERENCE)
    known = [int(bound) for bound in (np.floor(low), np.ceil(high)) if np.isfinite(bound)]
    if not known:
        return Clock(broker, reference, 0, None, None, links, UNKNOWN)
    how = CONTRADICTORY if doubt else BOUNDS if len(known) == 2 else ONE_SIDED
    # With one bound only, the shortest delay seen is taken for zero. With both, clocks that may agree are assumed to
    # agree: most are synchronised, and a delay that is long on one side must not move a correct clock.
    agrees = how == BOUNDS and low <= 0 <= high
    return Clock(
        broker,
        reference,
        0 if agrees else sum(known) // len(known),
        int(np.floor(low)) if np.isfinite(low) else None,
        int(np.ceil(high)) if np.isfinite(high) else None,
        links,
        how,
    )


# -- contradictions ----------------------------------------------------------------------------------------------------


def _widen(bounds: Bounds) -> Flags:
    """Widen contradictory bounds in place, and return the affected pairs, in both directions.

    Twice the deficit of a cycle is added to it: for a pair of clocks with claims of at most a and at least b > a, the
    remaining interval is a to b.
    """
    lacking = np.minimum(bounds + bounds.T, 0)
    bent: Flags = lacking < 0
    bounds -= lacking
    for rounds in range(bounds.size):
        cycle = _negative_cycle(bounds)
        if cycle is None:
            break
        before, after = np.array(cycle), np.roll(cycle, -1)
        lack = -float(bounds[before, after].sum())
        bounds[before, after] += 2 * lack / len(cycle) + 1 if rounds < _CYCLES_LIMIT else np.inf
        bent[before, after] = bent[after, before] = True
    return bent


def _negative_cycle(bounds: Bounds) -> list[int] | None:
    """Returns a cycle with a negative sum, as the clocks along it, or None (Bellman-Ford)."""
    count = len(bounds)
    distance = np.zeros(count)
    came_from = np.full(count, -1)
    edges = bounds.copy()
    np.fill_diagonal(edges, np.inf)
    clock = -1
    for _ in range(count):
        reached = distance[:, None] + edges
        best = reached.argmin(axis=0)
        shorter = reached[best, np.arange(count)] < distance - _ROUNDING_US
        if not shorter.any():
            return None
        distance = np.where(shorter, reached[best, np.arange(count)], distance)
        came_from = np.where(shorter, best, came_from)
        clock = int(np.flatnonzero(shorter)[0])
    for _ in range(count):
        clock = int(came_from[clock])
    cycle = [clock]
    while (clock := int(came_from[clock])) != cycle[0]:
        cycle.append(clock)
    return cycle[::-1]


# Less than a microsecond is rounding.
_ROUNDING_US: Final = 0.5


def _blamed(bent: Flags, weights: "np.ndarray[Any, np.dtype[np.int64]]") -> Flags:
    """Returns the clocks to exclude so that no contradiction remains: repeatedly the one in most contradictions, then
    the one with the least evidence.
    """
    left = bent.copy()
    blamed = np.zeros(len(left), np.bool_)
    while left.any():
        worst = max(range(len(left)), key=lambda clock: (int(left[clock].sum()), -int(weights[clock]), clock))
        blamed[worst] = True
        left[worst, :] = left[:, worst] = False
    return blamed


def _shortest(bounds: Bounds, *, through: Flags) -> Bounds:
    """Returns the tightest bound of each pair, by way of trusted clocks (Floyd-Warshall)."""
    paths = bounds.copy()
    for clock in np.flatnonzero(through):
        paths = np.minimum(paths, paths[:, clock, None] + paths[None, clock, :])
    return paths
