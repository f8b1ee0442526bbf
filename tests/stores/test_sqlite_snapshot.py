"""A snapshot written in parts contains the same entries, whichever process changes them meanwhile."""

import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from kactl.model import NO_VERSION, Assignment, Fence, TopicPartition, TopicRef
from kactl.stores.base import Names
from kactl.stores.sqlite import SqliteStore, database, journal, snapshot
from kactl.stores.sqlite.snapshot import BASES_APART
from tests.support.clocks import ManualClock
from tests.support.marks import fast_and_slow
from tests.support.store_clients import delete_topic, new_write

from .maintenance import run_maintenance, run_maintenance_step

pytestmark = pytest.mark.anyio

TOPICS = [f"topic-{number}" for number in range(8)]
PARTITIONS = range(5)
NAMES = [TopicPartition(topic, at) for topic in TOPICS for at in PARTITIONS]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets ten parts of four entries each, one due at every second change."""
    monkeypatch.setattr(journal, "CHANGES_MAX", 2)
    monkeypatch.setattr(database, "FAR_TOO_LONG", 10_000)
    monkeypatch.setattr(snapshot, "PART_ROWS", 4)


def sqlite_store(path: Path) -> SqliteStore:
    """Returns a store with a stopped clock: maintenance runs only when a test runs it."""
    return SqliteStore(path, clock=ManualClock())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with sqlite_store(tmp_path / "kactl.db") as store:
        yield store


@pytest.fixture
async def fence(store: SqliteStore) -> Fence:
    """Returns the fence of the store's controller, after some changes."""
    fence = await store.contest(1)
    for topic in TOPICS:
        await create_topic(store, topic)
    await store.commit(new_write(NAMES, leader_epoch=0, expected=NO_VERSION), fence)
    await store.commit(new_write(NAMES, leader_epoch=1, expected=0), fence)
    return fence


async def create_topic(store: SqliteStore, topic: str) -> None:
    await store.create_topic(TopicRef(topic), {at: Assignment((1, 2)) for at in PARTITIONS}, {})


async def commit_next(store: SqliteStore, fence: Fence, names: list[TopicPartition]) -> None:
    """Raises the leader epoch of each partition."""
    found = await store.leaderships(Names.of(names))
    epochs, versions = (found.leader_epoch + 1).tolist(), found.partition_epoch.tolist()
    assert (await store.commit(new_write(names, leader_epoch=epochs, expected=versions), fence)).committed.all()


async def stored_epochs(store: SqliteStore) -> dict[TopicPartition, tuple[int, int]]:
    """Returns leader epoch and version of every partition that has an entry."""
    found = await store.leaderships(Names.of(NAMES))
    epochs = zip(found.leader_epoch.tolist(), found.partition_epoch.tolist(), strict=True)
    return {name: state for name, state, there in zip(NAMES, epochs, found.found, strict=True) if there}


async def loaded(path: Path) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the same from a newly opened file."""
    async with sqlite_store(path) as other:
        return await stored_epochs(other)


def snapshot_parts(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [part for (part,) in connection.execute("SELECT part FROM snapshot ORDER BY part")]


async def test_changes_between_the_parts_are_kept(store: SqliteStore, fence: Fence) -> None:
    await run_maintenance(store)  # one that is replaced
    await commit_next(store, fence, NAMES)
    await commit_next(store, fence, NAMES)

    steps = 0
    while await run_maintenance_step(store):
        steps += 1
        await commit_next(store, fence, NAMES[steps : steps + 20 : 3])
        assert await loaded(store.path) == await stored_epochs(store)

    assert steps == 9, "forty entries by four, and the last of them ends it"
    assert snapshot_parts(store.path) == list(range(BASES_APART, BASES_APART + 10))
    assert await loaded(store.path) == await stored_epochs(store)


async def test_snapshot_restarts_after_a_topic_deletion(store: SqliteStore, fence: Fence) -> None:
    for _ in range(6):
        assert await run_maintenance_step(store)

    await delete_topic(store, TOPICS[0], fence)  # entries of the last parts move into the first, which are written
    await run_maintenance(store)

    assert (await stored_epochs(store)).keys() == {name for name in NAMES if name.topic != TOPICS[0]}
    assert await loaded(store.path) == await stored_epochs(store)
    assert len(snapshot_parts(store.path)) == 9, "nothing is left of the one that was given up"


@pytest.mark.parametrize("was_first", [False, True])
async def test_first_finished_of_two_processes_wins(store: SqliteStore, fence: Fence, was_first: bool) -> None:
    async with sqlite_store(store.path) as other:
        if was_first:
            assert await run_maintenance_step(store)
        for _ in range(4):
            assert await run_maintenance_step(other)
        await commit_next(store, fence, NAMES)
        await run_maintenance(store)
        base = 0 if was_first else BASES_APART
        assert snapshot_parts(store.path) == list(range(base, base + 10)), "what the other one has written is gone"
        await run_maintenance(other)

        assert snapshot_parts(store.path)[0] == base, "the other one saw that there was nothing left to do"
        assert await loaded(store.path) == await stored_epochs(store) == await stored_epochs(other)


async def test_parts_left_by_a_process_are_deleted_by_the_next(store: SqliteStore, fence: Fence) -> None:
    async with sqlite_store(store.path) as dying:
        for _ in range(5):
            assert await run_maintenance_step(dying)
    assert len(snapshot_parts(store.path)) == 5
    assert await loaded(store.path) == await stored_epochs(store), "before any is whole, all is in the journal"

    await run_maintenance(store)

    assert snapshot_parts(store.path) == list(range(BASES_APART, BASES_APART + 10))


async def test_snapshot_that_never_finishes_is_written_as_a_whole(
    store: SqliteStore, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TOPICS[:2]:
        assert await run_maintenance_step(store)
        await delete_topic(store, name, fence)
    assert await run_maintenance_step(store)

    monkeypatch.setattr(database, "FAR_TOO_LONG", 2)

    assert not await run_maintenance_step(store)
    assert len(snapshot_parts(store.path)) == 8
    assert await loaded(store.path) == await stored_epochs(store)


async def test_empty_store_has_a_snapshot_without_parts(store: SqliteStore, fence: Fence) -> None:
    await run_maintenance(store)
    for topic in TOPICS:
        await delete_topic(store, topic, fence)

    await run_maintenance(store)

    assert snapshot_parts(store.path) == []
    assert await loaded(store.path) == {}


@pytest.mark.parametrize("seed", fast_and_slow(range(12), fast=6))
async def test_nothing_is_lost_by_any_interleaving(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "kactl.db"
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(sqlite_store(path)) for _ in range(3)]
        writer, fence = clients[0], await clients[0].contest(1)
        there: set[str] = set()
        for _ in range(150):
            client = chance.choice(clients)
            step = chance.random()
            topic = chance.choice(TOPICS)
            if step < 0.5:
                await run_maintenance_step(client)
            elif topic not in there:
                await create_topic(client, topic)
                there.add(topic)
                names = [TopicPartition(topic, at) for at in PARTITIONS]
                await writer.commit(new_write(names, expected=NO_VERSION), fence)
            elif step < 0.6:
                await delete_topic(writer, topic, fence)
                there.remove(topic)
            else:
                wanted = [name for name in NAMES if name.topic in there]
                await commit_next(writer, fence, chance.sample(wanted, chance.randint(1, len(wanted))))
            if chance.random() < 0.1:
                assert await loaded(path) == await stored_epochs(client)
        all_held = [await stored_epochs(client) for client in clients]
        assert all_held[0] == all_held[1] == all_held[2] == await loaded(path)
        assert {name.topic for name in all_held[0]} == there
