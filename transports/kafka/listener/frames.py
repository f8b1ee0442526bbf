"""Frames of one connection: a length, then that many bytes.

A frame that the listener handles is read completely, into memory that was reserved before (`pools`); a relayed frame
passes through in pieces. From its first byte on, a frame must arrive at a minimum rate, less some seconds, so that a
peer cannot occupy a connection by sending a byte at a time.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from .counters import PeerRejected
from .limits import EXPANSION, FREE_SIZE, Limits
from .pools import Share
from .stream import PIECE_SIZE, Stream

# The first part of every header: key, version, correlation id.
_FIXED: Final = struct.Struct(">hhi")
_LENGTH: Final = struct.Struct(">i")
# The first bytes of an alert and of a handshake. As a length they would announce 352 and 369 MB.
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")


class Head(NamedTuple):
    """The beginning of a request. `left` is the number of bytes of its frame that have not been read."""

    key: int
    version: int
    correlation_id: int
    left: int

    @property
    def raw(self) -> bytes:
        """The bytes as received, including the length."""
        return _LENGTH.pack(_FIXED.size + self.left) + _FIXED.pack(self.key, self.version, self.correlation_id)


class Frames:
    """The frames of one connection.

    Every method raises PeerRejected if the frame is truncated, malformed or too slow.
    """

    def __init__(self, stream: Stream, limits: Limits, share: Share) -> None:
        self._stream = stream
        self._limits = limits
        self._share = share
        self._deadline_s = 0.0
        self._wait_s = limits.first_timeout_s

    async def head(self) -> Head | None:
        """Returns the beginning of the next frame; None if the peer closed between frames, or was idle for too long."""
        try:
            async with asyncio.timeout(self._wait_s):
                first = await self._stream.peek(1)
        except TimeoutError:
            return None
        if not first:
            return None
        self._wait_s = self._limits.idle_timeout_s
        self._deadline_s = asyncio.get_running_loop().time() + self._limits.frame_timeout_s
        begin = await self._exactly(_LENGTH.size)
        if begin[:2] in _TLS_RECORDS:
            raise PeerRejected("tls", "speaks TLS on a listener in clear text: check the peer's security.protocol")
        (size,) = _LENGTH.unpack(begin)
        if not _FIXED.size <= size <= self._limits.frame_size_max:
            raise PeerRejected(
                "length",
                f"a frame of {size} bytes is announced, and {_FIXED.size} to {self._limits.frame_size_max} are allowed "
                "(kafka.socket-request-max-bytes)",
            )
        key, version, correlation_id = _FIXED.unpack(await self._exactly(_FIXED.size))
        return Head(key, version, correlation_id, size - _FIXED.size)

    async def prefix(self, head: Head, size: int) -> bytes:
        """Returns up to `size` next bytes of a frame without consuming them."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                return await self._stream.peek(min(size, head.left))
        except TimeoutError:
            raise self._slow() from None

    async def rest(self, head: Head) -> bytes:
        """Returns the rest of a frame. Its memory is reserved until the share is released."""
        if head.left <= FREE_SIZE:
            return await self._exactly(head.left)
        with self._own_time():
            await self._share.reserve(head.left * EXPANSION)
        return b"".join([piece async for piece in self.pieces(head)])

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """Yields the rest of a frame in pieces, as they arrive."""
        left = head.left
        while left:
            piece = await self._some(min(left, PIECE_SIZE))
            left -= len(piece)
            with self._own_time():
                yield piece

    @contextlib.contextmanager
    def _own_time(self) -> Iterator[None]:
        """Exclude the time of this block, in which the peer is not read from, from the time of the frame."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            yield
        finally:
            self._deadline_s += loop.time() - started_s

    async def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            content += await self._some(size - len(content))
        return content

    async def _some(self, size: int) -> bytes:
        # Bytes that have arrived are taken without a time limit: to set one up takes longer than to take them.
        piece = self._stream.take(size) or await self._next(size)
        if not piece:
            raise PeerRejected("truncated", "the peer closed in the middle of a frame")
        self._deadline_s += len(piece) / self._limits.frame_rate_min
        return piece

    async def _next(self, size: int) -> bytes:
        """Wait for up to `size` bytes."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                return await self._stream.read(size)
        except TimeoutError:
            raise self._slow() from None

    def _slow(self) -> PeerRejected:
        limits = self._limits
        return PeerRejected(
            "slow",
            f"a frame was more than {limits.frame_timeout_s:g} s slower than at {limits.frame_rate_min} bytes a second",
        )


async def drained(stream: Stream, limits: Limits) -> None:
    """Wait until a peer has read most of the bytes written to it.

    Raises:
        Refused: it did not do so in time.
    """
    if not stream.must_drain:
        return
    try:
        async with asyncio.timeout(limits.write_timeout_s):
            await stream.drain()
    except TimeoutError:
        raise PeerRejected("slow", f"a response was not read for {limits.write_timeout_s:g} s") from None
