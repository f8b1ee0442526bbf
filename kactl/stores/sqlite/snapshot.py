"""The next snapshot, written a part at a time between changes, so that no change waits for all of it.

Changes that are made meanwhile stay in the journal. Some parts hold them already; whoever loads the snapshot replays
them all, which comes to the same. Only removals move entries from one part to another: after one the snapshot is begun
anew.

Each snapshot numbers its parts from a base of its own, above all that stand there, and the one in force has the lowest.
Of several processes that write one, the first to finish wins: it removes what the others have written so far, and they
see that theirs has become void.
"""

import sqlite3
from typing import Final

from .journal import Journal, sealed

# About 1 MiB: forcing it to disk takes a few milliseconds. A damaged one is named.
PART_ROWS: Final = 1 << 16
# From one base to the next. No snapshot has as many parts.
BASES_APART: Final = 1 << 20


class Snapshot:
    """One that is being written. Every method runs inside a transaction that writes, with the journal caught up.

    If such a transaction fails, the snapshot is to be given up.

    Attributes:
        seq: the last change that it holds for certain; the journal is kept from there on.
        size: bytes of the parts written so far.
    """

    def __init__(self, connection: sqlite3.Connection, journal: Journal) -> None:
        (highest,) = connection.execute("SELECT max(part) FROM snapshot").fetchone()
        self._base = 0 if highest is None else (highest // BASES_APART + 1) * BASES_APART
        self._replaces = _in_force(connection)
        self._removals = journal.removals
        self._parts = 0
        self.seq = journal.seq
        self.size = 0

    def is_void(self, connection: sqlite3.Connection, journal: Journal) -> bool:
        """Whether there is no use in going on."""
        return journal.removals != self._removals or _in_force(connection) != self._replaces

    def write_part(self, connection: sqlite3.Connection, journal: Journal) -> bool:
        """Write the next part; with the last one it is in force.

        Returns:
            whether that was the last one.
        """
        begin = self._parts * PART_ROWS
        if begin < len(journal.entries):
            number = self._base + self._parts
            frame = sealed("part", number, journal.entries.part(begin, begin + PART_ROWS))
            connection.execute("INSERT INTO snapshot VALUES (?, ?)", (number, frame))
            self._parts += 1
            self.size += len(frame)
        if self._parts * PART_ROWS < len(journal.entries):
            return False
        end = self._base + self._parts
        connection.execute("DELETE FROM snapshot WHERE part < ? OR part >= ?", (self._base, end))
        connection.execute("UPDATE meta SET snapshot_seq = ?, snapshot_parts = ?", (self.seq, self._parts))
        connection.execute("DELETE FROM journal WHERE seq <= ?", (self.seq,))
        return True


def _in_force(connection: sqlite3.Connection) -> int:
    (seq,) = connection.execute("SELECT snapshot_seq FROM meta").fetchone()
    return int(seq)
