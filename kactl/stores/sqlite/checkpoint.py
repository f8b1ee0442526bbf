"""Transfer of the write-ahead log into the database file, which forces the file to disk.

Most of the transfer runs in its own thread and connection, so that no change waits for it. The database's thread then
transfers what was written meanwhile: the log starts over, and stops growing, only after it was transferred as a whole.
"""

import concurrent.futures
import contextlib
import sqlite3
from pathlib import Path

from .schema import BUSY_TIMEOUT_S

_MOVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoint:
    """Checkpoints of one file; to be used by the thread that owns `connection`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="kactl-sqlite-checkpoint")
        self._moving: concurrent.futures.Future[None] | None = None

    def step(self, is_due: bool) -> bool:
        """Begin a checkpoint if one is due, or complete one after its first part has ended.

        Returns:
            whether the whole log was transferred.

        Raises:
            sqlite3.Error: the checkpoint failed; another one begins when it is due.
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
        """Whether a checkpoint was begun and not completed."""
        return self._moving is not None

    def wait(self) -> None:
        """Wait until the checkpoint can be completed."""
        if self._moving is not None:
            concurrent.futures.wait([self._moving])

    def close(self) -> None:
        self._executor.shutdown()

    def _move_most(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_TIMEOUT_S)) as own:
            own.execute(_MOVE).fetchone()
