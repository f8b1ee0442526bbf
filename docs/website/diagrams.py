"""Pictures of the diagrams in pages, as SVG in the colours of the site's theme.

A page has a diagram as Mermaid source, which code hosting sites draw. The site is built without a browser, so it draws
the two forms that generated pages have: state machines, and graphs of folders. Any other form is an error.
"""

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from .layers import HEIGHT, arranged

# Centre of each state, by diagram: a diagram has the places that contain all its states.
_PLACES: Final[tuple[Mapping[str, tuple[int, int]], ...]] = (
    {"ABSENT": (110, 40), "NEW": (490, 40), "ONLINE": (490, 200), "OFFLINE": (110, 200)},
    {
        "ABSENT": (110, 40),
        "NEW": (490, 40),
        "DELETION_SUCCESSFUL": (110, 170),
        "ONLINE": (490, 170),
        "OFFLINE": (210, 290),
        "DELETION_STARTED": (110, 410),
        "DELETION_INELIGIBLE": (490, 410),
    },
)
_WIDTH: Final = 600
_BOX: Final = (186, 36)
# Half the distance between the two arrows that connect a pair of states.
_APART: Final = 9
_STATE_EDGE: Final = re.compile(r"(\w+) --> (\w+)(?:: (.+))?")
_NODE: Final = re.compile(r"(\w+)\[([^\]]+)\]")
_EDGE: Final = re.compile(r"(\w+) --> (\w+)")
_HEAD: Final = (
    '<defs><marker id="{id}" class="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0 0L8 4L0 8Z"/></marker></defs>'
)


class BadDiagram(Exception):
    """A diagram has a form or a state that the site cannot draw."""


class Edge(NamedTuple):
    """An arrow. `text`: its label; empty if it has none."""

    before: str
    after: str
    text: str = ""


def drawn(source: str, number: int = 1) -> str:
    """Returns a diagram as one block of HTML: the picture, and its source as text.

    Args:
        source: Mermaid source, without the fence.
        number: of the diagram in its page, for ids.

    Raises:
        BadDiagram: the source has another form, or a state without a place.
    """
    form, _, body = source.strip().partition("\n")
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    if form == "stateDiagram-v2":
        picture, words = _states(lines, f"head-{number}")
    elif form == "flowchart TD":
        picture, words = _graph(lines, f"head-{number}")
    else:
        raise BadDiagram(f"the site draws stateDiagram-v2 and flowchart TD, not {form!r}")
    return (
        f'<div class="diagram">{picture}</div>\n'
        f"<details><summary>The diagram in words</summary><ul>{words}</ul></details>\n"
    )


def _svg(width: float, height: float, label: str, head: str, parts: Iterator[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{html.escape(label)}">'
        f"{_HEAD.format(id=head)}{''.join(parts)}</svg>"
    )


def _box(x: float, y: float, width: float, height: float, text: str) -> str:
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}">{html.escape(text)}</text>'
    )


# -- state machines ----------------------------------------------------------------------------------------------------


def _states(lines: Sequence[str], head: str) -> tuple[str, str]:
    edges = [Edge(found[1], found[2], found[3] or "") for line in lines if (found := _STATE_EDGE.fullmatch(line))]
    if len(edges) != len(lines):
        raise BadDiagram(f"{_first_unread(lines, _STATE_EDGE)!r} is no transition")
    states = dict.fromkeys(state for edge in edges for state in (edge.before, edge.after))
    places = next((each for each in _PLACES if states.keys() <= each.keys()), None)
    if places is None:
        raise BadDiagram(
            f"there is no picture with the states {', '.join(states)}: add them to docs/website/diagrams.py"
        )
    pairs = {(edge.before, edge.after) for edge in edges}

    def parts() -> Iterator[str]:
        for edge in edges:
            yield _transition(edge, places, head, doubled=(edge.after, edge.before) in pairs)
        for state in states:
            yield _box(*places[state], *_BOX, state)

    height = max(y for _, y in (places[state] for state in states)) + 62
    label = f"{len(states)} states and {len(edges)} transitions, which are listed below"
    words = "".join(
        f"<li>{edge.before} to {edge.after}{f', by {html.escape(edge.text)}' if edge.text else ''}</li>"
        for edge in edges
    )
    return _svg(_WIDTH, height, label, head, parts()), words


def _transition(edge: Edge, places: Mapping[str, tuple[int, int]], head: str, *, doubled: bool) -> str:
    x, y = places[edge.before]
    if edge.before == edge.after:
        # At the outer side of the picture, where no other arrow begins; the label is beside it.
        outer = x > _WIDTH / 2
        left, bottom = x + (_BOX[0] / 2 - 46 if outer else 12 - _BOX[0] / 2), y + _BOX[1] / 2
        path = f"M{left} {bottom}C{left} {bottom + 28} {left + 34} {bottom + 28} {left + 32} {bottom + 1}"
        return _arrow(path, head) + _label(
            edge.text, left + (-6 if outer else 38), bottom + 20, "end" if outer else "start"
        )
    to_x, to_y = places[edge.after]
    length = math.hypot(to_x - x, to_y - y)
    dx, dy = (to_x - x) / length, (to_y - y) / length
    apart = _APART if doubled else 0
    begin = _to_border(-dy * apart, dx * apart, dx, dy)
    end = length - _to_border(dy * apart, -dx * apart, dx, dy)

    def at(distance: float) -> tuple[float, float]:
        return x + dx * distance - dy * apart, y + dy * distance + dx * apart

    (from_x, from_y), (tip_x, tip_y), (mid_x, mid_y) = at(begin), at(end), at(length / 2)
    # The label of a horizontal arrow is above it, or below if it is the lower one of two.
    horizontal = abs(dy) < 0.2
    text_y = mid_y + (16 if apart and dx > 0 else -6) if horizontal else mid_y
    label = _label(edge.text, mid_x if horizontal else mid_x + 8, text_y, "middle" if horizontal else "start")
    return _arrow(f"M{from_x:.1f} {from_y:.1f}L{tip_x:.1f} {tip_y:.1f}", head) + label


def _to_border(x: float, y: float, dx: float, dy: float) -> float:
    """Returns the distance from a point near the middle of a box to its border, in a direction."""

    def far(half: float, at: float, by: float) -> float:
        return math.inf if abs(by) < 1e-9 else (math.copysign(half, by) - at) / by

    return min(far(_BOX[0] / 2, x, dx), far(_BOX[1] / 2, y, dy)) + 1


def _arrow(path: str, head: str) -> str:
    return f'<path class="edge" d="{path}" marker-end="url(#{head})"/>'


def _label(text: str, x: float, y: float, anchor: str) -> str:
    if not text:
        return ""
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" style="text-anchor: {anchor}">{html.escape(text)}</text>'


# -- graphs ------------------------------------------------------------------------------------------------------------


def _graph(lines: Sequence[str], head: str) -> tuple[str, str]:
    titles = {found[1]: found[2] for line in lines if (found := _NODE.fullmatch(line))}
    edges = [Edge(found[1], found[2]) for line in lines if (found := _EDGE.fullmatch(line))]
    if len(titles) + len(edges) != len(lines):
        raise BadDiagram(f"{_first_unread(lines, _NODE, _EDGE)!r} is no node and no arrow")
    for edge in edges:
        if not titles.keys() >= {edge.before, edge.after}:
            raise BadDiagram(f"an arrow from {edge.before} to {edge.after}, which are not both nodes")
    picture = arranged(titles, [(edge.before, edge.after) for edge in edges])

    def parts() -> Iterator[str]:
        for route in picture.routes:
            yield _arrow(_curve(route), head)
        for node in picture.nodes:
            yield _box(node.x, node.y, node.width, HEIGHT, titles[node.name])

    label = f"{len(titles)} nodes and {len(edges)} arrows, which are listed below"
    words = "".join(
        f"<li>{html.escape(title)} to {html.escape(', '.join(below))}</li>"
        for name, title in titles.items()
        if (below := [titles[edge.after] for edge in edges if edge.before == name])
    )
    return _svg(picture.width, picture.height, label, head, parts()), words


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Returns a path through points, vertical at each of them."""
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(path)


def _first_unread(lines: Sequence[str], *forms: re.Pattern[str]) -> str:
    return next(line for line in lines if not any(form.fullmatch(line) for form in forms))
