"""Transfer of the write-ahead log into the database file, which forces the file to disk.

Most of the transfer runs in its own thread and connection, so that no change waits for it. The database's thread then
transfers what was written meanwhile: the log starts over, and stops growing, only after it was transferred as a whole.
"""

import concurrent.futures
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from .connection import Connect, Connection

# Starts a function outside the database's thread.
Start = Callable[[Callable[[], None]], "Future[None]"]

_MOVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoint:
    """Checkpoints of one file; to be used by the thread that owns `connection`."""

    def __init__(self, path: Path, connection: Connection, *, connect: Connect, start: Start) -> None:
        self._path = path
        self._connection = connection
        self._connect = connect
        self._start = start
        self._moving: Future[None] | None = None

    def step(self, is_due: bool) -> bool:
        """Begin a checkpoint if one is due, or complete one after its first part has ended.

        Returns:
            whether the whole log was transferred.

        Raises:
            sqlite3.Error: the checkpoint failed; another one begins when it is due.
        """
        if self._moving is None:
            if is_due:
                self._moving = self._start(self._move_most)
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

    def _move_most(self) -> None:
        with contextlib.closing(self._connect(self._path)) as own:
            own.execute(_MOVE).fetchone()


def start_at_once(job: Callable[[], None]) -> "Future[None]":
    """Run the function before returning: for a database that no event loop uses."""
    done: Future[None] = Future()
    try:
        job()
        done.set_result(None)
    except Exception as error:
        done.set_exception(error)
    return done
