"""Chunks of a large move: while one is at the store, the next is planned, and the one before is applied and sent.

    chunk 1   plan ─ write ─────── apply, send
    chunk 2          plan ─ write ─────────── apply, send
    chunk 3                        plan ─ write ───────────── apply, send

Brokers receive the first new leaders while later ones are being written, and the event loop is held for no longer than
one chunk takes. This is sound because the plan of a row depends on that row alone and no row is in two chunks: at most
two chunks are in flight, and the later one is neither applied nor sent before the earlier one.

A change that is nearer to one chunk than to two is made as a whole.
"""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from kactl.runtime.clock import Clock

T = TypeVar("T")


def never() -> bool:
    return False


# Send the requests of this many chunks at once, unless they take so long that brokers would wait for changes that are
# committed already. A request to each of thirty brokers costs as much as a thousand partitions.
PORTION_CHUNKS: Final = 4
PORTION_MS: Final = 50

# Chunk size of a change that is never divided, as in Kafka's controller.
WHOLE: Final = 1 << 62
# A chunk is smaller by this factor while small events arrive at a high rate.
HIGH_RATE_FACTOR: Final = 8
# Chunks that are being planned or written. A waiting one hides the latency of the other's way to the store and back.
IN_FLIGHT: Final = 2


@contextlib.asynccontextmanager
async def chunks(
    count: int,
    size: int,
    write: Callable[[slice], Coroutine[Any, Any, T]],
    *,
    stop: Callable[[], bool] = never,
    high_rate: bool = False,
) -> AsyncIterator[AsyncIterator[T]]:
    """Write `count` rows in chunks of about `size`, one chunk ahead of the caller.

        async with chunks(len(rows), size, write) as written:
            async for chunk in written:
                ...  # the next one is at the store meanwhile

    Args:
        write: plans and writes the rows of a slice. The next call may begin before the caller is done with this chunk.
        stop: called before each chunk but the first; if True, no further chunk is begun for now.
        high_rate: yield sooner, at a higher total cost: smaller chunks, one at a time.

    Yields:
        The results of `write`, in order; at least one.

    Raises:
        The exception that `write` raises. When an exception leaves the block, no chunk is in flight, and chunks that
        were not yielded are not applied. A cancellation cancels the chunks in flight.
    """
    size = max(1, size // HIGH_RATE_FACTOR) if high_rate else size
    # Chunks of equal size, near the requested one: a small rest would cost nearly as much as a full chunk.
    number = max(1, round(count / size))
    size = -(-count // number)
    in_flight: collections.deque[asyncio.Task[T]] = collections.deque()
    parts = (slice(begin, min(begin + size, count)) for begin in range(0, count, size))
    try:
        if number == 1:
            yield _one(write, slice(0, count))
        else:
            yield _ahead(parts, write, in_flight, stop=stop, limit=1 if high_rate else IN_FLIGHT)
    except asyncio.CancelledError:
        for task in in_flight:
            task.cancel()
        raise
    except BaseException:
        # Not cancelled: a write that has reached the store may be committed. One after the other: `asyncio.gather`
        # takes one step more in Python 3.11 than later, and a simulated run would depend on the version.
        for task in in_flight:
            with contextlib.suppress(Exception):
                await task
        raise


async def _one(write: Callable[[slice], Coroutine[Any, Any, T]], part: slice) -> AsyncIterator[T]:
    yield await write(part)


async def _ahead(
    parts: Iterator[slice],
    write: Callable[[slice], Coroutine[Any, Any, T]],
    in_flight: "collections.deque[asyncio.Task[T]]",
    *,
    stop: Callable[[], bool],
    limit: int,
) -> AsyncIterator[T]:
    part = next(parts, None)
    begun = False
    while True:
        while part is not None and len(in_flight) < limit and not (begun and stop()):
            task = asyncio.get_running_loop().create_task(write(part), name=f"rows from {part.start}")
            in_flight.append(task)
            part, begun = next(parts, None), True
        if not in_flight:
            return
        # The chunk that was begun last reaches the store before the first is applied; other tasks run, too.
        await asyncio.sleep(0)
        written = await in_flight[0]
        in_flight.popleft()
        yield written


class SendBuffer:
    """Decides when to send the requests that the chunks of one move have gathered so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chunks = 0
        self._since_ms = clock.monotonic_ms()

    def is_full(self) -> bool:
        """Returns whether to send now. To be called once after each chunk."""
        self._chunks += 1
        now_ms = self._clock.monotonic_ms()
        if self._chunks < PORTION_CHUNKS and now_ms - self._since_ms < PORTION_MS:
            return False
        self._chunks, self._since_ms = 0, now_ms
        return True
