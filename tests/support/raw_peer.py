"""The client's side of a TLS connection, of which a test decides when it sends what."""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Callable
from typing import Any


class RawPeer:
    """The client's side of a connection, whose test decides about each step."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.raw = raw
        self.raw.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost", session=session)

    async def handshake(self, last: bytes = b"", *, then: bytes = b"") -> None:
        """Complete the handshake. `last` is sent together with its last message, and `then` as in `send`."""
        await self._finish(self.tls.do_handshake)
        await self.send(last, then=then)

    async def send(self, data: bytes, *, then: bytes = b"") -> None:
        """Send data, and in one piece with it bytes that are not encrypted."""
        if data:
            self.tls.write(data)
        await self._loop.sock_sendall(self.raw, self.sealed() + then)

    @property
    def pending(self) -> int:
        """The number of encrypted bytes that have not been sent."""
        return self._outgoing.pending

    def sealed(self) -> bytes:
        """Returns these bytes, which are not sent any more."""
        return self._outgoing.read()

    async def receive(self, size: int = 65_536) -> bytes:
        """Returns what comes next; nothing at an end that TLS has announced."""
        received: bytes = await self._finish(functools.partial(self.tls.read, size))
        return received

    async def close(self) -> None:
        """Announce the end, and wait until the other side has announced its own."""
        await self._finish(self.tls.unwrap)

    async def flush(self) -> None:
        if self.pending:
            await self._loop.sock_sendall(self.raw, self.sealed())

    async def until_closed(self) -> None:
        """Wait until the other side has closed the connection, whatever it sends before."""
        with contextlib.suppress(ConnectionError):
            while await self._loop.sock_recv(self.raw, 65_536):
                pass

    async def _finish(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                await self.flush()
                if data := await self._loop.sock_recv(self.raw, 65_536):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
