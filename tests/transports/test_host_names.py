"""Everything that connects, by a name whose first address does not answer, or while names cannot be resolved.

The time limit of each connection is longer than that of the test, so that a connection that waits for the first address
fails it.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import kactl
from kactl.model import Broker, Endpoint
from kactl.runtime import connecting, resolver
from kactl.stores.zookeeper.client import Client
from kactl.testing.fault_proxy import FaultProxy
from kactl.transports.kafka.listener import relay
from kactl.transports.tcp.tls import Tls
from tests.runtime.test_connecting import InOrder, stays_silent, until
from tests.runtime.test_connecting import closes as closes_at_once
from tests.runtime.test_connecting import listening as greeter
from tests.stores.zookeeper.connection.scripted import ScriptedServer, serve_reads
from tests.support.busy_threads import busy_threads
from tests.support.certificates import Authority
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.host_names import DEAD, NAME, Names, silent_address
from tests.transports.kafka import peer as kafka_peer
from tests.transports.kafka.listener.client import connected
from tests.transports.kafka.listener.listener_stub import LISTENER, ControllerStub, listening
from tests.transports.kafka.listener.upstream import broker
from tests.transports.kafka.test_client import VERSIONS, agree, transport
from tests.transports.kafka.test_request import UPDATE

pytestmark = pytest.mark.anyio

ALIVE = "127.0.0.1"
PATIENCE_S = 60
LONG_MS = 1_000 * 1_000


@pytest.fixture(scope="module", params=[pytest.param(False, id="asyncio"), pytest.param(True, id="uvloop")])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """`several.test` has two addresses, the first of which is tried first."""
    monkeypatch.setattr(connecting, "_rng", InOrder())
    monkeypatch.setattr(resolver, "_look_ups", resolver._LookUps())
    with Names() as names:
        names.addresses[NAME] = [DEAD, ALIVE]
        yield names


@contextlib.asynccontextmanager
async def controlled(**network: Any) -> AsyncIterator[int]:
    """A controller at the second address. Yields its port."""
    own = kactl.TcpNetwork(listen=f"{ALIVE}:0", **network)
    async with kactl.Controller(0, network=own) as controller:
        await controller.wait_active()
        yield int(str(own.address).rpartition(":")[2])


async def join(port: int, *, limits: kactl.Limits, **network: Any) -> None:
    """Start a participant, and stop it."""
    own = kactl.TcpNetwork(controllers=[f"{NAME}:{port}"], limits=limits, **network)
    with anyio.fail_after(PATIENCE_S):
        async with kactl.Participant(1, network=own, handler=kactl.PartitionHandler, session_timeout_ms=60_000):
            pass


LONG = kactl.Limits(dial_ms=LONG_MS, handshake_ms=LONG_MS, silence_ms=LONG_MS)


async def test_participant_finds_the_living_address() -> None:
    async with controlled() as port:
        with silent_address(DEAD, port):
            await join(port, limits=LONG)


def tls_of(authority: Authority, identity: str) -> Tls:
    signed = authority.sign(identity.replace("/", "-"), names=f"URI:kactl://kactl/{identity}", days="2")
    return Tls(ca=authority.cert, cert=signed.cert, key=signed.key)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("closes", [False, True])
async def test_participant_leaves_an_address_that_does_not_greet(tmp_path: Path, encrypted: bool, closes: bool) -> None:
    authority = Authority(tmp_path)
    tls = [tls_of(authority, role) if encrypted else None for role in ("controller/0", "participant/1")]
    limits = kactl.Limits(handshake_ms=LONG_MS if closes else 12_000, backoff_ms=LONG_MS)
    serve = closes_at_once if closes else stays_silent

    async with controlled(tls=tls[0]) as port, greeter(DEAD, port, serve) as peer:
        await join(port, limits=limits, tls=tls[1])

        assert peer.accepted == 1
        await until(lambda: peer.ended == 1)


def port_of(registered: Broker) -> int:
    return next(each.port for each in registered.endpoints if each.listener == LISTENER)


async def test_channel_to_a_broker_finds_the_living_address() -> None:
    async with kafka_peer.listening(agree, VERSIONS) as peer:
        port = port_of(peer.broker)
        registered = Broker(1, 77, (Endpoint(LISTENER, NAME, port),))
        with silent_address(DEAD, port), anyio.fail_after(PATIENCE_S):
            connection = transport(connect_timeout_ms=LONG_MS).connect(registered)
            try:
                await connection.deliver(UPDATE)
            finally:
                await connection.close()


async def test_relay_finds_the_living_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CONNECT_TIMEOUT_S", LONG_MS / 1000)
    controller = ControllerStub()

    async def echo(frame: bytes, _: asyncio.StreamWriter) -> bytes:
        return frame[4:8]

    async with broker(echo) as upstream, listening(controller) as (_, port), connected(port) as client:
        own = port_of(upstream.broker)
        controller.live = [Broker(1, 1, (Endpoint(LISTENER, NAME, own),))]
        with silent_address(DEAD, own), anyio.fail_after(PATIENCE_S):
            frame = struct.pack(">hhi", 99, 4, 5)
            client.writer.write(struct.pack(">i", len(frame)) + frame)

            assert await client.frame() == struct.pack(">i", 5)


async def test_zookeeper_client_finds_the_living_address() -> None:
    async with ScriptedServer(serve_reads) as server:
        port = int(server.connect.rpartition(":")[2])
        with silent_address(DEAD, port), anyio.fail_after(PATIENCE_S):
            client = Client(
                f"{NAME}:{port}",
                session_timeout_ms=LONG_MS,
                max_in_flight=2,
                on_state=lambda state: None,
                on_watch=lambda kind, path: None,
                on_tree=lambda path: None,
            )
            try:
                await client.open()
                data, _ = await client.ask(client.get("/a"))
            finally:
                await client.close()

    assert data == b"/a"


@pytest.mark.interop
async def test_etcd_store_finds_the_living_address(tmp_path: Path) -> None:
    require_etcd()
    with EtcdServer(tmp_path) as server, silent_address(DEAD, server.port), anyio.fail_after(PATIENCE_S):
        async with kactl.EtcdStore([f"http://{NAME}:{server.port}"], session_timeout_ms=30_000) as store:
            assert await store.topics() == []


async def test_brokers_without_names_do_not_delay_others(names: Names) -> None:
    names.addresses["healthy.test"] = [ALIVE]
    names.hanging.update(f"dead-{number}.test" for number in range(100))
    brokers = [Broker(2 + number, 1, (Endpoint(LISTENER, host, 1),)) for number, host in enumerate(names.hanging)]
    async with kafka_peer.listening(agree, VERSIONS) as peer:
        brokers.append(Broker(1, 77, (Endpoint(LISTENER, "healthy.test", port_of(peer.broker)),)))
        connections = [transport(connect_timeout_ms=LONG_MS).connect(each) for each in brokers]
        dead = [asyncio.create_task(each.deliver(UPDATE)) for each in connections[:-1]]
        await asyncio.sleep(0)

        with anyio.fail_after(PATIENCE_S):
            await connections[-1].deliver(UPDATE)

        assert not any(task.done() for task in dead)
        for task in dead:
            task.cancel()
        await asyncio.gather(*dead, return_exceptions=True)
        await connections[-1].close()


class Leads(kactl.PartitionHandler):
    async def lead(self, leader: kactl.Leader) -> None:
        await anyio.sleep_forever()


async def test_broken_link_is_opened_again_while_jobs_fill_the_threads() -> None:
    """The program's jobs occupy the threads of asyncio's executor and of anyio."""
    async with controlled() as port, FaultProxy((ALIVE, port)) as proxy:
        by_name = kactl.TcpNetwork(controllers=[f"localhost:{proxy.address.rpartition(':')[2]}"])
        async with kactl.Participant(1, network=by_name, handler=Leads, session_timeout_ms=60_000) as node:
            await node.ensure_topic("t", assignment={0: [1]})
            async with busy_threads():
                proxy.cut()
                with anyio.fail_after(PATIENCE_S):
                    await node.ensure_topic("u", assignment={0: [1]})  # over a new connection
