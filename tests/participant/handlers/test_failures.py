"""Handlers that raise, hang, or are not ready, and the reports about them."""

from typing import Any

import anyio
import msgspec
import pytest

from kactl.errors import NotFound, NotReady
from kactl.messages.broker import PartitionReport
from kactl.model import ReplicaStatus
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import SESSION_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ORDERS_0, StateRow, stop_replica, update_metadata

from .conftest import Handled

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7)
MARGIN_MS = SESSION_MS / 10
FAILED, READY = ReplicaStatus.FAILED, ReplicaStatus.READY


def raising(error: Exception) -> Any:
    async def call(_: object) -> None:
        raise error

    return call


async def ignoring_its_cancellation(_: object) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()


def statuses(handled: Handled) -> list[ReplicaStatus]:
    return [status for _, status in handled.reports]


async def test_failure_in_time_is_in_the_response(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        assert await network.lead_and_follow(1, LED, StateRow(BILLS_0)) == [56, 0]
        await settle()

        assert participant.hosts == [BILLS_0]
        assert handled.reports == [(ORDERS_0, FAILED)]
        assert handled.state() is HandlerState.BACKING_OFF


async def test_replica_is_ready_again_after_its_back_off(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await network.clock.advance(999)
        assert statuses(handled) == [FAILED]
        await network.clock.advance(1)

        assert statuses(handled) == [FAILED, READY]
        assert handled.state() is HandlerState.IDLE


async def test_fourth_failure_is_permanent_until_a_reset(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        for epoch, delay_ms in zip((7, 8, 9), (1_000, 2_000, 4_000), strict=True):
            assert await network.lead_and_follow(1, LED.but(leader_epoch=epoch)) == [56]
            await network.clock.advance(delay_ms - 1)
            assert handled.state() is HandlerState.BACKING_OFF
            await network.clock.advance(1)
        assert await network.lead_and_follow(1, LED.but(leader_epoch=10)) == [56]
        await network.clock.advance(3_000)

        assert handled.state() is HandlerState.ERROR
        assert statuses(handled) == [FAILED, READY] * 3 + [ReplicaStatus.ERROR]
        del handled.scripts[ORDERS_0, "prepare"]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=11)) == [56]
        await participant.reset("orders-0")
        await settle()
        assert statuses(handled)[-1] is READY
        assert await network.lead_and_follow(1, LED.but(leader_epoch=12)) == [0]


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
        assert statuses(handled) == [FAILED]


async def test_not_ready_replica_is_ready_after_its_own_delay(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(NotReady(300, "the cache is cold"))
    async with handled.running_participant():
        for epoch in range(7, 13):  # as often as it likes
            assert await network.lead_and_follow(1, LED.but(leader_epoch=epoch)) == [56]
            await network.clock.advance(300)

        assert statuses(handled) == [ReplicaStatus.NOT_READY, READY] * 6


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
        assert statuses(handled) == [ReplicaStatus.NOT_READY, READY]


async def test_order_to_follow_ends_a_back_off(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        assert await network.lead_and_follow(1, LED.but(leader=2, leader_epoch=8)) == [0]
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "follow 2 at 8"]
        assert statuses(handled) == [FAILED, READY]


@pytest.mark.parametrize("call", ["prepare", "stop"])
async def test_transition_has_a_time_limit(network: Network, handled: Handled, call: str) -> None:
    async def hang(_: object) -> None:
        await anyio.sleep_forever()

    handled.scripts[ORDERS_0, call] = hang
    async with handled.running_participant(transition_timeout_ms=5_000), anyio.create_task_group() as tasks:
        if call == "prepare":
            tasks.start_soon(network.lead_and_follow, 1, LED)
        else:
            tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, delete=True))
        await network.clock.advance(4_999)
        assert statuses(handled) == [ReplicaStatus.BUSY]
        await network.clock.advance(1)

        assert statuses(handled) == [ReplicaStatus.BUSY, FAILED]
        handled.scripts.clear()


async def test_stuck_handler_gets_no_other_call(network: Network, handled: Handled) -> None:
    release = anyio.Event()

    async def stuck(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    handled.scripts[ORDERS_0, "lead"] = stuck
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
        assert statuses(handled) == [ReplicaStatus.STUCK]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=9), StateRow(BILLS_0)) == [56, 0]
        await settle()
        assert participant.leadership(BILLS_0) is not None  # other partitions go on

        await participant.reset(ORDERS_0)
        assert handled.state() is HandlerState.STUCK
        release.set()
        await settle()
        assert handled.state() is HandlerState.ERROR
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]


async def test_stuck_handler_stays_stuck_under_the_next_registration(network: Network, handled: Handled) -> None:
    release = anyio.Event()

    async def stuck(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    handled.scripts[ORDERS_0, "lead"] = stuck
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


async def test_handler_that_cannot_be_made_is_a_failure(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        hosting = participant._hosting
        assert hosting is not None

        def fail(name: object) -> Any:
            raise OSError("no such file")

        hosting._make = fail

        assert await network.lead_and_follow(1, LED) == [56]


async def test_report_is_repeated_until_the_controller_has_received_it(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        network.hub.detach_controller(100, handled.receive)
        await network.lead_and_follow(1, LED)
        await network.clock.advance(400)
        assert handled.reports == []
        network.hub.attach_controller(100, handled.receive)
        await network.clock.advance(200)

        assert statuses(handled) == [FAILED]


async def test_error_is_repeated_to_each_later_controller_until_the_reset(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        for attempt in range(4):
            await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=7 + attempt))
            await network.clock.advance(4_000)
        assert handled.state() is HandlerState.ERROR
        handled.reports.clear()
        await network.send(1, update_metadata(epoch=1, number=1))
        await settle()
        assert handled.reports == []

        await network.send(1, update_metadata(epoch=2))
        await network.send(1, update_metadata(epoch=2, number=1))
        await settle()

        assert handled.reports == [(ORDERS_0, ReplicaStatus.ERROR)]
        expected = PartitionReport(ORDERS_0, 10, ReplicaStatus.ERROR, "prepare: disk full", age_ms=4_000.0)
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


async def test_failure_that_ends_by_itself_is_not_repeated(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await network.send(1, update_metadata(epoch=2))
        await settle()

        assert statuses(handled) == [FAILED]


async def test_reset_of_an_unknown_partition_is_rejected(handled: Handled) -> None:
    async with handled.running_participant() as participant:
        with pytest.raises(NotFound):
            await participant.reset("orders-7")


async def test_stuck_transition_does_not_keep_others_from_running(network: Network, handled: Handled) -> None:
    release = anyio.Event()

    async def stuck(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    handled.scripts[ORDERS_0, "prepare"] = stuck
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
