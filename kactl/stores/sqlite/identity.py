"""Identity of the files of an open database: whether its path still leads to them.

SQLite locks files by their inodes and finds them by their paths. After a file was removed or replaced, this process
goes on with the old file, alone, and another one begins with the new file: each would elect a controller. The same
holds for the write-ahead log and its index, which SQLite never replaces while a connection is open.

A file that is overwritten in place stays the same file. Only checkpoints write to it, and they move the row of `meta`
forward, so that a row that went back is that of a backup.
"""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

from kactl.model.errors import ProcessForked, StoreReplaced, StoreUnavailable

from .connection import Connect, Connection

_SUFFIXES: Final = ("", "-wal", "-shm")
_DESCRIPTORS: Final = "/proc/self/fd"


class _Inode(NamedTuple):
    device: int
    number: int


class _Content(NamedTuple):
    """What only grows in a database."""

    epoch: int
    broker_epoch: int
    topic_number: int
    stamp: int
    snapshot_seq: int


# A file that has none of this: any row is further.
_NO_CONTENT: Final = _Content(-2, -2, -2, -2, -2)
_SIZE: Final = ("page_size", "page_count")
# Errors of a file that is no database, or not one of kactl.
_FOREIGN: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR})


class OpenFiles:
    """The files of one open database.

    An open file keeps its inode, so that no other file gets the same number.

    Args:
        path: of a database in WAL mode that this process has read already.
        connect: opens connections to it.
        connection: the one that is open.

    Raises:
        StoreReplaced: the database was replaced while it was being opened.
    """

    def __init__(self, path: Path, connect: Connect, connection: Connection) -> None:
        self._path = path
        self._connect = connect
        self._connection = connection
        self._written = (0, 0)  # time of the last write to the database, and its size, when `_content` was read
        self._content = _NO_CONTENT
        self._is_doubtful = False  # the content went back when it was read last
        self._inodes = {file: _inode(file) for file in (f"{path}{suffix}" for suffix in _SUFFIXES)}
        self._reason = ""
        opened = _opened()
        if opened and self._inodes[str(path)] not in opened:
            raise StoreReplaced(str(path), f"{path} was replaced while it was being opened")

    def inherited(self) -> None:
        """Note that the parent of this process has the file open; see `refuse_inherited`."""
        inode = self._inodes[str(self._path)]
        if inode is not None:
            _inherited.add(inode)

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

    def check_content(self) -> None:
        """Verify that the database was not overwritten in place. To be called again and again.

        Raises:
            StoreReplaced: it was.
            StoreUnavailable: that is unknown.
        """
        self.check()
        try:
            status = os.stat(self._path)
        except OSError:
            return  # the next call has the reason
        written = (status.st_mtime_ns, status.st_size)
        if written == self._written:
            return
        content = self._read_content()
        if content is None:
            return
        went_back = any(new < old for new, old in zip(content, self._content, strict=True))
        if went_back or self._is_short(status.st_size):
            # The reading may have coincided with a write to the same page, but not twice.
            if self._is_doubtful:
                self._reason = f"{self._path} was overwritten while it was open"
                self.check()
            self._is_doubtful = True
            return
        self._is_doubtful, self._content, self._written = False, content, written

    def _is_short(self, size: int) -> bool:
        """Returns whether the database became shorter, and not because it has fewer pages."""
        if size >= self._written[1]:
            return False
        page_bytes, pages = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZE)
        return bool(size < page_bytes * pages)

    def _read_content(self) -> _Content | None:
        """Returns the content of the database without its log; None if it cannot be read now."""
        columns = ", ".join(_Content._fields)
        try:
            with contextlib.closing(self._connect(self._path, "unchanging")) as connection:
                # Checkpoints that have just begun leave a file that is shorter than its header says.
                connection.execute("PRAGMA writable_schema = ON")
                row = connection.execute(f"SELECT {columns} FROM meta").fetchone()
        except sqlite3.Error as error:
            return _NO_CONTENT if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FOREIGN else None
        return _NO_CONTENT if row is None else _Content(*row)

    def _change_of(self, file: str) -> str:
        found = _inode(file)
        if found == self._inodes[file]:
            return ""
        return f"{file} was {'removed or renamed' if found is None else 'replaced by another file'} while it was open"


# Files that a process had open when this one was forked from it.
_inherited: Final[set[_Inode]] = set()


def refuse_inherited(path: Path) -> None:
    """Raises ProcessForked if the parent of this process has the file open.

    SQLite counts the locks of a process in its own memory, which a fork copies: a new connection would rely on locks
    that only the parent has.
    """
    if _inherited and _inode(str(path)) in _inherited:
        raise ProcessForked(f"the open database {path}", os.getppid())


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
