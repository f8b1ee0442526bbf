"""The picture at the beginning of a report: all incidents, controllers, absent brokers, and the worst partitions."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Final

from kactl.forensics.wording import Moments, Time, count, duration

from .facts import Facts
from .findings import Absence
from .lanes import Kind, Lane, Span, Tick, draw
from .model import Bar, Incident, Partition
from .pictures import away, describe, term
from .section import Picture
from .svg import fitted_name

_BROKERS: Final = 4
_PARTITIONS: Final = 4
# Room for the name of a partition on the smallest screen.
_NAME_PX: Final = 250
_CAPTION: Final = (
    "All incidents. Thick: without a leader, observed. Thinner: inferred or bounded, or a broker that was away. The "
    "incidents below have all partitions."
)


def overview(facts: Facts, moments: Moments) -> Picture | None:
    """Returns the picture; None if there was no incident."""
    incidents = sorted((*facts.incidents, *facts.others), key=lambda incident: incident.begin)
    if not incidents:
        return None
    first, last = incidents[0].begin, max(incident.end for incident in incidents)
    margin = max((last - first) * 0.04, datetime.timedelta(milliseconds=20))
    begin, end = first - margin, last + margin
    lanes = tuple(_lanes(facts, incidents, moments, begin, end))
    label = f"{count(len(incidents), 'incident')}, {moments.stretch(first, last)}: what was unavailable when"
    middle = begin + (end - begin) / 2
    is_long = moments.day(begin) != moments.day(end)
    ticks = [Tick(at=_ms(at), text=_tick(at, moments, is_long=is_long)) for at in (begin, middle, end)]
    return Picture(svg=draw(label, _ms(begin), _ms(end), ticks, lanes), caption=_CAPTION)


def _lanes(facts: Facts, incidents: Sequence[Incident], moments: Moments, begin: Time, end: Time) -> Iterator[Lane]:
    yield Lane(name="incidents", spans=tuple(_incident(incident, moments) for incident in incidents))
    yield from _controllers(facts, moments, begin, end)
    yield from _brokers(facts.absences, moments, begin, end)
    yield from _partitions(facts.incidents, moments, end)


def _incident(incident: Incident, moments: Moments) -> Span:
    affected = "" if incident.sums is None else f": {count(incident.sums.partitions, 'partition')} without a leader"
    return Span(
        begin=_ms(incident.begin),
        end=_ms(incident.end),
        kind="bad",
        text=str(incident.number),
        title=f"incident {incident.number}, {moments.stretch(incident.begin, incident.end)}{affected}",
    )


def _controllers(facts: Facts, moments: Moments, begin: Time, end: Time) -> Iterator[Lane]:
    spans = []
    for number, controllership in enumerate(facts.controllers):
        first, last = (time or edge for time, edge in zip(term(controllership), (begin, end), strict=True))
        if last < begin or first > end:
            continue
        name = "none" if controllership.controller is None else str(controllership.controller)
        title = f"controller {name}: {moments.full(first)} to {moments.full(last)}"
        kind: Kind = "two" if number % 2 else "one"
        spans.append(Span(begin=_ms(first), end=_ms(last), kind=kind, text=name, title=title))
    if spans:
        yield Lane(name="controller", spans=tuple(spans))


def _brokers(absences: Sequence[Absence], moments: Moments, begin: Time, end: Time) -> Iterator[Lane]:
    spans: dict[int, list[Span]] = {}
    for absence in absences:
        first, last = (time or edge for time, edge in zip(away(absence), (begin, end), strict=True))
        if last < begin or first > end:
            continue
        title = f"broker {absence.broker}, {absence.how or 'away'}: {moments.full(first)} to {moments.full(last)}"
        kind: Kind = "good" if absence.planned else "warn"
        spans.setdefault(absence.broker, []).append(Span(begin=_ms(first), end=_ms(last), kind=kind, title=title))
    longest = sorted(spans, key=lambda broker: (-sum(each.end - each.begin for each in spans[broker]), broker))
    for broker in sorted(longest[:_BROKERS]):
        yield Lane(name=f"broker {broker} away", spans=tuple(spans[broker]))
    if len(longest) > _BROKERS:
        rest = tuple(span for broker in sorted(longest[_BROKERS:]) for span in spans[broker])
        yield Lane(name=f"{count(len(longest) - _BROKERS, 'more broker')} away", spans=rest)


def _partitions(incidents: Sequence[Incident], moments: Moments, end: Time) -> Iterator[Lane]:
    bars: dict[str, list[tuple[Partition, Bar]]] = {}
    for incident in incidents:
        for partition in incident.partitions:
            bars.setdefault(partition.name, []).extend((partition, bar) for bar in partition.bars)
    longest = sorted(bars, key=lambda name: (-sum(bar.duration_ms for _, bar in bars[name]), name))
    for name in longest[:_PARTITIONS]:
        total = sum(bar.duration_ms for _, bar in bars[name])
        spans = tuple(_outage(bar, moments, end) for _, bar in bars[name])
        yield Lane(name=f"{fitted_name(name, _NAME_PX)}, {duration(total)}", spans=spans)


def _outage(bar: Bar, moments: Moments, end: Time) -> Span:
    is_sure = bar.begin_kind == "observed" and bar.end_kind in ("observed", "open")
    return Span(
        begin=_ms(bar.begin),
        end=_ms(bar.end or end),
        kind="bad" if is_sure else "warn",
        title=describe(bar, moments),
    )


def _ms(time: Time) -> int:
    return round(time.timestamp() * 1000)


def _tick(time: Time, moments: Moments, *, is_long: bool) -> str:
    return moments.seconds(time)[5:16] if is_long else moments.seconds(time)[11:]
