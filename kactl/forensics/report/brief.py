"""The first five lines of a report: severity, end, course, cause, and the first thing to do."""

from collections.abc import Sequence
from typing import Final

from kactl.forensics.wording import Moments, brokers, count, count_was, duration, sentence

from .facts import Advice, Brief, Facts, Line, Severity
from .limits import is_blind, unread
from .summary import CAUSES, together

# Writers and readers give up within a minute or two by default; a shorter outage is a delay for most of them.
MAJOR_MS: Final = 60_000


def brief(facts: Facts, summary: Sequence[str], advice: Sequence[Advice], moments: Moments) -> Brief:
    """Returns the lines; `summary` and `advice` are those of the report."""
    level, because = severity(facts)
    over = is_over(facts)
    texts = {
        "Severity": f"{level}: {because}",
        "Is it over?": _state_of_end(facts, over, moments),
        "What happened": summary[0] if summary else "Nothing that these logs show.",
        "Why": _why(facts),
        "What to do first": advice[0].do if advice else "Nothing follows from these logs.",
    }
    lines = tuple(Line(name=name, text=sentence(text)) for name, text in texts.items())
    return Brief(severity=level, is_over=over, lines=lines)


def severity(facts: Facts) -> tuple[Severity, str]:
    """Returns how bad the events were, and the reason.

    critical: committed records were lost, or partitions have no leader where the logs end. major: a partition had no
    leader for a minute, or records that were not committed may be lost. minor: shorter outages. none: no outage.
    """
    forced, lost, longest = facts.forced, facts.lost, facts.forced.duration.max or 0
    gaps = unread(facts.sources)
    if lost.committed:
        return "critical", f"at least {count_was(lost.committed, 'committed record')} lost"
    if forced.open and facts.sources.jumps:
        return "unknown", f"{count(forced.open, 'outage')} had not ended where the logs end, but {gaps}"
    if forced.open:
        return "critical", f"{count(forced.open, 'outage')} had not ended where the logs end"
    if forced.outages and longest >= MAJOR_MS:
        return "major", f"a partition had no leader for {duration(longest)}"
    if lost.tail or lost.unsized or facts.unclean_all:
        return "major", "records that were not known to be committed were removed, or may have been"
    if forced.outages:
        shorter = f"no partition was without a leader for more than {duration(longest)}"
        return (
            ("unknown", f"{shorter} according to the lines that were read, but {gaps}") if gaps else ("minor", shorter)
        )
    if is_blind(facts):
        return "unknown", "these logs cannot show whether anything was unavailable"
    if gaps:
        return "unknown", f"no leader was lost according to the lines that were read, but {gaps}"
    return "none", "no leader was lost according to these logs"


def is_over(facts: Facts) -> bool | None:
    """Returns whether all partitions had a leader where the logs end; None if that is not known."""
    if facts.forced.open and not facts.sources.jumps:
        return False
    return None if is_blind(facts) or unread(facts.sources) else True


def _state_of_end(facts: Facts, over: bool | None, moments: Moments) -> str:
    if over is None:
        gaps = unread(facts.sources)
        return f"not known from these logs: {gaps}" if gaps else "not known from these logs"
    if not over:
        return f"no: {count(facts.forced.open, 'outage')} had not ended where the logs end"
    gone = sorted({absence.broker for absence in facts.absences if not (absence.back_at or absence.first_sign_at)})
    rest = f"; {brokers(gone)} had not come back where the logs end" if gone else ""
    ends = [incident.end for incident in (*facts.incidents, *facts.others)]
    if not ends:
        return f"there was no outage{rest}"
    return f"yes: every partition had a leader again at {moments.seconds(max(ends))} ({moments.name}){rest}"


def _why(facts: Facts) -> str:
    causes = [CAUSES.get(cause.name, cause.name) for cause in together(facts.incidents, "causes")[:2]]
    if not causes:
        return "there is no outage to explain" if not facts.unexplained.outages else "the logs do not state it"
    ids = [int(broker.name) for broker in together(facts.incidents, "brokers") if broker.name != "unknown"]
    return "; ".join(causes) + (f". The lost leaders were on {brokers(ids)}" if ids else "")
