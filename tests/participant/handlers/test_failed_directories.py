"""Replicas with handlers whose directory fails: they are stopped, and never ready again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from kactl.decide.messages.control import StopReplicaResponse
from kactl.model import EPOCH_DURING_DELETE, ZERO_ID
from kactl.participant import Participant
from kactl.participant.hosted_replicas import Role
from tests.participant.conftest import Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, CONTROLLER, ID_A, ID_B, ORDERS_0, StateRow, errors, stop_replica

from .conftest import Handled
from .scripts import (
    FAILED,
    LED,
    NEXT,
    READY,
    backing_off,
    ignoring_cancellation,
    raising,
    waiting_for,
)

pytestmark = pytest.mark.anyio


async def test_replica_with_a_failed_directory_is_not_ready_after_a_back_off(
    network: Network, handled: Handled
) -> None:
    async with backing_off(network, handled, OSError("disk full")) as participant:
        await participant.fail_directory([ORDERS_0])
        await network.clock.advance(5_000)

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop"]
        assert handled.statuses == [FAILED]


async def test_replica_that_has_never_led_is_not_ready_with_a_failed_directory(
    network: Network, handled: Handled
) -> None:
    """Its first order has failed, so the participant knows no leader epoch of it."""
    handled.scripts[ORDERS_0, "prepare"] = raising(OSError("disk full"))
    async with handled.running_participant() as participant:
        assert await network.lead_and_follow(1, LED) == [56]
        await participant.fail_directory([ORDERS_0])
        await network.clock.advance(5_000)

        assert handled.statuses == [FAILED]


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
        assert handled.statuses == []


async def test_reset_does_not_make_a_replica_with_a_failed_directory_ready(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
        await network.lead_and_follow(1, LED)
        await settle()
        handled.reports.clear()
        await participant.fail_directory([ORDERS_0])
        await participant.reset(ORDERS_0)
        await settle()

        assert handled.statuses == []


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


# -- while the replica stops, or is deleted ----------------------------------------------------------------------------


async def stop_code(network: Network, codes: list[int], *, delete: bool = False, topic_id: bytes = ZERO_ID) -> None:
    """Send a StopReplica of orders-0, and append the error code of its row."""
    epoch = EPOCH_DURING_DELETE if delete else 8
    response = await network.send(1, stop_replica(ORDERS_0, leader_epoch=epoch, delete=delete, topic_id=topic_id))
    assert isinstance(response, StopReplicaResponse)
    codes.append(errors(response.partitions)[ORDERS_0])


@asynccontextmanager
async def failing_while_stopping(
    network: Network,
    handled: Handled,
    codes: list[int],
    *,
    delete: bool,
    after_ms: float = 20,
    topic_id: bytes = ZERO_ID,
) -> AsyncIterator[Participant]:
    """Have orders-0 led and then stopped, and its directory fail some time after the request."""
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED.but(topic_id=topic_id))
        await settle()
        tasks.start_soon(lambda: stop_code(network, codes, delete=delete, topic_id=topic_id))
        await network.clock.advance(after_ms)
        await participant.fail_directory([ORDERS_0])
        yield participant


async def test_replica_whose_directory_fails_while_it_stops_is_rejected(network: Network, handled: Handled) -> None:
    """As in Kafka. The call of `stop` is not cancelled for another one."""
    codes: list[int] = []
    stopped = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(stopped)
    async with failing_while_stopping(network, handled, codes, delete=False) as participant:
        stopped.set()
        await settle()

        assert codes == [56]
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop"]
        assert [end for _, end in handled.ended] == ["orders-0 at 9"]
        assert handled.statuses == []
        view = participant.hosted(ORDERS_0)
        assert view is not None
        assert view.failed
        assert await network.lead_and_follow(1, LED.but(leader_epoch=9)) == [56]


@pytest.mark.parametrize("waits", [False, True], ids=["in progress", "waits for lead to end"])
async def test_deletion_that_succeeds_although_the_directory_fails_is_confirmed(
    network: Network, handled: Handled, waits: bool
) -> None:
    """The data is deleted. The next replica of the partition cannot be served from a directory that has failed."""
    codes: list[int] = []
    ended = anyio.Event()
    handled.scripts[ORDERS_0, "lead" if waits else "stop"] = ignoring_cancellation(ended)
    async with failing_while_stopping(network, handled, codes, delete=True) as participant:
        ended.set()
        await settle()

        assert codes == [0]
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete"]
        assert handled.statuses == []
        assert handled.state() is None
        view = participant.hosted(ORDERS_0)
        assert view is not None
        assert (view.role, view.failed) == (Role.NONE, True)
        assert await network.lead_and_follow(1, NEXT) == [56]
        assert len(handled.handlers) == 1


async def test_deletion_that_fails_with_the_directory_is_rejected(network: Network, handled: Handled) -> None:
    codes: list[int] = []
    failed = anyio.Event()

    async def stop(_: object) -> None:
        await failed.wait()
        raise OSError("I/O error")

    handled.scripts[ORDERS_0, "stop"] = stop
    async with failing_while_stopping(network, handled, codes, delete=True) as participant:
        failed.set()
        await network.clock.advance(5_000)
        await stop_code(network, codes, delete=True)

        assert codes == [56, 56]
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete"]
        assert handled.statuses == [FAILED]
        assert participant.hosts == [ORDERS_0]
        handled.scripts.clear()


async def test_directory_that_fails_during_a_confirmed_deletion_stays_failed(
    network: Network, handled: Handled
) -> None:
    codes: list[int] = []
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    async with failing_while_stopping(network, handled, codes, delete=True, after_ms=60):
        deleted.set()
        await settle()

        assert codes == [0]
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete"]
        assert handled.state() is None
        assert len(handled.handlers) == 1
        assert await network.lead_and_follow(1, NEXT) == [56]


@pytest.mark.parametrize("topic_id", [ZERO_ID, ID_A], ids=["without id", "with id"])
async def test_repeated_deletion_is_confirmed_although_the_directory_has_failed(
    network: Network, handled: Handled, topic_id: bytes
) -> None:
    """The response to the first request may be lost. Nothing is left to delete, also of the next topic of the name."""
    codes: list[int] = []
    deleted = anyio.Event()
    handled.scripts[ORDERS_0, "stop"] = waiting_for(deleted)
    async with failing_while_stopping(network, handled, codes, delete=True, topic_id=topic_id):
        deleted.set()
        await settle()
        await stop_code(network, codes, delete=True, topic_id=topic_id)
        assert await network.lead_and_follow(1, NEXT.but(topic_id=ID_B)) == [56]
        await stop_code(network, codes, delete=True, topic_id=ID_B)
        await stop_code(network, codes)

        assert codes == [0, 0, 0, 56]
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete"]
        assert await network.lead_and_follow(1, NEXT.but(topic_id=topic_id)) == [56]


async def test_repeated_deletion_is_confirmed_although_the_directory_failed_after_the_first(
    network: Network, handled: Handled
) -> None:
    codes: list[int] = []
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED.but(topic_id=ID_A))
        await stop_code(network, codes, delete=True, topic_id=ID_A)
        await participant.fail_directory([ORDERS_0])
        await stop_code(network, codes, delete=True, topic_id=ID_A)

        assert codes == [0, 0]


async def test_deletion_of_an_unknown_replica_in_a_failed_directory_is_rejected(
    network: Network, handled: Handled
) -> None:
    """Data of an earlier registration may exist."""
    codes: list[int] = []
    async with handled.running_participant() as participant:
        await participant.fail_directory([ORDERS_0])
        await stop_code(network, codes, delete=True, topic_id=ID_A)

        assert codes == [56]
        assert handled.calls_of() == []


# -- reports that wait -------------------------------------------------------------------------------------------------


async def test_report_that_waits_is_not_sent_after_the_directory_has_failed(network: Network, handled: Handled) -> None:
    """The replica was ready, and the controller could not be reached."""
    async with backing_off(network, handled, OSError("disk full")) as participant:
        network.hub.detach_controller(CONTROLLER, handled.receive)
        await network.clock.advance(1_100)
        await participant.fail_directory([ORDERS_0])
        network.hub.attach_controller(CONTROLLER, handled.receive)
        await network.clock.advance(1_000)

        assert handled.statuses == [FAILED]


async def test_report_of_another_replica_is_sent_after_a_directory_has_failed(
    network: Network, handled: Handled
) -> None:
    handled.scripts[BILLS_0, "lead"] = raising(OSError("disk full"))
    async with backing_off(network, handled, OSError("disk full")) as participant:
        await network.lead_and_follow(1, LED.but(name=BILLS_0))
        await settle()
        network.hub.detach_controller(CONTROLLER, handled.receive)
        await network.clock.advance(1_100)
        await participant.fail_directory([ORDERS_0])
        network.hub.attach_controller(CONTROLLER, handled.receive)
        await network.clock.advance(1_000)

        assert handled.reports == [(ORDERS_0, FAILED), (BILLS_0, FAILED), (BILLS_0, READY)]
