"""The store contract over ZooKeeper, against a real server, by either client."""

import anyio.to_thread
import pytest
from kazoo.client import KazooClient

from kactl.stores.base import Session, Store
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.session import ZooKeeperSession
from kactl.testing.contracts.store import SESSION_MS, StoreContract
from tests.support.kazoo_connection import CLIENTS, KINDS, Kind
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


class ZooKeeperStores:
    """Clients in one chroot of a running server."""

    def __init__(self, connect: str, kind: Kind) -> None:
        self._connect = connect
        self._kind = kind

    def open_client(self) -> Store:
        return ZooKeeperStore(self._connect, session_timeout_ms=SESSION_MS, client=CLIENTS[self._kind])

    async def expire(self, client: Store) -> None:
        assert isinstance(client, ZooKeeperStore)
        await anyio.to_thread.run_sync(end_session, client._client)

    async def expire_session(self, session: Session) -> None:
        assert isinstance(session, ZooKeeperSession)
        await anyio.to_thread.run_sync(end_session, session._client)


def end_session(client: Client) -> None:
    """End a session as a server ends a silent one: a second connection takes it over and closes it."""
    other = KazooClient(client.hosts, client_id=client.session)
    other.start()
    other.stop()
    other.close()


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, chroot: str) -> ZooKeeperStores:
    return ZooKeeperStores(zookeeper.connect(chroot), request.param)


class TestZooKeeperStore(StoreContract):
    pass
