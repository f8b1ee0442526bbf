"""Coverage of reports: what is counted, what the first line states, and when a report is partial."""

from typing import Any

import msgspec
import pytest

from kactl.forensics.report.covered import covered
from kactl.forensics.report.facts import Facts
from kactl.forensics.report.make import describe
from kactl.forensics.report.markdown import markdown
from kactl.forensics.report.model import Asked
from kactl.forensics.report.page import page
from kactl.forensics.report.wording import Moments
from tests.forensics.jobs.tables import moment

from .made import QUIET, SOURCES

UTC = Moments("UTC")


def quiet(asked: Asked | None = None, **sources: Any) -> Facts:
    facts = msgspec.structs.replace(QUIET, sources=msgspec.structs.replace(SOURCES, **sources))
    return facts if asked is None else msgspec.structs.replace(facts, asked=asked)


def test_all_brokers_files_and_lines_are_full_coverage() -> None:
    found = covered(quiet(), UTC)

    assert (found.share, found.is_partial) == (1, False)
    assert found.stated == (
        "Coverage: logs of 3 of 3 brokers, 3 of 3 files read to the end, 100 % of the lines that matter understood, "
        "2024-05-01 09:00:00 to 2024-05-01 11:10:00 (UTC); 50 partitions known."
    )


@pytest.mark.parametrize(
    ("sources", "share", "stated"),
    [
        ({"silent": (2,)}, 0.6666, "logs of 2 of 3 brokers (none of broker 2)"),
        ({"unreadable": 1, "broken": 1}, 0.75, "3 of 4 files read to the end"),
        ({"broken": 1}, 0.6666, "2 of 3 files read to the end"),
        ({"events": 730, "unparsed": 270}, 0.73, "73 % of the lines that matter understood"),
        ({"events": 99_999, "unparsed": 1}, 0.9999, "99.99 % of the lines that matter understood"),
    ],
    ids=["broker", "unreadable", "broken", "lines", "nearly"],
)
def test_coverage_is_the_least_of_its_shares(sources: dict[str, Any], share: float, stated: str) -> None:
    found = covered(quiet(**sources), UTC)

    assert found.share == share
    assert found.is_partial == (share < 0.95)
    assert stated in found.stated


def test_time_asked_for_beyond_the_logs_is_not_covered() -> None:
    asked = Asked(begin=moment(0), end=moment(8400))

    found = covered(quiet(asked), UTC)

    assert (found.time_share, found.is_partial) == (0.5, True)
    assert "2024-05-01 11:10:00 (UTC), 50 % of the time asked for" in found.stated


def test_a_complete_record_of_the_controller_needs_no_broker_log() -> None:
    found = covered(quiet(kinds=("dump",), silent=(1, 2, 3)), UTC)

    assert (found.brokers_share, found.is_partial) == (1, False)
    assert "logs of 0 of 3 brokers (none of brokers 1, 2 and 3)" in found.stated


def test_page_and_markdown_begin_with_the_coverage() -> None:
    report = describe(quiet(silent=(2,)), UTC)

    html, text = page(report, UTC), markdown(report, UTC)

    assert f'<header>\n<p class="coverage partial">{report.coverage.stated}</p>' in html
    assert text.splitlines()[0].startswith("Coverage: logs of 2 of 3 brokers (none of broker 2)")
    assert msgspec.json.encode(report).startswith(b'{"coverage":')
