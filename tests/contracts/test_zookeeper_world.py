"""The store contract over simulated ZooKeeper: without latency, with latency, and with several servers.

The servers do not lag: clients of servers that lag read old data, which the contract does not expect.
"""

import asyncio
from typing import Any, Final, NamedTuple

import pytest

from kactl.stores.base import Session, Store
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.session import ZooKeeperSession
from kactl.testing import SimLoop
from kactl.testing.contracts.store import SESSION_MS, StoreContract, Stores
from kactl.testing.history import History
from kactl.testing.links import Links
from tests.sim.engine.worlds.zookeeper import ZooKeeperWorld
from tests.support.marks import fast_and_slow


class Ensemble(NamedTuple):
    """A kind of ensemble: number of servers, and the latency between clients and servers in ms."""

    servers: int
    latency_ms: tuple[float, float]


ENSEMBLES: Final = {
    "one server": Ensemble(1, (0.0, 0.0)),
    "one far server": Ensemble(1, (1.0, 400.0)),
    "three servers": Ensemble(3, (0.5, 4.0)),
}
# The fast tests leave out the one without latency.
KINDS: Final = fast_and_slow(["three servers", "one server", "one far server"], fast=1)


class WorldStores:
    """Clients of one ensemble, each on a node of its own. Sessions end at the servers."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._world: ZooKeeperWorld | None = None
        self._clients = 0

    def open_client(self) -> Store:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        if self._world is None:
            links = Links(loop, {"store": self._ensemble.latency_ms})
            history = History(lambda: loop.now_s * 1000)
            self._world = ZooKeeperWorld(
                loop, history, links, servers=self._ensemble.servers, session_timeout_ms=SESSION_MS
            )
        self._clients += 1
        return self._world.client(loop.node(f"client {self._clients}"))

    async def expire(self, client: Store) -> None:
        assert isinstance(client, ZooKeeperStore)
        self._end(client._client)

    async def expire_session(self, session: Session) -> None:
        assert isinstance(session, ZooKeeperSession)
        self._end(session._client)

    def _end(self, client: Client) -> None:
        assert self._world is not None
        assert client.session_id is not None
        assert self._world.ensemble.expire(client.session_id)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The simulated loop."""
    return "asyncio", {"loop_factory": lambda: SimLoop(1)}


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest) -> Stores:
    return WorldStores(ENSEMBLES[request.param])


class TestZooKeeperWorld(StoreContract):
    pass
