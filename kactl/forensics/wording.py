"""Numbers, times and lists as text."""

import datetime
from collections.abc import Sequence
from typing import Final

from kactl.runtime.plural import count as count

from .text.zone import zone_of

Time = datetime.datetime

NONE: Final = "–"
# The metadata log and kactl's own log have a clock of their own, as in job `skew`.
NAMELESS: Final = "logs that name no broker"
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def was(number: int) -> str:
    """The verb of a count: 'was' or 'were'."""
    return "was" if number == 1 else "were"


def count_was(number: int, noun: str) -> str:
    """Text such as '1 election was', '1,204 elections were'."""
    return f"{count(number, noun)} {was(number)}"


def duration(ms: float | None) -> str:
    """Text such as '340 ms', '4.2 s', '7 min 40 s', '3 h 12 min', '2 d 4 h'."""
    if ms is None:
        return NONE
    if ms < 0.95:
        return "0 ms" if ms == 0 else "under 1 ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    for large, small, size, part in (
        ("min", "s", 60_000, 1000),
        ("h", "min", 3_600_000, 60_000),
        ("d", "h", 86_400_000, 3_600_000),
    ):
        if round(ms / part) * part < size * (24 if large == "h" else 60) or large == "d":
            whole, rest = divmod(round(ms / part), size // part)
            return f"{whole:,} {large} {rest} {small}" if rest else f"{whole:,} {large}"
    raise AssertionError("days have no upper end")


def amount(number: float) -> str:
    """Text such as '2,160', '12.5'; a nonzero value is never shown as 0."""
    if 0 < number < 0.05:
        return "under 0.1"
    return f"{number:,.0f}" if number >= 99.95 or number == 0 else f"{number:.1f}"


def percent(objective: float) -> str:
    """Text such as '99.95 %' for 0.9995, with the given precision."""
    return f"{100 * objective:.6g} %"


def share(part: float, whole: float) -> str:
    """Text such as '37 %', '1,200 %'; a share strictly between is never shown as 0 or 100, nor is a larger one shown as
    100.
    """
    if whole <= 0:
        return NONE
    hundredths = round(100 * part / whole, 9)  # 100 % must not become less by a floating-point error
    if 0 < hundredths < 1:
        return "under 1 %"
    if 99 < hundredths < 100:
        return "over 99 %"
    if 100 < hundredths < 101:
        return "over 100 %"
    return f"{hundredths:,.0f} %"


def listed(names: Sequence[object], *, most: int = 5) -> str:
    """Text such as '1, 2 and 3', or 'a, b, c and 7 more'."""
    shown = [str(name) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most:,} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def brokers(ids: Sequence[int], *, most: int = 8) -> str:
    """Text such as 'broker 3', 'brokers 1, 2 and 3'."""
    return f"broker{'' if len(ids) == 1 else 's'} {listed(ids, most=most)}"


def writers(ids: Sequence[int | None]) -> str:
    """Owners of clocks: 'brokers 1 and 2', 'broker 1 and logs that name no broker'."""
    named = [broker for broker in ids if broker is not None]
    nameless = [NAMELESS] if None in ids else []
    return " and ".join([*([brokers(named)] if named else []), *nameless])


def known_name(topic: str, partition: int | None, life: int) -> str:
    """Text such as 'orders-7', or 'orders-7 (life 2)' for the second topic of that name."""
    number = "" if partition is None else f"-{partition}"
    return f"{topic}{number}" + (f" (life {life + 1})" if life else "")


def known_id(number: int | None) -> str:
    """An id as text, without separators; -1 is none."""
    return NONE if number is None else "none" if number == -1 else f"{number}"


def sentence(text: str) -> str:
    """Returns a text with a capital at its beginning and a full stop at its end."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "?")) else ".")


class Moments:
    """Times as text, in one zone."""

    def __init__(self, zone: str) -> None:
        self.name = zone
        self.zone = zone_of(zone)

    def local(self, time: Time) -> Time:
        return time.astimezone(self.zone)

    def full(self, time: Time | None) -> str:
        """'2024-05-01 12:00:00.123'."""
        if time is None:
            return NONE
        local = self.local(time)
        return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03}"

    def seconds(self, time: Time | None) -> str:
        """'2024-05-01 12:00:00'."""
        return NONE if time is None else f"{self.local(time):%Y-%m-%d %H:%M:%S}"

    def clock(self, time: Time | None) -> str:
        """'12:00:00.123'."""
        return NONE if time is None else self.full(time)[11:]

    def day(self, time: Time) -> str:
        """'1 May 2024'."""
        local = self.local(time)
        return f"{local.day} {_MONTHS[local.month - 1]} {local.year}"

    def stretch(self, begin: Time, end: Time) -> str:
        """'from 03:12:04 to 03:19:44 on 1 May 2024', or with both days."""
        first, last = self.local(begin), self.local(end)
        if first.date() == last.date():
            return f"from {first:%H:%M:%S} to {last:%H:%M:%S} on {self.day(begin)}"
        return f"from {first:%H:%M:%S} on {self.day(begin)} to {last:%H:%M:%S} on {self.day(end)}"

    def offset(self, time: Time) -> datetime.timedelta:
        return self.local(time).utcoffset() or datetime.timedelta()
