"""Report sections about incidents: pictures, partitions, and the parts of the time."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from kactl.forensics.wording import Moments, count, count_was, duration, share, was

from .facts import Facts
from .model import Band, Bar, Incident, Partition, Percentiles, Share, Spent, Sums
from .objectives import PERIOD_MS, by_topic, describe_exceeded, describe_period, describe_used
from .pictures import PARTS, parts, timeline
from .section import Field, Picture, Section, Table, field_table
from .summary import CAUSES, describe_lost

_LEGEND: Final = (
    "Solid: stated by lines of the partition or of its leader's death. Striped: inferred from other lines, or only "
    "bounded; a thin line extends to the bounds. A broker's bar is striped from its last sign until its absence was "
    "detected."
)
_BARS_LISTED: Final = 3
_UNAVAILABLE_LONGEST: Final = "Partitions that were unavailable for longest"


def incident_sections(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Returns a section with a list of all incidents, then one for each that is shown in full."""
    if not facts.incidents_all:
        return
    incidents = sorted((*facts.incidents, *facts.others), key=lambda incident: incident.number)
    yield Section(
        name="incidents",
        title="Incidents",
        paragraphs=(
            "Failures with less than ten minutes of quiet in between are one incident. Leader changes that were "
            "requested, or that no line explains, form none.",
            *_left_out(facts),
        ),
        tables=field_table(_incident_fields(moments), incidents) if facts.incidents_all > 1 else (),
    )
    for incident in facts.incidents:
        yield _incident(incident, facts, moments)


def _left_out(facts: Facts) -> Iterator[str]:
    listed = len(facts.incidents) + len(facts.others)
    if facts.incidents_all > len(facts.incidents):
        rest = f", and the first {listed:,} are listed" if listed < facts.incidents_all else ""
        shown = len(facts.incidents)
        yield f"Of {facts.incidents_all:,} the {shown} with the greatest loss are shown in full{rest}."


def _incident_fields(moments: Moments) -> tuple[Field, ...]:
    return (
        ("incident", lambda incident: incident.number),
        ("begin", lambda incident: moments.seconds(incident.begin)),
        ("end", lambda incident: moments.seconds(incident.end)),
        ("partitions", lambda incident: incident.sums.partitions if incident.sums else 0),
        ("topics", lambda incident: incident.sums.topics if incident.sums else 0),
        ("longest", lambda incident: duration(incident.sums.duration.max) if incident.sums else None),
        ("added up", lambda incident: duration(incident.sums.total_ms) if incident.sums else None),
        ("records lost", lambda incident: describe_lost(incident.lost) if incident.lost.partitions else None),
        ("unclean", lambda incident: incident.unclean),
    )


def _incident(incident: Incident, facts: Facts, moments: Moments) -> Section:
    picture = timeline(incident, absences=facts.absences, controllers=facts.controllers, moments=moments)
    pictures = [Picture(svg=picture, caption=_LEGEND)]
    if incident.bands:
        pictures.append(
            Picture(
                svg=parts(incident.number, incident.bands),
                caption="Where the time went: each bar is the mean of outages of about one length, the shortest first.",
            )
        )
    return Section(
        name=f"incident-{incident.number}",
        title=f"Incident {incident.number}: {moments.stretch(incident.begin, incident.end)}",
        level=3,
        paragraphs=tuple(filter(None, (" ".join(_contents(incident)), " ".join(_budget(incident.spent))))),
        pictures=tuple(pictures),
        tables=tuple(_tables(incident, moments)),
    )


def _contents(incident: Incident) -> Iterator[str]:
    sums, lost = incident.sums, incident.lost
    if sums is not None:
        known = f"{sums.observed:,} observed, {sums.inferred:,} inferred, {sums.bounded:,} bounded"
        yield (
            f"{count(sums.outages, 'outage')} of {count(sums.partitions, 'partition')} of "
            f"{count(sums.topics, 'topic')} ({known}), {duration(sums.total_ms)} added up over partitions, "
            f"{duration(sums.duration.max)} the longest."
        )
        if sums.open:
            yield f"{count(sums.open, 'outage')} had not ended where the logs end."
    if lost.partitions:
        yield f"Records lost, at the least: {describe_lost(lost)}, in {count(lost.partitions, 'partition')}."
    if incident.unclean:
        yield f"{count(incident.unclean, 'unclean election')}."


def _budget(spent: tuple[Spent, ...]) -> Iterator[str]:
    yield from describe_used(spent, PERIOD_MS)
    for total in spent[:1]:
        yield describe_exceeded(total, PERIOD_MS)


def _tables(incident: Incident, moments: Moments) -> Iterator[Table]:
    yield from field_table(_partition_fields(moments), incident.partitions, _UNAVAILABLE_LONGEST)
    yield from by_topic(incident.spent, f"Of the error budget of {describe_period(PERIOD_MS)} this incident used")
    if incident.sums is not None:
        yield from _times(incident.sums, incident.bands)
    causes = [msgspec.structs.replace(cause, name=CAUSES.get(cause.name, cause.name)) for cause in incident.causes]
    yield from _shares(causes, "cause", "By cause")
    yield from _shares(incident.topics, "topic", "By topic")
    yield from _shares(incident.brokers, "broker", "By the broker that led before")


def _partition_fields(moments: Moments) -> tuple[Field, ...]:
    def when(partition: Partition) -> str:
        bars = sorted(_longest(partition), key=lambda bar: bar.begin)
        more = partition.outages - len(bars)
        return "; ".join([_interval(bar, moments) for bar in bars] + ([f"and {more} more"] if more else []))

    return (
        ("partition", lambda partition: partition.name),
        ("outages", lambda partition: partition.outages),
        ("without a leader", lambda partition: duration(partition.total_ms)),
        ("when", when),
        ("why", lambda partition: _distinct(bar.cause for bar in _longest(partition))),
        ("leader lost", lambda partition: _distinct(map(_lost_leader, _longest(partition)))),
        ("leader then", lambda partition: _distinct(map(_leader, _longest(partition)))),
    )


def _longest(partition: Partition) -> list[Bar]:
    return sorted(partition.bars, key=lambda bar: -bar.duration_ms)[:_BARS_LISTED]


def _distinct(texts: Iterable[str]) -> str | None:
    return ", ".join(dict.fromkeys(texts)) or None


def _interval(bar: Bar, moments: Moments) -> str:
    end = "the end of the logs" if bar.end is None else f"{moments.clock(bar.end)} ({bar.end_kind})"
    return f"{moments.clock(bar.begin)} ({bar.begin_kind}) to {end}"


def _lost_leader(bar: Bar) -> str:
    return "" if bar.broker is None else f"{bar.broker}"


def _leader(bar: Bar) -> str:
    if bar.new_leader is None:
        return "none"
    return f"{bar.new_leader} (unclean)" if bar.unclean else f"{bar.new_leader}"


def _times(sums: Sums, bands: tuple[Band, ...]) -> Iterator[Table]:
    """Returns percentiles of the whole and of each part that any outage has, and the parts of each band."""
    parts = {name: text for name, text in PARTS.items() if name != "unknown"}
    times: list[tuple[str, str, Percentiles]] = [("all of it", "", sums.duration)]
    times += [(name, text, getattr(sums, name)) for name, text in parts.items() if getattr(sums, name).known]
    yield from field_table(
        (
            ("time", lambda row: row[0]),
            ("meaning", lambda row: row[1]),
            ("known of", lambda row: row[2].known),
            ("half", lambda row: duration(row[2].p50)),
            ("90 %", lambda row: duration(row[2].p90)),
            ("99 %", lambda row: duration(row[2].p99)),
            ("longest", lambda row: duration(row[2].max)),
        ),
        times,
        "Where the time went",
    )
    yield from field_table(
        (
            ("outages", lambda band: band.name),
            ("number", lambda band: band.outages),
            ("mean", lambda band: duration(band.mean_ms)),
            *((name, partial(_part_mean, part=name)) for name in PARTS),
        ),
        bands,
        "Means of outages of about one length",
    )


def _part_mean(band: Band, part: str) -> str | None:
    return duration(band.part_ms(part)) if band.part_ms(part) else None


def _shares(shares: Sequence[Share], name: str, caption: str) -> tuple[Table, ...]:
    total_ms = sum(part.total_ms for part in shares)
    return field_table(
        (
            (name, lambda part: part.name),
            ("partitions", lambda part: part.partitions),
            ("outages", lambda part: part.outages),
            ("added up", lambda part: duration(part.total_ms)),
            ("share", lambda part: share(part.total_ms, total_ms)),
            ("longest", lambda part: duration(part.longest_ms)),
        ),
        shares,
        caption,
    )


def unexplained_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Yields a section on leader changes without an explaining line, or nothing if there were none."""
    sums = facts.unexplained
    if not sums.outages:
        return
    yield Section(
        name="unexplained",
        title="Changes of leaders that no line explains",
        paragraphs=(
            f"{count_was(sums.outages, 'leader')} moved that {was(sums.outages)} alive according to these logs, and no "
            "line shows a request or another reason. Until the next one led, "
            f"{count(sums.partitions, 'partition')} had no leader: for {duration(sums.duration.max)} at the most, "
            f"{duration(sums.total_ms)} added up. Such changes are in no incident.",
        ),
        tables=field_table(_partition_fields(moments), facts.moved, _UNAVAILABLE_LONGEST),
    )
