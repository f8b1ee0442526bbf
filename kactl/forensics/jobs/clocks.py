"""What is known of clocks when all that is known is what happened before what.

If something was logged by clock u before something else was logged by clock v, then v is ahead of u by no more than the
difference of the two times, however long the way between them took. Many such bounds, in both directions and by way of
third clocks, leave each clock an interval: the shortest paths in a graph whose edges are the bounds.

Clocks drift, and are set. Then bounds contradict each other: a cycle of them sums up to less than nothing. Such bounds
are widened until they agree, so that what both sides claimed lies between them; the clock that most of it is due to is
named, and nothing is concluded about others by way of it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

# A row and a column for each clock: bounds[u, v] is by how much v is ahead of u at most, in microseconds.
Bounds = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

REFERENCE: Final = "reference"
BOUNDS: Final = "bounds"
ONE_SIDED: Final = "one-sided"
CONTRADICTORY: Final = "contradictory"
UNKNOWN: Final = "unknown"
# Cycles of three and more are rare; after so many the bounds in them are given up, not widened.
_CYCLES_LIMIT: Final = 100


class Link(NamedTuple):
    """`after` is ahead of `before` by no more than `bound_us`, as `pairs` pairs of events say."""

    before: int
    after: int
    bound_us: int
    pairs: int


class Clock(NamedTuple):
    """One clock against the reference; see `skew.COLUMNS`."""

    broker: int
    reference: int
    offset_us: int
    low_us: int | None
    high_us: int | None
    links: int
    how: str


def solve(brokers: Iterable[int], links: Sequence[Link], jumped: Collection[int] = ()) -> list[Clock]:
    """All clocks against the one with the most links (of several, the lowest id).

    Args:
        brokers: all whose clocks are asked for; those that links name come on top.
        links: each pair of clocks at most once in each direction.
        jumped: clocks that are known to have been set back; nothing is concluded by way of them.

    Returns:
        one for each, by id. Where nothing contradicts, the true offset is within `low_us` and `high_us`.
    """
    names = sorted({*brokers, *(each.before for each in links), *(each.after for each in links)})
    if not names:
        return []
    place = {name: at for at, name in enumerate(names)}
    bounds = np.full((len(names), len(names)), np.inf)
    weights = np.zeros(len(names), np.int64)
    for each in links:
        before, after = place[each.before], place[each.after]
        bounds[before, after] = min(bounds[before, after], each.bound_us)
        weights[[before, after]] += each.pairs
    np.fill_diagonal(bounds, 0)
    reference = int(np.argmax(weights))
    bent = _widen(bounds)
    doubtful = _blamed(bent, weights)
    doubtful[[place[name] for name in jumped if name in place]] = True
    paths = _shortest(bounds, through=~doubtful)
    found = []
    for at, name in enumerate(names):
        high, low = paths[reference, at], -paths[at, reference]
        doubt = bool(doubtful[at] or bent[reference, at])
        found.append(_clock(name, names[reference], low, high, int(weights[at]), doubt=doubt))
    return found


def _clock(broker: int, reference: int, low: float, high: float, links: int, *, doubt: bool) -> Clock:
    if broker == reference:
        return Clock(broker, reference, 0, 0, 0, links, REFERENCE)
    known = [int(each) for each in (np.floor(low), np.ceil(high)) if np.isfinite(each)]
    if not known:
        return Clock(broker, reference, 0, None, None, links, UNKNOWN)
    how = CONTRADICTORY if doubt else BOUNDS if len(known) == 2 else ONE_SIDED
    # With one bound only, the shortest way that was seen is taken for none. With both, clocks that may agree are taken
    # to agree: most are kept by one time, and a way that is slow on one side must not move a clock that is right.
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
    """Widen, in place, what contradicts itself; which pairs that concerned, in both directions.

    What a cycle lacks is added to it twice: for a pair of clocks with claims of at most a and at least b > a, between
    a and b is what remains.
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
    """Some cycle that sums up to less than nothing, as the clocks along it; Bellman and Ford's."""
    count = len(bounds)
    distance = np.zeros(count)
    came_from = np.full(count, -1)
    edges = bounds.copy()
    np.fill_diagonal(edges, np.inf)
    at = -1
    for _ in range(count):
        reached = distance[:, None] + edges
        best = reached.argmin(axis=0)
        shorter = reached[best, np.arange(count)] < distance - _NOTHING_US
        if not shorter.any():
            return None
        distance = np.where(shorter, reached[best, np.arange(count)], distance)
        came_from = np.where(shorter, best, came_from)
        at = int(np.flatnonzero(shorter)[0])
    for _ in range(count):
        at = int(came_from[at])
    cycle = [at]
    while (at := int(came_from[at])) != cycle[0]:
        cycle.append(at)
    return cycle[::-1]


# Less than a microsecond is rounding.
_NOTHING_US: Final = 0.5


def _blamed(bent: Flags, weights: "np.ndarray[Any, np.dtype[np.int64]]") -> Flags:
    """The clocks without which nothing contradicts: again and again the one in most contradictions, then the one of
    which least is known."""
    left = bent.copy()
    blamed = np.zeros(len(left), np.bool_)
    while left.any():
        worst = max(range(len(left)), key=lambda at: (int(left[at].sum()), -int(weights[at]), at))
        blamed[worst] = True
        left[worst, :] = left[:, worst] = False
    return blamed


def _shortest(bounds: Bounds, *, through: Flags) -> Bounds:
    """The tightest bound between each two, by way of those that can be trusted; Floyd and Warshall's."""
    paths = bounds.copy()
    for way in np.flatnonzero(through):
        paths = np.minimum(paths, paths[:, way, None] + paths[None, way, :])
    return paths
