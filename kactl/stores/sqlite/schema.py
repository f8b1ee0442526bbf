"""File format: creation, checks and migration. A file that is not a kactl store is rejected and left unchanged."""

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Final

from kactl.model.errors import StoreDamaged
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger

from .connection import Connect, Connection, connect

log = logger(__name__)

# In the header of the file: "kact".
APPLICATION_ID: Final = 0x6B616374
SCHEMA_VERSION: Final = 4

# The content of a file is not trusted: no functions with side effects in its schema, and all cells are checked.
DISTRUST: Final = ("trusted_schema = OFF", "cell_size_check = ON")

_TABLES: Final = """
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,               -- of the last election, also while there is no controller
    controller INTEGER,                   -- id of the controller; NULL if there is none
    controller_session INTEGER,
    controller_since_ms INTEGER,
    broker_epoch INTEGER NOT NULL,        -- the last one assigned
    topic_number INTEGER NOT NULL,        -- the last one assigned
    stamp INTEGER NOT NULL,               -- the last one assigned; see stamps
    snapshot_seq INTEGER NOT NULL,        -- the last change that the snapshot contains
    snapshot_parts INTEGER NOT NULL       -- those with the lowest numbers; later ones belong to an unfinished snapshot
);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timeout_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL           -- wall clock in schemas 1 to 3, boot time since
);
CREATE TABLE brokers (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,             -- in leases, negative: evicted; 0: with the controller
    data BLOB NOT NULL
);
CREATE TABLE topics (
    name TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,       -- identifies the topic in all frames; never reused
    id BLOB NOT NULL,
    assignment BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE configs (topic TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE default_config (id INTEGER PRIMARY KEY CHECK (id = 1), data BLOB NOT NULL);  -- of all brokers
CREATE TABLE notifications (id INTEGER PRIMARY KEY AUTOINCREMENT, broker INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE journal (seq INTEGER PRIMARY KEY, frame BLOB NOT NULL);
CREATE TABLE snapshot (part INTEGER PRIMARY KEY, frame BLOB NOT NULL);
-- The last change of everything that can be watched, counted in changes.
CREATE TABLE stamps (
    what TEXT NOT NULL, name TEXT NOT NULL, stamp INTEGER NOT NULL, PRIMARY KEY (what, name)
) WITHOUT ROWID;
CREATE INDEX stamps_by_stamp ON stamps (stamp);
INSERT INTO meta VALUES (1, 0, NULL, NULL, NULL, 0, -1, 0, 0, 0);
"""
# The additions of each schema version; an older file gets them when it is opened.
_ADDED: Final = {
    2: """
CREATE TABLE deletions (topic TEXT PRIMARY KEY) WITHOUT ROWID;  -- the topics that are marked
-- Single records with a version: admin requests, the features, the last block of producer ids.
CREATE TABLE records (name TEXT PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
""",
    3: "",  # the parts of a snapshot may begin with another number than 0
    # Leases by boot time. The new table name is unknown to a process that still runs an earlier version and would go on
    # writing its wall clock.
    4: """
ALTER TABLE sessions RENAME TO leases;
ALTER TABLE leases ADD COLUMN boot TEXT NOT NULL DEFAULT '';  -- of the host, for `expires_ms`
ALTER TABLE leases ADD COLUMN lock TEXT NOT NULL DEFAULT '';  -- see Holder
ALTER TABLE leases ADD COLUMN turn TEXT NOT NULL DEFAULT '';
""",
}
_BOOT_TIME_SINCE: Final = 4

_FIRST_TABLES: Final = frozenset(
    {
        "brokers",
        "configs",
        "default_config",
        "journal",
        "meta",
        "notifications",
        "sessions",
        "snapshot",
        "stamps",
        "topics",
    }
)
# By schema version.
_TABLES_SINCE_2: Final = _FIRST_TABLES | {"deletions", "records"}
_TABLES_SINCE_4: Final = _TABLES_SINCE_2 - {"sessions"} | {"leases"}
TABLES: Final = {1: _FIRST_TABLES, 2: _TABLES_SINCE_2, 3: _TABLES_SINCE_2, 4: _TABLES_SINCE_4}


def create(path: Path, connect: Connect = connect) -> None:
    """Create an empty store at `path`, whole or not at all; a file that appears there meanwhile is kept."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        os.close(descriptor)
    except OSError as error:
        raise _refused(
            path, f"cannot be created ({error.strerror})", "name a folder that kactl may write to"
        ) from error
    new = Path(name)
    try:
        connection = connect(new)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.executescript(f"BEGIN; {_TABLES} {''.join(_ADDED.values())} COMMIT;")
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        try:
            os.link(new, path)
        except FileExistsError:
            return  # another process was faster; its file is equivalent
        force_folder(path.parent)
    except (OSError, sqlite3.Error) as error:
        remedy = "name a folder with free space that kactl may write to"
        raise _refused(path, f"cannot be created ({error})", remedy) from error
    finally:
        new.unlink(missing_ok=True)


def check_file(path: Path, connect: Connect = connect) -> None:
    """Reject a file that is not a kactl store, by its header and its size, before a connection can change it.

    The header is read by SQLite, and no other descriptor of the file is opened: to close one would release all locks
    that other stores of this process hold on the file, since they belong to the process and not to a descriptor.

    Raises:
        StoreDamaged: nothing was changed.
        sqlite3.Error: the file could not be read.
    """
    if not path.is_file():
        raise _refused(path, "is a folder, not a file" if path.is_dir() else "is no plain file", "name a file")
    effective = os.access in os.supports_effective_ids
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=effective):
        remedy = "let the user that kactl runs as read and write it"
        raise _refused(path, "cannot be opened for reading and writing", remedy)
    if not os.access(path.parent, os.W_OK, effective_ids=effective):
        remedy = "let the user that kactl runs as write to it, or name a file elsewhere"
        raise _refused(path, f"stands in the folder {path.parent}, which cannot be written to", remedy)
    size = path.stat().st_size
    if not size:
        raise _refused(path, "is empty", "restore it from a backup, or remove it to begin with an empty cluster")
    with contextlib.closing(connect(path, "unchanging")) as connection:
        try:
            # With it, SQLite reads the header also of a file that is shorter than its header says.
            connection.execute("PRAGMA writable_schema = ON")
            application, version, page_bytes, pages = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version", "page_size", "page_count")
            )
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_NOTADB:
                raise
            remedy = "name another file, or restore this one from a backup"
            raise _refused(path, "is no SQLite database", remedy) from error
    if application != APPLICATION_ID:
        raise _refused(path, "is the database of another program", "name another file")
    _check_version(path, version)
    _check_size(path, size, page_bytes * pages)


def check_structure(path: Path, connection: Connection) -> frozenset[str]:
    """Let SQLite check its pages, and verify that all tables exist.

    Returns:
        the tables of a file of this schema version.

    Raises:
        StoreDamaged: nothing was changed.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise damaged(path, f"its pages are damaged ({verdict})")
    version = _version(path, connection)
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    foreign = connection.execute("SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')").fetchone()
    if foreign is not None:
        raise damaged(path, f"it contains the {foreign[0]} {foreign[1]}, and kactl creates none")
    missing = sorted(TABLES[version] - present)
    if missing:
        raise damaged(path, f"it has no table {missing[0]}")
    if connection.execute("SELECT count(*) FROM meta").fetchone() != (1,):
        raise damaged(path, "its table meta is empty")
    return TABLES[version]


def migrate(path: Path, connection: Connection, clock: Clock) -> None:
    """Migrate a file of an earlier schema to the current one, in one transaction.

    Leases of a schema with wall-clock times last for one more timeout: their owners may still run, and can no longer
    renew them.
    """
    if _version(path, connection) == SCHEMA_VERSION:
        return
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        for version in range(_version(path, connection) + 1, SCHEMA_VERSION + 1):
            for statement in _ADDED[version].split(";"):
                connection.execute(statement)
            if version == _BOOT_TIME_SINCE:
                now = clock.boot_time()
                connection.execute("UPDATE leases SET boot = ?, expires_ms = ? + timeout_ms", (now.boot, now.ms))
            log.info("%s: migrated to schema version %d", path, version)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(path: Path, connection: Connection) -> int:
    """The schema version from the database; the file's own header may be behind its write-ahead log."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return _check_version(path, version)


def _check_version(path: Path, version: int) -> int:
    if version not in TABLES:
        known = f"{min(TABLES)} to {max(TABLES)}"
        remedy = "use the version of kactl that wrote it, or a later one"
        raise _refused(path, f"has schema version {version}, and this kactl knows {known}", remedy)
    return version


def damaged(path: Path, reason: str) -> StoreDamaged:
    return _refused(path, reason, "restore it from a backup, or move it away to begin with an empty cluster")


def _refused(path: Path, reason: str, remedy: str) -> StoreDamaged:
    return StoreDamaged(str(path), reason, remedy)


def _check_size(path: Path, size: int, expected: int) -> None:
    # With a write-ahead log beside it, the file may be shorter than its header says.
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        return
    if size < expected:
        raise damaged(path, f"is cut short: {size} bytes of {expected}")


def force_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
