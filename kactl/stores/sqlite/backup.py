"""Backups of a database: a consistent copy while it is in use, and its return in the place of the database.

Epochs order leaders and controllers for everything that has seen them: participants, and resources behind fencing
tokens. A backup knows only those of its time, so a restored database continues with numbers that cannot have been
issued since: see `epochs_ahead`.
"""

import contextlib
import dataclasses
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kactl.model import NO_BROKER, ProducerIdBlock
from kactl.model.errors import KactlError, StoreError
from kactl.runtime.clock import Clock

from .connection import Access, Connection, connect
from .database import Database
from .frame import seal, unseal
from .journal import Journal
from .protection import check_place
from .requests import PRODUCER_IDS
from .schema import force_folder
from .snapshot import PART_ROWS

# An election takes a forced write. No partition has had a million of them more than one for each second since.
_AHEAD: Final = 1_000_000
# Three years: a clock that was never set does not use up all epochs.
_AGE_S_MAX: Final = 100_000_000
# Epochs are signed numbers of 32 bits.
_EPOCH_MAX: Final = 2**31 - 1
# More blocks than could be allocated: each takes a forced write, and serves 1,000 producers.
_PRODUCER_IDS_AHEAD: Final = 1 << 40
# What SQLite keeps beside a database; see its documentation of write-ahead logs.
_BESIDE: Final = ("-wal", "-shm", "-journal")


class BackupContent(NamedTuple):
    """What a copy contains."""

    controller_epoch: int
    topics: int
    partitions: int


class Restored(NamedTuple):
    """Result of a restore.

    Attributes:
        replaced: where the database of before is now; None if there was none.
        unread: why the epochs of the database of before could not be considered; empty if they were.
    """

    content: BackupContent
    epochs_ahead: int
    replaced: Path | None
    unread: str


def back_up(path: Path, copy: Path, clock: Clock) -> BackupContent:
    """Write a consistent copy of a database, which other processes may use meanwhile.

    The copy is a database of one file, readable by its owner only. It appears whole or not at all.

    Raises:
        StoreDamaged: the database, or its copy, is damaged, or not a kactl store.
        StoreError: the copy exists already, or cannot be written.
    """
    if not path.exists():
        raise StoreError(f"{path}: there is no such store: name the file of a store")
    with _new_file(copy) as new, _sqlite_errors(copy):
        _copy(path, new)
        content = _content(new, clock)
        try:
            os.link(new, copy)
        except FileExistsError:
            raise _exists(copy) from None
    return content


def restore(backup: Path, path: Path, clock: Clock, *, dry_run: bool = False) -> Restored:
    """Put a backup in the place of a database that no process uses; a database that is there is kept beside it.

    Sessions and registrations are left out, and controller epoch, leader epochs, versions, broker epochs and producer
    ids are raised above those of the backup, of the database that is replaced, and of all that can have been issued in
    between. A dry run does all of this to a copy, and removes it.

    Raises:
        StoreDamaged: the backup is damaged, or not a kactl store. Nothing was changed.
        StoreError: a process uses the database, or it cannot be written. Nothing was changed.
    """
    check_place(path)
    if not backup.is_file():
        raise StoreError(f"{backup}: there is no such file: name a file that `kactl store backup` has written")
    with _new_file(path) as new, _unused(path) as present, _sqlite_errors(path):
        # Beside a file that it only reads, SQLite would leave others behind.
        _copy(backup, new, "read-only" if Path(f"{backup}-wal").exists() else "unchanging")
        ahead = epochs_ahead(backup.stat().st_mtime * 1000, clock.now_ms())
        _raise_epochs(new, present.epochs, ahead, clock)
        content = _content(new, clock)
        replaced = None if present.connection is None or dry_run else _exchange(new, path, present)
        if replaced is None and not dry_run:
            os.link(new, path)
    return Restored(content, ahead, replaced, present.unread)


def epochs_ahead(written_ms: float, now_ms: float) -> int:
    """Returns by how much the epochs of a backup are raised: more than can have been issued since it was written."""
    age_s = int((now_ms - written_ms) / 1000)
    return _AHEAD + min(max(age_s, 0), _AGE_S_MAX)


class _Epochs(NamedTuple):
    """The highest numbers of a database."""

    controller: int = 0
    broker: int = 0
    leader: int = 0
    version: int = 0
    producer_id: int = 0


class _Present(NamedTuple):
    """The database to be replaced, if there is one.

    Attributes:
        connection: holds the lock on it.
        unread: why it cannot be read; its epochs are unknown then.
    """

    epochs: _Epochs = _Epochs()
    connection: Connection | None = None
    unread: str = ""


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """An empty file beside `path`, for its owner only. It is forced to disk and its name removed at the end."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror}): check its folder and the free space") from None
    new = Path(name)
    try:
        yield new
        force_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror}): check its folder and the free space") from error
    finally:
        for suffix in ("", *_BESIDE):
            Path(f"{new}{suffix}").unlink(missing_ok=True)


def _copy(source: Path, new: Path, access: Access = "read-only") -> None:
    """Copy the committed content of a database, and force it to disk."""
    with contextlib.closing(connect(source, access)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("VACUUM INTO ?", (str(new),))
    descriptor = os.open(new, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _content(new: Path, clock: Clock) -> BackupContent:
    """Verify a copy like a store that is opened, and count what it contains."""
    with contextlib.closing(Database(new, clock)) as database:
        with database.reading():
            topics, epoch = database.one("SELECT count(*) FROM topics"), database.one("SELECT epoch FROM meta")
            content = BackupContent(int(epoch), int(topics), len(database.journal.entries))
        database.connection.execute("PRAGMA journal_mode = DELETE")  # one file, until a store opens it
    return content


@contextlib.contextmanager
def _unused(path: Path) -> Iterator[_Present]:
    """Keep other processes from a database until the block ends.

    Raises:
        StoreError: a process uses it.
    """
    if not os.path.lexists(path):
        yield _Present()
        return
    with contextlib.closing(connect(path)) as connection:
        try:
            # With this mode, SQLite takes the lock that every other connection prevents by its own.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("BEGIN EXCLUSIVE")
            present = _Present(_epochs(path, connection), connection)
            connection.execute("ROLLBACK")
        except (sqlite3.Error, KactlError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                remedy = "stop every controller and participant that has it open, then restore again"
                raise StoreError(f"{path} is in use by another process: {remedy}") from None
            present = _Present(connection=connection, unread=str(error))
        yield present


def _epochs(path: Path, connection: Connection) -> _Epochs:
    """Returns the highest numbers of a database that the connection has locked.

    Raises:
        StoreDamaged: it cannot be read.
    """
    controller, broker = connection.execute("SELECT epoch, broker_epoch FROM meta").fetchone()
    journal = Journal(path)
    journal.catch_up(connection)
    entries = journal.entries.part(0, len(journal.entries))
    row = connection.execute("SELECT data FROM records WHERE name = ?", (PRODUCER_IDS,)).fetchone()
    block = None if row is None else msgspec.msgpack.decode(unseal(row[0]), type=ProducerIdBlock)
    return _Epochs(
        controller,
        broker,
        int(entries.leader_epoch.max(initial=0)),
        int(entries.version.max(initial=0)),
        0 if block is None else block.last,
    )


def _raise_epochs(new: Path, present: _Epochs, ahead: int, clock: Clock) -> None:
    """Raise all epochs of a copy above its own and those of `present`, and end its sessions and registrations.

    Raises:
        StoreError: epochs are used up.
    """
    with contextlib.closing(Database(new, clock)) as database:
        with database.writing() as connection:
            own = _epochs(new, connection)
            highest = _Epochs(*map(max, own, present))
            if max(highest.controller, highest.leader, highest.version) + present.leader > _EPOCH_MAX - ahead:
                raise StoreError(
                    f"{new.parent}: epochs cannot be raised by {ahead}, because they end at {_EPOCH_MAX}: begin with "
                    "an empty store, and with new tables of fencing tokens"
                )
            connection.execute(
                "UPDATE meta SET epoch = ?, broker_epoch = ?, controller = NULL, controller_session = NULL, "
                "controller_since_ms = NULL",
                (highest.controller + ahead, highest.broker + ahead),
            )
            connection.execute("DELETE FROM leases")
            connection.execute("DELETE FROM brokers")
            connection.execute("DELETE FROM notifications")
            _raise_producer_ids(connection, highest)
        _raise_leader_epochs(database, highest.controller + ahead, present, ahead)


def _raise_producer_ids(connection: Connection, highest: _Epochs) -> None:
    if highest.producer_id:
        first = highest.producer_id + 1 + _PRODUCER_IDS_AHEAD
        block = msgspec.msgpack.encode(ProducerIdBlock(NO_BROKER, first, 1))
        connection.execute(
            "INSERT INTO records VALUES (?, 1, ?) "
            "ON CONFLICT (name) DO UPDATE SET version = version + 1, data = excluded.data",
            (PRODUCER_IDS, seal(block)),
        )


def _raise_leader_epochs(database: Database, controller_epoch: int, present: _Epochs, ahead: int) -> None:
    """Write all leaderships anew, each by its own leader, as decided by a controller of the raised epoch."""
    entries = database.journal.entries
    for begin in range(0, len(entries), PART_ROWS):
        part = entries.part(begin, begin + PART_ROWS)
        raised = dataclasses.replace(
            part,
            leader_epoch=np.where(part.leader_epoch < 0, part.leader_epoch, part.leader_epoch + present.leader + ahead),
            version=part.version + present.version + ahead,
            controller_epoch=np.full(len(part), controller_epoch, np.int32),
        )
        with database.writing() as connection:
            seq, size = database.journal.append(connection, raised)
        database.journal.applied(seq, raised, size)


def _exchange(new: Path, path: Path, present: _Present) -> Path:
    """Put a file in the place of a database, in one step. Returns the database's new name.

    What SQLite kept beside a database that it cannot open is moved along: it must not be applied to another one.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 0
    while os.path.lexists(replaced := path.with_name(f"{path.name}.replaced-{moment}{f'-{number}' if number else ''}")):
        number += 1
    if not present.unread and present.connection is not None:
        present.connection.execute("PRAGMA journal_mode = DELETE")  # one file, which can be moved
        # In its locking mode the connection keeps it.
        Path(f"{path}-journal").unlink(missing_ok=True)
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{replaced}{suffix}")
    os.link(path, replaced, follow_symlinks=False)
    os.replace(new, path)
    return replaced


@contextlib.contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    """Raise the errors of `sqlite3` in the block as StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}: nothing was changed; check the file, and the free space") from error


def _exists(copy: Path) -> StoreError:
    return StoreError(f"{copy} exists already: nothing was changed; name another file, or remove it")
