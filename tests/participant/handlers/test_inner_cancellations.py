"""Handlers that await a task which something else has cancelled: the call has failed, and was not cancelled.

Such a cancellation must not end the block of the participant, either: without an error, nothing would show it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest

from kactl.decide.messages.control import StopReplicaResponse
from kactl.model import EPOCH_DURING_DELETE, TopicPartition
from kactl.participant import Listener, Participant
from kactl.participant.leases.leader import Leader
from tests.participant.conftest import Network
from tests.support.clocks import settle
from tests.support.control_requests import ORDERS_0, errors, stop_replica

from .conftest import Handled
from .scripts import FAILED, LED, READY

pytestmark = pytest.mark.anyio


async def cancelled_inside(_: object) -> None:
    task = asyncio.ensure_future(anyio.sleep_forever())
    await asyncio.sleep(0)
    task.cancel()
    await task


async def cancelled_in_a_group(_: object) -> None:
    async with anyio.create_task_group():
        await cancelled_inside(None)


async def cancelling_itself(_: object) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.sleep_forever()


@asynccontextmanager
async def uncut(block: AbstractAsyncContextManager[Participant]) -> AsyncIterator[Participant]:
    """Enter the block of a participant, and assert that nothing cancels it before its end."""
    is_over = False
    async with block as participant:
        yield participant
        is_over = True
    assert is_over


each_call = pytest.mark.parametrize("call", [cancelled_inside, cancelled_in_a_group, cancelling_itself])


@each_call
async def test_prepare_has_failed(network: Network, handled: Handled, call: object) -> None:
    handled.scripts[ORDERS_0, "prepare"] = call
    async with uncut(handled.running_participant()) as participant:
        assert await network.lead_and_follow(1, LED) == [56]
        await settle()

        assert handled.calls_of() == ["prepare 1.7"]
        assert participant.leadership(ORDERS_0) is None
        assert handled.statuses == [FAILED]


@each_call
async def test_lead_has_failed(network: Network, handled: Handled, call: object) -> None:
    handled.scripts[ORDERS_0, "lead"] = call
    async with uncut(handled.running_participant()) as participant:
        await network.lead_and_follow(1, LED)
        await settle()

        assert participant.leadership(ORDERS_0) is None
        assert handled.statuses == [FAILED]


async def test_lead_whose_task_was_cancelled_has_failed(network: Network, handled: Handled) -> None:
    async def lead(leader: Leader) -> None:
        leader.tasks.start_soon(cancelled_inside, None)
        await anyio.sleep_forever()

    handled.scripts[ORDERS_0, "lead"] = lead
    async with uncut(handled.running_participant()) as participant:
        await network.lead_and_follow(1, LED)
        await settle()

        assert participant.leadership(ORDERS_0) is None
        assert handled.statuses == [FAILED]
        assert handled.last_report is not None
        assert handled.last_report.detail.startswith("lead: one of its tasks")


@each_call
async def test_follow_has_failed(network: Network, handled: Handled, call: object) -> None:
    handled.scripts[ORDERS_0, "follow"] = call
    async with uncut(handled.running_participant()):
        await network.lead_and_follow(1, LED.but(leader=2))
        await settle()

        assert handled.statuses == [FAILED]


@each_call
async def test_deletion_has_failed(network: Network, handled: Handled, call: object) -> None:
    """Its data may be there."""
    async with uncut(handled.running_participant()):
        await network.lead_and_follow(1, LED)
        handled.scripts[ORDERS_0, "stop"] = call
        deletion = stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True)
        failed = await network.send(1, deletion)
        del handled.scripts[ORDERS_0, "stop"]
        await network.clock.advance(1_000)
        succeeded = await network.send(1, deletion)

        assert isinstance(failed, StopReplicaResponse)
        assert isinstance(succeeded, StopReplicaResponse)
        assert [errors(response.partitions)[ORDERS_0] for response in (failed, succeeded)] == [56, 0]
        assert handled.statuses == [FAILED, READY]


async def test_call_of_a_listener_has_failed(network: Network) -> None:
    class Cancelled(Listener):
        async def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
            await cancelled_inside(None)

    async with uncut(network.participant(listener=Cancelled())) as participant:
        assert await network.lead_and_follow(1, LED) == [56]
        assert participant.leadership(ORDERS_0) is None
