"""Large frames are written completely, in pieces over several event-loop turns."""

import asyncio
import dataclasses

import pytest

from kactl.transports.kafka.write_pacing import PIECE_BYTES, TURN_BYTES, Buffer, WritePacer

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Wire:
    """Writer that records the bytes written, with the event-loop turn."""

    turn: int = 0
    written: dict[int, int] = dataclasses.field(default_factory=dict)

    async def count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1


@dataclasses.dataclass
class Line:
    wire: Wire
    takes: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    data: bytearray = dataclasses.field(default_factory=bytearray)

    def write(self, data: Buffer) -> None:
        self.data += data
        self.wire.written[self.wire.turn] = self.wire.written.get(self.wire.turn, 0) + len(data)

    async def drain(self) -> None:
        await self.takes.wait()


def frame(*sizes: int) -> tuple[list[Buffer], int]:
    """Return buffers of these sizes; bytes one piece apart differ."""
    cycle = bytes(range(251))
    buffers: list[Buffer] = [memoryview((cycle * (size // len(cycle) + 1))[:size]) for size in sizes]
    return buffers, sum(sizes)


async def test_frames_for_many_brokers_take_many_turns_and_arrive_whole() -> None:
    wire, pacer = Wire(), WritePacer()
    counting = asyncio.create_task(wire.count())
    lines = [Line(wire) for _ in range(6)]
    buffers, size = frame(31, 3 * PIECE_BYTES + 17, 5)
    for line in lines:
        line.takes.set()

    await asyncio.gather(*(pacer.write(line, buffers, size) for line in lines))
    counting.cancel()

    assert [bytes(line.data) for line in lines] == [b"".join(buffers)] * 6
    # The loop's turn and the test's count of it may begin at different tasks.
    assert max(wire.written.values()) <= 2 * (TURN_BYTES + PIECE_BYTES)
    assert len(wire.written) >= 6 * size // (2 * (TURN_BYTES + PIECE_BYTES))


async def test_blocked_socket_does_not_block_the_others() -> None:
    wire, pacer = Wire(), WritePacer()
    stuck, quick = Line(wire), Line(wire)
    buffers, size = frame(8 * TURN_BYTES)
    quick.takes.set()

    waiting = asyncio.create_task(pacer.write(stuck, buffers, size))
    await asyncio.wait_for(pacer.write(quick, buffers, size), timeout=60)

    assert len(quick.data) == size
    assert len(stuck.data) == PIECE_BYTES, "one piece: the rest waits for the socket"
    waiting.cancel()


@pytest.mark.parametrize("first", ["large", "small"])
async def test_writers_take_turns_in_any_start_order(first: str) -> None:
    """A small frame is written after one piece of each other connection, not after all of their frames."""
    wire, pacer = Wire(), WritePacer()
    large, small = Line(wire), Line(wire)
    large.takes.set()
    small.takes.set()
    buffers, size = frame(64 * TURN_BYTES // 8)
    few, few_bytes = frame(100)

    writes = {"large": lambda: pacer.write(large, buffers, size), "small": lambda: pacer.write(small, few, few_bytes)}
    tasks = {name: asyncio.create_task(writes[name]()) for name in sorted(writes, key=lambda name: name != first)}
    await tasks["small"]

    assert bytes(small.data) == b"".join(few)
    assert len(large.data) <= 2 * (TURN_BYTES + PIECE_BYTES)
    await tasks["large"]
    assert len(large.data) == size


async def test_cancelled_writer_releases_its_place() -> None:
    wire, pacer = Wire(), WritePacer()
    lines = [Line(wire) for _ in range(3)]
    for line in lines:
        line.takes.set()
    buffers, size = frame(2 * TURN_BYTES)

    tasks = [asyncio.create_task(pacer.write(line, buffers, size)) for line in lines]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert (len(lines[0].data), len(lines[2].data)) == (size, size)
    assert len(lines[1].data) < size


async def test_small_frame_is_written_at_once() -> None:
    wire, pacer = Wire(), WritePacer()
    line = Line(wire)
    buffers, size = frame(10, 20)
    line.takes.set()

    await pacer.write(line, buffers, size)

    assert bytes(line.data) == b"".join(buffers)
    assert list(wire.written) == [0]
