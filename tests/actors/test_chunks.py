"""A change in chunks: what overlaps, in which order it ends, and what becomes of it when something goes wrong."""

import asyncio

import pytest

from kactl.actors.chunks import BRISK, IN_FLIGHT, PORTION_CHUNKS, PORTION_MS, SendBuffer, in_chunks
from tests.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


class Work:
    """Notes when each chunk is begun and finished; a chunk is written when its gate is opened."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gates: dict[int, asyncio.Future[None]] = {}
        self.useful = True

    async def begin(self, part: slice) -> int:
        self.log.append(f"begin {part.start}-{part.stop}")
        gate = self.gates[part.start] = asyncio.get_running_loop().create_future()
        await gate
        return int(part.start)

    async def finish(self, start: int) -> bool:
        self.log.append(f"finish {start}")
        return self.useful

    async def write(self, start: int, error: Exception | None = None) -> None:
        if error is None:
            self.gates[start].set_result(None)
        else:
            self.gates[start].set_exception(error)
        await settle()


async def test_the_next_chunk_is_at_the_store_while_one_is_finished_and_no_other() -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(6, 2, begin=work.begin, finish=work.finish))
    await settle()
    assert work.log == ["begin 0-2", "begin 2-4"]
    assert IN_FLIGHT == 2

    await work.write(2)
    assert work.log == ["begin 0-2", "begin 2-4"]  # written out of order, and not finished before its turn
    await work.write(0)
    assert work.log[2:] == ["finish 0", "begin 4-6", "finish 2"]
    await work.write(4)

    assert work.log[5:] == ["finish 4"]
    assert await task == 6


async def test_what_fits_one_chunk_is_done_as_a_whole() -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(2, 2, begin=work.begin, finish=work.finish, pause=lambda: True))
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
async def test_there_is_no_small_rest(count: int, size: int, begun: list[str]) -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(count, size, begin=work.begin, finish=work.finish))
    await settle()
    while work.gates:
        await work.write(min(work.gates))
        work.gates = {start: gate for start, gate in work.gates.items() if not gate.done()}

    assert await task == count
    assert [line for line in work.log if line.startswith("begin")] == begun


async def test_brisk_chunks_are_small_and_one_at_a_time() -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(4, 2 * BRISK, begin=work.begin, finish=work.finish, high_rate=True))
    await settle()
    assert work.log == ["begin 0-2"]
    await work.write(0)
    assert work.log[1:] == ["finish 0", "begin 2-4"]
    await work.write(2)

    assert await task == 4


async def test_a_pause_leaves_what_was_not_begun() -> None:
    work, waits = Work(), False
    task = asyncio.ensure_future(in_chunks(5, 1, begin=work.begin, finish=work.finish, pause=lambda: waits))
    await settle()
    waits = True
    await work.write(0)
    await work.write(1)

    assert await task == 2
    assert work.log == ["begin 0-1", "begin 1-2", "finish 0", "finish 1"]


async def test_one_chunk_at_least_is_done_however_much_waits() -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(3, 1, begin=work.begin, finish=work.finish, pause=lambda: True))
    await settle()
    await work.write(0)

    assert await task == 1


async def test_nothing_is_begun_any_more_once_there_is_no_use_in_it() -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(5, 1, begin=work.begin, finish=work.finish))
    await settle()
    work.useful = False
    await work.write(0)
    await work.write(1)

    assert await task == 2


@pytest.mark.parametrize("fails", [0, 1])
async def test_what_was_begun_comes_to_its_end_before_an_error_is_raised_and_is_not_finished(fails: int) -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(5, 1, begin=work.begin, finish=work.finish))
    await settle()
    if fails:
        await work.write(0)
    await work.write(fails, ValueError("the store"))
    assert not task.done()  # the other one is still at the store
    await work.write(fails + 1)

    with pytest.raises(ValueError, match="the store"):
        await task
    assert [line for line in work.log if line.startswith("finish")] == ["finish 0"][:fails]


async def test_cancelling_ends_what_is_on_its_way() -> None:
    work = Work()
    task = asyncio.ensure_future(in_chunks(5, 1, begin=work.begin, finish=work.finish))
    await settle()
    task.cancel()
    await settle()

    assert task.cancelled()
    assert all(gate.cancelled() for gate in work.gates.values())


async def test_a_portion_is_some_chunks_or_what_was_held_back_for_long() -> None:
    clock = ManualClock()
    portions = SendBuffer(clock)

    assert [portions.is_full() for _ in range(2 * PORTION_CHUNKS)] == 2 * ([False] * (PORTION_CHUNKS - 1) + [True])

    await clock.advance(PORTION_MS)
    assert portions.is_full()
    assert not portions.is_full()
