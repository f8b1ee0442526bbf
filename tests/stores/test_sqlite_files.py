"""A damaged or foreign file is rejected by its name, with a remedy, and is left unchanged."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.model.errors import StoreDamaged
from kactl.stores.base import Names
from kactl.stores.sqlite import SqliteStore, journal, schema, snapshot
from tests.support.store_clients import ALL, SESSION_MS, broker_info, create_and_lead, new_write

from .maintenance import run_maintenance

pytestmark = pytest.mark.anyio

NOBODY = 65_534


@pytest.fixture
async def valid_file(tmp_path: Path) -> Path:
    """Returns the file of a cleanly closed store with some changes."""
    path = tmp_path / "kactl.db"
    async with SqliteStore(path) as store:
        fence = await create_and_lead(store)
        await store.set_topic_config("orders", {"a": "b"})
        await store.notify_isr(ALL)
        await store.create_topic(TopicRef("other"), {0: Assignment((1,))}, {})
        for version in range(5):
            await store.commit(new_write(ALL, leader_epoch=version + 1, expected=version), fence)
    return path


async def assert_rejected(path: Path) -> StoreDamaged:
    """Expects that a file is rejected, and that its folder is unchanged byte for byte. Returns the error."""
    before = folder_content(path.parent)
    with pytest.raises(StoreDamaged) as caught:
        async with SqliteStore(path):
            pass
    assert folder_content(path.parent) == before
    assert str(path) in str(caught.value)
    assert caught.value.remedy_text in str(caught.value)
    return caught.value


def folder_content(folder: Path) -> dict[str, bytes | None]:
    return {entry.name: entry.read_bytes() if entry.is_file() else None for entry in folder.iterdir()}


@pytest.mark.parametrize("name", [b"a b?c#d%20e'", b"x\ny", "\u00e9".encode(), b"not utf-8 \xff"])
async def test_file_may_have_any_name(name: bytes, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(name)

    async with SqliteStore(path) as store:
        await store.create_topic(TopicRef("other"), {0: Assignment((1,))}, {})

    assert os.listdir(os.fsencode(tmp_path)) == [name]


async def test_text_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 100)

    assert "no SQLite database" in (await assert_rejected(path)).reason


async def test_short_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "short.db"
    path.write_bytes(b"SQLite format 3\x00")

    assert "no SQLite database" in (await assert_rejected(path)).reason


async def test_empty_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "kactl.db"
    path.touch()

    refusal = await assert_rejected(path)

    assert "empty" in refusal.reason
    assert "backup" in refusal.remedy_text


async def test_folder_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()

    assert "folder" in (await assert_rejected(path)).reason


async def test_special_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    assert "no plain file" in (await assert_rejected(path)).reason


async def test_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "kactl.db"

    with pytest.raises(StoreDamaged, match=r"missing/kactl\.db: cannot be created"):
        async with SqliteStore(path):
            pass

    assert list(tmp_path.iterdir()) == []


async def test_database_of_another_program_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE meta (epoch INTEGER)")
        connection.commit()

    assert "another program" in (await assert_rejected(path)).reason


async def test_later_schema_is_rejected(valid_file: Path) -> None:
    later = schema.SCHEMA_VERSION + 1
    patch(valid_file, 60, later.to_bytes(4, "big"))

    refusal = await assert_rejected(valid_file)

    assert f"schema version {later}" in refusal.reason
    assert "later" in refusal.remedy_text


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
async def test_truncated_file_is_rejected(valid_file: Path, kept: float) -> None:
    os.truncate(valid_file, int(valid_file.stat().st_size * kept))

    assert "cut short" in (await assert_rejected(valid_file)).reason


async def test_damaged_pages_are_rejected(valid_file: Path) -> None:
    with closing(sqlite3.connect(valid_file)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'topics'").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    patch(valid_file, (root - 1) * page_bytes, b"\xff" * 64)

    assert "damaged" in (await assert_rejected(valid_file)).reason


async def test_missing_table_is_rejected(valid_file: Path) -> None:
    execute_sql(valid_file, "DROP TABLE notifications")

    assert "no table notifications" in (await assert_rejected(valid_file)).reason


FRAMES = {
    "change 3 is damaged": ("journal", "frame", "seq = 3"),
    "assignment of topic orders is damaged": ("topics", "assignment", "name = 'orders'"),
    "configuration of topic orders is damaged": ("configs", "data", "topic = 'orders'"),
    "notification 1 is damaged": ("notifications", "data", "id = 1"),
}


@pytest.mark.parametrize(("reason", "where"), FRAMES.items(), ids=FRAMES.keys())
@pytest.mark.parametrize("at", ["first", "middle", "last"])
async def test_flipped_bit_of_a_frame_is_detected(
    valid_file: Path, reason: str, where: tuple[str, str, str], at: str
) -> None:
    table, column, condition = where
    with closing(sqlite3.connect(valid_file)) as connection:
        (frame,) = connection.execute(f"SELECT {column} FROM {table} WHERE {condition}").fetchone()
    begin = valid_file.read_bytes().index(frame)
    place = begin + {"first": 8, "middle": len(frame) // 2, "last": len(frame) - 1}[at]
    patch(valid_file, place, bytes([valid_file.read_bytes()[place] ^ 0x10]))

    refusal = await assert_rejected(valid_file)

    assert reason in refusal.reason
    assert "checksum" in refusal.reason


async def test_damaged_broker_registration_is_detected(tmp_path: Path, valid_file: Path) -> None:
    copy = tmp_path / "copy.db"
    async with SqliteStore(valid_file) as store:
        session = await store.new_session(SESSION_MS)
        await session.register(broker_info(7))
        with closing(sqlite3.connect(valid_file)) as connection, closing(sqlite3.connect(copy)) as other:
            connection.backup(other)
    execute_sql(copy, "UPDATE brokers SET data = x'00112233445566778899'")

    with pytest.raises(StoreDamaged, match="registration of broker 7 is damaged"):
        async with SqliteStore(copy):
            pass


async def test_missing_change_is_detected(valid_file: Path) -> None:
    execute_sql(valid_file, "DELETE FROM journal WHERE seq = 3")

    assert "change 3 is missing" in (await assert_rejected(valid_file)).reason


async def test_misplaced_change_is_detected(valid_file: Path) -> None:
    execute_sql(valid_file, "UPDATE journal SET frame = (SELECT frame FROM journal WHERE seq = 2) WHERE seq = 4")

    assert "change 4 is damaged (it is change 2)" in (await assert_rejected(valid_file)).reason


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("DELETE FROM snapshot WHERE part = 1", "part 1 of the snapshot is missing"),
        ("UPDATE snapshot SET frame = zeroblob(100) WHERE part = 0", "part 0 of the snapshot is damaged"),
    ],
)
async def test_damaged_snapshot_is_detected(
    valid_file: Path, query: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PART_ROWS", 2)
    monkeypatch.setattr(journal, "CHANGES_MAX", 1)
    async with SqliteStore(valid_file) as store:
        await run_maintenance(store)
    execute_sql(valid_file, query)

    assert reason in (await assert_rejected(valid_file)).reason


async def test_damage_in_an_uncleanly_closed_file_is_detected(valid_file: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    async with SqliteStore(valid_file) as store:
        await store.set_topic_config("orders", {"a": "c"})
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{valid_file}{suffix}", left / f"kactl.db{suffix}")
    path = left / "kactl.db"
    frame = b"kcf1"
    patch(path, path.read_bytes().index(frame) + 8, b"\xff")
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()

    with pytest.raises(StoreDamaged, match="damaged"):
        async with SqliteStore(path):
            pass

    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before


@pytest.mark.parametrize("which", ["file", "folder"])
async def test_read_only_file_is_rejected(valid_file: Path, which: str) -> None:
    with readable_by_all(valid_file) as path:
        (path if which == "file" else path.parent).chmod(0o444 if which == "file" else 0o555)
        before = path.read_bytes()
        with unprivileged(), pytest.raises(StoreDamaged, match="writ") as caught:
            async with SqliteStore(path):
                pass
        assert path.read_bytes() == before
        assert "kactl runs as" in caught.value.remedy_text


async def test_read_only_folder_gets_no_file(valid_file: Path) -> None:
    with readable_by_all(valid_file) as path:
        path.parent.chmod(0o555)
        with unprivileged(), pytest.raises(StoreDamaged, match="cannot be created"):
            async with SqliteStore(path.parent / "new.db"):
                pass


async def test_repaired_file_is_opened(valid_file: Path) -> None:
    whole = valid_file.read_bytes()
    os.truncate(valid_file, 1000)
    await assert_rejected(valid_file)
    valid_file.write_bytes(whole)

    async with SqliteStore(valid_file) as store:
        found = await store.leaderships(Names.of([*ALL, TopicPartition("other", 0)]))

    assert found.partition_epoch.tolist() == [5, 5, 5, -1]


async def test_file_name_with_special_characters_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "50% #1 ?mode=memory&ü.db"
    async with SqliteStore(path) as store:
        await store.create_topic(TopicRef("a"), {}, {})

    async with SqliteStore(path) as store:
        assert await store.topics() == ["a"]
    assert path.is_file()


async def test_closed_store_leaves_no_other_files(valid_file: Path) -> None:
    assert list(folder_content(valid_file.parent)) == [valid_file.name]


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def execute_sql(path: Path, query: str) -> None:
    """Changes the content of tables, and leaves one file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(query)
        connection.commit()


@contextmanager
def readable_by_all(file: Path) -> Iterator[Path]:
    """Returns a copy that an unprivileged user can access."""
    folder = Path(tempfile.mkdtemp(prefix="kactl-test-"))
    try:
        copy = folder / file.name
        shutil.copyfile(file, copy)
        if not os.geteuid():
            shutil.chown(folder, NOBODY)
            shutil.chown(copy, NOBODY)
        yield copy
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Runs a block as a user without root's access to files."""
    seteuid: Callable[[int], None] = os.seteuid
    user = os.geteuid()
    if not user:
        seteuid(NOBODY)
    try:
        yield
    finally:
        seteuid(user)
