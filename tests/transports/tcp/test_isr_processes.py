"""Followers in processes of their own that are killed and return: no leadership ends."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.marks import kept_and_long

from .cluster_program import PARTITIONS, TOPIC
from .process_cluster import Cluster, until

pytestmark = pytest.mark.slow

OPTIONS: Final = ("--leader", "1")


def led(cluster: Cluster) -> list[tuple[int, str, str]]:
    return [(one.broker, one.name, one.token) for one in cluster.led()]


@pytest.mark.parametrize("sessions", kept_and_long(["store", "controller"], {"controller"}))
def test_killed_follower_ends_no_leadership(tmp_path: Path, sessions: str) -> None:
    """Participants 2 and 3 lead nothing. They are killed and return, alone and together with the active controller."""
    cluster = Cluster(tmp_path, sessions, options=OPTIONS)
    try:
        for node in cluster.addresses:
            cluster.start_controller(node)
        for broker in (1, 2, 3):
            cluster.start_participant(broker)
        until(lambda: len(cluster.leaders()) == PARTITIONS, "all partitions are led")
        until(lambda: cluster.in_sync() == "1 2 3", "all are in sync")
        before = led(cluster)
        assert {broker for broker, _, _ in before} == {1}

        def changed(what: Callable[[], None], isr: str) -> None:
            what()
            until(lambda: cluster.in_sync() == isr, f"the ISRs are {isr}")
            assert led(cluster) == before
            assert all(one.ended_ms == math.inf for one in cluster.led())

        changed(lambda: cluster.kill(3), "1 2")
        changed(lambda: cluster.start_participant(3), "1 2 3")

        def kill_both() -> None:
            cluster.kill(2)
            cluster.kill(3)

        changed(kill_both, "1")
        changed(lambda: cluster.start_participant(2), "1 2")
        changed(lambda: cluster.start_participant(3), "1 2 3")

        def kill_with_the_controller() -> None:
            active = cluster.active()
            cluster.controllers[active].kill()
            cluster.kill(3)
            until(lambda: cluster.active() == 201 - active, "the standby is active")

        changed(kill_with_the_controller, "1 2")
        assert cluster.leaders() == {f"{TOPIC}-{number}": 1 for number in range(PARTITIONS)}
        lines = [line.split() for line in cluster.participants[1].text.splitlines() if line.startswith("isr ")]
        assert {members for *_, members in lines} >= {"1,2,3", "1,2", "1"}
        assert {(name, token) for _, name, token, *_ in lines} == {(name, token) for _, name, token in before}
    finally:
        cluster.close()
