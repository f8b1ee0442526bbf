"""A client of the wire protocol that hides nothing: it records each frame, with ids and numbers as sent."""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from kactl.stores.zookeeper.connection import messages
from kactl.stores.zookeeper.connection.messages import Session
from kactl.stores.zookeeper.request import error_of

# A server answers in milliseconds; a busy machine takes longer. Virtual time in the model.
ANSWER_S: Final = 30.0
PING_S: Final = 0.1
_LENGTH: Final = struct.Struct("!i")
AUTH_XID: Final = -4

# Connects a protocol to the server.
Dial = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]


class RawClient(asyncio.Protocol):
    """One connection.

    Attributes:
        heard: ("answer", zxid, request, result), ("event", kind, path) and ("closed",), in the order of receipt.
        session: once granted.
        timeout_ms: as granted; 0 if the session has ended, None if there is no answer yet.
        zxid: the last transaction that an answer showed.
    """

    def __init__(self, heard: list[Any]) -> None:
        self.heard = heard
        self.session = Session()
        self.timeout_ms: int | None = None
        self.zxid = 0
        self.is_closed = False
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._xid = 0
        self._asked: list[tuple[int, Any]] = []
        self._news = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self.heard.append(("closed",))
        self._news.set()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if len(self._data) < _LENGTH.size + length:
                break
            frame = self._data[_LENGTH.size : _LENGTH.size + length]
            self._data = self._data[_LENGTH.size + length :]
            self._take(frame)
        self._news.set()

    def _take(self, frame: bytes) -> None:
        if self.timeout_ms is None:
            granted = messages.granted(frame)
            self.session, self.timeout_ms = granted.session, granted.timeout_ms
            return
        xid, zxid, code = messages.reply_header(frame)
        if xid == messages.PING_XID:
            return
        if xid == messages.WATCH_XID:
            kind, path = messages.event(frame)
            self.heard.append(("event", kind, path))
            return
        expected, request = self._asked.pop(0)
        assert xid == expected, f"answer {xid}, but {expected} is the next"
        self.zxid = max(self.zxid, zxid)
        result = error_of(code) if code else _deserialized(request, frame)
        self.heard.append(("answer", zxid, request, result))

    # -- operations for tests

    async def connect(self, dial: Dial, session: Session, *, timeout_ms: int, zxid: int = 0) -> None:
        """Connect and shake hands; on return a session is granted or refused, or the server has closed."""
        await dial(lambda: self)
        self._write(messages.connect(session, timeout_ms=timeout_ms, zxid=zxid))
        await self._until(lambda: self.timeout_ms is not None)
        self.zxid = max(self.zxid, zxid)

    async def ask(self, requests: Sequence[Any], *, xid: int | None = None) -> None:
        """Send requests together, and wait for all answers or the end of the connection."""
        frames: list[bytes] = []
        for request in requests:
            self._xid += 1
            number = self._xid if xid is None else xid
            self._asked.append((number, request))
            frames += messages.request_frame(number, request)
        self._write(b"".join(frames))
        await self._until(lambda: not self._asked)

    async def end_session(self) -> None:
        self._xid += 1
        self._asked.append((self._xid, None))
        self._write(messages.close(self._xid))
        await self.closed()

    async def closed(self) -> None:
        """Wait for the server to close the connection."""
        await self._until(lambda: False)

    def ping(self) -> None:
        if not self.is_closed:
            self._write(messages.PING)

    def drop(self) -> None:
        """Close the connection, not the session."""
        assert self._transport is not None
        self._transport.abort()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not done() and not self.is_closed:
                self._news.clear()
                await self._news.wait()


async def kept_alive(clients: Sequence[RawClient], wait: Awaitable[None]) -> None:
    """Wait for something while other clients keep their sessions."""

    async def ping() -> None:
        while True:
            for client in clients:
                client.ping()
            await asyncio.sleep(PING_S)

    task = asyncio.create_task(ping())
    try:
        await wait
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _deserialized(request: Any, frame: bytes) -> Any:
    deserialize = getattr(request, "deserialize", None)
    return None if deserialize is None else deserialize(frame, messages.BODY)
