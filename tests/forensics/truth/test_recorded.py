"""Recorded incidents of real brokers: results from their logs, compared with measurements of clients.

Kafka 3.9.1 with ZooKeeper and Kafka 4.3.1 with KRaft, state-change.log at INFO and at TRACE. Each cluster lost a broker
to a pause, a leader together with the controller, and all replicas of a partition. `tests/interop/test_hard_day.py`
repeats the same incidents with real brokers.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.ingest import ingest
from kactl.forensics.jobs.running import run_jobs
from tests.forensics.jobs.tables import rows
from tests.interop.incident import hard_day, measured, recorded
from tests.interop.incident.facts import Facts
from tests.support.marks import kept_and_long

RECORDED = {path.name.partition(".")[0]: path for path in Path(__file__).with_name("recorded").glob("*.tar.gz")}
NAMES = sorted(RECORDED)


@dataclasses.dataclass(frozen=True, slots=True)
class Incident:
    """Measurements of clients, and the results of jobs."""

    facts: Facts
    outages: list[dict[str, Any]]
    absences: list[dict[str, Any]]


# In `make test` there is one recording of each kind of cluster, and one of each level of logs.
@pytest.fixture(scope="module", params=kept_and_long(NAMES, {"zookeeper-trace", "kraft-info"}))
def incident(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Incident:
    folder = tmp_path_factory.mktemp("recorded")
    facts = recorded.opened(RECORDED[request.param], folder)
    ingest(spark, [str(facts.logs)], str(folder / "out"), time_zone=facts.zone)
    results = run_jobs(spark, str(folder / "out"), only=("outages",))
    return Incident(facts, rows(results["outages"]), rows(results["absences"]))


def test_four_incidents_are_recorded() -> None:
    assert len(RECORDED) == 4


def test_best_estimate_is_near_the_clients_measurement(incident: Incident) -> None:
    assert measured.headline(incident.facts, incident.outages) == []


def test_every_outage_is_found_within_its_bounds(incident: Incident) -> None:
    assert measured.bounds(incident.facts, incident.outages) == []


def test_outages_end_when_a_paused_leader_is_available(incident: Incident) -> None:
    assert measured.too_late(incident.facts, incident.outages) == []


def test_inferred_begins_are_not_called_observed(incident: Incident) -> None:
    assert measured.claimed(incident.outages) == []


def test_session_timeouts_are_those_of_the_logs(incident: Incident) -> None:
    known = {(row["session_ms"], row["session_by"]) for row in incident.absences if row["detected_at"]}

    assert {ms for ms, _ in known} == {round(hard_day.SESSION_S * 1000)}
    assert "default" not in {by for _, by in known}
