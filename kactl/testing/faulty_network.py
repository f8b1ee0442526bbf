"""Transport with latency and faults around any other transport, on a real or a simulated loop."""

import asyncio
import random

import msgspec

from kactl.decide.messages.control import Request, Response
from kactl.model import Broker
from kactl.model.errors import BrokerUnreachable
from kactl.transports.base import Connection, Transport


class NetworkFaults(msgspec.Struct):
    """Faults of a `FaultyNetwork`; they may be changed at any moment.

    Attributes:
        latency_ms: each delivery takes a uniform time between the two values, half of it on the way there.
        lost_requests: probability that the broker does not receive a request.
        lost_responses: probability that the broker carries out a request and the response is lost.
        doubled_requests: probability that the broker receives a request twice.
        timeout_ms: time after which the delivery of a lost message fails.
    """

    latency_ms: tuple[float, float] = (0.0, 0.0)
    lost_requests: float = 0.0
    lost_responses: float = 0.0
    doubled_requests: float = 0.0
    timeout_ms: float = 1_000.0


class FaultyNetwork:
    """A transport with deliveries that take time and fail.

        network = FaultyNetwork(MemoryTransport(hub), rng=random.Random(7))
        network.faults.lost_responses = 0.1
        async with kactl.Controller(1, store=store, transport=network): ...

    Args:
        transport: any transport.
        rng: source of latencies and faults.
    """

    def __init__(self, transport: Transport, *, rng: random.Random, faults: NetworkFaults | None = None) -> None:
        self.faults = NetworkFaults() if faults is None else faults
        self._transport = transport
        self._rng = rng
        self._requests_cut: dict[int, None] = {}
        self._responses_cut: dict[int, None] = {}

    def connect(self, broker: Broker) -> "FaultyConnection":
        return FaultyConnection(self, broker.id, self._transport.connect(broker))

    def cut(self, broker: int, *, requests: bool = True, responses: bool = True) -> None:
        """Lose all messages to and from a broker, or of one direction, until `heal`."""
        if requests:
            self._requests_cut[broker] = None
        if responses:
            self._responses_cut[broker] = None

    def heal(self, broker: int) -> None:
        """End the cuts of a broker."""
        self._requests_cut.pop(broker, None)
        self._responses_cut.pop(broker, None)

    async def travel(self) -> None:
        """Wait for one way of a message."""
        await asyncio.sleep(self._rng.uniform(*self.faults.latency_ms) / 2000)

    async def lose(self, broker: int, what: str) -> None:
        """Wait for the time limit of a lost message.

        Raises:
            BrokerUnreachable: always.
        """
        await asyncio.sleep(self.faults.timeout_ms / 1000)
        raise BrokerUnreachable(broker, f"the {what} was lost: no response within {self.faults.timeout_ms:g} ms")

    def loses_request(self, broker: int) -> bool:
        return broker in self._requests_cut or self._rng.random() < self.faults.lost_requests

    def loses_response(self, broker: int) -> bool:
        return broker in self._responses_cut or self._rng.random() < self.faults.lost_responses

    def doubles_request(self) -> bool:
        return self._rng.random() < self.faults.doubled_requests


class FaultyConnection:
    """Connection of a `FaultyNetwork`."""

    def __init__(self, network: FaultyNetwork, broker: int, connection: Connection) -> None:
        self._network = network
        self._broker = broker
        self._connection = connection

    async def deliver(self, request: Request) -> Response:
        network = self._network
        await network.travel()
        if network.loses_request(self._broker):
            await network.lose(self._broker, "request")
        response = await self._connection.deliver(request)
        if network.doubles_request():
            response = await self._connection.deliver(request)
        await network.travel()
        if network.loses_response(self._broker):
            await network.lose(self._broker, "response")
        return response

    async def close(self) -> None:
        await self._connection.close()
