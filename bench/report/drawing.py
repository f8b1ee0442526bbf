"""Charts of benchmarks: curves on two logarithmic scales, and pairs of dots on one.

Scales are logarithmic, because values span orders of magnitude: a cost proportional to the size is a straight line that
rises by one decade per decade. Whiskers extend from the smallest to the largest run. The palette is suitable for
colour-blind readers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from bench.spread import Spread
from kactl.forensics.report.svg import Drawing

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#000000")
_STYLE: Final = """
text { font: 12px Helvetica, Arial, sans-serif; fill: #222222; }
.ground { fill: #ffffff; }
.title { font-size: 15px; font-weight: bold; }
.caption { fill: #666666; }
.tick { font-size: 11px; fill: #666666; }
.grid { stroke: #e4e4e4; }
.decade { stroke: #c8c8c8; }
.between { stroke: #bbbbbb; stroke-width: 3; }
polyline { fill: none; stroke-width: 2; }
""" + "\n".join(
    f".series{number} {{ stroke: {colour}; }}\n"
    f"circle.series{number}, text.series{number} {{ fill: {colour}; stroke: none; }}"
    for number, colour in enumerate(_COLOURS)
)
_WIDTH: Final = 860
_LABEL_GAP: Final = 15.0


class LogScale(msgspec.Struct, frozen=True):
    """Logarithmic scale: its range of values and of pixels. Equal ratios are equal distances."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = math.log10(value / self.low) / math.log10(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> Iterator[tuple[float, bool]]:
        """Returns 1, 2 and 5 of each decade, each with a flag for the decade itself."""
        for exponent in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1):
            for digit in (1, 2, 5):
                value = digit * 10.0**exponent
                if self.low * 0.999 <= value <= self.high * 1.001:
                    yield value, digit == 1


def log_scale(values: Iterable[float], *, begin: float, end: float) -> LogScale:
    """Returns a scale for all positive values, of at least one decade."""
    positive = [value for value in values if value > 0]
    low, high = min(positive) / 1.25, max(positive) * 1.25
    if high / low < 10:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    return LogScale(low, high, begin, end)


class Point(msgspec.Struct, frozen=True):
    """Value of a curve at one size."""

    x: float
    y: Spread


def curves(title: str, series: Mapping[str, Sequence[Point]], *, x: str, y: str) -> str:
    """Returns a chart with one line per series and its name at the end; empty series are left out."""
    series = {name: points for name, points in series.items() if points}
    height = 440
    spreads = [point.y for points in series.values() for point in points]
    across = log_scale((point.x for points in series.values() for point in points), begin=72, end=_WIDTH - 210)
    up = log_scale(_bounds(spreads), begin=height - 56, end=48)
    pic = _chart(title, height)
    _ticks_across(pic, across, top=up.end, bottom=up.begin, caption=x)
    for value, is_decade in up.ticks():
        pic.line(across.begin, up.at(value), across.end, up.at(value), "decade" if is_decade else "grid")
        pic.text(across.begin - 8, up.at(value) + 4, short(value), "tick", anchor="end")
    pic.text(20, (up.begin + up.end) / 2, y, "caption", anchor="middle", turn=-90)
    ends = []
    for number, (name, points) in enumerate(series.items()):
        kind = _kind(number)
        places = [(across.at(point.x), up.at(point.y.median)) for point in points]
        pic.polyline(places, kind)
        for point, (px, py) in zip(points, places, strict=True):
            pic.line(px, up.at(point.y.least), px, up.at(point.y.greatest), kind)
            pic.circle(px, py, 3.5, kind)
        ends.append((places[-1][1], name, kind))
    lowest = -math.inf
    for py, name, kind in sorted(ends):  # names that would overlap are moved down
        lowest = max(py, lowest + _LABEL_GAP)
        pic.text(across.end + 12, lowest + 4, name, kind)
    return pic.finished(height) + "\n"


def pairs(title: str, rows: Sequence[tuple[str, Mapping[str, Spread], str]], *, x: str) -> str:
    """Returns a chart with one row per label: a dot with whiskers per series, and a remark to the right."""
    row_height, top = 26, 74
    bottom = top + row_height * len(rows)
    names = list(dict.fromkeys(name for _, spreads, _ in rows for name in spreads))
    kinds = {name: _kind(number) for number, name in enumerate(names)}
    across = log_scale(
        _bounds([spread for _, spreads, _ in rows for spread in spreads.values()]), begin=270, end=_WIDTH - 170
    )
    pic = _chart(title, bottom + 52)
    for number, name in enumerate(names):
        pic.circle(276 + 110 * number, 48, 5, kinds[name])
        pic.text(287 + 110 * number, 52, name)
    pic.text(across.end + 16, 52, " ÷ ".join(names), "caption")
    _ticks_across(pic, across, top=top - 8, bottom=bottom, caption=x)
    for number, (label, spreads, remark) in enumerate(rows):
        py = top + row_height * (number + 0.5)
        pic.text(256, py + 4, label, anchor="end")
        medians = [across.at(spread.median) for spread in spreads.values()]
        pic.line(min(medians), py, max(medians), py, "between")
        for name, spread in spreads.items():
            pic.line(across.at(spread.least), py, across.at(spread.greatest), py, kinds[name])
            pic.circle(across.at(spread.median), py, 5, kinds[name])
        pic.text(across.end + 16, py + 4, remark)
    return pic.finished(bottom + 52) + "\n"


def short(value: float) -> str:
    """Returns the text of a tick: `0.5`, `20`, `100 k`, `2 M`."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _chart(title: str, height: float) -> Drawing:
    pic = Drawing(title, width=_WIDTH, style=_STYLE)
    pic.rect(0, 0, _WIDTH, height, "ground")
    pic.text(24, 26, title, "title")
    return pic


def _ticks_across(pic: Drawing, scale: LogScale, *, top: float, bottom: float, caption: str) -> None:
    for value, is_decade in scale.ticks():
        x = scale.at(value)
        pic.line(x, top, x, bottom, "decade" if is_decade else "grid")
        pic.text(x, bottom + 18, short(value), "tick", anchor="middle")
    pic.text((scale.begin + scale.end) / 2, bottom + 41, caption, "caption", anchor="middle")


def _bounds(spreads: Sequence[Spread]) -> list[float]:
    return [value for spread in spreads for value in (spread.least, spread.greatest)]


def _kind(number: int) -> str:
    """Returns the class of a series; colours repeat if there are more series than colours."""
    return f"series{number % len(_COLOURS)}"
