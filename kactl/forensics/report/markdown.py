"""Report as Markdown, for tickets and wikis: the texts and tables of the page, without pictures."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from kactl.forensics.wording import Moments
from kactl.runtime.escaping import harmless

from .facts import Report
from .page import asked, figures, sections
from .section import Section, Table

# Characters that Markdown, or HTML within it, would take for markup.
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>|~&#!])")
_SPACE: Final = re.compile(r"\s+")
_LINE_BEGIN: Final = re.compile(r"^(\d+)([.)])|^([-+=])")


def markdown(report: Report, moments: Moments) -> str:
    """Returns the whole report."""
    return "\n".join(_lines(report, moments)).rstrip() + "\n"


def plain(text: str) -> str:
    """Returns a text on one line in which nothing is markup or a control sequence of a terminal."""
    shown = harmless(_SPACE.sub(" ", text).strip())
    escaped = _MARKUP.sub(r"\\\1", shown)
    return _LINE_BEGIN.sub(lambda match: f"{match[1]}\\{match[2]}" if match[1] else f"\\{match[3]}", escaped)


def _lines(report: Report, moments: Moments) -> Iterator[str]:
    yield plain(report.coverage.stated)
    yield ""
    yield f"# {plain(report.headline)}"
    yield ""
    if asked(report, moments):
        yield f"Asked for: {plain(asked(report, moments))}"
        yield ""
    for line in report.brief.lines:
        yield f"- **{plain(line.name)}** {plain(line.text)}"
    yield ""
    yield from _table(Table(header=("", ""), rows=tuple((name, value) for name, value, _ in figures(report))))
    yield from _list("Summary", report.summary)
    if report.advice:
        yield "## What to do"
        yield ""
        for advice in report.advice:
            yield f"- **{plain(advice.do)}** {plain(advice.because)}"
        yield ""
    yield from _list("What the logs cannot tell", report.limits)
    for section in sections(report, moments):
        yield from _section(section)
    yield f"kactl {plain(report.facts.made_by)}; times are of {plain(moments.name)}"


def _list(title: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield f"## {title}"
        yield ""
        for sentence in sentences:
            yield f"- {plain(sentence)}"
        yield ""


def _section(section: Section) -> Iterator[str]:
    yield f"{'#' * section.level} {plain(section.title)}"
    yield ""
    for paragraph in section.paragraphs:
        yield plain(paragraph)
        yield ""
    for table in section.tables:
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield f"**{plain(table.caption)}**"
        yield ""
    yield _row(table.header)
    yield "| " + " | ".join("---:" if right else "---" for right in table.right) + " |"
    for row in table.rows:
        yield _row(row)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(plain(cell) for cell in cells) + " |"
