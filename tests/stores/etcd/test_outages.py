"""Servers that die, hang, or are missing; lost responses; discarded revisions; a full server."""

import base64
import contextlib
import shutil
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kactl.model import Assignment, Fence, TopicPartition, TopicRef
from kactl.model.errors import BadRequest, ControllerMoved, SessionExpired, StoreError, StoreUnavailable
from kactl.runtime.clock import SystemClock
from kactl.stores.base import Changed, Names, StoreEvent
from kactl.stores.etcd import EtcdSession, EtcdStore, calls
from kactl.stores.etcd.calls import TOKEN_PAUSE_S, EtcdError
from kactl.stores.etcd.client import OPERATIONS_DEFAULT
from kactl.stores.etcd.messages import DeleteRange, Put, authenticate
from kactl.stores.etcd.session import NO_SESSION
from tests.support.etcd_server import EtcdEnsemble, EtcdServer, require_etcd
from tests.support.processes import free_port
from tests.support.store_clients import (
    ALL,
    ORDERS,
    ORDERS_0,
    THREE_PARTITIONS,
    EventRecorder,
    broker_info,
    create_and_lead,
    delete_topic,
    new_write,
    stored_leadership,
)

from .proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

# The shortest session that a server grants with its default settings.
SESSION_MS = 2_000
# Longer than a busy machine needs to restart a server.
LONG_MS = 30_000
# After this time without what was written, a watch is opened again.
SILENCE_S = 3.0
ROWS = [TopicPartition("orders", number) for number in range(2_000)]


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


async def create_with_leaders(store: EtcdStore) -> Fence:
    await store.create_topic(ORDERS, {name.partition: Assignment((1, 2, 3)) for name in ROWS}, {})
    fence = await store.contest(100)
    assert (await store.commit(new_write(ROWS), fence)).committed.all()
    return fence


async def test_session_and_watch_survive_the_restart_of_a_killed_server(fresh_etcd: EtcdServer) -> None:
    async with (
        EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS) as store,
        EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS) as other,
    ):
        recorder = EventRecorder(store)
        fence = await create_and_lead(store)
        await store.topics()

        await anyio.to_thread.run_sync(fresh_etcd.kill)
        await anyio.to_thread.run_sync(fresh_etcd.start)
        await other.create_topic(TopicRef("more"), {}, {})

        await recorder.wait_for(Changed.TOPICS)
        assert await store.topics() == ["more", "orders"]
        await store.check(fence)
        assert Changed.SESSION_LOST not in {event.what for event in recorder.events}


async def test_server_is_killed_and_restarted_during_a_commit(fresh_etcd: EtcdServer) -> None:
    async with EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS, batch_partitions=20) as store:
        fence = await create_with_leaders(store)
        outcomes = []

        async def commit() -> None:
            outcomes.append(await store.commit(new_write(ROWS, leader=2, leader_epoch=1, expected=0), fence))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            while (await store.leaderships(Names.of(ROWS))).leader.max() != 2:
                pass
            await anyio.to_thread.run_sync(fresh_etcd.kill)
            assert not outcomes
            await anyio.to_thread.run_sync(fresh_etcd.start)

        found = await store.leaderships(Names.of(ROWS))
        assert outcomes[0].committed.all()
        assert (found.partition_epoch == 1).all()
        assert (found.leader == 2).all()


async def test_long_pause_of_the_server_suspends_the_session(fresh_etcd: EtcdServer) -> None:
    async with EtcdStore([fresh_etcd.url], session_timeout_ms=SESSION_MS) as store:
        recorder = EventRecorder(store)
        fence = await create_and_lead(store)

        fresh_etcd.pause()
        await recorder.wait_for(Changed.SUSPENDED)
        fresh_etcd.resume()

        if await recorder.wait_for_one_of(Changed.CONNECTED, Changed.SESSION_LOST) is Changed.CONNECTED:
            await store.check(fence)
        else:
            await recorder.wait_for(Changed.SESSION_OPENED)
            assert await store.controller() is None
            assert (await store.contest(1)).epoch == fence.epoch + 1


async def test_missing_server_is_named(cluster: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    store = EtcdStore([url], cluster=cluster, start_timeout_ms=500)

    with pytest.raises(StoreUnavailable, match=f"{url} does not answer: connection refused; check that it runs"):
        async with store:
            pass

    assert url in store.trouble


async def test_second_endpoint_serves_when_the_first_is_missing(etcd: EtcdServer, cluster: str) -> None:
    endpoints = [f"http://127.0.0.1:{free_port()}", etcd.url, f"http://127.0.0.1:{free_port()}"]

    async with EtcdStore(endpoints, cluster=cluster) as store:
        assert await store.topics() == []
        assert store.trouble == ""


# -- lost responses


async def test_commit_with_a_lost_response_is_recognised(etcd: EtcdServer, cluster: str, proxy: Proxy) -> None:
    async with EtcdStore([proxy.url], cluster=cluster) as store:
        fence = await create_and_lead(store)
        change = new_write(ALL, leader=2, leader_epoch=1, expected=0)

        proxy.lose(b"/state/")
        committed = await store.commit(change, fence)

        assert proxy.lost == 1
        assert committed.committed.all()
        assert (await store.leaderships(Names.of(ALL))).partition_epoch.tolist() == [1, 1, 1]


async def test_unanswered_commit_is_reported_as_unknown(etcd: EtcdServer, cluster: str, proxy: Proxy) -> None:
    """All answers are lost, those to the reads as well."""
    async with EtcdStore([proxy.url], cluster=cluster, session_timeout_ms=SESSION_MS) as store:
        fence = await create_and_lead(store)

        proxy.lose(b"/epoch", count=1_000)
        with pytest.raises(StoreUnavailable):
            await store.commit(new_write([ORDERS_0], leader=2, leader_epoch=1, expected=0), fence)
        proxy.lose(b"", count=0)

        found = await stored_leadership(store, ORDERS_0)
        assert found is not None
        assert (found.leader, found.partition_epoch) == (2, 1)


async def test_election_with_a_lost_response_is_recognised(etcd: EtcdServer, cluster: str, proxy: Proxy) -> None:
    async with EtcdStore([proxy.url], cluster=cluster) as store:
        proxy.lose(b"/controller")

        fence = await store.contest(7)

        assert proxy.lost == 1
        await store.check(fence)
        held = await store.controller()
        assert held is not None
        assert (held.id, held.epoch) == (7, fence.epoch)


async def test_own_election_that_nobody_knows_of_does_not_block_the_next_one(
    etcd: EtcdServer, cluster: str, proxy: Proxy
) -> None:
    async with EtcdStore([proxy.url], cluster=cluster, session_timeout_ms=SESSION_MS) as store:
        await store.controller()
        first = await store.contest(7)
        # As after an election whose response was lost, and which could not be read back.
        again = await store.contest(7)

        assert again.epoch == first.epoch + 1
        with pytest.raises(ControllerMoved):
            await store.check(first)


async def test_next_session_is_reported_although_a_response_to_its_opening_is_lost(
    etcd: EtcdServer, cluster: str, proxy: Proxy
) -> None:
    async with EtcdStore([proxy.url], cluster=cluster, session_timeout_ms=LONG_MS) as store:
        recorder = EventRecorder(store)
        first = await store.contest(7)

        proxy.lose(store._client.keys.root + b"clients/")
        await store._client.revoke(store.session_id)

        await recorder.wait_for(Changed.SESSION_LOST)
        await recorder.wait_for(Changed.SESSION_OPENED)
        assert proxy.lost == 1
        assert (await store.contest(7)).epoch == first.epoch + 1


async def test_copy_without_a_session_writes_no_key_that_stays(etcd: EtcdServer, cluster: str) -> None:
    async with EtcdStore([etcd.url], cluster=cluster) as store:
        store._session.lease = NO_SESSION

        with pytest.raises(SessionExpired):
            await store._session.write_key()

        assert await store._client.get(store._client.keys.client(NO_SESSION)) is None


# -- watches


async def test_changes_during_an_outage_are_reported(etcd: EtcdServer, cluster: str, proxy: Proxy) -> None:
    async with EtcdStore([proxy.url], cluster=cluster) as store, EtcdStore([etcd.url], cluster=cluster) as other:
        recorder = EventRecorder(store)
        fence = await create_and_lead(other)
        await store.topics()
        position = (await store.changes(None)).position

        proxy.reachable = False
        await proxy.cut()
        await other.create_topic(TopicRef("more"), {}, {})
        await other.commit(new_write([ORDERS_0], leader_epoch=1, expected=0), fence)
        proxy.reachable = True

        await recorder.wait_for(Changed.TOPICS)
        changes = await store.changes(position)
        assert not changes.whole
        assert (set(changes.topics), [str(name) for name in changes.partitions]) == ({"more"}, ["orders-0"])


async def test_changes_behind_a_silent_connection_are_reported(etcd: EtcdServer, cluster: str, proxy: Proxy) -> None:
    """As behind a firewall that has forgotten a connection, or at a member that is cut off from the others."""
    store = EtcdStore([proxy.url], cluster=cluster, session_timeout_ms=LONG_MS)
    store._calls.limit_s = SILENCE_S
    async with store, EtcdStore([etcd.url], cluster=cluster, session_timeout_ms=LONG_MS) as other:
        recorder = EventRecorder(store)
        await store.topics()

        proxy.freeze()
        await other.create_topic(ORDERS, THREE_PARTITIONS, {})

        await recorder.wait_for(Changed.TOPICS)


async def test_copy_behind_a_silent_connection_follows_again(etcd: EtcdServer, cluster: str, proxy: Proxy) -> None:
    store = EtcdStore([proxy.url], cluster=cluster, session_timeout_ms=LONG_MS)
    store._calls.limit_s = SILENCE_S
    async with store, EtcdStore([etcd.url], cluster=cluster, session_timeout_ms=LONG_MS) as other:
        position = (await store.changes(None)).position

        proxy.freeze()
        await other.create_topic(ORDERS, THREE_PARTITIONS, {})

        changes = None
        with anyio.fail_after(LONG_MS / 1000):
            while changes is None:
                with contextlib.suppress(StoreUnavailable):
                    changes = await store.changes(position)
        assert (changes.whole, set(changes.topics)) == (False, {"orders"})


async def test_deletion_that_is_reported_late_does_not_concern_the_next_topic(
    etcd: EtcdServer, cluster: str, proxy: Proxy
) -> None:
    store = EtcdStore([proxy.url], cluster=cluster, session_timeout_ms=LONG_MS)
    store._calls.limit_s = SILENCE_S
    async with store, EtcdStore([etcd.url], cluster=cluster, session_timeout_ms=LONG_MS) as other:
        recorder = EventRecorder(store)
        fence = await create_and_lead(other)
        await store.assignments(await store.topics())

        proxy.freeze()
        await delete_topic(other, "orders", fence)
        await other.create_topic(ORDERS, THREE_PARTITIONS, {})
        await store.assignments(await store.topics())
        assert store.take_deleted_topics() == {"orders"}
        await proxy.cut()
        await other.create_topic(TopicRef("more"), {}, {})

        await recorder.wait_for(Changed.TOPICS)
        await store.topics()
        assert store.take_deleted_topics() == frozenset()


async def test_more_missed_changes_than_fit_into_a_response_are_reported(
    etcd: EtcdServer, cluster: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "RESPONSE_BYTES_MAX", 6 << 20)
    async with (
        EtcdStore([proxy.url], cluster=cluster, session_timeout_ms=LONG_MS) as store,
        EtcdStore([etcd.url], cluster=cluster, session_timeout_ms=LONG_MS) as other,
    ):
        recorder = EventRecorder(store)
        fence = await create_and_lead(other)
        await store.topics()
        position = (await store.changes(None)).position

        proxy.reachable = False
        await proxy.cut()
        for _ in range(10):
            await other.set_topic_config("large", {"note": "x" * 700_000})
        await other.commit(new_write(ALL, leader_epoch=1, expected=0), fence)
        await other.create_topic(TopicRef("more"), {}, {})
        proxy.reachable = True

        await recorder.wait_for(Changed.TOPICS)
        changes = await store.changes(position)
        assert not changes.whole
        assert (set(changes.topics), len(changes.partitions)) == ({"more"}, len(ALL))


async def test_discarded_revisions_make_everything_changed(etcd: EtcdServer, cluster: str, proxy: Proxy) -> None:
    async with EtcdStore([proxy.url], cluster=cluster) as store, EtcdStore([etcd.url], cluster=cluster) as other:
        recorder = EventRecorder(store)
        fence = await create_and_lead(other)
        await store.assignments(await store.topics())
        await store.watch_leaderships([ORDERS_0])
        position = (await store.changes(None)).position

        proxy.reachable = False
        await proxy.cut()
        await other.create_topic(TopicRef("more"), {}, {})
        committed = await other.commit(new_write([ORDERS_0], leader_epoch=1, expected=0), fence)
        assert committed.committed.all()
        await anyio.to_thread.run_sync(compact, etcd)
        proxy.reachable = True

        await recorder.wait_for_all(
            StoreEvent(Changed.TOPICS), StoreEvent(Changed.TOPIC, "orders"), StoreEvent(Changed.LEADERSHIP, "orders-0")
        )
        assert await store.topics() == ["more", "orders"]
        assert (await store.changes(position)).whole
        position = (await store.changes(None)).position
        await other.commit(new_write([ORDERS_0], leader_epoch=2, expected=1), fence)
        assert [str(name) for name in (await store.changes(position)).partitions] == ["orders-0"]


def compact(server: EtcdServer) -> None:
    """Discard all revisions but the present one."""
    revision = server.call("/v3/kv/range", {"key": text("none")})["header"]["revision"]
    server.call("/v3/kv/compaction", {"revision": revision, "physical": True})


class Backup:
    """A copy of a server's data as of now, that can be restored once."""

    def __init__(self, server: EtcdServer, folder: Path) -> None:
        self._server = server
        self._data, self._copy = server.folder / f"data-{server.name}", folder / "backup"
        server.kill()
        shutil.copytree(self._data, self._copy)
        server.start()

    def restore(self) -> None:
        self._server.kill()
        shutil.rmtree(self._data)
        self._copy.rename(self._data)
        self._server.start()


async def test_restored_backup_ends_the_session(fresh_etcd: EtcdServer, tmp_path: Path) -> None:
    """Revisions begin again with that of the backup."""
    store = EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS)
    store._calls.limit_s = SILENCE_S
    async with store, EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS) as other:
        recorder = EventRecorder(store)
        await create_and_lead(store)
        backup = await anyio.to_thread.run_sync(Backup, fresh_etcd, tmp_path)
        for number in range(20):
            await other.create_topic(TopicRef(f"lost-{number}"), {}, {})
        assert (await other.contest(8, take_over=True)).epoch == 2
        assert await store.controller() is not None
        assert len(await store.topics()) == 21
        position = (await store.changes(None)).position

        await anyio.to_thread.run_sync(backup.restore)

        await recorder.wait_for(Changed.SESSION_LOST)
        await recorder.wait_for(Changed.SESSION_OPENED)
        assert await store.topics() == ["orders"]
        assert (await store.changes(position)).whole
        position = (await store.changes(None)).position
        await other.create_topic(TopicRef("more"), {}, {})
        await recorder.wait_for(Changed.TOPICS)
        assert (await store.changes(position)).topics == {"more"}
        # The backup has epoch 1, under which tokens were issued that are lower than those of epoch 2.
        assert (await store.contest(7)).epoch == 3


async def test_restored_backup_is_detected_while_the_watch_is_behind_it(fresh_etcd: EtcdServer, tmp_path: Path) -> None:
    """What the backup lacks is known from a read; the watch has received nothing."""
    store = EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS)
    watch = store._watch  # not running
    async with store._calls, EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS) as other:
        await watch.begin()
        await other.create_topic(ORDERS, THREE_PARTITIONS, {})
        backup = await anyio.to_thread.run_sync(Backup, fresh_etcd, tmp_path)
        await other.create_topic(TopicRef("lost"), {}, {})
        position = await watch.record()

        await anyio.to_thread.run_sync(backup.restore)

        assert (await watch.changes(position, await watch.catch_up(other._session.write_key))).whole


async def test_keys_of_other_programs_do_not_delay_a_copy(etcd: EtcdServer, cluster: str) -> None:
    async with EtcdStore([etcd.url], cluster=cluster) as store:
        position = (await store.changes(None)).position
        await anyio.to_thread.run_sync(etcd.call, "/v3/kv/put", {"key": text("/elsewhere"), "value": text("1")})

        with anyio.fail_after(60):
            changes = await store.changes(position)

        assert not changes.whole
        assert changes.position > position


@pytest.mark.parametrize(
    "key",
    [
        b"state/no topic's number/0000000000",
        b"state/zzzzzzzzzzzzzzzz/0000000000",
        b"state/0000000000000001/notanumber",
        b"state/0000000000000001/9999999999",
        b"state/\xff",
        b"brokers/\xff",
        b"brokers/one",
        b"assignments/\xff",
        b"delete/\xff",
        b"clients/\xff",
        b"notify/isr/\xff",
        b"notify/log-dir/\xff",
        b"\xff",
    ],
)
async def test_foreign_key_is_survived(etcd: EtcdServer, cluster: str, key: bytes) -> None:
    async with EtcdStore([etcd.url], cluster=cluster) as store:
        recorder = EventRecorder(store)
        fence = await create_and_lead(store)
        position = (await store.changes(None)).position
        await store.notify_isr([ORDERS_0])
        (notification,) = await store.isr_notifications()
        root = store._client.keys.root
        stored = await store._client.get(notification.key.encode())
        assert stored is not None
        value = stored.value

        for _ in range(2):
            await store._client.txn([], [Put(root + key, value)])

        assert [str(name) for name in (await store.changes(position)).partitions] == []
        assert (await store.leaderships(Names.of(ALL))).found.all()
        assert await store.partitions_begun("orders") == [0, 1, 2]
        assert await store.topics() == ["orders"]
        assert await store.brokers() == {}
        await store.deletions()
        for found in (await store.isr_notifications(), await store.log_dir_notifications()):
            await store.delete_notifications(found, fence)
        assert await store.isr_notifications() == await store.log_dir_notifications() == []
        assert Changed.BROKER not in {event.what for event in recorder.events}  # its name has to be a number
        await store.check(fence)


# -- several members, and servers with problems


async def test_leader_of_three_members_is_killed(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_etcd()
    with EtcdEnsemble(tmp_path_factory.mktemp("ensemble"), 3) as ensemble:
        async with EtcdStore(ensemble.urls, session_timeout_ms=LONG_MS) as store:
            recorder = EventRecorder(store)
            fence = await create_and_lead(store)
            session = await store.new_session(LONG_MS)
            await session.register(broker_info(1))
            leader = await anyio.to_thread.run_sync(ensemble.leader)
            await store.topics()

            await anyio.to_thread.run_sync(leader.kill)
            committed = await store.commit(new_write(ALL, leader=2, leader_epoch=1, expected=0), fence)
            await store.create_topic(TopicRef("more"), {}, {})

            assert committed.committed.all()
            await recorder.wait_for(Changed.TOPICS)
            await store.check(fence)
            await session.renew(0)
            assert session.bound.kind == "witnessed"
            assert list(await store.brokers()) == [1]
            assert (await store.leaderships(Names.of(ALL))).leader.tolist() == [2, 2, 2]
            assert Changed.SESSION_LOST not in {event.what for event in recorder.events}


async def test_endpoints_of_two_clusters_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_etcd()
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    with EtcdServer(folders[0]) as one, EtcdServer(folders[1]) as other:
        for urls in ([one.url, other.url], [other.url, one.url]):
            with pytest.raises(StoreError, match="belong to different clusters of etcd") as refused:
                async with EtcdStore(urls, session_timeout_ms=LONG_MS):
                    pytest.fail("entered")

            assert one.url in str(refused.value)
            assert other.url in str(refused.value)

        other.kill()
        async with EtcdStore([one.url, other.url], session_timeout_ms=LONG_MS) as store:
            assert await store.topics() == []


async def test_full_server_is_reported_with_its_remedy(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_etcd()
    folder = tmp_path_factory.mktemp("full")
    with EtcdServer(folder, options=["--quota-backend-bytes", str(1 << 20)]) as server:
        async with EtcdStore([server.url], session_timeout_ms=LONG_MS) as store:
            fence = await create_and_lead(store)
            large = {"note": "x" * 500_000}

            async def fill() -> None:
                for _ in range(1_000):  # the server measures its size ten times a second
                    await store.set_topic_config("orders", large)

            with pytest.raises(StoreError, match="alarm disarm") as raised:
                await fill()

            assert not isinstance(raised.value, StoreUnavailable)
            assert await store.topics() == ["orders"]
            await store.check(fence)


async def test_renewals_are_counted_with_one_member(etcd: EtcdServer, cluster: str) -> None:
    async with EtcdStore([etcd.url], cluster=cluster) as store:
        session = await store.new_session(LONG_MS)

        assert session.bound.kind == "counted"


async def test_witnessed_renewal_fails_without_the_registration(etcd: EtcdServer, cluster: str) -> None:
    async with EtcdStore([etcd.url], cluster=cluster) as store:
        session = EtcdSession(store._client, await store._client.grant_lease(30), SystemClock(), one_member=False)
        await session.register(broker_info(1))
        await session.renew(0)
        await store._client.txn([], [DeleteRange(store._client.keys.broker(1))])

        with pytest.raises(SessionExpired):
            await session.renew(0)


# -- authentication


@pytest.fixture
def guarded_etcd(fresh_etcd: EtcdServer) -> EtcdServer:
    """A server with authentication: a user for one cluster only."""
    fresh_etcd.enable_authentication()
    return fresh_etcd


async def test_user_works_within_the_prefix(guarded_etcd: EtcdServer) -> None:
    async with EtcdStore([guarded_etcd.url], cluster="ours", user="kactl", password="secret") as store:
        fence = await create_and_lead(store)
        await store.check(fence)
        store._calls._token = "expired"

        assert await store.topics() == ["orders"]


async def test_restart_that_forgets_all_tokens_loses_no_event_and_no_session(guarded_etcd: EtcdServer) -> None:
    settings: dict[str, Any] = {"cluster": "ours", "user": "kactl", "password": "secret"}
    async with (
        EtcdStore([guarded_etcd.url], session_timeout_ms=LONG_MS, **settings) as store,
        EtcdStore([guarded_etcd.url], session_timeout_ms=LONG_MS, **settings) as other,
    ):
        recorder = EventRecorder(store)
        fence = await create_and_lead(store)
        await store.topics()

        await anyio.to_thread.run_sync(guarded_etcd.kill)
        await anyio.to_thread.run_sync(guarded_etcd.start)
        await other.create_topic(TopicRef("more"), {}, {})

        await recorder.wait_for(Changed.TOPICS)
        await store.check(fence)
        assert Changed.SESSION_LOST not in {event.what for event in recorder.events}


async def add_user(root: EtcdStore, name: bytes) -> None:
    await root._calls.write("/etcdserverpb.Auth/UserAdd", authenticate(name.decode(), "secret"))


async def test_signed_token_is_renewed_after_a_change_of_users(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tokens of kind JWT name the revision of the users and roles, and are void once that has changed."""
    require_etcd()
    folder = tmp_path_factory.mktemp("jwt")
    key = folder / "key"
    key.write_text("a key that only this server has")
    with EtcdServer(folder, options=["--auth-token", f"jwt,priv-key={key},sign-method=HS256,ttl=1h"]) as server:
        server.enable_authentication()
        async with (
            EtcdStore([server.url], cluster="ours", user="kactl", password="secret") as store,
            EtcdStore([server.url], cluster="ours", user="root", password="root") as root,
        ):
            recorder = EventRecorder(store)
            fence = await create_and_lead(store)

            await add_user(root, b"another")
            await store.commit(new_write(ALL, leader=2, leader_epoch=1, expected=0), fence)
            await add_user(root, b"one more")
            assert await store.topics() == ["orders"]

            await root.create_topic(TopicRef("more"), {}, {})
            await recorder.wait_for(Changed.TOPICS)


@pytest.mark.parametrize(("user", "password", "reported"), [("kactl", "secret", False), ("root", "root", True)])
async def test_user_with_too_many_rights_is_reported(
    guarded_etcd: EtcdServer, caplog: pytest.LogCaptureFixture, user: str, password: str, *, reported: bool
) -> None:
    async with EtcdStore([guarded_etcd.url], cluster="ours", user=user, password=password):
        assert ("rights outside of /kactl/ours/" in caplog.text) == reported


async def test_watches_do_not_log_in_again_at_once(guarded_etcd: EtcdServer) -> None:
    async with EtcdStore([guarded_etcd.url], cluster="ours", user="kactl", password="secret") as store:
        calls = store._calls
        first = calls._token
        calls._token_since_s = anyio.current_time()
        calls.renew_token()
        assert calls._token == first
        calls._token_since_s -= TOKEN_PAUSE_S
        calls.renew_token()
        assert calls._token == ""


@pytest.mark.parametrize(
    ("cluster_name", "user", "password", "remedy"),
    [
        ("ours", "kactl", "wrong", "password-file"),
        ("ours", None, None, "`user`"),
        ("theirs", "kactl", "secret", "grant the user"),
    ],
)
async def test_refused_user_is_told_what_to_check(
    guarded_etcd: EtcdServer, cluster_name: str, user: str | None, password: str | None, remedy: str
) -> None:
    store = EtcdStore([guarded_etcd.url], cluster=cluster_name, user=user, password=password)

    with pytest.raises(EtcdError, match=remedy):
        async with store:
            pass


async def test_superfluous_user_is_reported(etcd: EtcdServer, cluster: str) -> None:
    with pytest.raises(EtcdError, match="leave `user` out"):
        async with EtcdStore([etcd.url], cluster=cluster, user="kactl", password="secret"):
            pass


async def test_too_large_topic_leaves_nothing(etcd: EtcdServer, cluster: str) -> None:
    async with EtcdStore([etcd.url], cluster=cluster) as store:
        with pytest.raises(BadRequest, match="write less"):
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"note": "x" * (1 << 20)})

        assert await store.topics() == []


async def test_session_that_was_counted_ends_when_a_member_is_added(fresh_etcd: EtcdServer) -> None:
    """A learner, which does not vote yet: with a voter the server would wait for it."""
    async with EtcdStore([fresh_etcd.url], session_timeout_ms=LONG_MS) as store:
        session = await store.new_session(LONG_MS)
        await session.register(broker_info(1))
        await session.keep_alive()

        body = {"peerURLs": [f"http://127.0.0.1:{free_port()}"], "isLearner": True}
        await anyio.to_thread.run_sync(fresh_etcd.call, "/v3/cluster/member/add", body)

        with pytest.raises(SessionExpired):
            await session.keep_alive()
        assert await store.brokers() == {}
        assert (await store.new_session(LONG_MS)).bound.kind == "witnessed"


async def test_server_that_accepts_fewer_operations_than_before_is_written_to(tmp_path: Path) -> None:
    require_etcd()
    with EtcdServer(tmp_path, options=["--max-txn-ops=1000"]) as server:
        async with EtcdStore([server.url], session_timeout_ms=LONG_MS) as store:
            fence = await create_with_leaders(store)
            assert await store._client.operations() > OPERATIONS_DEFAULT

            await anyio.to_thread.run_sync(server.stop)
            server._options = []
            await anyio.to_thread.run_sync(server.start)

            change = new_write(ROWS, leader=2, leader_epoch=1, expected=0)
            assert (await store.commit(change, fence)).committed.all()
