"""Frames from strangers: a length, then so many bytes. Nothing is believed and nothing is kept before it is there.

A frame that is to be answered here is read whole, and what it takes is counted over all connections; one that is
relayed passes through in pieces. From its first byte on a frame has a time by which it must be there, so that nobody
holds a connection by sending a byte now and then.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from .tally import Refused

# The first part of every header: key, version, correlation id.
_FIXED: Final = struct.Struct(">hhi")
_LENGTH: Final = struct.Struct(">i")
PIECE_SIZE: Final = 64 * 1024


class Limits(NamedTuple):
    """What a peer may take of us.

    Attributes:
        frame_size_max: Kafka's socket.request.max.bytes; larger frames are refused by brokers, too.
        own_size_max: of a frame that is answered here, in bytes. AlterPartition for 200,000 partitions fits. What is
            made of it takes some ten times as much.
        held_max: what all connections together may hold of such frames, in bytes.
        connections_max: of all addresses together.
        frame_timeout_s: from the first byte of a frame to its last.
        first_timeout_s: from the connection to the first byte. Whoever wants something says it at once.
        idle_timeout_s: between two frames; Kafka's connections.max.idle.ms.
        write_timeout_s: how long a peer may leave an answer untouched.
    """

    frame_size_max: int = 100 * 1024 * 1024
    own_size_max: int = 16 * 1024 * 1024
    held_max: int = 64 * 1024 * 1024
    connections_max: int = 1000
    frame_timeout_s: float = 60.0
    first_timeout_s: float = 30.0
    idle_timeout_s: float = 600.0
    write_timeout_s: float = 60.0


class Head(NamedTuple):
    """The beginning of a request. `left`: how many bytes of its frame are still to come."""

    key: int
    version: int
    correlation_id: int
    left: int

    @property
    def raw(self) -> bytes:
        """As it came, its length included."""
        return _LENGTH.pack(_FIXED.size + self.left) + _FIXED.pack(self.key, self.version, self.correlation_id)


class Held:
    """How many bytes of frames are held, over all connections."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0

    def take(self, size: int) -> None:
        if self.size + size > self.limit:
            raise Refused(
                "memory", f"{self.size} bytes of requests are held already, and at most {self.limit} for all together"
            )
        self.size += size

    def give(self, size: int) -> None:
        self.size -= size


class Frames:
    """The frames of one connection.

    Every method but `head` raises Refused where the frame does not come as announced.
    """

    def __init__(self, reader: asyncio.StreamReader, limits: Limits, held: Held) -> None:
        self._reader = reader
        self._limits = limits
        self._held = held
        self._holds = 0
        self._deadline_s = 0.0
        self._wait_s = limits.first_timeout_s

    async def head(self) -> Head | None:
        """The beginning of the next frame; None where the peer has closed between two frames, or said nothing long.

        Raises:
            Refused: it is none.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                first = await self._reader.read(1)
        except TimeoutError:
            return None
        if not first:
            return None
        self._wait_s = self._limits.idle_timeout_s
        self._deadline_s = asyncio.get_running_loop().time() + self._limits.frame_timeout_s
        (size,) = _LENGTH.unpack(first + await self._exactly(_LENGTH.size - 1))
        if not _FIXED.size <= size <= self._limits.frame_size_max:
            raise Refused(
                "length",
                f"a frame of {size} bytes is announced, and must have {_FIXED.size} to {self._limits.frame_size_max}",
            )
        key, version, correlation_id = _FIXED.unpack(await self._exactly(_FIXED.size))
        return Head(key, version, correlation_id, size - _FIXED.size)

    async def rest(self, head: Head) -> bytes:
        """All of a frame that is still to come. It counts as held until `done`."""
        if head.left > self._limits.own_size_max:
            raise Refused(
                "length",
                f"a request {head.key} of {head.left} bytes, and at most {self._limits.own_size_max} are read here",
            )
        content = bytearray()
        async for piece in self.pieces(head):
            self._held.take(len(piece))
            self._holds += len(piece)
            content += piece
        return bytes(content)

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """What is still to come of a frame, as it comes."""
        left = head.left
        while left:
            piece = await self._some(min(left, PIECE_SIZE))
            left -= len(piece)
            yield piece

    def done(self) -> None:
        """Nothing of the frame is needed any more."""
        self._held.give(self._holds)
        self._holds = 0

    async def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            content += await self._some(size - len(content))
        return content

    async def _some(self, size: int) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline_s):
                piece = await self._reader.read(size)
        except TimeoutError:
            raise Refused("slow", f"a frame took more than {self._limits.frame_timeout_s:g} s") from None
        if not piece:
            raise Refused("truncated", "the peer has closed in the middle of a frame")
        return piece


async def drained(writer: asyncio.StreamWriter, limits: Limits) -> None:
    """Wait until a peer has taken what was written to it, or nearly.

    Raises:
        Refused: it did not for long.
    """
    try:
        async with asyncio.timeout(limits.write_timeout_s):
            await writer.drain()
    except TimeoutError:
        raise Refused("slow", f"an answer was not taken for {limits.write_timeout_s:g} s") from None
