"""Links under load and faults: lanes, flow control, silence, cuts, replacement, and the search for the controller."""

import asyncio
import itertools
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import numpy as np
import pytest

import kactl
from kactl.decide.messages.broker import AllocateProducerIds, AlterPartitionReceived, IsrProposal
from kactl.decide.messages.control import (
    LeaderAndIsr,
    PartitionStates,
    Request,
    Response,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.messages.following import FollowerReportsRequested
from kactl.decide.messages.sessions import Granted, Heartbeat
from kactl.model import Broker, ProducerIdBlock, TopicRef
from kactl.model.errors import BrokerUnreachable, ControllerUnreachable
from kactl.testing.contracts.link_support import ContractOffice, ContractPort, answer_of, lives, moment, opened, until
from kactl.testing.contracts.network import PATIENCE_S, UPDATE
from kactl.testing.fault_proxy import FaultProxy, Faults
from kactl.transports.base import LinkState, Transport
from kactl.transports.tcp import controller_links, peer_requests, wire
from kactl.transports.tcp import link as link_module
from kactl.transports.tcp.control_link import TcpControlLink
from kactl.transports.tcp.framing import Kind, Message, frames_of
from kactl.transports.tcp.limits import Limits
from kactl.transports.tcp.network import TcpNetwork
from kactl.transports.tcp.wire import requests

from .support import RawClient, hello_of, raw_client

pytestmark = pytest.mark.anyio

QUICK = Limits(backoff_ms=1, backoff_max_ms=20)
HEARTBEAT = Heartbeat(1, 41, 7)
GRANTED = Granted(7, 6_000, 5, 90)


@asynccontextmanager
async def behind_a_proxy(
    office: ContractOffice, port: ContractPort, *, limits: Limits = QUICK, seed: int = 1
) -> AsyncIterator[tuple[Transport, TcpControlLink, FaultProxy]]:
    """A controller, a participant, and a proxy between them."""
    network = TcpNetwork(listen="127.0.0.1:0", limits=limits)
    async with network.controller_side(office) as transport:
        host, _, number = str(network.address).rpartition(":")
        async with FaultProxy((host, int(number)), rng=random.Random(seed)) as proxy:
            other = TcpNetwork(controllers=[proxy.address], limits=limits)
            async with other.participant_side(port) as link:
                assert isinstance(link, TcpControlLink)
                yield transport, link, proxy


def large_order(size: int) -> LeaderAndIsr:
    """Returns a request of about so many bytes."""
    count = size // 32
    column = np.zeros(count, np.int32)
    lists = column.reshape(1, count)
    states = PartitionStates((TopicRef("a"),), column, column, column, column, column, lists, column, lists)
    return LeaderAndIsr(1, 2, 3, states)


def passing_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the bytes that proxies have passed in slow directions: the one item grows with each piece."""
    passed, piece = [0], FaultProxy._piece

    def counted(self: FaultProxy, faults: Faults) -> int:
        size = piece(self, faults)
        passed[0] += size if faults.bytes_per_s else 0
        return size

    monkeypatch.setattr(FaultProxy, "_piece", counted)
    return passed


# -- lanes and flow control --------------------------------------------------------------------------------------------


async def test_large_request_on_a_slow_link_does_not_delay_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 MiB at 1 MB/s: the answers to heartbeats share the direction.

    At most one MB of the request passes before each answer: a second, which is a sixth of the default timeout.
    """
    passed = passing_bytes(monkeypatch)
    office, port = ContractOffice(), ContractPort(1)
    async with behind_a_proxy(office, port, limits=Limits()) as (transport, link, proxy):
        await opened(link)
        proxy.throttle(1_000_000, "down")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.connect(Broker(1, 0)).deliver, large_order(32 << 20))
            await until(lambda: proxy.faults["down"].bytes_per_s)
            before = [passed[0]]
            for _ in range(10):
                assert await link.session(HEARTBEAT) == GRANTED
                before.append(passed[0])
            tasks.cancel_scope.cancel()

        assert link.state is LinkState.OPEN
        assert port.requests == []
    assert max(later - earlier for earlier, later in itertools.pairwise(before)) < 1_000_000


async def test_large_request_arrives() -> None:
    port = ContractPort(1)
    request = large_order(32 << 20)
    async with behind_a_proxy(ContractOffice(), port) as (transport, link, _):
        await opened(link)

        assert (await transport.connect(Broker(1, 0)).deliver(request)).error == 1

    (arrived,) = port.requests
    assert isinstance(arrived, LeaderAndIsr)
    assert len(arrived.states) == len(request.states)


async def test_participant_that_does_not_read_gets_no_more_than_the_lane_holds() -> None:
    limits = Limits(lane_bytes=1 << 20, silence_ms=60_000)
    port = ContractPort(1)
    async with behind_a_proxy(ContractOffice(), port, limits=limits) as (transport, link, proxy):
        await opened(link)
        proxy.freeze("down")
        async with anyio.create_task_group() as tasks:
            refused: list[BrokerUnreachable] = []

            async def deliver() -> None:
                try:
                    await transport.connect(Broker(1, 0)).deliver(large_order(1 << 20))
                except BrokerUnreachable as error:
                    refused.append(error)

            for _ in range(50):
                tasks.start_soon(deliver)
            await until(lambda: len(refused) >= 30)

            assert "bytes wait in the lane of orders" in str(refused[0])
            tasks.cancel_scope.cancel()


async def test_link_is_not_read_while_too_much_is_unhandled() -> None:
    """The participant stops reading, so the controller cannot send on; the requests arrive once it handles them."""
    limits = Limits(unhandled_bytes=1 << 20, silence_ms=60_000)
    port, may_answer = ContractPort(1), anyio.Event()
    began = 0

    async def respond(request: Request) -> Response:
        nonlocal began
        began += 1
        await may_answer.wait()
        return UpdateMetadataResponse(0)

    port.respond = respond
    async with behind_a_proxy(ContractOffice(), port, limits=limits) as (transport, link, _):
        await opened(link)
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(transport.connect(Broker(1, 0)).deliver, large_order(1 << 20))
            await until(lambda: began >= 2)
            for _ in range(200):
                await moment()
            assert began < 8

            may_answer.set()
            await until(lambda: began == 8)


async def test_link_that_is_closing_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes what waits, for a moment. What the peer sends meanwhile would be kept and not handled."""
    monkeypatch.setattr(link_module, "_FLUSH_S", 0.5)
    network = TcpNetwork(listen="127.0.0.1:0", limits=Limits(silence_ms=60_000))

    async def flood(client: RawClient) -> None:
        for _ in range(256):
            await client.write(bytes(1 << 20))

    async with (
        network.controller_side(ContractOffice()) as transport,
        anyio.create_task_group() as tasks,
        raw_client(network.address) as hostile,
        raw_client(network.address) as later,
    ):
        await hostile.greet(hello_of(1))

        async def deliver() -> None:
            with pytest.raises(BrokerUnreachable, match="later link"):
                await transport.connect(Broker(1, 0)).deliver(large_order(16 << 20))

        tasks.start_soon(deliver)
        await hostile.reader.read(1)  # the order is being written, and this is the last read
        await later.greet(hello_of(1))

        with pytest.raises(ConnectionError):
            await flood(hostile)


async def test_links_of_one_participant_are_limited() -> None:
    """Each start of a participant has a link. One that claims ever new starts would use up all descriptors."""
    office = ContractOffice()
    network = TcpNetwork(listen="127.0.0.1:0", limits=Limits(silence_ms=60_000))
    async with network.controller_side(office), AsyncExitStack() as stack:
        other = await stack.enter_async_context(raw_client(network.address))
        await other.greet(hello_of(2))
        clients = []
        for number in range(controller_links.LINKS_MAX + 2):
            clients.append(await stack.enter_async_context(raw_client(network.address)))
            await clients[-1].greet(hello_of(1, incarnation=bytes([number])))
            if not number:
                await clients[0].send(Kind.READY, b"")  # orders of registrations without id go there

        for client in clients[1:3]:
            await client.ended()
        await until(lambda: len(office.closed) == 2)

        assert [link.incarnation for link in office.closed] == [b"\x01", b"\x02"]
        assert not any(client.reader.at_eof() for client in (other, clients[0], *clients[3:]))


async def test_requests_of_one_participant_are_limited_over_all_of_its_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller has one queue for all: a participant that connects again and again could fill it."""
    monkeypatch.setattr(peer_requests, "REQUESTS_MAX", 3)
    office, may_answer, asked = ContractOffice(), anyio.Event(), list[int]()

    async def answer(request: Any) -> Any:
        asked.append(request.broker)
        await may_answer.wait()
        return ProducerIdBlock(request.broker, 0, 1)

    office.answer = answer
    network = TcpNetwork(listen="127.0.0.1:0", limits=Limits(silence_ms=60_000))
    async with network.controller_side(office):
        for number in range(3):
            async with raw_client(network.address) as client:
                await client.greet(hello_of(1, incarnation=bytes([number])))
                await client.send(Kind.ASK, wire.encode(AllocateProducerIds(1, 7)))
                await until(lambda: len(asked) == number + 1)  # noqa: B023
        async with raw_client(network.address) as client, raw_client(network.address) as other:
            await client.greet(hello_of(1))
            await client.send(Kind.ASK, wire.encode(AllocateProducerIds(1, 7)))
            await client.send(Kind.SESSION, wire.encode(HEARTBEAT))
            assert wire.decode((await client.receive()).head, wire.ANSWERS_OF_SESSIONS) == GRANTED
            await other.greet(hello_of(2))
            await other.send(Kind.ASK, wire.encode(AllocateProducerIds(2, 7)))
            await until(lambda: asked == [1, 1, 1, 2])

            may_answer.set()
            assert not (await other.receive()).error
            assert not (await client.receive()).error
            assert asked == [1, 1, 1, 2, 1]


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_silent_link_is_closed_by_both_sides(direction: Any) -> None:
    limits = Limits(silence_ms=300, backoff_ms=1, handshake_ms=200)
    office, port = ContractOffice(), ContractPort(1)
    async with behind_a_proxy(office, port, limits=limits) as (_, link, proxy):
        await opened(link)
        proxy.freeze(direction)

        await until(lambda: office.closed and port.states[-1] is LinkState.CONNECTING)

        proxy.heal()
        await opened(link)
        assert await link.session(HEARTBEAT) == GRANTED


async def test_idle_link_stays_open() -> None:
    limits = Limits(silence_ms=150)
    office, port = ContractOffice(), ContractPort(1)
    async with behind_a_proxy(office, port, limits=limits) as (_, link, _):
        await opened(link)
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 0.6)

        assert port.states == [LinkState.OPEN]
        assert office.closed == []


async def test_blocked_event_loop_closes_no_link() -> None:
    """What the peers have sent meanwhile is still unread."""
    limits = Limits(silence_ms=200)
    office, port = ContractOffice(), ContractPort(1)
    async with behind_a_proxy(office, port, limits=limits) as (_, link, _):
        await opened(link)
        time.sleep(0.5)  # noqa: ASYNC251 - the loop is blocked on purpose
        for _ in range(50):
            await moment()

        assert port.states == [LinkState.OPEN]


# -- cuts --------------------------------------------------------------------------------------------------------------


async def test_participant_reconnects_after_a_cut() -> None:
    office, port = ContractOffice(), ContractPort(1)
    async with behind_a_proxy(office, port) as (transport, link, proxy):
        for number in range(5):
            await opened(link)
            assert await answer_of(transport, Broker(1, 0)) == 1
            proxy.cut()
            await until(lambda: len(office.closed) == number + 1)  # noqa: B023

        await opened(link)
    assert {one.incarnation for one in office.closed} == {port.incarnation}


async def test_request_in_flight_fails_with_its_link_and_can_be_sent_again() -> None:
    office, port = ContractOffice(), ContractPort(1)
    hangs, respond = anyio.Event(), port.respond

    async def hang(_: Request) -> Response:
        hangs.set()
        await anyio.sleep_forever()
        raise AssertionError

    port.respond = hang
    async with behind_a_proxy(office, port) as (transport, link, proxy):
        await opened(link)
        connection = transport.connect(Broker(1, 0))

        async def cut() -> None:
            await hangs.wait()
            proxy.cut()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut)
            with pytest.raises(BrokerUnreachable):
                await connection.deliver(UPDATE)
        port.respond = respond

        assert await answer_of(transport, Broker(1, 0)) == 1


@pytest.mark.parametrize("after", [1, 15, 16, 17, 100, 300_000, 1_000_000])
async def test_message_that_is_cut_in_the_middle_is_not_handled(after: int) -> None:
    office, port = ContractOffice(), ContractPort(1)
    async with behind_a_proxy(office, port) as (transport, link, proxy):
        await opened(link)
        proxy.faults["down"].cut_after = after

        with pytest.raises(BrokerUnreachable):
            await transport.connect(Broker(1, 0)).deliver(large_order(2 << 20))

        assert port.requests == []
        assert await answer_of(transport, Broker(1, 0)) == 1


async def test_request_to_the_controller_fails_with_its_link() -> None:
    office, arrived = ContractOffice(), anyio.Event()

    async def hang(_: Any) -> Any:
        arrived.set()
        await anyio.sleep_forever()

    office.answer = hang
    async with behind_a_proxy(office, ContractPort(1)) as (_, link, proxy):
        await opened(link)

        async def cut() -> None:
            await arrived.wait()
            proxy.cut()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut)
            with pytest.raises(ControllerUnreachable):
                await link.ask(AllocateProducerIds(1, 2), controller=100)


async def test_refused_connections_are_tried_again() -> None:
    office = ContractOffice()
    async with behind_a_proxy(office, ContractPort(1)) as (_, link, proxy):
        await opened(link)
        proxy.refuse()
        await until(lambda: proxy.accepted > 5)
        with pytest.raises(ControllerUnreachable, match=proxy.address):
            await link.session(HEARTBEAT)

        proxy.heal()

        await opened(link)


async def test_messages_in_small_pieces_arrive() -> None:
    office, port = ContractOffice(), ContractPort(1)
    async with behind_a_proxy(office, port) as (transport, link, proxy):
        for faults in proxy.faults.values():
            faults.piece, faults.delay_ms = 7, (0, 1)
        await opened(link)
        assert await answer_of(transport, Broker(1, 0)) == 1
        assert await link.session(HEARTBEAT) == GRANTED


# -- links of one participant ------------------------------------------------------------------------------------------


async def test_second_link_of_a_registration_replaces_the_first() -> None:
    office, incarnation = ContractOffice(), next(lives())
    network = TcpNetwork(listen="127.0.0.1:0", limits=Limits(silence_ms=60_000))
    async with network.controller_side(office) as transport, raw_client(network.address) as first:
        await first.greet(hello_of(1, incarnation=incarnation))
        await until(lambda: office.open)
        async with raw_client(network.address) as second:
            await second.greet(hello_of(1, incarnation=incarnation))
            await first.ended()

            assert [link.incarnation for link in office.open] == [incarnation]
            assert office.closed == []  # it was replaced
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_try, transport, Broker(1, 0, incarnation=incarnation))
                assert (await second.receive()).kind is Kind.ORDER
                tasks.cancel_scope.cancel()


async def _try(transport: Transport, broker: Broker) -> None:
    try:
        await transport.connect(broker).deliver(UPDATE)
    except BrokerUnreachable:
        return


async def test_request_goes_to_the_registration_that_it_is_for() -> None:
    ids = lives()
    ports = [ContractPort(1, next(ids)) for _ in range(2)]
    network = TcpNetwork(listen="127.0.0.1:0")
    async with (
        network.controller_side(ContractOffice()) as transport,
        network.participant_side(ports[0]) as link,
        network.participant_side(ports[1]) as other,
    ):
        await opened(link)
        await opened(other)
        for number in (1, 0, 1):
            await transport.connect(Broker(1, 0, incarnation=ports[number].incarnation)).deliver(UPDATE)

        with pytest.raises(BrokerUnreachable, match="no open link"):
            await transport.connect(Broker(1, 0, incarnation=next(ids))).deliver(UPDATE)
    assert [len(port.requests) for port in ports] == [1, 2]


async def test_registration_is_announced_again_after_a_reconnection() -> None:
    """While it was away, requests went to an earlier registration, which has no proxy in between."""
    ids = lives()
    earlier, later = ContractPort(1, next(ids)), ContractPort(1, next(ids))
    office, network = ContractOffice(), TcpNetwork(listen="127.0.0.1:0", limits=QUICK)
    async with network.controller_side(office) as transport, network.participant_side(earlier) as competing:
        await opened(competing)
        host, _, number = str(network.address).rpartition(":")
        async with FaultProxy((host, int(number))) as proxy:
            behind = TcpNetwork(controllers=[proxy.address], limits=QUICK)
            async with behind.participant_side(later) as link:
                await opened(link)
                link.registered(41)
                proxy.refuse()
                await until(lambda: office.closed)
                await transport.connect(Broker(1, 0)).deliver(UPDATE)
                assert (len(earlier.requests), len(later.requests)) == (1, 0)

                proxy.heal()
                await opened(link)
                await link.session(HEARTBEAT)  # after the announcement, on the same link
                await transport.connect(Broker(1, 0)).deliver(UPDATE)

                assert (len(earlier.requests), len(later.requests)) == (1, 1)


# -- several controllers -----------------------------------------------------------------------------------------------


async def test_standby_names_the_active_controller() -> None:
    """The participant knows only the standby, which knows the address of the other one."""
    active = ContractOffice(101)
    one, two = TcpNetwork(listen="127.0.0.1:0"), TcpNetwork(listen="127.0.0.1:0")
    standby = ContractOffice(100, active=101)
    async with two.controller_side(active) as transport, one.controller_side(standby):
        standby.active_address = str(two.address)
        port = ContractPort(1)
        async with TcpNetwork(controllers=[str(one.address)], limits=QUICK).participant_side(port) as link:
            await opened(link)
            assert await answer_of(transport, Broker(1, 0)) == 1


async def test_participant_follows_the_controllership() -> None:
    first, second = ContractOffice(100), ContractOffice(101, active=100)
    one, two = TcpNetwork(listen="127.0.0.1:0", limits=QUICK), TcpNetwork(listen="127.0.0.1:0", limits=QUICK)
    async with one.controller_side(first), two.controller_side(second):
        network = TcpNetwork(controllers=[str(one.address), str(two.address), "127.0.0.1:1"], limits=QUICK)
        async with network.participant_side(ContractPort(1)) as link:
            for active in (100, 101, 100):
                first.active = second.active = active
                office = first if active == 100 else second
                await until(lambda: office.open)  # noqa: B023
                await opened(link)
                assert (await link.ask(AllocateProducerIds(1, 2), controller=active)).broker == 1


async def test_failed_search_names_each_address_with_its_reason() -> None:
    standby = ContractOffice(100, active=101)
    one = TcpNetwork(listen="127.0.0.1:0")
    async with one.controller_side(standby):
        network = TcpNetwork(controllers=[str(one.address), "127.0.0.1:1"], limits=QUICK)
        async with network.participant_side(ContractPort(1)) as link:
            reason = ""
            while "not active" not in reason:
                with pytest.raises(ControllerUnreachable) as raised:
                    await link.session(HEARTBEAT)
                reason = raised.value.reason
                await moment()
        assert f"{one.address}: controller 100 is not active" in reason
        assert "127.0.0.1:1: " in reason


async def test_at_most_three_addresses_are_tried_at_a_time() -> None:
    open_now = most = total = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most, total
        open_now, total = open_now + 1, total + 1
        most = max(most, open_now)
        await reader.read()
        open_now -= 1
        writer.close()

    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(8)]
    addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    limits = Limits(handshake_ms=50, backoff_ms=1)
    async with TcpNetwork(controllers=addresses, limits=limits).participant_side(ContractPort(1)):
        await until(lambda: total >= 16)
    await until(lambda: not open_now)
    for server in servers:
        server.close()
    assert most == 3


# -- faults at random --------------------------------------------------------------------------------------------------


async def test_cluster_survives_random_faults() -> None:
    """A cluster whose participants are behind a proxy that cuts, freezes and splits what passes."""
    rng = random.Random(84)
    limits = Limits(silence_ms=300, handshake_ms=300, backoff_ms=1, backoff_max_ms=20)
    network = TcpNetwork(listen="127.0.0.1:0", limits=limits)
    async with kactl.Controller(100, network=network) as controller:
        host, _, number = str(network.address).rpartition(":")
        async with FaultProxy((host, int(number)), rng=rng) as proxy:
            other = TcpNetwork(controllers=[proxy.address], limits=limits)
            async with kactl.Participants(3, store=controller.store, network=other) as brokers:
                for round_ in range(12):
                    match rng.randrange(4):
                        case 0:
                            proxy.cut()
                        case 1:
                            proxy.freeze(rng.choice(("up", "down")))
                        case 2:
                            proxy.faults["down"].cut_after = rng.randrange(5_000)
                        case _:
                            for faults in proxy.faults.values():
                                faults.piece = rng.randint(1, 100)
                    # Without waiting for the leaders, which may be cut off until `heal`.
                    name = f"topic-{round_}"
                    await controller.create_topic(name, partitions=4, replication_factor=3, timeout_ms=0)
                    for _ in range(rng.randrange(100)):
                        await moment()
                    proxy.heal()
                names = [f"topic-{round_}-{number}" for round_ in range(12) for number in range(4)]

                def agree() -> bool:
                    views = [controller.partition(name) for name in names]
                    return all(
                        view is not None
                        and len(view.isr) == 3
                        and all(brokers[at].leader(view.name) == view.leader for at in (1, 2, 3))
                        for view in views
                    )

                with anyio.fail_after(2 * PATIENCE_S):
                    while not agree():
                        await moment()


async def test_messages_to_a_participant_that_does_not_read_are_lost() -> None:
    receiver = ContractPort(2)
    limits = Limits(lane_bytes=10_000, silence_ms=60_000)
    network = TcpNetwork(listen="127.0.0.1:0", limits=limits)
    office = ContractOffice()
    async with network.controller_side(office), raw_client(network.address) as deaf:
        await deaf.greet(hello_of(2))
        await until(lambda: office.open)
        async with network.participant_side(ContractPort(1)) as link:
            await opened(link)
            big = FollowerReportsRequested(1, 2, 0, 2**60)
            for _ in range(5_000):
                link.send(big)
            # The link itself goes on.
            assert await link.session(HEARTBEAT) == GRANTED
    assert receiver.received == []


def test_sizes_of_the_large_request() -> None:
    """Keeps the tests above honest."""
    assert abs(len(wire.encode(large_order(32 << 20))) - (32 << 20)) < 1 << 20
    assert UpdateMetadata is type(UPDATE)


async def test_large_request_is_rejected_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a kind of which participants send a thousand rows at most; the link goes on."""
    network = TcpNetwork(listen="127.0.0.1:0", limits=Limits(silence_ms=60_000))
    proposal = IsrProposal(TopicRef("a", bytes(16)), 0, 0, (), 0)
    rows = requests.BYTES_MAX // len(wire.encode(AlterPartitionReceived(1, 1, (proposal,))))
    large = wire.encode(AlterPartitionReceived(1, 7, (proposal,) * 2 * rows))
    decoded: list[object] = []
    decode = wire.decode

    def recording(data: Any, family: wire.Family) -> Any:
        decoded.append(family)
        return decode(data, family)

    monkeypatch.setattr(wire, "decode", recording)

    async with network.controller_side(ContractOffice()), raw_client(network.address) as client:
        await client.greet(hello_of(1))
        decoded.clear()
        await client.send(Kind.ASK, large)
        answer = await client.receive()

    assert answer.error
    assert "at most 524288 are accepted" in str(decode(answer.head, wire.ERRORS))
    assert wire.REQUESTS not in decoded


@pytest.mark.parametrize(("kind", "size"), [(Kind.SESSION, 64 << 10), (Kind.ASK, 4 << 20), (Kind.METADATA, 64 << 10)])
async def test_message_that_no_participant_sends_closes_its_link(kind: Kind, size: int) -> None:
    network = TcpNetwork(listen="127.0.0.1:0", limits=Limits(silence_ms=60_000))
    async with network.controller_side(ContractOffice()), raw_client(network.address) as client:
        await client.greet(hello_of(1))

        await client.send(kind, bytes(size + 1))

        await client.ended()


async def test_message_that_never_ends_closes_its_link() -> None:
    """Signs of life between its parts do not prolong its time."""
    limits = Limits(silence_ms=300, request_ms=1_000)
    network = TcpNetwork(listen="127.0.0.1:0", limits=limits)
    part = next(frames_of(Message(Kind.ASK, 7, bytes(8 << 10)), 4 << 10))
    async with network.controller_side(ContractOffice()), raw_client(network.address) as client:
        await client.greet(hello_of(1))
        await client.write(part)

        async def live() -> None:
            while True:
                await client.send(Kind.PING, b"")
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live)
            with pytest.raises((ConnectionError, EOFError)):
                await client.receive()
            tasks.cancel_scope.cancel()


async def test_second_live_link_of_one_registration_is_logged_with_both_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = TcpNetwork(listen="127.0.0.1:0")
    async with network.controller_side(ContractOffice()), AsyncExitStack() as copies:
        clients = TcpNetwork(controllers=[str(network.address)], limits=Limits(backoff_ms=1, backoff_max_ms=20))
        for _ in range(2):  # as of a virtual machine that was copied while it ran
            link = await copies.enter_async_context(clients.participant_side(ContractPort(1, b"one life")))
            await opened(link)
        await until(lambda: "two processes have one registration" in caplog.text)

    first = next(text for text in caplog.messages if "two processes have one registration" in text)
    addresses = re.findall(r"127\.0\.0\.1:[0-9]+", first)
    assert "kactl://kactl/participant/1 has opened a link from " in first
    assert len(set(addresses)) == 2
