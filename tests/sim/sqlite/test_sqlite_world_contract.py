"""The store contract over the SQLite world on the simulated loop: without faults, with and without latency."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import kactl.testing.loop
from kactl.stores.base import Session, Store
from kactl.testing import SimLoop
from kactl.testing.contracts.store import SESSION_MS, StoreContract, Stores
from kactl.testing.history import History
from tests.sim.engine.worlds.sqlite import SqliteWorld
from tests.sim.engine.worlds.sqlite.client import RecordedSession
from tests.support.marks import fast_and_slow

LATENCIES_MS = {"no latency": (0.0, 0.0), "latency": (0.0, 5.0), "slow disk": (20.0, 400.0)}
# The fast tests have the disk on which operations overlap most.
DISKS = fast_and_slow(["slow disk", "no latency", "latency"], fast=1)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Callable[[], SimLoop]]]:
    return "asyncio", {"loop_factory": lambda: SimLoop("contract")}


class WorldStores:
    """Clients of one file."""

    def __init__(self, world: SqliteWorld) -> None:
        self._world = world

    def open_client(self) -> Store:
        return self._world.client(None, session_timeout_ms=SESSION_MS)

    async def expire(self, client: Any) -> None:
        self._world.expire_lease(client.session_id)

    async def expire_session(self, session: Session) -> None:
        assert isinstance(session, RecordedSession)
        self._world.expire_lease(session.id)


@pytest.fixture(params=DISKS)
async def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stores]:
    monkeypatch.setattr(kactl.testing.loop, "JOB_MS", LATENCIES_MS[request.param])
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    with SqliteWorld(loop, History(lambda: loop.now_s * 1000)) as world:
        yield WorldStores(world)
        world.check_reopened()


class TestSqliteWorld(StoreContract):
    pass
