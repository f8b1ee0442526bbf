"""Addresses that participants advertise, and identities that they claim, are checked before they are registered."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import kactl
from kactl.errors import EndpointUnreachable, NotAuthorized
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing.contracts.link_support import until
from kactl.transports.tcp.tls import Tls
from tests.support.certificates import Authority

pytestmark = pytest.mark.anyio

LOOPBACK = "127.0.0.1:0"
SESSION_MS = 100  # a start gives up after twice as long, at the second attempt
PATIENCE_S = 60


class Cluster:
    """A controller over tcp, and its store."""

    def __init__(self, controller: kactl.Controller, network: kactl.TcpNetwork, state: MemoryState) -> None:
        self.controller = controller
        self.address = str(network.address)
        self.brokers = state.brokers

    def participant(self, broker: int, *, session_timeout_ms: int = SESSION_MS, **network: Any) -> kactl.Participant:
        return kactl.Participant(
            broker,
            network=kactl.TcpNetwork(controllers=[self.address], **network),
            session_timeout_ms=session_timeout_ms,
        )


@asynccontextmanager
async def cluster(**network: Any) -> AsyncIterator[Cluster]:
    state, own = MemoryState(), kactl.TcpNetwork(listen=LOOPBACK, **network)
    with anyio.fail_after(PATIENCE_S):
        async with kactl.Controller(100, store=MemoryStore(state), network=own) as controller:
            await controller.wait_active()
            yield Cluster(controller, own, state)


@pytest.fixture
def closed_port() -> int:
    """Returns a port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        number: int = bound.getsockname()[1]
    return number


async def test_participant_that_listens_is_registered_with_its_address() -> None:
    async with cluster() as found:
        network = kactl.TcpNetwork(listen=LOOPBACK, controllers=[found.address])
        async with kactl.Participant(1, network=network):
            registered = found.brokers[1][0]
            assert registered.peer is not None
            assert f"{registered.peer.host}:{registered.peer.port}" == network.address


async def test_participant_that_does_not_listen_advertises_nothing() -> None:
    async with cluster() as found, found.participant(1, session_timeout_ms=6_000):
        assert found.brokers[1][0].peer is None


async def test_address_that_leads_nowhere_is_refused(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as found:
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(EndpointUnreachable, match="participant 1 was not found there") as raised,
        ):
            async with found.participant(1, listen=LOOPBACK, advertise=f"127.0.0.1:{closed_port}"):
                pytest.fail("it has started")

        assert (raised.value.host, raised.value.port) == ("127.0.0.1", closed_port)
        assert found.brokers == {}
        assert "the registration of broker 1 from 127.0.0.1" in caplog.text


async def test_address_of_another_participant_is_refused() -> None:
    async with cluster() as found:
        network = kactl.TcpNetwork(listen=LOOPBACK, controllers=[found.address])
        async with kactl.Participant(1, network=network):
            with pytest.raises(EndpointUnreachable, match="no participant 2 runs at this address"):
                async with found.participant(2, listen=LOOPBACK, advertise=network.address):
                    pytest.fail("it has started")

            assert found.brokers.keys() == {1}


async def test_address_of_all_of_a_host_is_refused_with_the_remedy() -> None:
    async with cluster() as found:
        with pytest.raises(EndpointUnreachable, match="give advertise="):
            async with found.participant(1, listen=LOOPBACK, advertise="0.0.0.0:7373"):
                pytest.fail("it has started")

        assert found.brokers == {}


async def test_loopback_is_refused_beside_an_address_of_the_network() -> None:
    # The address of the first one is for documentation and leads nowhere, so the check by connecting is off.
    async with (
        cluster(verify_endpoint=False) as found,
        found.participant(1, session_timeout_ms=6_000, listen=LOOPBACK, advertise="192.0.2.1:7373"),
    ):
        with pytest.raises(EndpointUnreachable, match=r"advertises 192\.0\.2\.1:7373: give advertise="):
            async with found.participant(2, listen=LOOPBACK):
                pytest.fail("it has started")

        assert found.brokers.keys() == {1}


async def test_unchecked_address_is_a_warning(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        cluster(verify_endpoint=False) as found,
        found.participant(1, session_timeout_ms=6_000, listen=LOOPBACK, advertise=f"127.0.0.1:{closed_port}"),
    ):
        await until(lambda: 1 in found.controller.cluster.brokers)
        link = found.controller.links.view(found.controller.cluster.brokers[1])

        assert link is not None
        assert f"127.0.0.1:{closed_port}" in link.endpoint_error
        assert "others cannot connect to it" in caplog.text


@pytest.mark.slow  # a participant waits for its link for two seconds
async def test_certificate_of_another_participant_registers_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, "authority")

    def tls(identity: str) -> Tls:
        signed = authority.sign(identity.replace("/", "-"), names=f"URI:kactl://kactl/{identity}", days="2")
        return Tls(ca=authority.cert, cert=signed.cert, key=signed.key)

    async with cluster(tls=tls("controller/100")) as found:
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(NotAuthorized, match=r"names kactl://kactl/participant/1: give it the cert"),
        ):
            async with found.participant(2, session_timeout_ms=60_000, tls=tls("participant/1")):
                pytest.fail("it has started")

        assert found.brokers == {}
        assert "claims to be kactl://kactl/participant/2" in caplog.text
