"""SQLite with its file operations recorded, through apsw: for a store by its parameter `connect`."""

import itertools
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from kactl.stores.sqlite import Connection
from kactl.stores.sqlite.connection import Access, database_uri

from .recorded_disk import RecordedDisk

_BASE: Final = "unix"
_NUMBERS: Final = itertools.count(1)
_FLAGS: Final = {
    "read-write": apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
    "read-only": apsw.SQLITE_OPEN_READONLY,
    "unchanging": apsw.SQLITE_OPEN_READONLY,
}
_DATABASE_ERRORS: Final = (apsw.CorruptError, apsw.NotADBError)


class RecordingVFS(apsw.VFS):
    """File operations of the standard VFS, recorded.

    Args:
        rng: the random numbers of SQLite, which are those of the log's salt.
    """

    def __init__(self, disk: RecordedDisk, rng: random.Random) -> None:
        self.name = f"recording-{next(_NUMBERS)}"
        self._disk = disk
        self._rng = rng
        super().__init__(self.name, _BASE, makedefault=True)  # SQLite takes random numbers from the default one

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's
        return RecordingFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        inode = Path(filename).stat().st_ino if Path(filename).exists() else -1
        super().xDelete(filename, syncdir)
        self._disk.deleted(filename, inode)

    def xRandomness(self, numbytes: int) -> bytes:  # noqa: N802
        return self._rng.randbytes(numbytes)


class RecordingFile(apsw.VFSFile):
    """A file whose changes are recorded."""

    def __init__(self, disk: RecordedDisk, name: Any, flags: list[int]) -> None:
        super().__init__(_BASE, name, flags)
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._number = disk.opened(path)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._disk.wrote(self._number, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._disk.truncated(self._number, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.synced(self._number)


class ApswCursor:
    """Result of a statement, with all rows read."""

    def __init__(self, connection: apsw.Connection, rows: list[Any]) -> None:
        self._rows = iter(rows)
        self.rowcount = connection.changes()
        self.lastrowid = connection.last_insert_rowid()

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class ApswConnection:
    """A connection of apsw with the interface of the store's connections, and the errors of `sqlite3`."""

    def __init__(self, path: Path, access: Access, vfs: str) -> None:
        flags = _FLAGS[access] | apsw.SQLITE_OPEN_URI
        self._connection = apsw.Connection(database_uri(path, access), flags=flags, vfs=vfs)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, parameters: Any = (), /) -> ApswCursor:
        try:
            rows = list(self._connection.execute(sql, parameters))
        except apsw.Error as error:
            raise _translated(error) from error
        return ApswCursor(self._connection, rows)

    def executescript(self, sql_script: str, /) -> object:
        return self.execute(sql_script)

    def close(self) -> None:
        self._connection.close()


class Connector:
    """Opens connections over one recorded disk."""

    def __init__(self, disk: RecordedDisk, rng: random.Random) -> None:
        self._vfs = RecordingVFS(disk, rng)
        apsw.randomness(0)  # draw the random numbers anew, from this VFS

    def __call__(self, path: Path, access: Access = "read-write") -> Connection:
        try:
            return ApswConnection(path, access, self._vfs.name)
        except apsw.Error as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Remove the VFS. All connections are closed."""
        self._vfs.unregister()


def _translated(error: apsw.Error) -> sqlite3.Error:
    kind = sqlite3.DatabaseError if isinstance(error, _DATABASE_ERRORS) else sqlite3.OperationalError
    kind = sqlite3.IntegrityError if isinstance(error, apsw.ConstraintError) else kind
    translated = kind(str(error))
    translated.sqlite_errorcode = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
    return translated
