"""Handlers that raise, hang, or are not ready, and the reports about them."""

from typing import Any

import anyio
import msgspec
import pytest

from kactl.errors import NotFound, NotReady
from kactl.messages.broker import PartitionReport
from kactl.model import EPOCH_DURING_DELETE, ReplicaStatus
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import SESSION_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ORDERS_0, StateRow, lease_release, stop_replica, update_metadata

from .conftest import Handled

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7)
# Of the next topic of the name.
NEXT = StateRow(ORDERS_0, leader_epoch=0, topic_id=b"2" * 16)
MARGIN_MS = SESSION_MS / 10
FAILED, READY = ReplicaStatus.FAILED, ReplicaStatus.READY


def raising(error: Exception) -> Any:
    async def call(_: object) -> None:
        raise error

    return call


def waiting_for(event: anyio.Event) -> Any:
    async def call(_: object) -> None:
        await event.wait()

    return call


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


@pytest.mark.parametrize(
    ("error", "delay_ms", "status"),
    [(OSError("disk full"), 1_000, FAILED), (NotReady(300, "the cache is cold"), 300, ReplicaStatus.NOT_READY)],
)
async def test_stop_does_not_end_a_back_off(
    network: Network, handled: Handled, error: Exception, delay_ms: int, status: ReplicaStatus
) -> None:
    """The controller sends it because of the failure."""
    handled.scripts[ORDERS_0, "lead"] = raising(error)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop"]
        assert handled.state() is HandlerState.BACKING_OFF
        del handled.scripts[ORDERS_0, "lead"]
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader_epoch=9))
        await network.clock.advance(delay_ms - 1)
        before = statuses(handled), handled.calls_of()[3:]
        await network.clock.advance(1)

        assert before == ([status], [])
        assert statuses(handled) == [status, READY]
        assert handled.calls_of()[3:] == ["prepare 1.9", "lead 1.9"]


async def test_deletion_ends_a_back_off(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete"]
        assert statuses(handled) == [FAILED, READY]


async def test_deletion_ends_a_back_off_before_the_order_for_the_next_topic(network: Network, handled: Handled) -> None:
    """Both orders arrive before a stop within the back-off has ended."""
    release = anyio.Event()

    async def stop(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    handled.scripts[ORDERS_0, "stop"] = stop
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(50)
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        await network.clock.advance(50)
        tasks.start_soon(network.lead_and_follow, 1, NEXT)
        await network.clock.advance(50)
        release.set()
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop", "delete", "prepare 1.0"]


async def test_back_off_ends_with_the_registration(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        await participant.restart()
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop", "stop"]
        assert handled.state() is None
        await network.send(1, update_metadata())
        await network.clock.advance(1_000)

        assert statuses(handled) == [FAILED]


async def test_long_stop_within_a_back_off_delays_its_end(network: Network, handled: Handled) -> None:
    """A busy replica would count as ready."""
    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    stopped = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(5_000)
        during = statuses(handled)
        stopped.set()
        await settle()

        assert during == [FAILED]
        assert statuses(handled) == [FAILED, READY]


@pytest.mark.parametrize(("error", "delay_ms"), [(OSError("busy"), 2_000), (NotReady(300, "not now"), 1_000)])
async def test_failed_stop_within_a_back_off_does_not_shorten_it(
    network: Network, handled: Handled, error: Exception, delay_ms: int
) -> None:
    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    handled.scripts[ORDERS_0, "stop"] = raising(error)
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        handled.scripts.clear()
        await network.clock.advance(delay_ms - 1)
        assert handled.state() is HandlerState.BACKING_OFF
        assert READY not in statuses(handled)
        await network.clock.advance(1)

        assert handled.state() is HandlerState.IDLE
        assert statuses(handled).count(READY) == 1


async def test_stuck_stop_ends_a_back_off_without_being_ready(network: Network, handled: Handled) -> None:
    release = anyio.Event()

    async def stuck(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    handled.scripts[ORDERS_0, "stop"] = stuck
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(30_000)
        await network.clock.advance(MARGIN_MS)
        release.set()
        await network.clock.advance(5_000)

        assert statuses(handled) == [FAILED, ReplicaStatus.STUCK, ReplicaStatus.ERROR]
        assert handled.state() is HandlerState.ERROR


async def test_reset_ends_a_back_off_also_during_a_stop(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "lead"] = raising(NotReady(60_000, "the cache is cold"))
    stopped = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.clock.advance(500)
        await participant.reset(ORDERS_0)
        stopped.set()
        await settle()

        assert statuses(handled) == [ReplicaStatus.NOT_READY, READY]


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


async def test_handler_that_cannot_be_made_is_not_made_for_a_stop(network: Network, handled: Handled) -> None:
    """The order to lead was accepted while the handler of the deleted replica of the name still ran."""
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    made: list[object] = []

    def fail(name: object) -> Any:
        made.append(name)
        raise OSError("no such file")

    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        await network.clock.advance(100)
        tasks.start_soon(network.lead_and_follow, 1, NEXT)
        await network.clock.advance(100)
        hosting = participant._hosting
        assert hosting is not None
        hosting._make = fail
        deleted.set()
        await settle()
        assert statuses(handled) == [FAILED]
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=1, topic_id=NEXT.topic_id))
        await network.clock.advance(999)
        before = statuses(handled)
        await network.clock.advance(1)

        assert (before, statuses(handled)) == ([FAILED], [FAILED, READY])
        assert made == [ORDERS_0]
        assert handled.state() is None


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
        assert handled.state() is HandlerState.ERROR
        report = PartitionReport(ORDERS_0, 7, ReplicaStatus.ERROR, "internal error: RuntimeError('a bug')")
        assert handled.last_report == report
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

        assert statuses(handled) == [FAILED]


async def fail_for_good(network: Network, handled: Handled) -> None:
    """Have orders-0 led under the epochs 7 to 10, so that its handler is in ERROR, and forget the calls and reports."""
    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    for attempt in range(4):
        await network.lead_and_follow(1, LED.but(leader_epoch=7 + attempt))
        await network.clock.advance(4_000)
    assert handled.state() is HandlerState.ERROR
    del handled.scripts[ORDERS_0, "lead"]
    handled.calls.clear()
    handled.reports.clear()


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


async def test_failure_that_ends_by_itself_is_not_repeated(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await network.send(1, update_metadata(epoch=2))
        await settle()

        assert statuses(handled) == [FAILED]


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

        assert statuses(handled) == [READY]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=12)) == [0]


@pytest.mark.parametrize("error", [OSError("no such file"), NotReady(300, "the cache is cold")])
async def test_failed_stop_of_a_handler_in_error_leaves_it_in_error(
    network: Network, handled: Handled, error: Exception
) -> None:
    """Also if a call was stuck, so that it has not failed often."""
    release = anyio.Event()

    async def stuck(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    handled.scripts[ORDERS_0, "lead"] = stuck
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
        assert statuses(handled) == [ReplicaStatus.ERROR]
        assert handled.last_report is not None
        assert handled.last_report.detail == f"stop: {error}"
        del handled.scripts[ORDERS_0, "stop"]


async def test_stuck_stop_of_a_handler_in_error_is_named(network: Network, handled: Handled) -> None:
    release = anyio.Event()

    async def stuck(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await fail_for_good(network, handled)
        handled.scripts[ORDERS_0, "stop"] = stuck
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=11))
        await network.clock.advance(30_000)
        await network.clock.advance(MARGIN_MS)

        state, report = handled.state(), handled.last_report
        release.set()
        await settle()
        assert state is HandlerState.STUCK
        assert report is not None
        assert report.detail.startswith("the call was cancelled while stopping, ")
        assert statuses(handled) == [ReplicaStatus.STUCK, ReplicaStatus.ERROR]


async def test_next_replica_after_a_deletion_in_error_has_another_handler(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await fail_for_good(network, handled)
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        await settle()
        assert statuses(handled) == [READY]
        assert handled.state() is None
        assert await network.lead_and_follow(1, NEXT) == [0]
        await network.send(1, lease_release(ORDERS_0, leader_epoch=0, topic_id=NEXT.topic_id))
        await network.send(1, update_metadata(epoch=2))
        await settle()

        assert handled.state() is HandlerState.LEADING
        assert len(handled.handlers) == 2
        assert handled.calls_of() == ["delete", "prepare 1.0", "lead 1.0"]
        assert statuses(handled) == [READY]


async def test_next_replica_waits_for_a_deletion_in_error(network: Network, handled: Handled) -> None:
    """Its order arrives while the earlier handler deletes its data, which takes long."""
    deleted = anyio.Event()
    async with handled.running_participant():
        await fail_for_good(network, handled)
        handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
            await network.clock.advance(5_000)
            tasks.start_soon(network.lead_and_follow, 1, NEXT)
            await network.clock.advance(5_000)
        before = handled.calls_of()
        deleted.set()
        await settle()

        assert before == ["delete"]
        assert handled.calls_of() == ["delete", "prepare 1.0"]  # it is led after its release
        assert len(handled.handlers) == 2
        assert statuses(handled) == [READY]


async def test_failed_deletion_in_error_refuses_the_next_replica(network: Network, handled: Handled) -> None:
    failed = anyio.Event()

    async def stop(_: object) -> None:
        await failed.wait()
        raise OSError("busy")

    async with handled.running_participant():
        await fail_for_good(network, handled)
        handled.scripts[ORDERS_0, "stop"] = stop
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
            await network.clock.advance(5_000)
            tasks.start_soon(network.lead_and_follow, 1, NEXT)
            await network.clock.advance(5_000)
        failed.set()
        await settle()

        assert handled.state() is HandlerState.ERROR
        assert handled.calls_of() == ["delete"]
        assert statuses(handled) == [ReplicaStatus.ERROR]
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

        assert statuses(handled) == [READY]


async def test_failures_of_a_deleted_replica_do_not_count_for_the_next_one(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        for attempt in range(3):
            await network.lead_and_follow(1, LED.but(leader_epoch=7 + attempt))
            await network.clock.advance(4_000)
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
        await network.clock.advance(500)
        tasks.start_soon(network.lead_and_follow, 1, NEXT)
        await network.clock.advance(100)
        deleted.set()
        await settle()

        assert statuses(handled)[-1] is FAILED


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


# -- replicas whose directory fails


async def test_replica_with_a_failed_directory_is_not_ready_after_a_back_off(
    network: Network, handled: Handled
) -> None:
    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        await participant.fail_directory([ORDERS_0])
        await network.clock.advance(5_000)

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop"]
        assert statuses(handled) == [FAILED]


async def test_replica_that_has_never_led_is_not_ready_with_a_failed_directory(
    network: Network, handled: Handled
) -> None:
    """Its first order has failed, so the participant knows no leader epoch of it."""
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        assert await network.lead_and_follow(1, LED) == [56]
        await participant.fail_directory([ORDERS_0])
        await network.clock.advance(5_000)

        assert statuses(handled) == [FAILED]


async def test_long_stop_after_the_failure_of_a_directory_is_not_reported(network: Network, handled: Handled) -> None:
    """A report that it is busy, and then ready, would have the controller use it again."""
    stopped = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        await participant.fail_directory([ORDERS_0])
        await network.clock.advance(5_000)
        stopped.set()
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop"]
        assert statuses(handled) == []


async def test_reset_does_not_make_a_replica_with_a_failed_directory_ready(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        await fail_for_good(network, handled)
        await participant.fail_directory([ORDERS_0])
        await participant.reset(ORDERS_0)
        await settle()

        assert statuses(handled) == []


@pytest.mark.parametrize("before", [[], [LED.but(leader_epoch=4)]], ids=["first", "later"])
async def test_leadership_ends_that_begins_while_its_directory_fails(
    network: Network, handled: Handled, before: list[StateRow]
) -> None:
    """The participant has the leader epoch of an order once it is carried out, or has waited for some time."""
    prepared = anyio.Event()
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        for row in before:
            await network.lead_and_follow(1, row)
        handled.scripts[ORDERS_0, "prepare"] = waiting_for(prepared)
        handled.calls.clear()
        tasks.start_soon(network.lead_and_follow, 1, LED)
        await settle()
        await participant.fail_directory([ORDERS_0])
        prepared.set()
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "stop"]
        assert participant.leadership(ORDERS_0) is None
        assert [end for _, end in handled.ended] == ["orders-0 at 8"]
        assert await network.lead_and_follow(1, LED.but(leader_epoch=8)) == [56]
