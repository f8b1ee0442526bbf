"""Limits of the logs and the consequences for the report. Without them a report would promise too much."""

from collections.abc import Iterator
from typing import Final

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.silence import DEFAULT
from kactl.forensics.wording import brokers, count, duration, listed, share, writers

from .facts import Facts, LogDetail, Sources

# Kinds of files with the decisions of a controller.
_CONTROLLERS: Final = frozenset({Kind.CONTROLLER, Kind.DUMP, Kind.KACTL})
_COVERAGE_LOW: Final = 0.9
# Below this error, times of different brokers are as comparable as those of one.
_CLOCK_US: Final = 20_000


def limits(facts: Facts) -> tuple[str, ...]:
    """Returns sentences, the most severe limit first."""
    sources = facts.sources
    return (
        *_missing_logs(facts),
        *_sessions(facts),
        *_levels(sources),
        *_losses(facts),
        *_clocks(sources),
        *_files(sources),
        *_restriction(facts),
    )


def is_blind(facts: Facts) -> bool:
    """True if these logs show no leader, so that an empty result means nothing."""
    return facts.sources.partitions == 0 and not facts.forced.outages


def unread(sources: Sources) -> str:
    """Returns what is known to be missing from the logs and may be anything, as a clause; empty if there is nothing."""
    clauses = []
    if paths := sources.not_understood:
        clauses.append(f"{count(len(paths), 'file')} of Kafka could not be understood ({listed(paths, most=3)})")
    if number := sources.epochs_missing:
        of = listed(sources.epochs_missing_of, most=3)
        clauses.append(f"{count(number, 'leader epoch')} of {of} {'is' if number == 1 else 'are'} in no log")
    if sources.unnamed:
        clauses.append(
            f"the controller changed {count(sources.unnamed, 'partition')} without naming them, as KRaft's does at INFO"
        )
    if sources.jumps:
        ids = sorted({jump.broker for jump in sources.jumps})
        clauses.append(f"the clock of {writers(ids)} was set back meanwhile")
    return ", and ".join(clauses)


def can_count_losses(facts: Facts) -> bool:
    """True if any line has the end of a leader's log."""
    return facts.sources.with_log_end > 0


def brokers_at_info(sources: Sources) -> list[int]:
    """Returns the brokers without a line at TRACE in state-change.log."""
    return [log.speaker for log in _state_change_logs(sources) if not log.trace_hours and log.speaker is not None]


def _state_change_logs(sources: Sources) -> list[LogDetail]:
    return [log for log in sources.levels if log.kind == Kind.STATE_CHANGE and log.speaker is not None]


def _missing_logs(facts: Facts) -> Iterator[str]:
    sources = facts.sources
    if is_blind(facts):
        yield (
            "No line of these logs shows a partition's leader, so an empty report means nothing: add "
            "state-change.log and controller.log of all brokers, of the time in question."
        )
    if sources.silent:
        yield (
            f"There is no log of {brokers(sources.silent)}, of {len(sources.brokers):,} known: their roles, records "
            "and truncations are only known from other logs."
        )
    if sources.partitions and not sources.with_detections and not _CONTROLLERS & set(sources.kinds):
        yield (
            "No line shows when a controller noticed that a broker was gone, as those of controller.log do: begins of "
            "outages are bounded by lines of brokers and state-change.log, and causes may be missing."
        )


def _sessions(facts: Facts) -> Iterator[str]:
    """Assumed session timeouts: they move the best estimate, and bound nothing."""
    assumed: dict[int, set[int]] = {}
    for absence in facts.absences:
        if absence.session_by == DEFAULT and absence.session_ms is not None and not absence.planned:
            assumed.setdefault(absence.session_ms, set()).add(absence.broker)
    for session_ms, ids in sorted(assumed.items()):
        yield (
            f"No log has the session timeout of {brokers(sorted(ids))}: {duration(session_ms)}, Kafka's default, is "
            "assumed for the best estimate of when they were lost, and for no bound. It is in the configuration that a "
            "broker prints into server.log when it starts."
        )


def _levels(sources: Sources) -> Iterator[str]:
    info = brokers_at_info(sources)
    logs = _state_change_logs(sources)
    mixed = [log.speaker for log in logs if log.speaker is not None and 0 < log.trace_hours < log.hours]
    if info:
        yield (
            f"state-change.log of {brokers(info)} is at INFO: transitions to OfflinePartition and single requests are "
            "not in it; where outages began is inferred from controller.log, or bounded."
        )
    if sources.unnamed:
        yield (
            "At INFO, a KRaft controller does not log which partitions change, so outages of partitions whose leader "
            "was fenced may be missing: set org.apache.kafka.controller.ReplicationControlManager to DEBUG, or read "
            "the metadata log with Kafka's dump tool."
        )
    if mixed:
        yield f"state-change.log of {brokers(mixed)} is at TRACE in some hours only: the others are known less well."


def _losses(facts: Facts) -> Iterator[str]:
    sources = facts.sources
    if sources.partitions and not can_count_losses(facts):
        yield (
            "No line has the end of a replica's log (brokers log it from 2.6 on, in state-change.log): losses of "
            "records could not be determined."
        )
    elif sources.led and sources.with_log_end < sources.led:
        yield (
            f"The new leader's log end is known for {share(sources.with_log_end, sources.led)} of "
            f"{count(sources.led, 'leadership')}; beyond them losses may be missing."
        )
    if facts.lost.committed:
        yield (
            "Committed records are counted up to the highest known high watermark, which may lag: more may have been "
            "lost, not fewer."
        )


def _clocks(sources: Sources) -> Iterator[str]:
    clocks = sources.clocks
    by_method: dict[str, list[int | None]] = {}
    for clock in clocks:
        by_method.setdefault(clock.how, []).append(clock.broker)
    if "unknown" in by_method and len(clocks) > 1:
        unknown = writers(by_method["unknown"])
        yield f"No line relates the clock of {unknown} to the others': it is assumed to be correct."
    if "contradictory" in by_method:
        contradictory = writers(by_method["contradictory"])
        yield f"The clock of {contradictory} drifted or jumped: its times may be wrong by more than stated."
    for jump in sources.jumps:
        yield (
            f"The clock of broker {jump.broker} was set back by {duration(jump.ms)} to {jump.at:%Y-%m-%d %H:%M:%S} "
            "UTC: the times of its lines before that may be too late by as much, and with them begins, ends and causes."
        )
    if "one-sided" in by_method:
        yield (
            f"The clock of {writers(by_method['one-sided'])} is bounded from one side only (as at INFO): its times may "
            "be off by the transmission time of requests."
        )
    errors_us = {
        clock.broker: (clock.high_us - clock.low_us) / 2
        for clock in clocks
        if clock.high_us is not None and clock.low_us is not None and clock.how == "bounds"
    }
    worst = max(errors_us, key=lambda broker: errors_us[broker], default=None)
    if errors_us.get(worst, 0) >= _CLOCK_US:
        yield (
            f"Clocks are known to within {duration(errors_us[worst] / 1000)} of each other ({writers([worst])} "
            "least well)."
        )


def _files(sources: Sources) -> Iterator[str]:
    broken = [file.path for file in sources.listed if file.error is not None]
    low = [file.path for file in sources.listed if file.coverage is not None and file.coverage < _COVERAGE_LOW]
    if broken:
        yield f"{count(len(broken), 'file')} could not be read, or not to the end: {listed(broken, most=3)}."
    if low:
        yield f"Many lines of {count(len(low), 'file')} were not parsed: {listed(low, most=3)}."
    if sources.unparsed:
        yield (
            f"{count(sources.unparsed, 'line')} of {sources.lines:,} ({share(sources.unparsed, sources.lines)}) should "
            "have been parsed and were not."
        )


def _restriction(facts: Facts) -> Iterator[str]:
    if facts.asked.topic is not None or facts.asked.begin is not None or facts.asked.end is not None:
        yield (
            "This report is restricted: it includes nothing outside the requested scope. Requests to brokers, "
            "levels and clocks are always those of all logs."
        )
