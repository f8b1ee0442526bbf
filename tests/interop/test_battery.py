"""A battery of admin requests under Kafka's own controller and under kactl, over the same brokers.

Error codes, and everything else of the responses that does not depend on a random draw, are equal, except for the
differences that docs/differences.md lists with their reasons.
"""

import re
import time
from pathlib import Path
from typing import Any, Final

import pytest

from kactl.model.errors import ErrorCode
from tests.support.processes import POLL_S
from tests.support.tree import ROOT
from tests.support.zookeeper_server import ZooKeeperServer

from .admin_client import AdminClient
from .battery import SIDES, cases, compared, of_side
from .battery_case import Case
from .brokers import Cluster
from .kactl_process import KactlController
from .metadata import MetadataClient

KACTL: Final = 900_001
MARGIN_S: Final = 90.0
PAGE: Final = ROOT / "docs" / "differences.md"
# Kafka closes the connection; kactl does so, too, after an error if the response has a field for it.
REJECTED: Final = "rejected"
HEADING: Final = "## Responses to admin requests"


def documented() -> dict[str, tuple[str, str]]:
    """Returns the responses of Kafka and of kactl that docs/differences.md lists, by the name of the request."""
    section = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    return {name: (theirs.strip(), ours.strip()) for name, theirs, ours, _ in rows}


def run(port: int, side: str) -> dict[str, Any]:
    """Returns the responses to all requests, by name; REJECTED for those that cannot be read."""
    answers: dict[str, Any] = {}
    client = AdminClient(port)
    try:
        for case in cases():
            assert case.name not in answers, case.name
            try:
                answers[case.name] = compared(_asked(client, case, side), side)
            except ConnectionError:
                answers[case.name] = REJECTED
            if _is_rejected(answers[case.name]):
                answers[case.name] = REJECTED
                client.close()
                client = AdminClient(port)
    finally:
        client.close()
    return answers


def _is_rejected(answer: Any) -> bool:
    """Returns whether the server has closed the connection; kactl does after an error, where a response has one."""
    if answer == REJECTED:
        return True
    results = [value for value in answer.values() if isinstance(value, list)]
    return answer.get("error_code") == ErrorCode.INVALID_REQUEST and not any(results)


def _asked(client: AdminClient, case: Case, side: str) -> dict[str, Any]:
    if isinstance(case.fields, bytes):
        return client.ask_raw(case.api, case.version, case.fields)
    return client.ask(case.api, case.version, **of_side(case.fields, side))


def port_of_controller(cluster: Cluster) -> int:
    """Returns the port of the broker that is the controller."""
    deadline = time.monotonic() + MARGIN_S
    while True:
        with MetadataClient(cluster.brokers[0].internal_port) as client:
            seen = client.look()
        if seen.controller in seen.brokers and len(seen.brokers) == len(cluster.brokers):
            return seen.brokers[seen.controller][1]
        assert time.monotonic() < deadline, f"no controller among {seen.brokers}"
        time.sleep(POLL_S)


@pytest.mark.slow
def test_responses_are_those_of_kafkas_controller(jars: str, tmp_path: Path) -> None:
    zookeeper = ZooKeeperServer(tmp_path / "zookeeper", tick_ms=300)
    connect = zookeeper.connect("/battery")
    kactl = KactlController(KACTL, folder=tmp_path / "kactl", zookeeper=connect, ibp="3.9", takeover=True)
    try:
        with zookeeper, Cluster(tmp_path, zookeeper=connect, ibp="3.9") as cluster:
            theirs = run(port_of_controller(cluster), SIDES[0])
            kactl.start()
            kactl.until(lambda: kactl.get("/v1/cluster")["brokers"] == len(cluster.brokers), "all brokers", MARGIN_S)
            ours = run(kactl.internal_port, SIDES[1])
    finally:
        kactl.kill()

    differing = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}
    known = documented()
    assert {name: pair for name, pair in differing.items() if name not in known} == {}
    assert known.keys() == differing.keys(), "rows of docs/differences.md that hold no more"
