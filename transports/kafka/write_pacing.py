"""Pacing of large writes, so that a hundred large requests at a time do not block the event loop.

Requests to 100 brokers about 200,000 partitions have a gigabyte. A socket accepts megabytes at once, so writing each
request in one call would block the loop until everything is copied. All connections together therefore write a limited
number of bytes per iteration of the loop; a connection with a full socket waits for its own socket only, and uses none
of that limit. Only the buffers of a small frame are joined. Pieces of a large frame are views, and only the part of a
piece that the socket did not accept is copied.
"""

import asyncio
import collections
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

# Several pieces fit into a socket's buffer.
PIECE_BYTES: Final = 256 * 1024
# Four pieces: a few connections write in each iteration of the loop.
TURN_BYTES: Final = 1024 * 1024

Buffer = bytes | memoryview


class Writer(Protocol):
    """The used methods of an asyncio.StreamWriter."""

    def write(self, data: Buffer) -> None: ...

    async def drain(self) -> None: ...


class WritePacer:
    """Limits the bytes written per iteration of the loop. Shared by all connections of one event loop."""

    def __init__(self) -> None:
        self._written = 0  # in this iteration of the loop, or granted for the next
        # Waiting writers, in order. At most one for each connection, which writes one frame at a time.
        self._waiting: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()

    async def write(self, writer: Writer, buffers: Iterable[Buffer], size: int) -> None:
        """Write a frame, and wait until the socket has accepted nearly all of it.

        Args:
            size: bytes of all buffers.
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
        """Wait for an iteration of the loop with bytes left, and reserve `size` of them.

        Reservations are granted in the order of the calls: a connection that always has more to send waits behind all
        others, whichever task the loop happens to run first.
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
            if not granted.done():  # otherwise it was cancelled
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
