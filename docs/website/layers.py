"""Arrangement of a directed graph without cycles in layers, with arrows that point down.

A node is one layer below the lowest of those that point to it. An arrow over several layers passes each of them at a
point of its own, so that it crosses no node. Neighbours in a layer are ordered by the mean position of what they are
connected with, which leaves few crossings.

Source: Sugiyama, Tagawa, Toda: Methods for Visual Understanding of Hierarchical System Structures, 1981.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

# Height of a node.
HEIGHT: Final = 26.0
_LETTER: Final = 7.4
_PADDING: Final = 20.0
_GAP: Final = 14.0
_LAYER: Final = 62.0
_MARGIN: Final = 4.0
# Width of the point at which an arrow passes a layer.
_POINT: Final = 2.0
# After so many passes the order no longer changes for graphs of this size.
_PASSES: Final = 24

# A node by its name, or the point of an arrow in a layer: (before, after, layer).
Place = str | tuple[str, str, int]


class Node(NamedTuple):
    """A node with its centre."""

    name: str
    x: float
    y: float
    width: float


class Arrangement(NamedTuple):
    """Nodes, and the points of each arrow, from the lower border of a node to the upper border of another."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    routes: tuple[tuple[tuple[float, float], ...], ...]


def arranged(titles: Mapping[str, str], edges: Sequence[tuple[str, str]]) -> Arrangement:
    """Returns the arrangement of nodes with titles. The edges have no cycle."""
    layer = _layers(titles, edges)
    chains = [_chain(before, after, layer) for before, after in edges]
    links = [pair for chain in chains for pair in pairwise(chain)]
    rows = _ordered(titles, chains, layer, links)
    widths: dict[Place, float] = {place: _POINT for row in rows for place in row}
    widths.update({name: len(title) * _LETTER + _PADDING for name, title in titles.items()})
    x = _positions(rows, links, widths)
    left = min(x[place] - widths[place] / 2 for place in x) - _MARGIN
    right = max(x[place] + widths[place] / 2 for place in x) + _MARGIN
    y = {place: number * _LAYER + HEIGHT / 2 + _MARGIN for number, row in enumerate(rows) for place in row}
    nodes = tuple(Node(name, x[name] - left, y[name], widths[name]) for name in titles)
    routes = tuple(tuple(_points(chain, {place: x[place] - left for place in chain}, y)) for chain in chains)
    return Arrangement(right - left, (len(rows) - 1) * _LAYER + HEIGHT + 2 * _MARGIN, nodes, routes)


def _layers(titles: Mapping[str, str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Returns the layer of each node: the length of the longest path to it."""
    layer = dict.fromkeys(titles, 0)
    for _ in titles:
        for before, after in edges:
            layer[after] = max(layer[after], layer[before] + 1)
    return layer


def _chain(before: str, after: str, layer: Mapping[str, int]) -> list[Place]:
    passed: list[Place] = [(before, after, number) for number in range(layer[before] + 1, layer[after])]
    return [before, *passed, after]


def _ordered(
    titles: Mapping[str, str],
    chains: Sequence[Sequence[Place]],
    layer: Mapping[str, int],
    links: Sequence[tuple[Place, Place]],
) -> list[list[Place]]:
    """Returns the places of each layer, in an order with few crossings."""
    rows: list[list[Place]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for name in titles:
        rows[layer[name]].append(name)
    for chain in chains:
        for place in chain[1:-1]:
            rows[place[2] if isinstance(place, tuple) else layer[place]].append(place)
    for number in range(_PASSES):
        downwards = number % 2 == 0
        near = _neighbours(links, above=downwards)
        for row, other in (
            zip(rows[1:], rows, strict=False) if downwards else zip(rows[-2::-1], rows[:0:-1], strict=True)
        ):
            at = {place: index / max(1, len(other) - 1) for index, place in enumerate(other)}
            own = {place: index / max(1, len(row) - 1) for index, place in enumerate(row)}
            row.sort(key=lambda place: _mean([at[each] for each in near.get(place, ())], own[place]))
    return rows


def _neighbours(links: Sequence[tuple[Place, Place]], *, above: bool) -> dict[Place, list[Place]]:
    found: dict[Place, list[Place]] = {}
    for upper, lower in links:
        found.setdefault(lower if above else upper, []).append(upper if above else lower)
    return found


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _positions(
    rows: Sequence[Sequence[Place]], links: Sequence[tuple[Place, Place]], widths: Mapping[Place, float]
) -> dict[Place, float]:
    """Returns the horizontal centre of each place: near the mean of its neighbours, without overlaps."""
    x: dict[Place, float] = {place: 0.0 for row in rows for place in row}
    for number in range(_PASSES):
        near = _neighbours(links, above=number % 2 == 0)
        for row in rows if number % 2 == 0 else reversed(rows):
            wanted = [_mean([x[each] for each in near.get(place, ())], x[place]) for place in row]
            x.update(zip(row, _apart(wanted, [widths[place] for place in row]), strict=True))
    return x


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Returns ascending centres without overlaps, as near to the wanted ones as possible.

    With the least distances taken off, these are the ascending numbers that differ least from the wanted ones.
    Neighbours in the wrong order become a block that has their mean.
    """
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2 + _GAP)
    blocks: list[tuple[float, int]] = []  # mean and size
    for value in (each - offset for each, offset in zip(wanted, offsets, strict=True)):
        mean, size = value, 1
        while blocks and blocks[-1][0] > mean:
            above, count = blocks.pop()
            mean, size = (above * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    centres = [mean for mean, size in blocks for _ in range(size)]
    return [centre + offset for centre, offset in zip(centres, offsets, strict=True)]


def _points(
    chain: Sequence[Place], x: Mapping[Place, float], y: Mapping[Place, float]
) -> Iterator[tuple[float, float]]:
    """Yields the points of an arrow, from the border of its first node to that of its last."""
    first, last = chain[0], chain[-1]
    yield x[first], y[first] + HEIGHT / 2
    for place in chain[1:-1]:
        # Straight through the height of the layer, beside its nodes.
        yield x[place], y[place] - HEIGHT / 2
        yield x[place], y[place] + HEIGHT / 2
    yield x[last], y[last] - HEIGHT / 2
