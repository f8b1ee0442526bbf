"""Events of changes by brokers and tools, repeated, and over connections that break."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from kactl.model import Assignment, Leadership, TopicPartition, TopicRef
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.connection.native import NativeConnection
from tests.contracts.test_zookeeper_store import end_session
from tests.support.kazoo_connection import CLIENTS, KazooConnection, Kind
from tests.support.store_clients import (
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    SESSION_MS,
    THREE_PARTITIONS,
    WAIT_S,
    EventRecorder,
    broker_info,
    create_and_lead,
    delete_topic,
    new_write,
)
from tests.support.zookeeper_server import ZooKeeperServer

from .proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


@pytest.fixture
async def store(connect: str, kind: Kind) -> AsyncIterator[ZooKeeperStore]:
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as opened:
        yield opened


def proxy_address(proxy: Proxy, chroot: str) -> str:
    return f"127.0.0.1:{proxy.port}{chroot}"


async def wait_for(store: ZooKeeperStore, *, connected: bool) -> None:
    """Waits until the store has detected its connection, or its loss. The delay differs between clients."""
    with anyio.fail_after(WAIT_S):
        while store._client.connected != connected:  # noqa: ASYNC110 - only events signal it
            await anyio.sleep(0.01)


async def test_each_change_of_a_registration_is_reported(store: ZooKeeperStore, tree: Any) -> None:
    recorder = EventRecorder(store)
    tree.create("/brokers/ids/1", b'{"version":1,"host":"a","port":9}', ephemeral=True)
    await store.brokers()

    for host in (b"b", b"c"):
        tree.set("/brokers/ids/1", b'{"version":1,"host":"%s","port":9}' % host)
        await recorder.wait_for(Changed.BROKER, "1")
        found = await store.broker(1)
        assert found is not None
        assert found.endpoints[0].host == host.decode()

    tree.delete("/brokers/ids/1")
    await recorder.wait_for(Changed.BROKERS)
    assert recorder.events == []


async def test_deletion_mark_is_reported(store: ZooKeeperStore, tree: Any) -> None:
    recorder = EventRecorder(store)
    await store.deletions()

    for name in ("b", "a"):
        tree.create(f"/admin/delete_topics/{name}", None)
        await recorder.wait_for(Changed.DELETIONS)
        assert name in await store.deletions()

    assert await store.deletions() == ["a", "b"]


async def test_changed_configurations_are_reported_by_topic(store: ZooKeeperStore, tree: Any, connect: str) -> None:
    tree.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/old"}', sequence=True)
    recorder = EventRecorder(store)
    await store.topics()

    tree.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/one"}', sequence=True)
    await recorder.wait_for(Changed.TOPIC_CONFIG, "one")
    tree.create("/config/changes/config_change_", b"nonsense", sequence=True)
    tree.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/1"}', sequence=True)
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as admin:
        await admin.set_topic_config("two", {"a": "b"})
        await recorder.wait_for(Changed.TOPIC_CONFIG, "two")
        await admin.set_topic_config("two", {"a": "c"})
        await recorder.wait_for(Changed.TOPIC_CONFIG, "two")

    assert recorder.events == []
    assert await store.topic_configs(["two"]) == {"two": {"a": "c"}}
    assert len(tree.get_children("/config/changes")) == 6


async def test_read_without_a_listener_arms_no_watch(store: ZooKeeperStore, zookeeper: ZooKeeperServer) -> None:
    await store.topics()
    await store.brokers()
    await store.controller()

    assert not store._armed._armed
    assert not armed(store)


def armed(store: ZooKeeperStore) -> bool:
    """Returns whether anything is watched over the store's connection."""
    connection = store._client._connection
    if isinstance(connection, NativeConnection):
        assert connection._connection is not None
        return bool(connection._connection.armed)
    assert isinstance(connection, KazooConnection)
    return bool(connection._kazoo._data_watchers or connection._kazoo._child_watchers)


async def test_changes_while_disconnected_are_reported_afterwards(
    proxy: Proxy, tree: Any, chroot: str, connect: str, kind: Kind
) -> None:
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        recorder = EventRecorder(store)
        for name in ("orders", "other"):
            await other.create_topic(TopicRef(name), THREE_PARTITIONS, {})
        await store.assignments(await store.topics())
        await store.controller()
        await store.brokers()
        seen = []

        def listen(event: StoreEvent) -> None:
            seen.append(event)
            recorder._record(event)

        store.subscribe(listen)
        proxy.reachable = False
        await proxy.cut()
        await wait_for(store, connected=False)

        await other.write_assignment(ORDERS, {0: Assignment((9,))}, None)
        await other.contest(7)
        await other.set_topic_config("other", {"a": "b"})
        proxy.reachable = True

        await recorder.wait_for(Changed.TOPIC_CONFIG, "other")  # the last event: it requires a second read
        assert set(seen) == {
            StoreEvent(Changed.TOPIC, "orders"),
            StoreEvent(Changed.CONTROLLER),
            StoreEvent(Changed.TOPIC_CONFIG, "other"),
        }


# Reads that arm a watch, changes by other clients while the connection is broken, and the event that reports each. The
# store has read a cluster with the topic orders, a mark for its deletion, a registration of broker 1 and controller 5.
_Read = Callable[[ZooKeeperStore], Awaitable[object]]
_Change = Callable[[ZooKeeperStore, Any], Awaitable[object] | None]
MISSED: dict[str, tuple[_Read, _Change, StoreEvent]] = {
    "broker registers": (
        ZooKeeperStore.brokers,
        lambda other, tree: tree.create("/brokers/ids/2", b'{"version":1,"host":"a","port":9}', ephemeral=True),
        StoreEvent(Changed.BROKERS),
    ),
    "broker ends": (
        ZooKeeperStore.brokers,
        lambda other, tree: tree.delete("/brokers/ids/1"),
        StoreEvent(Changed.BROKERS),
    ),
    "registration is written": (
        ZooKeeperStore.brokers,
        lambda other, tree: tree.set("/brokers/ids/1", b'{"version":1,"host":"b","port":9}'),
        StoreEvent(Changed.BROKER, "1"),
    ),
    "topic is created": (
        ZooKeeperStore.topics,
        lambda other, tree: other.create_topic(TopicRef("new"), {0: Assignment((1,))}, {}),
        StoreEvent(Changed.TOPICS),
    ),
    "topic is written": (
        lambda store: store.assignments(["orders"]),
        lambda other, tree: other.write_assignment(ORDERS, {0: Assignment((9,))}, None),
        StoreEvent(Changed.TOPIC, "orders"),
    ),
    "deletion is marked": (
        ZooKeeperStore.deletions,
        lambda other, tree: other.mark_deletion("other"),
        StoreEvent(Changed.DELETIONS),
    ),
    "last deletion mark goes": (
        ZooKeeperStore.deletions,
        lambda other, tree: tree.delete("/admin/delete_topics/orders"),
        StoreEvent(Changed.DELETIONS),
    ),
    "ISR is written": (
        ZooKeeperStore.isr_notifications,
        lambda other, tree: other.notify_isr([ORDERS_0]),
        StoreEvent(Changed.ISR_NOTIFICATIONS),
    ),
    "directory fails": (
        ZooKeeperStore.log_dir_notifications,
        lambda other, tree: other.notify_log_dir(1),
        StoreEvent(Changed.LOG_DIR_NOTIFICATIONS),
    ),
    "controller is elected": (
        ZooKeeperStore.controller,
        lambda other, tree: other.contest(7, take_over=True),
        StoreEvent(Changed.CONTROLLER),
    ),
    "controller ends": (
        ZooKeeperStore.controller,
        lambda other, tree: tree.delete("/controller"),
        StoreEvent(Changed.CONTROLLER_GONE),
    ),
    "brokers are configured": (
        ZooKeeperStore.default_config,
        lambda other, tree: other.set_default_config({"unclean.leader.election.enable": "true"}),
        StoreEvent(Changed.DEFAULT_CONFIG),
    ),
    "reassignment is requested": (
        ZooKeeperStore.reassignment_request,
        lambda other, tree: other.request_reassignment({ORDERS_0: (2,)}),
        StoreEvent(Changed.REASSIGNMENT_REQUEST),
    ),
    "election is requested": (
        ZooKeeperStore.preferred_election_request,
        lambda other, tree: other.request_preferred_election([ORDERS_0]),
        StoreEvent(Changed.PREFERRED_ELECTION_REQUEST),
    ),
}


@pytest.mark.parametrize("missed", MISSED)
async def test_each_change_while_disconnected_is_reported_alone(
    proxy: Proxy, tree: Any, chroot: str, connect: str, kind: Kind, missed: str
) -> None:
    read, change, event = MISSED[missed]
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        await other.create_topic(ORDERS, THREE_PARTITIONS, {})
        await other.mark_deletion("orders")
        await other.contest(5)
        tree.create("/brokers/ids/1", b'{"version":1,"host":"a","port":9}', ephemeral=True)
        recorder = EventRecorder(store)
        for arms in {armed_by for armed_by, _, _ in MISSED.values()}:
            await arms(store)
        recorder.events.clear()
        proxy.reachable = False
        await proxy.cut()
        await wait_for(store, connected=False)

        changing = change(other, tree)
        if isinstance(changing, Awaitable):
            await changing
        proxy.reachable = True

        await recorder.wait_for(event.what, event.name)
        await read(store)  # the watches were compared before this response
        unrelated = {Changed.SUSPENDED, Changed.CONNECTED}
        assert [other for other in recorder.events if other.what not in unrelated] == []


async def test_short_disconnection_reports_no_unchanged_nodes(
    proxy: Proxy, chroot: str, connect: str, kind: Kind
) -> None:
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        recorder = EventRecorder(store)
        await other.create_topic(ORDERS, THREE_PARTITIONS, {})
        await store.assignments(await store.topics())
        await store.controller()
        await store.isr_notifications()
        fence = await store.contest(1)
        await recorder.wait_for(Changed.CONTROLLER)
        await store.controller()

        await proxy.cut()
        await wait_for(store, connected=False)
        await wait_for(store, connected=True)
        await other.write_assignment(ORDERS, {0: Assignment((9,))}, None)

        await recorder.wait_for(Changed.TOPIC, "orders")
        assert recorder.events == []
        await store.resign(fence)  # the session, and therefore the controllership, is unchanged
        await recorder.wait_for(Changed.CONTROLLER_GONE)


async def test_lost_session_reports_nothing_before_the_next_reads(
    proxy: Proxy, chroot: str, connect: str, kind: Kind
) -> None:
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=1_000, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        recorder = EventRecorder(store)
        watching = EventRecorder(other)
        await store.topics()
        await store.contest(1)
        assert await other.controller() is not None
        proxy.reachable = False
        await proxy.cut()
        await watching.wait_for(Changed.CONTROLLER_GONE)  # the server has expired the session
        await other.create_topic(ORDERS, THREE_PARTITIONS, {})
        await recorder.wait_for(Changed.SUSPENDED)
        assert recorder.events == []  # without a connection the store cannot detect the change

        proxy.reachable = True

        await recorder.wait_for(Changed.SESSION_LOST)
        await recorder.wait_for(Changed.SESSION_OPENED)
        assert recorder.events == []
        assert not store._armed._armed
        assert await store.topics() == ["orders"]
        await other.create_topic(TopicRef("more"), {}, {})
        await recorder.wait_for(Changed.TOPICS)
        await other.set_topic_config("more", {"a": "b"})
        await recorder.wait_for(Changed.TOPIC_CONFIG, "more")


async def test_watches_of_requests_and_partitions_survive_a_disconnection(
    proxy: Proxy, chroot: str, connect: str, tree: Any, kind: Kind
) -> None:
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        recorder = EventRecorder(store)
        fence = await create_and_lead(store)
        state = Leadership(1, 0, (1, 2), 0, fence.epoch)
        await store.reassignment_request()
        await other.request_preferred_election([ORDERS_0])
        await ear_of_none(recorder, store)
        assert await store.preferred_election_request() == [ORDERS_0]
        assert await store.deletions() == []
        await store.watch_leaderships([ORDERS_0, ORDERS_1])

        for round_ in range(2):
            proxy.reachable = False
            await proxy.cut()
            await wait_for(store, connected=False)
            await other.write_isr(ORDERS_1, state, expected=2 * round_)
            await other.request_reassignment({ORDERS_0: (1, round_)})
            await other.mark_deletion(f"t{round_}")
            proxy.reachable = True

            await recorder.wait_for_all(
                StoreEvent(Changed.REASSIGNMENT_REQUEST),
                StoreEvent(Changed.LEADERSHIP, "orders-1"),
                StoreEvent(Changed.DELETIONS),
            )
            assert recorder.events == []  # neither of the election that was pending before, nor of the other partition
            assert await store.reassignment_request() == {ORDERS_0: (1, round_)}
            await store.deletions()
            await other.write_isr(ORDERS_1, state, expected=2 * round_ + 1)
            await recorder.wait_for(Changed.LEADERSHIP, "orders-1")
            await store.set_reassignment_request({ORDERS_1: (7,)}, fence)
            await store.set_reassignment_request({}, fence)

        assert recorder.events == []
        assert tree.exists("/admin/reassign_partitions") is None


async def test_lost_session_ends_watches_of_single_partitions(
    proxy: Proxy, chroot: str, connect: str, kind: Kind
) -> None:
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=1_000, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        fence = await create_and_lead(other)
        state = Leadership(1, 0, (1, 2), 0, fence.epoch)
        recorder = EventRecorder(store)
        await store.watch_leaderships([ORDERS_0])
        await store.reassignment_request()
        await anyio.to_thread.run_sync(end_session, store._client)
        await recorder.wait_for(Changed.SESSION_LOST)
        await recorder.wait_for(Changed.SESSION_OPENED)

        await other.write_isr(ORDERS_0, state, expected=0)
        await other.request_reassignment({ORDERS_0: (1,)})
        await other.create_topic(TopicRef("more"), {}, {})
        assert await store.topics() == ["more", "orders"]
        assert recorder.events == []
        assert not store._armed._leaderships

        await store.watch_leaderships([ORDERS_0])
        await other.write_isr(ORDERS_0, state, expected=1)
        await recorder.wait_for(Changed.LEADERSHIP, "orders-0")
        assert recorder.events == []


async def test_topic_replaced_while_disconnected_is_deleted_and_created(
    proxy: Proxy, chroot: str, connect: str, kind: Kind
) -> None:
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        fence = await create_and_lead(other)
        await other.create_topic(TopicRef("other"), THREE_PARTITIONS, {})
        recorder = EventRecorder(store)
        await store.assignments(await store.topics())
        proxy.reachable = False
        await proxy.cut()
        await wait_for(store, connected=False)
        await delete_topic(other, "orders", fence)
        await other.create_topic(ORDERS, {0: Assignment((9,))}, {})
        proxy.reachable = True

        await recorder.wait_for(Changed.TOPICS)
        assert await store.topics() == ["orders", "other"]
        assert store.take_deleted_topics() == {"orders"}


async def test_topic_created_again_before_its_watch_is_compared_is_reported(
    proxy: Proxy, chroot: str, connect: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is followed by a reconnection, and the event of the creation precedes the result of arming."""
    path = "/brokers/topics/orders"
    compared: list[Any] = []
    async with (
        ZooKeeperStore(proxy_address(proxy, chroot), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        fence = await create_and_lead(other)
        EventRecorder(store)  # without a listener no watch is armed
        await store.assignments(await store.topics())
        watches = store._armed
        proxy.reachable = False
        await proxy.cut()
        await wait_for(store, connected=False)
        await delete_topic(other, "orders", fence)
        with monkeypatch.context() as patched, anyio.fail_after(WAIT_S):
            patched.setattr(watches, "_compare", lambda *each: compared.append(each))
            proxy.reachable = True
            while all(each[0] != path for each in compared):  # noqa: ASYNC110 - only the reconnection signals it
                await anyio.sleep(0.01)
            await other.create_topic(ORDERS, {0: Assignment((9,))}, {})
            while any(each[0] == path for each in watches._armed):  # noqa: ASYNC110
                await anyio.sleep(0.01)

        for each in compared:
            watches._compare(*each)

        assert await store.topics() == ["orders"]
        assert store.take_deleted_topics() == {"orders"}


async def test_topic_replaced_while_its_event_is_sent_is_reported(store: ZooKeeperStore, connect: str) -> None:
    """The topic's watch has fired and is not armed again. Only the list and the next read show the deletion."""
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other:
        fence = await create_and_lead(other)
        recorder = EventRecorder(store)
        await store.assignments(await store.topics())
        await other.write_assignment(ORDERS, {0: Assignment((1,))}, None)
        await recorder.wait_for(Changed.TOPIC, "orders")
        await delete_topic(other, "orders", fence)
        await other.create_topic(ORDERS, {0: Assignment((9,))}, {})

        await store.assignments(["orders"])

        await recorder.wait_for(Changed.TOPICS)
        assert await store.topics() == ["orders"]
        assert store.take_deleted_topics() == {"orders"}


async def ear_of_none(recorder: EventRecorder, store: ZooKeeperStore) -> None:
    """Receives the events of the cluster's creation."""
    await store.topics()
    recorder.events.clear()


async def test_thousand_partitions_are_watched(store: ZooKeeperStore, connect: str) -> None:
    names = [TopicPartition("orders", at) for at in range(1_000)]
    await store.create_topic(ORDERS, {at: Assignment((1,)) for at in range(1_000)}, {})
    fence = await store.contest(1)
    await store.commit(new_write(names, isr=(1,)), fence)
    recorder = EventRecorder(store)
    await store.watch_leaderships(names)

    for version in range(2):
        await store.commit(new_write(names, isr=(1,), leader_epoch=version, expected=version), fence)
        await recorder.wait_for_all(*(StoreEvent(Changed.LEADERSHIP, str(name)) for name in names))
        await store.topics()  # all earlier events are received before this response
        assert recorder.events == []


async def test_write_before_the_watch_is_armed_again_is_reported(
    store: ZooKeeperStore, connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server executes the second write before it arms the watch that the first one has fired."""
    held: list[Any] = []
    recorder = EventRecorder(store)
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other:
        fence = await create_and_lead(store)
        state = Leadership(1, 0, (1, 2), 0, fence.epoch)
        await store.watch_leaderships([ORDERS_0])
        with monkeypatch.context() as patched:
            patched.setattr(store._armed, "_arm", held.append)
            await other.write_isr(ORDERS_0, state, expected=0)
            await recorder.wait_for(Changed.LEADERSHIP, "orders-0")
        await other.write_isr(ORDERS_0, state, expected=1)

        for watched in held:
            store._armed._arm(watched)

        await recorder.wait_for(Changed.LEADERSHIP, "orders-0")
        await other.write_isr(ORDERS_0, state, expected=2)
        await recorder.wait_for(Changed.LEADERSHIP, "orders-0")
        await store.topics()
        assert recorder.events == []


async def test_watches_of_one_call_survive_a_disconnection_between_its_responses(
    chroot: str, proxy: Proxy, connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = proxy_address(proxy, chroot)
    async with (
        ZooKeeperStore(address, session_timeout_ms=SESSION_MS, max_in_flight=1) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        recorder = EventRecorder(store)
        fence = await create_and_lead(store)
        answered = store._client._answered

        def disconnect(call: Any, result: Any) -> None:
            monkeypatch.undo()
            answered(call, result)
            store._client._connection._connection.drop("cut by the test")  # type: ignore[attr-defined]

        monkeypatch.setattr(store._client, "_answered", disconnect)
        await store.watch_leaderships([ORDERS_0, ORDERS_1])

        for name in (ORDERS_0, ORDERS_1):
            await other.write_isr(name, Leadership(1, 0, (1, 2), 0, fence.epoch), expected=0)
            await recorder.wait_for(Changed.LEADERSHIP, str(name))
        assert store._armed._connections == 1


async def take_over(store: ZooKeeperStore, other: ZooKeeperStore) -> None:
    await other.contest(2, take_over=True)


async def write_registration(store: ZooKeeperStore, other: ZooKeeperStore) -> None:
    await other.evict(1, (await other.brokers())[1].epoch, await other.contest(2, take_over=True))


async def store_requests(store: ZooKeeperStore, other: ZooKeeperStore) -> None:
    await other.request_reassignment({ORDERS_0: (2,)})
    await other.request_preferred_election([ORDERS_0])


@pytest.mark.parametrize(
    ("read", "responses", "change", "kinds"),
    [
        # The client is connected again before or after the next controller is there.
        (ZooKeeperStore.controller, 1, take_over, [Changed.CONTROLLER_GONE, Changed.CONTROLLER]),
        (ZooKeeperStore.brokers, 2, write_registration, [Changed.BROKER]),
        (ZooKeeperStore.reassignment_request, 1, store_requests, [Changed.REASSIGNMENT_REQUEST]),
        (ZooKeeperStore.preferred_election_request, 1, store_requests, [Changed.PREFERRED_ELECTION_REQUEST]),
    ],
)
async def test_watches_of_a_read_survive_a_disconnection_within_it(
    chroot: str,
    proxy: Proxy,
    connect: str,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[ZooKeeperStore], Awaitable[object]],
    responses: int,
    change: Callable[[ZooKeeperStore, ZooKeeperStore], Awaitable[None]],
    kinds: list[Changed],
) -> None:
    """The first responses of the read arrive over a connection that is lost before the others do."""
    address = proxy_address(proxy, chroot)
    async with (
        ZooKeeperStore(address, session_timeout_ms=SESSION_MS, max_in_flight=1) as store,
        ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as other,
    ):
        recorder = EventRecorder(store)
        fence = await create_and_lead(other)
        for broker in (1, 2):
            await other.register_remote(broker_info(broker), bytes(16), SESSION_MS, fence)
        answered = store._client._answered
        left = responses

        def disconnect(call: Any, result: Any) -> None:
            nonlocal left
            answered(call, result)
            left -= 1
            if not left:
                store._client._connection._connection.drop("cut by the test")  # type: ignore[attr-defined]

        monkeypatch.setattr(store._client, "_answered", disconnect)
        await read(store)
        await change(store, other)

        await recorder.wait_for_one_of(*kinds)
        assert store._armed._connections == 1
