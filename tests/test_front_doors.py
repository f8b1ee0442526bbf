"""One suite of attacks on the number of connections, for the admin API, a Kafka listener and the network."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import anyio
import pytest

from kactl.admin import limits as admin_limits
from kactl.admin.limits import Capacity
from kactl.model import Endpoint
from kactl.runtime.places import Places
from kactl.testing.contracts.link_support import ContractOffice
from kactl.transports.kafka.listener import BoundListener, KafkaListener, ListenerSettings, admission
from kactl.transports.kafka.listener.limits import Limits as ListenerLimits
from kactl.transports.tcp import strangers
from kactl.transports.tcp.limits import Limits as NetworkLimits
from kactl.transports.tcp.network import TcpNetwork
from tests.admin.conftest import served
from tests.support.descriptors import no_descriptor_left
from tests.transports.kafka.listener.listener_stub import ControllerStub
from tests.transports.tcp.support import RawClient, hello_of

pytestmark = pytest.mark.anyio

CONNECTIONS = 8
PATIENCE_S = 60
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Server(NamedTuple):
    """A server with few places.

    Attributes:
        serves: returns whether a peer with this connection is served.
    """

    port: int
    serves: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]


@contextlib.asynccontextmanager
async def admin_api() -> AsyncIterator[Server]:
    async with served(capacity=Capacity(connections=CONNECTIONS, probes=0)) as server:

        async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            writer.write(f"GET /readyz HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
            return (await reader.readline()).startswith(b"HTTP/1.1 200")

        yield Server(int(server.url.rpartition(":")[2]), serves)


@contextlib.asynccontextmanager
async def kafka_listener() -> AsyncIterator[Server]:
    async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(API_VERSIONS)
        return len(await reader.read(4)) == 4

    sockets = BoundListener(Endpoint("CLIENTS", "127.0.0.1", 0))
    settings = ListenerSettings(limits=ListenerLimits(connections_max=CONNECTIONS))
    async with KafkaListener(ControllerStub(), {"CLIENTS": sockets}, settings):
        yield Server(sockets.port, serves)


@contextlib.asynccontextmanager
async def network() -> AsyncIterator[Server]:
    async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        return (await RawClient(reader, writer).greet(hello_of(1))).version == 1

    listening = TcpNetwork(listen="127.0.0.1:0", limits=NetworkLimits(strangers=CONNECTIONS, handshake_ms=600_000))
    async with listening.controller_side(ContractOffice()):
        yield Server(int(str(listening.address).rpartition(":")[2]), serves)


SERVERS = pytest.mark.parametrize("running", [admin_api, kafka_listener, network])


@pytest.fixture(autouse=True)
def accepted(monkeypatch: pytest.MonkeyPatch) -> anyio.Event:
    """No connection has a grace period. Returns what is set when the first one has a place."""
    monkeypatch.setattr(admin_limits, "FRESH_S", 0.0)
    monkeypatch.setattr(admission, "GRACE_S", 0.0)
    monkeypatch.setattr(strangers, "_FRESH_S", 0.0)
    event, run = anyio.Event(), Places.run

    def noted(*arguments: Any) -> None:
        run(*arguments)
        event.set()

    monkeypatch.setattr(Places, "run", noted)
    return event


@contextlib.asynccontextmanager
async def connected(port: int, source: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


@SERVERS
async def test_peer_is_served_in_a_crowd_of_silent_connections(running: Any) -> None:
    async with running() as server, contextlib.AsyncExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            await stack.enter_async_context(connected(server.port, "127.0.0.1"))

        with anyio.fail_after(PATIENCE_S):
            async with connected(server.port, "127.0.0.2") as peer:
                assert await server.serves(*peer)


@SERVERS
async def test_silent_connection_makes_way_without_descriptors(running: Any, accepted: anyio.Event) -> None:
    async with running() as server, connected(server.port, "127.0.0.1") as (silent, _):
        with anyio.fail_after(PATIENCE_S), contextlib.closing(socket.socket()) as newcomer:
            await accepted.wait()
            with no_descriptor_left():
                newcomer.connect(("127.0.0.1", server.port))
                assert await ended(silent)
            reader, writer = await asyncio.open_connection(sock=newcomer)
            assert await server.serves(reader, writer)
            writer.transport.abort()


@SERVERS
async def test_server_ends_while_connections_begin(running: Any) -> None:
    """Some have a place and a task that has not begun; none is left open."""
    async with contextlib.AsyncExitStack() as stack:
        async with running() as server:
            peers = [
                stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", server.port))))
                for _ in range(CONNECTIONS)
            ]
            await asyncio.sleep(0)  # the server accepts, and begins nothing

        for peer in peers:
            peer.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionError):
                assert peer.recv(1) == b""
