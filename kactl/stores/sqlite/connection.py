"""Connections to the database, as far as the store uses them, and how they are opened.

`SqliteStore` opens all its connections with one function, which a caller can replace: by a build of SQLite with other
options, or by one with its own file operations.
"""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote

# Another process holds the write lock during one commit: at most a second, for a large one on a slow disk. After five
# seconds it hangs.
BUSY_TIMEOUT_S: Final = 5.0

Access = Literal["read-write", "read-only", "unchanging"]
# None creates a file: one that was removed while the store was open would come back, empty.
_OPTIONS: Final[dict[Access, str]] = {
    "read-write": "?mode=rw",
    "read-only": "?mode=ro",
    "unchanging": "?mode=ro&immutable=1",
}


class Cursor(Protocol):
    """Result of a statement; see `sqlite3.Cursor`."""

    @property
    def rowcount(self) -> int: ...

    @property
    def lastrowid(self) -> int | None: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection in autocommit mode; see `sqlite3.Connection`. Errors are those of `sqlite3`, with their codes."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...

    def executescript(self, sql_script: str, /) -> object: ...

    def close(self) -> None: ...


class Connect(Protocol):
    """Opens a connection, to be used and closed by the same thread."""

    def __call__(self, path: Path, access: Access = "read-write") -> Connection:
        """Returns a connection to the file, which exists.

        Args:
            access: `unchanging` if the file is not written meanwhile: SQLite then reads it without looking for other
                files beside it, and creates none.

        Raises:
            sqlite3.Error: the file cannot be opened.
        """


def connect(path: Path, access: Access = "read-write") -> sqlite3.Connection:
    """Open a connection with the `sqlite3` module; see `Connect`."""
    return sqlite3.connect(database_uri(path, access), uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S)


def database_uri(path: Path, access: Access) -> str:
    """Returns the name by which SQLite opens the file for that access."""
    return f"file:{quote(os.fsencode(path))}{_OPTIONS[access]}"
