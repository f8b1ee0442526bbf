"""SVG charts: curves on two logarithmic axes, and pairs of dots on one.

Axes are logarithmic, because values span orders of magnitude and equal ratios become equal distances: a cost
proportional to the size is a straight line that rises by one decade per decade. Whiskers extend from the smallest to
the largest run. The palette is suitable for colour-blind readers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from bench.spread import Spread

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#000000")
_INK, _FAINT, _GRID = "#222222", "#666666", "#e4e4e4"
_FONT: Final = "font-family='Helvetica, Arial, sans-serif'"
_LABEL_GAP: Final = 15.0


class Point(msgspec.Struct, frozen=True):
    """Value of a curve at one size."""

    x: float
    y: Spread


class Axis(msgspec.Struct, frozen=True):
    """Logarithmic axis: its range of values and of pixels."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> Iterable[tuple[float, bool]]:
        """Returns 1, 2 and 5 of each decade, each with a flag for the decade itself."""
        for exponent in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1):
            for digit in (1, 2, 5):
                value = digit * 10.0**exponent
                if self.low * 0.999 <= value <= self.high * 1.001:
                    yield value, digit == 1


def axis(values: Iterable[float], *, begin: float, end: float) -> Axis:
    """Returns an axis for all values, of at least one decade."""
    found = [value for value in values if value > 0]
    low, high = min(found) / 1.25, max(found) * 1.25
    if high / low < 10:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    return Axis(low, high, begin, end)


def curves(title: str, series: Mapping[str, Sequence[Point]], *, x: str, y: str) -> str:
    """Returns a chart with one line per series and its name at the end; empty series are left out."""
    series = {name: points for name, points in series.items() if points}
    width, height = 860, 440
    across = axis((point.x for points in series.values() for point in points), begin=72, end=width - 210)
    found = [value for points in series.values() for point in points for value in (point.y.least, point.y.greatest)]
    up = axis(found, begin=height - 56, end=48)
    parts = [_grid(across, up), *_captions(title, x, y, across, up)]
    ends = []
    for (name, points), colour in zip(series.items(), _colours(), strict=False):
        places = [(across.at(point.x), up.at(point.y.median)) for point in points]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        for point, (px, py) in zip(points, places, strict=True):
            low, high = up.at(point.y.least), up.at(point.y.greatest)
            parts.append(f"<line x1='{px:.1f}' y1='{low:.1f}' x2='{px:.1f}' y2='{high:.1f}' stroke='{colour}'/>")
            parts.append(f"<circle cx='{px:.1f}' cy='{py:.1f}' r='3.5' fill='{colour}'/>")
        ends.append((places[-1], name, colour))
    parts += _named(ends, across.end + 12)
    return _svg(width, height, title, parts)


def pairs(title: str, rows: Sequence[tuple[str, Mapping[str, Spread], str]], *, x: str) -> str:
    """Returns a chart with one row per label: a dot with whiskers per series, and a remark to the right."""
    width, row_height, top = 860, 26, 74
    height = top + row_height * len(rows) + 52
    names = list(dict.fromkeys(name for _, spreads, _ in rows for name in spreads))
    colour_of = dict(zip(names, _colours(), strict=False))
    values = [value for _, spreads, _ in rows for each in spreads.values() for value in (each.least, each.greatest)]
    across = axis(values, begin=270, end=width - 170)
    parts = [_text(24, 26, title, size=15, weight="bold")]
    for place, name in enumerate(names):
        parts.append(f"<circle cx='{276 + 110 * place}' cy='48' r='5' fill='{colour_of[name]}'/>")
        parts.append(_text(287 + 110 * place, 52, name))
    parts.append(_text(across.end + 16, 52, " ÷ ".join(names), colour=_FAINT))
    bottom = top + row_height * len(rows)
    for value, is_decade in across.ticks():
        px = across.at(value)
        parts.append(_line(px, top - 8, px, bottom, "#c8c8c8" if is_decade else _GRID))
        parts.append(_text(px, bottom + 18, short(value), size=11, anchor="middle", colour=_FAINT))
    parts.append(_text((across.begin + across.end) / 2, bottom + 40, x, anchor="middle", colour=_FAINT))
    for place, (label, spreads, remark) in enumerate(rows):
        py = top + row_height * (place + 0.5)
        parts.append(_text(256, py + 4, label, anchor="end"))
        medians = [across.at(each.median) for each in spreads.values()]
        parts.append(_line(min(medians), py, max(medians), py, "#bbbbbb", width=3))
        for name, each in spreads.items():
            parts.append(_line(across.at(each.least), py, across.at(each.greatest), py, colour_of[name], width=1.5))
            parts.append(f"<circle cx='{across.at(each.median):.1f}' cy='{py:.1f}' r='5' fill='{colour_of[name]}'/>")
        parts.append(_text(across.end + 16, py + 4, remark))
    return _svg(width, height, title, parts)


def _colours() -> Iterable[str]:
    while True:
        yield from COLOURS


def _grid(across: Axis, up: Axis) -> str:
    parts = []
    for value, is_decade in across.ticks():
        px = across.at(value)
        parts.append(_line(px, up.end, px, up.begin, "#c8c8c8" if is_decade else _GRID))
        parts.append(_text(px, up.begin + 18, short(value), size=11, anchor="middle", colour=_FAINT))
    for value, is_decade in up.ticks():
        py = up.at(value)
        parts.append(_line(across.begin, py, across.end, py, "#c8c8c8" if is_decade else _GRID))
        parts.append(_text(across.begin - 8, py + 4, short(value), size=11, anchor="end", colour=_FAINT))
    return "".join(parts)


def _captions(title: str, x: str, y: str, across: Axis, up: Axis) -> list[str]:
    middle = (up.begin + up.end) / 2
    turned = f"transform='rotate(-90 20 {middle:.0f})'"
    return [
        _text(24, 26, title, size=15, weight="bold"),
        _text((across.begin + across.end) / 2, up.begin + 42, x, anchor="middle", colour=_FAINT),
        _text(20, middle, y, anchor="middle", colour=_FAINT, more=turned),
    ]


def _named(ends: list[tuple[tuple[float, float], str, str]], x: float) -> list[str]:
    """Returns the names of curves at their ends, moved down if they would overlap."""
    parts, lowest = [], -math.inf
    for (_, py), name, colour in sorted(ends, key=lambda end: end[0][1]):
        lowest = max(py, lowest + _LABEL_GAP)
        parts.append(_text(x, lowest + 4, name, colour=colour))
    return parts


def short(value: float) -> str:
    """Returns the text of a tick: `0.5`, `20`, `100 k`, `2 M`."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1) -> str:
    ends = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {ends} stroke='{colour}' stroke-width='{width}'/>"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    anchor: str = "start",
    colour: str = _INK,
    weight: str = "normal",
    more: str = "",
) -> str:
    style = f"{_FONT} font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' fill='{colour}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style} {more}>{escape(text)}</text>"


def _svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>\n"
        f"<title>{escape(title)}</title>\n<rect width='{width}' height='{height}' fill='#ffffff'/>\n{body}\n</svg>\n"
    )
