"""Connection from the controller to one Kafka broker.

    closed ──deliver──▶ connected, logged in ──deliver──▶ ...
      ▲                          │
      └──any failure─────────────┘   the next deliver connects anew

One request is in flight at a time. Every failure, including a cancelled delivery, closes the socket, so that a late
response is never matched to another request. Brokers close connections that were idle for ten minutes; this is detected
before sending, and is not a failure.
"""

import asyncio
import contextlib
import socket
import struct
from typing import Final

import anyio

from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.control import KafkaRequest, Request, Response, StopReplica
from kactl.model import Broker, Endpoint
from kactl.model.errors import BrokerUnreachable, ErrorCode, IllegalState, MalformedMessage
from kactl.runtime import forks
from kactl.runtime.addresses import host_and_port
from kactl.runtime.connecting import connect
from kactl.runtime.threads import run_in_thread

from .codec import Decoder, Encoder, Frame, Versions, endpoint_of, versions_for
from .credentials import BrokerCredentials, LoginConnection, LoginFailed, failed_handshake
from .write_pacing import WritePacer

# Kafka's controller.socket.timeout.ms and request.timeout.ms.
CONNECT_TIMEOUT_MS: Final = 30_000
REQUEST_TIMEOUT_MS: Final = 30_000
# Brokers reject larger requests by default (socket.request.max.bytes). A million partitions with three replicas fit.
REQUEST_SIZE_MAX: Final = 100 * 1024 * 1024
# A response has fewer bytes per partition than its request, so a valid one is not larger than the largest request.
RESPONSE_SIZE_MAX: Final = REQUEST_SIZE_MAX
# After the first rejection of kactl's login or rights by a broker, and the longest; it doubles in between.
REJECTED_PAUSE_MS: Final = 1_000.0
REJECTED_PAUSE_MS_MAX: Final = 30_000.0
# A row takes 0.1 microseconds to encode, 0.7 if every topic has only one row: up to this number the loop is blocked for
# 0.5 to 4 ms. More rows are encoded in a worker thread.
ROWS_IN_LOOP_MAX: Final = 5_000
# A response of this size has about 10,000 partitions, at 0.2 microseconds each, or 0.35 with topic names.
RESPONSE_IN_LOOP_MAX: Final = 256 * 1024
# The stream stops reading at twice this size. It is larger than the default, so that large responses arrive fast.
_STREAM_LIMIT: Final = 1024 * 1024

# The highest correlation id; the next one is 0.
_INT32_MAX: Final = 2**31 - 1


class KafkaTransport:
    """The transport to real Kafka brokers.

    Args:
        controller_id: the id of the controller; also its client id unless `client_id` is given.
        level: the protocol level that every broker is configured with.
        listener_name: which of a broker's listeners to connect to.
        request_size_max: in bytes; the value of the brokers' socket.request.max.bytes.
        credentials: for listeners with other security protocols than PLAINTEXT.
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
        credentials: BrokerCredentials | None = None,
    ) -> None:
        self.listener_name = listener_name
        self.connect_timeout_ms = connect_timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self.request_size_max = request_size_max
        self.versions: Versions = versions_for(level)
        client_id = str(controller_id) if client_id is None else client_id
        self.client_id = client_id
        self.credentials = credentials or BrokerCredentials()
        self.decoder = Decoder(self.versions)
        self.pacer = WritePacer()
        self._encoder = Encoder(self.versions, client_id=client_id, listener_name=listener_name)
        # Large bodies are encoded one after another: the first connection encodes the common parts for all of them, and
        # two at a time would not be faster under one interpreter lock.
        self._encoding = anyio.Lock()

    def connect(self, broker: Broker) -> "KafkaConnection":
        return KafkaConnection(self, broker)

    async def encode(self, request: KafkaRequest, correlation_id: int) -> Frame:
        """Returns the encoded request, without blocking the event loop for long."""
        if self._is_light(request):
            return self._encoder.frame(request, correlation_id)
        async with self._encoding:
            if self._is_light(request):  # another connection has encoded its body meanwhile
                return self._encoder.frame(request, correlation_id)
            return await run_in_thread(self._encoder.frame, request, correlation_id)

    def _is_light(self, request: KafkaRequest) -> bool:
        if isinstance(request, StopReplica):
            return len(request) <= ROWS_IN_LOOP_MAX
        return self._encoder.is_light(request.states, ROWS_IN_LOOP_MAX)


class KafkaConnection:
    """Connection to one registration of one broker, created by `KafkaTransport.connect`."""

    def __init__(self, transport: KafkaTransport, broker: Broker) -> None:
        self.broker = broker
        self._transport = transport
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._login: LoginConnection | None = None
        self._rejections = 0  # in a row, of the login or of the principal's rights
        self._correlation_id = 0
        self._is_delivering = False
        self._is_closed = False

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        if self._streams is not None:
            forks.bury(self._streams[1].transport)

    async def deliver(self, request: Request) -> Response:
        if not isinstance(request, KafkaRequest):
            raise self._unreachable(f"{type(request).__name__} is only for participants")
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

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request of another kind than those of controllers, with a header of version 1.

        Returns:
            the response after its length, with its header.

        Raises:
            BrokerUnreachable: it could not be sent, or there is no response.
        """
        header = struct.pack(">hhih", key, version, 0, 0)  # correlation id 0, no client id
        data = struct.pack(">i", len(header) + len(body)) + header + body
        reader, writer = await self._connected()
        return await self._answered(reader, writer, Frame((data,), len(data)))

    async def close(self) -> None:
        """See `kactl.transports.base.Connection`. A request that is in flight fails."""
        self._is_closed = True
        self._drop()

    async def _deliver(self, request: KafkaRequest) -> Response:
        correlation_id = self._correlation_id
        self._correlation_id = 0 if correlation_id == _INT32_MAX else correlation_id + 1
        frame = await self._transport.encode(request, correlation_id)
        if frame.size > self._transport.request_size_max:
            raise self._unreachable(
                f"a request of {frame.size} bytes is larger than the {self._transport.request_size_max} that brokers "
                "take: raise socket.request.max.bytes of every broker, and kactl's limit with it"
            )
        reader, writer = await self._connected()
        data = await self._answered(reader, writer, frame)
        response = await self._decode(request, correlation_id, data)
        if response.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            principal = self._transport.credentials.principal
            raise self._rejected(
                f"it rejects {type(request).__name__} from {principal} (CLUSTER_AUTHORIZATION_FAILED): add {principal} "
                "to super.users of every broker, or grant it ClusterAction"
            )
        self._rejections = 0
        return response

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: Frame) -> bytes:
        try:
            with anyio.fail_after(self._transport.request_timeout_ms / 1000):
                return await self._exchange(reader, writer, frame)
        except TimeoutError as error:
            raise self._unreachable(f"no response within {self._transport.request_timeout_ms:g} ms") from error
        except asyncio.IncompleteReadError as error:
            who = "the connection to it was given up" if self._is_closed else "it closed the connection"
            raise self._unreachable(f"{who} before it had answered") from error
        except OSError as error:
            raise self._unreachable(f"the connection broke: {error}") from error

    async def _decode(self, request: KafkaRequest, correlation_id: int, data: bytes) -> Response:
        decode = self._transport.decoder.response
        try:
            if len(data) <= RESPONSE_IN_LOOP_MAX:
                return decode(request, correlation_id, data)
            return await run_in_thread(decode, request, correlation_id, data)
        except MalformedMessage as error:
            raise self._unreachable(f"malformed response: {error}") from error

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._is_closed:
            raise self._unreachable("the connection to it was given up")
        if self._streams is not None:
            reader, writer = self._streams
            if not reader.at_eof() and not writer.is_closing():
                if self._login is not None and self._login.is_due:
                    await self._log_in(self._login)
                return self._streams
            self._drop()
        endpoint = self._endpoint()
        address = f"{host_and_port(endpoint.host, endpoint.port)} ({endpoint.listener})"
        try:
            streams = await self._open(endpoint)
        except OSError as error:
            raise self._unreachable(f"no connection to {address}: {failed_handshake(error)}") from error
        if self._is_closed:
            streams[1].transport.abort()
            raise self._unreachable("the connection to it was given up")
        self._streams = streams
        forks.share(self)
        if endpoint.protocol.startswith("SASL"):
            login = LoginConnection(
                self._transport.credentials, *streams, client_id=self._transport.client_id, host=endpoint.host
            )
            await self._log_in(login)
            self._login = login
        return streams

    async def _open(self, endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        credentials, is_encrypted = self._transport.credentials, endpoint.protocol.endswith("SSL")

        async def complete(connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            if not is_encrypted:
                return await asyncio.open_connection(sock=connection, limit=_STREAM_LIMIT)
            name = credentials.server_name or endpoint.host
            return await asyncio.open_connection(
                sock=connection, limit=_STREAM_LIMIT, ssl=credentials.tls, server_hostname=name
            )

        return await connect(endpoint.host, endpoint.port, complete, limit_s=self._transport.connect_timeout_ms / 1000)

    async def _log_in(self, login: LoginConnection) -> None:
        """Log in, within the time limit of a connection. A failure is one of the delivery, which closes the socket."""
        try:
            with anyio.fail_after(self._transport.connect_timeout_ms / 1000):
                await login.run()
        except LoginFailed as error:
            raise self._rejected(str(error)) from error
        except TimeoutError as error:
            limit_ms = self._transport.connect_timeout_ms
            raise self._unreachable(f"the login took longer than {limit_ms:g} ms") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise self._unreachable("it closed the connection during the login") from error

    def _endpoint(self) -> Endpoint:
        name = self._transport.listener_name
        endpoint = endpoint_of(self.broker, name)
        if endpoint is None:
            known = ", ".join(endpoint.listener for endpoint in self.broker.endpoints) or "none"
            raise self._unreachable(
                f"it has no listener {name} (it has: {known}): set kactl's kafka.listener-name to one that every "
                f"broker has, or add {name} to the broker's advertised.listeners"
            )
        if missing := self._transport.credentials.missing(endpoint.protocol):
            raise self._unreachable(f"its listener {name} speaks {endpoint.protocol}: {missing}")
        return endpoint

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: Frame) -> bytes:
        """Send a frame and read one. Returns it without its length."""
        # A broker that rejects a request may close during the write; the read below detects it.
        with contextlib.suppress(ConnectionError):
            await self._transport.pacer.write(writer, frame.buffers, frame.size)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        if not 0 <= size <= RESPONSE_SIZE_MAX:
            raise self._unreachable(
                f"malformed response: a length of {size} bytes, at most {RESPONSE_SIZE_MAX} are taken"
            )
        return await reader.readexactly(size)

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(self.broker.id, reason)

    def _rejected(self, reason: str) -> BrokerUnreachable:
        """Returns the error of a broker that has to be configured before it can accept anything."""
        pause_ms = min(REJECTED_PAUSE_MS * 2 ** min(self._rejections, 10), REJECTED_PAUSE_MS_MAX)
        self._rejections += 1
        return BrokerUnreachable(self.broker.id, reason, retry_after_ms=pause_ms)

    def _drop(self) -> None:
        """Close the socket at once, without sending buffered bytes."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = self._login = None
