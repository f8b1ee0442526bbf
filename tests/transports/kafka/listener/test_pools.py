"""Memory pools for requests: waiters, and those that give up."""

import asyncio

import pytest

from kactl.transports.kafka.listener.pools import Pool

pytestmark = pytest.mark.anyio


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_waiter_that_gives_up_does_not_keep_those_behind_it_waiting() -> None:
    pool = Pool(100, 100, "clients")
    assert pool.try_take("a", 90)
    large = asyncio.create_task(pool.take("a", 80, timeout_s=60))
    await asyncio.sleep(0)
    small = asyncio.create_task(pool.take("a", 30, timeout_s=60))
    await asyncio.sleep(0)
    pool.give("a", 20)
    await turns()
    assert not small.done()  # the one before it is served first

    large.cancel()
    await turns()

    assert small.done()
    assert pool.held == 100


async def test_memory_for_a_waiter_that_is_cancelled_in_the_same_moment_is_returned() -> None:
    pool = Pool(100, 100, "clients")
    assert pool.try_take("a", 60)
    waiter = asyncio.create_task(pool.take("a", 80, timeout_s=60))
    await asyncio.sleep(0)
    pool.give("a", 60)
    waiter.cancel()
    await turns()

    assert waiter.cancelled()
    assert pool.held == 0
