"""A live cluster in a thread of its own: its brokers acknowledge when the test permits it, and its API can go away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from anyio.from_thread import BlockingPortal, start_blocking_portal

from kactl.actors.system import Controller
from kactl.admin.server import serve
from kactl.config.file import load
from kactl.decide.messages.control import Request, Response
from kactl.model import Broker
from kactl.participant.group import Participants
from kactl.transports.base import Connection, ControllerPort, Transport
from kactl.transports.memory import MemoryHub

# Killed brokers are detected after this time; the others send heartbeats in time on a busy machine, too.
SESSION_TIMEOUT_MS: Final = 6_000


class _Held(Connection):
    """Connection on which requests wait while the broker is held."""

    def __init__(self, real: Connection, gate: asyncio.Event) -> None:
        self._real = real
        self._gate = gate

    async def deliver(self, request: Request) -> Response:
        await self._gate.wait()
        return await self._real.deliver(request)

    async def close(self) -> None:
        await self._real.close()


class _HeldTransport:
    def __init__(self, real: Transport, hub: "HeldHub") -> None:
        self._real = real
        self._hub = hub

    def connect(self, broker: Broker) -> Connection:
        return _Held(self._real.connect(broker), self._hub.gate(broker.id))


class HeldHub(MemoryHub):
    """Network of one process on which requests to some brokers can be held back."""

    def __init__(self) -> None:
        super().__init__()
        self._gates: dict[int, asyncio.Event] = {}

    def gate(self, broker: int) -> asyncio.Event:
        """Returns the event that lets requests to a broker pass; it is set at first."""
        if broker not in self._gates:
            self._gates[broker] = asyncio.Event()
            self._gates[broker].set()
        return self._gates[broker]

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        async with super().controller_side(port) as real:
            yield _HeldTransport(real, self)


class HeldCluster:
    """Five brokers with a topic of twenty partitions.

    Args:
        portal: the thread in which the cluster runs.
        folder: for the token of the API.

    Attributes:
        url: of the admin API, which is the same after `disconnect` and `connect`.
    """

    def __init__(self, portal: BlockingPortal, folder: Path) -> None:
        self._portal = portal
        self._folder = folder
        self._listen = "127.0.0.1:0"
        self._api = contextlib.ExitStack()
        self._hub = HeldHub()
        self.url = ""
        self.brokers = frozenset(range(1, 6))

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Run the cluster while the block runs."""
        async with (
            Controller(0, hub=self._hub, auto_balance=False) as controller,
            Participants(
                len(self.brokers), store=controller.store, hub=self._hub, session_timeout_ms=SESSION_TIMEOUT_MS
            ) as participants,
        ):
            self._controller, self._participants = controller, participants
            await controller.create_topic("orders", partitions=20, replication_factor=3)
            yield

    def connect(self) -> None:
        """Serve the admin API."""
        config = load(
            None,
            {},
            {"node-id": 0, "cluster": "held", "api.listen": self._listen, "security.folder": str(self._folder)},
        )
        served = self._portal.wrap_async_context_manager(serve(self._controller, config))
        self.url = self._api.enter_context(served).url
        self._listen = self.url.partition("://")[2]

    def disconnect(self) -> None:
        """End the admin API, with all its connections. The cluster lives on."""
        self._api.close()

    def hold(self, *brokers: int) -> None:
        """Let further requests to these brokers wait."""
        for broker in brokers:
            self._portal.call(self._hub.gate(broker).clear)

    def release(self, broker: int) -> None:
        """Let a broker receive what has waited, and acknowledge it."""
        self._portal.call(self._hub.gate(broker).set)

    def kill(self, broker: int) -> int:
        """Kill a broker. Returns the number of partitions that it led."""
        led = sum(view.leader == broker for view in self._controller.partitions_of("orders"))
        self._portal.call(self._participants.kill, broker)
        return led

    def wait_complete(self) -> None:
        """Wait until the election in progress has been acknowledged by all brokers."""
        self._portal.call(self._complete)

    async def _complete(self) -> None:
        while self._controller.loop.events.live():
            await self._controller.history.changed()

    def restart(self, broker: int) -> None:
        """Restart a killed broker, and let it lead what it prefers again."""
        self._portal.call(self._participants.restart, broker)
        self._portal.call(self._prefer)

    async def _prefer(self) -> None:
        while any(len(view.isr) < len(view.replicas) for view in self._controller.partitions_of("orders")):
            await self._controller.history.changed()
        await self._controller.elect("preferred")


@contextlib.contextmanager
def held_cluster(folder: Path) -> Iterator[HeldCluster]:
    """Yield a running cluster with its API, in a thread of its own."""
    with start_blocking_portal() as portal:
        cluster = HeldCluster(portal, folder)
        with portal.wrap_async_context_manager(cluster.life()):
            cluster.connect()
            yield cluster
            cluster.disconnect()
