"""Each moment of an event counts for exactly one stage."""

import asyncio
import time
from collections.abc import Awaitable

import pytest

from bench.stages import Stages


class Clock:
    """Clock advanced by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def passes(self, ms: float) -> None:
        self.now += ms / 1000


class Work:
    """Code measured by a bench: an outer function that calls an inner one, and an awaited write."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def outer(self) -> None:
        self.clock.passes(3)
        self.inner()
        self.clock.passes(4)

    def inner(self) -> None:
        self.clock.passes(10)

    async def write(self, written: Awaitable[object]) -> None:
        self.clock.passes(1)
        await written


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def work(clock: Clock) -> Work:
    return Work(clock)


def watched(work: Work) -> Stages:
    stages = Stages()
    stages.wrap(work, "find", "outer")
    stages.wrap(work, "elect", "inner")
    stages.wrap(work, "commit", "write")
    return stages


def test_inner_stage_does_not_count_for_the_outer_one(work: Work) -> None:
    stages = watched(work)

    work.outer()

    assert stages.ms == pytest.approx({"find": 7, "elect": 10})


def test_running_stage_does_not_count_for_an_awaited_one(clock: Clock, work: Work) -> None:
    stages = watched(work)

    async def run() -> None:
        written = asyncio.get_running_loop().create_future()
        writes = [asyncio.create_task(work.write(written)) for _ in range(2)]
        await asyncio.sleep(0)
        work.inner()
        clock.passes(5)  # both writes wait for the store
        written.set_result(None)
        await asyncio.gather(*writes)
        clock.passes(20)  # counts for no stage

    asyncio.run(run())

    assert stages.ms == pytest.approx({"commit": 1 + 1 + 5, "elect": 10})


def test_reset_discards_earlier_times(clock: Clock, work: Work) -> None:
    stages = watched(work)
    work.outer()

    stages.reset()
    clock.passes(50)
    work.inner()

    assert stages.ms == pytest.approx({"elect": 10})
