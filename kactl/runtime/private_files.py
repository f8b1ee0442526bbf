"""Files and folders that only their owner may use."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kactl.errors import BadConfig

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
    _check_owner(path, status, key, "chmod 700")


def read_private(path: Path, key: str, *, bytes_max: int) -> bytes:
    """Returns the content of a file that only its owner may use.

    Raises:
        BadConfig: it belongs to another user, others may use it, or it is too long.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise BadConfig(key, f"{path} is not a file")
        _check_owner(path, status, key, "chmod 600")
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


def _check_owner(path: Path, status: os.stat_result, key: str, remedy: str) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise BadConfig(
            key, f"{path} belongs to user {status.st_uid}: it has to belong to the user of kactl, or to root"
        )
    if status.st_mode & _OTHERS:
        raise BadConfig(key, f"others can use {path} (mode {stat.S_IMODE(status.st_mode):04o}): {remedy} {path}")
