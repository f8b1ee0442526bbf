"""Headline and summary of a report: observed facts, inferred facts, and unknowns.

A sentence is only included if the facts support it, and none states more than they do.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from kactl.forensics.wording import Moments, brokers, count, count_was, duration, listed, sentence, share, was

from .facts import Facts
from .limits import can_count_losses, is_blind, unread
from .model import Incident, Lost, Share, Sums
from .objectives import describe_used

# Causes of lost leaders, as they are printed.
CAUSES: Final = {
    "broker-failure": "a broker failed",
    "controlled-shutdown": "a broker was shut down in order",
    "preferred": "leaders went back to their preferred brokers",
    "reassign": "partitions were moved to other brokers",
    "replica-failure": "a disk of a broker failed",
    "no-live-replica": "no replica that could lead was alive",
    "controller-change": "the controller failed with the leader, and another one had to take over first",
    "unknown": "not stated in the logs",
}


def headline(facts: Facts) -> str:
    """Returns one sentence."""
    lost = facts.lost
    parts = []
    if facts.forced.outages:
        parts.append(f"{_affected(facts.forced)} had no leader for {_total_time(facts.forced)}")
    if lost.committed:
        parts.append(f"at least {count_was(lost.committed, 'committed record')} lost")
    elif lost.tail:
        records = count(lost.tail, "record")
        parts.append(f"at least {records} not yet committed {was(lost.tail)} lost")
    elif lost.unsized:
        parts.append("records were lost, and no line states how many")
    if facts.unclean_all and not lost.tail:
        parts.append(count(facts.unclean_all, "unclean election"))
    if parts:
        return sentence(", and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts))
    if is_blind(facts):
        return "These logs cannot show whether anything was unavailable."
    if gaps := unread(facts.sources):
        return sentence(f"no outage was found in the lines that were read, but {gaps}")
    if facts.unexplained.outages:
        changes = count(facts.unexplained.outages, "change")
        return f"No leader was lost according to these logs; {changes} of leaders stay unexplained."
    return "No outage and no loss of records was found in these logs."


def summary(facts: Facts, moments: Moments) -> tuple[str, ...]:
    """Returns the most important sentences."""
    return (*_availability(facts, moments), *_losses(facts), *_changes(facts))


def _affected(sums: Sums) -> str:
    return f"{count(sums.partitions, 'partition')} of {count(sums.topics, 'topic')}"


def _total_time(sums: Sums) -> str:
    """Returns the time without leaders, added up over partitions: best estimate, bounds, and the longest outage."""
    low, total = duration(sums.least_ms), duration(sums.total_ms)
    high = None if sums.most_ms is None else duration(sums.most_ms)
    bounds = ""
    if not low == high == total:
        bounds = f" (no less than {low}" + (")" if high is None else f", no more than {high})")
    if sums.outages == 1:
        return f"{total}{bounds}"
    return f"{total} in all{bounds}, one for {duration(sums.duration.max)}"


def _availability(facts: Facts, moments: Moments) -> Iterator[str]:
    sources = facts.sources
    if facts.forced.outages:
        yield _period(facts, moments)
        yield from _how_long(facts.forced)
        if facts.objectives is not None:
            yield from describe_used(facts.objectives.forced, facts.objectives.period_ms)
        yield from _causes(facts)
    elif sources.begin is not None and sources.end is not None and not is_blind(facts):
        event = "the loss of a leader" if facts.unexplained.outages else "unplanned time without a leader"
        yield (
            f"The logs reach {moments.stretch(sources.begin, sources.end)} and contain "
            f"{count(sources.partitions, 'partition')} of {count(sources.topics, 'topic')}; no line shows {event}."
        )


def _period(facts: Facts, moments: Moments) -> str:
    sums, all_ = facts.forced, (*facts.incidents, *facts.others)
    begin, end = min(incident.begin for incident in all_), max(incident.end for incident in all_)
    interval = moments.stretch(begin, end)
    when = f"In {count(facts.incidents_all, 'incident')}, {interval}"
    if facts.incidents_all == 1:
        when = f"Within one incident, {interval} ({duration(all_[0].span_ms)} in all)"
    of = (
        f" (of {count(facts.sources.partitions, 'partition')} in the logs)"
        if facts.sources.partitions >= sums.partitions
        else ""
    )
    return f"{when}, {_affected(sums)}{of} had no leader that clients could use."


def _how_long(sums: Sums) -> Iterator[str]:
    times = sums.duration
    if sums.outages > 1:
        yield (
            f"Half of the {sums.outages:,} outages took no more than {duration(times.p50)}, nine of ten no more than "
            f"{duration(times.p90)}, and the longest {duration(times.max)}."
        )
    bounds = ""
    if not sums.least_ms == sums.most_ms == sums.total_ms:
        most = f", and no more than {duration(sums.most_ms)}" if sums.most_ms is not None else ""
        bounds = f"; it was no less than {duration(sums.least_ms)}{most}"
    yield f"Added up over partitions that is {duration(sums.total_ms)}{bounds}."
    if sums.observed < sums.outages:
        kinds = ((sums.inferred, "inferred from other lines"), (sums.bounded, "only bounded by the lines around it"))
        uncertain = listed([f"{number:,} {was(number)} {how}" for number, how in kinds if number])
        yield f"Of these outages {sums.observed:,} {was(sums.observed)} observed from beginning to end, {uncertain}."
    if sums.open:
        yield f"{count(sums.open, 'outage')} had not ended where the logs end; the time up to there is counted."
    if sums.attempts_failed:
        yield f"{count(sums.attempts_failed, 'election')} failed before one succeeded, or none did."


def _causes(facts: Facts) -> Iterator[str]:
    """Causes by lost time, and brokers that lost leaders, over the incidents shown."""
    causes = together(facts.incidents, "causes")
    total = sum(cause.total_ms for cause in causes)
    texts = [
        f"{CAUSES.get(cause.name, cause.name)} ({share(cause.total_ms, total)} of the time)"
        for cause in causes
        if cause.total_ms or total == 0
    ]
    if texts:
        scope = " in the incidents shown" if facts.incidents_all > len(facts.incidents) else ""
        yield f"Why{scope}: {'; '.join(texts[:4])}."
    ids = [int(broker.name) for broker in together(facts.incidents, "brokers") if broker.name != "unknown"]
    if ids:
        yield f"The leaders that were lost were on {brokers(ids)}."


def together(incidents: tuple[Incident, ...], kind: str) -> list[Share]:
    """Returns the shares of several incidents (`causes`, `topics` or `brokers`), added up, the worst first."""
    sums: dict[str, Share] = {}
    for incident in incidents:
        for part in getattr(incident, kind):
            before = sums.get(part.name, Share(name=part.name, outages=0, partitions=0, total_ms=0, longest_ms=0))
            sums[part.name] = msgspec.structs.replace(
                part,
                outages=before.outages + part.outages,
                partitions=before.partitions + part.partitions,
                total_ms=before.total_ms + part.total_ms,
                longest_ms=max(before.longest_ms, part.longest_ms),
            )
    return sorted(sums.values(), key=lambda part: (-part.total_ms, -part.outages, part.name))


def _losses(facts: Facts) -> Iterator[str]:
    lost = facts.lost
    if lost.committed:
        yield (
            f"At least {count_was(lost.committed, 'record')} lost that had been committed, that is, "
            f"acknowledged to writers with acks=all{_certain(lost.committed_sure, lost.committed)}."
        )
    rest = lost.tail - lost.committed
    if rest > 0:
        further = "A further " if lost.committed else ""
        certain = _certain(lost.tail_sure - lost.committed_sure, rest)
        yield (
            f"{further}{count_was(rest, 'record')} removed that {was(rest)} not known to be "
            f"committed{certain}: writers with acks=0 or 1 lost them, writers with acks=all had received no "
            "acknowledgement for them."
        )
    if lost.unsized:
        yield (
            f"{count(lost.unsized, 'time')} a replica's log was truncated, and no line states by how much: that is "
            "not included above."
        )
    if not (lost.tail or lost.unsized):
        if not can_count_losses(facts):
            yield "These logs cannot show whether records were lost: no line has the end of a replica's log."
        elif facts.forced.outages or facts.unclean_all:
            yield "Nothing in these logs shows that records were lost."


def _certain(certain: int, of: int) -> str:
    if certain >= of:
        return ""
    if certain <= 0:
        return " (not certain: the history of the replicas is incomplete in these logs)"
    return f" ({certain:,} of them for certain)"


def _changes(facts: Facts) -> Iterator[str]:
    """Unclean, unexplained, and planned changes of leaders."""
    if facts.unclean_all:
        certain = "all" if facts.unclean_sure == facts.unclean_all else f"{facts.unclean_sure:,}"
        yield (
            f"{count_was(facts.unclean_all, 'election')} unclean, {certain} of them for certain: a replica that was "
            "not in sync became leader, so that records of other replicas could be removed."
        )
    if facts.unexplained.outages:
        number = facts.unexplained.outages
        yield (
            f"{count(number, 'change')} of leaders {was(number)} unexplained: a live leader was moved, and no line "
            f"gives the reason. Such changes took {duration(facts.unexplained.duration.max)} at the most; they are "
            "not counted above."
        )
    if facts.planned.outages:
        yield (
            f"{count(facts.planned.outages, 'change')} of leaders on request (preferred elections, reassignments, "
            f"controlled shutdowns) took {duration(facts.planned.duration.max)} at the most; they are not counted "
            "above."
        )


def describe_lost(lost: Lost) -> str:
    """Text for a table: '1,204 committed, 31 not committed'."""
    rest = lost.tail - lost.committed
    texts = [f"{lost.committed:,} committed"] if lost.committed else []
    texts += [f"{rest:,} not committed"] if rest > 0 else []
    texts += [f"{lost.unsized:,} times an unknown number"] if lost.unsized else []
    return ", ".join(texts) or "none known"
