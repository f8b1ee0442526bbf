"""Sentences and tables about availability objectives, without Spark."""

import msgspec
import pytest

from kactl.forensics.report.facts import Facts
from kactl.forensics.report.incident_sections import incident_sections
from kactl.forensics.report.model import Objectives, Scope
from kactl.forensics.report.objectives import objective_section, period_of
from kactl.forensics.report.section import Section
from kactl.forensics.report.summary import summary
from kactl.forensics.wording import Moments, amount, percent, share
from tests.forensics.jobs.tables import moment

from .builders import QUIET, SOURCES, bar, incident, night, objectives, partition, spent

UTC = Moments("UTC")
DAY = 86_400


def section_of(facts: Facts) -> Section:
    (section,) = objective_section(facts, UTC)
    return section


def captions(section: Section) -> list[str]:
    return [table.caption for table in section.tables]


def test_summary_states_used_budget() -> None:
    # Fifty partitions have 36 hours at 99.9 % in 30 days.
    alike = spent(216, topic="orders")  # no more than all
    text = " ".join(summary(night(objectives=objectives(spent(216), alike)), UTC))

    assert (
        "Of the error budget of 50 partitions for 30 days, these outages used 10 % of 1 d 12 h (at an objective of "
        "99.9 %), 20 % of 18 h (99.95 %) and 100 % of 3 h 36 min (99.99 %)."
    ) in text
    assert "used most of its own" not in text


def test_topic_that_used_more_of_its_own_budget_is_named() -> None:
    orders = spent(216, topic="orders", partitions=5)

    text = " ".join(summary(night(objectives=objectives(spent(216), orders)), UTC))

    assert "Topic orders used most of its own: 100 % of 3 h 36 min (at an objective of 99.9 %), 200 % of" in text


def test_no_budget_section_without_outages() -> None:
    assert not list(objective_section(QUIET, UTC))
    assert not list(objective_section(msgspec.structs.replace(QUIET, objectives=objectives()), UTC))
    assert "budget" not in " ".join(summary(QUIET, UTC))


def test_partitions_beyond_their_budget_are_counted() -> None:
    over = section_of(night(objectives=objectives(spent(30, over=3))))
    none = section_of(night(objectives=objectives(spent(30))))

    assert "for 43 min 12 s at 99.9 %, 21 min 36 s at 99.95 % and 4 min 19 s at 99.99 %" in over.paragraphs[0]
    assert over.paragraphs[1].endswith("budget of a single partition in 30 days: 3 at 99.99 %.")
    assert none.paragraphs[1] == "No partition exceeded the budget of a single partition at 99.99 % in 30 days."


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (objectives(spent(216), planned=(spent(1),)), ["outages", "planned"]),
        (objectives(unexplained=(spent(1),), planned=(spent(1),)), ["unexplained", "planned"]),
        (objectives(spent(216), unexplained=(spent(2),), planned=(spent(1),)), ["outages", "unexplained", "planned"]),
    ],
    ids=["explained", "no outage", "all"],
)
def test_kinds_of_unavailable_time_are_not_added_up(given: Objectives, kinds: list[str]) -> None:
    (kind, *_) = section_of(night(objectives=given)).tables

    budget, *rows = kind.rows
    assert budget[1:] == ("–", "2,160", "1,080", "216")
    assert [row[0].split(":")[0] for row in rows] == kinds


def test_budget_by_incident_needs_several_incidents() -> None:
    one = incident(partition(0, bar(0, 60)), end=60, spent=(spent(216), spent(216, topic="orders", partitions=5)))
    other = msgspec.structs.replace(one, number=2)
    both = night(incidents=(one, other), incidents_all=2, objectives=objectives(spent(432)))
    alone = night(incidents=(one,), objectives=objectives(spent(216)))

    assert len(captions(section_of(alone))) == 1
    assert [row[:3] for row in section_of(both).tables[1].rows] == [
        ("1", "2024-05-01 10:00:00", "216"),
        ("2", "2024-05-01 10:00:00", "216"),
    ]
    (_, section) = incident_sections(alone, UTC)
    (table,) = [table for table in section.tables if "error budget" in table.caption]
    assert table.rows == (
        ("all together", "50", "216", "10 %", "20 %", "100 %"),
        ("orders", "5", "216", "100 %", "200 %", "1,000 %"),
    )


@pytest.mark.parametrize(
    ("days", "asked", "period"),
    [
        (1, Scope(), 30),
        (60, Scope(), 60),
        (60, Scope(begin=moment(-40 * DAY)), 40),
        (60, Scope(begin=moment(-40 * DAY), end=moment(-30 * DAY)), 30),
        (60, Scope(begin=moment(-90 * DAY), end=moment(90 * DAY)), 60),  # no data after the logs end
    ],
)
def test_period_is_extended_to_logs_over_a_month(days: int, asked: Scope, period: int) -> None:
    sources = msgspec.structs.replace(SOURCES, begin=moment(-days * DAY), end=moment(0))

    assert period_of(sources, asked) == period * DAY * 1000


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (0.01, "under 0.1"), (0.26, "0.3"), (12.5, "12.5"), (99.97, "100"), (2160, "2,160")]
)
def test_minutes_are_rounded_by_size(number: float, text: str) -> None:
    assert amount(number) == text


def test_shares_over_100_percent_are_shown() -> None:
    assert [share(part, 1) for part in (1, 1.004, 1.4, 12)] == ["100 %", "over 100 %", "140 %", "1,200 %"]
    assert [percent(each) for each in (0.999, 0.9995, 0.9999)] == ["99.9 %", "99.95 %", "99.99 %"]
