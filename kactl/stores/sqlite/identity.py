"""Identity of the files of an open database: whether its path still leads to them.

SQLite locks files by their inodes and finds them by their paths. After a file was removed or replaced, this process
goes on with the old file, alone, and another one begins with the new file: each would elect a controller. The same
holds for the write-ahead log and its index, which SQLite never replaces while a connection is open.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from kactl.errors import StoreReplaced, StoreUnavailable

_SUFFIXES: Final = ("", "-wal", "-shm")
_DESCRIPTORS: Final = "/proc/self/fd"


class _Inode(NamedTuple):
    device: int
    number: int


class OpenFiles:
    """The files of one open database.

    An open file keeps its inode, so that no other file gets the same number.

    Args:
        path: of a database in WAL mode that this process has read already.

    Raises:
        StoreReplaced: the database was replaced while it was being opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inodes = {file: _inode(file) for file in (f"{path}{suffix}" for suffix in _SUFFIXES)}
        self._reason = ""
        opened = _opened()
        if opened and self._inodes[str(path)] not in opened:
            raise StoreReplaced(str(path), f"{path} was replaced while it was being opened")

    def check(self) -> None:
        """Verify that the path leads to the open files.

        Raises:
            StoreReplaced: it does not, or did not earlier: what other processes have read or written meanwhile was in
                another database.
            StoreUnavailable: that is unknown.
        """
        if not self._reason:
            self._reason = next(filter(None, map(self._change_of, self._inodes)), "")
        if self._reason:
            raise StoreReplaced(str(self._path), self._reason)

    def _change_of(self, file: str) -> str:
        found = _inode(file)
        if found == self._inodes[file]:
            return ""
        return f"{file} was {'removed or renamed' if found is None else 'replaced by another file'} while it was open"


def _inode(file: str) -> _Inode | None:
    try:
        # A link in its place is another file: SQLite would look for the log beside the file that it leads to.
        status = os.lstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{file} cannot be looked up ({error.strerror}): check its folder") from error
    return _Inode(status.st_dev, status.st_ino)


def _opened() -> frozenset[_Inode]:
    """The inodes that this process has open; none if that is unknown. Nothing is opened: see `check_file`."""
    found = set()
    try:
        for number in os.listdir(_DESCRIPTORS):
            try:
                status = os.stat(f"{_DESCRIPTORS}/{number}")
            except FileNotFoundError:
                continue  # that of the listing itself, or closed meanwhile
            found.add(_Inode(status.st_dev, status.st_ino))
    except OSError:
        return frozenset()
    return frozenset(found)
