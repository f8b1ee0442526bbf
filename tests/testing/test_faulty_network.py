"""A transport with latency and faults around another one."""

import asyncio
import random
from typing import Any

import pytest

from kactl.decide.messages.control import Request, Response, UpdateMetadataResponse
from kactl.model import Broker
from kactl.model.errors import BrokerUnreachable
from kactl.testing import LoopClock, sim
from kactl.testing.contracts.network import ConnectBroker, NetworkContract, Respond
from kactl.testing.faulty_network import FaultyNetwork, NetworkFaults
from kactl.transports.base import Transport
from kactl.transports.memory import MemoryHub, MemoryTransport
from tests.support.control_requests import update_metadata

from .running import this_loop

REQUEST = update_metadata()


class Handler:
    """Broker that answers with the result of a function."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    async def handle(self, request: Request) -> Response:
        return await self._respond(request)


class TestFaultyNetwork(NetworkContract):
    @pytest.fixture
    def reached(self) -> ConnectBroker:
        async def reach(respond: Respond) -> tuple[Transport, Broker]:
            hub = MemoryHub()
            hub.attach(1, Handler(respond))
            faults = NetworkFaults(latency_ms=(1, 4))
            return FaultyNetwork(
                MemoryTransport(hub, request_timeout_ms=200), rng=random.Random(1), faults=faults
            ), Broker(1, 77)

        return reach


def run_with(faults: NetworkFaults, **cut: Any) -> tuple[int, float, bool]:
    """Deliver one request. Returns how often the broker received it, the time taken, and whether it was answered."""

    async def main() -> tuple[int, float, bool]:
        received = []

        async def respond(request: Request) -> Response:
            received.append(request)
            return UpdateMetadataResponse(error=0)

        hub = MemoryHub()
        hub.attach(1, Handler(respond))
        network = FaultyNetwork(MemoryTransport(hub, clock=LoopClock()), rng=random.Random(1), faults=faults)
        if cut:
            network.cut(1, **cut)
        answered = True
        try:
            await network.connect(Broker(1, 77)).deliver(REQUEST)
        except BrokerUnreachable:
            answered = False
        took_s = round(this_loop().now_s, 6)
        network.heal(1)
        network.faults = NetworkFaults()
        await network.connect(Broker(1, 77)).deliver(REQUEST)
        await asyncio.sleep(0)
        return len(received) - 1, took_s, answered

    return sim.run(main)


@pytest.mark.parametrize(
    ("faults", "cut", "expected"),
    [
        (NetworkFaults(latency_ms=(10, 10)), {}, (1, 0.01, True)),
        (NetworkFaults(lost_requests=1.0), {}, (0, 1.0, False)),
        (NetworkFaults(lost_responses=1.0), {}, (1, 1.0, False)),
        (NetworkFaults(doubled_requests=1.0), {}, (2, 0.0, True)),
        (NetworkFaults(timeout_ms=500), {"responses": False}, (0, 0.5, False)),
        (NetworkFaults(timeout_ms=500), {"requests": False}, (1, 0.5, False)),
    ],
)
def test_faults_of_a_delivery(faults: NetworkFaults, cut: dict[str, bool], expected: tuple[int, float, bool]) -> None:
    assert run_with(faults, **cut) == expected
