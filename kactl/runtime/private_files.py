"""Files and folders that only their owner may use, and files that no other user may change.

Kubernetes adds permissions of a group (`fsGroup`) to everything in a volume each time that a pod starts, and gives the
files of a Secret to root and that group. So entries of the process's own user lose the permissions of their group by
themselves, and a secret that root lets one of the process's groups read is accepted. Entries that all users may use are
refused, and so are those of other users: only their owner knows what happened to them.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from kactl.model.errors import BadConfig

from .logs import logger

log = logger(__name__)

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


def make_folder(path: Path, key: str) -> None:
    """Create a folder for its owner alone, if it does not exist.

    Args:
        key: the configuration key that names it, for errors.

    Raises:
        BadConfig: it cannot be created, is something else or a link, belongs to another user, or others may use it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=_FOLDER_MODE)
        status = path.lstat()
    except OSError as error:
        raise BadConfig(key, f"{path} cannot be created: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise BadConfig(key, f"{path} is not a folder: name a folder, and no link to one")
    _check_owner(path, status, None, key, "chmod 700")


def read_private(path: Path, key: str, *, bytes_max: int) -> bytes:
    """Returns the content of a file that only its owner may use; see `check_private`.

    Raises:
        BadConfig: it belongs to another user, others may use it, or it is too long.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise BadConfig(key, f"{path} is not a file")
        check_private(file.fileno(), path, key)
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise BadConfig(key, f"{path} has more than {bytes_max} bytes: it is another file")
    return content


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once: readers find the old content or the new one. It is on the disk when this returns.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_private(path: str | os.PathLike[str], mode: str) -> IO[Any]:
    """Open a file for writing that only its owner may use. One that exists loses the permissions of others.

    Args:
        mode: as of `open`. Text is UTF-8.

    Raises:
        OSError: it cannot be opened. Devices and pipes are not changed.
    """
    file = open(path, mode, encoding=None if "b" in mode else "utf-8", opener=_private)  # noqa: SIM115 - the caller closes
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS and status.st_uid == os.geteuid():
        with contextlib.suppress(OSError):  # a file system without permissions
            os.chmod(file.fileno(), _FILE_MODE)
    return file


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=_FILE_MODE)


@contextlib.contextmanager
def locked(path: Path, key: str) -> Iterator[None]:
    """Keep other programs that use this function from changing a file meanwhile.

    Raises:
        BadConfig: its folder does not exist, or cannot be used.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadConfig(key, f"{path.parent} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def check_private(descriptor: int, path: Path, key: str) -> None:
    """Verify that only the owner may use an open file. Permissions of an own file's group are removed.

    A secret that root owns, and that besides only one of the groups of this process may read, is private, too.

    Args:
        path: where it was opened. If this is a link, as in a volume of Kubernetes, nothing is changed.

    Raises:
        BadConfig: it belongs to another user, or others may use it.
    """
    status = os.fstat(descriptor)
    if status.st_uid == 0 and is_of_own_group(status) and not status.st_mode & (_OTHERS & ~stat.S_IRGRP):
        return
    _check_owner(path, status, descriptor, key, "chmod 600")


def check_trusted(path: str | os.PathLike[str], key: str, status: os.stat_result | None = None) -> None:
    """Verify that only this user and root can change a file that decides about access. All users may read it.

    Pipes of a shell are not checked, nor is a file that does not exist: opening it has the better error.

    Args:
        key: the configuration key that names it, for errors.
        status: of the open file; None for that of the path.

    Raises:
        BadConfig: it, or a link to it, belongs to another user, or others may write it.
    """
    place = Path(path)
    try:
        link, status = place.lstat(), place.stat() if status is None else status
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) and not (stat.S_ISFIFO(status.st_mode) and place.resolve().exists()):
        return
    for found in (link, status):
        if found.st_uid not in (0, os.geteuid()):
            remedy = f"chown {os.geteuid()} {path}, or run kactl as that user"
            raise BadConfig(
                key, f"{path} belongs to user {found.st_uid}, and decides about access to this process: {remedy}"
            )
    # The group of the same number as the user is by convention the user's own.
    others = stat.S_IWOTH | (0 if status.st_gid == status.st_uid else stat.S_IWGRP)
    mode = stat.S_IMODE(status.st_mode)
    if mode & others and not mode & stat.S_IWOTH:
        mode = drop_group(place, link)
    if mode & others:
        reason = f"other users can write {path} (mode {mode:04o}), which decides about access to this process"
        raise BadConfig(key, f"{reason}: chmod go-w {path}")


def drop_group(path: Path, status: os.stat_result, descriptor: int | None = None) -> int:
    """Remove the permissions that only the group has from an entry of this user. Others, and links, are not changed.

    As root, an entry is the process's own only if its group is one of the process's groups.

    Args:
        status: of the entry itself.
        descriptor: changed in place of the path, if it is open. Never open a database for this: see `check_file`.

    Returns:
        its permissions now.
    """
    mode = stat.S_IMODE(status.st_mode)
    is_own = status.st_uid == os.geteuid() and (status.st_uid != 0 or is_of_own_group(status))
    excess = mode & stat.S_IRWXG & ~((mode & stat.S_IRWXO) << 3)
    if not excess or not is_own or stat.S_ISLNK(status.st_mode):
        return mode
    wanted = mode & ~(excess | stat.S_ISGID)
    try:
        if descriptor is None:
            os.chmod(path, wanted, follow_symlinks=False)
        else:
            os.chmod(descriptor, wanted)
    except (OSError, NotImplementedError) as error:
        log.warning("%s: the permissions of its group cannot be removed: %s", path, error)
        return mode
    log.warning("%s: the permissions of its group were removed (mode %04o, now %04o)", path, mode, wanted)
    return wanted


def is_at(path: Path, descriptor: int) -> bool:
    """Returns whether a path leads to an open file: a cleaner may have removed it, or a program that rotates logs."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


def is_of_own_group(status: os.stat_result) -> bool:
    """Returns whether this process is in the group of an entry."""
    return status.st_gid == os.getegid() or status.st_gid in os.getgroups()


def _check_owner(path: Path, status: os.stat_result, descriptor: int | None, key: str, remedy: str) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise BadConfig(
            key, f"{path} belongs to user {status.st_uid}: it has to belong to the user of kactl, or to root"
        )
    mode = stat.S_IMODE(status.st_mode)
    if not mode & stat.S_IRWXO and not path.is_symlink():  # what all users may use is not changed, but refused
        mode = drop_group(path, status, descriptor)
    if mode & _OTHERS:
        raise BadConfig(key, f"others can use {path} (mode {mode:04o}): {remedy} {path}")
