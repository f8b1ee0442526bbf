"""Deletion by in-process brokers: their replicas and their metadata of the topic."""

import select
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import kactl
from kactl.actors.system import Controller
from kactl.model import TopicPartition
from kactl.participant import Listener, Participants
from kactl.stores.memory import MemoryStore
from kactl.stores.sqlite import SqliteStore
from tests.actors.deletion_child import SESSION_MS, TOPIC
from tests.support import tree
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENCE_S = 30


class Disk(Listener):
    """Replicas stored by one broker."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()

    async def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self.held.add(name)

    async def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
        self.held.add(name)

    async def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
        if deleted:
            self.held.discard(name)


@asynccontextmanager
async def open_cluster() -> AsyncIterator[tuple[Controller, Participants, dict[int, Disk], ManualClock]]:
    clock, disks = ManualClock(), {broker: Disk() for broker in (1, 2, 3)}
    store = MemoryStore(clock=clock)
    async with (
        Controller(100, store=store, clock=clock) as controller,
        Participants(3, store=store, hub=controller.hub, clock=clock, listener=disks.__getitem__) as brokers,
    ):
        await settle()
        yield controller, brokers, disks, clock


async def test_topic_is_created_deleted_and_created_again() -> None:
    async with open_cluster() as (controller, brokers, disks, _):
        first = await controller.create_topic("t", assignment={0: (1, 2), 1: (2, 3)})
        await settle()
        assert {broker: disk.held for broker, disk in disks.items()} == {1: {T0}, 2: {T0, T1}, 3: {T1}}

        await controller.delete_topic("t")
        await settle()

        assert all(disk.held == set() for disk in disks.values())
        for broker in brokers:
            assert broker.hosts == []
            assert broker.leader(T0) is None
        assert controller.topics() == []

        second = await controller.create_topic("t", assignment={0: (3, 1)})
        await settle()

        assert second.id != first.id
        assert {broker: disk.held for broker, disk in disks.items()} == {1: {T0}, 2: set(), 3: {T0}}
        assert [broker.leader(T0) for broker in brokers] == [3, 3, 3]
        assert brokers[2].partition(T1) is None
        view = controller.partition(T0)
        assert view is not None
        assert (view.leader, view.leader_epoch, view.isr) == (3, 0, (3, 1))


async def test_hanging_broker_deletes_when_it_continues() -> None:
    async with open_cluster() as (controller, brokers, disks, _):
        await controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        brokers.pause(3)
        await controller.delete_topic("t", timeout_ms=0)
        await settle()
        assert disks[1].held == disks[2].held == set()
        assert disks[3].held == {T0}
        assert controller.deletions()[0].replicas_left == 1

        brokers.resume(3)
        await settle()

        assert disks[3].held == set()
        assert controller.deletions() == []
        assert controller.topics() == []


async def test_killed_broker_deletes_after_its_restart() -> None:
    async with open_cluster() as (controller, brokers, disks, clock):
        await controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        await brokers.kill(3)
        await clock.advance(30_000)
        await controller.delete_topic("t", timeout_ms=0)
        await settle()
        assert controller.deletions()[0].halts[0].brokers == (3,)

        await brokers.restart(3)
        await settle()

        # Replicas left on disk by an earlier run are deleted too.
        assert disks[3].held == set()
        assert controller.deletions() == []
        assert controller.topics() == []
        assert await controller.store.deletions() == []


def run_until_half(path: Path) -> None:
    """Run another process until half of a topic is deleted, and kill it."""
    command = [sys.executable, "-m", "tests.actors.deletion_child", str(path)]
    child = subprocess.Popen(command, cwd=tree.ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
        assert ready, "the child has said nothing"
        assert child.stdout.readline() == "half\n"
    finally:
        child.kill()
        child.communicate(timeout=PATIENCE_S)


@pytest.mark.slow
async def test_deletion_continues_after_the_controller_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    await anyio.to_thread.run_sync(run_until_half, path)
    store = SqliteStore(path, session_timeout_ms=SESSION_MS)
    with anyio.fail_after(PATIENCE_S):
        async with kactl.Controller(node_id=101, store=store) as controller:
            await controller.wait_active()
            assert await store.topics() == [TOPIC]
            assert await store.deletions() == [TOPIC]
            async with kactl.Participants(3, store=store, hub=controller.hub, session_timeout_ms=SESSION_MS):
                while controller.topics():
                    await controller.history.changed()

                assert await store.topics() == await store.deletions() == []
                assert await store.topic_configs([TOPIC]) == {TOPIC: {}}
                ref = await controller.create_topic(TOPIC, partitions=2, replication_factor=3)
                assert [view.leader_epoch for view in controller.partitions_of(TOPIC)] == [0, 0]
                assert controller.topics() == [ref]
