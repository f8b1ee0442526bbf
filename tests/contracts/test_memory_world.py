"""The store contract over the simulated in-memory store: with latency, without faults, and with harmless faults."""

import asyncio
from typing import Any, Final

import anyio
import pytest

from kactl.stores.base import Session, Store
from kactl.stores.memory import MemoryStore
from kactl.testing import SimLoop
from kactl.testing.contracts.store import StoreContract, Stores
from kactl.testing.history import History
from kactl.testing.links import Links
from tests.sim.engine.worlds.recorded_memory import RecordedMemoryWorld, StoreFaults

LATENCIES_MS: Final = {"none": (0.0, 0.0), "much": (1.0, 400.0)}
# Faults that no client notices. Doubled events are not among them: the contract limits the events of one request.
EVENT_FAULTS: Final = StoreFaults(late_events=0.3, late_ms=800.0, coalesced_events=0.5)


class WorldStores:
    """Clients of one simulated server, each on a node of its own. Sessions end in virtual time."""

    def __init__(self, latency_ms: tuple[float, float], faults: StoreFaults) -> None:
        self._latency_ms = latency_ms
        self._faults = faults
        self._world: RecordedMemoryWorld | None = None
        self._nodes: list[str] = []

    def open_client(self) -> Store:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        if self._world is None:
            history = History(lambda: loop.now_s * 1000)
            self._world = RecordedMemoryWorld(loop, history, Links(loop, {"store": self._latency_ms}))
            self._world.faults = self._faults
        node = loop.node(f"client {len(self._nodes)}")
        self._nodes.append(node.name)
        return self._world.client(node)

    async def expire(self, client: Store) -> None:
        assert isinstance(client, MemoryStore)
        client.expire()

    async def expire_session(self, session: Session) -> None:
        await anyio.sleep(session.timeout_ms / 1000)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The simulated loop."""
    return "asyncio", {"loop_factory": lambda: SimLoop(1)}


@pytest.fixture(params=LATENCIES_MS)
def stores(request: pytest.FixtureRequest) -> Stores:
    return WorldStores(LATENCIES_MS[request.param], EVENT_FAULTS if request.param == "much" else StoreFaults())


class TestMemoryWorld(StoreContract):
    pass
