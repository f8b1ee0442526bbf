"""HTTP/2: a connection with concurrent streams, as gRPC needs it.

The library h2 encodes and decodes frames. This module reads and writes the socket, waits for flow control, and keeps
limits: a server can send only as much as is read, and one that does not read is given up.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error, StreamClosedError
from h2.settings import SettingCodes, Settings

from kactl.runtime import forks
from kactl.runtime.connecting import NoAddressAnswers, connect

# Data that a server may send before it is read: of one stream, and of all streams of a connection.
_STREAM_WINDOW: Final = 4 * 1024 * 1024
_CONNECTION_WINDOW: Final = 64 * 1024 * 1024
# With more than this unsent, the server does not read: requests wait for it, acknowledgements of its frames do not.
UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
# Ids of streams end at 2^31. A connection that has used half of them takes no more streams.
_STREAM_ID_MAX: Final = 1 << 30
_INITIAL_WINDOW: Final = 65_535
# Position of a frame's type, and the type of the first frame.
_FRAME_TYPE: Final = 3
_SETTINGS: Final = b"\x04"

Header = tuple[str, str]


class ConnectionLost(OSError):
    """The connection ended, or the server broke the protocol. Open requests may have been executed."""


class NotExecuted(OSError):
    """The server has certainly not executed the request: no connection could be opened, or it was turned away."""


class Connection(asyncio.Protocol):
    """One connection; see `connected`.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Outgoing headers are this package's own, and validating them takes a twentieth of the time of a small call.
        self._frames = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._frames.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: H2Connection.DEFAULT_MAX_HEADER_LIST_SIZE,
            },
        )
        self._streams: dict[int, Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._stream_ended = asyncio.Event()
        self._lost: OSError | None = None
        self._has_begun = False
        self._waiting_since_s: float | None = None

    @property
    def is_usable(self) -> bool:
        """Whether new streams can be opened."""
        return self._lost is None and self._frames.highest_outbound_stream_id < _STREAM_ID_MAX

    @property
    def silent_s(self) -> float:
        """How long nothing has arrived since a stream was opened; 0 if something has."""
        return 0.0 if self._waiting_since_s is None else self._clock() - self._waiting_since_s

    async def stream(self, headers: Iterable[Header]) -> "Stream":
        """Open a stream, as soon as the server accepts one more.

        Raises:
            NotExecuted: the connection has ended.
        """
        while True:
            await self._writable.wait()
            if self._lost is not None:
                raise NotExecuted(str(self._lost))
            if self._frames.open_outbound_streams < self._frames.remote_settings.max_concurrent_streams:
                break
            self._stream_ended.clear()
            await self._stream_ended.wait()
        number = self._frames.get_next_available_stream_id()
        self._frames.send_headers(number, list(headers))
        if self._waiting_since_s is None:
            self._waiting_since_s = self._clock()
        stream = self._streams[number] = Stream(self, number)
        return stream  # the headers leave together with the request

    def close(self) -> None:
        """Close the connection. Open streams fail."""
        self._fail(ConnectionLost("the connection was closed"))

    # -- for streams

    async def _send(self, stream: "Stream", data: bytes, *, end: bool) -> None:
        """Send as much as the server accepts, until everything is sent or the stream has ended."""
        frames, number, begin = self._frames, stream.number, 0
        while True:
            await self._writable.wait()
            if stream.has_ended:
                return  # the response does not depend on the rest
            left = len(data) - begin
            size = min(left, frames.local_flow_control_window(number), frames.max_outbound_frame_size)
            if size <= 0 < left:
                self._flush()
                stream.window_updated.clear()
                await stream.window_updated.wait()
                continue
            frames.send_data(number, data[begin : begin + size], end_stream=end and size == left)
            begin += size
            if begin == len(data):
                stream.is_sent = end
                self._flush()
                return

    def _acknowledge(self, stream: "Stream", size: int) -> None:
        """Let the server send more. What a stream leaves unread counts for the connection only."""
        if self._lost is None and size:
            self._frames.acknowledge_received_data(size, stream.number)
            self._flush()

    def _forget(self, stream: "Stream") -> None:
        """Remove a stream, and cancel it if it has not ended."""
        if self._streams.pop(stream.number, None) is not None and self._lost is None:
            self._acknowledge(stream, stream.unread)
            if not (stream.has_ended and stream.is_sent):
                with contextlib.suppress(StreamClosedError):  # the server has reset it
                    self._frames.reset_stream(stream.number, ErrorCodes.CANCEL)
                self._flush()
        self._stream_ended.set()

    # -- asyncio.Protocol

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.bury(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        forks.share(self)
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another base class
        self._frames.initiate_connection()
        self._frames.increment_flow_control_window(_CONNECTION_WINDOW - _INITIAL_WINDOW)
        self._writable.set()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._waiting_since_s = None
        if self._lost is not None:
            return
        # A server begins with its settings. h2 would wait for the rest of a frame, which an answer in HTTP/1 never has.
        begun, self._has_begun = self._has_begun, True
        if not begun and data[_FRAME_TYPE : _FRAME_TYPE + 1] not in (b"", _SETTINGS):
            self._fail(ConnectionLost("the server does not speak HTTP/2"))
            return
        try:
            events = self._frames.receive_data(data)
        except H2Error as error:
            self._flush()  # tells the server why
            self._fail(ConnectionLost(f"the server does not speak HTTP/2 as etcd does ({error})"))
            return
        for event in events:
            self._on(event)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionLost(str(exc) if exc else "the server closed the connection"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _on(self, event: Event) -> None:
        match event:
            case DataReceived(stream_id=number, data=data, flow_controlled_length=size):
                stream = self._streams.get(number)
                if stream is not None:
                    stream.on_data(data, size)
            case (
                ResponseReceived(stream_id=number, headers=headers)
                | TrailersReceived(stream_id=number, headers=headers)
            ):
                if number in self._streams:
                    self._streams[number].on_headers(headers)
            case StreamEnded(stream_id=number):
                if number in self._streams:
                    self._streams[number].end()
                    self._stream_ended.set()
            case StreamReset(stream_id=number, error_code=code):
                if number in self._streams:
                    refused = code == ErrorCodes.REFUSED_STREAM
                    reason = f"the server reset the stream ({_named(code)})"
                    self._streams[number].end(NotExecuted(reason) if refused else ConnectionLost(reason))
                    self._stream_ended.set()
            case WindowUpdated() | RemoteSettingsChanged():
                for stream in self._streams.values():
                    stream.window_updated.set()
                self._stream_ended.set()  # there may be more streams now
            case ConnectionTerminated(error_code=code, last_stream_id=last):
                reason = f"the server ended the connection ({_named(code)})"
                for number, stream in self._streams.items():
                    if number > (last or 0):
                        stream.end(NotExecuted(reason))
                self._fail(ConnectionLost(reason))

    def _flush(self) -> None:
        data = self._frames.data_to_send()
        if self._transport is not None and data:
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
                self._fail(ConnectionLost("the server sends, but does not read"))

    def _fail(self, error: OSError) -> None:
        if self._lost is None:
            self._lost = error
            if self._transport is not None:
                self._transport.abort()
        for stream in self._streams.values():
            stream.end(self._lost)
        self._writable.set()
        self._stream_ended.set()


class Stream:
    """One request and its response.

    Attributes:
        number: of the stream in its connection.
        headers: those of the response, and the trailers once they have arrived.
        has_ended: whether the response is complete, or the stream has failed.
        is_sent: whether the request is complete.
        unread: number of bytes that have arrived and were not read.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._parts: deque[tuple[bytes, int]] = deque()
        self._arrived = asyncio.Event()
        self._error: OSError | None = None
        self.number = number
        self.headers: dict[str, str] = {}
        self.has_ended = False
        self.is_sent = False
        self.unread = 0
        self.window_updated = asyncio.Event()

    async def send(self, data: bytes, *, end: bool) -> None:
        """Send a part of the request. After the end of the response, nothing is sent.

        Args:
            end: this is the last part.
        """
        await self._connection._send(self, data, end=end)

    async def part(self) -> bytes | None:
        """Returns the next part of the response; None at its end.

        Raises:
            ConnectionLost, NotExecuted: the stream has failed.
        """
        while not self._parts:
            if self.has_ended:
                if self._error is not None:
                    raise self._error
                return None
            self._arrived.clear()
            await self._arrived.wait()
        data, size = self._parts.popleft()
        self.unread -= size
        self._connection._acknowledge(self, size)
        return data

    def close(self) -> None:
        """End the stream; the request is cancelled if the response is not complete."""
        self._connection._forget(self)

    # -- for the connection

    def on_headers(self, headers: Iterable[tuple[bytes | str, bytes | str]]) -> None:
        self.headers.update((_text(name), _text(value)) for name, value in headers)
        self._arrived.set()

    def on_data(self, data: bytes, size: int) -> None:
        self._parts.append((data, size))
        self.unread += size
        self._arrived.set()

    def end(self, error: OSError | None = None) -> None:
        if not self.has_ended:
            self.has_ended, self._error = True, error
        self._arrived.set()
        self.window_updated.set()


async def connected(host: str, port: int, tls: ssl.SSLContext | None, limit_s: float) -> Connection:
    """Open a connection.

    Args:
        tls: for an encrypted connection; its ALPN protocols are set.
        limit_s: see `connect`.

    Raises:
        NotExecuted: it could not be opened.
    """
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()

    async def complete(opened: socket.socket) -> Connection:
        name = None if tls is None else host
        made = lambda: Connection(loop.time)  # noqa: E731
        _, connection = await loop.create_connection(made, sock=opened, ssl=tls, server_hostname=name)
        return connection

    try:
        return await connect(host, port, complete, limit_s=limit_s)
    except OSError as error:
        raise NotExecuted(_reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, NoAddressAnswers):
        return error.explained(_reason)
    if isinstance(error, socket.gaierror):
        return f"the name of the host cannot be resolved ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def _text(data: bytes | str) -> str:
    return data if isinstance(data, str) else data.decode(errors="replace")


def _named(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else f"error {code}"
