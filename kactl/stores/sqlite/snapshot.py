"""The next snapshot, written part by part between changes, so that no change waits for all of it.

Changes made meanwhile stay in the journal. Some parts contain them already; loading the snapshot replays all of them,
which has the same result. Only removals move entries from one part to another: after a removal the snapshot starts
over.

Each snapshot numbers its parts from its own base, above all existing parts; the snapshot in force has the lowest base.
If several processes write one, the first to finish wins: it removes the parts of the others, which then find their own
snapshot void.
"""

from typing import Final

from .connection import Connection
from .journal import Journal, sealed

# About 1 MiB: forcing it to disk takes a few milliseconds. An error names the damaged part.
PART_ROWS: Final = 1 << 16
# The distance of two bases. No snapshot has as many parts.
BASES_APART: Final = 1 << 20


class Snapshot:
    """A snapshot being written. Every method runs inside a write transaction, with the journal up to date.

    If such a transaction fails, the snapshot has to be discarded.

    Attributes:
        seq: the last change that it certainly contains; later changes stay in the journal.
        size: bytes of the parts written so far.
    """

    def __init__(self, connection: Connection, journal: Journal) -> None:
        (highest,) = connection.execute("SELECT max(part) FROM snapshot").fetchone()
        self._base = 0 if highest is None else (highest // BASES_APART + 1) * BASES_APART
        self._replaces = _in_force(connection)
        self._removals = journal.removals
        self._parts = 0
        self.seq = journal.seq
        self.size = 0

    def is_void(self, connection: Connection, journal: Journal) -> bool:
        """Returns whether continuing is useless."""
        return journal.removals != self._removals or _in_force(connection) != self._replaces

    def write_part(self, connection: Connection, journal: Journal) -> bool:
        """Write the next part; the last part puts the snapshot in force.

        Returns:
            whether that was the last part.
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


def _in_force(connection: Connection) -> int:
    (seq,) = connection.execute("SELECT snapshot_seq FROM meta").fetchone()
    return int(seq)
