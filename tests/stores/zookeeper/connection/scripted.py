"""A server on loopback that sends the data of a script, frame by frame or byte by byte, valid or not.

    async def script(line: ServerConnection) -> None:
        await line.greet()
        xid, _, _ = await line.asked()
        await line.say(response_body(xid, ...))

    async with ScriptedServer(script, ...) as server: ...

The first connection is served by the first script, the next by the next, and all later ones by the last. A connection
is closed when its script ends.
"""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Self

from kazoo.protocol.states import ZnodeStat

PING_XID: Final = -2
WATCH_XID: Final = -1
GET_DATA: Final = 4
CLOSE: Final = -11
SESSION: Final = 7
PASSWORD: Final = b"secret of sixtee"
STAT: Final = ZnodeStat(1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11)
TIMEOUT_MS: Final = 10_000


class Greeting(NamedTuple):
    """A client's handshake."""

    zxid: int
    timeout_ms: int
    session: int
    password: bytes
    read_only: bool


class PendingCall(NamedTuple):
    """A request: its number, its type, and its body."""

    xid: int
    kind: int
    body: bytes


class ServerConnection:
    """The server's end of one connection.

    Attributes:
        greeting: the client's handshake, once received.
        pings: number of pings received.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.greeting: Greeting | None = None
        self.pings = 0

    async def greet(
        self,
        *,
        session: int = SESSION,
        timeout_ms: int = TIMEOUT_MS,
        password: bytes = PASSWORD,
        read_only: bool = False,
    ) -> Greeting:
        """Receives the client's handshake and grants a session."""
        greeting = await self.hear_greeting()
        head = struct.pack("!iiqi", 0, timeout_ms, session, len(password))
        await self.say(with_length(head + password + bytes([read_only])))
        return greeting

    async def hear_greeting(self) -> Greeting:
        frame = await self._frame()
        _, zxid, timeout_ms, session, length = struct.unpack_from("!iqiqi", frame)
        rest = frame[28:]
        self.greeting = Greeting(zxid, timeout_ms, session, rest[:length], bool(rest[length]))
        return self.greeting

    async def asked(self, *, answer_pings: bool = True) -> PendingCall:
        """Returns the next request that is not a ping."""
        while True:
            frame = await self._frame()
            xid, kind = struct.unpack_from("!ii", frame)
            if xid != PING_XID:
                return PendingCall(xid, kind, frame[8:])
            self.pings += 1
            if answer_pings:
                await self.say(response_body(PING_XID))

    async def say(self, text: bytes, *, piece: int = 0) -> None:
        """Sends data, optionally in pieces."""
        size = piece or len(text) or 1
        for at in range(0, len(text), size):
            self._writer.write(text[at : at + size])
            await self._writer.drain()
            if piece:
                await asyncio.sleep(0)  # so that each piece is sent by itself

    async def gone(self) -> None:
        """Waits until the client disconnects, with or without closing its session; other data is ignored."""
        while (await self.asked(answer_pings=False)).kind != CLOSE:
            pass

    async def ignore(self) -> None:
        """Waits until the client closes the connection, and ignores its data."""
        while await self._reader.read(65_536):
            pass

    async def _frame(self) -> bytes:
        (length,) = struct.unpack("!i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)


def with_length(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


def response_body(xid: int, body: bytes = b"", *, zxid: int = 1, error: int = 0) -> bytes:
    return with_length(struct.pack("!iqi", xid, zxid, error) + body)


def event(kind: int, path: str) -> bytes:
    text = path.encode()
    return with_length(struct.pack("!iqi", WATCH_XID, -1, 0) + struct.pack("!iii", kind, 3, len(text)) + text)


def node_body(data: bytes) -> bytes:
    """Returns the body of a response to a read."""
    return struct.pack("!i", len(data)) + data + struct.pack("!qqqqiiiqiiq", *STAT)


Script = Callable[[ServerConnection], Awaitable[None]]


async def serve_reads(line: ServerConnection) -> None:
    """Grants a session, and responds to every read with the path that it requests."""
    await line.greet()
    while True:
        xid, kind, body = await line.asked()
        if kind != GET_DATA:
            return
        await line.say(response_body(xid, node_body(body[4:-1])))


class ScriptedServer:
    """A server with a script for each connection.

    Attributes:
        lines: all connections so far.
    """

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.lines: list[ServerConnection] = []

    @property
    def connect(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = ServerConnection(reader, writer)
        script = self._scripts[min(len(self.lines), len(self._scripts) - 1)]
        self.lines.append(line)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
                await script(line)
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
