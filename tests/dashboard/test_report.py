"""Reports in a browser: on a phone, and the timeline that they share with the dashboard."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route

from kactl.admin import dashboard_files
from kactl.forensics.report.facts import Advice, Report
from kactl.forensics.report.lanes import Lane, Span, Tick, draw
from kactl.forensics.report.make import describe
from kactl.forensics.report.page import page as html_of
from kactl.forensics.wording import Moments
from tests.forensics.jobs.tables import moment
from tests.forensics.report.builders import absence, bar, incident, night, partition

pytestmark = pytest.mark.slow
UTC = Moments("UTC")
PHONE_HEIGHT_MAX = 6_000


def large() -> Report:
    """Returns a report with as many incidents as are shown in full, long names, and much advice."""
    incidents = tuple(
        incident(
            *(partition(p, bar(at, at + 60), bar(at + 70, at + 75), topic="orders." * 30) for p in range(20)),
            number=number + 1,
            begin=at,
            end=at + 80,
        )
        for number, at in enumerate(range(0, 8000, 1000))
    )
    away = tuple(absence(broker, detected_at=moment(2), back_at=moment(80)) for broker in range(1, 12))
    report = describe(night(incidents=incidents, incidents_all=8, absences=away), UTC)
    advice = tuple(
        Advice(
            rule=f"rule-{number}",
            do=f"Do the thing of number {number}, where it can be done.",
            because="Because. " * 30,
        )
        for number in range(13)
    )
    return msgspec.structs.replace(
        report, advice=advice, summary=report.summary + ("A sentence of the summary. " * 4,) * 6
    )


def opened(browser: Browser, tmp_path: Path, report: Report, width: int) -> Page:
    file = tmp_path / "report.html"
    file.write_text(html_of(report, UTC))
    context = browser.new_context(viewport={"width": width, "height": 844})
    page = context.new_page()
    page.goto(file.as_uri())
    return page


def test_report_is_short_on_a_phone_and_opens_part_by_part(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, large(), 390)
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height < PHONE_HEIGHT_MAX
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#brief .timeline").is_visible()
    assert not page.locator("#incident-3 .pic").first.is_visible()

    page.click("#incident-3 h3 a")

    assert page.locator("#incident-3 .pic").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.emulate_media(media="print")
    assert page.locator("#incident-1 .pic").first.is_visible()
    page.context.close()


def test_report_is_accessible_and_complete_on_a_desk(browser: Browser, tmp_path: Path) -> None:
    report = describe(night(absences=(absence(1, detected_at=moment(2), back_at=moment(80)),)), UTC)
    page = opened(browser, tmp_path, report, 1200)

    assert page.locator("#incident-1 .pic").first.is_visible()
    for width, scheme in ((1200, "light"), (1200, "dark"), (390, "dark")):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 844})
        assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    page.context.close()


def test_dashboard_draws_the_same_timeline(browser: Browser) -> None:
    spans = (
        Span(begin=0, end=100, kind="good", title="before & after", text="hidden"),
        Span(begin=300, end=900, kind="bad", title="away", text="3"),
        Span(begin=950, end=950, kind="one", title="short", text="no room"),
        Span(begin=990, end=5000, kind="two", title="beyond the end"),
    )
    lanes = (
        Lane(name="first", spans=spans),
        Lane(name="<second>", spans=(Span(begin=-5, end=7, kind="warn", title="w"),)),
    )
    ticks = [Tick(at=0, text="0"), Tick(at=333, text="middle"), Tick(at=1000, text="end")]
    drawn = draw("a picture", 0, 1000, ticks, lanes)

    page = browser.new_page()
    page.route("http://dashboard.test/**", _serve)
    page.goto("http://dashboard.test/frame.html")
    spec = msgspec.to_builtins({"label": "a picture", "begin": 0, "end": 1000, "ticks": ticks, "lanes": lanes})
    script = "async (spec) => (await import('http://dashboard.test/timeline.js')).timeline(spec).outerHTML"
    in_browser = page.evaluate(script, spec)
    page.close()

    assert _elements(in_browser) == _elements(drawn)
    assert len(_elements(drawn)) > 20


def _serve(route: Route) -> None:
    file = dashboard_files.files()[route.request.url.rpartition("/")[2]]
    route.fulfill(body=file.content, content_type=file.content_type)


def _elements(text: str) -> list[tuple[str, dict[str, str], str]]:
    root = ElementTree.fromstring(text)
    return [(each.tag.rpartition("}")[2], dict(each.attrib), each.text or "") for each in root.iter()]
