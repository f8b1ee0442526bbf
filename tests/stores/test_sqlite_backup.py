"""Backups of a SQLite store that processes use, and restores whose epochs are above all that were issued."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

import kactl
from kactl.model import Fence, ProducerIdBlock
from kactl.model.errors import StoreDamaged, StoreError
from kactl.runtime.clock import SystemClock
from kactl.stores.base import Names
from kactl.stores.sqlite import SqliteStore
from kactl.stores.sqlite.backup import back_up, epochs_ahead, restore
from kactl.testing.contracts.link_support import until
from tests.support import tree
from tests.support.store_clients import ALL, broker_info, create_and_lead, new_write

pytestmark = pytest.mark.anyio

CLOCK: Final = SystemClock()
NAMES: Final = Names.of(ALL)
YEAR_MS: Final = 365 * 86_400_000
# A process that has the file open in write-ahead mode, and ends with its input.
OTHER_PROCESS: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM meta").fetchone()
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def opened_elsewhere(path: Path) -> Iterator[None]:
    arguments = [sys.executable, "-c", OTHER_PROCESS, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tree.ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield
        assert process.stdin is not None
        process.stdin.close()


async def elections(path: Path, count: int) -> Fence:
    """Elect a controller and then each leader `count` times."""
    async with SqliteStore(path) as store:
        fence = await store.contest(1, take_over=True)
        for _ in range(count):
            stored = await store.leaderships(NAMES)
            write = new_write(
                ALL, leader_epoch=int(stored.leader_epoch.max()) + 1, expected=int(stored.partition_epoch.max())
            )
            assert (await store.commit(write, fence)).committed.all()
    return fence


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Returns the file of a store with leaders, a registration and producer ids."""
    path = tmp_path / "kactl.db"
    async with SqliteStore(path) as store:
        await create_and_lead(store)
        await store.set_topic_config("orders", {"a": "b"})
        assert await store.write_producer_ids(ProducerIdBlock(1, 0, 1000), expected=0)
        fence = await store.contest(1, take_over=True)
        await store.register_remote(broker_info(7), b"i" * 16, 60_000, fence)
    return path


async def test_backup_of_an_open_store_is_a_store(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backup"
    async with SqliteStore(path) as store:
        before = await store.leaderships(NAMES)

        content = back_up(path, copy, CLOCK)

    assert content == (2, 1, len(ALL))
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["backup", "kactl.db"]
    async with SqliteStore(copy) as store:
        assert (await store.leaderships(NAMES)).leader_epoch.tolist() == before.leader_epoch.tolist()
        assert await store.topic_configs(["orders"]) == {"orders": {"a": "b"}}


async def test_backup_replaces_no_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("kept")

    with pytest.raises(StoreError, match="exists already: nothing was changed"):
        back_up(path, tmp_path / "notes", CLOCK)

    assert (tmp_path / "notes").read_text() == "kept"
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name[0] == ".") == []


async def test_restored_epochs_are_above_all_that_were_issued(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "backup", CLOCK)
    fence = await elections(path, 5)
    async with SqliteStore(path) as store:
        issued = await store.leaderships(NAMES)
        broker_epoch = (await store.brokers())[7].epoch

    restored = restore(tmp_path / "backup", path, CLOCK)

    async with SqliteStore(path) as store:
        found = await store.leaderships(NAMES)
        assert (found.leader_epoch > issued.leader_epoch).all()
        assert (found.partition_epoch > issued.partition_epoch).all()
        assert (found.controller_epoch > fence.epoch).all()
        assert await store.brokers() == {}
        assert await store.controller() is None
        block, _ = await store.producer_ids()
        assert block is not None
        assert block.first > 1_000_000_000
        again = await store.contest(1)
        assert again.epoch > found.controller_epoch.max()
        assert await store.register_remote(broker_info(7), b"j" * 16, 60_000, again) > broker_epoch
    assert restored.content.controller_epoch == again.epoch - 1
    assert restored.replaced is not None
    async with SqliteStore(restored.replaced) as store:
        assert (await store.leaderships(NAMES)).leader_epoch.tolist() == issued.leader_epoch.tolist()


async def test_store_in_use_is_not_replaced(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "backup", CLOCK)
    before = path.read_bytes()

    with opened_elsewhere(path), pytest.raises(StoreError, match="is in use by another process: stop every"):
        restore(tmp_path / "backup", path, CLOCK)

    assert path.read_bytes() == before
    assert restore(tmp_path / "backup", path, CLOCK).replaced is not None


async def test_damaged_backup_changes_nothing(path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(path, backup, CLOCK)
    with closing(sqlite3.connect(backup, isolation_level=None)) as connection:
        connection.execute("UPDATE journal SET frame = x'00'")
    before = path.read_bytes()

    with pytest.raises(StoreDamaged):
        restore(backup, path, CLOCK)

    assert path.read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} - {"kactl.db-shm"} == {"backup", "kactl.db"}


async def test_damaged_store_is_replaced_with_its_log(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "backup", CLOCK)
    path.write_bytes(b"no database")
    Path(f"{path}-wal").write_bytes(b"frames of another database")

    restored = restore(tmp_path / "backup", path, CLOCK)

    assert "not a database" in restored.unread
    assert restored.replaced is not None
    assert restored.replaced.read_bytes() == b"no database"
    assert not Path(f"{path}-wal").exists()
    async with SqliteStore(path) as store:
        assert (await store.leaderships(NAMES)).found.all()


async def test_restore_to_a_missing_file_creates_it(path: Path, tmp_path: Path) -> None:
    back_up(path, tmp_path / "backup", CLOCK)
    shutil.move(path, tmp_path / "lost")

    restored = restore(tmp_path / "backup", path, CLOCK)

    assert restored.replaced is None
    assert restored.content.partitions == len(ALL)


async def test_epochs_that_would_overflow_are_refused(path: Path, tmp_path: Path) -> None:
    async with SqliteStore(path) as store:
        fence = await store.contest(1, take_over=True)
        stored = await store.leaderships(NAMES)
        write = new_write(ALL, leader_epoch=2**31 - 100, expected=int(stored.partition_epoch.max()))
        await store.commit(write, fence)
    back_up(path, tmp_path / "backup", CLOCK)
    before = path.read_bytes()

    with pytest.raises(StoreError, match="epochs cannot be raised"):
        restore(tmp_path / "backup", path, CLOCK)

    assert path.read_bytes() == before


def test_older_backups_are_raised_by_more() -> None:
    assert epochs_ahead(0, 0) == 1_000_000
    assert epochs_ahead(0, YEAR_MS) == 1_000_000 + 365 * 86_400
    assert epochs_ahead(YEAR_MS, 0) == 1_000_000  # the clock was set back
    assert epochs_ahead(0, 1_000 * YEAR_MS) < 2**27  # a file without a time


@pytest.mark.parametrize("which", ["backup", "restore"])
def test_missing_folder_is_named(tmp_path: Path, which: str) -> None:
    missing = tmp_path / "missing" / "file"
    (tmp_path / "some").write_bytes(b"")

    with pytest.raises(StoreError, match="missing/file"):
        back_up(missing, tmp_path / "copy", CLOCK) if which == "backup" else restore(tmp_path / "some", missing, CLOCK)


async def test_next_leader_passes_the_guard_after_a_restore(tmp_path: Path) -> None:
    """A token that was issued after the backup guards a resource, as a fence in a database does."""
    tokens: list[kactl.FencingToken] = []
    path = tmp_path / "kactl.db"

    class Leads(kactl.PartitionHandler):
        async def lead(self, leader: kactl.Leader) -> None:
            tokens.append(leader.token)
            await anyio.sleep_forever()

    async def run() -> None:
        known = len(tokens)
        async with (
            kactl.Controller(0, store=SqliteStore(path)) as controller,
            kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Leads) as node,
        ):
            await node.ensure_topic("t", assignment={0: [1]})
            await until(lambda: len(tokens) > known)

    await run()
    back_up(path, tmp_path / "backup", CLOCK)
    await run()
    await run()
    highest = max(tokens)
    restore(tmp_path / "backup", path, CLOCK)
    await run()

    assert tokens[-1] > highest
