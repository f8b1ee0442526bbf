"""The store contract over etcd, against a real server."""

import itertools
from collections.abc import Iterator

import pytest

from kactl.stores.base import Session, Store
from kactl.stores.etcd import EtcdSession, EtcdStore
from kactl.testing.contracts.store import SESSION_MS, StoreContract
from kactl.testing.contracts.store_leadership import LeadershipContract
from tests.support.etcd_server import EtcdServer, require_etcd

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

_clusters = itertools.count(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


class EtcdStores:
    """Clients of one cluster on a running server. Expiry is forced by revoking the lease."""

    def __init__(self, url: str, cluster: str, batch_partitions: int | None) -> None:
        self._url = url
        self._cluster = cluster
        self._batch_partitions = batch_partitions

    def open_client(self) -> Store:
        return EtcdStore(
            [self._url],
            cluster=self._cluster,
            session_timeout_ms=SESSION_MS,
            batch_partitions=self._batch_partitions,
        )

    async def expire(self, client: Store) -> None:
        assert isinstance(client, EtcdStore)
        await client._client.revoke(client.session_id)

    async def expire_session(self, session: Session) -> None:
        assert isinstance(session, EtcdSession)
        await session._client.revoke(session.lease)


@pytest.fixture
def stores(etcd: EtcdServer) -> EtcdStores:
    return EtcdStores(etcd.url, f"test-{next(_clusters)}", None)


class TestEtcdStore(StoreContract):
    pass


class TestSmallTransactions(LeadershipContract):
    """The same with at most two comparisons in a transaction, besides that of the fence."""

    @pytest.fixture
    def stores(self, etcd: EtcdServer) -> EtcdStores:
        return EtcdStores(etcd.url, f"test-{next(_clusters)}", 2)
