"""Scripts for the calls of recording handlers, and orders that go with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from kactl.model import EPOCH_DURING_DELETE, ReplicaStatus
from kactl.participant import Participant
from tests.participant.conftest import Network
from tests.support.clocks import settle
from tests.support.control_requests import ORDERS_0, StateRow, stop_replica

from .conftest import Handled

LED = StateRow(ORDERS_0, leader_epoch=7)
# Of the next topic of the name.
NEXT = StateRow(ORDERS_0, leader_epoch=0, topic_id=b"2" * 16)
FAILED, READY = ReplicaStatus.FAILED, ReplicaStatus.READY


def raising(error: Exception) -> Any:
    """Returns a call that raises an error."""

    async def call(_: object) -> None:
        raise error

    return call


def waiting_for(event: anyio.Event) -> Any:
    """Returns a call that lasts until an event, or until it is cancelled."""

    async def call(_: object) -> None:
        await event.wait()

    return call


def ignoring_cancellation(release: anyio.Event) -> Any:
    """Returns a call that lasts until an event, although it is cancelled."""

    async def call(_: object) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    return call


@asynccontextmanager
async def backing_off(network: Network, handled: Handled, error: Exception) -> AsyncIterator[Participant]:
    """Run a participant whose handler of orders-0 has just failed in `lead`, under leader epoch 7."""
    handled.scripts[ORDERS_0, "lead"] = raising(error)
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        yield participant


async def delete_and_lead_next(network: Network, tasks: anyio.abc.TaskGroup, pause_ms: float) -> None:
    """Send the deletion of orders-0, and then an order to lead that of the next topic; wait after each."""
    tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
    await network.clock.advance(pause_ms)
    tasks.start_soon(network.lead_and_follow, 1, NEXT)
    await network.clock.advance(pause_ms)
