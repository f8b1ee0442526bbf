"""Leadership in the database: a snapshot of all entries, the changes since, and the columns that both amount to.

A change is one frame in `journal`, numbered without gaps. The columns in memory follow it: our own changes when they
are committed, those of other processes when the database says that somebody else wrote to it. When the journal has
grown to the size of the snapshot, the next snapshot takes its place. A deleted topic is a change as well: its removal.
"""

import dataclasses
import sqlite3
from pathlib import Path
from typing import Final

import numpy as np

from kactl.state.rows import RowNumbers
from kactl.stores.change_log import ChangeLog
from kactl.stores.entries import Entries, EntryTable

from .frame import FrameDamagedError, kind_of, pack, unpack
from .partition_watches import PartitionWatches
from .schema import damaged

# Replaying a change costs about 50 us, however small it is; so many are a quarter of a second.
CHANGES_MAX: Final = 5_000
# A journal of this size loads in about the time that opening the file takes; smaller ones are not worth a snapshot.
JOURNAL_BYTES_MIN: Final = 4 << 20
_COLUMNS: Final = tuple(field.name for field in dataclasses.fields(Entries))


def sealed(kind: str, key: int, entries: Entries) -> bytes:
    """Returns a frame of entries: a change, or a part of a snapshot."""
    return pack(kind, key, {name: getattr(entries, name) for name in _COLUMNS})


class Journal:
    """The entries as the database has them, up to change `seq`. Every method runs inside a transaction of the caller.

    Nothing of a transaction that may still fail gets into the columns: `append` gives what `applied` keeps afterwards.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.watched = PartitionWatches()
        self._clear()

    def _clear(self) -> None:
        self.entries = EntryTable()
        self.log = ChangeLog()
        self.seq = 0
        self._snapshot_bytes = 0
        self._journal_bytes = 0
        self._changes = 0
        self.removals = 0  # of topics; each moves entries from one place to another

    def is_long(self, times: int = 1) -> bool:
        """Whether a snapshot is due; or has been so long that the journal is `times` longer than it should be."""
        enough = max(JOURNAL_BYTES_MIN, self._snapshot_bytes)
        return self._changes >= times * CHANGES_MAX or self._journal_bytes >= times * enough

    def catch_up(self, connection: sqlite3.Connection) -> None:
        """Follow the changes that other processes have made; all there is, at first.

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
            removed = self._read_removal(seq, frame)
            if removed is None:
                self.applied(seq, self._read("change", seq, frame), len(frame))
            else:
                self.removed(seq, removed, len(frame))

    def append(self, connection: sqlite3.Connection, entries: Entries) -> tuple[int, int]:
        """Write a change. Its number and its size in bytes."""
        seq = self.seq + 1
        frame = sealed("change", seq, entries)
        connection.execute("INSERT INTO journal VALUES (?, ?)", (seq, frame))
        return seq, len(frame)

    def append_removal(self, connection: sqlite3.Connection, topic: int, *, behind: int = 0) -> tuple[int, int]:
        """Write that all entries of a topic are gone, `behind` others of the same transaction; as `append`."""
        seq = self.seq + 1 + behind
        frame = pack("removal", seq, {"topic": np.array([topic], np.int32)})
        connection.execute("INSERT INTO journal VALUES (?, ?)", (seq, frame))
        return seq, len(frame)

    def applied(self, seq: int, entries: Entries, size: int, rows: RowNumbers | None = None) -> None:
        """A change is durable: keep it in memory."""
        self.entries.put(entries, rows)
        self.log.add(seq, entries.topic, entries.partition)
        self.watched.see(entries)
        self._count(seq, size)

    def removed(self, seq: int, topic: int, size: int) -> None:
        """The removal of a topic's entries is durable."""
        self.entries.remove(topic)
        self.removals += 1
        self._count(seq, size)

    def _count(self, seq: int, size: int) -> None:
        self.seq = seq
        self._journal_bytes += size
        self._changes += 1

    def measure(self, connection: sqlite3.Connection) -> None:
        """Look how long it is: another process may have put a snapshot in force since we last knew."""
        self._changes, self._journal_bytes = connection.execute(
            "SELECT count(*), coalesce(sum(length(frame)), 0) FROM journal"
        ).fetchone()
        (self._snapshot_bytes,) = connection.execute(
            "SELECT coalesce(sum(length(frame)), 0) FROM snapshot "
            "WHERE part < (SELECT min(part) FROM snapshot) + (SELECT snapshot_parts FROM meta)"
        ).fetchone()

    def snapshot_taken(self, *, snapshot_bytes: int, size: int, changes: int) -> None:
        """A snapshot is in force: what the journal holds has been made since it was begun, at this size and length."""
        self._snapshot_bytes = snapshot_bytes
        self._journal_bytes -= size
        self._changes -= changes

    @property
    def length(self) -> tuple[int, int]:
        """Bytes and changes in it."""
        return self._journal_bytes, self._changes

    def _load(self, connection: sqlite3.Connection, seq: int, parts: int) -> None:
        removals = self.removals + 1
        self._clear()
        self.removals = removals  # whatever was read before is elsewhere now
        (base,) = connection.execute("SELECT min(part) FROM snapshot").fetchone()
        found = base = base or 0
        between = (base, base + parts)
        for part, frame in connection.execute(
            "SELECT part, frame FROM snapshot WHERE part >= ? AND part < ? ORDER BY part", between
        ):
            if part != found:
                break
            self.entries.put(self._read("part", part, frame))
            self._snapshot_bytes += len(frame)
            found += 1
        if found != base + parts:
            raise damaged(self._path, f"part {found - base} of the snapshot is missing, of {parts}")
        self.seq = seq
        self.log.begin(seq)
        self.watched.see_all()

    def _read_removal(self, seq: int, frame: object) -> int | None:
        """The topic, if a change is the removal of one."""
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
            what = f"change {key}" if kind == "change" else f"part {key} of the snapshot"
            raise damaged(self._path, f"{what} is damaged ({error})") from error
