"""Deletions that fail: they are made again, by the same handler, before another replica of the partition is served."""

from typing import Any

import anyio
import anyio.abc
import pytest

from kactl.decide.messages.control import StopReplica, StopReplicaResponse
from kactl.model import EPOCH_DURING_DELETE, ReplicaStatus
from kactl.model.errors import NotReady
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import MARGIN_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import ORDERS_0, StateRow, errors, stop_replica, update_metadata

from .conftest import Handled
from .scripts import (
    FAILED,
    LED,
    NEXT,
    READY,
    delete_and_lead_next,
    ignoring_cancellation,
    raising,
    waiting_for,
)

pytestmark = pytest.mark.anyio

DELETION = stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True)


async def stop_code(network: Network, request: StopReplica = DELETION) -> int:
    """Send a StopReplica of orders-0. Returns the error code of its row."""
    response = await network.send(1, request)
    assert isinstance(response, StopReplicaResponse)
    return errors(response.partitions)[ORDERS_0]


def failing_late(handled: Handled, times: int) -> Any:
    """Returns a call that fails after the response to its request, and succeeds at once after that many times."""
    left = times

    async def call(_: object) -> None:
        nonlocal left
        if left:
            left -= 1
            await handled.clock.sleep_ms(100)
            raise OSError("busy")

    return call


async def fail_late(network: Network, handled: Handled, tasks: anyio.abc.TaskGroup, times: int = 1) -> None:
    """Have orders-0 led and then deleted, so that the deletion fails after it was confirmed; forget the calls."""
    await network.lead_and_follow(1, LED)
    await settle()
    handled.scripts[ORDERS_0, "stop"] = failing_late(handled, times)
    handled.calls.clear()
    tasks.start_soon(network.send, 1, DELETION)
    await network.clock.advance(100)
    assert handled.statuses == [FAILED]


async def test_deletion_that_fails_in_time_is_left_to_the_controller(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        handled.scripts[ORDERS_0, "stop"] = raising(OSError("busy"))
        assert await stop_code(network) == 56
        del handled.scripts[ORDERS_0, "stop"]
        await network.clock.advance(5_000)
        assert handled.statuses == [FAILED, READY]
        assert participant.hosts == [ORDERS_0]
        assert handled.calls_of().count("delete") == 1

        assert await stop_code(network) == 0
        assert participant.hosts == []
        assert handled.calls_of().count("delete") == 2
        assert len(handled.handlers) == 1
        assert await network.lead_and_follow(1, NEXT) == [0]
        assert len(handled.handlers) == 2


async def test_confirmed_deletion_is_made_again_until_it_succeeds(network: Network, handled: Handled) -> None:
    """The controller does not repeat it, because the response contained no error."""
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await fail_late(network, handled, tasks, times=3)
        assert handled.calls_of() == ["delete"]
        await network.clock.advance(999)
        assert handled.calls_of() == ["delete"]
        await network.clock.advance(10_000)

        assert handled.calls_of() == ["delete"] * 4
        assert handled.statuses == [FAILED, READY] * 3
        assert handled.state() is None
        assert len(handled.handlers) == 1
        assert handled.hosting.is_settled


@pytest.mark.parametrize(
    ("row", "first_call"),
    [(NEXT, "prepare 1.0"), (NEXT.but(leader=2), "follow 2 at 0")],
    ids=["lead", "follow"],
)
@pytest.mark.parametrize("wait_ms", [0, 500, 1_000], ids=["at once", "within the pause", "after the pause"])
async def test_next_topic_begins_after_the_deletion_and_with_another_handler(
    network: Network, handled: Handled, row: StateRow, first_call: str, wait_ms: int
) -> None:
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await fail_late(network, handled, tasks, times=2)
        await network.clock.advance(wait_ms)
        tasks.start_soon(network.lead_and_follow, 1, row)
        await network.clock.advance(2_099 - wait_ms)
        assert handled.calls_of() == ["delete", "delete"]  # it has failed again
        await network.clock.advance(1)

        assert handled.calls_of()[:4] == ["delete", "delete", "delete", first_call]
        assert len(handled.handlers) == 2


async def test_next_topic_that_waits_for_a_deletion_begins_after_the_next_attempt(
    network: Network, handled: Handled
) -> None:
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        handled.scripts[ORDERS_0, "stop"] = failing_late(handled, 1)
        handled.calls.clear()
        await delete_and_lead_next(network, tasks, 60)
        before = handled.calls_of(), len(handled.handlers)
        await network.clock.advance(1_000)

        assert before == (["delete"], 1)
        assert handled.calls_of()[:3] == ["delete", "delete", "prepare 1.0"]
        assert len(handled.handlers) == 2
        assert handled.statuses == [FAILED, READY]


async def test_stop_of_the_next_replica_does_not_reach_the_handler(network: Network, handled: Handled) -> None:
    """The controller sends it because the next replica cannot serve."""
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await fail_late(network, handled, tasks)
        tasks.start_soon(network.lead_and_follow, 1, NEXT)
        await network.clock.advance(100)
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=1, topic_id=NEXT.topic_id))
        await network.clock.advance(5_000)

        assert handled.calls_of() == ["delete", "delete"]
        assert handled.state() is None


async def test_replica_that_returns_begins_after_the_deletion_of_the_earlier_one(
    network: Network, handled: Handled
) -> None:
    """A reassignment moves the replica away, and back later: the topic is the same."""
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        handled.scripts[ORDERS_0, "stop"] = raising(OSError("busy"))
        assert await stop_code(network, stop_replica(ORDERS_0, leader_epoch=8, delete=True)) == 56
        await network.clock.advance(1_000)
        handled.calls.clear()
        del handled.scripts[ORDERS_0, "stop"]
        assert await network.lead_and_follow(1, LED.but(leader=2, leader_epoch=9)) == [0]
        await settle()

        assert handled.calls_of() == ["delete", "follow 2 at 9"]
        assert len(handled.handlers) == 2


async def test_repeated_deletion_ends_no_leadership_again(network: Network, handled: Handled) -> None:
    """A leadership of the next replica may have begun since."""
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        handled.scripts[ORDERS_0, "stop"] = failing_late(handled, 2)
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8, delete=True))
        await network.clock.advance(100)
        handled.ended.clear()
        await network.clock.advance(5_000)

        assert handled.calls_of().count("delete") == 3
        assert handled.ended == []


async def test_stuck_deletion_is_made_again_before_the_next_topic(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        handled.scripts[ORDERS_0, "stop"] = ignoring_cancellation(release)
        handled.calls.clear()
        tasks.start_soon(network.send, 1, DELETION)
        await network.clock.advance(30_000)
        await network.clock.advance(MARGIN_MS)
        state = handled.state()
        handled.reports.clear()
        codes = await network.lead_and_follow(1, NEXT)
        await settle()
        repeated = handled.statuses
        release.set()
        await settle()
        assert (state, codes, repeated) == (HandlerState.STUCK, [56], [ReplicaStatus.STUCK])
        assert handled.state() is HandlerState.BACKING_OFF
        await participant.reset(ORDERS_0)
        assert await network.lead_and_follow(1, NEXT.but(leader_epoch=1)) == [0]

        assert handled.calls_of()[:3] == ["delete", "delete", "prepare 1.1"]
        assert len(handled.handlers) == 2


async def test_deletion_that_waits_for_a_stuck_call_is_made_before_the_next_topic(
    network: Network, handled: Handled
) -> None:
    """It was confirmed before the call was stuck, so that the controller does not repeat it."""
    release = anyio.Event()
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        handled.scripts[ORDERS_0, "follow"] = ignoring_cancellation(release)
        await network.lead_and_follow(1, LED.but(leader=2))
        await settle()
        tasks.start_soon(network.send, 1, DELETION)
        await network.clock.advance(MARGIN_MS)
        assert handled.state() is HandlerState.STUCK
        assert "delete" not in handled.calls_of()
        handled.scripts.clear()
        release.set()
        await settle()
        handled.calls.clear()
        await participant.reset(ORDERS_0)
        assert await network.lead_and_follow(1, NEXT) == [0]
        await settle()

        assert handled.calls_of()[:2] == ["delete", "prepare 1.0"]
        assert len(handled.handlers) == 2


async def test_topic_that_replaces_an_undeleted_one_has_another_handler(network: Network, handled: Handled) -> None:
    """The earlier topic was removed while no controller was active, so that its replica is set aside at first."""
    first, second = LED.but(topic_id=b"1" * 16), NEXT.but(topic_id=b"2" * 16)
    async with handled.running_participant():
        await network.lead_and_follow(1, first)
        await settle()
        handled.calls.clear()
        assert await network.lead_and_follow(1, second, epoch=2) == [56]
        assert handled.calls_of() == ["stop"]
        assert handled.statuses == [ReplicaStatus.ERROR]
        handled.scripts[ORDERS_0, "stop"] = raising(OSError("busy"))
        await network.send(1, stop_replica(ORDERS_0, topic_id=b"1" * 16, delete=True, epoch=2))
        await network.clock.advance(1_000)
        del handled.scripts[ORDERS_0, "stop"]

        assert await network.lead_and_follow(1, second.but(leader_epoch=1), epoch=2) == [0]
        await settle()
        assert handled.calls_of()[1:4] == ["delete", "delete", "prepare 1.1"]
        assert handled.statuses[-1] is READY
        assert len(handled.handlers) == 2


@pytest.mark.parametrize("fails", [False, True])
async def test_failed_deletion_is_made_once_more_when_the_registration_ends(
    network: Network, handled: Handled, fails: bool
) -> None:
    """No call follows: the application may have closed what the handler uses. The next registration begins anew."""
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        await fail_late(network, handled, tasks)
        if fails:
            handled.scripts[ORDERS_0, "stop"] = raising(OSError("busy"))
        await participant.restart()
        assert handled.calls_of() == ["delete", "delete"]
        assert handled.state() is None
        handled.scripts.clear()
        await network.clock.advance(5_000)
        assert handled.calls_of() == ["delete", "delete"]

        await network.send(1, update_metadata())
        assert await network.lead_and_follow(1, NEXT) == [0]
        await settle()
        assert len(handled.handlers) == 2


async def test_killed_participant_does_not_make_a_deletion_again(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        await fail_late(network, handled, tasks)
        await participant.kill()
        await network.clock.advance(5_000)

        assert handled.calls_of() == ["delete"]


# -- handlers that cannot be made --------------------------------------------------------------------------------------


class Factory:
    """Makes handlers, or raises `error`."""

    def __init__(self, handled: Handled, error: Exception) -> None:
        self.error: Exception | None = error
        self.count = 0
        self._make = handled.hosting._make
        handled.make_by(self)

    def __call__(self, name: Any) -> Any:
        self.count += 1
        if self.error is not None:
            raise self.error
        return self._make(name)


async def test_order_to_follow_does_not_make_a_handler_before_its_pause_is_over(
    network: Network, handled: Handled
) -> None:
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        factory = Factory(handled, OSError("no such file"))
        await network.lead_and_follow(1, LED)
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2, leader_epoch=8))
        await network.clock.advance(999)
        before = factory.count
        factory.error = None
        await network.clock.advance(1)

        assert before == 1
        assert handled.calls_of() == ["follow 2 at 8"]


@pytest.mark.parametrize("is_reset", [False, True], ids=["repeated", "reset"])
async def test_deletion_fails_until_the_handler_can_be_made(network: Network, handled: Handled, is_reset: bool) -> None:
    """Data of an earlier process may exist, and only the handler can delete it."""
    async with handled.running_participant() as participant:
        factory = Factory(handled, OSError("no such file"))
        for attempt in range(4):
            await network.lead_and_follow(1, LED.but(leader_epoch=7 + attempt))
            await network.clock.advance(4_000)
        handled.reports.clear()
        assert [await stop_code(network), await stop_code(network)] == [56, 56]
        await settle()
        assert handled.state() is HandlerState.BACKING_OFF
        assert set(handled.statuses) == {FAILED}
        assert handled.last_report is not None
        assert handled.last_report.detail == "making: no such file"
        factory.error = None
        if is_reset:
            await participant.reset(ORDERS_0)
            await settle()
            assert handled.statuses[-1] is READY

        assert await stop_code(network) == 0
        await settle()
        assert handled.calls_of() == ["delete"]
        assert handled.statuses[-1] is READY
        assert handled.state() is None
        assert await network.lead_and_follow(1, NEXT) == [0]
        assert len(handled.handlers) == 2


async def test_replica_begins_after_a_deletion_whose_handler_could_not_be_made(
    network: Network, handled: Handled
) -> None:
    """Also after its failures are forgotten."""
    async with handled.running_participant():
        factory = Factory(handled, NotReady(300, "not mounted"))
        assert await stop_code(network) == 56
        await network.clock.advance(300)
        assert handled.statuses == [ReplicaStatus.NOT_READY, READY]
        factory.error = None
        assert await network.lead_and_follow(1, LED) == [0]
        await settle()

        assert handled.calls_of()[:2] == ["delete", "prepare 1.7"]
        assert len(handled.handlers) == 2


async def test_handler_that_could_not_be_made_is_not_made_when_the_registration_ends(
    network: Network, handled: Handled
) -> None:
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        for _ in range(2):
            tasks.start_soon(network.send, 1, DELETION)
            await network.clock.advance(60)
        factory = Factory(handled, OSError("no such file"))
        deleted.set()
        await settle()
        await participant.restart()
        await network.clock.advance(10_000)

        assert factory.count == 1
        assert handled.state() is None


@pytest.mark.parametrize("error", [OSError("no such file"), NotReady(0, "not mounted")])
async def test_handler_for_a_confirmed_deletion_is_made_after_pauses(
    network: Network, handled: Handled, error: Exception
) -> None:
    """It is the deletion of the next replica, which was confirmed while that of the earlier one was in progress."""
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        for _ in range(2):
            tasks.start_soon(network.send, 1, DELETION)
            await network.clock.advance(60)
        factory = Factory(handled, error)
        deleted.set()
        await network.clock.advance(940)
        before = factory.count
        factory.error = None
        await network.clock.advance(1_000)

        assert 1 <= before <= 10
        assert factory.count == before + 1
        assert handled.calls_of()[-2:] == ["delete", "delete"]
        assert handled.state() is None
