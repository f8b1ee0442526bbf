"""The beginning of a report: severity, whether it is over, the five lines, and the picture."""

from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from kactl.forensics.report.brief import severity
from kactl.forensics.report.facts import Facts, Report
from kactl.forensics.report.make import describe
from kactl.forensics.report.markdown import markdown
from kactl.forensics.report.model import Lost, Percentiles
from kactl.forensics.report.overview_picture import overview
from kactl.forensics.report.page import page
from kactl.forensics.wording import Moments
from tests.forensics.jobs.tables import moment

from .builders import QUIET, absence, bar, controllership, incident, night, partition, sums

UTC = Moments("UTC")


def lasting(ms: int, **given: Any) -> Facts:
    """Returns facts with an outage of some length."""
    return night(forced=sums(duration=Percentiles(known=1, p50=ms, p90=ms, p99=ms, max=ms), **given))


def made(facts: Facts) -> Report:
    return describe(facts, UTC)


def answers(report: Report) -> dict[str, str]:
    return {line.name: line.text for line in report.brief.lines}


@pytest.mark.parametrize(
    ("facts", "level", "because"),
    [
        (lasting(59_999), "minor", "no partition was without a leader for more than 1 min"),
        (lasting(60_000), "major", "a partition had no leader for 1 min"),
        (lasting(500, open=1), "critical", "1 outage had not ended where the logs end"),
        (night(lost=Lost(partitions=1, committed=3, tail=5)), "critical", "at least 3 committed records were lost"),
        (night(forced=QUIET.forced, lost=Lost(partitions=1, tail=5)), "major", "not known to be committed"),
        (night(forced=QUIET.forced, unclean_all=1), "major", "not known to be committed"),
        (QUIET, "none", "no leader was lost"),
    ],
)
def test_severity_follows_from_the_facts(facts: Facts, level: str, because: str) -> None:
    found, reason = severity(facts)

    assert found == level
    assert because in reason


def test_logs_without_partitions_have_an_unknown_severity() -> None:
    blind = night(forced=QUIET.forced, incidents=(), incidents_all=0, sources=_without_partitions())

    report = made(blind)

    assert (report.brief.severity, report.brief.is_over) == ("unknown", None)
    assert answers(report)["Is it over?"] == "Not known from these logs."


def _without_partitions() -> Any:
    return msgspec.structs.replace(QUIET.sources, partitions=0, topics=0)


def test_end_of_the_events_is_stated() -> None:
    over = made(night(absences=(absence(3, detected_at=moment(5)), absence(1, back_at=moment(60)))))
    ongoing = made(lasting(60_000, open=2))

    assert over.brief.is_over is True
    assert answers(over)["Is it over?"].startswith("Yes: every partition had a leader again at 2024-")
    assert answers(over)["Is it over?"].endswith("(UTC); broker 3 had not come back where the logs end.")
    assert ongoing.brief.is_over is False
    assert answers(ongoing)["Is it over?"] == "No: 2 outages had not ended where the logs end."


def test_report_begins_with_five_lines_and_a_picture() -> None:
    report = made(night())
    html, text = page(report, UTC), markdown(report, UTC)

    assert list(answers(report)) == ["Severity", "Is it over?", "What happened", "Why", "What to do first"]
    places = [html.index(part) for part in ('id="brief"', "What to do first", 'class="timeline"', 'class="figures"')]
    assert places == sorted(places)
    assert "- **Severity** Major: a partition had no leader for 1 min." in text
    assert answers(report)["Why"] == "A broker failed. The lost leaders were on broker 1."
    assert 'class="timeline"' not in page(made(QUIET), UTC)


def test_picture_has_incidents_controllers_brokers_and_partitions() -> None:
    first = incident(partition(0, bar(0, 60)), partition(1, bar(5, 20, begin_kind="inferred")), end=60)
    second = incident(*(partition(number, bar(900, 910)) for number in range(2, 9)), number=2, begin=900, end=910)
    away = [absence(broker, detected_at=moment(1), back_at=moment(20 + broker)) for broker in range(1, 7)]
    facts = night(
        incidents=(first, second),
        incidents_all=2,
        absences=tuple(away),
        controllers=(
            controllership(controller=1, resigned_at=moment(500)),
            controllership(controller=2, elected_at=moment(500)),
        ),
    )

    picture = overview(facts, UTC)

    assert picture is not None
    root = ElementTree.fromstring(picture.svg)
    assert [each.text for each in root.iter("text") if each.get("class") == "name"] == [
        "incidents",
        "controller",
        "broker 3 away",
        "broker 4 away",
        "broker 5 away",
        "broker 6 away",
        "2 more brokers away",
        "orders-0, 1 min",
        "orders-1, 15.0 s",
        "orders-2, 10.0 s",
        "orders-3, 10.0 s",
    ]
    kinds = [str(each.get("class")) for each in root.iter("svg") if "span" in str(each.get("class"))]
    assert kinds.count("span bad") == 2 + 1 + 2
    assert kinds.count("span warn") == 6 + 1
    assert (kinds.count("span one"), kinds.count("span two")) == (1, 1)
