"""Report sections about incidents: pictures, partitions, and the parts of the time."""

from collections.abc import Iterator
from typing import Final

from .facts import Facts
from .model import Band, Incident, Partition, Percentiles, Share, Spent, Sums
from .objective_facts import PERIOD_MS
from .objective_section import by_topic, describe_exceeded, describe_period, describe_used
from .pictures import PARTS, parts, timeline
from .section import Picture, Section, Table, table
from .wording import Moments, count, duration, share
from .words import CAUSES, lost_in_words

_LEGEND: Final = (
    "Solid: stated by lines of the partition or of its leader's death. Striped: inferred from other lines, or only "
    "bounded; a thin line extends to the bounds. A broker's bar is striped from its last sign until its absence was "
    "detected."
)
_BARS_LISTED: Final = 3
PARTITION_HEADER: Final = ("partition", "outages", "without a leader", "when", "why", "leader lost", "leader then")


def incident_sections(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Returns a section with a list of all incidents, then one for each that is shown in full."""
    if not facts.incidents_all:
        return
    yield Section(
        name="incidents",
        title="Incidents",
        paragraphs=(
            "Failures with less than ten minutes of quiet in between are one incident. Leader changes that were "
            "requested, or that no line explains, form none.",
            *_left_out(facts),
        ),
        tables=table(
            ("", "begin", "end", "partitions", "topics", "longest", "added up", "records lost", "unclean"),
            (_row(each, moments) for each in sorted((*facts.incidents, *facts.others), key=lambda each: each.number)),
        )
        if facts.incidents_all > 1
        else (),
    )
    for incident in facts.incidents:
        yield _incident(incident, facts, moments)


def _left_out(facts: Facts) -> Iterator[str]:
    listed = len(facts.incidents) + len(facts.others)
    if facts.incidents_all > len(facts.incidents):
        yield (
            f"Of {facts.incidents_all:,} the {len(facts.incidents)} with the greatest loss are shown in full"
            + (f", and the first {listed:,} are listed." if listed < facts.incidents_all else ".")
        )


def _row(each: Incident, moments: Moments) -> tuple[object, ...]:
    sums = each.sums
    return (
        each.number,
        moments.seconds(each.begin),
        moments.seconds(each.end),
        sums.partitions if sums else 0,
        sums.topics if sums else 0,
        duration(sums.duration.max) if sums else None,
        duration(sums.total_ms) if sums else None,
        lost_in_words(each.lost) if each.lost.partitions else None,
        each.unclean,
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
        paragraphs=tuple(" ".join(said) for said in (_said(incident), _budget(incident.spent)) if said),
        pictures=tuple(pictures),
        tables=tuple(_tables(incident, moments)),
    )


def _said(incident: Incident) -> Iterator[str]:
    sums = incident.sums
    if sums is not None:
        known = f"{sums.observed:,} observed, {sums.inferred:,} inferred, {sums.bounded:,} bounded"
        yield (
            f"{count(sums.outages, 'outage')} of {count(sums.partitions, 'partition')} of "
            f"{count(sums.topics, 'topic')} ({known}), {duration(sums.total_ms)} added up over partitions, "
            f"{duration(sums.duration.max)} the longest."
        )
        if sums.open:
            yield f"{count(sums.open, 'outage')} had not ended where the logs end."
    if incident.lost.partitions:
        yield (
            f"Records lost, at the least: {lost_in_words(incident.lost)}, in "
            f"{count(incident.lost.partitions, 'partition')}."
        )
    if incident.unclean:
        yield f"{count(incident.unclean, 'unclean election')}."


def _budget(spent: tuple[Spent, ...]) -> list[str]:
    """Empty if the incident has no outage."""
    return [*describe_used(spent, PERIOD_MS), *(describe_exceeded(each, PERIOD_MS) for each in spent[:1])]


def _tables(incident: Incident, moments: Moments) -> Iterator[Table]:
    yield from table(
        PARTITION_HEADER,
        (partition_row(each, moments) for each in incident.partitions),
        "Partitions that were away for longest",
    )
    yield from by_topic(incident.spent, f"Of the error budget of {describe_period(PERIOD_MS)} this incident used")
    if incident.sums is not None:
        yield from _times(incident.sums, incident.bands)
    yield from _shares(incident.causes, "cause", "By cause")
    yield from _shares(incident.topics, "topic", "By topic")
    yield from _shares(incident.brokers, "broker", "By the broker that led before")


def partition_row(each: Partition, moments: Moments) -> tuple[object, ...]:
    """Returns a row below `PARTITION_HEADER`, with the longest outages."""
    bars = sorted(each.bars, key=lambda bar: -bar.duration_ms)[:_BARS_LISTED]
    when = [
        f"{moments.clock(bar.begin)} ({bar.begin_kind}) to "
        + ("the end of the logs" if bar.end is None else f"{moments.clock(bar.end)} ({bar.end_kind})")
        for bar in sorted(bars, key=lambda bar: bar.begin)
    ]
    more = [f"and {each.outages - len(bars)} more"] if each.outages > len(bars) else []
    causes = dict.fromkeys(bar.cause for bar in bars)
    return (
        each.name,
        each.outages,
        duration(each.total_ms),
        "; ".join(when + more),
        ", ".join(causes),
        ", ".join(dict.fromkeys("" if bar.broker is None else f"{bar.broker}" for bar in bars)) or None,
        ", ".join(dict.fromkeys(_leader(bar.new_leader, bar.unclean) for bar in bars)),
    )


def _leader(leader: int | None, unclean: bool | None) -> str:
    if leader is None:
        return "none"
    return f"{leader} (unclean)" if unclean else f"{leader}"


def _times(sums: Sums, bands: tuple[Band, ...]) -> Iterator[Table]:
    """Percentiles of the whole and of each part that any outage has."""
    rows = [_times_row("all of it", "", sums.duration)]
    rows += [
        _times_row(name, what, getattr(sums, name))
        for name, what in PARTS.items()
        if name != "unknown" and getattr(sums, name).known
    ]
    yield from table(("time", "what", "known of", "half", "90 %", "99 %", "longest"), rows, "Where the time went")
    if bands:
        header = ("outages", "number", "mean", *PARTS)
        yield from table(header, (_band(each) for each in bands), "Means of outages of about one length")


def _times_row(name: str, what: str, times: Percentiles) -> tuple[object, ...]:
    return (name, what, times.known, *(duration(each) for each in (times.p50, times.p90, times.p99, times.max)))


def _band(band: Band) -> tuple[object, ...]:
    means = [band.part_ms(name) for name in PARTS]
    return (band.name, band.outages, duration(band.mean_ms), *(duration(each) if each else None for each in means))


def _shares(found: tuple[Share, ...], what: str, caption: str) -> Iterator[Table]:
    total = sum(each.total_ms for each in found)
    rows = [
        (
            CAUSES.get(each.name, each.name) if what == "cause" else each.name,
            each.partitions,
            each.outages,
            duration(each.total_ms),
            share(each.total_ms, total),
            duration(each.longest_ms),
        )
        for each in found
    ]
    yield from table((what, "partitions", "outages", "added up", "share", "longest"), rows, caption)


def unexplained_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Yields a section on leader changes without an explaining line, or nothing if there were none."""
    sums = facts.unexplained
    if not sums.outages:
        return
    yield Section(
        name="unexplained",
        title="Changes of leaders that no line explains",
        paragraphs=(
            f"{count(sums.outages, 'time')} a leader was moved that was alive according to these logs, and no line "
            "shows a request or another reason. Until the next one led, "
            f"{count(sums.partitions, 'partition')} had no leader: for {duration(sums.duration.max)} at the most, "
            f"{duration(sums.total_ms)} added up. They are in no incident.",
        ),
        tables=table(
            PARTITION_HEADER,
            (partition_row(each, moments) for each in facts.moved),
            "Partitions that were away for longest",
        ),
    )
