"""Standby copy over real stores: at takeover it equals the stored state."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from kactl.actors.system import Controller
from kactl.model import NO_VERSION, Assignment, Broker, Endpoint, Fence, TopicPartition, TopicRef
from kactl.stores.base import Names, Store, Write
from kactl.stores.sqlite import SqliteStore
from kactl.stores.zookeeper import ZooKeeperStore
from tests.actors.test_standby import knowledge
from tests.support.controller_harness import RecordingBrokers
from tests.support.store_clients import delete_topic
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = pytest.mark.anyio

SESSION_MS = 10_000
INTERVAL_MS = 20
TOPICS, CHANGES = 12, 60
WAIT_S = 30

Open = Callable[[], Store]


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.interop)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "kactl.db", session_timeout_ms=SESSION_MS)
    server: ZooKeeperServer = request.getfixturevalue("zookeeper")
    connect = server.connect(request.getfixturevalue("chroot"))
    return lambda: ZooKeeperStore(connect, session_timeout_ms=SESSION_MS)


class Holder:
    """Holds the controllership, and writes as a controller, brokers and tools do."""

    def __init__(self, store: Store, fence: Fence, seed: int) -> None:
        self.store = store
        self.fence = fence
        self.dice = random.Random(seed)
        self.held: dict[str, dict[int, Assignment]] = {}

    async def create(self, name: str) -> None:
        self.held[name] = {at: self._replicas() for at in range(self.dice.randint(1, 5))}
        await self.store.create_topic(TopicRef(name, self.dice.randbytes(16)), self.held[name], {})
        await self.lead(name, sorted(self.held[name]))

    async def change(self) -> None:
        name = self.dice.choice(sorted(self.held))
        what = self.dice.choice(("lead", "lead", "lead", "grow", "again", "delete"))
        if what == "lead":
            await self.lead(name, self.dice.sample(sorted(self.held[name]), 1))
        elif what == "grow":
            self.held[name][len(self.held[name])] = self._replicas()
            (ref,) = (await self.store.assignments([name])).topics
            await self.store.write_assignment(ref, self.held[name], self.fence)
            await self.lead(name, [max(self.held[name])])
        else:
            await delete_topic(self.store, name, self.fence)
            del self.held[name]
            await self.create(name if what == "again" else f"new-{self.dice.randrange(10**6)}")

    async def lead(self, name: str, partitions: list[int]) -> None:
        """Commit a leadership over any earlier one."""
        names = Names.of([TopicPartition(name, at) for at in partitions])
        stored = await self.store.leaderships(names)
        leaders = np.array([self.dice.choice(self.held[name][at].replicas) for at in partitions], np.int32)
        write = Write(
            names,
            leaders,
            stored.leader_epoch + 1,
            leaders.reshape(1, -1),
            np.zeros(len(partitions), np.bool_),
            np.where(stored.found, stored.partition_epoch, NO_VERSION).astype(np.int32),
        )
        assert (await self.store.commit(write, self.fence)).committed.all()

    def _replicas(self) -> Assignment:
        return Assignment(tuple(self.dice.sample((1, 2, 3), self.dice.randint(1, 3))))


async def wait_until(reached: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not reached():  # noqa: ASYNC110 - another session's changes have no event to wait for
            await anyio.sleep(INTERVAL_MS / 1000)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_warm_load_equals_cold_load(open_store: Open, seed: int) -> None:
    async with open_store() as store:
        holder = Holder(store, await store.contest(900), seed)
        for number in range(TOPICS):
            await holder.create(f"t{number}")
        async with (
            Controller(901, store=open_store(), transport=RecordingBrokers(), standby_interval_ms=INTERVAL_MS) as warm,
            Controller(902, store=open_store(), transport=RecordingBrokers(), standby_interval_ms=0) as cold,
        ):
            await wait_until(lambda: warm.loop.standby.copied > 0)
            for _ in range(CHANGES):
                await holder.change()
            assert warm.loop.standby.copied > 0

            for instance in (warm, cold):
                await instance.loop.failover.load(sorted(holder.held))

            assert knowledge(warm) == knowledge(cold)
            assert {topic.name for topic in warm.topics()} == set(holder.held)
            found: Any = knowledge(warm)["partitions"]
            assert all(view.leadership is not None for view in found.values())


async def test_changes_after_a_warm_takeover_are_noticed(open_store: Open) -> None:
    """The takeover read nothing, so that only earlier reads have set watches."""
    async with open_store() as store:
        session = await store.new_session(SESSION_MS)
        await session.register(Broker(1, 0, (Endpoint("I", "h1", 9092),)))
        fence = await store.contest(900)
        ref = TopicRef("orders", bytes(range(16)))
        await store.create_topic(ref, {0: Assignment((1,))}, {})
        async with Controller(
            901, store=open_store(), transport=RecordingBrokers(), standby_interval_ms=INTERVAL_MS
        ) as warm:
            await wait_until(lambda: warm.loop.standby.copied == 1)
            await store.write_assignment(ref, {0: Assignment((1,)), 1: Assignment((1,))}, fence)
            await wait_until(lambda: warm.loop.standby.copied == 2)

            await store.resign(fence)
            await warm.wait_active()
            await store.write_assignment(ref, {at: Assignment((1,)) for at in range(3)}, None)

            await wait_until(lambda: (view := warm.partition("orders-2")) is not None and view.leader == 1)
