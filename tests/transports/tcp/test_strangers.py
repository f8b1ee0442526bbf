"""Connections without a complete handshake: crowds behind one address complete theirs, and floods do not prevent it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from kactl.testing.contracts.link_support import ContractOffice, ContractPort, moment, opened
from kactl.transports.tcp import strangers
from kactl.transports.tcp.limits import Limits
from kactl.transports.tcp.network import TcpNetwork

from .support import RawClient, hello_of, raw_client

pytestmark = pytest.mark.anyio

FOREVER_MS = 600_000


@asynccontextmanager
async def controller(limits: Limits) -> AsyncIterator[str]:
    network = TcpNetwork(listen="127.0.0.1:0", limits=limits)
    async with network.controller_side(ContractOffice()):
        yield str(network.address)


@asynccontextmanager
async def stalled(address: str, source: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    """A connection with the beginning of a frame, which the listener has read."""
    async with raw_client(address, source=source) as client:
        await client.write(b"\x00\x00")
        yield client


async def is_open(client: RawClient) -> bool:
    """Returns whether the listener has not closed a connection."""
    with anyio.move_on_after(0.05):
        return bool(await client.reader.read(1))
    return True


async def greeted(address: str, source: str = "127.0.0.1", broker: int = 1) -> bool:
    async with raw_client(address, source=source) as client:
        return (await client.greet(hello_of(broker))).version == 1


@pytest.mark.parametrize("data", [b"", b"\x00\x00"])
async def test_handshake_is_bounded_in_time(data: bytes) -> None:
    async with controller(Limits(handshake_ms=100)) as address, raw_client(address) as client:
        await client.write(data)

        await client.ended()


async def test_crowd_of_one_address_waits_for_places_and_completes() -> None:
    welcomed: list[bool] = []
    async with (
        controller(Limits(handshake_ms=FOREVER_MS, strangers_per_address=2)) as address,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(raw_client(address)) for _ in range(60)]

        async def greet(client: RawClient, broker: int) -> None:
            welcomed.append((await client.greet(hello_of(broker))).version == 1)

        async with anyio.create_task_group() as tasks:
            for broker, client in enumerate(clients):
                tasks.start_soon(greet, client, broker)

    assert len(welcomed) == 60


async def test_stalled_handshakes_free_their_places_for_a_participant() -> None:
    limits = Limits(handshake_ms=200, strangers_per_address=2)
    async with controller(limits) as address, AsyncExitStack() as stack:
        stalling = [await stack.enter_async_context(stalled(address)) for _ in range(2)]
        network = TcpNetwork(controllers=[address], limits=Limits(backoff_ms=1, backoff_max_ms=5))
        link = await stack.enter_async_context(network.participant_side(ContractPort(1)))

        await opened(link)

        for client in stalling:
            await client.ended()


async def test_flood_of_the_same_address_does_not_keep_participants_out() -> None:
    """Each connection of the flood sends a byte, and is opened again as soon as it is closed."""
    limits = Limits(handshake_ms=200, strangers=40, strangers_per_address=8)

    async def flood(address: str) -> None:
        while True:
            try:
                async with stalled(address) as client:
                    await client.ended()
            except OSError:
                pass
            await moment()  # this process also serves: a loop that is never idle would measure the machine

    async with controller(limits) as address, anyio.create_task_group() as tasks, AsyncExitStack() as stack:
        for _ in range(50):
            tasks.start_soon(flood, address)
        network = TcpNetwork(controllers=[address], limits=Limits(backoff_ms=1, backoff_max_ms=20))
        links = [await stack.enter_async_context(network.participant_side(ContractPort(broker))) for broker in range(3)]

        for link in links:
            await opened(link)

        tasks.cancel_scope.cancel()


async def test_newest_of_one_address_is_turned_away_from_a_full_room() -> None:
    async with controller(Limits(handshake_ms=FOREVER_MS, strangers=3)) as address, AsyncExitStack() as stack:
        earlier = [await stack.enter_async_context(stalled(address)) for _ in range(3)]

        async with raw_client(address) as newest:
            await newest.ended()

        assert [await is_open(client) for client in earlier] == [True, True, True]


async def test_silent_connection_makes_room_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "_FRESH_S", 0.0)
    async with controller(Limits(handshake_ms=FOREVER_MS, strangers=3)) as address, AsyncExitStack() as stack:
        begun = await stack.enter_async_context(stalled(address))
        silent = [await stack.enter_async_context(raw_client(address)) for _ in range(2)]

        assert await greeted(address)

        await silent[0].ended()
        assert await is_open(begun)
        assert await is_open(silent[1])


async def test_crowd_makes_room_for_another_address() -> None:
    async with controller(Limits(handshake_ms=FOREVER_MS, strangers=3)) as address, AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(stalled(address)) for _ in range(3)]

        assert await greeted(address, "127.0.0.2")

        await crowd[2].ended()  # the newest one
        assert [await is_open(client) for client in crowd[:2]] == [True, True]


async def test_crowd_leaves_places_to_another_address() -> None:
    limits = Limits(handshake_ms=FOREVER_MS, strangers_per_address=2)
    async with controller(limits) as address, AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(stalled(address))

        assert await greeted(address, "127.0.0.2")


async def test_addresses_of_one_network_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of IPv6 can use any address of its network. A test has several addresses of IPv4 only."""
    monkeypatch.setattr(strangers, "group_of", lambda host: host.rpartition(".")[0])
    async with controller(Limits(handshake_ms=FOREVER_MS, strangers=2)) as address, AsyncExitStack() as stack:
        earlier = [await stack.enter_async_context(stalled(address, f"127.0.0.{number}")) for number in (2, 3)]

        async with raw_client(address, source="127.0.0.4") as client:
            await client.ended()
        assert [await is_open(client) for client in earlier] == [True, True]
        assert await greeted(address, "127.0.1.1")


async def test_known_address_finds_room_among_unknown_ones() -> None:
    async with controller(Limits(handshake_ms=FOREVER_MS, strangers=4)) as address, AsyncExitStack() as stack:
        assert await greeted(address, "127.0.0.1")
        for number in range(2, 6):
            await stack.enter_async_context(stalled(address, f"127.0.0.{number}"))
        async with raw_client(address, source="127.0.0.9") as unknown:
            await unknown.ended()

        assert await greeted(address, "127.0.0.1", broker=2)


async def test_newest_connection_of_an_address_gets_the_next_place() -> None:
    """After an outage the oldest ones have given up, or are about to."""
    room, order = strangers.Strangers(Limits(strangers_per_address=1)), list[int]()
    end = asyncio.Event()

    async def hold(number: int) -> None:
        stranger = room.admit("192.0.2.1")
        assert stranger is not None
        async with room.turn(stranger):
            order.append(number)
            await end.wait()

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(hold, number)
        await anyio.wait_all_tasks_blocked()
        end.set()

    assert order == [0, 3, 2, 1]


async def test_cancelled_wait_for_a_place_frees_it() -> None:
    room = strangers.Strangers(Limits(strangers_per_address=1))
    end, held = asyncio.Event(), list[str]()

    async def hold(host: str) -> None:
        stranger = room.admit(host)
        assert stranger is not None
        async with room.turn(stranger):
            held.append(host)
            await end.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, "192.0.2.1")
        await anyio.wait_all_tasks_blocked()
        waiting = [asyncio.create_task(hold("192.0.2.1")) for _ in range(3)]
        await anyio.wait_all_tasks_blocked()

        waiting[2].cancel()  # it would be next
        end.set()
        await asyncio.wait(waiting)
        await hold("192.0.2.1")

    assert len(held) == 4
