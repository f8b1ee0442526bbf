"""Relay of requests that brokers answer: a request goes to one as it is, and its answer comes back as it is.

    no connection ──forward──▶ connected to one broker ──▶ the same, as long as it stays registered

One connection to a broker for each connection of a client, so that what a broker knows of a connection stays together.
Nothing is held but a piece of a frame: a peer that reads slowly is read from slowly.
"""

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator, Callable
from typing import Final

from kactl.model import Broker, Endpoint
from kactl.runtime.logs import logger
from kactl.transports.kafka.codec import endpoint_of

from .counters import Refused
from .frames import Head, drained
from .limits import Limits
from .stream import PIECE_SIZE, Stream

log = logger(__name__)

# A broker that has died stays registered for a few seconds, and refuses at once; one that hangs does not even refuse.
CONNECT_TIMEOUT_S: Final = 5.0
# Nothing that is asked of any broker takes longer; clients give up after 60 s at most.
ANSWER_TIMEOUT_S: Final = 120.0

_LENGTH: Final = struct.Struct(">i")


class Relay:
    """The way to brokers, for one connection of a client.

    Args:
        listener_name: through which the client came; brokers are spoken to through their listener of this name.
        brokers: the registered ones, at each call.
        turn: from which of them to begin to look; differs from connection to connection.
        buffer: into which streams read; see `stream.shared_buffer`.
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
        self._to: Broker | None = None
        self._buffer = buffer
        self._stream: Stream | None = None

    @property
    def possible(self) -> bool:
        """Whether there is a broker to relay to."""
        return bool(self._targets())

    async def forward(self, head: Head, pieces: AsyncIterator[bytes], client: Stream) -> None:
        """Relay one request and its answer.

        Args:
            pieces: what follows the head.

        Raises:
            Refused: nobody is there, or the broker did not answer; the client finds its connection closed and tries
                again.
        """
        broker = await self._connected(head)
        try:
            broker.write(head.raw)
            async for piece in pieces:
                broker.write(piece)
                async with asyncio.timeout(self._limits.write_timeout_s):
                    await broker.drain()
            await self._back(broker, client)
        except TimeoutError:
            raise Refused("relay", f"{self._name} did not take a request, or gave no answer, in time") from None
        except OSError as error:
            raise Refused("relay", f"{self._name} or the client closed: {error}") from None

    async def _back(self, broker: Stream, client: Stream) -> None:
        """One frame from the broker to the client, piece by piece."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            announced = await broker.peek(_LENGTH.size)
        if len(announced) < _LENGTH.size:
            raise Refused("relay", f"{self._name} closed in place of an answer")
        (left,) = _LENGTH.unpack(announced)
        if left < 0:
            raise Refused("relay", f"{self._name} sent what is no answer")
        left += _LENGTH.size
        while left:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                piece = await broker.read(min(left, PIECE_SIZE))
            if not piece:
                raise Refused("relay", f"{self._name} closed in the middle of its answer")
            left -= len(piece)
            client.write(piece)
            await drained(client, self._limits)

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._stream is not None:
            self._stream.abort()
            self._stream = None

    @property
    def _name(self) -> str:
        return "no broker" if self._to is None else f"broker {self._to.id}"

    def _targets(self) -> list[tuple[Broker, Endpoint]]:
        """Brokers with a listener of that name. What is encrypted or authenticated cannot be relayed."""
        found = [(broker, endpoint_of(broker, self._listener_name)) for broker in self._brokers()]
        return [
            (broker, endpoint)
            for broker, endpoint in found
            if endpoint is not None and endpoint.protocol == "PLAINTEXT"
        ]

    async def _connected(self, head: Head) -> Stream:
        targets = self._targets()
        if self._stream is not None:
            if any(broker == self._to for broker, _ in targets) and not self._stream.at_eof:
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
                log.info("broker %d cannot be relayed to: %s", broker.id, str(error) or "it did not answer")
                continue
            self._to = broker
            return self._stream
        raise Refused(
            "no_broker", f"request {head.key} is for a broker, and none with a listener {self._listener_name} answers"
        )
