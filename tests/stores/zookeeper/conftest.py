"""A real ZooKeeper for the tests that need one, and an independent client to inspect the tree."""

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from kactl.stores.zookeeper.connection import KINDS, Kind
from tests.support.zookeeper_fixtures import chroot, fresh_zookeeper, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["chroot", "fresh_zookeeper", "jars", "zookeeper"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """For tests that run over both clients."""
    found: Kind = request.param
    return found


@pytest.fixture
def connect(zookeeper: ZooKeeperServer, chroot: str) -> str:
    """The connect string of a new chroot."""
    return zookeeper.connect(chroot)


@pytest.fixture
def tree(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Any]:
    """kazoo's blocking client, with paths relative to the chroot of `connect`."""
    client = KazooClient(zookeeper.connect())
    client.start()
    client.chroot = chroot
    yield client
    client.stop()
    client.close()
