"""Transactions on one file, and the events of the changes they made.

Everything in this module runs in the database's thread.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from kactl.model import Fence
from kactl.model.errors import ControllerMoved, StoreDamaged, StoreError, StoreUnavailable
from kactl.runtime import forks
from kactl.runtime.clock import Clock
from kactl.stores.base import Changed, StoreEvent

from .checkpoint import Checkpoint, Start, start_at_once
from .connection import Connect, Connection, connect
from .frame import FrameDamagedError, unseal
from .identity import OpenFiles, refuse_inherited
from .journal import Journal
from .other_boots import has_doubtful_leases, newest_abandoned
from .protection import check_place
from .schema import DISTRUST, check_file, check_structure, create, damaged, migrate
from .snapshot import Snapshot

# Transferring the write-ahead log into the file costs a second force to disk. It is done between changes, not within
# one, and at this size, which keeps the log smaller than the file of a large cluster.
LOG_BYTES_MAX: Final = 4 << 20
# If the journal is this many times too long, a whole snapshot is written at once, and changes wait for it.
FAR_TOO_LONG: Final = 4
# The size of a transaction besides its frame: some pages.
_OVERHEAD_BYTES: Final = 16 << 10

_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "check its disk for free space, the quotas, and `ulimit -f`",
    sqlite3.SQLITE_READONLY: "let the user that kactl runs as write to it and to its folder",
}
_SEALED: Final = (
    ("brokers", "id", "data", "registration of broker {}"),
    ("topics", "name", "assignment", "assignment of topic {}"),
    ("configs", "topic", "data", "configuration of topic {}"),
    ("default_config", "id", "data", "configuration of all brokers"),
    ("notifications", "id", "data", "notification {}"),
    ("records", "name", "data", "record of {}"),
)


class _Fingerprint(NamedTuple):
    """Changes when a file is written."""

    modified_ns: int
    size: int
    log_bytes: int


class Database:
    """One connection, and the leadership that it stores, in columns.

    Args:
        start: starts a function in another thread, for checkpoints.

    Attributes:
        abandoned: number of the newest lease that no process can renew any more; 0 if that is unknown.

    Raises:
        StoreDamaged: the file is damaged, or not a kactl store; it was left unchanged.
    """

    def __init__(self, path: Path, clock: Clock, *, connect: Connect = connect, start: Start = start_at_once) -> None:
        self.path = path
        self._connect = connect
        self._clock = clock
        self._has_doubtful_leases = False  # when it was checked
        self.journal = Journal(path)
        self._log_bytes = 0
        self._data_version = -1
        self._snapshot: Snapshot | None = None  # the next one, while it is being written
        self._began_with = (0, 0)  # length of the journal when `_snapshot` was begun
        check_place(path)
        refuse_inherited(path)
        if not os.path.lexists(path):
            create(path, connect)
        with self.translated():
            check_file(path, connect)
            self._check(path)
            self.abandoned = newest_abandoned(path, connect) if self._has_doubtful_leases else 0
            self.connection = connect(path)
            try:
                migrate(path, self.connection, clock)
                for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0", *DISTRUST):
                    self.connection.execute(f"PRAGMA {pragma}")
                self._stamp = self.one("SELECT stamp FROM meta")
                self.files = OpenFiles(path, connect, self.connection)
                forks.share(self)
                self.checkpoint = Checkpoint(path, self.connection, connect=connect, start=start)
            except BaseException:
                self.connection.close()
                raise

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        forks.keep(self.connection)
        self.files.inherited()

    def close(self) -> None:
        """Close the connection. The last process to close the file transfers the log into it."""
        self.connection.close()

    def one(self, query: str, *values: object) -> Any:
        """Returns the first column of the first row, or None if there are no rows."""
        with self.translated():
            row = self.connection.execute(query, values).fetchone()
        return None if row is None else row[0]

    def check_files(self) -> None:
        """Verify that the files were not replaced or overwritten. To be called with each poll.

        Raises:
            StoreReplaced: they were.
        """
        with self.translated():
            self.files.check_content()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view, with the columns in memory up to date. Nested uses share the outer view."""
        if self.connection.in_transaction:
            yield self.connection
            return
        with self.translated():
            self.connection.execute("BEGIN")
            try:
                self.files.check()
                self._catch_up()
                yield self.connection
            finally:
                if self.connection.in_transaction:  # SQLite ends it by itself after some errors
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A serialized transaction: committed durably when the block ends, rolled back if the block raises."""
        with self.translated():
            try:
                self.connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                remedy = _REMEDIES.get(_code(error))
                then = f"{remedy}, then try again" if remedy else "try again"
                raise StoreError(f"{self.path}: {error}: nothing was changed; {then}") from error
            try:
                self.files.check()
                self._catch_up()
                yield self.connection
                self.connection.execute("COMMIT")
                self.files.check()  # no change is confirmed in a file that other processes cannot find
            except BaseException:
                # A failed commit may be durable after all: the next transaction reads the changes again.
                self._data_version = -1
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        self._log_bytes += _OVERHEAD_BYTES

    def check_fence(self, fence: Fence) -> None:
        """Verify a fence, within `writing`.

        Raises:
            ControllerMoved: a later controller has been elected.
        """
        epoch = self.one("SELECT epoch FROM meta")
        if (fence.epoch, fence.version) != (epoch, epoch):
            raise ControllerMoved(ours=fence.epoch, theirs=epoch)

    def stamp(self, kind: Changed, name: str = "") -> None:
        """Record a change, within `writing`, so that all processes report it."""
        (stamp,) = self.connection.execute("UPDATE meta SET stamp = stamp + 1 RETURNING stamp").fetchone()
        self.connection.execute("INSERT OR REPLACE INTO stamps VALUES (?, ?, ?)", (kind.value, name, stamp))

    def take_events(self) -> list[StoreEvent]:
        """Returns the changes by any process since the last call that succeeded, in order."""
        stamped, stamp = self._stamped_events()
        events = [*stamped, *self._leadership_events()]
        # Only now: after an error the next call returns the same changes.
        self._stamp = stamp
        return events

    def _leadership_events(self) -> list[StoreEvent]:
        watches = self.journal.watches
        if not watches:
            return []
        with self.reading():  # brings the journal and its watches up to date
            return [StoreEvent(Changed.LEADERSHIP, str(name)) for name in watches.take()]

    def _stamped_events(self) -> tuple[list[StoreEvent], int]:
        """Returns the changes after `_stamp`, and the stamp of the last one."""
        with self.translated():
            changed = self.connection.execute(
                "SELECT what, name, stamp FROM stamps WHERE stamp > ? ORDER BY stamp", (self._stamp,)
            ).fetchall()
            if not changed:
                return [], self._stamp
            vacant = self.one("SELECT controller FROM meta") is None
        events = [StoreEvent(Changed(kind), name) for kind, name, _ in changed]
        return [
            StoreEvent(Changed.CONTROLLER_GONE) if vacant and event.what is Changed.CONTROLLER else event
            for event in events
        ], changed[-1][2]

    def count_log_bytes(self, size: int) -> None:
        """Count bytes of frames written to the log."""
        self._log_bytes += size

    def run_maintenance(self) -> bool:
        """Do one step of the maintenance that keeps the files small, short enough to run between changes.

        Returns:
            whether another step is due.
        """
        if self._snapshot is not None or self.journal.is_long():
            try:
                self._write_snapshot()
            except BaseException:
                # It is unknown which of its parts are stored.
                self._snapshot = None
                raise
        with self.translated():
            if self.checkpoint.step(self._log_bytes >= LOG_BYTES_MAX):
                self._log_bytes = 0
        return self._snapshot is not None

    def _write_snapshot(self) -> None:
        """Write the next part of the snapshot, or all of it if that has failed for so long that the journal is far too
        long.
        """
        with self.writing() as connection:
            if self._snapshot is None or self._snapshot.is_void(connection, self.journal):
                self._snapshot = None
                self.journal.measure(connection)
                if not self.journal.is_long():
                    return
                self._snapshot, self._began_with = Snapshot(connection, self.journal), self.journal.length
            before = self._snapshot.size
            done = self._snapshot.write_part(connection, self.journal)
            while not done and self.journal.is_long(times=FAR_TOO_LONG):
                done = self._snapshot.write_part(connection, self.journal)
        self.count_log_bytes(self._snapshot.size - before)
        if done:
            size, changes = self._began_with
            self.journal.snapshot_taken(snapshot_bytes=self._snapshot.size, size=size, changes=changes)
            self._snapshot = None

    def _catch_up(self) -> None:
        # The number changes when another connection commits. The columns contain our own changes already.
        version = self.one("PRAGMA data_version")
        if version != self._data_version:
            self.journal.catch_up(self.connection)
            self._data_version = version

    def _check(self, path: Path) -> None:
        """Check everything through a read-only connection; this loads the columns as well.

        SQLite creates files beside one that it opens, even for reading. A file without a write-ahead log is therefore
        read as one that does not change; only if it did change is it read again, as a file in use.
        """
        before = _fingerprint(path)
        if before.log_bytes:
            self._check_with(self._connect(path, "read-only"))
            return
        try:
            self._check_with(self._connect(path, "unchanging"))
        except (StoreDamaged, sqlite3.Error):
            if _fingerprint(path) == before:
                raise
            self.journal = Journal(path)
            self._check_with(self._connect(path, "read-only"))

    def _check_with(self, connection: Connection) -> None:
        try:
            for pragma in DISTRUST:
                connection.execute(f"PRAGMA {pragma}")
            present = check_structure(self.path, connection)
            connection.execute("BEGIN")
            self.journal.catch_up(connection)
            for table, key, column, description in _SEALED:
                if table not in present:
                    continue  # absent from an earlier schema
                for name, frame in connection.execute(f"SELECT {key}, {column} FROM {table}"):
                    try:
                        unseal(frame)
                    except FrameDamagedError as error:
                        raise damaged(self.path, f"the {description.format(name)} is damaged ({error})") from error
            self._has_doubtful_leases = "leases" in present and has_doubtful_leases(connection, self._clock)
        finally:
            connection.close()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise the errors of `sqlite3` and of frames in the block as StoreUnavailable or StoreDamaged."""
        try:
            yield
        except FrameDamagedError as error:
            raise damaged(self.path, str(error)) from error
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.Error) -> StoreDamaged | StoreUnavailable:
        code = _code(error)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return damaged(self.path, f"its pages are damaged ({error})")
        remedy = _REMEDIES.get(code, "check its file system")
        return StoreUnavailable(f"{self.path}: {error}: {remedy}; then read back before writing again")


def _code(error: sqlite3.Error) -> int:
    """Returns the primary code of an error, 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _fingerprint(path: Path) -> _Fingerprint:
    stat, log = path.stat(), Path(f"{path}-wal")
    return _Fingerprint(stat.st_mtime_ns, stat.st_size, log.stat().st_size if log.exists() else 0)
