"""Programs that start before the servers of their store: they wait, and log why."""

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import kactl
from kactl.model.errors import BadRequest, StoreError, StoreUnavailable
from kactl.stores.base import Store
from kactl.stores.etcd import EtcdStore
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.testing.contracts.link_support import until
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.kazoo_connection import KazooConnection
from tests.support.processes import free_port
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.anyio

# For the start of a server beside other work.
PATIENCE_S = 120


def closed_store(kind: str, **options: Any) -> Store:
    """Returns a store of which no server runs."""
    port = free_port()
    if kind == "etcd":
        return EtcdStore([f"http://127.0.0.1:{port}"], session_timeout_ms=1_000, **options)
    client = KazooConnection if kind == "kazoo" else None
    return ZooKeeperStore(f"127.0.0.1:{port}", session_timeout_ms=1_000, client=client, **options)


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
async def test_cluster_starts_before_its_store(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The sessions of the store are shorter than the time for which it is missing."""
    server: EtcdServer | ZooKeeperServer
    if kind == "etcd":
        require_etcd()
        server = EtcdServer(tmp_path)
        stores: list[Store] = [EtcdStore([server.url], session_timeout_ms=1_000) for _ in range(3)]
    else:
        server = ZooKeeperServer(tmp_path)
        stores = [ZooKeeperStore(server.connect(), session_timeout_ms=1_000) for _ in range(3)]
    network, done = kactl.TcpNetwork(listen="127.0.0.1:0"), anyio.Event()

    async def control() -> None:
        async with kactl.Controller(100, store=stores[0], network=network):
            await done.wait()

    async def participate() -> None:
        # The same network object knows the controller, once that listens.
        async with stores[1] as store, kactl.Participant(1, store=store, network=network) as participant:
            await participant.wait_linked(timeout_ms=PATIENCE_S * 1_000)

    async def look() -> None:
        async with kactl.Spectator(store=stores[2]) as spectator:
            await spectator.wait_ready(timeout_ms=PATIENCE_S * 1_000)

    with server, anyio.fail_after(PATIENCE_S):
        server.stop()
        async with anyio.create_task_group() as programs:
            programs.start_soon(control)
            async with anyio.create_task_group() as clients:
                clients.start_soon(participate)
                clients.start_soon(look)
                await until(lambda: caplog.text.count("store is not open") >= 3)

                await anyio.to_thread.run_sync(server.start)
            done.set()


@pytest.mark.parametrize("kind", ["etcd", "kactl", "kazoo"])
async def test_patience_with_a_store_is_bounded_and_ends_with_one_error(kind: str) -> None:
    with pytest.raises(StoreUnavailable) as raised:
        async with closed_store(kind, start_timeout_ms=0):
            pass

    assert raised.value.__suppress_context__ or raised.value.__context__ is None


async def test_missing_folder_of_a_file_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises((StoreError, BadRequest), match="missing"):
        async with kactl.SqliteStore(tmp_path / "missing" / "kactl.db"):
            pass
