"""Replicas with handlers whose directory fails: they are stopped, and never ready again."""

import anyio
import pytest

from tests.participant.conftest import Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, CONTROLLER, ORDERS_0, StateRow

from .conftest import Handled
from .scripts import FAILED, LED, READY, backing_off, fail_for_good, raising, waiting_for

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
        await fail_for_good(network, handled)
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
