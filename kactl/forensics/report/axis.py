"""Time axis in pixels, with marks at round times of the printed time zone."""

import datetime
from collections.abc import Iterator
from typing import Final, NamedTuple

from .model import Time
from .rows import micros_of, moment
from .wording import Moments

_S: Final = 1_000_000
_STEPS_US: Final = (
    *(digit * power for power in (1000, 10_000, 100_000) for digit in (1, 2, 5)),
    *(each * _S for each in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(each * 3600 * _S for each in (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)),
)
_DAY_US: Final = 24 * 3600 * _S
# Minimum distance of marks in pixels, so that texts do not overlap.
_MARK: Final = 96


class Mark(NamedTuple):
    """Position and text of a mark: a time above its day, or a day above its year, which is shown where it changes."""

    x: float
    time: str
    day: str


class Axis:
    """Time axis, from left to right.

    Args:
        begin, end: `end` is at least a millisecond later.
        left, right: pixels.
    """

    def __init__(self, begin: Time, end: Time, *, left: float, right: float) -> None:
        self.begin, self.end = begin, max(end, begin + datetime.timedelta(milliseconds=1))
        self.left, self.right = left, right

    def x(self, time: Time) -> float:
        """Returns pixels; times outside the axis are at its edges."""
        share = (time - self.begin) / (self.end - self.begin)
        return self.left + min(1.0, max(0.0, share)) * (self.right - self.left)

    def overlaps(self, begin: Time | None, end: Time | None) -> bool:
        """True if any part of an interval is on the axis; null is an open end."""
        return (begin is None or begin <= self.end) and (end is None or end >= self.begin)

    def marks(self, moments: Moments) -> Iterator[Mark]:
        begin, end = micros_of(self.begin), micros_of(self.end)
        most = max(2, int((self.right - self.left) // _MARK))
        step = next((each for each in _STEPS_US if (end - begin) / each <= most), _STEPS_US[-1])
        offset = moments.offset(self.begin) // datetime.timedelta(microseconds=1)
        at = -(-(begin + offset) // step) * step - offset
        day = ""
        while at <= end:
            time = moment(at)
            assert time is not None
            number, month, year = moments.day(time).split()
            today = year if step >= _DAY_US else f"{number} {month[:3]} {year}"
            said = f"{number} {month[:3]}" if step >= _DAY_US else _clock(moments.clock(time), step)
            yield Mark(self.x(time), said, today if today != day else "")
            day = today
            at += step


def _clock(time: str, step: int) -> str:
    """Time of day, as precise as the distance of the marks."""
    if step >= 60 * _S:
        return time[:5]
    return time[:8] if step >= _S else time
