"""The store contract over ZooKeeper, against a real server."""

from typing import Any

import anyio.to_thread
import pytest
from kazoo.client import KazooClient

from kactl.store import Session, Store
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.session import ZooKeeperSession
from tests.interop.fixtures import chroot, jars, zookeeper
from tests.interop.zookeeper import ZooKeeperServer

from .store_clients import SESSION_MS
from .store_contract import StoreContract

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


class ZooKeeperStores:
    """Clients in one chroot of a running server."""

    def __init__(self, connect: str) -> None:
        self._connect = connect

    def open_client(self) -> Store:
        return ZooKeeperStore(self._connect, session_timeout_ms=SESSION_MS)

    async def expire(self, client: Store) -> None:
        assert isinstance(client, ZooKeeperStore)
        await anyio.to_thread.run_sync(end_session, client._client._kazoo)

    async def expire_session(self, session: Session) -> None:
        assert isinstance(session, ZooKeeperSession)
        await anyio.to_thread.run_sync(end_session, session._client._kazoo)


def end_session(kazoo: Any) -> None:
    """What a server does with a session that was silent: a second connection takes it over and closes it."""
    other = KazooClient(",".join(f"{host}:{port}" for host, port in kazoo.hosts), client_id=kazoo.client_id)
    other.start()
    other.stop()
    other.close()


@pytest.fixture
def stores(zookeeper: ZooKeeperServer, chroot: str) -> ZooKeeperStores:
    return ZooKeeperStores(zookeeper.connect(chroot))


class TestZooKeeperStore(StoreContract):
    pass
