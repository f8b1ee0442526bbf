"""Programs that speak other versions of the protocol, in one cluster.

No release speaks another version than 1 yet. The programs of these tests state other numbers, and send what version 1
has.
"""

import signal
from pathlib import Path

import pytest

from .process_cluster import CONTROLLERS, NAMES, Cluster, until

pytestmark = [pytest.mark.slow, pytest.mark.long]

EARLIER, BOTH, LATER = ["--speaks", "1-1"], ["--speaks", "1-2"], ["--speaks", "2-2"]


def test_programs_are_upgraded_one_after_the_other(tmp_path: Path) -> None:
    """Each program is replaced by one that speaks the next version, too, the controllers first; the last ones speak the
    next one only. No leadership ends with a controller."""
    cluster = Cluster(tmp_path, "controller")
    try:
        for node in CONTROLLERS:
            cluster.start_controller(node, *EARLIER)
        for broker in (1, 2, 3):
            cluster.start_participant(broker, *EARLIER)
        cluster.until_led(1, 2, 3)
        cluster.until_in_sync(1, 2, 3)
        before = sorted(cluster.led())

        for node in CONTROLLERS:
            cluster.controllers[node].kill()
            until(lambda: cluster.active() not in (-1, node), "the other one is active")  # noqa: B023 - waits here
            cluster.start_controller(node, *BOTH)
            until(lambda: cluster.linked() == "1 2 3", "all participants have found it")
        assert sorted(cluster.led()) == before

        for broker in (1, 2, 3):
            participant = cluster.participants[broker]
            participant.signal(signal.SIGTERM)
            until(lambda: not participant.alive, "it has left")  # noqa: B023 - waits here
            cluster.start_participant(broker, *(LATER if broker == 3 else BOTH))
            until(lambda: cluster.linked() == "1 2 3", "it has a link")
            cluster.until_in_sync(1, 2, 3)
        until(lambda: cluster.leaders().keys() == set(NAMES), "all partitions are led")
        cluster.check_disjoint()
    finally:
        cluster.close()


def test_program_without_a_common_version_names_both(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "controller")
    try:
        for node in CONTROLLERS:
            cluster.start_controller(node, *EARLIER)

        cluster.start_participant(1, *LATER)
        until(lambda: not cluster.participants[1].alive, "it has ended")

        assert "ProtocolMismatch" in cluster.participants[1].text
        assert "speaks versions 1 to 1" in cluster.participants[1].text
    finally:
        cluster.close()
