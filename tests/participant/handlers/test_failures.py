"""Handlers that raise or take too long, and the reports about them."""

from typing import Any

import anyio
import pytest

from kactl.model import ReplicaStatus
from kactl.model.errors import NotFound
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ORDERS_0, StateRow, stop_replica, update_metadata

from .conftest import Handled
from .scripts import FAILED, LED, READY, delete_and_lead_next, raising, waiting_for

pytestmark = pytest.mark.anyio


async def test_failure_in_time_is_in_the_response(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        assert await network.lead_and_follow(1, LED, StateRow(BILLS_0)) == [56, 0]
        await settle()

        assert participant.hosts == [BILLS_0]
        assert handled.reports == [(ORDERS_0, FAILED)]
        assert handled.state() is HandlerState.BACKING_OFF


async def test_body_that_raises_ends_the_leadership(network: Network, handled: Handled) -> None:
    go = anyio.Event()

    async def lead(_: object) -> None:
        await go.wait()
        raise OSError("disk full")

    handled.scripts[ORDERS_0, "lead"] = lead
    async with handled.running_participant() as participant:
        assert await network.lead_and_follow(1, LED) == [0]
        await settle()
        leader = participant.leadership(ORDERS_0)
        assert leader is not None
        go.set()
        await settle()

        assert not leader.is_valid
        assert participant.leadership(ORDERS_0) is None
        assert handled.statuses == [FAILED]


@pytest.mark.parametrize("call", ["prepare", "stop"])
async def test_transition_has_a_time_limit(network: Network, handled: Handled, call: str) -> None:
    handled.scripts[ORDERS_0, call] = waiting_for(anyio.Event())
    async with handled.running_participant(transition_timeout_ms=5_000), anyio.create_task_group() as tasks:
        if call == "prepare":
            tasks.start_soon(network.lead_and_follow, 1, LED)
        else:
            tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, delete=True))
        await network.clock.advance(4_999)
        assert handled.statuses == [ReplicaStatus.BUSY]
        await network.clock.advance(1)

        assert handled.statuses == [ReplicaStatus.BUSY, FAILED]
        handled.scripts.clear()


async def test_handler_that_cannot_be_made_is_a_failure(network: Network, handled: Handled) -> None:
    def fail(_: object) -> Any:
        raise OSError("no such file")

    async with handled.running_participant():
        handled.make_by(fail)

        assert await network.lead_and_follow(1, LED) == [56]


async def test_error_of_the_actor_itself_is_reported(
    network: Network, handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("a bug")

    async with handled.running_participant():
        with monkeypatch.context() as patch:
            patch.setattr("kactl.participant.handlers.actor.Leader", fail)
            responses = await network.lead_and_follow(1, LED)
        await settle()

        assert responses == [56]
        assert handled.state() is HandlerState.BACKING_OFF
        assert handled.last_report is not None
        assert handled.last_report.detail == "internal error: a bug"
        await network.clock.advance(1_000)
        assert handled.statuses == [FAILED, READY]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=8)) == [0]
        assert await network.lead_and_follow(1, StateRow(BILLS_0)) == [0]


async def test_report_is_repeated_until_the_controller_has_received_it(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        network.hub.detach_controller(100, handled.receive)
        await network.lead_and_follow(1, LED)
        await network.clock.advance(400)
        assert handled.reports == []
        network.hub.attach_controller(100, handled.receive)
        await network.clock.advance(200)

        assert handled.statuses == [FAILED]


async def test_failure_is_repeated_to_a_later_controller_until_it_is_over(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await network.clock.advance(400)
        await network.send(1, update_metadata(epoch=2))
        await settle()

        assert handled.statuses == [FAILED, FAILED]
        report = handled.last_report
        assert report is not None
        assert (report.failures, report.age_ms, report.next_ms) == (1, 400.0, 600.0)
        await network.clock.advance(600)
        await network.send(1, update_metadata(epoch=3))
        await settle()
        assert handled.statuses == [FAILED, FAILED, READY]


async def test_failures_of_a_deleted_replica_do_not_count_for_the_next_one(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        for attempt in range(3):
            await network.lead_and_follow(1, LED.but(leader_epoch=7 + attempt))
            await network.clock.advance(4_000)
        await delete_and_lead_next(network, tasks, 500)
        deleted.set()
        await settle()

        assert handled.statuses[-1] is FAILED


async def test_reset_of_an_unknown_partition_is_rejected(handled: Handled) -> None:
    async with handled.running_participant() as participant:
        with pytest.raises(NotFound):
            await participant.reset("orders-7")
