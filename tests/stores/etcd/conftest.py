"""Fixtures around a real etcd."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.etcd_server import EtcdServer, require_etcd

from .proxy import Proxy

_clusters = itertools.count(1)


@pytest.fixture(scope="package")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A running server shared by several tests, which must leave it running and use `cluster`."""
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def fresh_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A running server for one test, which may stop, kill or pause it."""
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def cluster() -> str:
    """The name of a cluster that no other test of this run uses."""
    return f"test-{next(_clusters)}"


@pytest.fixture
async def proxy(etcd: EtcdServer) -> AsyncIterator[Proxy]:
    """A proxy to the shared server."""
    async with Proxy(etcd.port) as proxy:
        yield proxy
