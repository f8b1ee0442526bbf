"""A connection to one Kafka broker, over which the controller speaks.

    closed ──deliver──▶ connected ──deliver──▶ connected ...
      ▲                     │
      └──any failure────────┘   the next deliver connects anew

One request is in flight at a time. What goes wrong, a cancelled delivery included, closes the socket: an answer that
comes late can then never be taken for the answer to something else. Brokers close what was idle for ten minutes;
that is seen before anything is sent, and is no failure.
"""

import asyncio
import contextlib
import struct
from typing import Final

import anyio
import anyio.to_thread

from kactl.config.protocol_level import ProtocolLevel
from kactl.errors import BrokerUnreachable, IllegalState, MalformedMessage
from kactl.messages.control import Request, Response, StopReplica
from kactl.model import Broker, Endpoint

from .codec import Decoder, Encoder, Frame, Versions, endpoint_of, versions_for
from .write_pacing import WritePacer

# Kafka's controller.socket.timeout.ms and request.timeout.ms.
CONNECT_TIMEOUT_MS: Final = 30_000
REQUEST_TIMEOUT_MS: Final = 30_000
# Brokers refuse more by default (socket.request.max.bytes). A million partitions with three replicas fit.
REQUEST_SIZE_MAX: Final = 100 * 1024 * 1024
# An answer says less of each partition than the request did, so no honest one is larger than the largest request.
RESPONSE_SIZE_MAX: Final = REQUEST_SIZE_MAX
# A row costs 0.1 microseconds, 0.7 if every topic has but one: up to here nothing else happens for half a millisecond
# to four. More is encoded in a worker thread.
ROWS_IN_LOOP_MAX: Final = 5_000
# An answer of this size speaks of some ten thousand partitions, at 0.2 microseconds each, or 0.35 under their names.
RESPONSE_IN_LOOP_MAX: Final = 256 * 1024
# The stream stops reading at twice this. Larger than its default, so that a large answer does not come in by spoonfuls.
_STREAM_LIMIT: Final = 1024 * 1024

# The highest correlation id; then they begin again.
_INT32_MAX: Final = 2**31 - 1


class KafkaTransport:
    """Reaches real brokers.

    Args:
        controller_id: who speaks; also how the controller names itself unless `client_id` is given.
        level: the protocol level that every broker is configured with.
        listener_name: which of a broker's listeners to connect to.
        request_size_max: in bytes; what the brokers' socket.request.max.bytes says.
    """

    def __init__(
        self,
        *,
        controller_id: int,
        level: ProtocolLevel,
        listener_name: str,
        client_id: str | None = None,
        connect_timeout_ms: float = CONNECT_TIMEOUT_MS,
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        request_size_max: int = REQUEST_SIZE_MAX,
    ) -> None:
        self.listener_name = listener_name
        self.connect_timeout_ms = connect_timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self.request_size_max = request_size_max
        self.versions: Versions = versions_for(level)
        client_id = str(controller_id) if client_id is None else client_id
        self.decoder = Decoder(self.versions)
        self.pacer = WritePacer()
        self._encoder = Encoder(self.versions, client_id=client_id, listener_name=listener_name)
        # Large bodies are encoded one after another: what all brokers get is so encoded once, by whoever comes first,
        # and two at a time would not be faster under one interpreter lock.
        self._encoding = anyio.Lock()

    def connect(self, broker: Broker) -> "KafkaConnection":
        return KafkaConnection(self, broker)

    async def encode(self, request: Request, correlation_id: int) -> Frame:
        """`request` in bytes, without holding up the event loop for long."""
        if self._is_light(request):
            return self._encoder.frame(request, correlation_id)
        async with self._encoding:
            if self._is_light(request):  # somebody else has encoded its body meanwhile
                return self._encoder.frame(request, correlation_id)
            return await anyio.to_thread.run_sync(self._encoder.frame, request, correlation_id)

    def _is_light(self, request: Request) -> bool:
        if isinstance(request, StopReplica):
            return len(request) <= ROWS_IN_LOOP_MAX
        return self._encoder.is_light(request.states, ROWS_IN_LOOP_MAX)


class KafkaConnection:
    """The way to one registration of one broker. Made by `KafkaTransport.connect`."""

    def __init__(self, transport: KafkaTransport, broker: Broker) -> None:
        self.broker = broker
        self._transport = transport
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_id = 0
        self._is_delivering = False
        self._is_closed = False

    async def deliver(self, request: Request) -> Response:
        """See `kactl.transports.base.Connection`."""
        if self._is_delivering:
            raise IllegalState(f"broker {self.broker.id}: a second request while one is in flight")
        self._is_delivering = True
        try:
            return await self._deliver(request)
        except BaseException:
            self._drop()
            raise
        finally:
            self._is_delivering = False

    async def close(self) -> None:
        """See `kactl.transports.base.Connection`. A request that is in flight fails."""
        self._is_closed = True
        self._drop()

    async def _deliver(self, request: Request) -> Response:
        correlation_id = self._correlation_id
        self._correlation_id = 0 if correlation_id == _INT32_MAX else correlation_id + 1
        frame = await self._transport.encode(request, correlation_id)
        if frame.size > self._transport.request_size_max:
            raise self._unreachable(
                f"a request of {frame.size} bytes is larger than the {self._transport.request_size_max} that brokers "
                "take: raise socket.request.max.bytes of every broker, and kactl's limit with it"
            )
        reader, writer = await self._connected()
        try:
            with anyio.fail_after(self._transport.request_timeout_ms / 1000):
                data = await self._exchange(reader, writer, frame)
        except TimeoutError as error:
            raise self._unreachable(f"no response within {self._transport.request_timeout_ms:g} ms") from error
        except asyncio.IncompleteReadError as error:
            who = "the connection to it was given up" if self._is_closed else "it closed the connection"
            raise self._unreachable(f"{who} before it had answered") from error
        except OSError as error:
            raise self._unreachable(f"the connection broke: {error}") from error
        decode = self._transport.decoder.response
        try:
            if len(data) <= RESPONSE_IN_LOOP_MAX:
                return decode(request, correlation_id, data)
            return await anyio.to_thread.run_sync(decode, request, correlation_id, data)
        except MalformedMessage as error:
            raise self._unreachable(f"what it sent is no answer: {error}") from error

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._is_closed:
            raise self._unreachable("the connection to it was given up")
        if self._streams is not None:
            reader, writer = self._streams
            if not reader.at_eof() and not writer.is_closing():
                return self._streams
            self._drop()
        endpoint = self._endpoint()
        address = f"{endpoint.host}:{endpoint.port} ({endpoint.listener})"
        try:
            with anyio.fail_after(self._transport.connect_timeout_ms / 1000):
                streams = await asyncio.open_connection(endpoint.host, endpoint.port, limit=_STREAM_LIMIT)
        except TimeoutError as error:
            limit_ms = self._transport.connect_timeout_ms
            raise self._unreachable(f"no connection to {address} within {limit_ms:g} ms") from error
        except (OSError, ValueError, OverflowError) as error:  # the latter two: no host name, no port number
            raise self._unreachable(f"no connection to {address}: {error}") from error
        if self._is_closed:
            streams[1].transport.abort()
            raise self._unreachable("the connection to it was given up")
        self._streams = streams
        return streams

    def _endpoint(self) -> Endpoint:
        name = self._transport.listener_name
        endpoint = endpoint_of(self.broker, name)
        if endpoint is None:
            known = ", ".join(endpoint.listener for endpoint in self.broker.endpoints) or "none"
            raise self._unreachable(
                f"it has no listener {name} (it has: {known}): set kactl's kafka.listener-name to one that every "
                f"broker has, or add {name} to the broker's advertised.listeners"
            )
        if endpoint.protocol != "PLAINTEXT":
            raise self._unreachable(
                f"its listener {name} speaks {endpoint.protocol}, kactl speaks PLAINTEXT only: set kactl's "
                "kafka.listener-name to a PLAINTEXT listener, or give the brokers one for the controller alone"
            )
        return endpoint

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: Frame) -> bytes:
        """Send, and read one frame; returned without its length."""
        # A broker that refuses a request closes while we may still be writing; that it closed is seen below.
        with contextlib.suppress(ConnectionError):
            await self._transport.pacer.write(writer, frame.buffers, frame.size)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 <= size <= RESPONSE_SIZE_MAX:
            raise self._unreachable(
                f"what it sent is no answer: a length of {size} bytes, at most {RESPONSE_SIZE_MAX} are taken"
            )
        return await reader.readexactly(size)

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(self.broker.id, reason)

    def _drop(self) -> None:
        """Close the socket at once, whatever is still on its way."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
