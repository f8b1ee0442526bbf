"""Tables of the race: times of each phase, ratios of the contenders, and costs.

A ratio is that of the medians, with the range over all pairs of runs.
"""

from collections.abc import Callable, Iterator, Sequence

from bench.figures import Figure, Results
from bench.spread import Ratio, ratio
from bench.tables import plain, runs, times

from .phases import PHASES
from .scene import is_use

Wanted = Callable[[str, Figure], bool]


def sizes(results: Results) -> list[str]:
    """Returns the sizes of clusters, in order."""
    return list(dict.fromkeys(name.split("/", 1)[0] for name in results.figures))


def contenders(results: Results, size: str) -> list[str]:
    """Returns the contenders of a size."""
    return list(dict.fromkeys(name.split("/", 1)[0] for name in results.under(size)))


def times_of(results: Results, size: str) -> str:
    """Returns the table of all times at a size, in seconds."""
    return _table(results, size, is_time, "seconds")


def costs_of(results: Results, size: str) -> str:
    """Returns the table of costs: processor seconds, requests, bytes, memory."""
    return _table(results, size, lambda name, figure: not is_time(name, figure), "cost")


def is_time(name: str, figure: Figure) -> bool:
    """Returns whether a figure of a phase is a time, not a cost or a size."""
    return figure.unit == "s" and not is_use(name)


def compared(slow: Figure, fast: Figure) -> Ratio | None:
    """Returns the ratio of two figures; None if it is not meaningful."""
    if min(fast.runs) <= 0 or max(slow.runs) <= 0:
        return None
    return ratio(slow.runs, fast.runs)


def whole(results: Results) -> str:
    """Returns all tables."""
    parts = []
    for size in sizes(results):
        brokers, _, partitions = size.partition("x")
        parts.append(f"{brokers} brokers, {int(partitions):,} partitions")
        parts += [times_of(results, size), costs_of(results, size)]
    return "\n\n".join(parts)


def _table(results: Results, size: str, wanted: Wanted, title: str) -> str:
    who = contenders(results, size)
    head = [title, *who]
    compares = len(who) == 2
    if compares:
        head.append(f"{who[0]} / {who[1]}")
    rows = [row for phase in PHASES for row in _rows(results, size, phase, who, wanted)]
    return plain(head, rows)


def _rows(results: Results, size: str, phase: str, who: Sequence[str], wanted: Wanted) -> Iterator[list[str]]:
    """Returns a row for each nonzero figure of a phase, and an empty row after them."""
    sides = [results.under(f"{size}/{each}/{phase}") for each in who]
    names = [
        name
        for name in dict.fromkeys(name for side in sides for name in side)
        if any(name in side and wanted(name, side[name]) and any(side[name].runs) for side in sides)
    ]
    for name in names:
        unit = next(side[name].unit for side in sides if name in side)
        label = f"{phase}: {name}" + ("" if unit in ("s", "count") else f", {unit}")
        row = [label, *(runs(side[name]) if name in side else "-" for side in sides)]
        if len(sides) == 2 and all(name in side for side in sides):
            found = compared(sides[0][name], sides[1][name])
            row.append("-" if found is None else times(found))
        yield row
    if names:
        yield []
