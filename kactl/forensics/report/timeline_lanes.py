"""Lanes of an incident's picture: controllers, absent brokers, and partitions."""

from collections.abc import Sequence
from typing import Final

from .findings import Absence, Controllership
from .model import Bar, Incident, Partition, Time
from .svg import width
from .timeline_frame import LANE, LEAST, LEFT, Frame
from .wording import Moments, duration

BROKERS_SHOWN: Final = 24
NOBODY: Final = "nobody"
_BAR: Final = 13.0


def acted(each: Controllership) -> tuple[Time | None, Time | None]:
    """Returns the known term of a controller."""
    return each.elected_at, each.resigned_at or each.last_act_at


def away(each: Absence) -> tuple[Time | None, Time | None]:
    """Returns the known time of an absence."""
    begin = each.silent_at or each.last_sign_at or each.shutdown_at or each.detected_at
    return begin, each.first_sign_at or each.back_at


# -- the controller ----------------------------------------------------------------------------------------------------


def controllers_high(acting: Sequence[Controllership]) -> float:
    return (LANE + 6) * bool(acting)


def controllers(frame: Frame, acting: Sequence[Controllership]) -> None:
    """Draw one lane with all terms in alternating colours."""
    if not acting:
        return
    y = frame.y
    frame.name(y + 13, "controller", kind="strong")
    for place, each in enumerate(acting):
        begin, end = acted(each)
        left, right = frame.axis.x(begin or frame.axis.begin), frame.axis.x(end or frame.axis.end)
        epoch = "" if each.controller_epoch is None else f", epoch {each.controller_epoch}"
        who = NOBODY if each.controller is None else f"{each.controller}"
        tip = f"controller {who}{epoch}: {frame.moments.full(begin)} to {frame.moments.full(end)}"
        if each.failover_ms is not None:
            tip += f", took over in {duration(each.failover_ms)}"
        frame.pic.rect(left, y, max(LEAST, right - left), 17, f"control{place % 2}", tip=tip, round_=2)
        # Another term may begin before this one has ended.
        later = [frame.axis.x(other.elected_at) for other in acting[place + 1 :] if other.elected_at is not None]
        room = min([right, *later]) - left - 8
        text = next((text for text in (f"{who}{epoch}", who) if width(text) <= room), "")
        if text:
            frame.pic.text(left + 4, y + 13, text, "on-control")
    frame.y += controllers_high(acting)


# -- brokers -----------------------------------------------------------------------------------------------------------


def brokers_high(absences: Sequence[Absence]) -> float:
    lanes = len({each.broker for each in absences})
    return (LANE * min(lanes, BROKERS_SHOWN) + 6 + 16 * (lanes > BROKERS_SHOWN)) if lanes else 0


def brokers(frame: Frame, absences: Sequence[Absence]) -> None:
    """Draw a lane for each absent broker: striped until the absence was detected, solid afterwards."""
    if not absences:
        return
    ids = sorted({each.broker for each in absences})
    for broker in ids[:BROKERS_SHOWN]:
        frame.name(frame.y + 12, f"broker {broker} away")
        frame.lane(frame.y + 8)
        for each in absences:
            if each.broker == broker:
                _absence(frame, each)
        frame.y += LANE
    if len(ids) > BROKERS_SHOWN:
        frame.name(frame.y + 8, f"and {len(ids) - BROKERS_SHOWN:,} more", kind="faint")
        frame.y += 16
    frame.y += 6


def _absence(frame: Frame, each: Absence) -> None:
    y, axis, moments = frame.y + 1, frame.axis, frame.moments
    begin, end = away(each)
    noticed = each.detected_at or begin
    kind = "stopped" if each.planned else "away"
    tip = (
        f"broker {each.broker}, {each.how or 'away'}: last sign {moments.full(each.last_sign_at)}, "
        f"noticed {moments.full(each.detected_at)}, back {moments.full(each.back_at)}"
    )
    left, right = axis.x(begin or axis.begin), axis.x(end or axis.end)
    middle = min(right, max(left, axis.x(noticed or axis.begin)))
    if middle - left >= 1:
        frame.pic.hatched(left, y, middle - left, 14, "away", tip=tip)
    frame.pic.rect(middle, y, max(LEAST, right - middle), 14, kind, tip=tip)


# -- partitions --------------------------------------------------------------------------------------------------------


def partitions_high(incident: Incident) -> float:
    rows = len(incident.partitions)
    return (_BAR + 5) * rows + 24 if rows else 0


def partitions(frame: Frame, incident: Incident) -> None:
    """Draw the partitions that were unavailable for longest, each with its outages."""
    shown = incident.partitions
    if not shown:
        return
    all_ = incident.sums.partitions if incident.sums else len(shown)
    more = f", the {len(shown)} longest of {all_:,}" if all_ > len(shown) else ""
    frame.pic.text(LEFT, frame.y + 10, f"Partitions without a leader{more}", "strong")
    frame.y += 18
    for each in shown:
        frame.name(frame.y + _BAR - 2, each.name)
        frame.lane(frame.y + _BAR / 2)
        for bar in each.bars:
            _outage(frame, each, bar, incident.end)
        frame.y += _BAR + 5
    frame.y += 6


def _outage(frame: Frame, partition: Partition, bar: Bar, last: Time) -> None:
    axis, pic, y, middle = frame.axis, frame.pic, frame.y, frame.y + _BAR / 2
    end = bar.end if bar.end is not None else last
    left = axis.x(bar.begin)
    tip = f"{partition.name}: {describe(bar, frame.moments)}"
    kinds = (bar.begin_kind, bar.end_kind)
    if "inferred" in kinds or "bounded" in kinds:
        low, high = bar.begin_low or bar.begin, bar.end_high or end
        pic.line(axis.x(low), middle, axis.x(high), middle, "reach", tip=tip)
    wide = max(LEAST, axis.x(end) - left)
    if "bounded" in kinds:
        pic.hatched(left, y, wide, _BAR, "bounded", tip=tip)
    elif "inferred" in kinds:
        pic.hatched(left, y, wide, _BAR, "inferred", tip=tip)
    else:
        pic.rect(left, y, wide, _BAR, "seen", tip=tip)
    x = left + wide
    if bar.end is None:
        pic.path([(x, y), (x + 7, middle), (x, y + _BAR)], "seen", tip=tip)
    elif bar.unclean:
        frame.diamond(x, middle, "unclean", tip)


def describe(bar: Bar, moments: Moments) -> str:
    """Returns the description of one outage."""
    end = "still going on where the logs end" if bar.end is None else f"to {moments.clock(bar.end)} ({bar.end_kind})"
    lost = "" if bar.broker is None else f"; broker {bar.broker} was lost"
    then = "" if bar.new_leader is None else f", {bar.new_leader} leads"
    unclean = ", not in sync" if bar.unclean else ""
    return (
        f"{moments.full(bar.begin)} ({bar.begin_kind}) {end}, {duration(bar.duration_ms)}; {bar.cause}"
        f"{lost}{then}{unclean}"
    )
