"""The contract of participants over tcp, with the cluster in a real ZooKeeper and in a real etcd.

A session with ZooKeeper is only witnessed: a leader that hangs is evicted, and its successor waits once more.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

import kactl
from kactl.stores.base import Store
from kactl.stores.etcd import EtcdStore
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.testing.contracts.participants import SESSION_MS, ParticipantContract
from kactl.transports.base import Network
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = [pytest.mark.anyio, pytest.mark.interop, pytest.mark.slow]

_clusters = itertools.count(1)


@pytest.fixture
def network() -> Network:
    return kactl.TcpNetwork(listen="127.0.0.1:0")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


class TestParticipantsWithZooKeeper(ParticipantContract):
    @pytest.fixture
    def open_store(self, zookeeper: ZooKeeperServer, chroot: str) -> Callable[[], Store]:
        return lambda: ZooKeeperStore(zookeeper.connect(chroot), session_timeout_ms=SESSION_MS)


class TestParticipantsWithEtcd(ParticipantContract):
    @pytest.fixture
    def open_store(self, etcd: EtcdServer) -> Callable[[], Store]:
        cluster = f"participants-{next(_clusters)}"
        return lambda: EtcdStore([etcd.url], cluster=cluster, session_timeout_ms=SESSION_MS)
