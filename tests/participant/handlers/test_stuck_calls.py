"""Calls of handlers that ignore their cancellation."""

import anyio
import pytest

from kactl.model import ReplicaStatus
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import MARGIN_MS, SESSION_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ORDERS_0, StateRow, update_metadata

from .conftest import Handled
from .scripts import LED, ignoring_cancellation

pytestmark = pytest.mark.anyio


async def test_stuck_handler_gets_no_other_call(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    handled.scripts[ORDERS_0, "lead"] = ignoring_cancellation(release)
    async with (
        handled.running_participant(handlers_parallel=1) as participant,
        anyio.create_task_group() as tasks,
    ):
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2, leader_epoch=8))
        await network.clock.advance(MARGIN_MS - 1)
        assert handled.state() is HandlerState.ENDING
        await network.clock.advance(1)

        assert handled.state() is HandlerState.STUCK
        assert handled.statuses == [ReplicaStatus.STUCK]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=9), StateRow(BILLS_0)) == [56, 0]
        await settle()
        assert participant.leadership(BILLS_0) is not None  # other partitions go on

        await participant.reset(ORDERS_0)
        assert handled.state() is HandlerState.STUCK
        release.set()
        await settle()
        assert handled.state() is HandlerState.BACKING_OFF
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]
        del handled.scripts[ORDERS_0, "lead"]
        await network.clock.advance(1_000)
        assert handled.statuses == [ReplicaStatus.STUCK, ReplicaStatus.FAILED, ReplicaStatus.READY]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=10)) == [0]
        await settle()
        assert participant.leadership(ORDERS_0) is not None


async def test_stuck_handler_stays_stuck_under_the_next_registration(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    handled.scripts[ORDERS_0, "lead"] = ignoring_cancellation(release)
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(participant.restart)
            await network.clock.advance(MARGIN_MS + 100)
        await settle()

        assert handled.state() is HandlerState.STUCK
        handled.reports.clear()
        await network.send(1, update_metadata())
        assert await network.lead_and_follow(1, LED.but(leader_epoch=9)) == [56]
        await settle()
        repeated = list(handled.reports)
        release.set()
        assert repeated == [(ORDERS_0, ReplicaStatus.STUCK)]


async def test_stuck_transition_does_not_keep_others_from_running(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    handled.scripts[ORDERS_0, "prepare"] = ignoring_cancellation(release)
    async with (
        handled.running_participant(handlers_parallel=1) as participant,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(network.lead_and_follow, 1, LED, StateRow(BILLS_0))
        await network.clock.advance(100)
        assert handled.calls_of(BILLS_0) == []
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2, leader_epoch=8))
        await network.clock.advance(MARGIN_MS + 100)

        assert handled.state() is HandlerState.STUCK
        assert participant.leadership(BILLS_0) is not None
        release.set()


@pytest.mark.parametrize("call", ["prepare", "lead", "follow"])
async def test_call_that_survives_a_kill_is_stuck(network: Network, handled: Handled, call: str) -> None:
    """The handler of the next registration must not be called meanwhile."""
    release = anyio.Event()
    handled.scripts[ORDERS_0, call] = ignoring_cancellation(release)
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2 if call == "follow" else 1))
        await network.clock.advance(100)
        tasks.start_soon(participant.kill)
        await network.clock.advance(2 * SESSION_MS)
        await participant.start()
        await network.send(1, update_metadata())

        codes = await network.lead_and_follow(1, LED)
        state, calls = handled.state(), handled.calls_of()
        release.set()
        await settle()

        assert (codes, state, calls.count("prepare 1.7")) == ([56], HandlerState.STUCK, call != "follow")
        assert handled.state() is HandlerState.BACKING_OFF
        await network.clock.advance(1_000)
        assert handled.statuses[-1] is ReplicaStatus.READY
