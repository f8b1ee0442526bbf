"""Byte stream of one connection, with small buffers.

asyncio's streams read up to 384 KiB ahead for each connection, whether or not a caller reads: 1,000 connections would
hold 384 MB. A stream of this module buffers the bytes that the caller waits for and `WINDOW` bytes, and all connections
of a listener read into one shared buffer.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kactl.runtime import forks

# The largest piece that is read at a time, and the size of the buffer that all connections share.
PIECE_SIZE: Final = 64 * 1024
# Bytes that are read ahead while a request is handled. Most requests are smaller.
WINDOW: Final = 8 * 1024
# Bytes that may be buffered for writing before `drain` waits.
_WRITE_HIGH: Final = 16 * 1024


def shared_buffer() -> memoryview:
    """Returns a buffer for all streams of one event loop: received bytes are copied out of it at once."""
    return memoryview(bytearray(PIECE_SIZE))


class Stream(asyncio.BufferedProtocol):
    """A stream that reads from its socket while a caller waits for bytes.

    Args:
        buffer: from `shared_buffer`.
        on_lost: called once, after the connection is lost and its descriptor is closed.

    Attributes:
        is_lost: whether the connection is lost.
        on_end: called when the peer sends no more, or the connection is lost.
    """

    transport: asyncio.Transport

    def __init__(self, buffer: memoryview, on_lost: Callable[[], None] | None = None) -> None:
        self._shared = buffer
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._wanted = 0
        self._is_paused = False
        self._is_eof = False
        self.is_lost = False
        self.on_end: Callable[[], None] = lambda: None
        self._error: Exception | None = None
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    @property
    def at_eof(self) -> bool:
        """Whether no more bytes will arrive."""
        return (self._is_eof or self.is_lost) and not self._buffer

    async def read(self, size: int) -> bytes:
        """Returns up to `size` bytes, at least one; none at the end of the stream.

        Raises:
            OSError: the connection was lost.
        """
        if not self._buffer:
            await self._until(1, min(size, PIECE_SIZE))
        return self.take(size)

    def take(self, size: int) -> bytes:
        """Returns up to `size` of the bytes that have been received; none if there are none."""
        piece = bytes(memoryview(self._buffer)[:size])
        del self._buffer[: len(piece)]
        return piece

    async def peek(self, size: int) -> bytes:
        """Returns the next `size` bytes without consuming them, fewer at the end of the stream. At most PIECE_SIZE."""
        await self._until(size, size)
        return bytes(memoryview(self._buffer)[:size])

    async def _until(self, size: int, wanted: int) -> None:
        """Wait until that many bytes are buffered, or the stream ends."""
        while len(self._buffer) < size and not self._is_eof:
            if self.is_lost:
                raise self._error or ConnectionResetError("the connection was lost")
            self._wanted = wanted
            if self._is_paused:
                self._is_paused = False
                self.transport.resume_reading()
            self._readable = asyncio.get_running_loop().create_future()
            try:
                await self._readable
            finally:
                self._readable = None
                self._wanted = 0

    def write(self, *parts: bytes) -> None:
        # `writelines` of CPython 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 does not pause the protocol (CVE-2024-12254):
        # `drain` would not wait.
        if not self.is_lost:
            self.transport.write(b"".join(parts))

    @property
    def must_drain(self) -> bool:
        """Whether `drain` would wait, or raise an error."""
        return self.is_lost or self._writable is not None

    async def drain(self) -> None:
        """Wait until most of the written bytes are sent.

        Raises:
            OSError: the connection was lost.
        """
        if self.is_lost:
            raise self._error or ConnectionResetError("the connection was lost")
        if self._writable is not None:
            # The time limit of one caller must not cancel the future of others.
            await asyncio.shield(self._writable)

    def close(self, *, abort_s: float) -> None:
        """Close the stream; the peer may read the written bytes for `abort_s`."""
        if not self.is_lost:
            # asyncio's TLS transport is closed before the protocol is told, and fails if it is closed again.
            if not self.transport.is_closing():
                self.transport.close()
            if self.transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(abort_s, self.transport.abort)

    def abort(self) -> None:
        if not self.is_lost:
            self.transport.abort()

    # -- called by the transport ---------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.bury(self.transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        forks.share(self)
        self.transport = transport  # type: ignore[assignment]  # uvloop's transport is not a subclass of asyncio.Transport
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared[: max(1, max(WINDOW, self._wanted) - len(self._buffer))]

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer += self._shared[:nbytes]
        if len(self._buffer) >= max(WINDOW, self._wanted) and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._is_eof = True
        self._wake()
        self.on_end()
        # Requests that were sent before are still answered. TLS ends both directions at once.
        return self.transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._error = exc
        self._wake()
        self.resume_writing()
        self.on_end()
        # The callback refers to the connection, which refers to this stream: without the cycle, all of it is freed now.
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            if not self._writable.done():
                if self.is_lost:
                    self._writable.set_exception(self._error or ConnectionResetError("the connection was lost"))
                    self._writable.exception()  # marks the exception as retrieved if no caller waits
                else:
                    self._writable.set_result(None)
            self._writable = None

    def _wake(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)
