"""Spectator of a simulated cluster: failures of controllers, of participants, and of the spectator's own links."""

import asyncio
import math

import pytest

import kactl
from kactl.model import TopicPartition
from kactl.testing import sim
from kactl.testing.clock import LoopClock
from kactl.testing.history import History
from kactl.testing.programs import SimCluster
from tests.support.marks import fast_and_slow
from tests.testing.running import this_loop

SAMPLE_S = 0.05
PARTITIONS = [TopicPartition("t", number) for number in range(4)]


class Observed:
    """Compares a spectator with the controllers, all the time.

    Attributes:
        age_max_ms: the highest age.
        seen: the leader epochs that the spectator's changes have shown.
        resets: how often a running `watch` began again.
    """

    def __init__(self, cluster: SimCluster, spectator: kactl.Spectator) -> None:
        self.cluster = cluster
        self.spectator = spectator
        self.truth: list[tuple[float, dict[TopicPartition, int]]] = [(-math.inf, {})]
        self.version = spectator.version
        self.age_max_ms = 0.0
        self.seen: dict[TopicPartition, int] = {}
        self.resets = 0
        self.epochs: set[int] = set()

    def sample(self) -> None:
        """Check that versions rise, and that the table has everything that is older than its age."""
        now_s = self.cluster.loop.now_s
        known = dict(self.truth[-1][1])
        for controller in self.cluster.controllers.values():
            for view in controller.partitions_of("t") if controller.is_active else ():
                known[view.name] = max(known.get(view.name, -1), view.leader_epoch)
        self.truth.append((now_s, known))
        age_ms = self.spectator.age_ms
        assert self.spectator.version >= self.version
        self.version = self.spectator.version
        self.epochs.add(self.version.controller_epoch)
        if age_ms == math.inf:
            return
        self.age_max_ms = max(self.age_max_ms, age_ms)
        promised = [state for time_s, state in self.truth if time_s <= now_s - age_ms / 1000][-1]
        for name, leader_epoch in promised.items():
            route = self.spectator.leader(name.topic, name.partition)
            assert route is not None, (now_s, age_ms, name)
            assert route.leader_epoch >= leader_epoch, (now_s, age_ms, name)

    async def run(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_S)

    async def watch(self) -> None:
        async for change in self.spectator.watch(kactl.Version(0, 0)):
            if isinstance(change, kactl.RoutesReset):
                self.resets += 1
            elif change.route is not None:
                assert change.route.leader_epoch >= self.seen.get(change.partition, -1)
                self.seen[change.partition] = change.route.leader_epoch


@pytest.mark.parametrize("seed", fast_and_slow(range(2), fast=1))
def test_table_is_as_new_as_its_age_through_failovers_and_cuts(seed: int) -> None:
    async def main() -> None:
        loop = this_loop()
        cluster = SimCluster(loop, History(lambda: loop.now_s * 1000))
        await cluster.create_topic("t", partitions=len(PARTITIONS), replication_factor=3)
        await cluster.settled()
        node = loop.node("spectator")
        spectator = kactl.Spectator(network=cluster.view(node), clock=LoopClock())
        observed = Observed(cluster, spectator)

        async def follow() -> None:
            async with spectator, asyncio.TaskGroup() as tasks:
                tasks.create_task(observed.run())
                tasks.create_task(observed.watch())

        following = loop.start(node, follow())
        for step in range(3):
            controller = cluster.resolve("active controller")
            assert controller is not None
            if step == 1:
                cluster.cut(controller, "store")  # it goes on to respond
            else:
                cluster.kill(controller)
            cluster.kill(f"node {step + 1}")
            await asyncio.sleep(20)
            cluster.heal_all()
            await cluster.settled()
        cluster.links.cut("spectator", "*", kind="network")
        cluster.kill("node 1")
        await asyncio.sleep(30)
        cluster.links.heal("spectator", "*", kind="network")
        cluster.heal_all()
        await cluster.settled()

        assert not following.done(), following.exception()
        assert observed.age_max_ms >= 30_000
        assert spectator.age_ms <= 1_100
        assert len(observed.epochs) >= 4
        assert observed.resets == 1  # at the beginning: it knows nothing of that version
        state = observed.truth[-1][1]
        assert {name: observed.seen[name] for name in PARTITIONS} == state

    sim.run(main, seed=seed)
