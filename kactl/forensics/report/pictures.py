"""Pictures of an incident: its timeline, and the parts of its outages.

The timeline shows unavailability over time, controllers, absent brokers, and the most affected partitions. Solid shapes
are stated by lines. Striped shapes are inferred from other lines, or only bounded by the lines around them; a thin line
extends to the bounds.
"""

import datetime
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from kactl.forensics.wording import Moments, Time, count, duration, share

from .findings import Absence, Controllership
from .model import Band, Bar, Incident, Partition, Series
from .svg import HATCHES, Drawing, TimeScale, fitted, fitted_name, width

WIDTH: Final = 1000.0
LEFT: Final = 200.0
RIGHT: Final = 984.0
BROKERS_SHOWN: Final = 24
NO_CONTROLLER: Final = "none"
# Parts of an outage in their order, and their descriptions.
PARTS: Final = {
    "detection": "until the controller detected it",
    "queue": "until it began to handle it",
    "waiting": "until a replica could be elected",
    "election": "until a leader was elected and stored",
    "send": "until the new leader received it",
    "apply": "until it had become leader",
    "unknown": "not known from these logs",
}
_LANE: Final = 22.0
_BAR: Final = 13.0
_AREA: Final = 84.0
_LEAST: Final = 2.0  # minimum pixels of a bar, so that the shortest outage is visible
_NAMES: Final = LEFT - 16  # room for the names of rows, left of the scale
_DAY: Final = datetime.timedelta(days=1)
_LEGEND: Final = {
    "seen": "observed",
    "inferred": "inferred from other lines",
    "bounded": "only bounded",
    "away": "broker gone",
    "stopped": "broker shut down in order",
}


def timeline(
    incident: Incident, *, absences: Sequence[Absence], controllers: Sequence[Controllership], moments: Moments
) -> str:
    """Returns the timeline of an incident that is shown in full."""
    return _Timeline(incident, moments).drawn(absences, controllers)


def term(controllership: Controllership) -> tuple[Time | None, Time | None]:
    """Returns the known term of a controller."""
    return controllership.elected_at, controllership.resigned_at or controllership.last_act_at


def away(absence: Absence) -> tuple[Time | None, Time | None]:
    """Returns the known time of an absence."""
    begin = absence.silent_at or absence.last_sign_at or absence.shutdown_at or absence.detected_at
    return begin, absence.first_sign_at or absence.back_at


def describe(bar: Bar, moments: Moments) -> str:
    """Returns the description of one outage."""
    end = "still going on where the logs end" if bar.end is None else f"to {moments.clock(bar.end)} ({bar.end_kind})"
    lost = "" if bar.broker is None else f"; broker {bar.broker} was lost"
    then = "" if bar.new_leader is None else f", {bar.new_leader} leads"
    unclean = ", not in sync" if bar.unclean else ""
    length = duration(bar.duration_ms)
    return f"{moments.full(bar.begin)} ({bar.begin_kind}) {end}, {length}; {bar.cause}{lost}{then}{unclean}"


class _Timeline:
    """A timeline, drawn from top to bottom. Each method draws some rows and advances `_y`, the top of the next row."""

    def __init__(self, incident: Incident, moments: Moments) -> None:
        margin = max((incident.end - incident.begin) * 0.04, datetime.timedelta(milliseconds=20))
        interval = moments.stretch(incident.begin, incident.end)
        self._incident = incident
        self._moments = moments
        self._scale = TimeScale(incident.begin - margin, incident.end + margin, left=LEFT, right=RIGHT)
        label = f"Incident {incident.number}: what was unavailable when, {interval}"
        self._pic = Drawing(label, width=WIDTH, name=f"t{incident.number}")
        self._y = 40.0

    def drawn(self, absences: Sequence[Absence], controllers: Sequence[Controllership]) -> str:
        if self._incident.series is not None:
            self._course(self._incident.series)
        self._controllers([one for one in controllers if self._scale.overlaps(*term(one))])
        self._brokers([absence for absence in absences if self._scale.overlaps(*away(absence))])
        self._partitions(self._incident.partitions)
        self._ticks()
        return self._pic.finished(_legend(self._pic, self._y + 8, _LEGEND))

    def _ticks(self) -> None:
        """Draw vertical lines behind all rows, with times above. The day is shown where it changes."""
        step, shown = self._scale.step, ""
        for number, time in enumerate(self._scale.ticks(self._moments.offset(self._scale.begin))):
            x = self._scale.x(time)
            text, day = _tick_text(time, step, self._moments)
            self._pic.line(x, 34, x, self._y, "grid", behind=True)
            if number == 0:
                self._pic.text(LEFT - 10, 13, day, "faint", anchor="end")
            elif day != shown and _fits(x, day):
                self._pic.text(x, 13, day, "faint", anchor="middle")
            if _fits(x, text):
                self._pic.text(x, 28, text, "faint", anchor="middle")
            shown = day
        self._pic.text(LEFT - 10, 28, fitted(self._moments.name, _NAMES, 11), "faint", anchor="end")

    def _name(self, y: float, text: str, kind: str = "") -> None:
        """Draw the name of a row, left of it."""
        shown = fitted_name(text, _NAMES)
        self._pic.text(LEFT - 10, y, shown, kind, anchor="end", tip=text if shown != text else "")

    def _lane(self, y: float) -> None:
        """Draw the thin line below bars."""
        self._pic.line(LEFT, y, RIGHT, y, "lane")

    def _diamond(self, x: float, y: float, kind: str, tip: str) -> None:
        """Draw a mark of one point in time."""
        self._pic.polygon([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], kind, tip=tip)

    # -- course of the incident ----------------------------------------------------------------------------------------

    def _course(self, series: Series) -> None:
        """Draw outages in progress, elections, and losses by slot."""
        begins = [
            series.begin + datetime.timedelta(milliseconds=series.slot_ms * slot)
            for slot in range(len(series.observed) + 1)
        ]
        if series.peak:
            self._area(series, begins)
        self._counts("elections", series.elections, begins)
        self._marks("unclean elections", series.unclean, begins, "unclean", "unclean election")
        self._marks("records lost", series.losses, begins, "lost", "partition that lost records")

    def _area(self, series: Series, begins: Sequence[Time]) -> None:
        """Outages in progress: observed ones below, inferred ones above them."""
        top, bottom = self._y + 6, self._y + 6 + _AREA

        def level(number: int) -> float:
            return bottom - number / series.peak * _AREA

        # Equal neighbours are one shape: otherwise there would be a seam between them.
        slots = enumerate(zip(series.observed, series.guessed, strict=True))
        for (observed, guessed), run in itertools.groupby(slots, key=lambda slot: slot[1]):
            indexes = [index for index, _ in run]
            if not observed + guessed:
                continue
            begin, end = begins[indexes[0]], begins[indexes[-1] + 1]
            tip = f"{self._moments.full(begin)} to {self._moments.clock(end)}: {count(observed + guessed, 'outage')}"
            if guessed:
                tip += f", {guessed:,} of them inferred or bounded"
            x = round(self._scale.x(begin), 1)
            wide = max(round(self._scale.x(end), 1) - x, 0.5)
            if observed:
                self._pic.rect(x, level(observed), wide, bottom - level(observed), "seen crisp", tip=tip)
            if guessed:
                y = level(observed + guessed)
                self._pic.hatched(x, y, wide, level(observed) - y, "inferred", tip=tip, edge=False)
        self._pic.line(LEFT, bottom, RIGHT, bottom, "base")
        self._name(top + 10, f"{series.peak:,}", "faint")
        self._name((top + bottom) / 2 + 4, "outages at a time", "strong")
        self._name(bottom, "0", "faint")
        self._y = bottom + 12

    def _counts(self, name: str, counts: Sequence[int], begins: Sequence[Time]) -> None:
        """A bar for each slot, as high as its share of the maximum."""
        if not any(counts):
            return
        bottom, most = self._y + _LANE - 5, max(counts)
        for number, begin, end in zip(counts, begins, begins[1:], strict=False):
            if number:
                tall = max(3.0, number / most * (_LANE - 7))
                x = self._scale.x(begin)
                wide = max(_LEAST, self._scale.x(end) - x - 0.5)
                tip = f"{self._moments.full(begin)}: {count(number, 'partition')} got a leader"
                self._pic.rect(x, bottom - tall, wide, tall, "election", tip=tip)
        self._name(bottom - 3, f"{name} ({sum(counts):,})")
        self._y += _LANE

    def _marks(self, name: str, counts: Sequence[int], begins: Sequence[Time], kind: str, noun: str) -> None:
        """A diamond in each slot with a value."""
        if not any(counts):
            return
        middle = self._y + _LANE / 2 - 3
        for number, begin, end in zip(counts, begins, begins[1:], strict=False):
            if number:
                x = self._scale.x(begin + (end - begin) / 2)
                self._diamond(x, middle, kind, f"{self._moments.full(begin)}: {count(number, noun)}")
        self._name(middle + 4, f"{name} ({sum(counts):,})")
        self._y += _LANE

    # -- controllers and brokers ---------------------------------------------------------------------------------------

    def _controllers(self, controllers: Sequence[Controllership]) -> None:
        """Draw one lane with all terms in alternating colours."""
        if not controllers:
            return
        y, x = self._y, self._scale.x
        self._name(y + 13, "controller", "strong")
        for number, controllership in enumerate(controllers):
            begin, end = term(controllership)
            left, right = x(begin or self._scale.begin), x(end or self._scale.end)
            epoch = "" if controllership.controller_epoch is None else f", epoch {controllership.controller_epoch}"
            controller = NO_CONTROLLER if controllership.controller is None else f"{controllership.controller}"
            tip = f"controller {controller}{epoch}: {self._moments.full(begin)} to {self._moments.full(end)}"
            if controllership.failover_ms is not None:
                tip += f", took over in {duration(controllership.failover_ms)}"
            self._pic.rect(left, y, max(_LEAST, right - left), 17, f"control{number % 2}", tip=tip, radius=2)
            # Another term may begin before this one has ended.
            later = [x(other.elected_at) for other in controllers[number + 1 :] if other.elected_at is not None]
            text = _longest_fitting((f"{controller}{epoch}", controller), min([right, *later]) - left - 8)
            if text:
                self._pic.text(left + 4, y + 13, text, "on-control")
        self._y += _LANE + 6

    def _brokers(self, absences: Sequence[Absence]) -> None:
        """Draw a lane for each absent broker: striped until the absence was detected, solid afterwards."""
        if not absences:
            return
        brokers = sorted({absence.broker for absence in absences})
        for broker in brokers[:BROKERS_SHOWN]:
            self._name(self._y + 12, f"broker {broker} away")
            self._lane(self._y + 8)
            for absence in absences:
                if absence.broker == broker:
                    self._absence(absence)
            self._y += _LANE
        if len(brokers) > BROKERS_SHOWN:
            self._name(self._y + 8, f"and {len(brokers) - BROKERS_SHOWN:,} more", "faint")
            self._y += 16
        self._y += 6

    def _absence(self, absence: Absence) -> None:
        y, x, moments = self._y + 1, self._scale.x, self._moments
        begin, end = away(absence)
        tip = (
            f"broker {absence.broker}, {absence.how or 'away'}: last sign {moments.full(absence.last_sign_at)}, "
            f"detected {moments.full(absence.detected_at)}, back {moments.full(absence.back_at)}"
        )
        left, right = x(begin or self._scale.begin), x(end or self._scale.end)
        detected = min(right, max(left, x(absence.detected_at or begin or self._scale.begin)))
        if detected - left >= 1:
            self._pic.hatched(left, y, detected - left, 14, "away", tip=tip)
        self._pic.rect(
            detected, y, max(_LEAST, right - detected), 14, "stopped" if absence.planned else "away", tip=tip
        )

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _partitions(self, partitions: Sequence[Partition]) -> None:
        """Draw the partitions that were unavailable for longest, each with its outages."""
        if not partitions:
            return
        sums = self._incident.sums
        of = sums.partitions if sums else len(partitions)
        more = f", the {len(partitions)} longest of {of:,}" if of > len(partitions) else ""
        self._pic.text(LEFT, self._y + 10, f"Partitions without a leader{more}", "strong")
        self._y += 18
        for partition in partitions:
            self._name(self._y + _BAR - 2, partition.name)
            self._lane(self._y + _BAR / 2)
            for bar in partition.bars:
                self._outage(partition, bar)
            self._y += _BAR + 5
        self._y += 6

    def _outage(self, partition: Partition, bar: Bar) -> None:
        x, pic, y, middle = self._scale.x, self._pic, self._y, self._y + _BAR / 2
        end = bar.end or self._incident.end
        tip = f"{partition.name}: {describe(bar, self._moments)}"
        doubt = next((kind for kind in ("bounded", "inferred") if kind in (bar.begin_kind, bar.end_kind)), "")
        left, wide = x(bar.begin), max(_LEAST, x(end) - x(bar.begin))
        if doubt:
            pic.line(x(bar.begin_low or bar.begin), middle, x(bar.end_high or end), middle, "reach", tip=tip)
            pic.hatched(left, y, wide, _BAR, doubt, tip=tip)
        else:
            pic.rect(left, y, wide, _BAR, "seen", tip=tip)
        right = left + wide
        if bar.end is None:
            pic.polygon([(right, y), (right + 7, middle), (right, y + _BAR)], "seen", tip=tip)
        elif bar.unclean:
            self._diamond(right, middle, "unclean", tip)


def _tick_text(time: Time, step: datetime.timedelta, moments: Moments) -> tuple[str, str]:
    """Returns the text of a tick, as precise as their distance, and the day above it; of days, the year above them."""
    day, month, year = moments.day(time).split()
    if step >= _DAY:
        return f"{day} {month[:3]}", year
    length = 5 if step >= datetime.timedelta(minutes=1) else 8 if step >= datetime.timedelta(seconds=1) else None
    return moments.clock(time)[:length], f"{day} {month[:3]} {year}"


def _fits(x: float, text: str) -> bool:
    """True if a centred text stays right of the names, and on the picture."""
    half = width(text, 11) / 2
    return x - half >= LEFT - 6 and x + half <= WIDTH


def _longest_fitting(texts: Sequence[str], room: float) -> str:
    """Returns the first text that fits, or an empty one."""
    return next((text for text in texts if width(text) <= room), "")


def _legend(pic: Drawing, y: float, legend: Mapping[str, str]) -> float:
    """Draw the kinds of shapes with their texts. Returns the bottom of the picture."""
    x = LEFT
    for kind, text in legend.items():
        if x > LEFT and x + 24 + width(text, 11) > RIGHT:
            x, y = LEFT, y + 18
        if kind in HATCHES and kind != "away":
            pic.hatched(x, y, 18, 10, kind)
        else:
            pic.rect(x, y, 18, 10, kind)
        pic.text(x + 24, y + 9, text, "faint")
        x += 24 + width(text, 11) + 18
    return y + 18


# -- parts of outages --------------------------------------------------------------------------------------------------

_PARTS_RIGHT: Final = 860.0


def parts(number: int, bands: Sequence[Band]) -> str:
    """Returns the picture of the parts of an incident's outages: a bar for each band of lengths, the shortest first."""
    pic = Drawing(f"Incident {number}: where the time of its outages went", width=WIDTH)
    y = 8.0
    for band in bands:
        pic.text(LEFT - 10, y + 14, fitted(f"{band.name} ({band.outages:,})", _NAMES), anchor="end")
        _draw_parts(pic, band, y)
        pic.text(_PARTS_RIGHT + 12, y + 14, f"mean {duration(band.mean_ms)}", "faint")
        y += 34
    legend = {
        f"part-{name}": f"{name}: {description}"
        for name, description in PARTS.items()
        if any(band.part_ms(name) for band in bands)
    }
    return pic.finished(_legend(pic, y, legend))


def _draw_parts(pic: Drawing, band: Band, y: float) -> None:
    total = sum(band.part_ms(name) for name in PARTS)
    if total <= 0:
        pic.line(LEFT, y + 10, _PARTS_RIGHT, y + 10, "lane")
        return
    x = LEFT
    for name, description in PARTS.items():
        part_ms = band.part_ms(name)
        if part_ms <= 0:
            continue
        wide = part_ms / total * (_PARTS_RIGHT - LEFT)
        of = share(part_ms, total)
        mean = f"{duration(part_ms)} on average, {of} of the time of {count(band.outages, 'outage')}"
        pic.rect(x, y, wide, 20, f"part-{name}", tip=f"{name}, {description}: {mean}")
        text = _longest_fitting((f"{name} {of}", of), wide - 8)
        if text:
            pic.text(x + wide / 2, y + 14, text, f"on-{name}", anchor="middle")
        x += wide
