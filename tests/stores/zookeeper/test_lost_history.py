"""ZooKeeper's data is lost, or restored from an older copy, while controllers and participants run on."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import kactl
from kactl.model.errors import StoreDamaged
from kactl.stores.zookeeper import ZooKeeperStore, request
from kactl.testing.contracts.link_support import until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

SESSION_MS = 2_000
WAIT_S = 90.0


def handler_of(led: set[str]) -> type[kactl.PartitionHandler]:
    """Returns a handler that keeps the topics that it leads in `led`."""

    class Leads(kactl.PartitionHandler):
        async def lead(self, leader: kactl.Leader) -> None:
            led.add(leader.partition.topic)
            try:
                await anyio.sleep_forever()
            finally:
                led.remove(leader.partition.topic)

    return Leads


async def patiently(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call until the store, or the controller, can carry it out."""
    while True:
        try:
            await call()
        except kactl.KactlError:
            await anyio.sleep(0.05)
        else:
            return


def forget(server: ZooKeeperServer) -> None:
    shutil.rmtree(server.folder / "data" / "version-2")


def go_back(server: ZooKeeperServer, copy: Path) -> None:
    forget(server)
    shutil.copytree(copy, server.folder / "data" / "version-2")


async def test_controller_recovers_from_lost_data(fresh_zookeeper: ZooKeeperServer) -> None:
    led: set[str] = set()
    handler = handler_of(led)
    store = ZooKeeperStore(fresh_zookeeper.connect("/k"), session_timeout_ms=SESSION_MS)
    with anyio.fail_after(WAIT_S):
        async with (
            kactl.Controller(100, store=store) as controller,
            kactl.Participant(
                1, store=store, hub=controller.hub, handler=handler, session_timeout_ms=SESSION_MS
            ) as participant,
        ):
            for number in range(20):
                await controller.create_topic(f"before-{number}", assignment={0: [1]})
            await until(lambda: len(led) == 20)
            epoch = controller.snapshot().epoch

            fresh_zookeeper.kill()
            forget(fresh_zookeeper)
            await anyio.to_thread.run_sync(fresh_zookeeper.start)
            await patiently(lambda: participant.ensure_topic("after", assignment={0: [1]}))

            await until(lambda: led == {"after"})
            assert controller.snapshot().epoch > epoch  # its tokens are higher than those of before


async def test_cluster_of_another_id_is_not_controlled(fresh_zookeeper: ZooKeeperServer) -> None:
    """As of another ensemble in the same connect string."""
    connect = fresh_zookeeper.connect("/k")
    with anyio.fail_after(WAIT_S):
        async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as store:
            assert (await store.contest(7)).epoch == 1
            store._has_tree = False  # as in a new session
            await store._client.ask(
                request.put(store._client.path("/cluster/id"), b'{"version":"1","id":"of another cluster"}', -1)
            )

            with pytest.raises(StoreDamaged, match=r"of another cluster.* servers of one ensemble"):
                await store.contest(7, take_over=True)


async def test_controller_recovers_from_older_data(fresh_zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    led: set[str] = set()
    handler = handler_of(led)
    store = ZooKeeperStore(fresh_zookeeper.connect("/k"), session_timeout_ms=SESSION_MS)
    with anyio.fail_after(WAIT_S):
        async with (
            kactl.Controller(100, store=store) as controller,
            kactl.Participant(1, store=store, hub=controller.hub, handler=handler, session_timeout_ms=SESSION_MS),
        ):
            await controller.create_topic("before", assignment={0: [1]})
            await until(lambda: led == {"before"})
            await anyio.to_thread.run_sync(fresh_zookeeper.stop)
            shutil.copytree(fresh_zookeeper.folder / "data" / "version-2", tmp_path / "copy")
            await anyio.to_thread.run_sync(fresh_zookeeper.start)
            await controller.wait_active()
            for number in range(20):
                await controller.create_topic(f"later-{number}", assignment={0: [1]})
            await until(lambda: len(led) == 21)

            fresh_zookeeper.kill()
            go_back(fresh_zookeeper, tmp_path / "copy")
            await anyio.to_thread.run_sync(fresh_zookeeper.start)

            await until(lambda: led == {"before"})
            await controller.wait_active()
            assert [topic.name for topic in controller.topics()] == ["before"]
