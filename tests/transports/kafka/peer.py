"""Broker's side of a connection: a real socket, with requests read and responses written by kio."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from kactl.decide.messages.control import KafkaRequest, KafkaResponse, Request, Response
from kactl.model import Broker, Endpoint
from kactl.transports.kafka.codec import Versions
from tests.support import kio_codec as by_kio
from tests.support.message_strategies import LISTENER

Respond = Callable[[Request], Awaitable[Response]]


class Raw(Exception):
    """Raised by a `respond` to send these bytes in place of a response, and close the connection or not."""

    def __init__(self, data: bytes, *, close: bool = False) -> None:
        super().__init__(data)
        self.data = data
        self.close = close


class Peer:
    """Responds to every client with `respond`. If that raises, the connection is closed without a response."""

    def __init__(self, respond: Respond, versions: Versions, logins: "Logins | None") -> None:
        self._respond = respond
        self._logins = logins
        self._versions = versions
        self.connections: list[asyncio.StreamWriter] = []
        self.correlation_ids: list[int] = []
        self.gone = asyncio.Semaphore(0)  # released once for each connection that the client has closed
        self.broker = Broker(1, 77)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        with contextlib.suppress(OSError):
            while await self._answer_one(reader, writer):
                pass
        writer.close()
        self.gone.release()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request. Returns whether the connection stays open."""
        try:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            data = await reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return False
        if self._logins is not None and (reply := self._logins.reply(writer, data)) is not None:
            writer.write(struct.pack(">i", len(reply)) + reply)
            await writer.drain()
            return True
        correlation_id, request = by_kio.read_request(data)
        self.correlation_ids.append(correlation_id)
        answer = asyncio.ensure_future(self._respond(request))
        ended = asyncio.ensure_future(reader.read(1))  # no byte may arrive before the response, except the end
        try:
            await asyncio.wait((answer, ended), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                return False
            return await self._send(writer, request, answer.result(), correlation_id)
        except Raw as raw:
            writer.write(raw.data)
            await writer.drain()
            return not raw.close
        except Exception:
            return False  # a broker that fails on a request closes the connection
        finally:
            answer.cancel()
            ended.cancel()
            await asyncio.wait((answer, ended))

    async def _send(
        self, writer: asyncio.StreamWriter, request: Request, response: Response, correlation_id: int
    ) -> bool:
        assert isinstance(request, KafkaRequest)
        assert isinstance(response, KafkaResponse)
        answer = by_kio.response_bytes(request, response, self._versions, correlation_id=correlation_id)
        writer.write(struct.pack(">i", len(answer)) + answer)
        await writer.drain()
        return True


class Logins(Protocol):
    """The part of a broker that authenticates connections."""

    def reply(self, writer: asyncio.StreamWriter, request: bytes) -> bytes | None:
        """Returns the response to a request, None if it is not part of a login. Raises if it may not be sent yet."""


@contextlib.asynccontextmanager
async def listening(
    respond: Respond,
    versions: Versions,
    *,
    protocol: str = "PLAINTEXT",
    tls: ssl.SSLContext | None = None,
    logins: Logins | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[Peer]:
    """Start a peer at a free port of loopback, as `peer.broker`, which is registered under `host`."""
    peer = Peer(respond, versions, logins)
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        await peer.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    peer.broker = Broker(1, 77, (Endpoint("CLIENT", "nowhere.invalid", 1), Endpoint(LISTENER, host, port, protocol)))
    try:
        yield peer
    finally:
        server.close()
        for writer in peer.connections:
            writer.transport.abort()
        if serving:
            await asyncio.wait(serving)
        await server.wait_closed()
