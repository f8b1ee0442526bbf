"""Programs that speak the frames of the tcp network directly, to send what kactl does not."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from kactl.model.errors import KactlError
from kactl.runtime.secret import Secret
from kactl.runtime.user_state import own_secret
from kactl.testing.contracts.network import PATIENCE_S
from kactl.transports.tcp import handshake, wire
from kactl.transports.tcp.framing import Bounds, FrameDecoder, Kind, Message, frames_of
from kactl.transports.tcp.handshake import Challenge, Hello, Proof, Welcome
from kactl.transports.tcp.identity import Identity, Role, proof

PART = 256 * 1024


class RawClient:
    """A connection whose bytes the test decides."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder(Bounds(PART, 64 << 20, 100))

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, kind: Kind, head: bytes, **changes: Any) -> None:
        await self.write(b"".join(frames_of(Message(kind, 1, head, **changes), PART)))

    async def receive(self) -> Message:
        """Returns the next message that is no sign of life. Raises EOFError at the end of the connection."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                message = self._decoder.next()
                if message is not None and message.kind is not Kind.PING:
                    return message
                if message is None:
                    data = await self.reader.read(65_536)
                    if not data:
                        raise EOFError
                    self._decoder.feed(data)

    async def ended(self) -> None:
        """Wait until the other side has closed the connection."""
        with anyio.fail_after(PATIENCE_S):
            try:
                while await self.reader.read(65_536):
                    pass
            except OSError:
                return

    async def greet(self, hello: Hello, secret: bytes | None = None) -> Welcome:
        """Perform the handshake. Raises the error of the listener."""
        await self.prove(hello, secret)
        return msgspec.msgpack.decode(await self._answer(), type=Welcome)

    async def prove(self, hello: Hello, secret: bytes | None = None) -> None:
        """Perform the handshake up to the proof of a secret, or of that of this user."""
        head = msgspec.msgpack.encode(hello)
        await self.send(Kind.HANDSHAKE, head)
        challenge = msgspec.msgpack.decode(await self._answer(), type=Challenge)
        shared = own_secret() if secret is None else Secret(secret)
        own = b"" if shared is None else proof(shared, "dialer", head, bytes(challenge.claims))
        await self.send(Kind.HANDSHAKE, msgspec.msgpack.encode(Proof(own)))

    async def _answer(self) -> bytes:
        message = await self.receive()
        if message.error:
            error: KactlError = wire.decode(message.head, wire.ERRORS)
            raise error
        return bytes(message.head)


@asynccontextmanager
async def raw_client(
    address: str | None, context: ssl.SSLContext | None = None, *, source: str | None = None
) -> AsyncIterator[RawClient]:
    """Open a connection from an address of this machine."""
    assert address is not None
    host, _, port = address.rpartition(":")
    local = None if source is None else (source, 0)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, local_addr=local)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


def hello_of(broker: int | str = 1, *, cluster: str = "kactl", role: Role = Role.PARTICIPANT, **options: Any) -> Hello:
    return handshake.hello(Identity(cluster, role, str(broker)), silence_ms=60_000, **options)
