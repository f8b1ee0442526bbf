"""Relay of requests to brokers, and of their responses.

    no connection ──forward──▶ connected to one broker ──▶ the same, as long as it stays registered

Each connection of a client has its own connection to a broker, so that the broker's state of a connection belongs to
one client. The relay holds only a piece of a frame: if one side reads slowly, it reads slowly from the other.

Without credentials a relay reaches brokers' listeners in clear text, where all clients are the same. With credentials
it logs in as kactl, and a broker takes its requests for kactl's own: callers authorize them before. A client's password
or proof is never passed on.
"""

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Final

from kactl.model import Broker, Endpoint
from kactl.runtime.connecting import connect
from kactl.runtime.logs import logger
from kactl.security.tls.encryption import Encryption
from kactl.transports.kafka.codec import endpoint_of
from kactl.transports.kafka.credentials import BrokerCredentials, LoginConnection, LoginFailed, failed_handshake

from .counters import PeerRejected
from .frames import Head, drained
from .limits import Limits
from .stream import PIECE_SIZE, Stream

log = logger(__name__)

# A failed broker stays registered for a few seconds, and its host refuses connections at once; a hanging one does not.
CONNECT_TIMEOUT_S: Final = 5.0
# No request to any broker takes longer; clients time out after 60 s at most.
RESPONSE_TIMEOUT_S: Final = 120.0
# Kind of the rejection of a request that was sent to no broker.
NO_BROKER: Final = "no_broker"

_LENGTH: Final = struct.Struct(">i")
# Of the login. A relayed request keeps the client's own.
_CLIENT_ID: Final = "kactl-relay"


class Relay:
    """Relay for one connection of a client.

    Args:
        listener_name: the listener to which the client is connected; brokers are reached by the endpoint of that name.
        brokers: returns the registered brokers.
        turn: the index of the first broker to try; differs between connections.
        buffer: the buffer of streams; see `stream.shared_buffer`.
        credentials: of kactl at the brokers; None for brokers' listeners of protocol PLAINTEXT only.
        allowed: returns whether anything may be relayed now.
    """

    def __init__(
        self,
        listener_name: str,
        brokers: Callable[[], list[Broker]],
        *,
        turn: int,
        limits: Limits,
        buffer: memoryview,
        credentials: BrokerCredentials | None = None,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._listener_name = listener_name
        self._brokers = brokers
        self._turn = turn
        self._limits = limits
        self._broker: Broker | None = None
        self._buffer = buffer
        self._stream: Stream | None = None
        self._credentials = credentials
        self._allowed = allowed
        self._login: LoginConnection | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether requests may be relayed now."""
        return self._allowed()

    @property
    def possible(self) -> bool:
        """Whether any registered broker is a target."""
        return bool(self._targets())

    async def forward(self, head: Head, pieces: AsyncIterator[bytes], client: Stream) -> None:
        """Relay one request and its response.

        Args:
            pieces: the bytes after the head.

        Raises:
            Refused: no broker is available, or it sent no response; the client's connection is closed, and the client
                retries.
        """
        broker = await self._connected(head)
        try:
            broker.write(head.raw)
            async for piece in pieces:
                broker.write(piece)
                async with asyncio.timeout(self._limits.write_timeout_s):
                    await broker.drain()
            await self._forward_response(broker, client)
        except TimeoutError:
            raise PeerRejected("relay", f"{self._name} did not read the request or send a response in time") from None
        except OSError as error:
            raise PeerRejected("relay", f"{self._name} or the client closed: {error}") from None

    async def _forward_response(self, broker: Stream, client: Stream) -> None:
        """Forward one frame from the broker to the client, piece by piece."""
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            length = await broker.peek(_LENGTH.size)
        if len(length) < _LENGTH.size:
            raise PeerRejected("relay", f"{self._name} closed without a response")
        (remaining,) = _LENGTH.unpack(length)
        if remaining < 0:
            raise PeerRejected("relay", f"{self._name} sent a malformed response")
        remaining += _LENGTH.size
        while remaining:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                piece = await broker.read(min(remaining, PIECE_SIZE))
            if not piece:
                raise PeerRejected("relay", f"{self._name} closed within its response")
            remaining -= len(piece)
            client.write(piece)
            await drained(client, self._limits)

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._stream is not None:
            self._stream.abort()
            self._stream = self._login = None

    @property
    def _name(self) -> str:
        return "no broker" if self._broker is None else f"broker {self._broker.id}"

    def _targets(self) -> list[tuple[Broker, Endpoint]]:
        """Returns the brokers with a listener of that name whose protocol this relay can speak."""
        endpoints = [(broker, endpoint_of(broker, self._listener_name)) for broker in self._brokers()]
        return [
            (broker, endpoint)
            for broker, endpoint in endpoints
            if endpoint is not None and not self._missing(endpoint.protocol)
        ]

    def _missing(self, protocol: str) -> str:
        """Returns what is missing for a protocol; empty if nothing is."""
        if self._credentials is not None:
            return self._credentials.missing(protocol)
        return "" if protocol == "PLAINTEXT" else "requests are relayed to brokers in clear text only"

    async def _connected(self, head: Head) -> Stream:
        targets = self._targets()
        if self._stream is not None:
            if any(broker == self._broker for broker, _ in targets) and not self._stream.at_eof:
                if self._login is None or not self._login.is_due:
                    return self._stream
                with contextlib.suppress(OSError, LoginFailed, asyncio.IncompleteReadError):
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        await self._login.run()
                    return self._stream
            self.close()
        first = self._turn % len(targets) if targets else 0
        for broker, endpoint in itertools.chain(targets[first:], targets[:first]):
            try:
                await self._connect(endpoint)
            except (OSError, LoginFailed, asyncio.IncompleteReadError) as error:
                log.info("no connection to broker %d for a relayed request: %s", broker.id, failed_handshake(error))
                continue
            self._broker = broker
            assert self._stream is not None
            return self._stream
        raise PeerRejected(NO_BROKER, f"request {head.key} is for a broker, and {self._none_available()}")

    def _none_available(self) -> str:
        missing = {
            self._missing(endpoint.protocol)
            for broker in self._brokers()
            if (endpoint := endpoint_of(broker, self._listener_name)) is not None
        } - {""}
        reasons = f" ({'; '.join(sorted(missing))})" if missing else ""
        return f"no broker with a listener {self._listener_name} is available{reasons}"

    async def _connect(self, endpoint: Endpoint) -> None:
        """Connect to a broker, and log in if its listener demands it."""
        tls, name = None, None
        if self._credentials is not None and endpoint.protocol.endswith("SSL"):
            tls, name = self._credentials.tls, self._credentials.server_name or endpoint.host

        async def complete(connection: socket.socket) -> None:
            made = Stream(self._buffer)
            encryption = None if tls is None else Encryption(tls, made, self._buffer, server_hostname=name)
            loop, transport = asyncio.get_running_loop(), None
            try:
                transport, _ = await loop.create_connection(lambda: encryption or made, sock=connection)
                if encryption is not None:
                    await encryption.handshake()
                self._stream = made
                if self._credentials is not None and endpoint.protocol.startswith("SASL"):
                    ends = _LoginStream(made)
                    login = LoginConnection(self._credentials, ends, ends, client_id=_CLIENT_ID, host=endpoint.host)
                    await login.run()
                    self._login = login
            except BaseException:
                if transport is not None:
                    transport.abort()
                self._stream = None
                raise

        failures = (OSError, LoginFailed, asyncio.IncompleteReadError)
        await connect(endpoint.host, endpoint.port, complete, limit_s=CONNECT_TIMEOUT_S, failures=failures)


class _LoginStream:
    """A stream in the form that a login takes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def readexactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            piece = await self._stream.read(size - len(content))
            if not piece:
                raise asyncio.IncompleteReadError(content, size)
            content += piece
        return content

    def write(self, data: bytes) -> None:
        self._stream.write(data)
