"""A large change in chunks: while one is at the store, the next is planned, and the one before is told.

    chunk 1   plan ─ write ─────── apply, send
    chunk 2          plan ─ write ─────────── apply, send
    chunk 3                        plan ─ write ───────────── apply, send

So brokers hear of the first new leaders while the later ones are being written, and nothing holds the event loop for
longer than a chunk takes. It is sound because what is planned for a row depends on that row alone, and no row stands in
two chunks: at most two are on their way at a time, the later of which is neither applied nor sent before the earlier.

What is to be sent is gathered over some chunks, since a request costs something however little it says: until it is
worth a portion, or has been held back for long enough that somebody may miss it; see `SendBuffer`.

Whoever has something small that cannot wait lets `pause` say so: no chunk is begun then, and when those that were begun
are finished the rest is left. A change that is nearer to one chunk than to two is made as a whole, as if there were
none.
"""

import asyncio
import collections
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from kactl.clock import Clock

T = TypeVar("T")

# How many chunks are sent as one, unless they take so long that brokers would wait for what is known already. A request
# to each of thirty brokers costs as much as a thousand partitions.
PORTION_CHUNKS: Final = 4
PORTION_MS: Final = 50

# Of a change that is never parted, as Kafka's controller never does.
WHOLE: Final = 1 << 62
# By how much a chunk is smaller while people ask for small things.
BRISK: Final = 8
# How many chunks are planned or at the store. One that waits there makes up for the other's way to it and back.
IN_FLIGHT: Final = 2


def never() -> bool:
    """Nothing small waits."""
    return False


async def in_chunks(
    count: int,
    size: int,
    *,
    begin: Callable[[slice], Coroutine[Any, Any, T]],
    finish: Callable[[T], Awaitable[bool]],
    pause: Callable[[], bool] = never,
    high_rate: bool = False,
) -> int:
    """Begin and finish each chunk of `count` rows, in order.

    Args:
        begin: plans some rows and writes them; the next may be begun before this one is finished.
        finish: applies and sends what became of them; False if there is no use in beginning another chunk.
        pause: whether to begin no other chunk for now; asked between chunks.
        brisk: let a pause come soon: smaller chunks, one at a time, which costs more in all.

    Returns:
        how many rows, from the first on, are finished; at least those of one chunk.

    Raises:
        whatever `begin` or `finish` raise. Nothing is on its way then: what was begun has come to its end, and is not
        finished.
    """
    size = max(1, size // BRISK) if high_rate else size
    # All of a size, about the one that was asked for: a small rest would cost nearly as much as the others do.
    chunks = max(1, round(count / size))
    size = -(-count // chunks)
    if chunks == 1:
        await finish(await begin(slice(0, count)))
        return count
    flight: collections.deque[tuple[asyncio.Task[T], int]] = collections.deque()
    done = begun = 0
    useful = True
    try:
        while True:
            if useful and begun < count and not (begun and pause()):
                part = slice(begun, min(begun + size, count))
                task = asyncio.get_running_loop().create_task(begin(part), name=f"rows from {begun}")
                begun = part.stop
                flight.append((task, begun))
                if len(flight) < IN_FLIGHT and not high_rate:
                    continue
                # Let it reach the store before anything is finished; others of the process have their turn, too.
                await asyncio.sleep(0)
            elif not flight:
                return done
            written = await flight[0][0]
            _, stop = flight.popleft()
            useful = await finish(written) and useful
            done = stop
    except asyncio.CancelledError:
        for task, _ in flight:
            task.cancel()
        raise
    except BaseException:
        # Not cancelled: what is at the store may be kept.
        await asyncio.gather(*(task for task, _ in flight), return_exceptions=True)
        raise


class SendBuffer:
    """When to send what the chunks of one change have gathered so far. At its end, and before a pause, all is sent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chunks = 0
        self._since_ms = clock.monotonic_ms()

    def is_full(self) -> bool:
        """Asked once after each chunk: whether to send now."""
        self._chunks += 1
        now_ms = self._clock.monotonic_ms()
        if self._chunks < PORTION_CHUNKS and now_ms - self._since_ms < PORTION_MS:
            return False
        self._chunks, self._since_ms = 0, now_ms
        return True
