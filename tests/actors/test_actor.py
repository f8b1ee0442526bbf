"""Actor with one task and one inbox: order, replies, errors and bounds."""

import asyncio
import gc
import weakref
from typing import Any

import anyio
import pytest

from kactl.actors.actor import Actor, ActorStopped, InboxFull
from kactl.model.errors import BadRequest
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio


class Echo(Actor[str]):
    """Returns the message, fails at "fail" and waits at "wait"."""

    def __init__(self, *, limit: int = 100) -> None:
        super().__init__("echo", limit=limit)
        self.heard: list[str] = []
        self.gate: asyncio.Event = asyncio.Event()

    async def receive(self, message: str) -> Any:
        self.heard.append(message)
        if message == "fail":
            raise BadRequest("message", "fail was asked for")
        if message == "wait":
            await self.gate.wait()
        return message.upper()


async def test_messages_are_handled_one_at_a_time_in_order() -> None:
    echo = Echo()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo.run)
        for word in ("a", "wait", "b"):
            echo.ref.tell(word)
        await settle()

        assert echo.heard == ["a", "wait"]

        echo.gate.set()
        assert await echo.ref.ask("c") == "C"
        assert echo.heard == ["a", "wait", "b", "c"]
        tasks.cancel_scope.cancel()


async def test_an_error_is_freed_by_its_reference_count() -> None:
    """A cycle of exception, traceback and future would make the garbage collection of many errors long."""
    echo = Echo()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo.run)
        gc.disable()
        try:
            try:
                await echo.ref.ask("fail")
            except BadRequest as error:
                reference = weakref.ref(error)
            await settle()

            assert reference() is None
        finally:
            gc.enable()
        tasks.cancel_scope.cancel()


async def test_error_of_a_request_is_raised_in_its_caller_only() -> None:
    echo = Echo()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo.run)

        with pytest.raises(BadRequest, match="fail was asked for"):
            await echo.ref.ask("fail")

        assert await echo.ref.ask("after") == "AFTER"
        tasks.cancel_scope.cancel()


async def test_error_of_a_message_without_reply_ends_a_run_that_can_be_repeated() -> None:
    echo = Echo()
    echo.ref.tell("fail")
    echo.ref.tell("next")

    with pytest.raises(BadRequest):
        await echo.run()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo.run)
        await settle()

        assert echo.heard == ["fail", "next"]
        tasks.cancel_scope.cancel()


async def test_full_inbox_rejects_and_counts_messages() -> None:
    echo = Echo(limit=2)
    echo.ref.tell("a")
    echo.ref.tell("b")

    with pytest.raises(InboxFull, match="echo holds 2"):
        echo.ref.tell("c")

    assert len(echo.inbox) == 2
    assert echo.inbox.refused == 1


async def test_pending_requests_fail_when_the_actor_stops() -> None:
    echo = Echo()
    outcomes: list[str] = []

    async def ask(word: str) -> None:
        try:
            await echo.ref.ask(word)
        except ActorStopped:
            outcomes.append(word)

    async with anyio.create_task_group() as askers, anyio.create_task_group() as tasks:
        tasks.start_soon(echo.run)
        for word in ("wait", "later"):
            askers.start_soon(ask, word)
        await settle()
        tasks.cancel_scope.cancel()

    assert sorted(outcomes) == ["later", "wait"]
    with pytest.raises(ActorStopped):
        echo.ref.tell("too late")


async def test_cancelled_request_does_not_affect_the_actor() -> None:
    echo = Echo()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo.run)
        with anyio.move_on_after(0):
            await echo.ref.ask("wait")
        await settle()
        echo.gate.set()

        assert await echo.ref.ask("after") == "AFTER"
        tasks.cancel_scope.cancel()
