"""A participant that is entered again: nothing remains of the handlers of its earlier block, whose calls have ended."""

import anyio
import pytest

from kactl.decide.messages.control import StateSent
from kactl.model import EPOCH_DURING_DELETE
from kactl.participant import Participant, lives
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import MARGIN_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, CONTROLLER, ORDERS_0, StateRow, stop_replica, update_metadata

from .conftest import Handled
from .scripts import LED, ignoring_cancellation, waiting_for

pytestmark = pytest.mark.anyio

BILL = StateRow(BILLS_0, leader_epoch=7)


async def enter_again(network: Network, handled: Handled, participant: Participant) -> None:
    """Enter a participant once more, and assert that it leads orders-0 and bills-0, and has ended nothing else."""
    handled.scripts.clear()
    handled.calls.clear()
    async with participant:
        await network.send(1, update_metadata())
        assert await network.lead_and_follow(1, LED, BILL) == [0, 0]
        await network.send(1, StateSent(CONTROLLER, 1, -1))
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]
        assert handled.calls_of(BILLS_0) == ["prepare 1.7", "lead 1.7"]
        assert handled.complete[-1] == 1


async def test_handler_that_was_stuck_leads(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    handled.scripts[ORDERS_0, "lead"] = ignoring_cancellation(release)

    async def end() -> None:
        await settle()
        release.set()

    async with anyio.create_task_group() as tasks:
        async with handled.running_participant() as participant:
            await network.lead_and_follow(1, LED)
            await settle()
            tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2, leader_epoch=8))
            await network.clock.advance(MARGIN_MS)
            assert handled.state() is HandlerState.STUCK
            tasks.start_soon(end)
        assert release.is_set()

    await enter_again(network, handled, participant)


async def test_deletions_that_did_not_end_in_time_leave_nothing(
    network: Network, handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one waits for the end of the first one."""
    monkeypatch.setattr(lives, "STOP_S", -2 * MARGIN_MS / 1000)
    handled.scripts |= dict.fromkeys([(ORDERS_0, "stop"), (BILLS_0, "stop")], waiting_for(anyio.Event()))
    async with handled.running_participant(handlers_parallel=1) as participant:
        await network.lead_and_follow(1, LED, BILL)
        async with anyio.create_task_group() as tasks:
            deletion = stop_replica(ORDERS_0, BILLS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True)
            tasks.start_soon(network.send, 1, deletion)
            await network.clock.advance(100)

    await enter_again(network, handled, participant)
