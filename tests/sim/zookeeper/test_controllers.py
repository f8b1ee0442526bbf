"""Two controllers over simulated ZooKeeper: elections, failovers, and sessions that end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from kactl.actors.system import Controller
from kactl.model import Broker, Endpoint
from kactl.model.errors import KactlError
from kactl.stores.base import Session
from kactl.testing import LoopClock, Node, Schedule, SimLoop, sim
from kactl.testing.history import History
from kactl.testing.links import Links
from tests.sim.engine.worlds.zookeeper import ZooKeeperWorld
from tests.support.controller_harness import RecordingBrokers

# The coroutines of killed nodes are closed where they wait; what they would await in their clean-up is never awaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

TIMEOUT_MS: Final = 6_000
BROKERS: Final = 3


class Cluster:
    """Controllers and brokers, each on a node of its own. The brokers register, and answer every request."""

    def __init__(self, servers: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        links = Links(loop, {"store": (0.5, 4.0), "zookeeper": (0.5, 2.0)})
        self.history = History(lambda: loop.now_s * 1000)
        self.world = ZooKeeperWorld(loop, self.history, links, servers=servers, session_timeout_ms=TIMEOUT_MS)
        self.transport = RecordingBrokers()
        self.controllers: dict[str, Controller] = {}
        self.nodes: dict[str, Node] = {}

    def start(self, number: int) -> None:
        """Start a controller."""
        node = self.loop.node(f"controller {number}")
        self.nodes[node.name] = node

        async def main() -> None:
            async with Controller(
                number,
                store=self.world.client(node),
                transport=self.transport,
                clock=LoopClock(),
                rng=self.loop.streams[f"ids:{node.name}"],
                # Without a provider OpenTelemetry keeps all instruments, and with them each controller, forever.
                meter_provider=NoOpMeterProvider(),
            ) as controller:
                self.controllers[node.name] = controller
                await asyncio.sleep(1e6)

        self.loop.start(node, main())

    def register(self, number: int) -> None:
        """Start a broker that registers and keeps its session."""
        node = self.loop.node(f"broker {number}")

        async def main() -> None:
            async with self.world.client(node) as store:
                while True:
                    session = await store.new_session(TIMEOUT_MS)
                    await self._serve(session, number)

        self.loop.start(node, main())

    async def _serve(self, session: Session, number: int) -> None:
        try:
            await session.register(Broker(number, 0, (Endpoint("I", f"h{number}", 9092),)))
            while True:
                await asyncio.sleep(TIMEOUT_MS / 3000)
                await session.keep_alive()
        except KactlError:
            await session.close()

    def active(self) -> list[str]:
        """Returns the nodes of the running controllers that are active."""
        running = [name for name, node in self.nodes.items() if node.state == "running" and name in self.controllers]
        return [name for name in running if self.controllers[name].is_active]

    async def one_active(self, other_than: str = "") -> str:
        """Wait for exactly one active controller."""
        async with asyncio.timeout(60):
            while True:
                active = self.active()
                if len(active) == 1 and active[0] != other_than:
                    return active[0]
                await asyncio.sleep(0.1)

    async def create(self, topic: str) -> None:
        await self.controllers[self.active()[0]].create_topic(topic, partitions=2, replication_factor=3)

    async def led(self, *partitions: str) -> None:
        """Wait until the active controller knows a leader of each partition."""
        async with asyncio.timeout(60):
            while True:
                controller = self.controllers[await self.one_active()]
                views = [controller.partition(name) for name in partitions]
                if all(view is not None and view.leader >= 0 for view in views):
                    return
                await asyncio.sleep(0.1)


def run(main: Callable[[Cluster], Awaitable[None]], *, servers: int, seed: int) -> tuple[int, int]:
    """Run a test with two controllers and three brokers. Returns the values that identify the run."""

    async def whole() -> tuple[int, int]:
        cluster = Cluster(servers)
        for number in (100, 101):
            cluster.start(number)
        for number in range(1, BROKERS + 1):
            cluster.register(number)
        await cluster.one_active()
        await asyncio.sleep(1)
        await cluster.create("t1")
        await cluster.led("t1-0", "t1-1")
        await main(cluster)
        assert cluster.world.ensemble.leader is not None
        return cluster.loop.steps, cluster.world.ensemble.leader.tree.zxid

    return sim.run(whole, seed=seed, schedule=Schedule("shuffle", hold_back=0.1))


SERVERS: Final = pytest.mark.parametrize("servers", [1, 3])
SEEDS: Final = pytest.mark.parametrize("seed", range(3))


@SERVERS
@SEEDS
def test_killed_controller_is_followed_by_the_other(servers: int, seed: int) -> None:
    async def main(cluster: Cluster) -> None:
        first = cluster.active()[0]
        began = cluster.loop.now_s

        cluster.loop.kill(cluster.nodes[first])
        second = await cluster.one_active(first)

        assert cluster.loop.now_s - began > TIMEOUT_MS / 1000 / 2  # the session has to end first
        await cluster.create("t2")
        await cluster.led("t1-0", "t1-1", "t2-0", "t2-1")
        assert second != first

    run(main, servers=servers, seed=seed)


@SERVERS
@SEEDS
def test_controller_whose_session_has_ended_is_followed(servers: int, seed: int) -> None:
    async def main(cluster: Cluster) -> None:
        first = cluster.active()[0]

        cluster.world.expire_session(first, notify_after_ms=2 * TIMEOUT_MS)
        await asyncio.sleep(TIMEOUT_MS / 3000)
        # It learns of it later, and two instances believe to be active.
        assert len(cluster.active()) == 2
        await cluster.one_active(first)

        await cluster.create("t2")
        await cluster.led("t1-0", "t2-1")

    run(main, servers=servers, seed=seed)


@SEEDS
def test_controller_survives_an_election_of_the_ensemble(seed: int) -> None:
    async def main(cluster: Cluster) -> None:
        first = cluster.active()[0]
        assert cluster.world.ensemble.leader is not None

        cluster.world.ensemble.crash(cluster.world.ensemble.leader)
        await asyncio.sleep(20)

        assert cluster.active() == [first]
        await cluster.create("t2")
        await cluster.led("t2-0", "t2-1")

    run(main, servers=3, seed=seed)


def test_equal_seeds_make_equal_runs() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.loop.kill(cluster.nodes[cluster.active()[0]])
        await cluster.one_active()
        await asyncio.sleep(60)

    results: list[Any] = [run(main, servers=3, seed=5) for _ in range(2)]

    assert results[0] == results[1]
