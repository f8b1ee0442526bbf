"""Limits of the logs and the consequences for the report. Without them a report would promise too much."""

from collections.abc import Iterator
from typing import Final

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.silence import DEFAULT

from .facts import Facts
from .wording import brokers, count, duration, listed, share, writers

# Kinds of files with the decisions of a controller.
_CONTROLLERS: Final = frozenset({Kind.CONTROLLER, Kind.DUMP, Kind.KACTL})
_STATES: Final = frozenset({Kind.STATE_CHANGE, Kind.SERVER, Kind.CONTROLLER, Kind.DUMP, Kind.KACTL})
_COVERAGE_LOW: Final = 0.9
# Below this error, times of different brokers are as comparable as those of one.
_CLOCK_US: Final = 20_000


def limits(facts: Facts) -> tuple[str, ...]:
    """Returns sentences, the most severe limit first."""
    return tuple(_limits(facts))


def is_blind(facts: Facts) -> bool:
    """True if these logs show no leader, so that an empty result means nothing."""
    return facts.sources.partitions == 0 and not facts.forced.outages


def can_count_losses(facts: Facts) -> bool:
    """True if any line has the end of a leader's log."""
    return facts.sources.with_log_end > 0


def _limits(facts: Facts) -> Iterator[str]:
    sources = facts.sources
    if is_blind(facts):
        yield (
            "No line of these logs shows a partition's leader, so an empty report means nothing: add "
            "state-change.log and controller.log of all brokers, of the time in question."
        )
    yield from _silent(facts)
    yield from _sessions(facts)
    yield from _levels(facts)
    if sources.partitions and not _CONTROLLERS & set(sources.kinds):
        yield (
            "There is no controller.log: the time at which a broker's death was detected is unknown, so begins of "
            "outages are bounded by lines of brokers and state-change.log, and causes may be missing."
        )
    if sources.partitions and not can_count_losses(facts):
        yield (
            "No line has the end of a replica's log (brokers log it from 2.6 on, in state-change.log): losses of "
            "records could not be looked for."
        )
    elif sources.led and sources.with_log_end < sources.led:
        with_end = share(sources.with_log_end, sources.led)
        yield (
            f"The new leader's log end is known for {with_end} of {count(sources.led, 'leadership')}; beyond them "
            "losses may be missing."
        )
    if facts.lost.committed:
        yield (
            "Committed records are counted up to the highest known high watermark, which may lag: more may have been "
            "lost, not fewer."
        )
    yield from _clocks(facts)
    yield from _files(facts)
    if facts.asked.topic is not None or facts.asked.begin is not None or facts.asked.end is not None:
        yield (
            "This report is restricted: it includes nothing outside the requested scope. Requests to brokers, "
            "levels and clocks are always those of all logs."
        )


def _silent(facts: Facts) -> Iterator[str]:
    silent, known = facts.sources.silent, facts.sources.brokers
    if silent:
        yield (
            f"There is no log of {brokers(silent)}, of {len(known):,} known: their roles, records and truncations "
            "are only known from other logs."
        )


def _sessions(facts: Facts) -> Iterator[str]:
    """Assumed session timeouts: they move the best estimate, and bound nothing."""
    assumed: dict[int, set[int]] = {}
    for each in facts.absences:
        if each.session_by == DEFAULT and each.session_ms is not None and not each.planned:
            assumed.setdefault(each.session_ms, set()).add(each.broker)
    for session_ms, of in sorted(assumed.items()):
        yield (
            f"No log has the session timeout of {brokers(sorted(of))}: {duration(session_ms)}, Kafka's default, is "
            "assumed for the best estimate of when they were lost, and for no bound. It is in the configuration that a "
            "broker prints into server.log when it starts."
        )


def _levels(facts: Facts) -> Iterator[str]:
    states = [each for each in facts.sources.levels if each.kind == Kind.STATE_CHANGE and each.speaker is not None]
    info = [each.speaker for each in states if each.speaker is not None and not each.trace_hours]
    mixed = [each.speaker for each in states if each.speaker is not None and 0 < each.trace_hours < each.hours]
    if info:
        yield (
            f"state-change.log of {brokers(info)} is at INFO: moves to OfflinePartition and single requests are not in "
            "it; where outages began is inferred from controller.log, or bounded."
        )
    if mixed:
        yield f"state-change.log of {brokers(mixed)} is at TRACE in some hours only: the others are known less well."


def _clocks(facts: Facts) -> Iterator[str]:
    clocks = facts.sources.clocks
    unknown = [each.broker for each in clocks if each.how == "unknown"]
    torn = [each.broker for each in clocks if each.how == "contradictory"]
    widths = {
        each.broker: (each.high_us - each.low_us) / 2
        for each in clocks
        if each.high_us is not None and each.low_us is not None and each.how == "bounds"
    }
    one_sided = [each.broker for each in clocks if each.how == "one-sided"]
    if unknown and len(clocks) > 1:
        yield f"Nothing ties the clock of {writers(unknown)} to the others': it is assumed to be correct."
    if torn:
        yield f"The clock of {writers(torn)} drifted or jumped: its times may be wrong by more than stated."
    if one_sided:
        yield (
            f"The clock of {writers(one_sided)} is bounded from one side only (as at INFO): its times may be off by "
            "what requests took on their way."
        )
    if widths:
        worst = max(widths, key=lambda broker: widths[broker])
        if widths[worst] >= _CLOCK_US:
            yield (
                f"Clocks are known to within {duration(widths[worst] / 1000)} of each other ({writers([worst])} "
                "least well)."
            )


def _files(facts: Facts) -> Iterator[str]:
    broken = [each.path for each in facts.sources.listed if each.error is not None]
    low = [each.path for each in facts.sources.listed if each.coverage is not None and each.coverage < _COVERAGE_LOW]
    if broken:
        yield f"{count(len(broken), 'file')} could not be read, or not to the end: {listed(broken, most=3)}."
    if low:
        yield f"Many lines of {count(len(low), 'file')} were not understood: {listed(low, most=3)}."
    if facts.sources.unparsed:
        of = share(facts.sources.unparsed, facts.sources.lines)
        yield (
            f"{count(facts.sources.unparsed, 'line')} of {facts.sources.lines:,} ({of}) should have been understood "
            "and were not."
        )
