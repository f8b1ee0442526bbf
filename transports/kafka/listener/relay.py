"""Relay of requests to brokers: request and response are forwarded unchanged.

    no connection ──forward──▶ connected to one broker ──▶ the same, as long as it stays registered

Each connection of a client has its own connection to a broker, so that the broker's state of a connection belongs to
one client. The relay holds only a piece of a frame: if one side reads slowly, it reads slowly from the other.
"""

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator, Callable
from typing import Final

from kactl.model import Broker, Endpoint
from kactl.runtime.logs import logger
from kactl.transports.kafka.codec import endpoint_of

from .counters import PeerRejected
from .frames import Head, drained
from .limits import Limits
from .stream import PIECE_SIZE, Stream

log = logger(__name__)

# A failed broker stays registered for a few seconds, and its host refuses connections at once; a hanging one does not.
CONNECT_TIMEOUT_S: Final = 5.0
# No request to any broker takes longer; clients time out after 60 s at most.
RESPONSE_TIMEOUT_S: Final = 120.0

_LENGTH: Final = struct.Struct(">i")


class Relay:
    """Relay for one connection of a client.

    Args:
        listener_name: the listener to which the client is connected; brokers are reached by the endpoint of that name.
        brokers: returns the registered brokers.
        turn: the index of the first broker to try; differs between connections.
        buffer: the buffer of streams; see `stream.shared_buffer`.
    """

    def __init__(
        self,
        listener_name: str,
        brokers: Callable[[], list[Broker]],
        *,
        turn: int,
        limits: Limits,
        buffer: memoryview,
    ) -> None:
        self._listener_name = listener_name
        self._brokers = brokers
        self._turn = turn
        self._limits = limits
        self._broker: Broker | None = None
        self._buffer = buffer
        self._stream: Stream | None = None

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
            self._stream = None

    @property
    def _name(self) -> str:
        return "no broker" if self._broker is None else f"broker {self._broker.id}"

    def _targets(self) -> list[tuple[Broker, Endpoint]]:
        """Returns the brokers with a PLAINTEXT listener of that name; other protocols cannot be relayed."""
        endpoints = [(broker, endpoint_of(broker, self._listener_name)) for broker in self._brokers()]
        return [
            (broker, endpoint)
            for broker, endpoint in endpoints
            if endpoint is not None and endpoint.protocol == "PLAINTEXT"
        ]

    async def _connected(self, head: Head) -> Stream:
        targets = self._targets()
        if self._stream is not None:
            if any(broker == self._broker for broker, _ in targets) and not self._stream.at_eof:
                return self._stream
            self.close()
        loop = asyncio.get_running_loop()
        first = self._turn % len(targets) if targets else 0
        for broker, endpoint in itertools.chain(targets[first:], targets[:first]):
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    _, self._stream = await loop.create_connection(
                        lambda: Stream(self._buffer), endpoint.host, endpoint.port
                    )
            except (OSError, ValueError, OverflowError) as error:  # TimeoutError is an OSError
                log.info("no connection to broker %d for a relayed request: %s", broker.id, str(error) or "timeout")
                continue
            self._broker = broker
            return self._stream
        raise PeerRejected(
            "no_broker",
            f"request {head.key} is for a broker, and no broker with a listener {self._listener_name} is available",
        )
