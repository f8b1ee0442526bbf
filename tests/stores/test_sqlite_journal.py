"""A snapshot and the changes since yield the committed entries, for the writing process and for all others."""

import random
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from kactl.model import NO_VERSION, Assignment, Fence, TopicPartition, TopicRef
from kactl.model.errors import Remedy, StoreUnavailable
from kactl.stores.base import Assignments, Leaderships, Names
from kactl.stores.sqlite import Connection, Cursor, SqliteStore, database, journal, snapshot
from kactl.stores.sqlite.database import Database
from tests.support.clocks import ManualClock
from tests.support.store_clients import ALL, create_and_lead, new_write

from .maintenance import run_maintenance

pytestmark = pytest.mark.anyio

MANY_MEMBERS = random.Random(3).choices(range(2**31), k=2_000)
NAMES = [TopicPartition("wide", at) for at in range(40)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    # The clock does not advance: maintenance runs only when a test runs it.
    async with SqliteStore(tmp_path / "kactl.db", clock=ManualClock()) as store:
        await store.create_topic(TopicRef("wide"), {at: Assignment((1, 2)) for at in range(40)}, {})
        yield store


async def commit_rounds(store: SqliteStore, fence: Fence, rounds: range) -> None:
    """Writes some partitions in each round, with the number of the round as leader epoch."""
    for round_ in rounds:
        names = random.Random(round_).sample(NAMES, 7)
        version = (await store.leaderships(Names.of(names))).partition_epoch
        await store.commit(new_write(names, leader_epoch=round_, expected=version.tolist()), fence)


def row_counts(path: Path) -> dict[str, int]:
    """Returns the number of rows of each table."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("journal", "snapshot")
        }


def same_leaderships(one: Leaderships, other: Leaderships) -> bool:
    return all(one.one(at) == other.one(at) for at in range(len(NAMES)))


async def test_commit_is_forced_to_disk(store: SqliteStore) -> None:
    connection = store._thread.database

    settings = [await store._thread.run(connection.one, f"PRAGMA {name}") for name in ("synchronous", "journal_mode")]

    assert settings == [2, "wal"]  # 2 is FULL


async def test_change_is_one_row(store: SqliteStore) -> None:
    fence = await store.contest(1)
    before = row_counts(store.path)["journal"]

    await store.commit(new_write(NAMES), fence)

    assert row_counts(store.path)["journal"] == before + 1


async def test_empty_change_adds_no_row(store: SqliteStore) -> None:
    fence = await store.contest(1)
    await store.commit(new_write(NAMES), fence)
    before = row_counts(store.path)

    committed = await store.commit(new_write(NAMES, expected=NO_VERSION), fence)

    assert not committed.committed.any()
    assert row_counts(store.path) == before


async def test_long_journal_is_replaced_by_a_snapshot(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "CHANGES_MAX", 10)
    monkeypatch.setattr(snapshot, "PART_ROWS", 16)
    fence = await store.contest(1)

    await commit_rounds(store, fence, range(30))
    await run_maintenance(store)
    standing = row_counts(store.path)
    await commit_rounds(store, fence, range(30, 35))

    found = await store.leaderships(Names.of(NAMES))
    assert (standing["journal"], standing["snapshot"]) == (0, 3)
    async with SqliteStore(store.path) as other:
        assert same_leaderships(await other.leaderships(Names.of(NAMES)), found)


async def test_large_journal_is_replaced_by_a_snapshot(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MIN", 100)
    fence = await store.contest(1)

    await store.commit(new_write(NAMES, leader=list(range(40))), fence)
    await run_maintenance(store)

    assert row_counts(store.path) == {"journal": 0, "snapshot": 1}


async def test_another_process_follows_changes_and_snapshots(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CHANGES_MAX", 5)
    fence = await store.contest(1)
    await store.commit(new_write(NAMES), fence)
    async with SqliteStore(store.path, clock=ManualClock()) as other:
        for begin in range(0, 60, 4):
            await commit_rounds(store, fence, range(begin, begin + 4))
            if begin % 3:
                await run_maintenance(store)  # the other process did not see the changes that this drops

            ours, theirs = [await client.leaderships(Names.of(NAMES)) for client in (store, other)]
            assert same_leaderships(ours, theirs)
            if begin % 5 == 0:
                state = ours.one(0)
                assert state is not None
                assert await other.write_isr(NAMES[0], state, expected=state.partition_epoch)


async def test_two_processes_writing_snapshots_leave_one(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "CHANGES_MAX", 2)
    fence = await store.contest(1)
    async with SqliteStore(store.path) as other:
        await commit_rounds(store, fence, range(10))
        found = await other.leaderships(Names.of(NAMES))
        for client in (store, other, store):
            await run_maintenance(client)

        assert row_counts(store.path) == {"journal": 0, "snapshot": 1}
        assert same_leaderships(await store.leaderships(Names.of(NAMES)), found)
        assert (await other.commit(new_write(NAMES[:1], expected=int(found.partition_epoch[0])), fence)).version[0] >= 0


async def test_log_is_checkpointed_into_the_file(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOG_BYTES_MAX", 1)
    fence = await store.contest(1)
    await store.commit(new_write(NAMES), fence)

    await run_maintenance(store)

    with closing(sqlite3.connect(f"file:{store.path}?immutable=1", uri=True)) as alone:  # without the log
        assert alone.execute("SELECT count(*) FROM journal").fetchone() == (1,)


async def test_truncated_log_contains_a_prefix(store: SqliteStore, tmp_path: Path) -> None:
    fence = await store.contest(1)
    await store.commit(new_write(NAMES), fence)
    for round_ in range(1, 20):
        await store.commit(new_write(NAMES, leader_epoch=round_, expected=round_ - 1), fence)
    whole, log = store.path.read_bytes(), Path(f"{store.path}-wal").read_bytes()
    chance, seen = random.Random(7), set()
    cuts = [*sorted(chance.randrange(len(log)) for _ in range(40)), len(log)]

    for number, cut in enumerate(cuts):
        path = tmp_path / f"cut-{number}.db"
        path.write_bytes(whole)
        Path(f"{path}-wal").write_bytes(log[:cut])
        async with SqliteStore(path) as other:
            found = await other.leaderships(Names.of(NAMES))
        epochs = set(found.leader_epoch.tolist())
        assert len(epochs) == 1, f"log cut at {cut}: a change is there by halves"
        seen.add(epochs.pop())

    assert max(seen) == 19
    assert len(seen) > 5


async def test_failed_commit_leaves_columns_equal_to_the_file(store: SqliteStore) -> None:
    fence = await store.contest(1)
    await store.commit(new_write(NAMES), fence)
    held = store._thread.database
    with closing(sqlite3.connect(store.path, isolation_level=None)) as full:
        (pages,) = full.execute("PRAGMA page_count").fetchone()
    await store._thread.run(held.one, f"PRAGMA max_page_count = {pages}")
    before = await store.leaderships(Names.of(NAMES))

    with pytest.raises(StoreUnavailable, match="full"):
        await store.commit(new_write(NAMES, isr=[MANY_MEMBERS] * 40, expected=0), fence)

    assert same_leaderships(await store.leaderships(Names.of(NAMES)), before)
    await store._thread.run(held.one, "PRAGMA max_page_count = 1000000")
    assert (await store.commit(new_write(NAMES, expected=0), fence)).committed.all()


async def test_commit_rejected_by_the_database_changes_nothing(store: SqliteStore) -> None:
    fence = await store.contest(1)
    await store.commit(new_write(NAMES), fence)
    refusing = """
        PRAGMA foreign_keys = ON;
        CREATE TEMP TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TEMP TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
        CREATE TEMP TRIGGER refuse AFTER INSERT ON main.journal BEGIN INSERT INTO child VALUES (1); END;
    """
    await store._thread.run(store._thread.database.connection.executescript, refusing)
    before = await store.leaderships(Names.of(NAMES))

    with pytest.raises(StoreUnavailable, match="FOREIGN KEY"):
        await store.commit(new_write(NAMES, leader=2, expected=0), fence)

    assert same_leaderships(await store.leaderships(Names.of(NAMES)), before)
    await store._thread.run(store._thread.database.connection.execute, "DROP TRIGGER refuse")
    assert (await store.commit(new_write(NAMES, leader=3, expected=0), fence)).committed.all()
    async with SqliteStore(store.path) as other:
        assert (await other.leaderships(Names.of(NAMES))).leader.tolist() == [3] * 40


class Forgetful:
    """A connection that commits and then reports a failure."""

    def __init__(self, real: Connection) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, query: str, *values: Any) -> Cursor:
        done = self.real.execute(query, *values)
        if query == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return done


async def test_commit_with_unknown_outcome_can_be_read_back(store: SqliteStore) -> None:
    fence = await store.contest(1)
    await store.commit(new_write(NAMES), fence)
    held = store._thread.database
    held.connection = cast(Connection, Forgetful(held.connection))

    with pytest.raises(StoreUnavailable) as caught:
        await store.commit(new_write(NAMES, leader=2, expected=0), fence)

    held.connection = cast(Forgetful, held.connection).real
    assert caught.value.remedy is Remedy.READ_BACK
    assert (await store.leaderships(Names.of(NAMES))).partition_epoch.tolist() == [1] * 40
    assert (await store.commit(new_write(NAMES, leader=3, expected=1), fence)).committed.all()


async def test_many_topics_are_created_at_once(store: SqliteStore) -> None:
    wanted = {TopicPartition(f"m{topic}", at): Assignment((topic, at)) for topic in range(20) for at in range(topic)}

    await store.create_topics(Assignments.of(wanted))

    assert dict((await store.assignments(await store.topics())).items()).items() >= wanted.items()


async def test_copy_of_a_running_store_opens(store: SqliteStore, tmp_path: Path) -> None:
    await create_and_lead(store)
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{store.path}{suffix}", f"{copy}{suffix}")

    with closing(Database(copy, ManualClock())) as opened:
        assert len(opened.journal.entries) == len(ALL)
