"""A proxy to ZooKeeper that can cut its connections, and drop responses after the server has acted."""

import asyncio
import contextlib
import struct
from typing import Final, Self

CREATE: Final = 1
SET_DATA: Final = 5
MULTI: Final = 14


class Proxy:
    """Forwards from its own port to a server's on loopback.

    Attributes:
        reachable: while False, new connections are closed at once.
        silent: set as soon as a response was dropped.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._losing: tuple[int, int] | None = None
        self.reachable = True
        self.silent = asyncio.Event()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def lose(self, kind: int, *, nth: int = 1) -> None:
        """Drops the server's data from the nth request of a kind on, until the connections are cut."""
        self._losing = (kind, nth)

    async def cut(self) -> None:
        """Closes all connections. Later ones lose no data."""
        self._losing = None
        lines = list(self._lines)
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        try:
            if self.reachable:
                await self._forward(reader, writer)
        except asyncio.CancelledError:
            pass  # cut; asyncio's streams would log it as a failure
        finally:
            self._lines.discard(line)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            silenced = asyncio.Event()  # permanent: data that is pending when the connection is cut is lost, too
            ends = [
                asyncio.ensure_future(self._ask(reader, to_server, silenced)),
                asyncio.ensure_future(self._answer(from_server, writer, silenced)),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        finally:
            to_server.close()
            with contextlib.suppress(OSError):
                await to_server.wait_closed()

    async def _ask(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, silenced: asyncio.Event) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await source.readexactly(4)
                request = await source.readexactly(int.from_bytes(size))
                self._count(struct.unpack_from("!i", request, 4)[0], silenced)
                sink.write(size + request)
                await sink.drain()

    def _count(self, kind: int, silenced: asyncio.Event) -> None:
        if self._losing is not None and self._losing[0] == kind:
            self._losing = (kind, self._losing[1] - 1)
            if self._losing[1] <= 0:
                silenced.set()

    async def _answer(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, silenced: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if not silenced.is_set():
                    sink.write(data)
                    await sink.drain()
                else:
                    self.silent.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()
        await self._server.wait_closed()
