"""A real ZooKeeper for the tests that need one, and an honest client of another make to look behind the store."""

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from kactl.stores.zookeeper.connection import KINDS, Kind
from tests.interop.fixtures import chroot, fresh_zookeeper, jars, zookeeper
from tests.interop.zookeeper import ZooKeeperServer

__all__ = ["chroot", "fresh_zookeeper", "jars", "zookeeper"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """For what is to hold over either client."""
    found: Kind = request.param
    return found


@pytest.fixture
def connect(zookeeper: ZooKeeperServer, chroot: str) -> str:
    """Where a store may live by itself."""
    return zookeeper.connect(chroot)


@pytest.fixture
def tree(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Any]:
    """kazoo's own blocking client, whose paths begin at the chroot of `connect`."""
    client = KazooClient(zookeeper.connect())
    client.start()
    client.chroot = chroot
    yield client
    client.stop()
    client.close()
