"""A timeline: lanes of spans over one time axis. It has no width of its own, so that it is readable on any screen.

The dashboard draws the same picture: kactl/admin/dashboard/timeline.js. A test compares both.
"""

from collections.abc import Sequence
from typing import Final, Literal
from xml.etree import ElementTree

import msgspec

from .svg import clean

_LANE: Final = 36
_AXIS: Final = 22
_LEAST: Final = 0.4
Kind = Literal["none", "good", "warn", "bad", "one", "two"]
# Top and height of a span within its lane: a worse state is thicker, so that colour is not the only signal.
_SHAPES: Final[dict[Kind, tuple[int, int]]] = {
    "none": (25, 2),
    "good": (22, 8),
    "warn": (19, 14),
    "bad": (17, 18),
    "one": (17, 18),
    "two": (17, 18),
}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A state from one time to another, in ms. `text`: inside of it, if it fits; `title`: on hover."""

    begin: float
    end: float
    kind: Kind
    title: str
    text: str = ""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Spans of one thing."""

    name: str
    spans: tuple[Span, ...]


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A time on the axis, in ms."""

    at: float
    text: str


def draw(label: str, begin: float, end: float, ticks: Sequence[Tick], lanes: Sequence[Lane]) -> str:
    """Returns the picture. `label`: the picture in words; `begin` and `end` of the axis are in ms."""
    bottom = len(lanes) * _LANE + 4
    height = bottom + _AXIS
    axis = _Axis(begin, end)
    root = _element("svg", {"class": "timeline", "role": "img", "aria-label": label, "width": "100%"}, height=height)
    for tick in ticks:
        x = axis.percent(tick.at)
        root.append(_element("line", {"class": "grid", "x1": x, "x2": x}, y1=0, y2=bottom))
    for number, lane in enumerate(lanes):
        _draw_lane(root, lane, number * _LANE, axis)
    for number, tick in enumerate(ticks):
        anchor = "start" if number == 0 else "end" if number == len(ticks) - 1 else "middle"
        fields = {"class": "tick", "x": axis.percent(tick.at), "y": str(bottom + 15), "text-anchor": anchor}
        root.append(_text(fields, tick.text))
    return ElementTree.tostring(root, encoding="unicode")


class _Axis:
    """Times as shares of the width."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._end = begin, end

    def x(self, at: float) -> float:
        return (min(self._end, max(self._begin, at)) - self._begin) / max(1, self._end - self._begin) * 100

    def percent(self, at: float) -> str:
        return _percent(self.x(at))


def _draw_lane(root: ElementTree.Element, lane: Lane, y: int, axis: _Axis) -> None:
    root.append(_text({"class": "name", "x": "0", "y": str(y + 12)}, lane.name))
    root.append(_element("line", {"class": "base", "x1": "0", "x2": "100%"}, y1=y + 26, y2=y + 26))
    for span in lane.spans:
        root.append(_span(span, y, axis))


def _span(span: Span, y: int, axis: _Axis) -> ElementTree.Element:
    top, height = _SHAPES[span.kind]
    left = min(axis.x(span.begin), 100 - _LEAST)
    wide = max(_LEAST, axis.x(span.end) - left)
    place = {"class": f"span {span.kind}", "x": _percent(left), "y": str(y + top), "width": _percent(wide)}
    element = _element("svg", place, height=height)
    ElementTree.SubElement(element, "title").text = clean(span.title)
    element.append(_element("rect", {"width": "100%", "height": "100%"}))
    # Texts are shown where they fit on the smallest screen.
    if span.text and height > 14 and wide > len(span.text) * 2 + 2:
        element.append(_text({"x": "4", "y": "13"}, span.text))
    return element


def _element(name: str, fields: dict[str, str], **numbers: int) -> ElementTree.Element:
    return ElementTree.Element(name, fields | {key: str(number) for key, number in numbers.items()})


def _text(fields: dict[str, str], text: str) -> ElementTree.Element:
    element = ElementTree.Element("text", fields)
    element.text = clean(text)
    return element


def _percent(value: float) -> str:
    return f"{round(value, 2):g}%"
