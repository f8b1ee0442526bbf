"""Deletion of topics in Kafka's own tree: the order of the deletes, and crashes in between."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from kactl.model import Assignment, Fence, TopicPartition
from kactl.model.errors import ControllerMoved, StoreError
from kactl.stores.base import Names
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.store_clients import ORDERS, SESSION_MS, THREE_PARTITIONS, WAIT_S, delete_topic, new_write

from .proxy import MULTI, Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

PARTITIONS = range(60)
ROWS = [TopicPartition("orders", number) for number in PARTITIONS]
TOPIC, MARK, CONFIG = "/brokers/topics/orders", "/admin/delete_topics/orders", "/config/topics/orders"
# Operations per multi: few, so that there are many points at which to crash.
BATCH = 10


@pytest.fixture
async def store(proxy: Proxy, chroot: str) -> AsyncIterator[ZooKeeperStore]:
    line = f"127.0.0.1:{proxy.port}{chroot}"
    async with ZooKeeperStore(line, session_timeout_ms=SESSION_MS, batch_partitions=BATCH, max_in_flight=1) as opened:
        yield opened


@pytest.fixture
async def fence(store: ZooKeeperStore) -> Fence:
    """Returns the controller's fence. A topic with leaders is marked for deletion."""
    await store.create_topic(ORDERS, {name.partition: Assignment((1, 2, 3)) for name in ROWS}, {"a": "b"})
    fence = await store.contest(100)
    assert (await store.commit(new_write(ROWS), fence)).committed.all()
    await store.mark_deletion("orders")
    return fence


def remaining_nodes(tree: Any) -> list[bool]:
    """Returns which nodes of a topic exist: its assignment, its configuration, its mark."""
    return [bool(tree.exists(path)) for path in (TOPIC, CONFIG, MARK)]


async def test_mark_equals_kafkas(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    data, stat = tree.get(MARK)

    assert data is None
    assert stat.ephemeralOwner == 0


# With one request in flight at a time and ten operations in each, the partitions take twelve multis. The topic with its
# container and configuration is the 13th, the mark the 14th. Without known partitions, the topic's multi fails first.
# Then come the partitions, the topic with its container, the configuration, and the mark.
TOLD, UNTOLD = 14, 16


@pytest.mark.parametrize(
    ("told", "nth"), [*((True, nth) for nth in range(1, TOLD + 1)), *((False, nth) for nth in range(1, UNTOLD + 1))]
)
async def test_crash_leaves_the_mark_to_the_next_controller(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence, connect: str, told: bool, nth: int
) -> None:
    before = tree.exists("/controller_epoch").version
    with anyio.move_on_after(WAIT_S) as life:
        async with anyio.create_task_group() as tasks:
            proxy.lose(MULTI, nth=nth)
            tasks.start_soon(delete_topic, store, "orders", fence, PARTITIONS if told else ())
            await proxy.silent.wait()
            life.cancel()
    proxy.reachable = False
    await proxy.cut()
    left = remaining_nodes(tree)
    if left[0]:
        assert left == [True, True, True]
    # The last multi deleted the mark; only its response was lost.
    assert left[2] == (nth < (TOLD if told else UNTOLD))

    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as heir:
        new = await heir.contest(101, take_over=True)
        assert await heir.deletions() == (["orders"] if left[2] else [])
        await delete_topic(heir, "orders", new)

        assert remaining_nodes(tree) == [False, False, False]
        assert await heir.topics() == []
        assert not (await heir.leaderships(Names.of(ROWS))).found.any()
    assert tree.exists("/controller_epoch").version == before + 1
    proxy.reachable = True


async def test_lost_response_does_not_stop_the_deletion(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence
) -> None:
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            proxy.lose(MULTI, nth=3)
            tasks.start_soon(delete_topic, store, "orders", fence)
            await proxy.silent.wait()
            await proxy.cut()

    assert remaining_nodes(tree) == [False, False, False]


async def test_controller_deposed_in_between_stops_deleting(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence, connect: str
) -> None:
    async def delete() -> None:
        with pytest.raises(ControllerMoved):
            await delete_topic(store, "orders", fence)

    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as heir:
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                proxy.lose(MULTI, nth=4)
                tasks.start_soon(delete)
                await proxy.silent.wait()
                await heir.contest(101, take_over=True)
                await proxy.cut()

    assert remaining_nodes(tree) == [True, True, True]
    left = tree.get_children(f"{TOPIC}/partitions")
    assert 0 < len(left) < len(ROWS)
    assert tree.exists(f"{TOPIC}/partitions/{left[0]}/state")


async def test_foreign_nodes_below_a_topic_are_deleted(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    for path in ("notes", "partitions/3/notes/deep/er", "partitions/x/y", "partitions/3/state/z"):
        tree.create(f"{TOPIC}/{path}", b"mine", makepath=True)

    await delete_topic(store, "orders", fence)

    assert remaining_nodes(tree) == [False, False, False]


async def test_undeletable_node_keeps_the_mark(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    (acl,), _ = tree.get_acls(f"{TOPIC}/partitions/7")
    tree.set_acls(f"{TOPIC}/partitions/7", [acl._replace(perms=acl.perms & ~8)])  # permission 8: to delete children

    with pytest.raises(StoreError, match="partitions/7/state"):
        await delete_topic(store, "orders", fence)

    assert remaining_nodes(tree) == [True, True, True]
    assert tree.get_children(f"{TOPIC}/partitions") == ["7"]
    tree.set_acls(f"{TOPIC}/partitions/7", [acl])
    await delete_topic(store, "orders", fence)
    assert remaining_nodes(tree) == [False, False, False]


async def test_topic_can_be_recreated_while_its_mark_is_deleted(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    await delete_topic(store, "orders", fence)
    await store.create_topic(ORDERS, THREE_PARTITIONS, {"c": "d"})

    await store.unmark_deletions(["orders"], fence)  # no topic is marked

    assert remaining_nodes(tree) == [True, True, False]
    assert (await store.commit(new_write(ROWS[:3]), fence)).version.tolist() == [0, 0, 0]
