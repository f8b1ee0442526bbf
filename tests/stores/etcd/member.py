"""A member of etcd that responds as a test wants: an HTTP/2 server on loopback."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Self, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamReset
from h2.settings import SettingCodes

_PREFIX: Final = 5
# What the member's sockets hold while it does not read.
_RECEIVED_BYTES_MAX: Final = 4_096
_OK: Final = [(":status", "200"), ("content-type", "application/grpc")]


def framed(message: bytes) -> bytes:
    """Returns a message as gRPC sends it."""
    return b"\0" + len(message).to_bytes(4) + message


class Served(asyncio.Protocol):
    """One connection to the member.

    Attributes:
        frames: h2's state, to send what a test wants.
        transport: of the connection.
        cancelled: number of requests that the client has cancelled.
    """

    transport: asyncio.Transport

    def __init__(self, member: "Member") -> None:
        self._member = member
        self._unsent: dict[int, bytearray] = {}
        self.frames = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.paths: dict[int, str] = {}
        self.requests: dict[int, bytearray] = {}
        self.cancelled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._member.connections.append(self)
        if self._member.raw is not None:
            return
        self.frames.initiate_connection()
        self.frames.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self._member.streams_max})
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._member.raw is not None:
            self.transport.write(self._member.raw)
            return
        for event in self.frames.receive_data(data):
            self._on(event)
        self._send_more()  # now that all cancelled requests are known

    def _on(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=number, headers=headers):
                received = {str(name): str(value) for name, value in headers}
                self._member.headers.append(received)
                self.paths[number] = received[":path"]
                self.requests[number] = bytearray()
                if self._member.responds_early:
                    self._member.respond(self, number)
            case DataReceived(stream_id=number, data=data, flow_controlled_length=size):
                self.requests[number] += data
                if self._member.reads:
                    self.frames.acknowledge_received_data(size, number)
                if len(self.requests[number]) == _PREFIX + int.from_bytes(self.requests[number][1:_PREFIX]):
                    self._member.requests.append(self.paths[number])
                    self._member.respond(self, number)
            case StreamReset(stream_id=number):
                self._unsent.pop(number, None)
                self.cancelled += 1

    def flush(self) -> None:
        self.transport.write(self.frames.data_to_send())

    def send(self, number: int, *messages: bytes, status: int = 0, text: str = "") -> None:
        """Respond with messages and a status, as far as the client's windows permit."""
        self.frames.send_headers(number, _OK)
        self._unsent[number] = bytearray(b"".join(map(framed, messages)))
        self._status = [("grpc-status", str(status)), ("grpc-message", text)]
        self._send_more()

    def _send_more(self) -> None:
        for number, data in list(self._unsent.items()):
            while data and (size := self._window(number)):
                self.frames.send_data(number, bytes(data[:size]))
                del data[:size]
            if not data:
                del self._unsent[number]
                self.frames.send_headers(number, self._status, end_stream=True)
        self.flush()

    def _window(self, number: int) -> int:
        return min(self.frames.local_flow_control_window(number), self.frames.max_outbound_frame_size)

    def refuse(self, number: int) -> None:
        """Turn a request away without having executed it."""
        self.frames.reset_stream(number, ErrorCodes.REFUSED_STREAM)

    def go_away(self, last: int) -> None:
        """End the connection; requests after the stream `last` were not executed."""
        self.frames.close_connection(last_stream_id=last)
        self.flush()
        self.transport.close()


class Member:
    """A member that responds to each request by a function.

    Attributes:
        respond: called with the connection and the number of the stream of each complete request.
        streams_max: maximum number of concurrent requests of a connection.
        reads: whether it makes room for more than the first window of a request.
        responds_early: whether it responds before the request is complete.
        raw: bytes that it responds with in place of HTTP/2.
        requests: paths of the complete requests.
        headers: those of all requests.
        connections: all that were opened.
    """

    def __init__(self) -> None:
        self.respond: Callable[[Served, int], Any] = lambda served, number: served.send(number, b"")
        self.streams_max = 100
        self.reads = True
        self.responds_early = False
        self.raw: bytes | None = None
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections: list[Served] = []
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def fail(self, code: int, text: str) -> None:
        """Respond with an error from now on, as etcd does."""
        headers = [*_OK, ("grpc-status", str(code)), ("grpc-message", text)]
        self.respond = lambda served, number: served.frames.send_headers(number, headers, end_stream=True)

    async def __aenter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_BYTES_MAX)  # also of each connection
        self._server = await asyncio.get_running_loop().create_server(lambda: Served(self), sock=listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for served in self.connections:
            served.transport.abort()
        await self._server.wait_closed()
