"""A proxy to etcd that can cut or freeze its connections, and drop a response after the server has acted."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, Self

_TURNS: Final = 10
# What a client of HTTP/2 begins with, and the frames that follow: a length, a type, flags and a stream.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD: Final = 9
_HEADERS: Final = 1


class _Frames:
    """Finds the frames in what one side sends."""

    def __init__(self) -> None:
        self._read = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yields type, stream and content of each frame that is complete."""
        read = self._read
        read += data
        if read.startswith(_PREFACE):
            del read[: len(_PREFACE)]
        while len(read) >= _HEAD and len(read) >= (end := _HEAD + int.from_bytes(read[:3])):
            yield read[3], int.from_bytes(read[5:_HEAD]), bytes(read[_HEAD:end])
            del read[:end]


class Proxy:
    """Forwards from its own port to a server's on loopback.

    Attributes:
        reachable: while False, new connections are closed at once.
        lost: how many responses were dropped.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._age = 0
        self._marker = b""
        self._left = 0
        self.reachable = True
        self.lost = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lose(self, marker: bytes, *, count: int = 1) -> None:
        """Drop the responses to the next requests that contain a text, and close their connections."""
        self._marker, self._left = marker, count

    def freeze(self) -> None:
        """Swallow what servers send over the present connections, which stay open."""
        self._age += 1

    async def cut(self) -> None:
        """Close all connections."""
        # A connection that has just been accepted takes some turns of the loop until its task has begun.
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        while connections := list(self._connections):
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            if self.reachable:
                await self._forward(reader, writer)
        except asyncio.CancelledError:
            pass  # cut; asyncio's streams would log it as a failure
        finally:
            self._connections.discard(connection)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            losing: set[int] = set()  # streams
            ends = [
                asyncio.ensure_future(self._requests(reader, to_server, losing)),
                asyncio.ensure_future(self._responses(from_server, writer, losing)),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        finally:  # also if this is cancelled while it waits for the two
            to_server.close()
            with contextlib.suppress(OSError):
                await to_server.wait_closed()

    async def _requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, losing: set[int]) -> None:
        frames = _Frames()
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 20):
                for _, stream, content in frames.feed(data):
                    if self._left and self._marker in content:
                        self._left -= 1
                        losing.add(stream)
                sink.write(data)
                await sink.drain()

    async def _responses(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, losing: set[int]) -> None:
        age, frames = self._age, _Frames()
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if age != self._age:
                    continue
                # The response, and not a frame of the connection: the server has acted.
                if any(kind == _HEADERS and stream in losing for kind, stream, _ in frames.feed(data)):
                    self.lost += 1
                    return
                sink.write(data)
                await sink.drain()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reachable = False
        await self.cut()
        await self._server.wait_closed()
