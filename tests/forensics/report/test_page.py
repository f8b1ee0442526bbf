"""HTML page and Markdown of a report: contents, and escaping of texts from logs."""

import re
from html.parser import HTMLParser

import pytest
from pyspark.sql import SparkSession

from kactl.decide.whatif.coverage import Coverage
from kactl.decide.whatif.outcomes import Answer, Cost, Kind, Now, Outcome, Scenario, Sweep
from kactl.forensics.report.collect import collect
from kactl.forensics.report.facts import Report
from kactl.forensics.report.make import describe
from kactl.forensics.report.markdown import markdown, plain
from kactl.forensics.report.model import Scope
from kactl.forensics.report.page import page
from kactl.forensics.wording import Moments

from .builders import QUIET
from .night import HOSTILE, MANIFEST, NIGHT, tables

BERLIN = Moments("Europe/Berlin")
# Tags that a page may contain.
TAGS = frozenset(
    {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "section",
        "footer",
        "h1",
        "h2",
        "h3",
        "p",
        "br",
        "dl",
        "div",
        "dt",
        "dd",
        "ol",
        "ul",
        "li",
        "strong",
        "span",
        "nav",
        "a",
        "figure",
        "figcaption",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "svg",
        "defs",
        "pattern",
        "rect",
        "line",
        "path",
        "text",
    }
)
_EMPTY = frozenset({"meta", "br"})


class Reader(HTMLParser):
    """Reads tags, attributes and texts. Raises AssertionError if tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def night(spark: SparkSession) -> Report:
    return describe(collect(spark, MANIFEST, tables(spark, NIGHT), Scope()), BERLIN)


@pytest.fixture(scope="module")
def html(night: Report) -> str:
    return page(night, BERLIN)


def test_page_has_no_scripts_and_no_external_resources(html: str) -> None:
    read = Reader(html)

    assert set(read.tags) <= TAGS
    assert not [name for name, _ in read.attributes if name.startswith("on") or name in ("src", "style", "srcset")]
    assert all((value or "").startswith("#") for name, value in read.attributes if name == "href")
    assert not re.search(r"@import|url\((?!#)|@font-face", html)


def test_text_from_logs_is_escaped(html: str) -> None:
    read = Reader(html)

    assert "<img" not in html
    assert "alert(1)" in "".join(read.texts)
    assert any(HOSTILE in text for text in read.texts)


def test_page_contains_the_facts(html: str) -> None:
    text = " ".join(Reader(html).texts)

    assert (
        "3 partitions of 2 topics had no leader for 12 min 10 s in all (no less than 11 min 2 s), one for 10 min, "
        "and at least 20 committed records were lost." in text
    )
    assert "In 2 incidents, from 12:00:00 to 13:10:00 on 1 May 2024" in text  # Berlin
    assert "At least 20 records were lost that had been committed" in text
    assert "1 election was unclean, all of them for certain" in text
    assert "There is no log of broker 1" in text
    assert "1 away since 12:00:00.000 for 31.0 s; 2 not known to be away" in text
    assert "leader-epoch-back" in text
    assert "blocked by broker 1" in text
    assert "replicas are dead" in text
    assert "these outages used 7 % of 2 h 53 min (at an objective of 99.9 %)" in text
    assert "1 leader was moved that was alive according to these logs" in text


def test_print_style_is_white(html: str) -> None:
    assert re.findall(r"@media ([^{]*prefers-color-scheme[^{]*) \{", html) == [
        "screen and (prefers-color-scheme: dark)"
    ]


def test_parts_and_incidents_begin_a_printed_page(html: str) -> None:
    parts = re.findall(r'<section id="([\w-]+)" class="(part|incident) folded">', html)

    assert parts[:4] == [
        ("incidents", "part"),
        ("incident-1", "incident"),
        ("incident-2", "incident"),
        ("objectives", "part"),
    ]
    assert re.search(r"@media print \{.*\.part, \.incident \{ break-before: page; \}", html, re.DOTALL)


def test_every_link_has_a_target(html: str) -> None:
    read = Reader(html)
    ids = [value for name, value in read.attributes if name == "id"]

    assert len(ids) == len(set(ids))
    assert {(value or "")[1:] for name, value in read.attributes if name == "href"} <= set(ids)


def outcome(*brokers: int, offline: int, explained: str) -> Outcome:
    return Outcome(
        scenario=Scenario(brokers=brokers, alone=brokers),
        offline=offline,
        offline_more=offline,
        under_min=offline,
        under_min_more=0,
        recoverable=0,
        lossy=0,
        lone=0,
        lone_more=0,
        moved=0,
        busiest=None,
        busiest_leads=0,
        busiest_led=0,
        explained=explained,
    )


def test_next_failures_are_shown() -> None:
    now = Now(
        source="forensics",
        at_us=None,
        partitions=40,
        topics=2,
        unknown=3,
        stuck=0,
        brokers=(1, 2, 3),
        away=(),
        racks={},
        min_isr=1,
        outcome=outcome(offline=0, explained="Every partition has a leader."),
    )
    worst = outcome(1, 2, offline=7, explained="If 1 and 2 fail, 7 partitions have no leader.")
    pairs = Sweep(kind=Kind.PAIRS, scenarios=3, harmless=2, writable=2, worst=(worst,), seconds=0)
    cost = Cost(classes=1, scenarios=3, seconds=0)
    coverage = Coverage.of(known=40, unknown=3)
    answer = Answer(coverage=coverage, now=now, killed=(), sweeps=(pairs,), rolling=(), cost=cost, notes=())

    text = " ".join(Reader(page(describe(QUIET, BERLIN, answer), BERLIN)).texts)

    assert "40 of 43 partitions known (nothing here is about the other 3), as the logs end." in text
    assert "Of 3 ways to lose any two brokers 2 would take no known partition offline." in text
    assert "If 1 and 2 fail, 7 partitions have no leader." in text


def test_empty_report_states_it() -> None:
    html = page(describe(QUIET, BERLIN), BERLIN)
    text = " ".join(Reader(html).texts)

    assert "No outage and no loss of records was found in these logs." in text
    assert "Incidents" not in text
    assert "<svg" not in html


def test_markdown_has_the_same_content(night: Report) -> None:
    text = markdown(night, BERLIN)

    first, _, title = text.splitlines()[:3]
    assert first.startswith("Coverage: logs of ")
    assert title.startswith("# 3 partitions of 2 topics had no leader")
    assert "## What the logs cannot tell" in text
    assert "### Incident 1: from 12:00:00 to 12:01:10 on 1 May 2024" in text
    assert "## Objectives of availability" in text
    assert "| unexplained: a live leader was moved, and no line gives the reason | under 0.1 |" in text
    rows = [line for line in text.splitlines() if line.startswith("| orders-1 |")]
    assert any("| 20 | 31 |" in line for line in rows)


def test_markup_from_logs_is_escaped_in_markdown(night: Report) -> None:
    text = markdown(night, BERLIN)

    assert "<img" not in re.sub(r"\\<", "", text)
    widths = {
        line.replace("\\|", "").count("|") for line in text.splitlines() if "orders-0" in line and "bounded" not in line
    }
    assert widths  # rows stay rows
    for line in text.splitlines():
        if line.startswith("| \\<img"):
            header = next(each for each in reversed(text[: text.index(line)].splitlines()) if each.startswith("| ---"))
            assert line.replace("\\|", "").count("|") == header.count("|")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("__consumer_offsets", r"\_\_consumer\_offsets"),
        ("two\nlines", "two lines"),
        ("- no list", r"\- no list"),
        ("1. no list", r"1\. no list"),
        ("10:00", "10:00"),
        (r"\<b>", r"\\\<b\>"),
        ("&lt;", r"\&lt;"),
    ],
)
def test_markup_is_escaped(text: str, escaped: str) -> None:
    assert plain(text) == escaped
