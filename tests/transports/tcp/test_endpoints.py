"""Addresses that participants advertise, and identities that they claim, are checked before they are registered."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import kactl
from kactl.decide.messages.admin import ResignController
from kactl.decide.messages.sessions import ParticipantLink, VerifyEndpoint
from kactl.model import Endpoint
from kactl.model.errors import BadConfig, BrokerIdTaken, ControllerUnreachable, EndpointUnreachable, NotAuthorized
from kactl.runtime.resolver import Resolved
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.testing.contracts.link_support import ContractOffice, until
from kactl.transports.tcp.endpoint_check import DIALS_EACH_MAX, EndpointCheck, PeerNetworks
from kactl.transports.tcp.tls import Tls
from tests.support.certificates import Authority

pytestmark = pytest.mark.anyio

LOOPBACK = "127.0.0.1:0"
SESSION_MS = 400
# How long a start is tried until the controller has answered it: refused ones are tried again.
REFUSAL_LIMITS_MS = (SESSION_MS, 2_000, 10_000, 40_000)
PATIENCE_S = 60


class Cluster:
    """A controller over tcp, and its store."""

    def __init__(self, controller: kactl.Controller, network: kactl.TcpNetwork, state: MemoryState) -> None:
        self.controller = controller
        self.network = network
        self.state = state
        self.address = str(network.address)
        self.brokers = state.brokers

    def participant(
        self,
        broker: int,
        *,
        session: str = "controller",
        session_timeout_ms: int = SESSION_MS,
        start_timeout_ms: int = 60_000,
        **network: Any,
    ) -> kactl.Participant:
        return kactl.Participant(
            broker,
            store=self.controller.store if session == "store" else None,
            network=kactl.TcpNetwork(controllers=[self.address], **network),
            session_timeout_ms=session_timeout_ms,
            start_timeout_ms=start_timeout_ms,
        )

    async def refused(self, broker: int, **options: Any) -> EndpointUnreachable | NotAuthorized:
        """Returns why a participant was not admitted."""
        for limit_ms in REFUSAL_LIMITS_MS:
            try:
                async with self.participant(broker, start_timeout_ms=limit_ms, **options):
                    pytest.fail("it has started")
            except (EndpointUnreachable, NotAuthorized) as error:
                return error
            except (ControllerUnreachable, BrokerIdTaken):
                continue  # no answer within the limit
        pytest.fail("no controller has answered")


@asynccontextmanager
async def cluster(
    state: MemoryState | None = None, *, listen: str = LOOPBACK, is_standby: bool = False, **network: Any
) -> AsyncIterator[Cluster]:
    state, own = state or MemoryState(), kactl.TcpNetwork(listen=listen, **network)
    with anyio.fail_after(PATIENCE_S):
        async with kactl.Controller(100 + is_standby, store=MemoryStore(state), network=own) as controller:
            if not is_standby:
                await controller.wait_active()
            yield Cluster(controller, own, state)


both_sessions = pytest.mark.parametrize("session", ["controller", "store"])


@pytest.fixture
def closed_port() -> int:
    """Returns a port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        number: int = bound.getsockname()[1]
    return number


@both_sessions
async def test_participant_that_listens_is_registered_with_its_address(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, verify = list[tuple[int, bytes]](), kactl.TcpNetwork.verify

    async def recorded(network: kactl.TcpNetwork, broker: int, incarnation: bytes, *place: Any) -> None:
        verified.append((broker, incarnation))
        await verify(network, broker, incarnation, *place)

    monkeypatch.setattr(kactl.TcpNetwork, "verify", recorded)
    async with cluster() as found:
        participant = found.participant(1, session=session, session_timeout_ms=6_000, listen=LOOPBACK)
        async with participant:
            registered = found.brokers[1][0]
            assert registered.session == session
            assert registered.peer is not None
            assert registered.peer.host == "127.0.0.1"
            assert verified == [(1, registered.incarnation)]


async def test_participant_that_does_not_listen_advertises_nothing() -> None:
    async with cluster() as found, found.participant(1, session_timeout_ms=6_000):
        assert found.brokers[1][0].peer is None


@both_sessions
async def test_address_that_leads_nowhere_is_refused(
    session: str, closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as found:
        with caplog.at_level(logging.WARNING):
            error = await found.refused(1, session=session, listen=LOOPBACK, advertise=f"127.0.0.1:{closed_port}")

        assert "participant 1 was not found there" in str(error)
        assert isinstance(error, EndpointUnreachable)
        assert (error.host, error.port) == ("127.0.0.1", closed_port)
        assert found.brokers == {}
        assert "the registration of broker 1 from 127.0.0.1" in caplog.text


@both_sessions
async def test_address_of_another_participant_is_refused(session: str) -> None:
    async with cluster() as found:
        network = kactl.TcpNetwork(listen=LOOPBACK, controllers=[found.address])
        async with kactl.Participant(1, network=network):
            error = await found.refused(2, session=session, listen=LOOPBACK, advertise=network.address)

            assert "participant 2 was not found there" in str(error)
            assert found.brokers.keys() == {1}


@both_sessions
async def test_address_of_all_of_a_host_is_refused_with_the_remedy(session: str) -> None:
    async with cluster() as found:
        error = await found.refused(1, session=session, listen=LOOPBACK, advertise="0.0.0.0:7373")

        assert "give advertise=" in str(error)
        assert found.brokers == {}


@both_sessions
async def test_loopback_is_refused_beside_an_address_of_the_network(session: str) -> None:
    # The address of the first one is for documentation and leads nowhere, so the check by connecting is off.
    async with (
        cluster(verify_endpoint=False) as found,
        found.participant(1, session=session, session_timeout_ms=6_000, listen=LOOPBACK, advertise="192.0.2.1:7373"),
    ):
        error = await found.refused(2, session=session, listen=LOOPBACK)

        assert "advertises 192.0.2.1:7373: give advertise=" in str(error)
        assert found.brokers.keys() == {1}


@both_sessions
async def test_unchecked_address_is_a_warning(session: str, closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        cluster(verify_endpoint=False) as found,
        found.participant(
            1, session=session, session_timeout_ms=6_000, listen=LOOPBACK, advertise=f"127.0.0.1:{closed_port}"
        ),
    ):
        await until(lambda: 1 in found.controller.cluster.brokers)
        link = found.controller.links.view(found.controller.cluster.brokers[1])

        assert link is not None
        assert f"127.0.0.1:{closed_port}" in link.endpoint_error
        assert "others cannot connect to it" in caplog.text


@pytest.mark.slow  # a participant waits for its link for two seconds
async def test_address_registered_without_a_controller_is_shown(
    closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        later = f"127.0.0.1:{bound.getsockname()[1]}"
    state = MemoryState()
    network = kactl.TcpNetwork(listen=LOOPBACK, advertise=f"127.0.0.1:{closed_port}", controllers=[later])
    async with (
        MemoryStore(state) as store,
        kactl.Participant(1, store=store, network=network),
        cluster(state, listen=later) as found,
    ):

        def error() -> str:
            broker = found.controller.cluster.brokers.get(1)
            link = None if broker is None else found.controller.links.view(broker)
            return "" if link is None else link.endpoint_error

        await until(error)

        assert f"127.0.0.1:{closed_port}: participant 1 was not found there" in error()
        await until(lambda: "broker 1 is registered, but others cannot connect to it" in caplog.text)


@both_sessions
async def test_next_controller_verifies_the_address_too(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verify, blind = kactl.TcpNetwork.verify, set[kactl.TcpNetwork]()

    async def seen(
        network: kactl.TcpNetwork, broker: int, incarnation: bytes, host: str, port: int, peer: str, claim: str
    ) -> None:
        if network in blind:
            raise EndpointUnreachable(host, port, "no route from here")
        await verify(network, broker, incarnation, host, port, peer, claim)

    monkeypatch.setattr(kactl.TcpNetwork, "verify", seen)
    async with cluster() as first, cluster(first.state, is_standby=True) as second:
        blind.add(second.network)
        network = kactl.TcpNetwork(listen=LOOPBACK, controllers=[first.address, second.address])
        store = first.controller.store if session == "store" else None
        async with kactl.Participant(1, store=store, network=network, session_timeout_ms=60_000) as participant:
            epoch = await participant.wait_linked()
            await first.controller.ask(ResignController(stop=True))
            await second.controller.wait_active()

            def error() -> str:
                broker = second.controller.cluster.brokers.get(1)
                link = None if broker is None else second.controller.links.view(broker)
                return "" if link is None else link.endpoint_error

            await until(error)
            assert error().endswith("no route from here")
            assert participant.epoch == epoch


async def test_failure_is_forgotten_when_the_participant_is_found() -> None:
    port, link = ContractOffice(), ParticipantLink(1, bytes(16))
    request = VerifyEndpoint(1, bytes(16), Endpoint("PEER", "127.0.0.1", 7373))
    failures = [EndpointUnreachable("127.0.0.1", 7373, "no route"), None]

    async def verify(*_: object) -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure

    check = EndpointCheck(port, verify, required=False)
    await check.before(request, link)
    assert port.unverified == {link: "127.0.0.1:7373: no route"}
    await check.before(request, link)

    assert port.unverified == {link: ""}


async def test_checks_of_one_participant_leave_room_for_those_of_others() -> None:
    """A participant that advertises addresses which nothing answers, over any number of its links."""
    begun, verified = list[int](), list[int]()

    async def verify(broker: int, *_: object) -> None:
        begun.append(broker)
        if broker == 1:
            await anyio.sleep_forever()
        verified.append(broker)

    check = EndpointCheck(ContractOffice(), verify, required=True)

    async def checked(broker: int, incarnation: int) -> None:
        request = VerifyEndpoint(broker, bytes([incarnation]) * 16, Endpoint("PEER", "192.0.2.1", 7373))
        await check.before(request, ParticipantLink(broker, request.incarnation))

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(checked, 1, number)
        await until(lambda: begun)
        with anyio.fail_after(PATIENCE_S):
            await checked(2, 0)
        assert begun.count(1) <= DIALS_EACH_MAX
        tasks.cancel_scope.cancel()

    assert verified == [2]


@pytest.mark.slow  # a participant waits for its link for two seconds
async def test_certificate_of_another_participant_registers_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, "authority")

    def tls(identity: str) -> Tls:
        signed = authority.sign(identity.replace("/", "-"), names=f"URI:kactl://kactl/{identity}", days="2")
        return Tls(ca=authority.cert, cert=signed.cert, key=signed.key)

    async with cluster(tls=tls("controller/100")) as found:
        with caplog.at_level(logging.WARNING):
            error = await found.refused(2, session_timeout_ms=60_000, tls=tls("participant/1"))

        assert "names kactl://kactl/participant/1: give it the cert" in str(error)
        assert found.brokers == {}
        assert "claims to be kactl://kactl/participant/2" in caplog.text


# -- which addresses may be named --------------------------------------------------------------------------------------


@asynccontextmanager
async def counting_server() -> AsyncIterator[tuple[int, list[object]]]:
    """A server of another program: yields its port and the connections that it has accepted."""
    accepted = list[object]()

    async def accept(_: object, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], accepted


@pytest.mark.parametrize(
    ("networks", "host", "connects"),
    [
        ([], "127.0.0.1", False),
        (["198.51.100.0/24", "::/0"], "127.0.0.1", False),
        (["127.0.0.0/8"], "127.0.0.1", True),
        (["127.0.0.1"], "::ffff:127.0.0.1", True),
        (["198.51.100.0/24"], "localhost", False),
        (["127.0.0.0/8"], "localhost", True),
    ],
)
async def test_no_connection_is_opened_to_an_address_that_a_participant_must_not_name(
    networks: list[str], host: str, connects: bool
) -> None:
    async with cluster(peer_networks=networks) as found, counting_server() as (port, accepted):
        with pytest.raises(EndpointUnreachable, match="was not found there, or must not name that address") as raised:
            await found.network.verify(1, bytes(16), host, port, "203.0.113.7")

        is_denied = "add the network to peer-networks of [network]" in str(raised.value.__cause__)
        assert (bool(accepted), is_denied) == (connects, not connects)


async def test_participant_may_name_the_address_that_it_connects_from() -> None:
    async with cluster() as found, counting_server() as (port, accepted):
        for host, peer in (("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.1"), ("::ffff:127.0.0.1", "127.0.0.1")):
            with pytest.raises(EndpointUnreachable) as raised:
                await found.network.verify(1, bytes(16), host, port, peer)
            assert "peer-networks" not in str(raised.value.__cause__)

        assert accepted


def test_addresses_of_other_hosts_behind_a_name_are_left_out() -> None:
    own, other = (Resolved(socket.AF_INET, (host, 7373)) for host in ("203.0.113.7", "198.51.100.1"))

    assert PeerNetworks([]).permitted([other, own], "203.0.113.7") == [own]
    assert PeerNetworks(["198.51.100.0/24"]).permitted([other, own], "203.0.113.7") == [other, own]


@pytest.mark.parametrize("networks", ["10.0.0.0/8", ["10.0.0.1/8"], ["here"]])
def test_networks_of_another_form_are_refused(networks: Any) -> None:
    with pytest.raises(BadConfig, match="peer_networks"):
        kactl.TcpNetwork(peer_networks=networks)


@both_sessions
async def test_participant_that_names_another_host_is_refused(session: str, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as found:
        error = await found.refused(1, session=session, listen=LOOPBACK, advertise="192.0.2.1:7373")

        assert "was not found there, or must not name that address" in str(error)
        assert found.brokers == {}
        assert "a participant at 127.0.0.1 must not name 192.0.2.1 as its own" in caplog.text
