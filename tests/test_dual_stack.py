"""All servers on `[::]`: clients by IPv4 and by IPv6, and the address by which an IPv4 client is known."""

import asyncio
import socket

import aiohttp
import anyio
import pytest

import kactl
from kactl.config.settings import SecurityConfig
from kactl.model import Endpoint
from kactl.testing.contracts.network import PATIENCE_S
from kactl.transports.kafka.listener import BoundListener, KafkaListener, ListenerSettings
from tests.admin.conftest import served
from tests.transports.kafka.listener.listener_stub import ControllerStub, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6"),
]

SECRET = b"sixteen bytes are enough"
INSECURE = SecurityConfig(allow_insecure=("api",))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
async def test_admin_api_serves_both_families(host: str) -> None:
    async with served(listen="[::]:0", security=INSECURE) as server:
        assert server.url.startswith("http://[::]:")
        url = f"http://{host}:{server.url.rpartition(':')[2]}/livez"

        async with aiohttp.ClientSession() as client:
            async with client.get(url) as answer:
                assert answer.status == 200
            # The name in `Host` is compared with the address of the connection.
            async with client.get(url, headers={"Host": "192.0.2.1:1"}) as answer:
                assert answer.status == 421


async def test_admin_api_knows_ipv4_clients_by_their_own_address(caplog: pytest.LogCaptureFixture) -> None:
    async with served(listen="[::]:0", security=INSECURE) as server:
        url = f"http://127.0.0.1:{server.url.rpartition(':')[2]}"

        async with aiohttp.ClientSession() as client, client.get(f"{url}/v1/topics") as answer:
            assert answer.status == 401

    assert "127.0.0.1" in caplog.text
    assert "::ffff:" not in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_network_of_participants_serves_both_families(host: str) -> None:
    network = kactl.TcpNetwork(listen="[::]:0", secret=SECRET, allow_plaintext=True)
    async with kactl.Controller(0, network=network) as controller:
        assert (network.address or "").startswith("[::]:")
        port = (network.address or "").rpartition(":")[2]
        own = kactl.TcpNetwork(controllers=[f"{host}:{port}"], secret=SECRET)
        with anyio.fail_after(PATIENCE_S):
            async with kactl.Participant(1, network=own, handler=kactl.PartitionHandler, session_timeout_ms=60_000):
                assert [broker.id for broker in controller.brokers()] == [1]


async def test_participants_of_the_same_process_find_the_wildcard() -> None:
    network = kactl.TcpNetwork(listen="[::0]:0", secret=SECRET, allow_plaintext=True)
    async with kactl.Controller(0, network=network):
        with anyio.fail_after(PATIENCE_S):
            async with kactl.Participant(1, network=network, handler=kactl.PartitionHandler, session_timeout_ms=60_000):
                assert network.controller_address == ""  # others cannot use it


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_kafka_listener_serves_both_families(host: str) -> None:
    """The address of its slot is the one that all limits and rules know."""
    sockets = BoundListener(Endpoint("CLIENTS", "::", 0))
    async with KafkaListener(ControllerStub(), {"CLIENTS": sockets}, ListenerSettings()) as listener:
        reader, writer = await asyncio.open_connection(host, sockets.port)
        await until(lambda: listener.counters.connections == 1)

        ((slot,),) = listener._admission.owners.values()
        assert slot.address == host

        writer.close()
        await reader.read()


async def test_kafka_listener_listens_on_all_addresses_of_a_name() -> None:
    sockets = BoundListener(Endpoint("CLIENTS", "localhost", 0))
    families = {each.family for each in sockets}
    sockets.close()

    found = {each[0] for each in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)}
    assert families == found
