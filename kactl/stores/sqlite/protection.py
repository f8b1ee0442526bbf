"""Checks of the place of a database: whether other users could replace or change it, and whether locks work there.

They run before SQLite opens or creates a file. The database, its folder and the files that SQLite keeps beside it have
to belong to the user of this process, or to root, and no other user may write them. Symbolic links are rejected for the
files, because a link can lead to a place that other users write. Links in the path of the folder are followed.

A file or folder of this user that its group may write, and not all users, loses the permissions of its group.
"""

import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kactl.model.errors import StoreDamaged
from kactl.runtime.private_files import drop_group, is_of_own_group

# Beside the database while it is open.
_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
_MOUNTS: Final = Path("/proc/self/mounts")
# Their locks, or their fsync, depend on other machines and on options of the mount.
_NETWORK_TYPES: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse", "ceph", "glusterfs", "afs", "lustre", "ncpfs", "gpfs"}
)
# A layer over local file systems, in containers without root.
_LOCAL_FUSE: Final = frozenset({"fuse.fuse-overlayfs"})


def check_place(path: Path, *, mounts: Path = _MOUNTS) -> None:
    """Reject a database that other users could change, or that is on a network file system.

    Args:
        mounts: the table of mounted file systems; systems without one are not checked.

    Raises:
        StoreDamaged: nothing was changed. The message has the command that helps.
    """
    folder = path.parent
    try:
        _check_folder(path, folder.stat(), mounts)
    except OSError:
        return  # creating or opening the file fails with a better message
    for suffix in _SUFFIXES:
        file = Path(f"{path}{suffix}")
        try:
            _check_entry(path, file, file.lstat())
        except OSError:
            continue  # creating or opening the file fails with a better message
    if _is_mounted(path, mounts):
        remedy = "mount its folder, in which the write-ahead log is kept as well"
        raise StoreDamaged(str(path), "is mounted as a single file, without the log beside it", remedy)
    kind = file_system_of(folder, mounts)
    if kind is not None and kind not in _LOCAL_FUSE and kind.partition(".")[0] in _NETWORK_TYPES:
        remedy = "locks and durable writes are not reliable there: name a file on a local disk"
        raise StoreDamaged(str(path), f"is on a network file system ({kind})", remedy)


def _check_folder(path: Path, status: os.stat_result, mounts: Path) -> None:
    folder = path.parent
    # Only the owner of a file can replace it in a folder with the sticky bit, such as /tmp.
    if status.st_mode & stat.S_ISVTX or _is_volume(folder, status, mounts):
        return
    _check_owner(path, folder, status, "its folder ")
    _check_writers(path, folder, status, "its folder ")


def _is_volume(folder: Path, status: os.stat_result, mounts: Path) -> bool:
    """Returns whether a folder is the root of a volume that was mounted for a group of this process.

    Kubernetes makes it so for the `fsGroup` of a pod. Only processes of the pod are in the group and see the volume.
    """
    if status.st_uid or status.st_mode & (stat.S_ISGID | stat.S_IWOTH) != stat.S_ISGID or not is_of_own_group(status):
        return False
    return folder.is_mount() or _is_mounted(folder, mounts)


def _check_entry(path: Path, file: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise StoreDamaged(
            str(path), f"{file} is a symbolic link", f"name the file that it points to: {os.path.realpath(file)}"
        )
    if stat.S_ISREG(status.st_mode):
        _check_owner(path, file, status, "")
        _check_writers(path, file, status, "")
        if file == path and status.st_nlink > 1:
            _check_names(path, status)


def _check_names(path: Path, status: os.stat_result) -> None:
    # `create` gives a complete file its second name; one that is killed then leaves the first name.
    for entry in path.parent.glob(f".{glob.escape(path.name)}.*.new"):
        if os.path.samestat(entry.lstat(), status):
            entry.unlink(missing_ok=True)
    if (count := path.lstat().st_nlink) > 1:
        remedy = (
            f"remove the others, which `find / -xdev -inum {status.st_ino}` lists; a backup needs a file of its own"
        )
        reason = f"has {count} names (hard links), and programs that use another one would not see this one's log"
        raise StoreDamaged(str(path), reason, remedy)


def _check_owner(path: Path, entry: Path, status: os.stat_result, kind: str) -> None:
    if status.st_uid not in (0, os.geteuid()):
        remedy = f"chown {os.geteuid()} {entry}, or run kactl as that user"
        raise StoreDamaged(str(path), f"{kind}{entry} belongs to user {status.st_uid}, who could replace it", remedy)


def _check_writers(path: Path, entry: Path, status: os.stat_result, kind: str) -> None:
    # The group of the same number as the user is by convention the user's own.
    others = stat.S_IWOTH | (0 if status.st_gid == status.st_uid else stat.S_IWGRP)
    mode = stat.S_IMODE(status.st_mode)
    if mode & others and not mode & stat.S_IWOTH:
        mode = drop_group(entry, status)
    if mode & others:
        remedy = f"run: chmod go-w {entry}"
        if entry == path.parent and status.st_uid != os.geteuid():
            own = entry / "kactl"
            remedy = f"name a file in a folder of this user's own, such as {own / path.name} after: mkdir -m 700 {own}"
        raise StoreDamaged(str(path), f"other users can write {kind}{entry} (mode {mode:04o})", remedy)


def file_system_of(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """Returns the type of the file system that contains a folder; None if it is unknown."""
    real, found, depth = _real(folder), None, -1
    for point, kind in _mounted(mounts):
        if len(point.parts) >= depth and real.is_relative_to(point):
            found, depth = kind, len(point.parts)
    return found


def _is_mounted(path: Path, mounts: Path) -> bool:
    return _real(path) in (point for point, _ in _mounted(mounts))


def _mounted(mounts: Path) -> Iterator[tuple[Path, str]]:
    """Yield the place and the type of each mounted file system; none if they are unknown."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(" ")
        if len(fields) >= 3:
            # Blanks, tabs, line ends and backslashes in names are written as octal numbers.
            yield Path(fields[1].encode(errors="surrogateescape").decode("unicode_escape")), fields[2]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
