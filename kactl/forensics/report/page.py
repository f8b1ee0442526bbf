"""Report as one HTML page without scripts or external resources, with a light and a dark theme, and printable.

Names of topics and texts of logs are untrusted input: the templates escape everything except generated pictures.
"""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from kactl.forensics.wording import Moments, count, duration

from .facts import Report
from .incident_sections import incident_sections, unexplained_section
from .losses import loss_section, unclean_section
from .next_failures import next_section
from .objectives import objective_section
from .other_findings import other_sections
from .overview_picture import overview
from .section import Section
from .sources import source_section


def page(report: Report, moments: Moments) -> str:
    """Returns the whole page."""
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            figures=figures(report),
            overview=overview(report.facts, moments),
            period=_period(report, moments),
            asked=asked(report, moments),
            sections=sections(report, moments),
            made_by=report.facts.made_by,
        )
    )


def sections(report: Report, moments: Moments) -> list[Section]:
    """Returns the sections below summary and advice, in order."""
    facts = report.facts
    return [
        *incident_sections(facts, moments),
        *objective_section(facts, moments),
        *loss_section(facts, moments),
        *unclean_section(facts, moments),
        *unexplained_section(facts, moments),
        *other_sections(facts, moments),
        *next_section(report.next),
        source_section(facts, moments),
    ]


def figures(report: Report) -> list[tuple[str, str, str]]:
    """Returns the key figures at the top: label, value, and whether it is bad."""
    facts = report.facts
    sums, lost = facts.forced, facts.lost
    longest = duration(sums.duration.max) if sums.outages else "none"
    committed = f"{'≥ ' if lost.committed else ''}{lost.committed:,}"
    counts: list[tuple[str, str, float]] = [
        ("partitions without a leader", f"{sums.partitions:,}", sums.partitions),
        ("longest outage", longest, sums.outages),
        ("added up over partitions", duration(sums.total_ms), sums.total_ms),
        ("committed records lost", committed, lost.committed),
        ("other records cut off", f"{lost.tail - lost.committed:,}", lost.tail - lost.committed),
        ("unclean elections", f"{facts.unclean_all:,}", facts.unclean_all),
    ]
    figures = [(name, text, "bad" if value > 0 else "good") for name, text, value in counts]
    if facts.unexplained.outages:
        figures.append(("unexplained changes of leaders", f"{facts.unexplained.outages:,}", "unknown"))
    if not lost.tail and (lost.unsized or not facts.sources.with_log_end):
        figures[3:5] = [("records lost", "some, not counted" if lost.unsized else "not known", "unknown")]
    if not facts.sources.partitions and not sums.outages:
        figures[:3] = [("partitions without a leader", "not known", "unknown")]
    return figures


def asked(report: Report, moments: Moments) -> str:
    """Returns the requested scope, if the report is restricted."""
    scope = report.facts.asked
    parts = (
        None if scope.topic is None else f"topics {scope.topic}",
        None if scope.begin is None else f"from {moments.seconds(scope.begin)}",
        None if scope.end is None else f"to {moments.seconds(scope.end)}",
    )
    return ", ".join(part for part in parts if part)


def _period(report: Report, moments: Moments) -> str:
    sources = report.facts.sources
    logs = f"{count(sources.files, 'log')}, {count(sources.lines, 'line')}"
    if sources.begin is None or sources.end is None:
        return logs
    return f"{logs}, {moments.seconds(sources.begin)} to {moments.seconds(sources.end)} ({moments.name})"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("kactl.forensics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
