"""A database that other users could change is not opened, and the files of a store are its user's alone."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from kactl.model.errors import StoreDamaged
from kactl.stores.sqlite import SqliteStore
from kactl.stores.sqlite.protection import check_place, file_system_of
from kactl.telemetry.state_change_log.segments import open_segments

pytestmark = pytest.mark.anyio

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Returns the file of a closed store in a folder of its own."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    async with SqliteStore(folder / "kactl.db"):
        pass
    return folder / "kactl.db"


def _entries(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns the entries of a folder. To follow a link changes its time of access only."""
    found = {entry.name: entry.lstat() for entry in folder.iterdir()}
    return {
        name: (each.st_ino, each.st_mode, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        for name, each in found.items()
    }


async def _rejection(path: Path) -> str:
    before = _entries(path.parent)
    with pytest.raises(StoreDamaged) as caught:
        async with SqliteStore(path):
            pass
    assert _entries(path.parent) == before
    return str(caught.value)


async def test_files_are_created_for_the_user_alone(path: Path) -> None:
    async with SqliteStore(path):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("kactl.db", "kactl.db-wal", "kactl.db-shm"), 0o600)


async def test_log_is_created_for_the_user_alone(tmp_path: Path) -> None:
    open_segments(tmp_path / "log", bytes_max=1000, count_max=1).close()
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "log" / "state-change.log").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o602, 0o622, 0o666])
async def test_file_that_others_can_write_is_rejected(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert f"run: chmod go-w {path}" in await _rejection(path)


@pytest.mark.parametrize("mode", [0o702, 0o777])
async def test_folder_that_others_can_write_is_rejected(path: Path, mode: int) -> None:
    path.parent.chmod(mode)
    assert f"run: chmod go-w {path.parent}" in await _rejection(path)


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o1777])
async def test_other_folders_are_accepted(path: Path, mode: int) -> None:
    path.parent.chmod(mode)
    async with SqliteStore(path):
        pass


@needs_root
async def test_file_that_the_group_can_write_is_rejected(path: Path) -> None:
    path.chmod(0o660)
    os.chown(path, 0, 0)
    async with SqliteStore(path):
        pass  # the user's own group
    os.chown(path, 0, NOBODY)
    assert "other users can write" in await _rejection(path)


@needs_root
@pytest.mark.parametrize("is_folder", [False, True])
async def test_entry_of_another_user_is_rejected(path: Path, is_folder: bool) -> None:
    os.chown(path.parent if is_folder else path, NOBODY, NOBODY)
    assert f"belongs to user {NOBODY}" in await _rejection(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
async def test_symbolic_link_is_rejected(path: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / "elsewhere"
    link = path.with_name(f"{path.name}{suffix}")
    if not suffix:
        path.rename(target)
    link.symlink_to(target)
    assert f"{link} is a symbolic link" in await _rejection(path)
    assert suffix == "" or not target.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER planted AFTER UPDATE ON meta BEGIN DELETE FROM topics; END",
        "CREATE VIEW planted AS SELECT load_extension('/tmp/x.so')",
    ],
)
async def test_planted_schema_is_rejected(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    assert "planted, and kactl creates none" in await _rejection(path)


MOUNTS = """\
rootfs / ext4 rw 0 0
server:/export {0} {1} rw 0 0
tmpfs {0}/local\\040disk tmpfs rw 0 0
"""


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "ceph", "fuse.glusterfs"])
async def test_network_file_system_is_rejected(path: Path, tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(path.parent, kind))
    with pytest.raises(StoreDamaged, match=f"is on a network file system .{kind}.*: name a file on a local disk"):
        check_place(path, mounts=mounts)


async def test_local_file_system_is_accepted(path: Path, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(path.parent, "nfs4"))
    local = path.parent / "local disk"
    local.mkdir(mode=0o700)
    check_place(local / "kactl.db", mounts=mounts)
    assert file_system_of(local, mounts) == "tmpfs"
    assert file_system_of(tmp_path, mounts) == "ext4"
    for kind in ("ext4", "fuse.fuse-overlayfs", "fuseblk"):
        mounts.write_text(MOUNTS.format(path.parent, kind))
        check_place(path, mounts=mounts)
    check_place(path, mounts=tmp_path / "none")
