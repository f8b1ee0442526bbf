"""Report as one HTML page without scripts or external resources, with a light and a dark theme, and printable.

Names of topics and texts of logs are untrusted input: the templates escape everything except generated pictures.
"""

from functools import cache
from typing import TYPE_CHECKING

from .facts import Report
from .incident_sections import incident_sections, unexplained_section
from .loss_sections import loss_sections
from .next_section import next_section
from .objective_section import objective_section
from .other_sections import other_sections
from .section import Section
from .source_section import source_section
from .wording import Moments, count, duration

if TYPE_CHECKING:
    from jinja2 import Environment


def page(report: Report, moments: Moments) -> str:
    """Returns the whole page."""
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            figures=figures(report),
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
        *loss_sections(facts, moments),
        *unexplained_section(facts, moments),
        *other_sections(facts, moments),
        *next_section(report.next),
        *source_section(facts, moments),
    ]


def figures(report: Report) -> list[tuple[str, str, str]]:
    """Returns the key figures at the top: label, value, and whether it is bad."""
    facts = report.facts
    sums, lost = facts.forced, facts.lost
    bad, good = "bad", "good"
    found = [
        ("partitions without a leader", f"{sums.partitions:,}", bad if sums.partitions else good),
        ("longest outage", duration(sums.duration.max) if sums.outages else "none", bad if sums.outages else good),
        ("added up over partitions", duration(sums.total_ms), bad if sums.total_ms else good),
        (
            "committed records lost",
            f"{'≥ ' if lost.committed else ''}{lost.committed:,}",
            bad if lost.committed else good,
        ),
        ("other records cut off", f"{lost.tail - lost.committed:,}", bad if lost.tail > lost.committed else good),
        ("unclean elections", f"{facts.unclean_all:,}", bad if facts.unclean_all else good),
    ]
    if facts.unexplained.outages:
        found.append(("unexplained changes of leaders", f"{facts.unexplained.outages:,}", "unknown"))
    if not lost.tail and (lost.unsized or not facts.sources.with_log_end):
        found[3:5] = [("records lost", "some, not counted" if lost.unsized else "not known", "unknown")]
    if not facts.sources.partitions and not sums.outages:
        found[:3] = [("partitions without a leader", "not known", "unknown")]
    return found


def asked(report: Report, moments: Moments) -> str:
    """Returns the requested scope, if the report is restricted."""
    given = report.facts.asked
    said = []
    if given.topic is not None:
        said.append(f"topics {given.topic}")
    if given.begin is not None:
        said.append(f"from {moments.seconds(given.begin)}")
    if given.end is not None:
        said.append(f"to {moments.seconds(given.end)}")
    return ", ".join(said)


def _period(report: Report, moments: Moments) -> str:
    sources = report.facts.sources
    logs = f"{count(sources.files, 'log')}, {count(sources.lines, 'line')}"
    if sources.begin is None or sources.end is None:
        return logs
    return f"{logs}, {moments.seconds(sources.begin)} to {moments.seconds(sources.end)} ({moments.name})"


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("kactl.forensics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
