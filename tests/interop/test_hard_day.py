"""Availability during a pause, a double failure and the loss of all replicas, measured and reconstructed from logs.

Clients send requests to all brokers continuously. The estimate from the logs is within 15 % of their measurement, with
Kafka 3.9 and ZooKeeper and with Kafka 4 and KRaft, at INFO and at TRACE. `incident/hard_day.py` describes the faults.
"""

import pytest

from .incident import forensics_results as answers
from .incident import hard_day, measured
from .incident.facts import Facts
from .incident.forensics_results import Answers
from .incident.recorded import ZONES

pytestmark = pytest.mark.long

STORIES = {f"{kind} {level}": (kind, level) for kind in ("zookeeper", "kraft") for level in ("INFO", "TRACE")}


@pytest.fixture(scope="module", params=STORIES)
def facts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Measured facts of the incident."""
    kind, level = STORIES[request.param]
    folder = tmp_path_factory.mktemp("hard-day")
    if kind == "zookeeper":
        request.getfixturevalue("jars")
        return hard_day.with_zookeeper(folder, state_change=level, zone=ZONES[level])
    jars: str = request.getfixturevalue("jars_4")
    return hard_day.without_zookeeper(folder, jars=jars, state_change=level, zone=ZONES[level])


@pytest.fixture(scope="module")
def results(facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Results of forensics from the logs."""
    return answers.ask(tmp_path_factory.mktemp("answers"), facts.logs, zone=facts.zone)


def test_partitions_were_unavailable_in_each_trouble(facts: Facts) -> None:
    (pause,) = facts.pauses
    together = {kill.broker for kill in facts.kills[:2]}

    alone = [gap for gap in facts.gaps if gap.partition == "single-0" and gap.leaders == (pause.broker, pause.broker)]
    assert any(gap.begin_low < pause.after and gap.end_high > pause.resumed_before for gap in alone)
    assert {gap.leaders[0] for gap in facts.gaps} >= together
    assert any(gap.leaders[0] == gap.leaders[1] for gap in facts.gaps if gap.partition == "pair-0")


def test_estimated_total_is_near_the_clients_measurement(facts: Facts, results: Answers) -> None:
    assert measured.headline(facts, results.rows("outages")) == []


def test_every_outage_is_found_within_its_bounds(facts: Facts, results: Answers) -> None:
    assert measured.bounds(facts, results.rows("outages")) == []


def test_no_outage_ends_after_its_paused_leader_was_available(facts: Facts, results: Answers) -> None:
    assert measured.too_late(facts, results.rows("outages")) == []


def test_only_logged_begins_are_marked_as_observed(results: Answers) -> None:
    assert measured.claimed(results.rows("outages")) == []


def test_session_timeouts_are_those_of_the_logs(results: Answers) -> None:
    known = {(row["session_ms"], row["session_by"]) for row in results.rows("absences") if row["detected_at"]}

    assert {ms for ms, _ in known} == {round(hard_day.SESSION_S * 1000)}
    assert "default" not in {by for _, by in known}


def test_first_line_of_the_report_has_estimate_and_bounds(results: Answers) -> None:
    assert "no less than" in results.report["headline"]
    assert "no more than" in results.report["headline"]
