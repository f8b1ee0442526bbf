"""Handlers of held partitions: they lead after the release. Ends are reported when the calls have ended."""

import anyio
import pytest

from kactl.decide.messages.control import StateSent
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import MARGIN_MS, SESSION_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import CONTROLLER, ID_A, ORDERS_0, StateRow, lease_release

from .conftest import Handled

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7, topic_id=ID_A)
HELD = LED.but(leader_epoch=8, hold=True)


async def test_held_handler_prepares_and_leads_after_the_release(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        assert await network.lead_and_follow(1, HELD) == [0]
        await settle()
        assert handled.calls_of() == ["prepare 1.8"]
        assert handled.state() is HandlerState.WAITING
        assert handled.waiting == ["orders-0 at 8"]
        assert participant.leadership(ORDERS_0) is None

        await network.send(1, lease_release(ORDERS_0, leader_epoch=8))
        await settle()
        assert handled.calls_of() == ["prepare 1.8", "lead 1.8"]
        assert participant.leadership(ORDERS_0) is handled.leaders[0]


async def test_released_leadership_resumes_without_another_release(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, HELD)
        await network.send(1, lease_release(ORDERS_0, leader_epoch=8))
        await settle()
        handled.participant.pause()
        await network.clock.advance(0.95 * SESSION_MS)  # past the lease, and not past the session
        handled.participant.resume()
        await network.clock.advance(100)

        assert handled.calls_of() == ["prepare 1.8", "lead 1.8", "lost 1.8", "prepare 1.8", "lead 1.8"]


@pytest.mark.parametrize(("epoch", "token"), [(8, "1.7"), (9, "1.9")])
async def test_order_to_lead_on_is_not_held(network: Network, handled: Handled, epoch: int, token: str) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        await network.lead_and_follow(1, HELD.but(leader_epoch=epoch))
        await settle()
        assert handled.calls_of()[-1] == f"lead {token}"
        assert handled.leaders[-1].is_valid


async def _end_slowly(network: Network, delay_ms: float) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await network.clock.sleep_ms(delay_ms)


@pytest.mark.parametrize(("delay_ms", "expected_ms"), [(MARGIN_MS / 2, MARGIN_MS / 2), (3 * MARGIN_MS, MARGIN_MS)])
async def test_end_is_reported_after_the_calls_or_the_margin(
    network: Network, handled: Handled, delay_ms: float, expected_ms: float
) -> None:
    handled.scripts[ORDERS_0, "lead"] = lambda leader: _end_slowly(network, delay_ms)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        began_ms = network.clock.monotonic_ms()
        tasks.start_soon(network.lead_and_follow, 1, HELD.but(leader=2))
        await network.clock.advance(4 * MARGIN_MS)

        assert not handled.leaders[0].is_valid
        assert handled.ended[0][0] - began_ms == pytest.approx(expected_ms)
        # A call that is stuck refuses its order, whose leadership would have been the next one.
        assert handled.ended[0][1] == ("orders-0 at 8" if delay_ms < MARGIN_MS else handled.ended[0][1])


async def test_failed_leader_reports_its_end(network: Network, handled: Handled) -> None:
    async def fail(leader: object) -> None:
        raise OSError("disk full")

    handled.scripts[ORDERS_0, "lead"] = fail
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        assert [text for _, text in handled.ended] == ["orders-0 at 8"]
        assert handled.waiting == []


async def test_complete_state_is_reported_after_the_last_end(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "lead"] = lambda leader: _end_slowly(network, MARGIN_MS / 2)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.send, 1, StateSent(CONTROLLER, 2, -1))
        await network.clock.advance(MARGIN_MS / 2 - 1)
        assert not handled.leaders[0].is_valid
        assert handled.complete == []
        await network.clock.advance(100)
        assert handled.complete == [2]
