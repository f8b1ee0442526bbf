"""Many topics deleted in one call: failures of one of them, and crashes in between."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import anyio
import numpy as np
import pytest

from kactl.decide.state.rows import Ints
from kactl.model import Assignment, Fence, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved, StoreError
from kactl.stores.base import Names
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.kazoo_connection import CLIENTS, Kind
from tests.support.store_clients import SESSION_MS, WAIT_S, new_write

from .proxy import MULTI, Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

TOPICS = [f"t{number:02}" for number in range(12)]
EACH = 7
ROWS = [TopicPartition(topic, at) for topic in TOPICS for at in range(EACH)]
TOLD: Mapping[str, Ints] = {topic: np.arange(EACH, dtype=np.int32) for topic in TOPICS}
# 84 partitions in multis of five, then twelve times three nodes of their own in multis of three, then the marks.
BATCH = 10
PARTITIONS, OWN, MARKS = 17, 4, 2
TO_DELETE = 8  # ZooKeeper's number of the permission to delete the children of a node


@pytest.fixture
async def store(proxy: Proxy, chroot: str, kind: Kind) -> AsyncIterator[ZooKeeperStore]:
    line = f"127.0.0.1:{proxy.port}{chroot}"
    async with ZooKeeperStore(
        line, session_timeout_ms=SESSION_MS, batch_partitions=BATCH, max_in_flight=1, client=CLIENTS[kind]
    ) as opened:
        yield opened


@pytest.fixture
async def fence(store: ZooKeeperStore) -> Fence:
    """Returns the controller's fence. All topics but one are marked for deletion."""
    for topic in (*TOPICS, "stays"):
        await store.create_topic(TopicRef(topic), {at: Assignment((1, 2, 3)) for at in range(EACH)}, {"a": "b"})
    fence = await store.contest(100)
    assert (await store.commit(new_write([*ROWS, TopicPartition("stays", 0)]), fence)).committed.all()
    for topic in TOPICS:
        await store.mark_deletion(topic)
    return fence


def remaining_nodes_of(tree: Any, topic: str) -> list[bool]:
    """Returns which nodes of a topic exist: its assignment, its configuration, its mark."""
    paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")
    return [bool(tree.exists(path)) for path in paths]


async def topics_and_deletions(store: ZooKeeperStore) -> tuple[list[str], list[str]]:
    """Returns the existing topics, and the marked ones."""
    return await store.topics(), await store.deletions()


async def test_exactly_the_given_topics_are_deleted(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    assert await store.delete_topics(TOLD, fence) == {}

    assert await topics_and_deletions(store) == (["stays"], [])
    assert tree.get_children("/config/topics") == ["stays"]
    assert (await store.leaderships(Names.of([TopicPartition("stays", 0)]))).found.all()


async def test_undeletable_node_of_a_topic_delays_no_other(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    locked = "/brokers/topics/t05/partitions/3"
    (acl,), _ = tree.get_acls(locked)
    tree.set_acls(locked, [acl._replace(perms=acl.perms & ~TO_DELETE)])

    failed = await store.delete_topics(TOLD, fence)

    assert list(failed) == ["t05"]
    assert isinstance(failed["t05"], StoreError)
    assert "t05/partitions/3/state still exists" in str(failed["t05"])
    assert await topics_and_deletions(store) == (["stays", "t05"], ["t05"])
    assert remaining_nodes_of(tree, "t05") == [True, True, True]
    tree.set_acls(locked, [acl])
    assert await store.delete_topics({"t05": TOLD["t05"]}, fence) == {}
    assert remaining_nodes_of(tree, "t05") == [False, False, False]


async def test_unlistable_node_of_a_topic_delays_no_other(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    hidden = "/brokers/topics/t02/partitions/1/notes"
    tree.create(f"{hidden}/mine", makepath=True)
    (acl,), _ = tree.get_acls(hidden)
    tree.set_acls(hidden, [acl._replace(perms=0)])

    failed = await store.delete_topics(TOLD, fence)

    assert list(failed) == ["t02"]
    assert "/brokers/topics/t02/partitions/1/notes could not be listed" in str(failed["t02"])
    assert await topics_and_deletions(store) == (["stays", "t02"], ["t02"])


async def test_undeletable_configuration_keeps_only_its_mark(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    tree.create("/config/topics/t07/below", b"mine")

    failed = await store.delete_topics(TOLD, fence)

    assert list(failed) == ["t07"]
    assert "/config/topics/t07 could not be deleted" in str(failed["t07"])
    assert remaining_nodes_of(tree, "t07") == [False, True, True]
    assert await topics_and_deletions(store) == (["stays"], ["t07"])


async def test_undeletable_mark_is_reported(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    tree.create("/admin/delete_topics/t07/below", b"mine")

    failed = await store.delete_topics(TOLD, fence)

    assert list(failed) == ["t07"]
    assert remaining_nodes_of(tree, "t07") == [False, False, True]
    assert await topics_and_deletions(store) == (["stays"], ["t07"])


async def test_foreign_changes_cost_a_read_and_no_topic(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    tree.create("/brokers/topics/t00/partitions/2/state/z", b"mine")
    tree.create("/brokers/topics/t03/notes/deep", b"mine", makepath=True)
    tree.create("/brokers/topics/t04/partitions/99/state", b"mine", makepath=True)
    tree.delete("/brokers/topics/t06/partitions/0/state")
    tree.delete("/brokers/topics/t08/partitions", recursive=True)
    tree.delete("/brokers/topics/t09", recursive=True)
    tree.delete("/config/topics/t10")
    for path in ("/brokers/topics/t11", "/config/topics/t11", "/admin/delete_topics/t11"):
        tree.delete(path, recursive=True)

    assert await store.delete_topics(TOLD, fence) == {}

    assert await topics_and_deletions(store) == (["stays"], [])
    assert tree.get_children("/config/topics") == ["stays"]


@pytest.mark.parametrize("nth", [1, 9, PARTITIONS, PARTITIONS + 2, PARTITIONS + OWN, PARTITIONS + OWN + 1])
async def test_crash_keeps_the_marks_of_remaining_topics(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence, connect: str, nth: int
) -> None:
    with anyio.move_on_after(WAIT_S) as life:
        async with anyio.create_task_group() as tasks:
            proxy.lose(MULTI, nth=nth)
            tasks.start_soon(store.delete_topics, TOLD, fence)
            await proxy.silent.wait()
            life.cancel()
    proxy.reachable = False
    await proxy.cut()

    there = [remaining_nodes_of(tree, topic) for topic in TOPICS]
    for entry, config, mark in there:
        assert entry == config  # together or not at all
        assert mark or not entry
    assert any(mark for _, _, mark in there)
    assert all(mark for _, _, mark in there) == (nth <= PARTITIONS + OWN)
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as heir:
        new = await heir.contest(101, take_over=True)
        marked = await heir.deletions()
        loaded = await heir.leaderships(Names.of(ROWS))
        known = {topic: TOLD[topic][loaded.found[at * EACH : (at + 1) * EACH]] for at, topic in enumerate(TOPICS)}
        assert await heir.delete_topics({topic: known[topic] for topic in marked}, new) == {}

        assert await topics_and_deletions(heir) == (["stays"], [])
    proxy.reachable = True


@pytest.mark.parametrize("nth", [1, 9, PARTITIONS, PARTITIONS + 2, PARTITIONS + OWN + 1])
async def test_deletion_of_many_continues_after_a_lost_connection(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence, nth: int
) -> None:
    failed: list[Mapping[str, StoreError]] = []

    async def delete() -> None:
        failed.append(await store.delete_topics(TOLD, fence))

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            proxy.lose(MULTI, nth=nth)
            tasks.start_soon(delete)
            await proxy.silent.wait()
            await proxy.cut()

    assert failed == [{}]
    assert await topics_and_deletions(store) == (["stays"], [])
    assert tree.get_children("/config/topics") == ["stays"]


@pytest.mark.parametrize("nth", [1, 9, PARTITIONS, PARTITIONS + 2, PARTITIONS + OWN + 1])
async def test_controller_deposed_in_between_deletes_nothing_more(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence, connect: str, nth: int
) -> None:
    async def delete() -> None:
        with pytest.raises(ControllerMoved):
            await store.delete_topics(TOLD, fence)

    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as heir:
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                proxy.lose(MULTI, nth=nth)
                tasks.start_soon(delete)
                await proxy.silent.wait()
                new = await heir.contest(101, take_over=True)
                before = await topics_and_deletions(heir)
                states = (await heir.leaderships(Names.of(ROWS))).found.tolist()
                await proxy.cut()

        assert await topics_and_deletions(heir) == before
        assert (await heir.leaderships(Names.of(ROWS))).found.tolist() == states
        assert before[1]
        assert await heir.delete_topics({topic: TOLD[topic] for topic in before[1]}, new) == {}
        assert await topics_and_deletions(heir) == (["stays"], [])
