"""Coverage of a report: the share of brokers, files, lines and time that its logs cover."""

from typing import Final

from kactl.forensics.coverage import ENOUGH, share
from kactl.forensics.event_types import Kind

from .facts import Facts, ReportCoverage
from .wording import Moments, brokers, count

# The controller's own record is complete without a log of any broker.
_COMPLETE: Final = frozenset({Kind.DUMP, Kind.KACTL})


def covered(facts: Facts, moments: Moments) -> ReportCoverage:
    """Returns the coverage of a report on these facts."""
    sources = facts.sources
    files, known, silent = sources.files + sources.unreadable, len(sources.brokers), len(sources.silent)
    is_complete = bool(sources.kinds) and _COMPLETE.issuperset(sources.kinds)
    of_brokers = 1.0 if is_complete else share(known - silent, known)
    of_files = share(files - sources.broken, files)
    of_lines = share(sources.events, sources.events + sources.unparsed)
    of_time = _of_time(facts)
    least = min(of_brokers, of_files, of_lines, of_time)
    none_of = f" (none of {brokers(sources.silent)})" if silent else ""
    said = [
        f"logs of {known - silent:,} of {count(known, 'broker')}{none_of}",
        f"{files - sources.broken:,} of {count(files, 'file')} read to the end",
        f"{_percent(of_lines)} of the lines that matter understood",
    ]
    if sources.begin is not None and sources.end is not None:
        part = "" if of_time >= 1 else f", {_percent(of_time)} of the time asked for"
        said.append(f"{moments.seconds(sources.begin)} to {moments.seconds(sources.end)} ({moments.name}){part}")
    return ReportCoverage(
        stated=f"Coverage: {', '.join(said)}; {count(sources.partitions, 'partition')} known.",
        share=least,
        is_partial=least < ENOUGH,
        brokers=known,
        brokers_missing=sources.silent,
        brokers_share=of_brokers,
        files=files,
        files_broken=sources.broken,
        files_share=of_files,
        lines_share=of_lines,
        begin=sources.begin,
        end=sources.end,
        time_share=of_time,
        partitions=sources.partitions,
    )


def _of_time(facts: Facts) -> float:
    """The share of the requested time that the logs cover."""
    begin, end = facts.sources.begin, facts.sources.end
    if begin is None or end is None:
        return 1.0
    first, last = facts.asked.begin or begin, facts.asked.end or end
    asked_ms = round((last - first).total_seconds() * 1000)
    reached_ms = round((min(last, end) - max(first, begin)).total_seconds() * 1000)
    return share(max(0, reached_ms), asked_ms) if asked_ms > 0 else 1.0


def _percent(part: float) -> str:
    """Text such as '97.5 %', '100 %'; a smaller share is never shown as 100."""
    return f"{100 * part:.4g} %"
