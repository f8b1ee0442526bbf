"""A leader in a network namespace of its own, which loses the network as a host does: nothing is refused or reset."""

from pathlib import Path

import pytest

from tests.support.namespaces import ADDRESSES, Namespaces, require_namespaces

from .process_cluster import CONTROLLERS, Cluster

SECRET = "of-the-namespaces"
OPTIONS = ["--secret", SECRET, "--session-ms", "6000"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["down", "lose"])
def test_leader_without_a_network_stops_before_the_next_one_begins(fault: str, tmp_path: Path) -> None:
    """Its interface is switched off, or all packets in both directions are lost, which neither side can notice."""
    require_namespaces()
    with Namespaces() as namespaces:
        cluster = Cluster(tmp_path, "controller", options=OPTIONS, host=ADDRESSES[0], inside=namespaces.one)
        try:
            for node in CONTROLLERS:
                cluster.start_controller(node)
            for broker in (1, 2):
                cluster.start_participant(broker)
            cluster.start_participant(3, inside=namespaces.other)
            cluster.until_led(1, 2, 3)
            cluster.until_in_sync(1, 2, 3)
            cut = cluster.led_now(3)

            namespaces.down() if fault == "down" else namespaces.lose()
            cluster.until_led(1, 2)

            cluster.check_stopped_first(3, cut)
            namespaces.up() if fault == "down" else namespaces.find()
            cluster.until_in_sync(1, 2, 3)
            cluster.check_disjoint()
        finally:
            cluster.close()
