"""Chunks of a change: overlap, order, and errors."""

import asyncio
from collections.abc import Callable

import pytest

from kactl.actors.machines.machine import (
    HIGH_RATE_FACTOR,
    IN_FLIGHT,
    PORTION_CHUNKS,
    PORTION_MS,
    SendBuffer,
    chunks,
    never,
)
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


class RecordedWork:
    """Records when each chunk is begun and finished; a chunk is written when its gate opens."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gates: dict[int, asyncio.Future[None]] = {}

    async def begin(self, part: slice) -> tuple[int, int]:
        self.log.append(f"begin {part.start}-{part.stop}")
        gate = self.gates[part.start] = asyncio.get_running_loop().create_future()
        await gate
        return part.start, part.stop

    async def run(self, count: int, size: int, *, stop: Callable[[], bool] = never, high_rate: bool = False) -> int:
        """Returns the number of rows that are finished."""
        done = 0
        async with chunks(count, size, self.begin, stop=stop, high_rate=high_rate) as written:
            async for start, done in written:  # noqa: B007
                self.log.append(f"finish {start}")
        return done

    async def write(self, start: int, error: Exception | None = None) -> None:
        if error is None:
            self.gates[start].set_result(None)
        else:
            self.gates[start].set_exception(error)
        await settle()


async def test_one_chunk_is_written_while_the_one_before_is_finished() -> None:
    work = RecordedWork()
    task = asyncio.ensure_future(work.run(6, 2))
    await settle()
    assert work.log == ["begin 0-2", "begin 2-4"]
    assert IN_FLIGHT == 2

    await work.write(2)
    assert work.log == ["begin 0-2", "begin 2-4"]  # written first, but finished in order
    await work.write(0)
    assert work.log[2:] == ["finish 0", "begin 4-6", "finish 2"]
    await work.write(4)

    assert work.log[5:] == ["finish 4"]
    assert await task == 6


async def test_a_change_of_one_chunk_is_made_as_a_whole() -> None:
    work = RecordedWork()
    task = asyncio.ensure_future(work.run(2, 2, stop=lambda: True))
    await settle()
    await work.write(0)

    assert await task == 2
    assert work.log == ["begin 0-2", "finish 0"]


@pytest.mark.parametrize(
    ("count", "size", "begun"),
    [
        (11, 8, ["begin 0-11"]),
        (13, 8, ["begin 0-7", "begin 7-13"]),
        (25, 8, ["begin 0-9", "begin 9-18", "begin 18-25"]),
    ],
)
async def test_chunks_have_equal_sizes(count: int, size: int, begun: list[str]) -> None:
    work = RecordedWork()
    task = asyncio.ensure_future(work.run(count, size))
    await settle()
    while work.gates:
        await work.write(min(work.gates))
        work.gates = {start: gate for start, gate in work.gates.items() if not gate.done()}

    assert await task == count
    assert [line for line in work.log if line.startswith("begin")] == begun


async def test_chunks_are_small_and_sequential_at_a_high_rate() -> None:
    work = RecordedWork()
    task = asyncio.ensure_future(work.run(4, 2 * HIGH_RATE_FACTOR, high_rate=True))
    await settle()
    assert work.log == ["begin 0-2"]
    await work.write(0)
    assert work.log[1:] == ["finish 0", "begin 2-4"]
    await work.write(2)

    assert await task == 4


async def test_no_chunk_is_begun_after_stop() -> None:
    work, waits = RecordedWork(), False
    task = asyncio.ensure_future(work.run(5, 1, stop=lambda: waits))
    await settle()
    waits = True
    await work.write(0)
    await work.write(1)

    assert await task == 2
    assert work.log == ["begin 0-1", "begin 1-2", "finish 0", "finish 1"]


async def test_at_least_one_chunk_is_done_before_stop() -> None:
    work = RecordedWork()
    task = asyncio.ensure_future(work.run(3, 1, stop=lambda: True))
    await settle()
    await work.write(0)

    assert await task == 1


@pytest.mark.parametrize("fails", [0, 1])
async def test_error_waits_for_chunks_in_flight(fails: int) -> None:
    work = RecordedWork()
    task = asyncio.ensure_future(work.run(5, 1))
    await settle()
    if fails:
        await work.write(0)
    await work.write(fails, ValueError("the store"))
    assert not task.done()  # the other one is still at the store
    await work.write(fails + 1)

    with pytest.raises(ValueError, match="the store"):
        await task
    assert [line for line in work.log if line.startswith("finish")] == ["finish 0"][:fails]


async def test_cancellation_cancels_chunks_in_flight() -> None:
    work = RecordedWork()
    task = asyncio.ensure_future(work.run(5, 1))
    await settle()
    task.cancel()
    await settle()

    assert task.cancelled()
    assert all(gate.cancelled() for gate in work.gates.values())


async def test_portion_is_full_after_some_chunks_or_some_time() -> None:
    clock = ManualClock()
    portions = SendBuffer(clock)

    assert [portions.is_full() for _ in range(2 * PORTION_CHUNKS)] == 2 * ([False] * (PORTION_CHUNKS - 1) + [True])

    await clock.advance(PORTION_MS)
    assert portions.is_full()
    assert not portions.is_full()
