"""An incident as a picture: what was unavailable over time, who was the controller, which brokers were away, and the
partitions that suffered most, each with what is certain of its outages and what is not.

Solid is what lines say. Striped is inferred from other lines, or only bounded by the lines around it; a thin line goes
to how far it may reach.
"""

import datetime
import itertools
from collections.abc import Sequence
from typing import Final

from .axis import Axis
from .findings import Absence, Controllership
from .model import Bar, Incident, Partition, Series, Time
from .svg import Drawing, fitted, fitted_name, width
from .wording import Moments, count, duration

WIDTH: Final = 1000.0
LEFT: Final = 200.0
RIGHT: Final = 984.0
BROKERS_SHOWN: Final = 24
_ROOM: Final = LEFT - 16
_AREA: Final = 84.0
_LANE: Final = 22.0
_BAR: Final = 13.0
_LEAST: Final = 2.0  # pixels of a bar, so that the shortest outage is seen


def timeline(
    incident: Incident, *, absences: Sequence[Absence], controllers: Sequence[Controllership], moments: Moments
) -> str:
    """The picture of an incident that is shown in full."""
    return _Timeline(incident, moments).drawn(absences, controllers)


class _Timeline:
    """Rows from the top to the bottom; each moves `self._y` on."""

    def __init__(self, incident: Incident, moments: Moments) -> None:
        pad = max((incident.end - incident.begin) * 0.04, datetime.timedelta(milliseconds=20))
        self._incident = incident
        self._moments = moments
        self._axis = Axis(incident.begin - pad, incident.end + pad, left=LEFT, right=RIGHT)
        label = (
            f"Incident {incident.number}: what was unavailable when, {moments.stretch(incident.begin, incident.end)}"
        )
        self._pic = Drawing(f"t{incident.number}", width=WIDTH, label=label)
        self._y = 40.0

    def drawn(self, absences: Sequence[Absence], controllers: Sequence[Controllership]) -> str:
        here = [each for each in absences if self._axis.overlaps(*_away(each))]
        acting = [each for each in controllers if self._axis.overlaps(each.elected_at, _acted_until(each))]
        self._scale(self._height(here, acting))
        series = self._incident.series
        if series is not None and series.peak:
            self._area(series)
        if series is not None:
            self._lane_of_counts("elections", series, series.elections, "election", "took a leader")
            self._marks("unclean elections", series, series.unclean, "unclean", "unclean election")
            self._marks("records lost", series, series.losses, "lost", "partition that lost records")
        if acting:
            self._controllers(acting)
        if here:
            self._brokers(here)
        if self._incident.partitions:
            self._partitions(self._incident.partitions)
        self._legend()
        return self._pic.finished(self._y)

    # -- the frame ---------------------------------------------------------------------------------------------------

    def _height(self, absences: Sequence[Absence], controllers: Sequence[Controllership]) -> float:
        """Of all rows together, known before they are drawn: the marks of the axis run down behind them."""
        series, high = self._incident.series, 0.0
        if series is not None:
            high += (_AREA + 18) * bool(series.peak)
            high += _LANE * sum(any(each) for each in (series.elections, series.unclean, series.losses))
        high += (_LANE + 6) * bool(controllers)
        lanes = len({each.broker for each in absences})
        high += (_LANE * min(lanes, BROKERS_SHOWN) + 6 + 16 * (lanes > BROKERS_SHOWN)) if lanes else 0
        rows = len(self._incident.partitions)
        return high + ((_BAR + 5) * rows + 24 if rows else 0)

    def _scale(self, high: float) -> None:
        for place, mark in enumerate(self._axis.marks(self._moments)):
            self._pic.line(mark.x, 34, mark.x, self._y + high, "grid")
            if not place:
                self._pic.text(LEFT - 10, 13, mark.day, "faint", anchor="end")
            elif mark.day and _fits(mark.x, mark.day):
                self._pic.text(mark.x, 13, mark.day, "faint", anchor="middle")
            if _fits(mark.x, mark.time):
                self._pic.text(mark.x, 28, mark.time, "faint", anchor="middle")
        self._pic.text(LEFT - 10, 28, fitted(self._moments.name, _ROOM, 11), "faint", anchor="end")

    def _name(self, y: float, text: str, *, kind: str = "", tip: str = "") -> None:
        shown = fitted_name(text, _ROOM)
        self._pic.text(LEFT - 10, y, shown, kind, anchor="end", tip=tip or (text if shown != text else ""))

    # -- what happened over time -------------------------------------------------------------------------------------

    def _area(self, series: Series) -> None:
        """Outages that were going on, slot by slot: those seen below, those inferred above them."""
        top, bottom = self._y + 6, self._y + 6 + _AREA
        peak = series.peak

        def high(number: int) -> float:
            return bottom - number / peak * _AREA

        ends = [
            series.begin + datetime.timedelta(milliseconds=series.slot_ms) * at
            for at in range(len(series.observed) + 1)
        ]
        # Neighbours that are alike are one shape: between two there would be a seam.
        alike = itertools.groupby(
            enumerate(zip(series.observed, series.guessed, strict=True)), key=lambda each: each[1]
        )
        for (seen, guessed), run in alike:
            at = [place for place, _ in run]
            if not seen + guessed:
                continue
            begin, end = ends[at[0]], ends[at[-1] + 1]
            tip = f"{self._moments.full(begin)} to {self._moments.clock(end)}: {count(seen + guessed, 'outage')}"
            if guessed:
                tip += f", {guessed:,} of them inferred or bounded"
            x, top_ = round(self._axis.x(begin), 1), high(seen + guessed)
            wide = max(round(self._axis.x(end), 1) - x, 0.5)
            if seen:
                self._pic.rect(x, high(seen), wide, bottom - high(seen), "seen crisp", tip=tip)
            if guessed:
                self._pic.hatched(x, top_, wide, high(seen) - top_, "inferred", tip=tip, edge=False)
        self._pic.line(LEFT, bottom, RIGHT, bottom, "base")
        self._name(top + 10, f"{peak:,}", kind="faint")
        self._name((top + bottom) / 2 + 4, "outages at a time", kind="strong")
        self._name(bottom, "0", kind="faint")
        self._y = bottom + 12

    def _lane_of_counts(self, name: str, series: Series, counts: Sequence[int], kind: str, what: str) -> None:
        """A bar for each slot, as high as its share of the highest."""
        if not any(counts):
            return
        bottom, most = self._y + _LANE - 5, max(counts)
        for at, number in enumerate(counts):
            if number:
                begin = series.begin + datetime.timedelta(milliseconds=series.slot_ms) * at
                end = begin + datetime.timedelta(milliseconds=series.slot_ms)
                high = max(3.0, number / most * (_LANE - 7))
                x = self._axis.x(begin)
                tip = f"{self._moments.full(begin)}: {count(number, 'partition')} {what}"
                self._pic.rect(x, bottom - high, max(_LEAST, self._axis.x(end) - x - 0.5), high, kind, tip=tip)
        self._name(bottom - 3, f"{name} ({sum(counts):,})")
        self._y += _LANE

    def _marks(self, name: str, series: Series, counts: Sequence[int], kind: str, what: str) -> None:
        """A diamond in each slot in which it happened."""
        if not any(counts):
            return
        middle = self._y + _LANE / 2 - 3
        for at, number in enumerate(counts):
            if number:
                begin = series.begin + datetime.timedelta(milliseconds=series.slot_ms) * at
                x = self._axis.x(begin + datetime.timedelta(milliseconds=series.slot_ms / 2))
                corners = [(x, middle - 6), (x + 6, middle), (x, middle + 6), (x - 6, middle)]
                self._pic.path(corners, kind, tip=f"{self._moments.full(begin)}: {count(number, what)}")
        self._name(middle + 4, f"{name} ({sum(counts):,})")
        self._y += _LANE

    # -- who did what ------------------------------------------------------------------------------------------------

    def _controllers(self, acting: Sequence[Controllership]) -> None:
        y = self._y
        self._name(y + 13, "controller", kind="strong")
        for place, each in enumerate(acting):
            end = _acted_until(each)
            left, right = self._axis.x(each.elected_at or self._axis.begin), self._axis.x(end or self._axis.end)
            epoch = "" if each.controller_epoch is None else f", epoch {each.controller_epoch}"
            who = NOBODY if each.controller is None else f"{each.controller}"
            tip = f"controller {who}{epoch}: {self._moments.full(each.elected_at)} to {self._moments.full(end)}"
            if each.failover_ms is not None:
                tip += f", took over in {duration(each.failover_ms)}"
            self._pic.rect(left, y, max(_LEAST, right - left), 17, f"control{place % 2}", tip=tip, round_=2)
            # Another one may begin before this one has ended.
            later = [self._axis.x(other.elected_at) for other in acting[place + 1 :] if other.elected_at is not None]
            room = min([right, *later]) - left - 8
            said = next((text for text in (f"{who}{epoch}", who) if width(text) <= room), "")
            if said:
                self._pic.text(left + 4, y + 13, said, "on-control")
        self._y += _LANE + 6

    def _brokers(self, absences: Sequence[Absence]) -> None:
        """A lane for each broker that was away: striped until it was noticed, solid from there on."""
        ids = sorted({each.broker for each in absences})
        for broker in ids[:BROKERS_SHOWN]:
            self._name(self._y + 12, f"broker {broker} away")
            self._pic.line(LEFT, self._y + 8, RIGHT, self._y + 8, "lane")
            for each in absences:
                if each.broker == broker:
                    self._away(each)
            self._y += _LANE
        if len(ids) > BROKERS_SHOWN:
            self._name(self._y + 8, f"and {len(ids) - BROKERS_SHOWN:,} more", kind="faint")
            self._y += 16
        self._y += 6

    def _away(self, each: Absence) -> None:
        y = self._y + 1
        begin, end = _away(each)
        noticed = each.detected_at or begin
        kind = "stopped" if each.planned else "away"
        tip = (
            f"broker {each.broker}, {each.how or 'away'}: last sign {self._moments.full(each.last_sign_at)}, "
            f"noticed {self._moments.full(each.detected_at)}, back {self._moments.full(each.back_at)}"
        )
        left, right = self._axis.x(begin or self._axis.begin), self._axis.x(end or self._axis.end)
        middle = min(right, max(left, self._axis.x(noticed or self._axis.begin)))
        if middle - left >= 1:
            self._pic.hatched(left, y, middle - left, 14, "away", tip=tip)
        self._pic.rect(middle, y, max(_LEAST, right - middle), 14, kind, tip=tip)

    # -- partitions --------------------------------------------------------------------------------------------------

    def _partitions(self, partitions: Sequence[Partition]) -> None:
        all_ = self._incident.sums.partitions if self._incident.sums else len(partitions)
        more = f", the {len(partitions)} longest of {all_:,}" if all_ > len(partitions) else ""
        self._pic.text(LEFT, self._y + 10, f"Partitions without a leader{more}", "strong")
        self._y += 18
        for each in partitions:
            self._name(self._y + _BAR - 2, each.name)
            self._pic.line(LEFT, self._y + _BAR / 2, RIGHT, self._y + _BAR / 2, "lane")
            for bar in each.bars:
                self._bar(each, bar)
            self._y += _BAR + 5
        self._y += 6

    def _bar(self, partition: Partition, bar: Bar) -> None:
        axis, y, middle = self._axis, self._y, self._y + _BAR / 2
        end = bar.end if bar.end is not None else self._incident.end
        left, right = axis.x(bar.begin), axis.x(end)
        tip = f"{partition.name}: {said(bar, self._moments)}"
        kinds = (bar.begin_kind, bar.end_kind)
        low, high = bar.begin_low or bar.begin, bar.end_high or end
        if "inferred" in kinds or "bounded" in kinds:
            self._pic.line(axis.x(low), middle, axis.x(high), middle, "reach", tip=tip)
        wide = max(_LEAST, right - left)
        if "bounded" in kinds:
            self._pic.hatched(left, y, wide, _BAR, "bounded", tip=tip)
        elif "inferred" in kinds:
            self._pic.hatched(left, y, wide, _BAR, "inferred", tip=tip)
        else:
            self._pic.rect(left, y, wide, _BAR, "seen", tip=tip)
        x = left + wide
        if bar.end is None:
            self._pic.path([(x, y), (x + 7, middle), (x, y + _BAR)], "seen", tip=tip)
        elif bar.unclean:
            self._pic.path([(x, middle - 6), (x + 6, middle), (x, middle + 6), (x - 6, middle)], "unclean", tip=tip)

    def _legend(self) -> None:
        x, y = LEFT, self._y + 8
        for kind, text in (
            ("seen", "observed"),
            ("inferred", "inferred from other lines"),
            ("bounded", "only bounded"),
            ("away", "broker gone"),
            ("stopped", "broker shut down in order"),
        ):
            if x + 24 + width(text, 11) > RIGHT:
                x, y = LEFT, y + 18
            if kind in ("inferred", "bounded"):
                self._pic.hatched(x, y, 18, 10, kind)
            else:
                self._pic.rect(x, y, 18, 10, kind)
            self._pic.text(x + 24, y + 9, text, "faint")
            x += 24 + width(text, 11) + 18
        self._y = y + 18


NOBODY: Final = "nobody"


def _fits(x: float, text: str) -> bool:
    """Whether a text around a place stays right of the names, and on the picture."""
    half = width(text, 11) / 2
    return x - half >= LEFT - 6 and x + half <= WIDTH


def said(bar: Bar, moments: Moments) -> str:
    """One outage in words."""
    end = "still going on where the logs end" if bar.end is None else f"to {moments.clock(bar.end)} ({bar.end_kind})"
    lost = "" if bar.broker is None else f"; broker {bar.broker} was lost"
    then = "" if bar.new_leader is None else f", {bar.new_leader} leads"
    unclean = ", not in sync" if bar.unclean else ""
    return (
        f"{moments.full(bar.begin)} ({bar.begin_kind}) {end}, {duration(bar.duration_ms)}; {bar.cause}"
        f"{lost}{then}{unclean}"
    )


def _away(each: Absence) -> tuple[Time | None, Time | None]:
    """From when to when a broker was away, as far as anybody knows."""
    begin = each.last_sign_at or each.shutdown_at or each.detected_at
    return begin, each.first_sign_at or each.back_at


def _acted_until(each: Controllership) -> Time | None:
    return each.resigned_at or each.last_act_at
