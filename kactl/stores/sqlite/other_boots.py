"""Leases whose end cannot be compared with the clock of this process.

Their owner ran in an earlier boot of the host, or it runs in a container with a boot id or a clock of its own.
"""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from kactl.model.errors import StoreError
from kactl.runtime.clock import UNKNOWN_BOOT, UNKNOWN_CLOCK, Clock

from .connection import Connect, Connection

# Conditions on a lease, by a reading of the clock. If either boot id is unknown, the boots count as the same.
_IS_OF_OTHER_BOOT: Final = "(boot <> :boot AND boot NOT IN ('', '?') AND :boot NOT IN ('', '?'))"
# It was renewed in the future, or in another boot, or perhaps by another clock.
IS_BY_OTHER_CLOCK: Final = f"({_IS_OF_OTHER_BOOT} OR expires_ms - timeout_ms > :ms OR '?' IN (boot, :boot))"
# It has ended. If it is by another clock, it only may have ended.
IS_OVER: Final = f"(expires_ms <= :ms OR expires_ms - timeout_ms > :ms OR {_IS_OF_OTHER_BOOT})"


def has_doubtful_leases(connection: Connection, clock: Clock) -> bool:
    """Returns whether there is a lease by another clock that may have ended."""
    query = f"SELECT 1 FROM leases WHERE {IS_OVER} AND {IS_BY_OTHER_CLOCK}"
    return connection.execute(query, clock.boot_time()._asdict()).fetchone() is not None


def newest_abandoned(path: Path, connect: Connect) -> int:
    """Returns the number of the newest lease if no connection to the file is open anywhere, and 0 otherwise.

    Whatever renews a lease has the file open. So the start after a crash of the host waits for no lease.
    """
    with contextlib.closing(connect(path)) as connection:
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            return int(connection.execute("SELECT coalesce(max(id), 0) FROM leases").fetchone()[0])
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                return 0
            raise


def refusal(path: Path, *, theirs: str, ours: str) -> StoreError:
    """Returns the error for a store with a lease by another clock that is being renewed."""
    theirs, ours = ("none" if boot in (UNKNOWN_BOOT, UNKNOWN_CLOCK) else boot for boot in (theirs, ours))
    ids = f"its sessions have the boot id {theirs}, and this process has {ours}"
    return StoreError(
        f"{path}: this store is open in another boot, or by another clock ({ids}), and its sessions are renewed there: "
        "run all programs that share the file on the host itself or all in one container, with /proc mounted; programs "
        "of several hosts need a store with a server"
    )
