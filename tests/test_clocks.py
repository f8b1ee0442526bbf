"""The tests' own clock keeps its promises."""

import anyio
import anyio.lowlevel
import pytest

from kactl.clock import Clock
from tests.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


async def test_sleepers_wake_in_the_order_of_their_deadlines() -> None:
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, delay_ms: float, again_ms: float = 0) -> None:
        await clock.sleep_ms(delay_ms)
        woken.append((name, clock.monotonic_ms()))
        if again_ms:
            await sleep(name, again_ms)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep, "late", 30)
        tasks.start_soon(sleep, "early", 10, 15)
        await clock.advance(100)

    assert woken == [("early", 10), ("early", 25), ("late", 30)]
    assert clock.monotonic_ms() == 100


async def test_nobody_wakes_before_time_has_passed() -> None:
    clock: Clock = ManualClock(start_ms=5)
    assert isinstance(clock, ManualClock)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.sleep_ms, 10)
        await clock.advance(9)

        assert clock.sleepers == 1
        assert clock.now_ms() == 14

        tasks.cancel_scope.cancel()
    assert clock.sleepers == 0


async def test_settle_waits_for_chains_of_tasks() -> None:
    first, second, done = anyio.Event(), anyio.Event(), []

    async def relay() -> None:
        await first.wait()
        await anyio.lowlevel.checkpoint()
        second.set()

    async def last() -> None:
        await second.wait()
        done.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay)
        tasks.start_soon(last)
        first.set()
        await settle()

        assert done
