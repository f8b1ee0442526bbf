"""Forensics of real brokers' logs agrees with the observations of clients during an incident.

Each incident runs once for many tests; `incident/` contains its faults and observers.
"""

from pathlib import Path

import pytest

from .incident import agreement, kraft_story, zookeeper_story
from .incident import forensics_results as answers
from .incident.agreement import name
from .incident.facts import Facts
from .incident.forensics_results import Answers

pytestmark = pytest.mark.long

# State-change level, and the time zone of the brokers.
STORIES = {"INFO": "UTC", "TRACE": "Asia/Kolkata"}


@pytest.fixture(scope="module", params=STORIES)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def facts(jars: str, level: str, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Measured facts of the incident."""
    return zookeeper_story.run(tmp_path_factory.mktemp("incident"), state_change=level, zone=STORIES[level])


@pytest.fixture(scope="module")
def results(facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Results of forensics from the logs."""
    return answers.ask(tmp_path_factory.mktemp("answers"), facts.logs, zone=facts.zone)


# -- measured facts: preconditions of the other tests ------------------------------------------------------------------


def test_partitions_were_unavailable_when_their_leaders_were_killed(facts: Facts) -> None:
    for gap in facts.gaps:
        assert any(
            kill.broker == gap.leaders[0] and kill.before <= gap.begin_high and gap.begin_low <= kill.after
            for kill in facts.kills
        ), gap
    controller, leader, again = facts.kills
    assert leader.broker == again.broker != controller.broker
    struck = {gap.partition for gap in facts.gaps if gap.begin_high >= again.before}
    assert {"payments-0", "payments-1", "audit-0"} < struck


def test_both_writers_lost_records(facts: Facts) -> None:
    lost = {(lost_record.acks, lost_record.record.partition) for lost_record in facts.lost}
    assert ("1", "audit-0") in lost  # no replica had them when the leader died
    assert {partition for acks, partition in lost if acks == "all"} == set(facts.unclean)
    for lost_record in facts.lost:
        with_broker = any(
            cut.partition == lost_record.record.partition and cut.kept <= lost_record.record.offset < cut.log_end
            for cut in facts.cuts
        )
        # The old leader of a preferred election may accept a record before it receives the change.
        in_passing = lost_record.acks == "1" and facts.was_planned(lost_record.record.sent, agreement.SLACK_S)
        assert with_broker or in_passing, lost_record
    assert facts.refused == []


# -- results of forensics ----------------------------------------------------------------------------------------------


def test_every_relevant_line_is_understood(results: Answers, level: str) -> None:
    logs = [item for item in results.files if item["layout"]]
    assert {item["unparsed"] for item in logs} == {0}, [item["samples"] for item in logs]
    levels = {item for file in logs if file["kind"] == "state-change" for item in file["levels"]}
    assert ("TRACE" in levels) == (level == "TRACE")


def test_outages_are_found_within_bounds_and_no_others(facts: Facts, results: Answers) -> None:
    assert agreement.outages(facts, results.rows("outages")) == []


def test_exactly_the_lost_records_are_counted(facts: Facts, results: Answers) -> None:
    assert agreement.losses(facts, results.rows("losses")) == []


def test_unclean_elections_are_found_and_explained(facts: Facts, results: Answers) -> None:
    rows = results.rows("unclean")

    assert {name(row): row["leader"] for row in rows} == facts.unclean
    killed = facts.kills[-1].broker
    for row in rows:
        assert row["certain"], row
        assert row["prev_isr"] == [killed]
        assert [member["broker"] for member in row["isr_down"] if member["down_at"]] == [killed]


def test_killed_brokers_are_named(facts: Facts, results: Answers) -> None:
    detected = [row for row in results.rows("absences") if row["detected_at"]]  # the others ended before the logs begin
    away = sorted(detected, key=lambda row: row["detected_at"])

    assert [row["broker"] for row in away if not row["planned"]] == [kill.broker for kill in facts.kills]
    assert [row["broker"] for row in away if row["planned"]] == [facts.kills[0].broker]


def test_correct_brokers_violate_no_rule(results: Answers) -> None:
    assert results.rows("audit") == []


def test_report_contains_the_incident(facts: Facts, results: Answers) -> None:
    for kill in facts.kills:
        assert f"broker {kill.broker}" in results.html
    assert "payments" in results.html


# -- without ZooKeeper -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kraft(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Measured facts of an incident without ZooKeeper."""
    return kraft_story.run(tmp_path_factory.mktemp("kraft"))


@pytest.mark.parametrize("dump", [False, True], ids=["logs alone", "with the metadata log"])
def test_outages_are_found_without_zookeeper(kraft: Facts, tmp_path: Path, dump: bool) -> None:
    more = [kraft.logs.parent / "metadata.txt"] if dump else []

    results = answers.ask(tmp_path, kraft.logs, *more, zone=kraft.zone)

    assert len(kraft.gaps) >= len(kraft.kills)
    # At INFO no line contains the reason of a move; the metadata log has the old and the new leader.
    assert agreement.outages(kraft, results.rows("outages"), explained=dump) == []
    assert agreement.losses(kraft, results.rows("losses")) == []
    assert {file["unparsed"] for file in results.files if file["layout"]} == {0}
