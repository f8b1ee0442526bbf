"""Conversion of logged times, which have no zone, to UTC.

When clocks are set back, one hour occurs twice. Lines count as the first occurrence until the times in the file go back
by more than `BACK_US`; from there on they count as the second.
"""

import datetime
import itertools
import zoneinfo
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.model.errors import BadRequest

from .pattern import ZONES

Micros = npt.NDArray[np.int64]

# 2024-05-01 10:00:00,123
TIME_LENGTH: Final = 23
# Years of the Buddhist calendar, which Java uses on Thai machines, are ahead by 543. Its days and months are the same.
BUDDHIST: Final = 543
_BUDDHIST_YEARS: Final = range(2543, 2644)
BACK_US: Final = 30 * 60 * 1_000_000
# Upper limit of valid times, the year 2200, because noise may look like a time. A clock that was never set shows 1970.
END_US: Final = 7_258_118_400_000_000
# Offsets from UTC change only at full quarters of an hour.
_STEP_US: Final = 15 * 60 * 1_000_000
_EPOCH: Final = datetime.datetime(1970, 1, 1)


class UnknownZone(BadRequest):
    """The time zone does not exist."""


def zone_of(name: str) -> datetime.tzinfo:
    """Returns the zone for a name such as `Europe/Berlin` or `UTC`, or for an offset such as `+02:00`.

    Raises:
        UnknownZone: the zone does not exist.
    """
    if name in ("UTC", "Z"):
        return datetime.UTC
    try:
        if name[:1] in "+-" and name:
            offset = datetime.datetime.strptime(name, "%z").utcoffset()
            assert offset is not None
            return datetime.timezone(offset)
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise UnknownZone(
            "--tz", f"there is no time zone {name!r}: write one as Europe/Berlin, UTC or +02:00"
        ) from None


def years_ahead(times: Sequence[bytes]) -> int:
    """Returns the number to subtract from the years of times: BUDDHIST if all are of that calendar, or 0."""
    years = {int(time[:4]) for time in times if time[2:3] != b"/"}
    return BUDDHIST if years and all(year in _BUDDHIST_YEARS for year in years) else 0


def logged(times: Sequence[bytes], ahead: int = 0) -> tuple[Micros, npt.NDArray[np.bool_]]:
    """Converts n texts such as 2024-05-01 10:00:00,123, with two or four digits of the year and 0 to 9 of the second,
    and with digits at the positions of a time's digits.

    Args:
        ahead: the years by which the writer's calendar is ahead.

    Returns:
        int64[n] microseconds since 1970 on the writer's clock, and bool[n] whether the text is a valid time: a day of
        the calendar before `END_US`. An invalid time is replaced by the one before it, which preserves the order.
    """
    text = b"".join([time if len(time) == TIME_LENGTH else _normal(time) for time in times])
    digits = np.frombuffer(text, np.uint8).reshape(len(times), TIME_LENGTH).astype(np.int64) - ord("0")

    def number(begin: int, end: int) -> Micros:
        value = np.zeros(len(digits), np.int64)
        for column in range(begin, end):
            value = value * 10 + digits[:, column]
        return value

    month = number(5, 7)
    months = ((number(0, 4) - ahead - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64) + number(8, 10) - 1
    hour, minute, second = number(11, 13), number(14, 16), number(17, 19)
    same_month = days.astype("datetime64[D]").astype("datetime64[M]") == months
    is_day = (month > 0) & (month <= 12) & (number(8, 10) > 0) & same_month
    is_time = is_day & (hour < 24) & (minute < 60) & (second <= 60)  # the last minute of a year may have 61
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    micros = seconds * 1_000_000 + number(20, 23) * 1000
    is_time &= (micros >= 0) & (micros < END_US)
    latest = np.maximum.accumulate(np.where(is_time, np.arange(len(micros)), 0))
    return np.where(is_time, micros, 0)[latest], is_time


def _normal(time: bytes) -> bytes:
    """Returns a time with TIME_LENGTH characters: a year of four digits, and milliseconds."""
    if time[2:3] == b"/":
        time = b"20" + time
    return time[: TIME_LENGTH - 4] + b"," + time[TIME_LENGTH - 3 : TIME_LENGTH].ljust(3, b"0")


class Fold:
    """Conversion of the times of one file to UTC, chunk by chunk. It remembers whether clocks have been set back."""

    def __init__(self, zone: datetime.tzinfo) -> None:
        self._zone = zone
        self._latest = np.int64(-(1 << 62))
        self._went_back = False

    def to_utc(self, local: Micros, zones: "Sequence[bytes | None] | None" = None) -> Micros:
        """Returns the same instants in UTC.

        Args:
            local: in the order of the file, after those of earlier calls.
            zones: the zone in each line, which goes before that of the file.
        """
        if not len(local):
            return local
        utc = local if self._zone is datetime.UTC else self._to_utc(local)
        if zones is None or not any(zones):
            return utc
        offsets = {text: offset_us(text) for text in set(zones) if text}
        own = np.array([bool(text) for text in zones], np.bool_)
        by_line = np.array([offsets[text] if text else 0 for text in zones], np.int64)
        return np.where(own, local - by_line, utc)

    def _to_utc(self, local: Micros) -> Micros:
        steps, which = np.unique(local // _STEP_US, return_inverse=True)
        first = np.array([_offset_us(step, self._zone, fold=0) for step in steps.tolist()], np.int64)
        second = np.array([_offset_us(step, self._zone, fold=1) for step in steps.tolist()], np.int64)
        offset = first[which]
        latest = np.maximum(np.maximum.accumulate(local), self._latest)
        self._latest = latest[-1]
        twice = first[which] > second[which]
        if twice.any():
            went_back = np.maximum.accumulate((latest - local > BACK_US) & twice) | self._went_back
            offset = np.where(twice & went_back, second[which], offset)
            self._went_back = bool(went_back[-1])
        else:
            self._went_back = False
        return local - offset


def offset_us(text: bytes) -> int:
    """Returns the offset of a zone in a line: `+0200`, `+02:00`, or a name in `pattern.ZONES`."""
    name = text.decode()
    minutes = ZONES.get(name)
    if minutes is None:
        minutes = (int(name[1:3]) * 60 + int(name[-2:])) * (-1 if name[0] == "-" else 1)
    return minutes * 60_000_000


def is_ambiguous(begin_us: int, end_us: int, zone: datetime.tzinfo) -> bool:
    """Returns whether clocks were set back between two instants in UTC, within at most a year after the first."""
    hour = 3_600_000_000
    offsets = [
        datetime.datetime.fromtimestamp(time_us / 1_000_000, zone).utcoffset() or datetime.timedelta()
        for time_us in range(begin_us, min(end_us, begin_us + 366 * 24 * hour) + hour, hour)
    ]
    return any(after < before for before, after in itertools.pairwise(offsets))


def _offset_us(step: int, zone: datetime.tzinfo, *, fold: int) -> int:
    try:
        time = (_EPOCH + datetime.timedelta(microseconds=step * _STEP_US)).replace(tzinfo=zone, fold=fold)
    except OverflowError:
        return 0  # the year is out of range; the line is kept with its logged time
    offset = time.utcoffset() or datetime.timedelta()
    return offset // datetime.timedelta(microseconds=1)
