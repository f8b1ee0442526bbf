"""A real ZooKeeper for the tests that need one, and an independent client to inspect the tree."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.kazoo_connection import KINDS, Kind
from tests.support.store_clients import SESSION_MS
from tests.support.zookeeper_fixtures import chroot, fresh_zookeeper, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

from .proxy import Proxy

__all__ = ["chroot", "fresh_zookeeper", "jars", "zookeeper"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The client implementation, for tests that run over both."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def connect(zookeeper: ZooKeeperServer, chroot: str) -> str:
    """Returns the connect string of a new chroot."""
    return zookeeper.connect(chroot)


@pytest.fixture
async def store(connect: str) -> AsyncIterator[ZooKeeperStore]:
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as opened:
        yield opened


@pytest.fixture
async def proxy(zookeeper: ZooKeeperServer) -> AsyncIterator[Proxy]:
    """Returns a proxy to the server. A test can cut its connections."""
    async with Proxy(zookeeper.port) as proxy:
        yield proxy


@pytest.fixture
def tree(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Any]:
    """Returns kazoo's blocking client, with paths relative to the chroot of `connect`."""
    client = KazooClient(zookeeper.connect())
    client.start()
    client.chroot = chroot
    yield client
    client.stop()
    client.close()
