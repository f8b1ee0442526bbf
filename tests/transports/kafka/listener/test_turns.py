"""Turns of connections at work on the event loop."""

import asyncio

import anyio
import pytest

from kactl.transports.kafka.listener.field_types import Steps
from kactl.transports.kafka.listener.turns import Turns, stepwise

pytestmark = pytest.mark.anyio


def three_steps() -> Steps[str]:
    yield
    yield
    return "done"


async def test_work_of_one_kind_is_done_one_connection_after_another() -> None:
    turns, order = Turns(["clients"]), list[str]()

    async def work(name: str) -> None:
        async with turns.take("clients"):
            order.append(f"{name} begins")
            assert await stepwise(three_steps()) == "done"
            order.append(f"{name} ends")

    async with anyio.create_task_group() as tasks:
        for name in ("first", "second"):
            tasks.start_soon(work, name)

    assert order == ["first begins", "first ends", "second begins", "second ends"]


async def test_broker_does_not_wait_for_clients() -> None:
    turns = Turns(["brokers", "clients"])

    async with turns.take("clients"):
        with anyio.fail_after(60):
            async with turns.take("brokers"):
                pass


async def test_turn_of_a_connection_that_has_left_goes_to_the_next() -> None:
    turns, order = Turns(["clients"]), list[str]()

    async def wait(name: str) -> None:
        async with turns.take("clients"):
            order.append(name)

    async with anyio.create_task_group() as tasks, turns.take("clients"):
        gone = asyncio.create_task(wait("gone"))
        await asyncio.sleep(0)
        tasks.start_soon(wait, "next")
        await asyncio.sleep(0)
        gone.cancel()

    assert order == ["next"]
