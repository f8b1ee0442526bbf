"""Moving the write-ahead log into the file, which forces the file to disk.

Most of it is done in a thread and over a connection of its own, so that no change waits for it. What was written
meanwhile is moved by the database's own thread: only a log that has been moved as a whole begins anew, and does not
grow for ever.
"""

import concurrent.futures
import contextlib
import sqlite3
from pathlib import Path

from .schema import BUSY_TIMEOUT_S

_MOVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoint:
    """See the module; to be used by the thread that has `connection`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="kactl-sqlite-checkpoint")
        self._moving: concurrent.futures.Future[None] | None = None

    def step(self, is_due: bool) -> bool:
        """Begin if it is due, or end what was begun, as far as it has come. Whether the log has been moved.

        Raises:
            sqlite3.Error: it could not be; it is begun anew when it is due again.
        """
        if self._moving is None:
            if is_due:
                self._moving = self._executor.submit(self._move_most)
            return False
        if not self._moving.done():
            return False
        moved, self._moving = self._moving, None
        moved.result()
        self._connection.execute(_MOVE).fetchone()
        return True

    @property
    def is_moving(self) -> bool:
        """Whether something was begun that is to be ended."""
        return self._moving is not None

    def wait(self) -> None:
        """Until what was begun can be ended."""
        if self._moving is not None:
            concurrent.futures.wait([self._moving])

    def close(self) -> None:
        self._executor.shutdown()

    def _move_most(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_TIMEOUT_S)) as own:
            own.execute(_MOVE).fetchone()
