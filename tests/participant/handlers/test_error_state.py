"""Handlers in ERROR: they are stopped, reset and deleted, and their report is repeated."""

import anyio
import msgspec
import pytest

from kactl.decide.messages.broker import PartitionReport
from kactl.model import EPOCH_DURING_DELETE, ReplicaStatus
from kactl.model.errors import NotReady
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import MARGIN_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import ORDERS_0, lease_release, stop_replica, update_metadata

from .conftest import Handled
from .scripts import LED, NEXT, READY, delete_and_lead_next, fail_for_good, ignoring_cancellation, raising, waiting_for

pytestmark = pytest.mark.anyio


async def test_error_is_repeated_to_each_later_controller_until_the_reset(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        await fail_for_good(network, handled)
        await network.send(1, update_metadata(epoch=1, number=1))
        await settle()
        assert handled.reports == []

        await network.send(1, update_metadata(epoch=2))
        await network.send(1, update_metadata(epoch=2, number=1))
        await settle()

        assert handled.reports == [(ORDERS_0, ReplicaStatus.ERROR)]
        expected = PartitionReport(ORDERS_0, 10, ReplicaStatus.ERROR, "lead: disk full", age_ms=4_000.0)
        assert handled.last_report == expected
        await network.clock.advance(1_000)
        await network.send(1, update_metadata(epoch=3))
        await settle()
        assert handled.last_report == msgspec.structs.replace(expected, age_ms=5_000.0)
        await participant.reset(ORDERS_0)
        await settle()
        handled.reports.clear()
        await network.send(1, update_metadata(epoch=4))
        await settle()
        assert handled.reports == []


async def test_long_stop_of_a_handler_in_error_changes_nothing(network: Network, handled: Handled) -> None:
    """A report that it is busy, and then ready, would have the controller use it again."""
    stopped = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
    async with handled.running_participant():
        await fail_for_good(network, handled)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=11))
            await network.clock.advance(5_000)
        during = handled.state()
        assert await network.lead_and_follow(1, LED.but(leader_epoch=12)) == [56]
        stopped.set()
        await settle()

        assert (during, handled.state()) == (HandlerState.ERROR, HandlerState.ERROR)
        assert handled.calls_of() == ["stop"]
        assert handled.reports == []


async def test_handler_in_error_is_reset_while_it_stops(network: Network, handled: Handled) -> None:
    stopped = anyio.Event()
    async with handled.running_participant() as participant:
        await fail_for_good(network, handled)
        handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=11))
            await network.clock.advance(500)
            await participant.reset(ORDERS_0)
        stopped.set()
        await settle()

        assert handled.statuses == [READY]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=12)) == [0]


@pytest.mark.parametrize("error", [OSError("no such file"), NotReady(300, "the cache is cold")])
async def test_failed_stop_of_a_handler_in_error_leaves_it_in_error(
    network: Network, handled: Handled, error: Exception
) -> None:
    """Also if a call was stuck, so that it has not failed often."""
    release = anyio.Event()
    handled.scripts[ORDERS_0, "lead"] = ignoring_cancellation(release)
    handled.scripts[ORDERS_0, "stop"] = raising(error)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2, leader_epoch=8))
        await network.clock.advance(MARGIN_MS)
        release.set()
        await settle()
        assert handled.state() is HandlerState.ERROR
        handled.reports.clear()
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=9))
        await network.clock.advance(5_000)

        assert handled.state() is HandlerState.ERROR
        assert handled.statuses == [ReplicaStatus.ERROR]
        assert handled.last_report is not None
        assert handled.last_report.detail == f"stop: {error}"
        del handled.scripts[ORDERS_0, "stop"]


async def test_stuck_stop_of_a_handler_in_error_is_named(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await fail_for_good(network, handled)
        handled.scripts[ORDERS_0, "stop"] = ignoring_cancellation(release)
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=11))
        await network.clock.advance(30_000)
        await network.clock.advance(MARGIN_MS)

        state, report = handled.state(), handled.last_report
        release.set()
        await settle()
        assert state is HandlerState.STUCK
        assert report is not None
        assert report.detail.startswith("the call was cancelled while stopping, ")
        assert handled.statuses == [ReplicaStatus.STUCK, ReplicaStatus.ERROR]


async def test_next_replica_after_a_deletion_in_error_has_another_handler(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await fail_for_good(network, handled)
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        await settle()
        assert handled.statuses == [READY]
        assert handled.state() is None
        assert await network.lead_and_follow(1, NEXT) == [0]
        await network.send(1, lease_release(ORDERS_0, leader_epoch=0, topic_id=NEXT.topic_id))
        await network.send(1, update_metadata(epoch=2))
        await settle()

        assert handled.state() is HandlerState.LEADING
        assert len(handled.handlers) == 2
        assert handled.calls_of() == ["delete", "prepare 1.0", "lead 1.0"]
        assert handled.statuses == [READY]


async def test_next_replica_waits_for_a_deletion_in_error(network: Network, handled: Handled) -> None:
    """Its order arrives while the earlier handler deletes its data, which takes long."""
    deleted = anyio.Event()
    async with handled.running_participant():
        await fail_for_good(network, handled)
        handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
        async with anyio.create_task_group() as tasks:
            await delete_and_lead_next(network, tasks, 5_000)
        before = handled.calls_of()
        deleted.set()
        await settle()

        assert before == ["delete"]
        assert handled.calls_of() == ["delete", "prepare 1.0"]  # it is led after its release
        assert len(handled.handlers) == 2
        assert handled.statuses == [READY]


async def test_failed_deletion_in_error_refuses_the_next_replica(network: Network, handled: Handled) -> None:
    failed = anyio.Event()

    async def stop(_: object) -> None:
        await failed.wait()
        raise OSError("busy")

    async with handled.running_participant():
        await fail_for_good(network, handled)
        handled.scripts[ORDERS_0, "stop"] = stop
        async with anyio.create_task_group() as tasks:
            await delete_and_lead_next(network, tasks, 5_000)
        failed.set()
        await settle()

        assert handled.state() is HandlerState.ERROR
        assert handled.calls_of() == ["delete"]
        assert handled.statuses == [ReplicaStatus.ERROR]
        handled.scripts.clear()


async def test_report_of_a_deleted_replica_is_not_repeated(network: Network, handled: Handled) -> None:
    """A controller that has not received the report of its failure receives none, as the next replica has its name."""
    async with handled.running_participant():
        await fail_for_good(network, handled)
        network.hub.detach_controller(100, handled.receive)
        await network.send(1, update_metadata(epoch=2))
        await network.clock.advance(400)
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True, epoch=2))
        assert await network.lead_and_follow(1, NEXT, epoch=2) == [0]
        network.hub.attach_controller(100, handled.receive)
        await network.clock.advance(1_000)

        assert handled.statuses == [READY]
