"""etcd that serves by https, and only clients with a certificate."""

import ssl
from collections.abc import Iterator

import pytest

from kactl.model.errors import StoreUnavailable
from kactl.stores.etcd import EtcdStore
from kactl.stores.etcd.calls import EtcdError
from tests.support.certificates import Authority
from tests.support.etcd_server import EtcdServer, ServerTls, require_etcd
from tests.support.store_clients import create_and_lead

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

# Attempts to connect are given up after a part of it. asyncio does not close a connection that is given up just before
# its handshake begins, which happens if the machine stalls for as long.
REFUSED_MS = 3_000


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ServerTls:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return ServerTls(authority.cert, authority.sign("etcd"), authority.sign("kactl"))


@pytest.fixture(scope="module")
def https_etcd(tmp_path_factory: pytest.TempPathFactory, tls: ServerTls) -> Iterator[EtcdServer]:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd"), tls=tls) as server:
        yield server


async def test_client_with_a_certificate_is_served(https_etcd: EtcdServer, tls: ServerTls, cluster: str) -> None:
    async with EtcdStore([https_etcd.url], cluster=cluster, tls=tls.client_context()) as store:
        fence = await create_and_lead(store)
        await store.check(fence)


async def test_client_without_a_certificate_is_refused(https_etcd: EtcdServer, tls: ServerTls, cluster: str) -> None:
    context = ssl.create_default_context(cafile=tls.ca)
    store = EtcdStore([https_etcd.url], cluster=cluster, tls=context, start_timeout_ms=REFUSED_MS)

    with pytest.raises(StoreUnavailable, match=https_etcd.url):
        async with store:
            pass


async def test_server_of_another_authority_is_refused(https_etcd: EtcdServer, cluster: str) -> None:
    store = EtcdStore([https_etcd.url], cluster=cluster, start_timeout_ms=REFUSED_MS)

    with pytest.raises(StoreUnavailable, match="certificate"):
        async with store:
            pass


async def test_plain_client_of_an_https_server_is_refused(https_etcd: EtcdServer, cluster: str) -> None:
    store = EtcdStore([https_etcd.url.replace("https", "http")], cluster=cluster, start_timeout_ms=REFUSED_MS)

    with pytest.raises(StoreUnavailable, match="http://"):
        async with store:
            pass


async def test_client_certificate_names_the_user(
    tmp_path_factory: pytest.TempPathFactory, tls: ServerTls, cluster: str
) -> None:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("users"), tls=tls) as server:
        server.enable_authentication()
        async with EtcdStore([server.url], cluster="ours", tls=tls.client_context()) as store:
            await create_and_lead(store)
            assert await store.topics() == ["orders"]

        with pytest.raises(EtcdError, match="grant the user"):
            async with EtcdStore([server.url], cluster=cluster, tls=tls.client_context()):
                pass
