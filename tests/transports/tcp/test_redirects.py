"""Instances that are not active name the address of the one that is, and participants and spectators follow it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import pytest

import kactl
from kactl.decide.messages.admin import ResignController
from kactl.decide.messages.sessions import NotController
from kactl.model import NO_BROKER
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing.contracts.link_support import ContractOffice, until
from kactl.transports.tcp import controller_links, wire
from kactl.transports.tcp.limits import Limits

from .support import RawClient, hello_of, raw_client

pytestmark = pytest.mark.anyio

LOOPBACK: Final = "127.0.0.1:0"
PATIENCE_S: Final = 60
# A search of all addresses is so rare that only an address in an answer leads to the active controller.
LIMITS: Final = Limits(backoff_ms=60_000, backoff_max_ms=60_000)


class Two:
    """Two controllers over one store, of which the first is active."""

    def __init__(self, active: kactl.Controller, standby: kactl.Controller) -> None:
        self.active = active
        self.standby = standby

    def network(self, *controllers: kactl.Controller, limits: Limits | None = None) -> kactl.TcpNetwork:
        """Returns a network that knows some of the controllers."""
        return kactl.TcpNetwork(controllers=[address_of(one) for one in controllers], limits=limits)

    async def swap(self) -> None:
        """Elect the other controller."""
        await self.active.ask(ResignController(stop=True))
        await self.standby.wait_active()
        self.active, self.standby = self.standby, self.active


def address_of(controller: kactl.Controller) -> str:
    assert isinstance(controller.network, kactl.TcpNetwork)
    assert controller.network.address is not None
    return controller.network.address


@asynccontextmanager
async def two_controllers() -> AsyncIterator[Two]:
    state = MemoryState()
    with anyio.fail_after(PATIENCE_S):
        async with kactl.Controller(100, store=MemoryStore(state), network=kactl.TcpNetwork(listen=LOOPBACK)) as active:
            await active.wait_active()
            async with kactl.Controller(
                101, store=MemoryStore(state), network=kactl.TcpNetwork(listen=LOOPBACK)
            ) as standby:
                await until(lambda: standby.loop.active_id == 100)
                yield Two(active, standby)


async def test_participant_that_knows_only_a_standby_finds_the_active_controller() -> None:
    async with two_controllers() as found:
        answer = found.standby.standby()
        assert answer is not None
        assert (answer.active_id, answer.address) == (100, address_of(found.active))

        async with kactl.Participant(1, network=found.network(found.standby, limits=LIMITS)) as participant:
            await participant.wait_linked()
            await until(lambda: 1 in found.active.cluster.brokers)


async def test_spectator_that_knows_only_a_standby_finds_the_active_controller() -> None:
    async with (
        two_controllers() as found,
        kactl.Spectator(network=found.network(found.standby, limits=LIMITS)) as spectator,
    ):
        await spectator.wait_ready()
        assert spectator.version.controller_epoch == 1


async def test_participant_and_spectator_follow_to_a_controller_that_they_do_not_know() -> None:
    async with (
        two_controllers() as found,
        kactl.Participant(1, network=found.network(found.active)) as participant,
        kactl.Spectator(network=found.network(found.active)) as spectator,
    ):
        await participant.wait_linked()
        await spectator.wait_ready()
        await found.swap()

        assert found.active.node_id == 101
        await until(lambda: 1 in found.active.cluster.brokers and not found.active.cluster.fenced)
        await until(lambda: spectator.version.controller_epoch == 2)
        assert await participant.wait_linked() == found.active.cluster.brokers[1].epoch


async def test_errors_for_clients_name_the_address() -> None:
    async with two_controllers() as found:
        with pytest.raises(kactl.NotController) as raised:
            await found.standby.create_topic("t", partitions=1)
        assert (raised.value.active_id, raised.value.address) == (100, address_of(found.active))


async def test_address_that_others_cannot_use_is_not_stored() -> None:
    network = kactl.TcpNetwork(listen="0.0.0.0:0", secret="0123456789abcdef", allow_plaintext=True)
    async with kactl.Controller(100, network=network) as controller:
        await controller.wait_active()
        record = await controller.store.controller()
        assert record is not None
        assert record.address == ""


async def test_lease_is_renewed_as_soon_as_the_next_controller_is_reached() -> None:
    """Renewals are a hundred seconds apart. The one after the election of another controller is sent at once."""
    async with two_controllers() as found:
        network = found.network(found.active, found.standby)
        async with kactl.Participant(1, network=network, session_timeout_ms=600_000) as participant:
            await participant.wait_linked()
            await found.active.create_topic("orders", assignment={0: [1]})
            await until(lambda: participant.leadership("orders-0") is not None)
            leader = participant.leadership("orders-0")
            assert leader is not None
            await found.swap()
            before_ms = leader.remaining_ms()

            await until(lambda: leader.remaining_ms() > before_ms)


async def test_instance_answers_when_its_election_is_over() -> None:
    """All participants lose a controller at the same moment. They would connect again and again until the next one."""
    office, welcomed = ContractOffice(), list[int]()
    office.active = NO_BROKER
    network = kactl.TcpNetwork(listen=LOOPBACK, limits=Limits(handshake_ms=600_000))

    async def greet(client: RawClient) -> None:
        welcomed.append((await client.greet(hello_of())).version)

    async with (
        network.controller_side(office),
        raw_client(network.address) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(greet, client)
        await anyio.wait_all_tasks_blocked()
        assert welcomed == []

        office.active = office.node_id
        await until(lambda: bool(welcomed))

    assert welcomed == [1]


async def test_instance_sends_participants_away_if_no_election_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_links, "_ELECTION_PART", 0.0)  # the handshake itself has time
    office = ContractOffice()
    office.active = NO_BROKER
    network = kactl.TcpNetwork(listen=LOOPBACK)
    async with network.controller_side(office), raw_client(network.address) as client:
        await client.prove(hello_of())

        answer = wire.decode((await client.receive()).head, wire.Family(NotController))

        assert answer == NotController(NO_BROKER)
