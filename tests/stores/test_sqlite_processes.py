"""Files and locks of a store that several stores of one process, and other processes, have open."""

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from kactl.actors.system import Controller
from kactl.model import Assignment, TopicRef
from kactl.model.errors import NotController, StoreReplaced
from kactl.stores.base import Changed
from kactl.stores.sqlite import SqliteStore
from tests.support import tree
from tests.support.clocks import ManualClock
from tests.support.fork_server import Program
from tests.support.processes import Process
from tests.support.store_clients import EventRecorder, broker_info

from .maintenance import poll_for

pytestmark = pytest.mark.anyio

PATIENCE_S: Final = 60.0
HOUR_MS: Final = 3_600_000
Move = Callable[[Path], object]
needs_proc = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs Linux's list of locks")


class Visits:
    """Other processes that open the store of a file; see `sqlite_visitor`."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._outputs = (folder / f"visit{number}.txt" for number in itertools.count())

    def start(self, *arguments: str) -> Process:
        program = Program("tests.stores.sqlite_visitor", (str(self._path), *arguments))
        return Process(program, output=next(self._outputs))

    def run(self, *arguments: str) -> str:
        """Runs one to its end. Returns its output."""
        visit = self.start(*arguments)
        assert visit.wait(PATIENCE_S) == 0, visit.text
        return visit.text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder / "kactl.db"


@pytest.fixture
def visits(path: Path, tmp_path: Path) -> Visits:
    return Visits(path, tmp_path)


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(path, clock=clock) as store:
        yield store


async def create(store: SqliteStore, topic: str) -> None:
    await store.create_topic(TopicRef(topic), {0: Assignment((1,))}, {})


def locked(path: Path) -> set[int]:
    """Returns the processes with locks on a file."""
    number = f":{path.stat().st_ino} "
    return {int(line.split()[-4]) for line in Path("/proc/locks").read_text().splitlines() if number in line}


# -- several stores of one process


def same(path: Path) -> Path:
    return path


def through_a_link(path: Path) -> Path:
    link = path.parent.with_name("link")
    link.symlink_to(path.parent, target_is_directory=True)
    return link / path.name


@needs_proc
@pytest.mark.parametrize("stays", [True, False], ids=["second-stays", "second-ends"])
@pytest.mark.parametrize("second_path", [same, through_a_link])
async def test_second_store_of_a_process_keeps_its_locks(
    path: Path, visits: Visits, second_path: Callable[[Path], Path], stays: bool
) -> None:
    async with SqliteStore(path, session_timeout_ms=HOUR_MS) as first, AsyncExitStack() as second:
        fence = await first.contest(1)
        await second.enter_async_context(SqliteStore(second_path(path)))
        if not stays:
            await second.aclose()
        held = locked(path), locked(Path(f"{path}-shm"))
        for number in range(3):
            await create(first, f"confirmed{number}")
            said = visits.run("7")
            assert "not elected\ncontroller 1 1\n" in said
            assert f"confirmed{number}" in said

        assert held == ({os.getpid()}, {os.getpid()})
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["kactl.db", "kactl.db-shm", "kactl.db-wal"]
        await first.check(fence)


@needs_proc
async def test_refused_files_do_not_release_locks(path: Path) -> None:
    """Checks of a file that end with an error close it, too."""
    async with SqliteStore(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA user_version = 99")

        with pytest.raises(Exception, match="schema version 99"):
            async with SqliteStore(path):
                pass

        assert locked(path) == {os.getpid()}
        await store._thread.run(store._thread.database.connection.execute, "PRAGMA user_version = 4")


async def test_file_with_two_names_is_rejected(path: Path, visits: Visits) -> None:
    async with SqliteStore(path):
        pass
    os.link(path, path.with_name("other.db"))

    said = visits.run()

    assert "has 2 names (hard links)" in said
    path.with_name("other.db").unlink()
    assert "controller none" in visits.run()


async def test_name_that_an_interrupted_creation_left_is_removed(path: Path) -> None:
    async with SqliteStore(path):
        pass
    left = path.with_name(f".{path.name}.abc.new")
    os.link(path, left)

    async with SqliteStore(path):
        pass

    assert not left.exists()


async def test_file_that_is_mounted_alone_is_rejected(path: Path, tmp_path: Path) -> None:
    """As a container engine does with a volume that is one file; the log would be in another folder."""
    async with SqliteStore(path):
        pass
    mounted = tmp_path / "mounted.db"
    mounted.touch(mode=0o600)
    script = f"mount --bind {path} {mounted} && exec {sys.executable} -m tests.stores.sqlite_visitor {mounted}"
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("mounts need root and unshare")

    visit = Process(["unshare", "--mount", "sh", "-c", script], output=tmp_path / "visit.txt", cwd=tree.ROOT)

    assert visit.wait(PATIENCE_S) == 0, visit.text
    assert f"refused: {mounted}: is mounted as a single file" in visit.text
    assert "mount its folder" in visit.text


# -- files that are moved while a store is open


def remove(path: Path) -> None:
    path.unlink()


def remove_all(path: Path) -> None:
    for name in ("", "-wal", "-shm"):
        Path(f"{path}{name}").unlink()


def remove_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def remove_index(path: Path) -> None:
    Path(f"{path}-shm").unlink()


def restore_a_backup(path: Path) -> None:
    new = path.with_name("new")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"VACUUM INTO '{new}'")
    new.chmod(0o600)
    remove_all(path)
    new.replace(path)


def replace_the_log(path: Path) -> None:
    log = Path(f"{path}-wal")
    log.with_name("copy").write_bytes(log.read_bytes())
    log.with_name("copy").replace(log)


def leave_a_link(path: Path) -> None:
    moved = path.with_name("moved.db")
    path.replace(moved)
    path.symlink_to(moved)


def rename_its_folder(path: Path) -> None:
    path.parent.replace(path.parent.with_name("renamed"))


def replace_its_folder(path: Path) -> None:
    rename_its_folder(path)
    path.parent.mkdir(mode=0o700)


MOVES: Final = [
    remove,
    remove_all,
    remove_log,
    remove_index,
    restore_a_backup,
    replace_the_log,
    leave_a_link,
    rename_its_folder,
    replace_its_folder,
]


@pytest.mark.parametrize("move", MOVES)
async def test_session_ends_once_its_file_is_moved(
    store: SqliteStore, clock: ManualClock, caplog: pytest.LogCaptureFixture, move: Move
) -> None:
    recorder = EventRecorder(store)
    fence = await store.contest(1)
    session = await store.new_session(9_000)
    await session.register(broker_info(1))

    move(store.path)
    await poll_for(clock, 100, store)

    await recorder.wait_for(Changed.SESSION_LOST)
    assert Changed.SESSION_OPENED not in [event.what for event in recorder.events]
    (line,) = (record.message for record in caplog.records if record.levelname == "ERROR")
    assert str(store.path) in line
    assert "while it was open" in line
    assert "stop every program that uses the store" in line
    assert store.trouble == line
    for call in (
        store.check(fence),
        store.contest(1, take_over=True),
        create(store, "t"),
        store.topics(),
        session.keep_alive(),
        store.new_session(1_000),
    ):
        with pytest.raises(StoreReplaced):
            await call


@pytest.mark.parametrize("move", MOVES)
async def test_no_change_is_confirmed_in_a_moved_file(store: SqliteStore, move: Move) -> None:
    """Without a poll in between."""
    await create(store, "before")

    move(store.path)

    with pytest.raises(StoreReplaced):
        await create(store, "after")
    with pytest.raises(StoreReplaced):
        await store.topics()


async def test_file_that_is_moved_during_a_commit_confirms_nothing(store: SqliteStore) -> None:
    database = store._thread.database

    def commit() -> None:
        with database.writing() as connection:
            connection.execute("UPDATE meta SET stamp = stamp + 1")
            remove_all(store.path)

    with pytest.raises(StoreReplaced, match="removed or renamed"):
        await store._thread.run(commit)


async def test_controller_resigns_once_its_file_is_replaced(path: Path, clock: ManualClock, visits: Visits) -> None:
    store = SqliteStore(path, clock=clock)
    async with Controller(1, store=store, clock=clock) as controller:
        await controller.wait_active()

        restore_a_backup(path)
        await poll_for(clock, 10_000, store)

        assert not controller.is_active
        assert "elected 2" in visits.run("7")
        with pytest.raises(NotController):
            await controller.create_topic("orders", partitions=1, replication_factor=1)


async def test_file_that_came_back_is_not_used_again(store: SqliteStore, clock: ManualClock) -> None:
    recorder = EventRecorder(store)
    away = store.path.with_name("away")
    store.path.replace(away)
    await poll_for(clock, 100, store)
    await recorder.wait_for(Changed.SESSION_LOST)

    away.replace(store.path)
    await poll_for(clock, 1_000, store)

    with pytest.raises(StoreReplaced):
        await store.topics()


@pytest.mark.parametrize("move", [remove_all, restore_a_backup])
async def test_store_of_a_moved_file_leaves_the_next_one_alone(path: Path, visits: Visits, move: Move) -> None:
    """SQLite removes the log by its path when it closes the last connection to an inode."""
    async with SqliteStore(path) as store:
        await store.contest(1)
        move(path)
        visit = visits.start("7", "stay")
        visit.wait_for_line("stays", PATIENCE_S)
        files = {entry.name: entry.stat().st_ino for entry in path.parent.iterdir()}

    assert "elected" in visit.text
    assert {entry.name: entry.stat().st_ino for entry in path.parent.iterdir()} == files
    visit.kill()
    assert "topics stayed\n" in visits.run()


async def test_relative_path_does_not_follow_the_working_directory(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.chdir(path.parent)
    async with SqliteStore(path.name, clock=clock) as store:
        monkeypatch.chdir(tmp_path)
        await create(store, "t")
        await store._thread.run(store._thread.database.checkpoint._move_most)

        await poll_for(clock, 100, store)

        assert await store.topics() == ["t"]
        assert not (tmp_path / path.name).exists()


async def test_checkpoint_does_not_bring_a_removed_file_back(store: SqliteStore) -> None:
    remove_all(store.path)

    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await store._thread.run(store._thread.database.checkpoint._move_most)

    assert list(store.path.parent.iterdir()) == []


# -- a file that is overwritten


async def written(store: SqliteStore) -> None:
    """Moves what was committed from the log into the file."""
    await store._thread.run(store._thread.database.checkpoint._move_most)


def backed_up(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")


def overwrite(path: Path, content: bytes) -> None:
    """As `cp` does, in a process of its own: the file keeps its inode."""
    run("sh", "-c", 'cat > "$0"', str(path), content=content)


def run(*command: str, content: bytes = b"") -> None:
    """Runs another program to its end."""
    subprocess.run(command, input=content, timeout=PATIENCE_S, check=True)


@pytest.mark.parametrize("content", ["backup", b"text " * 10_000, b""], ids=["backup", "text", "nothing"])
async def test_session_ends_once_its_file_is_overwritten(
    store: SqliteStore, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | bytes
) -> None:
    recorder = EventRecorder(store)
    backed_up(store.path, tmp_path / "copy")
    await create(store, "later")
    await store.contest(1)
    await written(store)
    await poll_for(clock, 100, store)

    overwrite(store.path, content if isinstance(content, bytes) else (tmp_path / "copy").read_bytes())
    await poll_for(clock, 200, store)

    await recorder.wait_for(Changed.SESSION_LOST)
    assert f"{store.path} was overwritten while it was open" in caplog.text
    with pytest.raises(StoreReplaced):
        await store.topics()


async def test_file_that_got_shorter_is_overwritten(store: SqliteStore, clock: ManualClock) -> None:
    await store.create_topic(TopicRef("large"), {number: Assignment((1,)) for number in range(50_000)}, {})
    await written(store)
    await poll_for(clock, 100, store)
    size = store.path.stat().st_size

    run("truncate", "-s", str(size // 2), str(store.path))
    await poll_for(clock, 200, store)

    with pytest.raises(StoreReplaced, match="overwritten"):
        await store.topics()


async def test_checkpoints_and_maintenance_by_others_are_no_overwriting(
    store: SqliteStore, clock: ManualClock, visits: Visits
) -> None:
    recorder = EventRecorder(store)
    tool = [sys.executable, "-c", "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()"]
    await store.create_topic(TopicRef("large"), {number: Assignment((1,)) for number in range(50_000)}, {})
    for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(PASSIVE)"):
        run(*tool, str(store.path), statement)
        await poll_for(clock, 200, store)
        await create(store, f"after {len(statement)}")
        await written(store)
        await poll_for(clock, 200, store)

    assert Changed.SESSION_LOST not in [event.what for event in recorder.events]
    assert store.trouble == ""
