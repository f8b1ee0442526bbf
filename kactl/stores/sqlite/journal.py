"""Leadership in the database: a snapshot of all entries, the changes since, and the resulting columns in memory.

A change is one frame in `journal`, numbered without gaps. The columns in memory follow it: the process's own changes
when they are committed, changes of other processes when the database has been written by another connection. When the
journal reaches the size of the snapshot, a new snapshot replaces it. The removal of a deleted topic is a change as
well.
"""

import dataclasses
from pathlib import Path
from typing import Final

import numpy as np

from kactl.decide.state.rows import RowNumbers
from kactl.stores.entries import ChangeLog, Entries, EntryTable

from .connection import Connection
from .frame import FrameDamagedError, kind_of, pack, unpack
from .partition_watches import PartitionWatches
from .schema import damaged

# Replaying a change takes about 50 us, however small it is; this many take a quarter of a second.
CHANGES_MAX: Final = 5_000
# A journal of this size loads in about the time that opening the file takes; a shorter one is not worth a snapshot.
JOURNAL_BYTES_MIN: Final = 4 << 20
_COLUMNS: Final = tuple(field.name for field in dataclasses.fields(Entries))


def sealed(kind: str, key: int, entries: Entries) -> bytes:
    """Returns a frame of entries: a change, or a part of a snapshot."""
    return pack(kind, key, {name: getattr(entries, name) for name in _COLUMNS})


class Journal:
    """The stored entries, up to change `seq`. Every method runs inside a transaction of the caller.

    The columns contain committed changes only: the caller passes the result of `append` to `applied` after the commit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.watches = PartitionWatches()
        self._clear()

    def _clear(self) -> None:
        self.entries = EntryTable()
        self.log = ChangeLog()
        self.seq = 0
        self._snapshot_bytes = 0
        self._journal_bytes = 0
        self._changes = 0
        self.removals = 0  # number of removed topics; each removal moves entries

    def is_long(self, times: int = 1) -> bool:
        """Returns whether a snapshot is due, or the journal is `times` longer than that."""
        enough = max(JOURNAL_BYTES_MIN, self._snapshot_bytes)
        return self._changes >= times * CHANGES_MAX or self._journal_bytes >= times * enough

    def catch_up(self, connection: Connection) -> None:
        """Apply the changes of other processes; at first, everything stored.

        Raises:
            StoreDamaged: a frame is damaged or missing.
        """
        (snapshot_seq, parts) = connection.execute("SELECT snapshot_seq, snapshot_parts FROM meta").fetchone()
        if snapshot_seq > self.seq:
            self._load(connection, snapshot_seq, parts)
        changes = connection.execute("SELECT seq, frame FROM journal WHERE seq > ? ORDER BY seq", (self.seq,))
        for seq, frame in changes:
            if seq != self.seq + 1:
                raise damaged(self._path, f"change {self.seq + 1} is missing")
            topic = self._read_removal(seq, frame)
            if topic is None:
                self.applied(seq, self._read("change", seq, frame), len(frame))
            else:
                self.removed(seq, topic, len(frame))

    def append(self, connection: Connection, entries: Entries) -> tuple[int, int]:
        """Write a change. Returns its number and its size in bytes."""
        seq = self.seq + 1
        frame = sealed("change", seq, entries)
        connection.execute("INSERT INTO journal VALUES (?, ?)", (seq, frame))
        return seq, len(frame)

    def append_removal(self, connection: Connection, topic: int, *, behind: int = 0) -> tuple[int, int]:
        """Write the removal of a topic's entries, after `behind` other removals of the transaction; see `append`."""
        seq = self.seq + 1 + behind
        frame = pack("removal", seq, {"topic": np.array([topic], np.int32)})
        connection.execute("INSERT INTO journal VALUES (?, ?)", (seq, frame))
        return seq, len(frame)

    def applied(self, seq: int, entries: Entries, size: int, rows: RowNumbers | None = None) -> None:
        """Apply a durable change to the columns."""
        self.entries.put(entries, rows)
        self.log.add(seq, entries.topic, entries.partition)
        self.watches.record(entries)
        self._count(seq, size)

    def removed(self, seq: int, topic: int, size: int) -> None:
        """Apply a durable removal of a topic's entries."""
        self.entries.remove(topic)
        self.removals += 1
        self._count(seq, size)

    def _count(self, seq: int, size: int) -> None:
        self.seq = seq
        self._journal_bytes += size
        self._changes += 1

    def measure(self, connection: Connection) -> None:
        """Measure the journal and the snapshot: another process may have put a snapshot in force."""
        self._changes, self._journal_bytes = connection.execute(
            "SELECT count(*), coalesce(sum(length(frame)), 0) FROM journal"
        ).fetchone()
        (self._snapshot_bytes,) = connection.execute(
            "SELECT coalesce(sum(length(frame)), 0) FROM snapshot "
            "WHERE part < (SELECT min(part) FROM snapshot) + (SELECT snapshot_parts FROM meta)"
        ).fetchone()

    def snapshot_taken(self, *, snapshot_bytes: int, size: int, changes: int) -> None:
        """Record a new snapshot. `size` and `changes` are the length of the journal when it was begun."""
        self._snapshot_bytes = snapshot_bytes
        self._journal_bytes -= size
        self._changes -= changes

    @property
    def length(self) -> tuple[int, int]:
        """Bytes and number of changes in the journal."""
        return self._journal_bytes, self._changes

    def _load(self, connection: Connection, seq: int, parts: int) -> None:
        removals = self.removals + 1
        self._clear()
        self.removals = removals  # all entries have moved
        (base,) = connection.execute("SELECT min(part) FROM snapshot").fetchone()
        expected = base = base or 0
        between = (base, base + parts)
        for part, frame in connection.execute(
            "SELECT part, frame FROM snapshot WHERE part >= ? AND part < ? ORDER BY part", between
        ):
            if part != expected:
                break
            self.entries.put(self._read("part", part, frame))
            self._snapshot_bytes += len(frame)
            expected += 1
        if expected != base + parts:
            raise damaged(self._path, f"part {expected - base} of the snapshot is missing, of {parts}")
        self.seq = seq
        self.log.begin(seq)
        self.watches.record_all()

    def _read_removal(self, seq: int, frame: object) -> int | None:
        """Returns the removed topic, or None if the change is not a removal."""
        try:
            if kind_of(frame) != "removal":
                return None
            return int(unpack("removal", seq, frame)["topic"][0])
        except (FrameDamagedError, KeyError, IndexError) as error:
            raise damaged(self._path, f"change {seq} is damaged ({error})") from error

    def _read(self, kind: str, key: int, frame: object) -> Entries:
        try:
            columns = unpack(kind, key, frame)
            return Entries(
                **{name: columns[name] for name in _COLUMNS if name != "recovering"},
                recovering=columns["recovering"].astype(np.bool_),
            )
        except (FrameDamagedError, KeyError) as error:
            description = f"change {key}" if kind == "change" else f"part {key} of the snapshot"
            raise damaged(self._path, f"{description} is damaged ({error})") from error
