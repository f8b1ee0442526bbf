"""A file of an earlier schema is migrated when it is opened, whole or not at all."""

import asyncio
import contextlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kactl.model import Features, ProducerIdBlock
from kactl.model.errors import StoreDamaged, StoreError
from kactl.stores.base import Names
from kactl.stores.sqlite import SqliteStore, schema
from tests.support.clocks import ManualClock
from tests.support.store_clients import ALL, ORDERS_0, broker_info, create_and_lead, new_write, stored_leadership

pytestmark = pytest.mark.anyio

TIMEOUT_MS = 6_000
TO_THIRD = """
ALTER TABLE leases DROP COLUMN boot;
ALTER TABLE leases DROP COLUMN lock;
ALTER TABLE leases DROP COLUMN turn;
ALTER TABLE leases RENAME TO sessions;
PRAGMA user_version = 3;
"""
TO_FIRST = TO_THIRD + "DROP TABLE deletions; DROP TABLE records; PRAGMA user_version = 1;"


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """Returns a file of the first schema with a cluster in it."""
    path = tmp_path / "kactl.db"
    async with SqliteStore(path) as store:
        fence = await create_and_lead(store)
        await store.commit(new_write([ORDERS_0], leader=2, leader_epoch=1, expected=0), fence)
        await store.set_topic_config("orders", {"a": "b"})
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TO_FIRST)
    return path


def schema_version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("PRAGMA user_version").fetchone()
        return int(number)


async def check_content(path: Path) -> None:
    """Verifies that the old content is present, and that the new tables can be used."""
    async with SqliteStore(path) as store:
        assert await store.topics() == ["orders"]
        assert await store.topic_configs(["orders"]) == {"orders": {"a": "b"}}
        assert (await store.leaderships(Names.of(ALL))).found.all()
        found = await stored_leadership(store, ORDERS_0)
        assert found is not None
        assert (found.leader, found.leader_epoch) == (2, 1)
        fence = await store.contest(1)
        assert fence.epoch == 2
        assert await store.features() is None
        await store.write_features(Features({"a": 1}), fence)
        assert await store.write_producer_ids(ProducerIdBlock(1, 0, 1_000), expected=0)
        await store.mark_deletion("orders")
        assert await store.deletions() == ["orders"]


async def test_old_file_is_migrated(old: Path) -> None:
    assert schema_version(old) == 1

    await check_content(old)

    assert schema_version(old) == schema.SCHEMA_VERSION
    async with SqliteStore(old) as store:
        assert await store.deletions() == ["orders"]


async def test_uncleanly_closed_old_file_is_migrated(old: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("INSERT INTO default_config VALUES (1, x'00')")
        connection.execute("DELETE FROM default_config")
        connection.commit()
        copy = tmp_path / "copy.db"
        for end in ("", "-wal"):
            Path(f"{copy}{end}").write_bytes(Path(f"{old}{end}").read_bytes())

    await check_content(copy)

    assert schema_version(copy) == schema.SCHEMA_VERSION


async def test_two_processes_may_open_an_old_file_at_once(old: Path) -> None:
    async with SqliteStore(old) as one, SqliteStore(old) as two:
        await one.mark_deletion("a")
        await two.mark_deletion("b")

        assert await one.deletions() == ["a", "b"]


async def test_file_that_cannot_be_migrated_is_unchanged(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schema._ADDED, 2, schema._ADDED[2] + "CREATE TABLE topics (a);")
    before = old.read_bytes()

    with pytest.raises(StoreError, match="table topics already exists"):
        async with SqliteStore(old):
            pass

    assert schema_version(old) == 1
    assert old.read_bytes() == before
    monkeypatch.undo()
    await check_content(old)


def open_files(path: Path) -> list[str]:
    """Returns the files of a store that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of this listing is closed by now
            found.append(os.readlink(descriptor))
    return [name for name in found if name.startswith(str(path))]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed by Linux")
async def test_failed_migration_leaves_no_open_connection(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schema._ADDED, 2, schema._ADDED[2] + "CREATE TABLE topics (a);")

    with pytest.raises(StoreError) as caught:
        await SqliteStore(old).__aenter__()

    assert open_files(old) == []
    del caught  # referenced until here, because its traceback references the connection


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed by Linux")
async def test_cancelled_opening_leaves_no_open_connection(tmp_path: Path) -> None:
    path = tmp_path / "kactl.db"
    store = SqliteStore(path)
    opening = asyncio.create_task(store.__aenter__())
    await asyncio.sleep(0)  # its thread has begun

    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert open_files(path) == []


@pytest.mark.parametrize("table", ["deletions", "records"])
async def test_current_schema_without_a_new_table_is_rejected(old: Path, table: str) -> None:
    await check_content(old)
    with closing(sqlite3.connect(old)) as connection:
        connection.execute(f"DROP TABLE {table}")

    with pytest.raises(StoreDamaged, match=f"it has no table {table}"):
        async with SqliteStore(old):
            pass


async def test_damaged_record_is_named(old: Path) -> None:
    await check_content(old)
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE records SET data = substr(data, 1, 9) WHERE name = 'producer ids'")

    with pytest.raises(StoreDamaged, match="record of producer ids is damaged"):
        async with SqliteStore(old):
            pass


async def third_schema(path: Path, *, lease_of: int) -> None:
    """Returns a file of the third schema, with broker 1 in a session that ends by the wall clock."""
    async with SqliteStore(path) as store:
        await create_and_lead(store)
        session = await store.new_session(TIMEOUT_MS)
        await session.register(broker_info(1))
        with closing(sqlite3.connect(path)) as connection, connection:
            kept = connection.execute("SELECT * FROM leases WHERE id = ?", (session.id,)).fetchone()
            registered = connection.execute("SELECT * FROM brokers").fetchone()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO leases (id, timeout_ms, expires_ms) VALUES (?, ?, ?)", (*kept[:2], lease_of))
        connection.execute("INSERT INTO brokers VALUES (?, ?, ?)", registered)
        connection.commit()
        connection.executescript(TO_THIRD)


@pytest.mark.parametrize("expires_ms", [1, 1_700_000_000_000, 9_999_999_999_999])
async def test_wall_clock_lease_lasts_one_more_timeout_after_the_migration(tmp_path: Path, expires_ms: int) -> None:
    path, clock = tmp_path / "kactl.db", ManualClock()
    await third_schema(path, lease_of=expires_ms)

    async with SqliteStore(path, clock=clock) as store:
        assert schema_version(path) == schema.SCHEMA_VERSION
        assert list(await store.brokers()) == [1]
        clock._passed_ms += TIMEOUT_MS - 1
        await store._thread.run(store._thread.sessions.end_silent_sessions)
        assert list(await store.brokers()) == [1]
        clock._passed_ms += 1
        await store._thread.run(store._thread.sessions.end_silent_sessions)
        assert list(await store.brokers()) == []


async def test_session_numbers_are_not_used_again_after_the_migration(tmp_path: Path) -> None:
    path = tmp_path / "kactl.db"
    async with SqliteStore(path) as store:
        last = (await store.new_session(TIMEOUT_MS)).id
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TO_THIRD)

    async with SqliteStore(path) as store:
        assert store.session_id > last


async def test_older_process_cannot_renew_its_lease_after_migration(tmp_path: Path) -> None:
    path = tmp_path / "kactl.db"
    await third_schema(path, lease_of=9_999_999_999_999)

    with closing(sqlite3.connect(path)) as earlier:
        renewal = "UPDATE sessions SET expires_ms = 9999999999999 WHERE id = 2"
        earlier.execute(renewal)
        earlier.commit()
        async with SqliteStore(path):
            with pytest.raises(sqlite3.OperationalError, match="no such table: sessions"):
                earlier.execute(renewal)
