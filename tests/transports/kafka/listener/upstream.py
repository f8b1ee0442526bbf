"""Stub broker of the relay: a port that receives frames and responds to them."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

from kactl.model import Broker, Endpoint

from .listener_stub import LISTENER

# Receives a frame without its length, and the writer for other effects than a response. None closes the connection.
Respond = Callable[[bytes, asyncio.StreamWriter], Awaitable[bytes | None]]


class Upstream:
    """Stub broker of a relay.

    Attributes:
        frames: received frames, without lengths, in order.
        connections: number of accepted connections; `open` of them are still open.
    """

    def __init__(self, broker_id: int, respond: Respond) -> None:
        self.id = broker_id
        self.frames: list[bytes] = []
        self.connections = 0
        self.open = 0
        self._respond = respond
        self.broker = Broker(broker_id, 1)
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                self.frames.append(await reader.readexactly(size))
                answer = await self._respond(self.frames[-1], writer)
                if answer is None:
                    break
                writer.write(struct.pack(">i", len(answer)) + answer)
                await writer.drain()
        self.open -= 1
        writer.transport.abort()


@contextlib.asynccontextmanager
async def broker(respond: Respond, *, broker_id: int = 1, name: str = LISTENER) -> AsyncIterator[Upstream]:
    """Start a stub broker at a free port of loopback, as `upstream.broker`."""
    upstream = Upstream(broker_id, respond)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):
            await upstream.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    upstream.broker = Broker(broker_id, 1, (Endpoint("OTHER", "nowhere.invalid", 1), Endpoint(name, host, port)))
    try:
        yield upstream
    finally:
        server.close()
        for writer in upstream.writers:
            writer.transport.abort()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
