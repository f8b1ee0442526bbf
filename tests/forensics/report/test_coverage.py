"""Coverage of reports: shares, the first line, and when a report is partial."""

from typing import Any

import msgspec
import pytest

from kactl.forensics.report.facts import Facts
from kactl.forensics.report.make import describe
from kactl.forensics.report.markdown import markdown
from kactl.forensics.report.model import Scope
from kactl.forensics.report.page import page
from kactl.forensics.report.sources import coverage
from kactl.forensics.wording import Moments
from tests.forensics.jobs.tables import moment

from .builders import QUIET, SOURCES

UTC = Moments("UTC")


def quiet(asked: Scope | None = None, **sources: Any) -> Facts:
    facts = msgspec.structs.replace(QUIET, sources=msgspec.structs.replace(SOURCES, **sources))
    return facts if asked is None else msgspec.structs.replace(facts, asked=asked)


def test_all_brokers_files_and_lines_are_full_coverage() -> None:
    result = coverage(quiet(), UTC)

    assert (result.share, result.is_partial) == (1, False)
    assert result.stated == (
        "Coverage: logs of 3 of 3 brokers, 3 of 3 files read to the end, 100 % of the relevant lines parsed, "
        "2024-05-01 09:00:00 to 2024-05-01 11:10:00 (UTC); 50 partitions known."
    )


@pytest.mark.parametrize(
    ("sources", "share", "stated"),
    [
        ({"silent": (2,)}, 0.6666, "logs of 2 of 3 brokers (none of broker 2)"),
        ({"unreadable": 1, "broken": 1}, 0.75, "3 of 4 files read to the end"),
        ({"broken": 1}, 0.6666, "2 of 3 files read to the end"),
        ({"events": 730, "unparsed": 270}, 0.73, "73 % of the relevant lines parsed"),
        ({"events": 99_999, "unparsed": 1}, 0.9999, "99.99 % of the relevant lines parsed"),
    ],
    ids=["broker", "unreadable", "broken", "lines", "nearly"],
)
def test_coverage_is_the_least_of_its_shares(sources: dict[str, Any], share: float, stated: str) -> None:
    result = coverage(quiet(**sources), UTC)

    assert result.share == share
    assert result.is_partial == (share < 0.95)
    assert stated in result.stated


def test_requested_time_beyond_the_logs_is_not_covered() -> None:
    asked = Scope(begin=moment(0), end=moment(8400))

    result = coverage(quiet(asked), UTC)

    assert (result.time_share, result.is_partial) == (0.5, True)
    assert "2024-05-01 11:10:00 (UTC), 50 % of the requested time" in result.stated


def test_complete_controller_record_needs_no_broker_log() -> None:
    result = coverage(quiet(kinds=("dump",), silent=(1, 2, 3)), UTC)

    assert (result.brokers_share, result.is_partial) == (1, False)
    assert "logs of 0 of 3 brokers (none of brokers 1, 2 and 3)" in result.stated


def test_page_and_markdown_begin_with_the_coverage() -> None:
    report = describe(quiet(silent=(2,)), UTC)

    html, text = page(report, UTC), markdown(report, UTC)

    assert f'<header>\n<p class="coverage partial">{report.coverage.stated}</p>' in html
    assert text.splitlines()[0].startswith("Coverage: logs of 2 of 3 brokers (none of broker 2)")
    assert msgspec.json.encode(report).startswith(b'{"coverage":')
