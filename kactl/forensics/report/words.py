"""Summary of a report: observed facts, inferred facts, and unknowns.

A sentence is only included if the facts support it, and none states more than they do.
"""

from collections.abc import Iterator
from typing import Final

from .facts import Facts
from .limits import can_count_losses, is_blind
from .model import Incident, Lost, Share, Sums
from .objective_section import describe_used
from .wording import Moments, brokers, count, duration, listed, share

# Causes of lost leaders, as they are printed.
CAUSES: Final = {
    "broker-failure": "a broker failed",
    "controlled-shutdown": "a broker was shut down in order",
    "preferred": "leaders went back to their preferred brokers",
    "reassign": "partitions were moved to other brokers",
    "replica-failure": "a disk of a broker failed",
    "no-live-replica": "no replica that could lead was alive",
    "controller-change": "the controller went with the leader, and another one had to take over first",
    "unknown": "the logs do not say why",
}


def headline(facts: Facts) -> str:
    """Returns one sentence."""
    sums, lost = facts.forced, facts.lost
    said = []
    if sums.outages:
        where = f"{count(sums.partitions, 'partition')} of {count(sums.topics, 'topic')}"
        said.append(f"{where} had no leader for {_in_all(sums)}")
    if lost.committed:
        said.append(f"at least {count(lost.committed, 'committed record')} {_was(lost.committed)} lost")
    elif lost.tail:
        said.append(f"at least {count(lost.tail, 'record')} not yet committed {_was(lost.tail)} lost")
    elif lost.unsized:
        said.append("records were lost, and no line says how many")
    if facts.unclean_all and not lost.tail:
        said.append(count(facts.unclean_all, "unclean election"))
    if said:
        text = ", and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
        return text[:1].upper() + text[1:] + "."
    if is_blind(facts):
        return "These logs cannot say whether anything was unavailable."
    if facts.unexplained.outages:
        changes = count(facts.unexplained.outages, "change")
        return f"No leader was lost as far as these logs tell; {changes} of leaders stay unexplained."
    return "No outage and no loss of records was found in these logs."


def _in_all(sums: Sums) -> str:
    """The time without leaders, added up over partitions: best estimate, bounds, and the longest outage."""
    if sums.outages == 1:
        return duration(sums.total_ms) + _bounded(sums)
    return f"{duration(sums.total_ms)} in all{_bounded(sums)}, one for {duration(sums.duration.max)}"


def _bounded(sums: Sums) -> str:
    """Text such as ' (no less than 31.0 s, no more than 48.2 s)'; empty if the bounds equal the best estimate."""
    low, high = duration(sums.least_ms), None if sums.most_ms is None else duration(sums.most_ms)
    if low == high == duration(sums.total_ms):
        return ""
    return f" (no less than {low}" + (")" if high is None else f", no more than {high})")


def summary(facts: Facts, moments: Moments) -> tuple[str, ...]:
    """Returns the most important sentences."""
    return tuple(_summary(facts, moments))


def _summary(facts: Facts, moments: Moments) -> Iterator[str]:
    if facts.forced.outages:
        yield from _what(facts, moments)
        yield from _how_long(facts.forced)
        if facts.objectives is not None:
            yield from describe_used(facts.objectives.forced, facts.objectives.period_ms)
        yield from _why(facts)
    elif facts.sources.begin is not None and facts.sources.end is not None and not is_blind(facts):
        lost = "that a leader was lost" if facts.unexplained.outages else "a unplanned time without a leader"
        yield (
            f"The logs reach {moments.stretch(facts.sources.begin, facts.sources.end)} and know of "
            f"{count(facts.sources.partitions, 'partition')} of {count(facts.sources.topics, 'topic')}; in none of "
            f"them does a line show {lost}."
        )
    yield from _losses(facts)
    if facts.unclean_all:
        sure = facts.unclean_sure
        how = "all of them for certain" if sure == facts.unclean_all else f"{sure:,} of them for certain"
        yield (
            f"{count(facts.unclean_all, 'election')} {_was(facts.unclean_all)} unclean, {how}: a replica "
            "that was not in sync became leader, so that records of other replicas could be removed."
        )
    if facts.unexplained.outages:
        number = facts.unexplained.outages
        yield (
            f"{count(number, 'change')} of leaders {_was(number)} unexplained: a live leader was moved, and "
            f"no line gives the reason. They took {duration(facts.unexplained.duration.max)} at the most; they are not "
            "counted above."
        )
    if facts.planned.outages:
        yield (
            f"{count(facts.planned.outages, 'change')} of leaders on request (preferred elections, moves, controlled "
            f"shutdowns) took {duration(facts.planned.duration.max)} at the most; they are not counted above."
        )


def _what(facts: Facts, moments: Moments) -> Iterator[str]:
    sums = facts.forced
    where = f"{count(sums.partitions, 'partition')} of {count(sums.topics, 'topic')}"
    of = f" (of {facts.sources.partitions:,} in the logs)" if facts.sources.partitions >= sums.partitions else ""
    if facts.incidents_all == 1 and facts.incidents:
        (incident,) = facts.incidents
        when = f"{moments.stretch(incident.begin, incident.end)} ({duration(incident.span_ms)} in all)"
        yield f"Within one incident, {when}, {where}{of} had no leader that clients could use."
    else:
        all_ = (*facts.incidents, *facts.others)
        begin, end = min(each.begin for each in all_), max(each.end for each in all_)
        yield (
            f"In {count(facts.incidents_all, 'incident')}, {moments.stretch(begin, end)}, {where}{of} had no leader "
            "that clients could use."
        )


def _how_long(sums: Sums) -> Iterator[str]:
    times = sums.duration
    if sums.outages > 1:
        yield (
            f"Half of the {sums.outages:,} outages took no more than {duration(times.p50)}, nine of ten no more than "
            f"{duration(times.p90)}, and the longest {duration(times.max)}."
        )
    most = f", and no more than {duration(sums.most_ms)}" if sums.most_ms is not None else ""
    exact = sums.least_ms == sums.most_ms == sums.total_ms
    bounds = "" if exact else f"; it was no less than {duration(sums.least_ms)}{most}"
    yield f"Added up over partitions that is {duration(sums.total_ms)}{bounds}."
    if sums.observed < sums.outages:
        guessed = [(sums.inferred, "inferred from other lines"), (sums.bounded, "only bounded by the lines around it")]
        said = listed([f"{number:,} {_was(number)} {how}" for number, how in guessed if number])
        yield f"Of these outages {sums.observed:,} {_was(sums.observed)} observed from beginning to end, {said}."
    if sums.open:
        yield f"{count(sums.open, 'outage')} had not ended where the logs end; their time is counted up to there."
    if sums.attempts_failed:
        yield f"{count(sums.attempts_failed, 'election')} failed before one succeeded, or none did."


def _why(facts: Facts) -> Iterator[str]:
    """Causes by lost time, over the shown incidents."""
    causes = together(facts.incidents, "causes")
    total = sum(each.total_ms for each in causes)
    said = [
        f"{CAUSES.get(each.name, each.name)} ({share(each.total_ms, total)} of the time)"
        for each in causes
        if each.total_ms or total == 0
    ]
    if said:
        few = " in the incidents shown" if facts.incidents_all > len(facts.incidents) else ""
        yield f"Why{few}: {'; '.join(said[:4])}."
    lost = [each for each in together(facts.incidents, "brokers") if each.name != "unknown"]
    if lost:
        names = [int(each.name) for each in lost]
        yield f"The leaders that were lost were on {brokers(names)}."


def together(incidents: tuple[Incident, ...], way: str) -> list[Share]:
    """Returns the shares of several incidents, added up, the worst first."""
    found: dict[str, Share] = {}
    for incident in incidents:
        for each in getattr(incident, way):
            before = found.get(each.name)
            if before is None:
                found[each.name] = each
            else:
                found[each.name] = Share(
                    name=each.name,
                    outages=before.outages + each.outages,
                    partitions=before.partitions + each.partitions,
                    total_ms=before.total_ms + each.total_ms,
                    longest_ms=max(before.longest_ms, each.longest_ms),
                )
    return sorted(found.values(), key=lambda each: (-each.total_ms, -each.outages, each.name))


def _losses(facts: Facts) -> Iterator[str]:
    lost = facts.lost
    if lost.committed:
        yield (
            f"At least {count(lost.committed, 'record')} {_was(lost.committed)} lost that had been committed, that is, "
            f"acknowledged to writers with acks=all{_sure(lost.committed_sure, lost.committed)}."
        )
    rest = lost.tail - lost.committed
    if rest > 0:
        further = "A further " if lost.committed else ""
        records = count(rest, "record")
        yield (
            f"{further}{records} {_was(rest)} removed that {_was(rest)} not known to be "
            f"committed{_sure(lost.tail_sure - lost.committed_sure, rest)}: writers with acks=0 or 1 lost them, "
            "writers with acks=all had received no acknowledgement for them."
        )
    if lost.unsized:
        yield (
            f"{count(lost.unsized, 'time')} a replica's log was truncated, and no line states by how much: that is "
            "not included above."
        )
    if lost.tail or lost.unsized:
        return
    if not can_count_losses(facts):
        yield "These logs cannot show whether records were lost: no line has the end of a replica's log."
    elif facts.forced.outages or facts.unclean_all:
        yield "Nothing in these logs shows that records were lost."


def _sure(sure: int, of: int) -> str:
    if sure >= of:
        return ""
    if sure <= 0:
        return " (not certain: the history of the replicas is incomplete in these logs)"
    return f" ({sure:,} of them for certain)"


def lost_in_words(lost: Lost) -> str:
    """Text for a table: '1,204 committed, 31 not'."""
    rest = lost.tail - lost.committed
    unsized = [f"{lost.unsized:,} times an unknown number"] if lost.unsized else []
    said = [f"{lost.committed:,} committed"] if lost.committed else []
    return ", ".join(said + ([f"{rest:,} not committed"] if rest > 0 else []) + unsized) or "none known"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
