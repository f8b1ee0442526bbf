"""The contract suites over tcp, with and without TLS, and over memory."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import kactl
from kactl.decide.messages.control import Request, Response
from kactl.model import Broker
from kactl.testing.contracts.link_support import ContractOffice, ContractPort, opened
from kactl.testing.contracts.links import LinkContract
from kactl.testing.contracts.network import ConnectBroker, NetworkContract, Respond
from kactl.testing.fault_proxy import FaultProxy
from kactl.transports.base import Network, Transport
from kactl.transports.memory import MemoryHub
from kactl.transports.tcp.limits import Limits
from kactl.transports.tcp.network import TcpNetwork
from kactl.transports.tcp.tls import Tls
from tests.support.certificates import Authority

SECRET = "a secret of some length"
# As short as the contract asks for.
REQUEST_LIMITS = Limits(request_ms=200)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate with all identities of the contract."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    names = [f"URI:kactl://kactl/controller/{node}" for node in (100, 101)]
    names += [f"URI:kactl://kactl/participant/{broker}" for broker in (*range(10), "worker-3")]
    names.append("URI:kactl://kactl/spectator/any")
    signed = authority.sign("all", names=",".join(names))
    return Tls(ca=authority.cert, cert=signed.cert, key=signed.key)


class TestMemoryNetwork(LinkContract):
    @pytest.fixture
    def network(self) -> Network:
        return MemoryHub()


class TestTcpNetwork(LinkContract):
    @pytest.fixture
    def network(self) -> Network:
        return TcpNetwork(listen="127.0.0.1:0")


class Proxied:
    """A network whose participants and spectators reach the controllers through a proxy that splits and delays."""

    def __init__(self, proxy: FaultProxy, inner: TcpNetwork) -> None:
        self.controller_side = inner.controller_side
        outer = TcpNetwork(controllers=[proxy.address], limits=Limits(backoff_ms=1, backoff_max_ms=20))
        self.identify = outer.identify
        self.participant_side = outer.participant_side
        self.spectator_side = outer.spectator_side


class TestTcpNetworkInPieces(LinkContract):
    @pytest.fixture
    async def network(self) -> AsyncIterator[Network]:
        inner = TcpNetwork(listen="127.0.0.1:0")

        def target() -> tuple[str, int]:
            host, _, port = str(inner.address).rpartition(":")
            return host, int(port) if inner.address else 1

        async with FaultProxy(target, rng=random.Random(84)) as proxy:
            for faults in proxy.faults.values():
                faults.piece, faults.delay_ms = 200, (0, 0.5)
            yield Proxied(proxy, inner)


class TestTcpNetworkWithSecret(LinkContract):
    @pytest.fixture
    def network(self) -> Network:
        return TcpNetwork(listen="localhost:0", secret=SECRET)


class TestTcpNetworkWithTls(LinkContract):
    @pytest.fixture
    def network(self, tls: Tls) -> Network:
        return TcpNetwork(listen="127.0.0.1:0", tls=tls)


class TestTcpNetworkOverUvloop(LinkContract):
    """Servers use uvloop, whose transports and sockets are classes of its own."""

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, bool]]:
        pytest.importorskip("uvloop", reason="uvloop does not exist for this platform")
        return "asyncio", {"use_uvloop": True}

    @pytest.fixture(params=["plain", "tls"])
    def network(self, request: pytest.FixtureRequest) -> Network:
        tls = request.getfixturevalue("tls") if request.param == "tls" else None
        return TcpNetwork(listen="127.0.0.1:0", tls=tls)


async def reach(stack: AsyncExitStack, network: Network, respond: Respond) -> tuple[Transport, Broker]:
    port = ContractPort(1)

    async def handle(request: Request) -> Response:
        return await respond(request)

    port.respond = handle
    transport = await stack.enter_async_context(network.controller_side(ContractOffice()))
    await opened(await stack.enter_async_context(network.participant_side(port)))
    return transport, Broker(1, 77)


class TestTcpTransport(NetworkContract):
    @pytest.fixture
    async def reached(self) -> AsyncIterator[ConnectBroker]:
        async with AsyncExitStack() as stack:
            network = TcpNetwork(listen="127.0.0.1:0", limits=REQUEST_LIMITS)
            yield lambda respond: reach(stack, network, respond)


class TestTcpTransportWithTls(NetworkContract):
    @pytest.fixture
    async def reached(self, tls: Tls) -> AsyncIterator[ConnectBroker]:
        async with AsyncExitStack() as stack:
            network = TcpNetwork(listen="127.0.0.1:0", tls=tls, limits=REQUEST_LIMITS)
            yield lambda respond: reach(stack, network, respond)


@pytest.mark.anyio
async def test_cluster_runs_over_tcp(tls: Tls, tmp_path: Path) -> None:
    network = TcpNetwork(listen="127.0.0.1:0", tls=tls)
    async with (
        kactl.Controller(100, network=network) as controller,
        kactl.Participants(3, store=controller.store, network=network),
    ):
        await controller.create_topic("orders", partitions=4, replication_factor=3)
