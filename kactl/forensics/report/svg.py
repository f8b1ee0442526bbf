"""SVG engine of reports and benchmarks: scales, shapes, and texts of known width.

Shapes have classes. The style sheet of a page colours them; a picture in a file of its own contains a style sheet.
Coordinates are pixels at full width. The tip of a shape is shown on hover, and read by screen readers.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree import ElementTree

# -- scales ------------------------------------------------------------------------------------------------------------

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_STEPS_MS: Final = (
    *(digit * power for power in (1, 10, 100) for digit in (1, 2, 5)),
    *(seconds * 1000 for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(hours * 3_600_000 for hours in (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)),
)
# Minimum distance of the ticks of a time scale in pixels, so that their texts do not overlap.
_TICK: Final = 96


class TimeScale:
    """Linear scale of times, from left to right.

    Args:
        begin, end: the end is at least a millisecond later.
        left, right: pixels.
    """

    def __init__(self, begin: datetime.datetime, end: datetime.datetime, *, left: float, right: float) -> None:
        self.begin, self.end = begin, max(end, begin + datetime.timedelta(milliseconds=1))
        self.left, self.right = left, right

    def x(self, time: datetime.datetime) -> float:
        """Returns pixels; times outside the scale are at its edges."""
        share = (time - self.begin) / (self.end - self.begin)
        return self.left + min(1.0, max(0.0, share)) * (self.right - self.left)

    def overlaps(self, begin: datetime.datetime | None, end: datetime.datetime | None) -> bool:
        """True if any part of an interval is on the scale; None is an open end."""
        return (begin is None or begin <= self.end) and (end is None or end >= self.begin)

    @property
    def step(self) -> datetime.timedelta:
        """Distance of ticks."""
        most = max(2, int((self.right - self.left) // _TICK))
        steps = (datetime.timedelta(milliseconds=ms) for ms in _STEPS_MS)
        return next(
            (step for step in steps if (self.end - self.begin) / step <= most),
            datetime.timedelta(milliseconds=_STEPS_MS[-1]),
        )

    def ticks(self, utc_offset: datetime.timedelta) -> Iterator[datetime.datetime]:
        """Returns the times that are multiples of the step on a clock with this offset from UTC."""
        step = self.step
        time = _EPOCH + -(-(self.begin - _EPOCH + utc_offset) // step) * step - utc_offset
        while time <= self.end:
            yield time
            time += step


# -- texts -------------------------------------------------------------------------------------------------------------

_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Widths of a wide, common font at 12 pixels; in others texts become narrower, never wider.
_WIDTHS: Final = dict.fromkeys("ijlftrI.,:;|'!()[]{}/ -", 4.6) | dict.fromkeys("mwMW@%", 11.9)
_DIGIT, _LOWER, _UPPER, _OTHER = 7.7, 7.6, 9.2, 12.0
_SIZE: Final = 12.0
CUT: Final = "…"
# End of a shortened name: a dash, a number, and a few characters before it.
_TAIL: Final = 8


def clean(text: str) -> str:
    """Returns a text without characters that XML does not allow, such as control characters."""
    return _NO_XML.sub("\ufffd", text)


def width(text: str, size: float = _SIZE) -> float:
    """Returns the maximum width of a text, in pixels."""
    return sum(_letter_width(letter) for letter in text) * size / _SIZE


def fitted(text: str, room: float, size: float = _SIZE) -> str:
    """Returns as much of a text as fits, with a mark where it is truncated."""
    if width(text, size) <= room:
        return text
    shown, used = "", width(CUT, size)
    for letter in text:
        used += width(letter, size)
        if used > room:
            break
        shown += letter
    return shown.rstrip() + CUT if shown else ""


def fitted_name(name: str, room: float, size: float = _SIZE) -> str:
    """Returns a name shortened in the middle: names often differ by a number at their end."""
    if width(name, size) <= room:
        return name
    tail = name[-_TAIL:]
    head = fitted(name, max(0.0, room - width(tail, size)), size)
    return head + tail if head else fitted(name, room, size)


def _letter_width(letter: str) -> float:
    if letter in _WIDTHS:
        return _WIDTHS[letter]
    if letter.isascii():
        return _DIGIT if letter.isdigit() else _UPPER if letter.isupper() else _LOWER
    return _OTHER


# -- shapes ------------------------------------------------------------------------------------------------------------

# Kinds of stripes, and the distance of stripes in pixels.
HATCHES: Final = {"inferred": 6, "bounded": 6, "away": 6}


class Drawing:
    """One picture.

    Args:
        label: alternative text.
        width: pixels.
        name: defines `HATCHES` under this name, which is unique on a page with several pictures.
        style: style sheet, of a picture in a file of its own.
    """

    def __init__(self, label: str, *, width: float, name: str = "", style: str = "") -> None:
        self.width = width
        self._name = name
        self._root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "class": "pic"})
        _add_title(self._root, label)
        if style:
            ElementTree.SubElement(self._root, "style").text = style
        if name:
            self._define_hatches()
        self._behind = len(self._root)

    def finished(self, height: float) -> str:
        """Returns the picture as text."""
        self._root.set("viewBox", f"0 0 {self.width:g} {height:g}")
        self._root.set("width", f"{self.width:g}")
        self._root.set("height", f"{height:g}")
        for shape in self._root:
            shape.tail = "\n"  # one shape per line, for diffs of pictures in files
        return ElementTree.tostring(self._root, encoding="unicode")

    def rect(self, x: float, y: float, w: float, h: float, kind: str, *, tip: str = "", radius: float = 0) -> None:
        rect = self._add("rect", kind, tip, x=x, y=y, width=w, height=h)
        if radius:
            rect.set("rx", f"{radius:g}")

    def hatched(self, x: float, y: float, w: float, h: float, kind: str, *, tip: str = "", edge: bool = True) -> None:
        """A striped rectangle: an uncertain value. `kind` is one of `HATCHES`."""
        rect = self._add("rect", f"{kind}-edge" if edge else "crisp", tip, x=x, y=y, width=w, height=h)
        rect.set("fill", f"url(#{self._name}-{kind})")

    def line(
        self, x1: float, y1: float, x2: float, y2: float, kind: str, *, tip: str = "", behind: bool = False
    ) -> None:
        """A line; with `behind` below all shapes, also those that were drawn before it."""
        line = self._add("line", kind, tip, x1=x1, y1=y1, x2=x2, y2=y2)
        if behind:
            self._root.remove(line)
            self._root.insert(self._behind, line)
            self._behind += 1

    def polyline(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        self._add("polyline", kind, "").set("points", " ".join(f"{x:.1f},{y:.1f}" for x, y in points))

    def polygon(self, points: Sequence[tuple[float, float]], kind: str, *, tip: str = "") -> None:
        self._add("path", kind, tip).set("d", "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points) + "Z")

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        self._add("circle", kind, "", cx=x, cy=y, r=radius)

    def text(
        self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", tip: str = "", turn: float = 0
    ) -> None:
        """A text on one line, turned by `turn` degrees."""
        element = self._add("text", kind, tip, x=x, y=y)
        if anchor != "start":
            element.set("text-anchor", anchor)
        if turn:
            element.set("transform", f"rotate({turn:g} {x:g} {y:g})")
        if tip:
            element[0].tail = clean(text)  # follows its title
        else:
            element.text = clean(text)

    def _add(self, shape: str, kind: str, tip: str, **numbers: float) -> ElementTree.Element:
        element = ElementTree.SubElement(self._root, shape, {name: f"{number:.1f}" for name, number in numbers.items()})
        if kind:
            element.set("class", kind)
        if tip:
            _add_title(element, tip)
        return element

    def _define_hatches(self) -> None:
        definitions = ElementTree.SubElement(self._root, "defs")
        for kind, gap in HATCHES.items():
            pattern = ElementTree.SubElement(
                definitions,
                "pattern",
                {
                    "id": f"{self._name}-{kind}",
                    "patternTransform": "rotate(45)",
                    "width": f"{gap}",
                    "height": f"{gap}",
                    "patternUnits": "userSpaceOnUse",
                },
            )
            for part, wide in (("ground", gap), ("ink", gap / 2)):
                stripe = {"width": f"{wide:g}", "height": f"{gap}", "class": f"{kind}-{part}"}
                ElementTree.SubElement(pattern, "rect", stripe)


def _add_title(element: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(element, "title").text = clean(text)
