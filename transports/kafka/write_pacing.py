"""How large requests go out: piece by piece, so that a hundred of them at a time do not hold up the event loop.

What tells a hundred brokers of two hundred thousand partitions is a gigabyte. Sockets take megabytes at once, and a
loop that offers each of them all that it has does nothing else for as long as it takes to copy all that. So only so
much is written in one turn of the loop, by whoever comes; a connection whose socket takes no more waits for it alone,
and uses up nothing. Only the buffers of a small frame are joined. Pieces of a large one are views, and what is copied
is what a socket left of one piece.
"""

import asyncio
import collections
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

# A socket's buffer takes several of them.
PIECE_BYTES: Final = 256 * 1024
# Four pieces: a few connections are served in each turn.
TURN_BYTES: Final = 1024 * 1024

Buffer = bytes | memoryview


class Writer(Protocol):
    """What is needed of an asyncio.StreamWriter."""

    def write(self, data: Buffer) -> None: ...

    async def drain(self) -> None: ...


class WritePacer:
    """See the module. Shared by all connections of one event loop."""

    def __init__(self) -> None:
        self._written = 0  # in this turn of the loop, or granted for the next
        # Writers that wait for room, in order. One for each connection at most: it writes one frame at a time.
        self._waiting: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()

    async def write(self, writer: Writer, buffers: Iterable[Buffer], size: int) -> None:
        """Write a frame, and wait until the socket has taken nearly all of it.

        Args:
            size: of all buffers.
        """
        if size <= PIECE_BYTES:
            await self._turn(size)
            # `writelines` of CPython 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 does not pause the protocol (CVE-2024-12254):
            # `drain` would not wait.
            writer.write(b"".join(buffers))
            await writer.drain()
            return
        for piece in _pieces(buffers):
            await self._turn(len(piece))
            writer.write(piece)
            await writer.drain()

    async def _turn(self, size: int) -> None:
        """Wait for a turn of the loop in which there is room, and take some.

        Room is granted in the order in which it was asked for: a connection that always has more to send waits behind
        all others, whichever task the loop happens to run first.
        """
        if not self._waiting and self._written < TURN_BYTES:
            self._take(size)
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        await granted

    def _take(self, size: int) -> None:
        if not self._written:
            asyncio.get_running_loop().call_soon(self._next)
        self._written += size

    def _next(self) -> None:
        self._written = 0
        while self._waiting and self._written < TURN_BYTES:
            size, granted = self._waiting.popleft()
            if not granted.done():  # else it was cancelled
                self._take(size)
                granted.set_result(None)


def _pieces(buffers: Iterable[Buffer]) -> Iterator[Buffer]:
    for buffer in buffers:
        if len(buffer) <= PIECE_BYTES:
            yield buffer
            continue
        view = memoryview(buffer)
        for begin in range(0, len(view), PIECE_BYTES):
            yield view[begin : begin + PIECE_BYTES]
