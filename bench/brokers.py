"""Brokers for benchmarks in one process: a transport that accepts every request and responds immediately.

`Answering` only responds. `Encoding` first encodes every request, as the transport to Kafka's brokers does: large
bodies in a worker thread, one after the other, and small ones immediately. There is no network."""

import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from kactl.config.protocol_level import LATEST
from kactl.decide.messages.control import (
    KafkaRequest,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kactl.model import Broker
from kactl.transports.kafka.codec import Encoder, versions_for

LISTENER: Final = "INTERNAL"
# Largest request that is encoded in the event loop: half a millisecond of work.
_ROWS_IN_LOOP_MAX: Final = 5_000


def success(request: Request) -> Response:
    """Returns a response without errors."""
    if isinstance(request, LeaderAndIsr):
        return LeaderAndIsrResponse(0, PartitionErrors.none())
    if isinstance(request, StopReplica):
        return StopReplicaResponse(0, PartitionErrors.none())
    return UpdateMetadataResponse(0)


class Encoding:
    """Transport that encodes each request.

    Args:
        on_bytes: is called for each encoded request with its broker, the request and the time (`time.perf_counter`).
    """

    def __init__(self, *, client_id: int, on_bytes: Callable[[int, Request, float], None] | None = None) -> None:
        self._encoder = Encoder(versions_for(LATEST), client_id=str(client_id), listener_name=LISTENER)
        self._encoding = anyio.Lock()
        self._on_bytes = on_bytes
        self.bytes = 0
        self.requests = 0

    def connect(self, broker: Broker) -> "EncodingConnection":
        return EncodingConnection(self, broker.id)

    async def take(self, broker: int, request: Request) -> Response:
        response, _ = await self.taking(broker, request)
        return response

    async def taking(self, broker: int, request: Request) -> tuple[Response, int]:
        """Encodes a request. Returns the response and the number of bytes."""
        assert isinstance(request, KafkaRequest)
        rows = len(request) if isinstance(request, StopReplica) else len(request.states)
        correlation = self.requests % 2**31
        if rows <= _ROWS_IN_LOOP_MAX:
            frame = self._encoder.frame(request, correlation)
        else:
            async with self._encoding:
                frame = await anyio.to_thread.run_sync(self._encoder.frame, request, correlation)
        self.requests += 1
        self.bytes += frame.size
        if self._on_bytes is not None:
            self._on_bytes(broker, request, time.perf_counter())
        return success(request), frame.size


class EncodingConnection:
    """Connection to one broker."""

    def __init__(self, brokers: Encoding, broker: int) -> None:
        self._brokers = brokers
        self._broker = broker

    async def deliver(self, request: Request) -> Response:
        return await self._brokers.take(self._broker, request)

    async def close(self) -> None: ...
