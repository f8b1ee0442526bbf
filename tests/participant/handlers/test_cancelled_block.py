"""A participant whose block is cancelled: its application ends in order, and calls do not overlap."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from kactl.model import TopicPartition
from kactl.participant import Listener
from tests.participant.conftest import MARGIN_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import ID_A, ORDERS_0, StateRow

from .conftest import Handled

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7, topic_id=ID_A, isr=(1, 3))


@asynccontextmanager
async def _program(
    participant: AbstractAsyncContextManager[Any],
) -> AsyncIterator[tuple[anyio.CancelScope, "asyncio.Task[None]"]]:
    """Run a participant in a scope and a task of their own."""
    scope, runs = anyio.CancelScope(), anyio.Event()

    async def run() -> None:
        with scope:
            async with participant:
                runs.set()
                await anyio.sleep_forever()

    task = asyncio.get_running_loop().create_task(run())
    await runs.wait()
    try:
        yield scope, task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _cancel_scope(scope: anyio.CancelScope, task: "asyncio.Task[None]") -> None:
    scope.cancel()


def _cancel_task(scope: anyio.CancelScope, task: "asyncio.Task[None]") -> None:
    task.cancel()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("cancel", [_cancel_scope, _cancel_task])
async def test_stop_begins_after_lead_has_ended_and_is_not_cancelled(
    network: Network,
    handled: Handled,
    cancel: Callable[[anyio.CancelScope, "asyncio.Task[None]"], None],
    times: int,
) -> None:
    ended: list[str] = []

    async def lead(leader: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await network.clock.sleep_ms(MARGIN_MS / 2)
            ended.append("lead")

    async def stop(argument: object) -> None:
        await network.clock.sleep_ms(2 * MARGIN_MS)
        ended.append("stop")

    handled.scripts |= {(ORDERS_0, "lead"): lead, (ORDERS_0, "stop"): stop}
    async with _program(handled.running_participant()) as (scope, task):
        await network.lead_and_follow(1, LED)
        await settle()
        for _ in range(times):
            cancel(scope, task)
            await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "lost 1.7"]
        await network.clock.advance(MARGIN_MS / 2)
        assert handled.calls_of()[2:] == ["lost 1.7", "stop"]
        await network.clock.advance(2 * MARGIN_MS)
        assert ended == ["lead", "stop"]
        assert task.done()


async def test_stopped_of_a_listener_is_not_cancelled(network: Network) -> None:
    calls: list[str] = []

    class Slow(Listener):
        async def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
            calls.append("stops")
            await network.clock.sleep_ms(MARGIN_MS)
            calls.append("has stopped")

    async with _program(network.participant(listener=Slow())) as (scope, task):
        await network.lead_and_follow(1, LED)
        scope.cancel()
        await settle()
        assert calls == ["stops"]
        await network.clock.advance(MARGIN_MS)

        assert calls == ["stops", "has stopped"]
        assert task.done()
