"""Creations of partitions with an error between two of their steps; they are completed later, or deleted."""

from collections.abc import Callable
from typing import Any

import pytest

from kactl.actors.controller import RETRY_LATER_MS
from kactl.actors.machines.partitions import Partitions
from kactl.actors.machines.replicas import Replicas
from kactl.decide.messages.control import StopReplica
from kactl.model import Assignment, PartitionState, ReplicaState, TopicPartition
from tests.actors.metadata import block_loop
from tests.support.clocks import settle
from tests.support.controller_harness import World, partitions_of, world

pytestmark = pytest.mark.anyio

Fail = Callable[[str, int], None]


def each_step(test: Callable[..., Any]) -> Any:
    """Run a test with an error on each side of each move of a creation."""
    sides = pytest.mark.parametrize("side", ["before", "after"])
    return sides(pytest.mark.parametrize("number", [1, 2, 3, 4])(test))


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Let one of the next moves, counted from 1, raise an error `before` or `after` it is made."""
    armed: list[tuple[str, int]] = []

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        async def receive(self: Any, message: Any) -> Any:
            side, left = armed.pop() if armed else ("", 0)
            if left > 1:
                armed.append((side, left - 1))
            elif side == "before":
                raise ZeroDivisionError("a bug")
            result = await original(self, message)
            if left == 1:
                raise ZeroDivisionError("a bug")
            return result

        return receive

    for machine in (Partitions, Replicas):
        monkeypatch.setattr(machine, "receive", failing(machine.receive))
    return lambda side, number: armed.append((side, number))


def assert_online(w: World, name: str, *brokers: int) -> None:
    topic, _, number = name.rpartition("-")
    view = w.controller.cluster.view(TopicPartition(topic, int(number)))
    assert view is not None
    assert view.state is PartitionState.ONLINE
    assert view.replica_states == dict.fromkeys(brokers, ReplicaState.ONLINE)


@pytest.mark.parametrize("elects", [False, True], ids=["", "after an election"])
@each_step
async def test_creation_is_completed_later(fail: Fail, side: str, number: int, elects: bool) -> None:
    async with world(1, 2) as w:
        fail(side, number)
        await w.create("t", [[1, 2]])
        if elects:
            await w.start(3)
        await w.wait(RETRY_LATER_MS)

        assert await w.stored("t-0") == (1, 0, (1, 2))
        assert_online(w, "t-0", 1, 2)
        await w.check()


@each_step
async def test_creation_of_an_added_partition_is_completed_later(fail: Fail, side: str, number: int) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        fail(side, number)
        await w.grow("t", [2, 1])
        await w.wait(RETRY_LATER_MS)

        assert await w.stored("t-1") == (2, 0, (1, 2))
        assert await w.stored("t-0") == (1, 0, (1, 2))
        assert_online(w, "t-1", 1, 2)
        await w.check()


@each_step
async def test_topic_is_deleted_before_its_creation_is_completed(fail: Fail, side: str, number: int) -> None:
    async with world(1, 2) as w:
        fail(side, number)
        await w.create("t", [[1, 2]])
        await w.delete("t")
        await settle()

        assert "t" not in await w.store.topics()
        for broker in (1, 2):
            request = w.brokers.of(broker, StopReplica)[-1]
            assert isinstance(request, StopReplica)
            assert (partitions_of(request), request.delete.tolist()) == (["t-0"], [True])
        await w.wait(RETRY_LATER_MS)
        assert w.controller.cluster.table.topic("t") is None
        await w.check()


@pytest.mark.parametrize("deletes", [False, True], ids=["", "deleted"])
@each_step
async def test_partition_that_gets_a_leader_before_its_replicas_are_created(
    fail: Fail, side: str, number: int, deletes: bool
) -> None:
    """A partition without replicas is NEW, so that elections find it as soon as it gets some."""
    async with world(1, 2) as w:
        await w.create("t", [[]])
        gate = await block_loop(w)
        fail(side, number)
        await w.store.write_assignment(w.controller.topics()[0], {0: Assignment((1, 2))}, None)
        await w.start(3)
        if deletes:
            await w.delete("t")
        gate.set()
        await settle()
        await w.wait(RETRY_LATER_MS)

        if deletes:
            assert "t" not in await w.store.topics()
        else:
            assert await w.stored("t-0") == (1, 0, (1, 2))
            assert_online(w, "t-0", 1, 2)
        await w.check()


async def test_complete_creations_are_not_checked_at_later_changes(fail: Fail) -> None:
    async with world(1, 2) as w:
        marked = w.controller.cluster.creations_unchecked
        await w.create("a", [[1, 2]])
        assert not marked
        fail("before", 1)
        await w.create("b", [[1, 2]])
        assert marked == {"b"}

        await w.wait(RETRY_LATER_MS)
        await w.create("c", [[1, 2]])

        assert_online(w, "b-0", 1, 2)
        assert not marked
