"""Controllers and participants in processes of their own, which are killed, stopped and cut off."""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.marks import kept_and_long

from .cluster_program import PARTITIONS, SESSION_MS
from .process_cluster import NAMES, Cluster, three_participants, until

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    made = three_participants(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


# The simulator covers both kinds of sessions, and `tests/participant` the sessions in the store.
@pytest.mark.parametrize("cluster", kept_and_long(["store", "controller"], {"controller"}), indirect=True)
def test_processes_over_tcp(cluster: Cluster) -> None:
    """Participants and controllers are killed, stopped and cut off; every partition is led again, by one at a time."""
    until(lambda: cluster.leaders().keys() == set(NAMES), "all partitions are led")

    # The active controller is killed: no leadership changes, and the other one goes on.
    before, first = cluster.led(), cluster.active()
    second = 201 - first
    cluster.controllers[first].kill()
    until(lambda: cluster.active() == second, "the standby is active")
    cluster.start_controller(first)

    until(lambda: cluster.in_sync() == "1 2 3", "all participants are in sync under the new controller")

    # A participant is killed: its partitions are led elsewhere, which the new controller tells over new links.
    held = [(led.broker, led.name, led.token) for led in cluster.led()]
    assert held == [(led.broker, led.name, led.token) for led in before]
    cluster.kill(1)
    until(lambda: set(cluster.leaders().values()) == {2, 3}, "2 and 3 lead")
    until(lambda: cluster.leaders().keys() == set(NAMES), "all partitions are led by 2 and 3")

    until(lambda: cluster.in_sync() == "2 3", "1 has left the ISRs")

    # A participant is stopped for longer than its session: the other one leads, and it does not when it continues.
    cluster.participants[2].pause()
    until(lambda: set(cluster.leaders().values()) == {3} and len(cluster.leaders()) == PARTITIONS, "3 leads alone")
    until(lambda: cluster.in_sync() == "3", "2 has left the ISRs")
    cluster.participants[2].resume()
    until(lambda: all(led.broker == 3 for led in cluster.led() if led.ended_ms == math.inf), "2 has stopped leading")
    cluster.check_disjoint()

    until(lambda: cluster.in_sync() == "2 3", "2 has followed 3, which needs messages between them")

    # The other one is cut off from the controllers.
    for proxy in cluster.proxies:
        proxy.tell("refuse")
    until(lambda: cluster.linked() == "2", "3 is cut off")
    if cluster.sessions == "store":
        # It leads on, and is reached again afterwards.
        time.sleep(2 * SESSION_MS[cluster.sessions] / 1000)
        assert set(cluster.leaders().values()) == {3}
        for proxy in cluster.proxies:
            proxy.tell("heal")
        until(lambda: cluster.linked() == "2 3", "3 is reached again")
        until(lambda: cluster.in_sync() == "2 3", "2 follows 3 still, or again")
        cluster.kill(3)
    until(lambda: set(cluster.leaders().values()) == {2} and len(cluster.leaders()) == PARTITIONS, "2 leads alone")
    if cluster.sessions == "controller":
        for proxy in cluster.proxies:
            proxy.tell("heal")
        until(lambda: cluster.in_sync() == "2 3", "3 has registered again and follows")

    cluster.check_disjoint()
