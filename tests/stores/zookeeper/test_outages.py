"""Servers that die, hang, or are missing; sessions that survive and sessions that do not; no leaked resources."""

import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest

from kactl.model import Assignment, Fence, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved, SessionExpired, StoreError, StoreUnavailable
from kactl.stores.base import Changed, Names
from kactl.stores.zookeeper import ZooKeeperStore
from tests.support.kazoo_connection import CLIENTS, Kind
from tests.support.processes import free_port
from tests.support.store_clients import (
    ORDERS,
    SESSION_MS,
    THREE_PARTITIONS,
    WAIT_S,
    EventRecorder,
    broker_info,
    new_write,
)
from tests.support.zookeeper_server import ZooKeeperServer

from .proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

ROWS = [TopicPartition("orders", number) for number in range(5_000)]
# Longer than a busy machine needs to create a topic of this size and to elect its leaders.
SHORT_MS = 6_000


async def create_with_leaders(store: ZooKeeperStore) -> Fence:
    await store.create_topic(ORDERS, {name.partition: Assignment((1, 2, 3)) for name in ROWS}, {})
    fence = await store.contest(100)
    assert (await store.commit(new_write(ROWS), fence)).committed.all()
    return fence


def threads() -> set[threading.Thread]:
    """Returns the running threads, without those of the loop's own pools, which wait for more work."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith(("AnyIO", "asyncio"))}


async def test_server_is_killed_and_restarted_during_a_commit(fresh_zookeeper: ZooKeeperServer, kind: Kind) -> None:
    async with ZooKeeperStore(
        fresh_zookeeper.connect("/k"), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]
    ) as store:
        recorder = EventRecorder(store)
        fence = await create_with_leaders(store)
        outcomes = []

        async def commit() -> None:
            change = new_write(ROWS, leader=2, leader_epoch=1, expected=0)
            outcomes.append(await store.commit(change, fence))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                before = store._client._progress
                tasks.start_soon(commit)
                while store._client._progress < before + 10:  # of fifty multis
                    await anyio.lowlevel.checkpoint()
                await anyio.to_thread.run_sync(fresh_zookeeper.kill)
                assert not outcomes
                await anyio.to_thread.run_sync(fresh_zookeeper.start)

        found = await store.leaderships(Names.of(ROWS))
        assert outcomes[0].committed.all()
        assert (found.partition_epoch == 1).all()
        assert (found.leader == 2).all()
        assert Changed.SESSION_LOST not in {event.what for event in recorder.events}
        await store.resign(fence)


async def test_pause_shorter_than_the_timeout_keeps_the_session(fresh_zookeeper: ZooKeeperServer) -> None:
    async with ZooKeeperStore(fresh_zookeeper.connect("/k"), session_timeout_ms=SESSION_MS) as store:
        recorder = EventRecorder(store)
        fence = await create_with_leaders(store)
        found = []

        async def read() -> None:
            found.append(await store.leaderships(Names.of(ROWS)))

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                fresh_zookeeper.pause()
                tasks.start_soon(read)
                with anyio.move_on_after(1):
                    await anyio.to_thread.run_sync(threading.Event().wait, 1.0)
                assert not found
                fresh_zookeeper.resume()

        assert found[0].found.all()
        assert (await store.commit(new_write(ROWS, expected=0), fence)).committed.all()
        assert Changed.SESSION_LOST not in {event.what for event in recorder.events}


async def test_long_server_pause_ends_in_the_same_or_a_new_session(
    fresh_zookeeper: ZooKeeperServer,
) -> None:
    """Pauses the server, not the client. On resumption it either expires the session or reads the client's messages."""
    async with ZooKeeperStore(fresh_zookeeper.connect("/k"), session_timeout_ms=SHORT_MS) as store:
        recorder = EventRecorder(store)
        fence = await create_with_leaders(store)

        fresh_zookeeper.pause()
        with pytest.raises((StoreUnavailable, SessionExpired)):
            await store.leaderships(Names.of(ROWS))  # fails after two session timeouts
        assert store.trouble.startswith("there is no connection to ZooKeeper at ")
        fresh_zookeeper.resume()
        with anyio.fail_after(WAIT_S):
            while True:
                try:
                    held = await store.controller()
                    break
                except StoreError:
                    await anyio.sleep(0.05)

        if held is None:
            await recorder.wait_for(Changed.SESSION_LOST)
            await recorder.wait_for(Changed.SESSION_OPENED)
        with anyio.fail_after(WAIT_S):
            again = await store.contest(100, take_over=True)
        assert again.epoch == fence.epoch + 1
        with pytest.raises(ControllerMoved):
            await store.commit(new_write(ROWS[:1], expected=0), fence)
        assert (await store.commit(new_write(ROWS, expected=0), again)).committed.all()


async def test_silent_connection_suspends_the_session(proxy: Proxy, chroot: str) -> None:
    async with ZooKeeperStore(f"127.0.0.1:{proxy.port}{chroot}", session_timeout_ms=SESSION_MS) as store:
        recorder = EventRecorder(store)
        with anyio.fail_after(WAIT_S):
            proxy.reachable = False
            await proxy.cut()
            await recorder.wait_for(Changed.SUSPENDED)

            proxy.reachable = True
            await recorder.wait_for(Changed.CONNECTED)

        assert Changed.SESSION_LOST not in {event.what for event in recorder.events}


async def test_session_is_suspended_by_the_timeout_that_the_server_has_granted(proxy: Proxy, chroot: str) -> None:
    """A server limits timeouts to twenty ticks."""
    hours_ms = 3_600_000
    async with ZooKeeperStore(f"127.0.0.1:{proxy.port}{chroot}", session_timeout_ms=hours_ms) as store:
        recorder = EventRecorder(store)
        proxy.reachable = False
        await proxy.cut()

        await recorder.wait_for(Changed.SUSPENDED)

        proxy.reachable = True
        await recorder.wait_for(Changed.CONNECTED)


async def test_write_outcome_is_unknown_after_a_lost_connection(proxy: Proxy, chroot: str, kind: Kind) -> None:
    async with ZooKeeperStore(
        f"127.0.0.1:{proxy.port}{chroot}", session_timeout_ms=SESSION_MS, client=CLIENTS[kind]
    ) as store:
        fence = await create_with_leaders(store)
        position = (await store.changes(None)).position
        assert not (await store.changes(position)).whole

        await proxy.cut()
        await store.commit(new_write(ROWS[:1], expected=0), fence)

        assert (await store.changes(position)).whole
        position = (await store.changes(None)).position
        await store.commit(new_write(ROWS[:1], expected=1), fence)
        changes = await store.changes(position)
        assert not changes.whole
        assert list(changes.partitions) == ROWS[:1]


async def test_changes_are_known_after_a_request_to_watch_was_given_up(
    proxy: Proxy, zookeeper: ZooKeeperServer, chroot: str, kind: Kind
) -> None:
    async with (
        ZooKeeperStore(f"127.0.0.1:{proxy.port}{chroot}", session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as store,
        ZooKeeperStore(zookeeper.connect(chroot), session_timeout_ms=SESSION_MS) as other,
    ):
        recorder = EventRecorder(store)
        fence = await create_with_leaders(other)
        with anyio.fail_after(WAIT_S):
            proxy.reachable = False
            await proxy.cut()
            await recorder.wait_for(Changed.SUSPENDED)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.changes, None)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            proxy.reachable = True
            await recorder.wait_for(Changed.CONNECTED)

            position = (await store.changes(None)).position
            await other.commit(new_write(ROWS[:1], expected=0), fence)
            changes = await store.changes(position)

        assert list(changes.partitions) == ROWS[:1]


async def test_pending_calls_fail_at_session_end(proxy: Proxy, zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with (
        ZooKeeperStore(f"127.0.0.1:{proxy.port}{chroot}", session_timeout_ms=SHORT_MS) as store,
        ZooKeeperStore(zookeeper.connect(chroot), session_timeout_ms=SESSION_MS) as other,
    ):
        recorder, watching = EventRecorder(store), EventRecorder(other)
        fence = await create_with_leaders(store)
        await other.controller()
        errors = []

        async def commit() -> None:
            try:
                await store.commit(new_write(ROWS, expected=0), fence)
            except StoreError as error:
                errors.append(error)

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                proxy.reachable = False
                await proxy.cut()
                tasks.start_soon(commit)
                await watching.wait_for(Changed.CONTROLLER_GONE)
                proxy.reachable = True

        await recorder.wait_for(Changed.SESSION_LOST)
        await recorder.wait_for(Changed.SESSION_OPENED)
        assert [type(error) for error in errors] == [SessionExpired]
        assert (await other.contest(2)).epoch == fence.epoch + 1
        with pytest.raises(ControllerMoved):
            await store.commit(new_write(ROWS[:1], expected=0), fence)


async def test_silent_participant_loses_its_registration(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with ZooKeeperStore(zookeeper.connect(chroot), session_timeout_ms=SESSION_MS) as store:
        recorder = EventRecorder(store)
        session = await store.new_session(1_000)
        await session.register(broker_info(1))
        await store.brokers()

        await recorder.wait_for(Changed.BROKERS)

        assert await store.brokers() == {}
        with pytest.raises(SessionExpired):
            await session.keep_alive()
        await session.close()


async def test_missing_server_fails_in_bounded_time_without_leaks(kind: Kind) -> None:
    before, connect = threads(), f"127.0.0.1:{free_port()}"

    with anyio.fail_after(WAIT_S), pytest.raises(StoreUnavailable, match="answered within 1 s"):
        async with ZooKeeperStore(connect, session_timeout_ms=1_000, start_timeout_ms=1_000, client=CLIENTS[kind]):
            pass

    assert threads() <= before


async def test_closing_ends_all_threads_and_sessions(zookeeper: ZooKeeperServer, chroot: str, kind: Kind) -> None:
    before = threads()
    async with ZooKeeperStore(zookeeper.connect(chroot), session_timeout_ms=SESSION_MS) as other:
        async with ZooKeeperStore(
            zookeeper.connect(chroot), session_timeout_ms=SESSION_MS, client=CLIENTS[kind]
        ) as store:
            await store.contest(1)
            session = await store.new_session(SESSION_MS)
            await session.register(broker_info(1))
            assert (len(threads()) > len(before)) == (kind == "kazoo")

        assert await other.controller() is None
        assert await other.brokers() == {}
        with pytest.raises(StoreUnavailable):
            await store.topics()
        with pytest.raises(SessionExpired):
            await session.keep_alive()
    assert threads() <= before


async def test_closing_with_a_hanging_server_is_bounded(fresh_zookeeper: ZooKeeperServer) -> None:
    before = threads()
    with anyio.fail_after(WAIT_S):
        async with ZooKeeperStore(fresh_zookeeper.connect("/k"), session_timeout_ms=SHORT_MS) as store:
            await store.topics()
            fresh_zookeeper.pause()

    assert threads() <= before
    fresh_zookeeper.resume()


async def test_store_works_after_a_cancelled_zookeeper_call(fresh_zookeeper: ZooKeeperServer) -> None:
    async with ZooKeeperStore(fresh_zookeeper.connect("/k"), session_timeout_ms=SESSION_MS) as store:
        fence = await create_with_leaders(store)
        fresh_zookeeper.pause()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.commit, new_write(ROWS, leader=2, leader_epoch=1, expected=0), fence)
            while not store._client._waiting:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        fresh_zookeeper.resume()

        found = await store.leaderships(Names.of(ROWS))

        # The request in flight was executed, the queued one was not, and no request follows.
        versions = found.partition_epoch
        assert set(versions.tolist()) == {0, 1}
        assert np.array_equal(versions, np.sort(versions)[::-1])
        assert not store._client._waiting
        await store.create_topic(TopicRef("next"), THREE_PARTITIONS, {})


class Unwritable:
    """A request at which kazoo's thread fails, as at an unknown error code."""

    type = 1

    def serialize(self) -> bytes:
        raise RuntimeError("this cannot be written")


async def test_unwritable_request_fails_alone(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with ZooKeeperStore(zookeeper.connect(chroot), session_timeout_ms=SESSION_MS) as store:
        fence = await store.contest(1)

        with pytest.raises(StoreUnavailable, match="this cannot be written"):
            await store._client.ask(Unwritable())

        assert await store.topics() == []
        await store.resign(fence)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_kazoo_whose_thread_has_ended_is_started_again(zookeeper: ZooKeeperServer, chroot: str) -> None:
    before = threads()
    async with ZooKeeperStore(
        zookeeper.connect(chroot), session_timeout_ms=SESSION_MS, client=CLIENTS["kazoo"]
    ) as store:
        recorder = EventRecorder(store)
        fence = await store.contest(1)

        with pytest.raises(SessionExpired):
            await store._client.ask(Unwritable())

        await recorder.wait_for(Changed.SESSION_LOST)
        await recorder.wait_for(Changed.SESSION_OPENED)
        assert (await store.contest(1, take_over=True)).epoch == fence.epoch + 1
    assert threads() <= before
