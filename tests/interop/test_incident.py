"""Forensics of real brokers' logs agrees with the observations of clients during an incident.

Each incident runs once for many tests; `incident/` contains its faults and observers.
"""

from pathlib import Path

import pytest

from .incident import agreement, answers, kraft_story, zookeeper_story
from .incident.agreement import name
from .incident.answers import Answers
from .incident.facts import Facts

pytestmark = pytest.mark.long

# State-change level, and the zone that the brokers believe to be in.
STORIES = {"INFO": "UTC", "TRACE": "Asia/Kolkata"}


@pytest.fixture(scope="module", params=STORIES)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def facts(jars: str, level: str, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What happened."""
    return zookeeper_story.run(tmp_path_factory.mktemp("incident"), state_change=level, zone=STORIES[level])


@pytest.fixture(scope="module")
def told(facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What the logs tell of it."""
    return answers.ask(tmp_path_factory.mktemp("answers"), facts.logs, zone=facts.zone)


# -- what happened: if this is not so, nothing else here says anything -------------------------------------------------


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
    lost = {(each.acks, each.record.partition) for each in facts.lost}
    assert ("1", "audit-0") in lost  # nobody had copied them when the leader died
    assert {partition for acks, partition in lost if acks == "all"} == set(facts.unclean)
    for each in facts.lost:
        with_broker = any(
            cut.partition == each.record.partition and cut.kept <= each.record.offset < cut.log_end
            for cut in facts.cuts
        )
        # Whom a preferred election takes the lead from may not hear of it before it has taken another record.
        in_passing = each.acks == "1" and facts.was_planned(each.record.sent, agreement.SLACK_S)
        assert with_broker or in_passing, each
    assert facts.refused == []


# -- what is told of it ------------------------------------------------------------------------------------------------


def test_every_relevant_line_is_understood(told: Answers, level: str) -> None:
    logs = [each for each in told.files if each["layout"]]
    assert {each["unparsed"] for each in logs} == {0}, [each["samples"] for each in logs]
    levels = {each for file in logs if file["kind"] == "state-change" for each in file["levels"]}
    assert ("TRACE" in levels) == (level == "TRACE")


def test_outages_are_found_within_bounds_and_no_others(facts: Facts, told: Answers) -> None:
    assert agreement.outages(facts, told.rows("outages")) == []


def test_exactly_the_lost_records_are_counted(facts: Facts, told: Answers) -> None:
    assert agreement.losses(facts, told.rows("losses")) == []


def test_unclean_elections_are_found_and_explained(facts: Facts, told: Answers) -> None:
    rows = told.rows("unclean")

    assert {name(row): row["leader"] for row in rows} == facts.unclean
    killed = facts.kills[-1].broker
    for row in rows:
        assert row["certain"], row
        assert row["prev_isr"] == [killed]
        assert [each["broker"] for each in row["isr_down"] if each["down_at"]] == [killed]


def test_killed_brokers_are_named(facts: Facts, told: Answers) -> None:
    detected = [row for row in told.rows("absences") if row["detected_at"]]  # the others are from before the logs
    away = sorted(detected, key=lambda row: row["detected_at"])

    assert [row["broker"] for row in away if not row["planned"]] == [kill.broker for kill in facts.kills]
    assert [row["broker"] for row in away if row["planned"]] == [facts.kills[0].broker]


def test_correct_brokers_violate_no_rule(told: Answers) -> None:
    assert told.rows("audit") == []


def test_report_contains_the_incident(facts: Facts, told: Answers) -> None:
    for kill in facts.kills:
        assert f"broker {kill.broker}" in told.html
    assert "payments" in told.html


# -- without ZooKeeper -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kraft(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What happened to a cluster without ZooKeeper."""
    return kraft_story.run(tmp_path_factory.mktemp("kraft"))


@pytest.mark.parametrize("dump", [False, True], ids=["logs alone", "with the metadata log"])
def test_outages_are_found_without_zookeeper(kraft: Facts, tmp_path: Path, dump: bool) -> None:
    more = [kraft.logs.parent / "metadata.txt"] if dump else []

    told = answers.ask(tmp_path, kraft.logs, *more, zone=kraft.zone)

    assert len(kraft.gaps) >= len(kraft.kills)
    # At INFO no line says why a leader is moved; the metadata log shows who it was moved to and from.
    assert agreement.outages(kraft, told.rows("outages"), explained=dump) == []
    assert agreement.losses(kraft, told.rows("losses")) == []
    assert {each["unparsed"] for each in told.files if each["layout"]} == {0}
