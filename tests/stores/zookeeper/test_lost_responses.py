"""Writes with a response that is lost with the connection: repeated, and recognized as the client's own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from kactl.model import Assignment, Features, Fence, Leadership, ProducerIdBlock, TopicPartition, TopicRef
from kactl.model.errors import BrokerIdTaken, ControllerMoved, RequestWaits
from kactl.stores.base import Names, Outcome
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.kazoo_connection import CLIENTS, Kind
from tests.support.store_clients import (
    ORDERS,
    ORDERS_0,
    SESSION_MS,
    THREE_PARTITIONS,
    WAIT_S,
    broker_info,
    new_write,
)

from .proxy import CREATE, MULTI, SET_DATA, Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

ROWS = [TopicPartition("orders", number) for number in range(250)]


@pytest.fixture
async def store(proxy: Proxy, chroot: str, kind: Kind) -> AsyncIterator[ZooKeeperStore]:
    connect = f"127.0.0.1:{proxy.port}{chroot}"
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as opened:
        yield opened


@pytest.fixture
async def fence(store: ZooKeeperStore) -> Fence:
    await store.create_topic(ORDERS, {name.partition: Assignment((1, 2, 3)) for name in ROWS}, {})
    fence = await store.contest(100)
    assert (await store.commit(new_write(ROWS), fence)).committed.all()
    return fence


async def losing_the_answer(
    proxy: Proxy,
    call: Callable[[], Awaitable[Any]],
    done: Callable[[], bool],
    then: Callable[[], None] = lambda: None,
    *,
    kind: int = MULTI,
    nth: int = 1,
) -> Any:
    """Returns the result of `call` although its response is lost.

    Responses from the nth request of a kind on are dropped. Once `call` has been executed, `then` runs, and the
    connection is cut and restored.
    """
    given = []

    async def ask() -> None:
        try:
            given.append(await call())
        except Exception as error:
            given.append(error)

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            proxy.lose(kind, nth=nth)
            tasks.start_soon(ask)
            while not await anyio.to_thread.run_sync(done):  # noqa: ASYNC110 - another process does it
                await anyio.sleep(0.01)
            then()
            assert not given
            await proxy.cut()
    return given[0]


def znode_version(tree: Any, path: str) -> int:
    stat = tree.exists(path)
    return -1 if stat is None else int(stat.version)


STATE = "/brokers/topics/orders/partitions/{}/state"


async def test_lost_response_to_a_leadership_write(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence
) -> None:
    committed = await losing_the_answer(
        proxy,
        lambda: store.commit(new_write(ROWS, leader=2, leader_epoch=1, expected=0), fence),
        lambda: znode_version(tree, STATE.format(249)) == 1,
    )

    assert committed.outcome.tolist() == [Outcome.COMMITTED] * 250
    assert committed.version.tolist() == [1] * 250
    found = await store.leaderships(Names.of(ROWS))
    assert set(found.partition_epoch.tolist()) == {1}


@pytest.mark.parametrize(("nth", "path"), [(1, ""), (2, "/39/state")], ids=["container", "states"])
async def test_lost_response_to_first_leaders(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence, nth: int, path: str
) -> None:
    """The first write creates the node of the partitions, the second one the states."""
    names = [TopicPartition("payments", number) for number in range(40)]
    await store.create_topic(TopicRef("payments"), {name.partition: Assignment((1, 2, 3)) for name in names}, {})

    committed = await losing_the_answer(
        proxy,
        lambda: store.commit(new_write(names), fence),
        lambda: znode_version(tree, f"/brokers/topics/payments/partitions{path}") == 0,
        nth=nth,
    )

    assert committed.committed.all()
    assert committed.version.tolist() == [0] * 40


async def test_lost_response_to_more_first_leaders(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence
) -> None:
    """The node of the partitions exists, and is not created again."""
    names = [TopicPartition("orders", 300 + number) for number in range(40)]

    committed = await losing_the_answer(
        proxy,
        lambda: store.commit(new_write(names), fence),
        lambda: znode_version(tree, STATE.format(339)) == 0,
    )

    assert committed.committed.all()
    assert committed.version.tolist() == [0] * 40


async def test_later_write_of_another_client_is_not_adopted(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence
) -> None:
    names = ROWS[:3]

    committed = await losing_the_answer(
        proxy,
        lambda: store.commit(new_write(names, leader=2, leader_epoch=1, expected=0), fence),
        lambda: znode_version(tree, STATE.format(2)) == 1,
        lambda: tree.set(STATE.format(1), tree.get(STATE.format(1))[0]),
    )

    assert committed.outcome.tolist() == [Outcome.COMMITTED, Outcome.CONFLICT, Outcome.COMMITTED]


async def test_equal_content_of_another_writer_is_a_conflict(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    change = new_write([ORDERS_0], leader=2, leader_epoch=1, expected=0)
    assert (await store.commit(change, fence)).committed.all()

    assert (await store.commit(change, fence)).outcome.tolist() == [Outcome.CONFLICT]


async def test_lost_response_to_an_assignment(store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence) -> None:
    """The topic has leadership, whose node is checked in the same multi."""
    await losing_the_answer(
        proxy,
        lambda: store.write_assignment(ORDERS, {0: Assignment((3, 1))}, fence),
        lambda: znode_version(tree, "/brokers/topics/orders") == 1,
    )

    assert dict((await store.assignments([ORDERS.name])).items()) == {ORDERS_0: Assignment((3, 1))}
    assert znode_version(tree, "/brokers/topics/orders") == 1


async def test_lost_response_to_an_isr_write_of_a_leader(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence
) -> None:
    state = Leadership(1, 0, (1,), 0, fence.epoch)

    kept = await losing_the_answer(
        proxy,
        lambda: store.write_isr(ORDERS_0, state, expected=0),
        lambda: znode_version(tree, STATE.format(0)) == 1,
        kind=SET_DATA,
    )

    assert kept == 1


async def test_lost_response_to_a_controller_election(store: ZooKeeperStore, proxy: Proxy, tree: Any) -> None:
    won = await losing_the_answer(proxy, lambda: store.contest(1), lambda: bool(tree.exists("/controller")))

    assert won == Fence(1, znode_version(tree, "/controller_epoch"))
    await store.resign(won)


@pytest.mark.parametrize("epoch", [b"1", b"2"])
async def test_lost_response_to_an_election_before_a_takeover(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, epoch: bytes
) -> None:
    def depose() -> None:
        tree.delete("/controller")
        tree.set("/controller_epoch", epoch)
        tree.create("/controller", b'{"brokerid":1}', ephemeral=True)  # the same id, but another session

    lost = await losing_the_answer(proxy, lambda: store.contest(1), lambda: bool(tree.exists("/controller")), depose)

    assert isinstance(lost, ControllerMoved)


async def test_lost_response_to_a_takeover(store: ZooKeeperStore, proxy: Proxy, tree: Any) -> None:
    tree.create("/controller_epoch", b"6")
    tree.create("/controller", b'{"brokerid":3}', ephemeral=True)

    won = await losing_the_answer(
        proxy, lambda: store.contest(1, take_over=True), lambda: tree.get("/controller_epoch")[0] == b"7"
    )

    assert won == Fence(7, 1)
    assert tree.get("/controller_epoch")[0] == b"7"


async def test_lost_response_to_a_resignation(store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence) -> None:
    await losing_the_answer(proxy, lambda: store.resign(fence), lambda: not tree.exists("/controller"))

    assert await store.controller() is None


async def test_lost_response_to_a_topic_creation(store: ZooKeeperStore, proxy: Proxy, tree: Any) -> None:
    made = await losing_the_answer(
        proxy,
        lambda: store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "b"}),
        lambda: bool(tree.exists("/brokers/topics/orders")),
    )

    assert made is None


async def test_lost_response_to_a_configuration(store: ZooKeeperStore, proxy: Proxy, tree: Any) -> None:
    made = await losing_the_answer(
        proxy,
        lambda: store.set_topic_config("orders", {"a": "b"}),
        lambda: bool(tree.exists("/config/topics/orders")),
    )

    assert made is None
    assert await store.topic_configs(["orders"]) == {"orders": {"a": "b"}}


async def test_lost_response_to_deleted_notifications(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence
) -> None:
    for name in ROWS[:5]:
        await store.notify_isr([name])
    standing = await store.isr_notifications()

    await losing_the_answer(
        proxy,
        lambda: store.delete_notifications(standing, fence),
        lambda: not tree.get_children("/isr_change_notification"),
    )

    assert await store.isr_notifications() == []


async def test_lost_response_to_a_deletion_mark(store: ZooKeeperStore, proxy: Proxy, tree: Any) -> None:
    marked = await losing_the_answer(
        proxy,
        lambda: store.mark_deletion("orders"),
        lambda: bool(tree.exists("/admin/delete_topics/orders")),
        kind=CREATE,
    )

    assert marked is None
    assert await store.deletions() == ["orders"]


@pytest.mark.parametrize("replaced", [False, True])
async def test_lost_response_to_a_stored_admin_request(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, replaced: bool
) -> None:
    path = "/admin/reassign_partitions"

    def replace() -> None:
        if replaced:
            tree.delete(path)
            tree.create(path, b'{"version":1,"partitions":[]}')

    left = await losing_the_answer(
        proxy,
        lambda: store.request_reassignment({ORDERS_0: (1,)}),
        lambda: bool(tree.exists(path)),
        replace,
        kind=CREATE,
    )

    assert isinstance(left, RequestWaits) if replaced else left is None
    assert await store.reassignment_request() == ({} if replaced else {ORDERS_0: (1,)})


async def test_lost_response_to_the_rest_of_an_admin_request(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence
) -> None:
    await store.request_reassignment({ORDERS_0: (1,)})

    await losing_the_answer(
        proxy,
        lambda: store.set_reassignment_request({ORDERS_0: (2,)}, fence),
        lambda: znode_version(tree, "/admin/reassign_partitions") == 1,
    )
    assert await store.reassignment_request() == {ORDERS_0: (2,)}
    await losing_the_answer(
        proxy,
        lambda: store.set_reassignment_request({}, fence),
        lambda: not tree.exists("/admin/reassign_partitions"),
    )

    assert await store.reassignment_request() is None


async def test_lost_response_to_features(store: ZooKeeperStore, proxy: Proxy, tree: Any, fence: Fence) -> None:
    for number in range(2):
        written = await losing_the_answer(
            proxy,
            partial(store.write_features, Features({"a": number + 1}), fence),
            partial(lambda wanted: znode_version(tree, "/feature") == wanted, number),
        )

        assert written == Features({"a": number + 1}, version=number)
        assert await store.features() == written


@pytest.mark.parametrize("raced", [False, True])
async def test_lost_response_to_a_producer_id_block(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, raced: bool
) -> None:
    path, ours = "/latest_producer_id_block", ProducerIdBlock(1, 0, 1_000)
    other = b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'

    def race() -> None:
        if raced:
            tree.set(path, other)

    kept = await losing_the_answer(
        proxy,
        lambda: store.write_producer_ids(ours, expected=0),
        lambda: znode_version(tree, path) == 1,
        race,
        kind=SET_DATA,
    )

    # If the outcome is unknown, the next block is taken: no block is assigned twice.
    assert kept is not raced
    assert await store.producer_ids() == ((ProducerIdBlock(2, 1_000, 1_000), 2) if raced else (ours, 1))


async def test_lost_response_to_a_registration(store: ZooKeeperStore, proxy: Proxy, tree: Any) -> None:
    session = await store.new_session(SESSION_MS)

    epoch = await losing_the_answer(
        proxy, lambda: session.register(broker_info(1)), lambda: bool(tree.exists("/brokers/ids/1"))
    )

    assert epoch == tree.exists("/brokers/ids/1").czxid
    assert (await store.brokers())[1] == broker_info(1, epoch=epoch)


async def test_node_of_an_earlier_session_of_this_process_is_replaced(
    store: ZooKeeperStore, proxy: Proxy, connect: str
) -> None:
    """The participant was silent and was cut off: its session ends for the store before the server expires it."""
    first = await store.new_session(SESSION_MS)
    epoch = await first.register(broker_info(1))
    store._ended_sessions.add(first._id)  # type: ignore[attr-defined]
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as stranger:
        with pytest.raises(BrokerIdTaken):
            await (await stranger.new_session(SESSION_MS)).register(broker_info(1))

    second = await store.new_session(SESSION_MS)
    again = await second.register(broker_info(1))

    assert again > epoch
    assert list(await store.brokers()) == [1]
