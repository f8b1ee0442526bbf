"""Relay of requests and responses to a broker, unchanged, and the behaviour without a broker."""

import asyncio
import struct
import tracemalloc

import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.broker import ControlledShutdown
from kactl.model import Broker, Endpoint
from kactl.transports.kafka.listener.limits import Limits

from .client import Client, connected, part, request_class
from .listener_stub import KACTL, LISTENER, ControllerStub, listening, until
from .upstream import broker

pytestmark = pytest.mark.anyio

FIND_COORDINATOR = 10
DESCRIBE_CLUSTER = 60


def request(key: int, size: int = 40, correlation_id: int = 5) -> bytes:
    """Return a frame of an API that the listener does not know."""
    return struct.pack(">hhi", key, 4, correlation_id) + bytes(range(256)) * (size // 256) + bytes(size % 256)


async def send(client: Client, content: bytes) -> None:
    client.writer.write(struct.pack(">i", len(content)) + content)
    await client.writer.drain()


async def echo(frame: bytes, _: asyncio.StreamWriter) -> bytes:
    """Return the correlation id, then the rest reversed."""
    return frame[4:8] + frame[::-1]


@pytest.mark.parametrize("key", [1, 9, FIND_COORDINATOR, 22, 32, 44, DESCRIBE_CLUSTER, 99])
async def test_foreign_request_is_relayed_unchanged(key: int) -> None:
    controller = ControllerStub()
    async with broker(echo) as upstream, listening(controller) as (listener, port), connected(port) as client:
        controller.live = [upstream.broker]
        for size in (0, 1, 40, 300_000):
            await send(client, request(key, size))
            answer = await client.frame()

            assert upstream.frames[-1] == request(key, size)
            assert answer == request(key, size)[4:8] + request(key, size)[::-1]

    assert upstream.connections == 1
    assert controller.requests == []
    assert listener.counters.requests == {"relayed": 4}


async def test_own_and_relayed_requests_alternate_on_one_connection() -> None:
    controller = ControllerStub({ControlledShutdown: lambda _: []})
    async with broker(echo) as upstream, listening(controller) as (_, port), connected(port) as client:
        controller.live = [upstream.broker]
        for _ in range(3):
            await send(client, request(DESCRIBE_CLUSTER))
            await client.frame()
            await client.ask(request_class(7, 3)(broker_id=1, broker_epoch=1))

    assert len(upstream.frames) == len(controller.requests) == 3
    assert upstream.connections == 1


async def test_clients_have_separate_spread_connections_that_end_with_them() -> None:
    controller = ControllerStub()
    async with (
        broker(echo, broker_id=1) as first,
        broker(echo, broker_id=2) as second,
        listening(controller) as (_, port),
    ):
        controller.live = [first.broker, second.broker]
        for _ in range(4):
            async with connected(port) as client:
                await send(client, request(DESCRIBE_CLUSTER))
                await client.frame()
        await until(lambda: first.open == second.open == 0)

    assert (first.connections, second.connections) == (2, 2)


@pytest.mark.parametrize("key", [3, 18])
async def test_metadata_and_versions_come_from_a_live_broker(key: int) -> None:
    controller = ControllerStub()
    async with broker(echo) as upstream, listening(controller) as (_, port), connected(port) as client:
        controller.live = [upstream.broker]
        await send(client, request(key))
        relayed = await client.frame()
        controller.live = []
        own = await client.ask(request_class(18, 4)(client_software_name="a", client_software_version="1"))

    assert relayed == await echo(request(key), client.writer)
    assert {entry.api_key for entry in own.api_keys} >= {3, 7, 18, 19, 20, 37, 43, 45, 46, 56, 57, 67}


async def test_next_broker_is_used_if_one_refuses() -> None:
    controller = ControllerStub()
    dead = Broker(1, 1, (Endpoint(LISTENER, "127.0.0.1", 1),))
    wild = Broker(2, 1, (Endpoint(LISTENER, "not a host name at all..", 99_999),))
    async with broker(echo, broker_id=3) as upstream, listening(controller) as (_, port):
        controller.live = [dead, wild, upstream.broker]
        for _ in range(3):
            async with connected(port) as client:
                await send(client, request(DESCRIBE_CLUSTER))
                await client.frame()

    assert upstream.connections == 3


@pytest.mark.parametrize(
    "live",
    [
        [],
        [Broker(1, 1, (Endpoint("OTHER", "127.0.0.1", 1),))],
        [Broker(1, 1, (Endpoint(LISTENER, "127.0.0.1", 1, "SSL"),))],
        [Broker(1, 1, (Endpoint(LISTENER, "127.0.0.1", 1),))],
    ],
    ids=["none", "another listener", "encrypted", "dead"],
)
async def test_connection_is_closed_without_a_broker(live: list[Broker]) -> None:
    controller = ControllerStub()
    controller.live = live
    async with listening(controller) as (listener, port), connected(port) as client:
        await send(client, request(DESCRIBE_CLUSTER))
        closed = await client.is_closed()

    assert closed
    assert listener.counters.rejected == {"no_broker": 1}


async def test_other_broker_is_used_after_one_stops() -> None:
    controller = ControllerStub()
    async with (
        broker(echo, broker_id=1) as first,
        broker(echo, broker_id=2) as second,
        listening(controller) as (_, port),
        connected(port) as client,
    ):
        controller.live = [first.broker]
        await send(client, request(DESCRIBE_CLUSTER))
        await client.frame()
        controller.live = [second.broker]
        await send(client, request(DESCRIBE_CLUSTER))
        await client.frame()
        await until(lambda: first.open == 0)

    assert len(second.frames) == 1


async def closes(frame: bytes, _: asyncio.StreamWriter) -> None:
    return None


async def closes_half_way(frame: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", 1000) + b"half")
    await writer.drain()


async def sends_nonsense(frame: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", -7))
    await writer.drain()
    await asyncio.sleep(60)


@pytest.mark.parametrize("respond", [closes, closes_half_way, sends_nonsense])
async def test_connection_is_closed_if_the_broker_fails_on_a_request(respond: object) -> None:
    controller = ControllerStub()
    async with broker(respond) as upstream, listening(controller) as (listener, port), connected(port) as client:  # type: ignore[arg-type]
        controller.live = [upstream.broker]
        await send(client, request(DESCRIBE_CLUSTER))
        async with asyncio.timeout(60):
            while await client.reader.read(4096):
                pass

    assert listener.counters.rejected == {"relay": 1}


async def test_client_that_leaves_during_a_request_leaves_no_state() -> None:
    controller = ControllerStub()
    async with broker(echo) as upstream, listening(controller) as (listener, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            client.writer.write(struct.pack(">i", 5000) + request(DESCRIBE_CLUSTER, 100))
            await until(lambda: upstream.open == 1)
        await until(lambda: upstream.open == listener.counters.connections == 0)

    assert upstream.frames == []


async def test_large_response_waits_for_the_client_outside_memory() -> None:
    """Relay 60 MiB to a client that reads nothing; only a few pieces of it are in memory."""
    size = 60 * 1024 * 1024

    async def large(frame: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", size))
        piece = bytes(1024 * 1024)
        for _ in range(60):
            writer.write(piece)
            await writer.drain()
            written.append(len(piece))
        await asyncio.Event().wait()  # until the test ends; closing now would discard bytes in transit

    written: list[int] = []
    controller = ControllerStub()
    async with broker(large) as upstream, listening(controller) as (_, port), connected(port) as client:
        controller.live = [upstream.broker]
        tracemalloc.start()
        await send(client, request(DESCRIBE_CLUSTER))
        before = -1
        while before != len(written):
            before = len(written)
            await asyncio.sleep(0.1)
        in_memory, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        stuck = len(written)
        left = 4 + size
        while left and (piece := await client.reader.read(min(left, 1 << 20))):
            left -= len(piece)

    assert left == 0
    assert stuck < 60
    assert in_memory < 8 * 1024 * 1024


async def test_client_that_never_reads_is_disconnected() -> None:
    controller = ControllerStub()

    async def large(frame: bytes, writer: asyncio.StreamWriter) -> bytes:
        return bytes(30 * 1024 * 1024)

    limits = Limits(write_timeout_s=0.2)
    async with (
        broker(large) as upstream,
        listening(controller, limits=limits) as (listener, port),
        connected(port) as client,
    ):
        controller.live = [upstream.broker]
        await send(client, request(DESCRIBE_CLUSTER))
        await until(lambda: listener.counters.connections == 0)

    assert listener.counters.rejected == {"slow": 1}


# -- own responses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_own_versions_are_returned_without_a_broker(version: int) -> None:
    more = {"client_software_name": "librdkafka", "client_software_version": "2.6"} if version >= 3 else {}
    async with listening(ControllerStub()) as (_, port), connected(port) as client:
        answer = await client.ask(request_class(18, version)(**more))

    versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert answer.error_code is KioError.none
    assert {key: versions[key] for key in (3, 7, 18, 19, 20, 37, 43, 45, 46, 56, 57, 67)} == {
        3: (0, 12), 7: (0, 3), 18: (0, 4), 19: (0, 7), 20: (0, 6), 37: (0, 3), 43: (0, 2), 45: (0, 0), 46: (0, 0),
        56: (0, 3), 57: (0, 1), 67: (0, 0),
    }  # fmt: skip


async def test_unknown_version_gets_own_versions_in_the_oldest_form() -> None:
    async with listening(ControllerStub()) as (_, port), connected(port) as client:
        await send(client, struct.pack(">hhi", 18, 9, 77) + b"\x00\x01a\x00" + bytes(20))
        content = await client.frame()
        again = await client.ask(request_class(18, 0)())

    answer = Client.read(request_class(18, 0)(), content, 77)
    assert answer.error_code is KioError.unsupported_version
    assert [(entry.api_key, entry.max_version) for entry in answer.api_keys] == [(18, 4)]
    assert again.error_code is KioError.none


@pytest.mark.parametrize("version", range(13))
async def test_metadata_without_brokers_names_the_controller_and_no_leaders(version: int) -> None:
    topic = part(3, version, "MetadataRequestTopic")
    named = topic(name="orders", **({"topic_id": None} if version >= 10 else {}))
    more = {"include_topic_authorized_operations": False} if version >= 8 else {}
    more |= {"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {}
    async with listening(ControllerStub()) as (_, port), connected(port) as client:
        answer = await client.ask(request_class(3, version)(topics=(named,), **more))

    assert [(entry.node_id, entry.host, entry.port) for entry in answer.brokers] == [(KACTL, "127.0.0.1", port)]
    assert version < 1 or answer.controller_id == KACTL
    assert [(entry.name, entry.error_code, entry.partitions) for entry in answer.topics] == [
        ("orders", KioError.leader_not_available, ())
    ]


async def test_metadata_includes_brokers_that_cannot_be_relayed_to() -> None:
    controller = ControllerStub()
    controller.live = [Broker(1, 1, (Endpoint(LISTENER, "b1", 9093, "SSL"),), "rack-a")]
    ask = request_class(3, 12)(topics=None, include_topic_authorized_operations=False)
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(ask)

    assert [(entry.node_id, entry.host, entry.port, entry.rack) for entry in answer.brokers] == [
        (1, "b1", 9093, "rack-a"),
        (KACTL, "127.0.0.1", port, "rack-a"),
    ]
