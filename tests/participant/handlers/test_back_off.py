"""The pause after a failure of a handler, and the orders, calls and resets that end it."""

from typing import Any

import anyio
import pytest

from kactl.model import EPOCH_DURING_DELETE, ReplicaStatus
from kactl.model.errors import NotReady
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import MARGIN_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import ORDERS_0, stop_replica, update_metadata

from .conftest import Handled
from .scripts import (
    FAILED,
    LED,
    NEXT,
    READY,
    backing_off,
    delete_and_lead_next,
    ignoring_cancellation,
    raising,
    waiting_for,
)

pytestmark = pytest.mark.anyio


async def test_replica_is_ready_again_after_its_back_off(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await network.clock.advance(999)
        assert handled.statuses == [FAILED]
        await network.clock.advance(1)

        assert handled.statuses == [FAILED, READY]
        assert handled.state() is HandlerState.IDLE


async def test_not_ready_replica_is_ready_after_its_own_delay(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(NotReady(300, "the cache is cold"))
    async with handled.running_participant():
        for epoch in range(7, 13):  # more often than a handler may fail
            assert await network.lead_and_follow(1, LED.but(leader_epoch=epoch)) == [56]
            await network.clock.advance(300)

        assert handled.statuses == [ReplicaStatus.NOT_READY, READY] * 6


async def test_resigned_leader_is_not_ready_for_a_second(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        leader = participant.leadership(ORDERS_0)
        assert leader is not None
        await leader.resign("too hot")
        assert not leader.is_valid
        await network.clock.advance(1_000)

        assert handled.running[ORDERS_0] == 0
        assert handled.statuses == [ReplicaStatus.NOT_READY, READY]


async def test_order_to_follow_ends_a_back_off(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        assert await network.lead_and_follow(1, LED.but(leader=2, leader_epoch=8)) == [0]
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "follow 2 at 8"]
        assert handled.statuses == [FAILED, READY]


@pytest.mark.parametrize(
    ("error", "delay_ms", "status"),
    [(OSError("disk full"), 1_000, FAILED), (NotReady(300, "the cache is cold"), 300, ReplicaStatus.NOT_READY)],
)
async def test_stop_does_not_end_a_back_off(
    network: Network, handled: Handled, error: Exception, delay_ms: int, status: ReplicaStatus
) -> None:
    """The controller sends it because of the failure."""
    async with backing_off(network, handled, error), anyio.create_task_group() as tasks:
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop"]
        assert handled.state() is HandlerState.BACKING_OFF
        del handled.scripts[ORDERS_0, "lead"]
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader_epoch=9))
        await network.clock.advance(delay_ms - 1)
        before = handled.statuses, handled.calls_of()[3:]
        await network.clock.advance(1)

        assert before == ([status], [])
        assert handled.statuses == [status, READY]
        assert handled.calls_of()[3:] == ["prepare 1.9", "lead 1.9"]


async def test_deletion_ends_a_back_off(network: Network, handled: Handled) -> None:
    async with backing_off(network, handled, OSError("disk full")):
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete"]
        assert handled.statuses == [FAILED, READY]


async def test_deletion_ends_a_back_off_before_the_order_for_the_next_topic(network: Network, handled: Handled) -> None:
    """Both orders arrive before a stop within the back-off has ended."""
    release = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = ignoring_cancellation(release)
    async with backing_off(network, handled, OSError("disk full")), anyio.create_task_group() as tasks:
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(50)
        await delete_and_lead_next(network, tasks, 50)
        release.set()
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop", "delete", "prepare 1.0"]


async def test_back_off_ends_with_the_registration(network: Network, handled: Handled) -> None:
    async with backing_off(network, handled, OSError("disk full")) as participant:
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        await participant.restart()
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop", "stop"]
        assert handled.state() is None
        await network.send(1, update_metadata())
        await network.clock.advance(1_000)

        assert handled.statuses == [FAILED]


async def test_long_stop_within_a_back_off_delays_its_end(network: Network, handled: Handled) -> None:
    """A busy replica would count as ready."""
    stopped = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
    async with backing_off(network, handled, OSError("disk full")), anyio.create_task_group() as tasks:
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(5_000)
        during = handled.statuses
        stopped.set()
        await settle()

        assert during == [FAILED]
        assert handled.statuses == [FAILED, READY]


@pytest.mark.parametrize(("error", "delay_ms"), [(OSError("busy"), 1_000), (NotReady(300, "not now"), 1_000)])
async def test_failed_stop_within_a_back_off_does_not_shorten_it(
    network: Network, handled: Handled, error: Exception, delay_ms: int
) -> None:
    handled.scripts[ORDERS_0, "stop"] = raising(error)
    async with backing_off(network, handled, OSError("disk full")):
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        handled.scripts.clear()
        await network.clock.advance(delay_ms - 1)
        assert handled.state() is HandlerState.BACKING_OFF
        assert READY not in handled.statuses
        await network.clock.advance(1)

        assert handled.state() is HandlerState.IDLE
        assert handled.statuses.count(READY) == 1


async def test_stuck_stop_ends_a_back_off_without_being_ready(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = ignoring_cancellation(release)
    async with backing_off(network, handled, OSError("disk full")), anyio.create_task_group() as tasks:
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(30_000)
        await network.clock.advance(MARGIN_MS)
        release.set()
        await network.clock.advance(999)
        assert handled.state() is HandlerState.BACKING_OFF
        assert handled.statuses == [FAILED, ReplicaStatus.STUCK, FAILED]
        await network.clock.advance(1)

        assert handled.statuses == [FAILED, ReplicaStatus.STUCK, FAILED, READY]


async def test_reset_ends_a_back_off_also_during_a_stop(network: Network, handled: Handled) -> None:
    stopped = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
    async with (
        backing_off(network, handled, NotReady(60_000, "the cache is cold")) as participant,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(500)
        await participant.reset(ORDERS_0)
        stopped.set()
        await settle()

        assert handled.statuses == [ReplicaStatus.NOT_READY, READY]


async def test_handler_that_cannot_be_made_is_not_made_for_a_stop(network: Network, handled: Handled) -> None:
    """The order to lead was accepted while the handler of the deleted replica of the name still ran."""
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    made: list[object] = []

    def fail(name: object) -> Any:
        made.append(name)
        raise OSError("no such file")

    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await delete_and_lead_next(network, tasks, 100)
        handled.make_by(fail)
        deleted.set()
        await settle()
        assert handled.statuses == [FAILED]
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=1, topic_id=NEXT.topic_id))
        await network.clock.advance(999)
        before = handled.statuses
        await network.clock.advance(1)

        assert (before, handled.statuses) == ([FAILED], [FAILED, READY])
        assert made == [ORDERS_0]
        assert handled.state() is HandlerState.IDLE
