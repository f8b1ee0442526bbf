"""SVG drawing: shapes with classes that the page's style sheet colours, and texts of known width.

Coordinates are pixels at full width. The tip of a shape is shown on hover, and read by screen readers.
"""

import re
from typing import Final
from xml.etree import ElementTree

_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Widths of a wide, common font at 12 pixels; in others texts become narrower, never wider.
_WIDTHS: Final = dict.fromkeys("ijlftrI.,:;|'!()[]{}/ -", 4.6) | dict.fromkeys("mwMW@%", 11.9)
_DIGIT, _LOWER, _UPPER, _OTHER = 7.7, 7.6, 9.2, 12.0
_SIZE: Final = 12.0
CUT: Final = "…"


def clean(text: str) -> str:
    """Returns a text without characters that XML does not allow, such as control characters."""
    return _NO_XML.sub("\ufffd", text)


def width(text: str, size: float = _SIZE) -> float:
    """Returns the maximum width of a text, in pixels."""
    return sum(_letter(each) for each in text) * size / _SIZE


def fitted(text: str, room: float, size: float = _SIZE) -> str:
    """Returns as much of a text as fits, with a mark where it is truncated."""
    if width(text, size) <= room:
        return text
    kept, used = [], width(CUT, size)
    for each in text:
        used += width(each, size)
        if used > room:
            break
        kept.append(each)
    return "".join(kept).rstrip() + CUT if kept else ""


def fitted_name(name: str, room: float, size: float = _SIZE) -> str:
    """Returns a name shortened in the middle: names often differ by a number at their end."""
    if width(name, size) <= room:
        return name
    tail = name[-_TAIL:]
    head = fitted(name, max(0.0, room - width(tail, size)), size)
    return head + tail if head else fitted(name, room, size)


# End of a shortened name: a dash, a number, and a few characters before it.
_TAIL: Final = 8


def _letter(each: str) -> float:
    if each in _WIDTHS:
        return _WIDTHS[each]
    if each.isascii():
        return _DIGIT if each.isdigit() else _UPPER if each.isupper() else _LOWER
    return _OTHER


class Drawing:
    """One picture.

    Args:
        name: makes internal references unique, if several pictures are on one page.
        label: alternative text.
    """

    def __init__(self, name: str, *, width: float, label: str) -> None:
        self.name = name
        self.width = width
        self._root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "class": "pic"})
        _titled(self._root, label)
        self._hatches()

    def finished(self, height: float) -> str:
        """Returns the picture as text."""
        self._root.set("viewBox", f"0 0 {self.width:g} {height:g}")
        self._root.set("width", f"{self.width:g}")
        self._root.set("height", f"{height:g}")
        return ElementTree.tostring(self._root, encoding="unicode")

    def rect(self, x: float, y: float, w: float, h: float, kind: str, *, tip: str = "", round_: float = 0) -> None:
        made = self._add("rect", kind, tip, x=x, y=y, width=w, height=h)
        if round_:
            made.set("rx", f"{round_:g}")

    def hatched(self, x: float, y: float, w: float, h: float, kind: str, *, tip: str = "", edge: bool = True) -> None:
        """A striped rectangle: an uncertain value. `kind` is one of `HATCHES`."""
        made = self._add("rect", f"{kind}-edge" if edge else "crisp", tip, x=x, y=y, width=w, height=h)
        made.set("fill", f"url(#{self.name}-{kind})")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, *, tip: str = "") -> None:
        self._add("line", kind, tip, x1=x1, y1=y1, x2=x2, y2=y2)

    def path(self, points: list[tuple[float, float]], kind: str, *, hatch: str = "", tip: str = "") -> None:
        """A closed shape."""
        made = self._add("path", kind, tip)
        made.set("d", "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points) + "Z")
        if hatch:
            made.set("fill", f"url(#{self.name}-{hatch})")

    def text(self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", tip: str = "") -> None:
        made = self._add("text", kind, tip, x=x, y=y)
        if anchor != "start":
            made.set("text-anchor", anchor)
        made.text = clean(text) if not tip else None
        if tip:
            made[0].tail = clean(text)  # follows its title

    def _add(self, shape: str, kind: str, tip: str, **at: float) -> ElementTree.Element:
        made = ElementTree.SubElement(self._root, shape, {name: f"{value:.1f}" for name, value in at.items()})
        if kind:
            made.set("class", kind)
        if tip:
            _titled(made, tip)
        return made

    def _hatches(self) -> None:
        defs = ElementTree.SubElement(self._root, "defs")
        for kind, gap in HATCHES.items():
            size = {"width": f"{gap}", "height": f"{gap}", "patternUnits": "userSpaceOnUse"}
            turned = {"id": f"{self.name}-{kind}", "patternTransform": "rotate(45)", **size}
            pattern = ElementTree.SubElement(defs, "pattern", turned)
            ElementTree.SubElement(pattern, "rect", {"width": f"{gap}", "height": f"{gap}", "class": f"{kind}-ground"})
            ElementTree.SubElement(
                pattern, "rect", {"width": f"{gap / 2:g}", "height": f"{gap}", "class": f"{kind}-ink"}
            )


# Kinds of stripes, and the distance of stripes in pixels.
HATCHES: Final = {"inferred": 6, "bounded": 6, "away": 6}


def _titled(of: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(of, "title").text = clean(text)
