"""Topics deleted from a file: visible to the deleting process, to other processes, and after a later open."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.model.errors import StoreDamaged
from kactl.stores.base import Changed, Names
from kactl.stores.sqlite import SqliteStore, journal
from tests.support.clocks import ManualClock
from tests.support.store_clients import (
    ALL,
    ORDERS,
    ORDERS_0,
    THREE_PARTITIONS,
    EventRecorder,
    create_and_lead,
    delete_topic,
    new_write,
    stored_leadership,
)

from .maintenance import run_maintenance

pytestmark = pytest.mark.anyio

OTHER_0 = TopicPartition("other", 0)


def sqlite_store_at(path: Path) -> SqliteStore:
    """Returns a store with a stopped clock: maintenance and polling run only when a test runs them."""
    return SqliteStore(path, clock=ManualClock())


async def entries(store: SqliteStore) -> int:
    """Returns the number of leadership entries."""
    return await store._thread.run(lambda: len(store._thread.database.journal.entries))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kactl.db"


@pytest.mark.parametrize("snapshot_before", [False, True])
@pytest.mark.parametrize("snapshot_after", [False, True])
async def test_later_reader_finds_the_remaining_entries(
    path: Path, monkeypatch: pytest.MonkeyPatch, snapshot_before: bool, snapshot_after: bool
) -> None:
    monkeypatch.setattr(journal, "CHANGES_MAX", 1)
    async with sqlite_store_at(path) as store, sqlite_store_at(path) as witness:
        fence = await create_and_lead(store)
        await store.create_topic(TopicRef("other"), {0: Assignment((1,))}, {})
        await store.commit(new_write([OTHER_0], leader=7), fence)
        assert (await witness.leaderships(Names.of(ALL))).found.all()
        if snapshot_before:
            await run_maintenance(store)
        await delete_topic(store, "orders", fence)
        if snapshot_after:
            await run_maintenance(store)
        assert await entries(store) == 1
        assert not (await witness.leaderships(Names.of(ALL))).found.any()
        assert await entries(witness) == 1

    async with sqlite_store_at(path) as store:
        assert await entries(store) == 1
        assert not (await store.leaderships(Names.of(ALL))).found.any()
        found = await stored_leadership(store, OTHER_0)
        assert found is not None
        assert found.leader == 7
        await store.create_topic(ORDERS, THREE_PARTITIONS, {})
        committed = await store.commit(new_write([ORDERS_0], leader=3), await store.contest(1))
        assert committed.version.tolist() == [0]

    async with sqlite_store_at(path) as store:
        found = await stored_leadership(store, ORDERS_0)
        assert found is not None
        assert (found.leader, found.partition_epoch) == (3, 0)


async def test_rejected_deletion_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sqlite_store_at(path) as store:
        fence = await create_and_lead(store)
        await store.mark_deletion("orders")

        def fail(*_: object) -> None:
            raise sqlite3.OperationalError("the disk is full")

        monkeypatch.setattr(store._thread.database, "stamp", fail)
        with pytest.raises(Exception, match="the disk is full"):
            await delete_topic(store, "orders", fence)
        monkeypatch.undo()

        assert await store.topics() == ["orders"]
        assert await store.deletions() == ["orders"]
        assert (await store.leaderships(Names.of(ALL))).found.all()
        await delete_topic(store, "orders", fence)
        assert not (await store.leaderships(Names.of(ALL))).found.any()


@pytest.mark.parametrize("frame", ["cut", "flipped"])
async def test_damaged_removal_is_detected(path: Path, frame: str) -> None:
    async with sqlite_store_at(path) as store:
        fence = await create_and_lead(store)
        await delete_topic(store, "orders", fence)
    with closing(sqlite3.connect(path)) as connection, connection:
        (seq, data) = connection.execute("SELECT seq, frame FROM journal ORDER BY seq DESC").fetchone()
        wrong = data[:-3] if frame == "cut" else data[:-1] + bytes([data[-1] ^ 1])
        connection.execute("UPDATE journal SET frame = ? WHERE seq = ?", (wrong, seq))

    with pytest.raises(StoreDamaged, match=f"change {seq} is damaged"):
        async with sqlite_store_at(path):
            pass


async def test_misplaced_removal_is_detected(path: Path) -> None:
    async with sqlite_store_at(path) as store:
        fence = await create_and_lead(store)
        await store.create_topic(TopicRef("other"), {0: Assignment((1,))}, {})
        await delete_topic(store, "orders", fence)
        await delete_topic(store, "other", fence)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE journal SET frame = (SELECT frame FROM journal WHERE seq = 3) WHERE seq = 2")

    with pytest.raises(StoreDamaged, match="it is removal 3"):
        async with sqlite_store_at(path):
            pass


async def test_name_index_of_a_deleted_topic_is_removed(path: Path) -> None:
    async with sqlite_store_at(path) as store:
        fence = await store.contest(1)
        for number in range(30):
            topic = TopicRef(f"t{number}")
            await store.create_topic(topic, THREE_PARTITIONS, {"a": "b"})
            await store.set_topic_config(topic.name, {"a": "c"})
            await store.write_assignment(topic, THREE_PARTITIONS, fence)
            await delete_topic(store, topic.name, fence)

    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM stamps")]
        assert connection.execute("SELECT count(*) FROM configs").fetchone() == (0,)
    assert "".join(names) == ""


async def test_writes_only_in_a_snapshot_count_as_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "CHANGES_MAX", 1)
    async with sqlite_store_at(path) as watching, sqlite_store_at(path) as writer:
        fence = await create_and_lead(writer)
        recorder = EventRecorder(watching)
        await watching.watch_leaderships([ORDERS_0])
        position = (await watching.changes(None)).position
        await writer.commit(new_write([ORDERS_0], leader=2, leader_epoch=1, expected=0), fence)
        await run_maintenance(writer)  # the journal is empty now

        assert (await watching.changes(position)).whole
        await recorder.wait_for(Changed.LEADERSHIP, "orders-0")
