"""Admission of connections: acceptance, and the connections closed to make room."""

from unittest.mock import Mock

import pytest

from kactl.transports.kafka.listener.admission import BROKER_CONNECTIONS_MAX, GRACE_S, RATE_MAX_S, Admission, Slot
from kactl.transports.kafka.listener.counters import ListenerCounters, PeerRejected
from kactl.transports.kafka.listener.limits import Limits
from kactl.transports.kafka.listener.server import connections_for

BROKER = "10.0.0.1"


class Door:
    """An admission of 20 connections, 4 per address, with brokers at one address.

    Attributes:
        now_s: its clock.
        closed: closed connections, in order.
    """

    def __init__(self, connections_max: int = 20, *, brokers: int = 0, per_address: int = 4, **overrides: int) -> None:
        self.now_s = 0.0
        self.closed: list[Slot] = []
        self.counters = ListenerCounters()
        self.admission = Admission(
            Limits(connections_per_address_max=per_address, connections_overrides=overrides),
            connections_max=connections_max,
            broker_addresses={BROKER},
            brokers=lambda: brokers,
            counters=self.counters,
            clock=lambda: self.now_s,
        )

    def admit(self, address: str) -> Slot:
        slot = self.admission.admit(address)
        slot.task = Mock(cancel=lambda reason: self.closed.append(slot))
        return slot

    def fill(self, *, hosts: int = 10) -> list[Slot]:
        """Open connections from many addresses until the admission is full."""
        slots = []
        for host in range(hosts):
            for _ in range(4):
                try:
                    slots.append(self.admit(f"10.1.0.{host}"))
                except PeerRejected:
                    return slots
        return slots


def test_clients_leave_a_part_to_brokers() -> None:
    door = Door(brokers=1)

    clients = door.fill()

    assert len(clients) == 20 - door.admission.reserved == 12
    assert [door.admit(BROKER).is_candidate for _ in range(5)] == [True] * 5
    assert door.closed == []


def test_reserved_part_grows_with_the_brokers_to_half() -> None:
    assert [Door(1000, brokers=count).admission.reserved for count in (0, 3, 30, 300)] == [100, 100, 240, 500]


def test_one_address_has_a_limit_and_ipv6_counts_by_network() -> None:
    door = Door()
    for _ in range(4):
        door.admit("10.1.0.1")
    for host in range(4):
        door.admit(f"2001:db8::{host}")

    with pytest.raises(PeerRejected, match=r"4 connections of 10\.1\.0\.1 .* raise kafka.max-connections-per-ip"):
        door.admit("10.1.0.1")
    with pytest.raises(PeerRejected, match="4 connections of 2001:db8::/64"):
        door.admit("2001:db8::ffff")
    assert door.admit("2001:db8:0:1::1") not in door.closed


def test_client_takes_the_place_of_one_that_waits_too_long() -> None:
    """A client that has never completed a request is closed first, then the one that has waited longest."""
    door = Door()
    used, silent, *others = [door.admit("10.1.0.1") for _ in range(4)]
    for slot in (used, *others):
        door.admission.serve(slot)
        door.admission.wait(slot)
    door.now_s = GRACE_S

    door.admit("10.1.0.1")
    door.admit("10.1.0.1")

    assert door.closed == [silent, used]


def test_connection_with_a_request_in_hand_is_not_closed_for_another() -> None:
    door = Door()
    for _ in range(4):
        door.admission.serve(door.admit("10.1.0.1"))
    door.now_s = 100.0

    with pytest.raises(PeerRejected):
        door.admit("10.1.0.1")
    assert door.closed == []


def test_brokers_address_displaces_clients_and_its_own_oldest() -> None:
    """Repeated connections from its address never close the youngest connection, nor identified ones."""
    door = Door(connections_max=20, per_address=8)
    identified = door.admit(BROKER)
    door.admission.identify(identified, 1)
    clients = door.fill()
    candidates = [door.admit(BROKER) for _ in range(20)]

    assert identified not in door.closed
    assert set(door.closed) <= {*clients, *candidates[:-8]}
    assert len(door.admission) == 20


def test_broker_with_too_many_connections_keeps_the_youngest_identified() -> None:
    door = Door(1000)
    slots = [door.admit(BROKER) for _ in range(BROKER_CONNECTIONS_MAX + 1)]
    for slot in slots:
        door.admission.identify(slot, 1)

    assert [slot.broker for slot in slots] == [None] + [1] * BROKER_CONNECTIONS_MAX
    assert door.counters.identified == BROKER_CONNECTIONS_MAX
    assert door.closed == []


def test_only_clients_that_connect_without_pause_are_slowed_down() -> None:
    door = Door(1000)
    for _ in range(200):
        door.admission.leave(door.admit("10.1.0.1"))
    with pytest.raises(PeerRejected, match=f"more than {RATE_MAX_S:g} connections a second"):
        door.admit("10.1.0.1")
    door.now_s = 1 / RATE_MAX_S
    door.admission.leave(door.admit("10.1.0.1"))

    for _ in range(100):
        door.admission.leave(door.admit(BROKER))
    assert len(door.admission) == 0


def test_room_is_made_of_clients_that_wait() -> None:
    door = Door()
    serving, *waiting = [door.admit("10.1.0.1") for _ in range(3)]
    door.admission.serve(serving)

    assert door.admission.make_room(8) == 2
    assert door.closed == waiting


@pytest.mark.parametrize(("files", "connections"), [(64, 16), (128, 32), (1024, 384), (4096, 1000), (1, 1)])
def test_number_of_connections_follows_the_limit_of_open_files(files: int, connections: int) -> None:
    assert connections_for(files, 1000) == connections


def test_address_with_an_override_has_its_own_limit_and_rate() -> None:
    door = Door(1000, **{"10.1.0.1": 400, "10.1.0.2": 0})

    slots = [door.admit("10.1.0.1") for _ in range(400)]

    for address, text in (("10.1.0.1", "400 connections of"), ("10.1.0.2", "0 connections of")):
        with pytest.raises(PeerRejected, match=rf"{text} {address} .* or its override"):
            door.admit(address)
    for slot in slots:
        door.admission.leave(slot)
    for _ in range(396):
        door.admission.leave(door.admit("10.1.0.1"))
    with pytest.raises(PeerRejected, match="more than 200 connections a second"):
        door.admit("10.1.0.1")


def test_limit_of_zero_admits_only_addresses_with_overrides() -> None:
    door = Door(per_address=0, **{"10.1.0.1": 1})

    door.admit("10.1.0.1")
    with pytest.raises(PeerRejected, match="0 connections of"):
        door.admit("10.1.0.2")
    door.admit(BROKER)
    assert len(door.admission) == 2
