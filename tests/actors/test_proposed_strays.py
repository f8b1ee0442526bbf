"""Leaders that propose replicas which are not assigned. Broker 1 leads t-0, which is assigned to it alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kactl.actors.handlers.isr_proposals import COLLECT_MS, FORGET_MS, ProposedStrays
from kactl.decide.messages.control import LeaderAndIsr, StopReplica
from kactl.decide.messages.events import StrayProposal
from kactl.model import Assignment, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.stores.base import Names
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import World

from .one_partition import EPOCH, T0, VERSION, led_partition, proposal, propose
from .reassignment_helpers import ongoing, reassign

pytestmark = pytest.mark.anyio

FENCED, INELIGIBLE = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INELIGIBLE_REPLICA


@asynccontextmanager
async def led_alone(*, isr: tuple[int, ...] = (1,), **options: Any) -> AsyncIterator[World]:
    options = {"assignment": Assignment((1,)), "brokers": (1, 2, 3), **options}
    async with led_partition(isr=isr, **options) as made:
        yield made


async def errors(made: World, *isrs: tuple[int, ...], **columns: Any) -> list[ErrorCode]:
    """Propose ISRs one after the other, first without and then after the time in which replicas are collected."""
    given = []
    for isr in isrs:
        (result,) = await propose(made, proposal(isr, **columns))
        given.append(result.error)
    await made.wait(COLLECT_MS)
    (result,) = await propose(made, proposal(isrs[0], **columns))
    await settle()
    return [*given, result.error]


def deletions(made: World, broker: int) -> list[bool]:
    """Returns `delete` of each partition that a broker was requested to stop."""
    stops = [request for request in made.brokers.of(broker, StopReplica) if isinstance(request, StopReplica)]
    return [delete for request in stops for delete in request.delete.tolist()]


async def test_replicas_that_a_leader_proposes_one_at_a_time_are_stopped_together() -> None:
    async with led_alone() as made:
        assert await errors(made, (1, 2), (3, 1)) == [INELIGIBLE] * 3

        assert deletions(made, 2) == deletions(made, 3) == [False, True]
        assert made.brokers.told(1)["t-0"][:3] == (1, EPOCH + 1, (1,))
        assert await made.stored("t-0") == (1, EPOCH + 1, (1,))
        assert (made.known("t-0").replicas, await ongoing(made)) == ((1,), {})
        assert not made.controller.cluster.reassigning


async def test_leader_that_repeats_its_proposals_gets_one_new_epoch() -> None:
    async with led_alone() as made:
        assert await errors(made, (1, 2)) == [INELIGIBLE] * 2
        made.brokers.forget()

        assert await errors(made, (1, 2)) == [FENCED] * 2

        assert made.brokers.of(2, StopReplica) == made.brokers.of(1, LeaderAndIsr) == []
        assert await made.stored("t-0") == (1, EPOCH + 1, (1,))


async def test_rejection_for_another_reason_stops_nothing() -> None:
    """Broker 4 is not live; broker 2 proposes what only the leader may; the third proposal is an old one."""
    async with led_alone() as made:
        await errors(made, (1, 2, 4))
        await errors(made, (1, 2), version=VERSION - 1)
        await made.wait(COLLECT_MS)
        await propose(made, proposal((1, 2)), broker=2)

        assert deletions(made, 2) == []
        assert await made.stored("t-0") == (1, EPOCH, (1,))


async def current(made: World) -> dict[str, int]:
    """Returns the stored epochs of t-0, as its leader knows them."""
    leadership = (await made.store.leaderships(Names.of([T0]))).one(0)
    assert leadership is not None
    return {"leader_epoch": leadership.leader_epoch, "version": leadership.partition_epoch}


async def test_nothing_is_stopped_while_no_assigned_replica_is_in_sync() -> None:
    """Broker 1, which leads, has the only copy, and 2 may have another one."""
    async with led_alone(assignment=Assignment((3,))) as made:
        epochs = await current(made)
        moving = set(made.controller.cluster.reassigning)
        made.controller.cluster.reassigning.clear()  # otherwise that would be the reason

        given = await errors(made, (1, 2), **epochs)

        assert given == [INELIGIBLE] * 2
        assert deletions(made, 2) == deletions(made, 1) == []
        assert 2 not in made.known("t-0").replica_states
        made.controller.cluster.reassigning |= moving


async def test_partition_that_is_being_reassigned_is_left_to_that() -> None:
    async with led_alone(brokers=(1, 2, 3, 4)) as made:
        assert await reassign(made, {"t-0": [1, 4]}) == [ErrorCode.NONE]
        state, epochs = await made.stored("t-0"), await current(made)

        given = await errors(made, (1, 2), **epochs)
        made.controller.loop.inbox.put_once(StrayProposal(T0, epochs["leader_epoch"], (2,)))
        await settle()

        assert given == [INELIGIBLE] * 2
        assert deletions(made, 2) == []
        assert made.known("t-0").replica_states.keys() == {1, 4}
        assert await made.stored("t-0") == state


async def test_partition_of_a_topic_that_is_deleted_is_left_to_that() -> None:
    async with led_alone() as made:
        made.controller.cluster.table.queue_topic("t", True)

        await errors(made, (1, 2))

        assert deletions(made, 2) == []
        assert await made.stored("t-0") == (1, EPOCH, (1,))
        made.controller.cluster.table.queue_topic("t", False)


@pytest.mark.parametrize(("name", "leader_epoch"), [(T0, EPOCH - 1), (TopicPartition("t", 7), EPOCH)])
async def test_replicas_are_compared_again_when_they_are_stopped(name: TopicPartition, leader_epoch: int) -> None:
    async with led_alone() as made:
        made.controller.loop.inbox.put_once(StrayProposal(name, leader_epoch, (2,)))
        await settle()

        assert made.known("t-0").replica_states.keys() == {1}
        assert await made.stored("t-0") == (1, EPOCH, (1,))


def test_replicas_of_earlier_leader_epochs_are_not_collected() -> None:
    clock = ManualClock()
    collected = ProposedStrays(clock)

    assert collected.add(T0, [2], leader_epoch=5, controller_epoch=1) == ()
    assert collected.add(T0, [3], leader_epoch=6, controller_epoch=1) == ()
    clock.jump(COLLECT_MS)
    assert collected.add(T0, [4], leader_epoch=6, controller_epoch=2) == ()
    clock.jump(COLLECT_MS)

    assert collected.add(T0, [5], leader_epoch=6, controller_epoch=2) == (4, 5)
    assert len(collected) == 0


def test_partitions_of_long_ago_are_forgotten() -> None:
    clock = ManualClock()
    collected = ProposedStrays(clock)
    collected.add(T0, [2], leader_epoch=5, controller_epoch=1)
    clock.jump(FORGET_MS)
    collected.prune()
    assert len(collected) == 1
    clock.jump(1)

    collected.prune()

    assert len(collected) == 0
