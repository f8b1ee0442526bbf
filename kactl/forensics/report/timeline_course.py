"""Course of an incident in its picture: outages in progress, elections and losses by slot."""

import datetime
import itertools
from collections.abc import Sequence
from typing import Final

from .model import Series
from .timeline_frame import LANE, LEAST, LEFT, RIGHT, Frame
from .wording import count

_AREA: Final = 84.0


def high(series: Series) -> float:
    """Returns the height of the course."""
    lanes = sum(any(each) for each in (series.elections, series.unclean, series.losses))
    return (_AREA + 18) * bool(series.peak) + LANE * lanes


def course(frame: Frame, series: Series) -> None:
    """Draw the course."""
    if series.peak:
        _area(frame, series)
    _bars(frame, "elections", series, series.elections, "election", "took a leader")
    _marks(frame, "unclean elections", series, series.unclean, "unclean", "unclean election")
    _marks(frame, "records lost", series, series.losses, "lost", "partition that lost records")


def _area(frame: Frame, series: Series) -> None:
    """Outages in progress: observed ones below, inferred ones above them."""
    top, bottom = frame.y + 6, frame.y + 6 + _AREA
    peak = series.peak

    def level(number: int) -> float:
        return bottom - number / peak * _AREA

    ends = [_begin(series, at) for at in range(len(series.observed) + 1)]
    # Equal neighbours are one shape: otherwise there would be a seam between them.
    alike = itertools.groupby(enumerate(zip(series.observed, series.guessed, strict=True)), key=lambda each: each[1])
    for (seen, guessed), run in alike:
        at = [place for place, _ in run]
        if not seen + guessed:
            continue
        begin, end = ends[at[0]], ends[at[-1] + 1]
        tip = f"{frame.moments.full(begin)} to {frame.moments.clock(end)}: {count(seen + guessed, 'outage')}"
        if guessed:
            tip += f", {guessed:,} of them inferred or bounded"
        x = round(frame.axis.x(begin), 1)
        wide = max(round(frame.axis.x(end), 1) - x, 0.5)
        if seen:
            frame.pic.rect(x, level(seen), wide, bottom - level(seen), "seen crisp", tip=tip)
        if guessed:
            y = level(seen + guessed)
            frame.pic.hatched(x, y, wide, level(seen) - y, "inferred", tip=tip, edge=False)
    frame.pic.line(LEFT, bottom, RIGHT, bottom, "base")
    frame.name(top + 10, f"{peak:,}", kind="faint")
    frame.name((top + bottom) / 2 + 4, "outages at a time", kind="strong")
    frame.name(bottom, "0", kind="faint")
    frame.y = bottom + 12


def _bars(frame: Frame, name: str, series: Series, counts: Sequence[int], kind: str, what: str) -> None:
    """A bar for each slot, as high as its share of the maximum."""
    if not any(counts):
        return
    bottom, most = frame.y + LANE - 5, max(counts)
    for at, number in enumerate(counts):
        if number:
            begin = _begin(series, at)
            tall = max(3.0, number / most * (LANE - 7))
            x = frame.axis.x(begin)
            tip = f"{frame.moments.full(begin)}: {count(number, 'partition')} {what}"
            wide = max(LEAST, frame.axis.x(_begin(series, at + 1)) - x - 0.5)
            frame.pic.rect(x, bottom - tall, wide, tall, kind, tip=tip)
    frame.name(bottom - 3, f"{name} ({sum(counts):,})")
    frame.y += LANE


def _marks(frame: Frame, name: str, series: Series, counts: Sequence[int], kind: str, what: str) -> None:
    """A diamond in each slot with a value."""
    if not any(counts):
        return
    middle = frame.y + LANE / 2 - 3
    for at, number in enumerate(counts):
        if number:
            tip = f"{frame.moments.full(_begin(series, at))}: {count(number, what)}"
            frame.diamond(frame.axis.x(_begin(series, at + 0.5)), middle, kind, tip)
    frame.name(middle + 4, f"{name} ({sum(counts):,})")
    frame.y += LANE


def _begin(series: Series, slot: float) -> datetime.datetime:
    return series.begin + datetime.timedelta(milliseconds=series.slot_ms * slot)
