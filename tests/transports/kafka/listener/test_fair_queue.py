"""Turns of connections at work on the event loop."""

import asyncio

import anyio
import pytest

from kactl.transports.kafka.listener.fair_queue import FairQueues, Turns

from .listener_stub import until

pytestmark = pytest.mark.anyio


class Time:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_connection_with_many_earlier_turns_is_not_behind_new_ones_for_ever() -> None:
    """Two new connections send requests without end, so that one of them always waits."""
    clock, queues, hostile = Time(), FairQueues(["clients"]), 0
    old = Turns(clock)
    for _ in range(5_000):
        async with queues.take("clients", old):
            pass
    clock.now_s += 60

    async def flood() -> None:
        nonlocal hostile
        turns = Turns(clock)
        while True:
            async with queues.take("clients", turns):
                hostile += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(flood)
        await until(lambda: hostile >= 10)
        before = hostile
        with anyio.fail_after(60):
            async with queues.take("clients", old):
                tasks.cancel_scope.cancel()

    assert hostile - before <= 3


async def test_connection_with_the_fewest_recent_turns_is_next() -> None:
    clock, queues, order = Time(), FairQueues(["clients"]), list[str]()
    busy, idle = Turns(clock), Turns(clock)
    for _ in range(10):
        async with queues.take("clients", busy):
            pass

    async def wait(name: str, turns: Turns) -> None:
        async with queues.take("clients", turns):
            order.append(name)

    async with anyio.create_task_group() as tasks, queues.take("clients", Turns(clock)):
        tasks.start_soon(wait, "busy", busy)
        await asyncio.sleep(0)
        tasks.start_soon(wait, "idle", idle)
        await asyncio.sleep(0)

    assert order == ["idle", "busy"]


async def test_turn_of_a_connection_that_has_left_goes_to_the_next() -> None:
    clock, queues, order = Time(), FairQueues(["clients"]), list[str]()

    async def wait(name: str) -> None:
        async with queues.take("clients", Turns(clock)):
            order.append(name)

    async with anyio.create_task_group() as tasks, queues.take("clients", Turns(clock)):
        gone = asyncio.create_task(wait("gone"))
        await asyncio.sleep(0)
        tasks.start_soon(wait, "next")
        await asyncio.sleep(0)
        gone.cancel()

    assert order == ["next"]
