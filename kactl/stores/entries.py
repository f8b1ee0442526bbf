"""Stored leadership as columns: one entry per partition, indexed by the number of its topic; the log of recent writes.

Both embedded stores keep this table in memory; the SQLite store rebuilds it from its snapshot and its journal.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from kactl.decide.state.rows import Bools, Ints, RowNumbers
from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, NO_VERSION, ZERO_ID, Leadership, TopicPartition, TopicRef

from .base import Committed, Found, Leaderships, Names, Outcome, Write

NO_TOPIC: Final = -1
# Each topic has a table from partition to row, as long as its highest partition. Kafka's largest clusters have a few
# million partitions in total; a higher number is an error that would cost 4 MiB of memory or more.
PARTITION_LIMIT: Final = 1 << 20
# `Names` of a few rows may hold the topics of the whole cluster; then the rows are looked up one by one.
_FEW: Final = 4

# At 8 bytes each this is 8 MiB: all that a failover of a very large cluster writes.
ROWS_MAX: Final = 1 << 20
# A change of one row takes about 400 bytes, nearly all of it overhead: at most 13 MB of them, and more changes than are
# written between two queries of a client.
CHANGES_MAX: Final = 1 << 15


@dataclasses.dataclass(frozen=True, slots=True)
class Entries:
    """n stored entries. `isr` is int32[K, n] with NO_BROKER in unused slots; `version` is the stored version."""

    topic: Ints
    partition: Ints
    leader: Ints
    leader_epoch: Ints
    isr: Ints
    recovering: Bools
    version: Ints
    controller_epoch: Ints

    def __len__(self) -> int:
        return len(self.topic)


class EntryTable:
    """All stored entries. Topics are numbered from 0; numbers are never reused."""

    def __init__(self) -> None:
        # `_begin`: index of each topic's first partition in `_row_of`; `_room`: length of the topic's table. Index 0 of
        # `_row_of` stands for every partition without an index of its own.
        self._begin = np.zeros(0, np.int64)
        self._room = np.zeros(0, np.int32)
        self._row_of = np.full(1, -1, np.int32)
        self._row_of_used = 1
        self._count = 0
        self._columns = _columns(width=0, capacity=0)

    def __len__(self) -> int:
        return self._count

    def plan_write(self, write: Write, topic: Ints, controller_epoch: int) -> tuple[Committed, Entries, RowNumbers]:
        """Returns the result of a write, the entries it creates, and their rows (-1 for a new one). Changes nothing.

        Args:
            topic: int32[n], the number of each row's topic; NO_TOPIC if the topic does not exist.
        """
        partition = write.names.partition
        rows = self._rows(topic, partition)
        present = rows >= 0
        stored = np.where(present, self._columns.version[rows], NO_VERSION) if self._count else rows
        committed = stored == write.expected
        invalid = committed & ~present & ((topic == NO_TOPIC) | (partition < 0) | (partition >= PARTITION_LIMIT))
        committed &= ~invalid
        outcome = np.where(committed, Outcome.COMMITTED, np.where(invalid, Outcome.FAILED, Outcome.CONFLICT)).astype(
            np.uint8
        )
        version = np.where(committed, write.expected + 1, NO_VERSION).astype(np.int32)
        selection = slice(None) if committed.all() else committed
        entries = Entries(
            topic=topic[selection],
            partition=partition[selection],
            leader=write.leader[selection],
            leader_epoch=write.leader_epoch[selection],
            isr=write.isr[:, selection],
            recovering=write.recovering[selection],
            version=version[selection],
            controller_epoch=np.full(np.count_nonzero(committed), controller_epoch, np.int32),
        )
        return Committed(outcome, version), entries, rows[selection]

    def put(self, entries: Entries, rows: RowNumbers | None = None) -> None:
        """Store entries, adding new ones and replacing existing ones; no partition occurs twice.

        Args:
            rows: the rows that `plan_write` returned, if nothing was stored since.
        """
        if rows is None:
            rows = self._rows(entries.topic, entries.partition)
        missing = rows < 0
        if missing.any():
            rows = self._add(entries.topic, entries.partition, missing)
        width = len(entries.isr)
        if width > len(self._columns.isr):
            self._columns = _grown(self._columns, width=width, capacity=len(self._columns))
        columns = self._columns
        columns.leader[rows] = entries.leader
        columns.leader_epoch[rows] = entries.leader_epoch
        for slot, members in enumerate(columns.isr):
            members[rows] = entries.isr[slot] if slot < width else NO_BROKER
        columns.recovering[rows] = entries.recovering
        columns.version[rows] = entries.version
        columns.controller_epoch[rows] = entries.controller_epoch

    def read(self, topic: Ints, partition: Ints) -> Leaderships:
        """Returns the stored leadership of some partitions."""
        rows = self._rows(topic, partition)
        present = rows >= 0
        columns = self._columns
        if present.all():
            # The common case is a plain gather without blanks.
            return Leaderships(
                status=np.full(len(rows), Found.FOUND, np.uint8),
                leader=columns.leader[rows],
                leader_epoch=columns.leader_epoch[rows],
                isr=columns.isr[:, rows],
                partition_epoch=columns.version[rows],
                controller_epoch=columns.controller_epoch[rows],
                recovering=columns.recovering[rows],
            )
        blank = Leaderships.of([None] * len(rows))
        result = dataclasses.replace(blank, isr=np.full((len(columns.isr), len(rows)), NO_BROKER, np.int32))
        rows = rows[present]
        result.status[present] = Found.FOUND
        result.leader[present] = columns.leader[rows]
        result.leader_epoch[present] = columns.leader_epoch[rows]
        result.isr[:, present] = columns.isr[:, rows]
        result.partition_epoch[present] = columns.version[rows]
        result.controller_epoch[present] = columns.controller_epoch[rows]
        result.recovering[present] = columns.recovering[rows]
        return result

    def partitions_of(self, topic: int) -> list[int]:
        """Returns the partitions of a topic that have an entry, ascending."""
        return np.flatnonzero(self._rows_of_topic(topic) >= 0).tolist()

    def remove(self, topic: int) -> None:
        """Remove all entries of a topic; entries from the end of the columns move into their rows."""
        topic_rows = self._rows_of_topic(topic)
        if not len(topic_rows):
            return
        removed = np.sort(topic_rows[topic_rows >= 0])
        left = self._count - len(removed)
        holes = removed[removed < left]
        movers = np.setdiff1d(np.arange(left, self._count, dtype=np.int32), removed, assume_unique=True)
        for field in dataclasses.fields(Entries):
            column = getattr(self._columns, field.name)
            column[..., holes] = column[..., movers]
        self._row_of[self._begin[self._columns.topic[holes]] + self._columns.partition[holes]] = holes
        self._count = left
        self._room[topic] = 0
        if 2 * int(self._room.sum()) < self._row_of_used:
            self._repack()

    def _repack(self) -> None:
        """Rewrite `_row_of` so that the tables of topics are contiguous, without the gaps left by moved tables."""
        room = self._room.astype(np.int64)
        begin = 1 + np.cumsum(room) - room
        before = np.repeat(self._begin - begin, room) + np.arange(1, 1 + int(room.sum()))
        self._row_of = np.concatenate([self._row_of[:1], self._row_of[before]])
        self._begin, self._row_of_used = begin, len(self._row_of)

    def part(self, begin: int, end: int) -> Entries:
        """Returns entries `begin` to `end`, in arbitrary order, as views that are valid until the next change."""
        end = min(end, self._count)
        return Entries(**{f.name: getattr(self._columns, f.name)[..., begin:end] for f in dataclasses.fields(Entries)})

    def _rows_of_topic(self, topic: int) -> Ints:
        """int32[room]: the row of each partition of one topic, -1 if it has none. A view."""
        if not 0 <= topic < len(self._begin):
            return np.zeros(0, np.int32)
        begin = int(self._begin[topic])
        return self._row_of[begin : begin + int(self._room[topic])]

    def _rows(self, topic: Ints, partition: Ints) -> RowNumbers:
        """intp[n]: the row of each partition, -1 if it has none."""
        if not len(self._begin):
            return np.full(len(topic), -1, np.intp)
        known = (topic >= 0) & (topic < len(self._begin)) & (partition >= 0)
        number = np.where(known, topic, 0)
        known &= partition < self._room[number]
        place = np.where(known, self._begin[number] + partition, 0)
        return self._row_of[place].astype(np.intp)

    def _add(self, topic: Ints, partition: Ints, missing: Bools) -> RowNumbers:
        """Assign rows to the entries that have none. Returns the rows of all."""
        new_topic, new_partition = topic[missing], partition[missing]
        self._make_room(new_topic, new_partition)
        begin, end = self._count, self._count + len(new_topic)
        if end > len(self._columns):
            self._columns = _grown(
                self._columns, width=len(self._columns.isr), capacity=max(end, 2 * len(self._columns))
            )
        self._row_of[self._begin[new_topic] + new_partition] = np.arange(begin, end, dtype=np.int32)
        self._columns.topic[begin:end] = new_topic
        self._columns.partition[begin:end] = new_partition
        self._count = end
        rows = self._rows(topic, partition)
        assert (rows[missing] == np.arange(begin, end)).all(), "a partition was written twice in one write"
        return rows

    def _make_room(self, topic: Ints, partition: Ints) -> None:
        """Extend each topic's table to its highest partition. A short table moves to the end of `_row_of`."""
        topics = int(topic.max()) + 1
        if topics > len(self._begin):
            more = max(topics, 2 * len(self._begin)) - len(self._begin)
            self._begin = np.append(self._begin, np.zeros(more, np.int64))
            self._room = np.append(self._room, np.zeros(more, np.int32))
        needed = np.zeros(len(self._room), np.int32)
        np.maximum.at(needed, topic, partition + np.int32(1))
        short = np.flatnonzero(needed > self._room)
        # A table that grows once will grow again, so it doubles; a new one gets exactly the length it needs.
        room = np.maximum(needed[short], 2 * self._room[short])
        begin = self._row_of_used + np.cumsum(room, dtype=np.int64) - room
        self._row_of_used += int(room.sum())
        if self._row_of_used > len(self._row_of):
            more = max(self._row_of_used, 2 * len(self._row_of)) - len(self._row_of)
            self._row_of = np.append(self._row_of, np.full(more, -1, np.int32))
        for index in np.flatnonzero(self._room[short]).tolist():
            old_begin, length = int(self._begin[short[index]]), int(self._room[short[index]])
            self._row_of[begin[index] : begin[index] + length] = self._row_of[old_begin : old_begin + length]
        self._begin[short], self._room[short] = begin, room


def _columns(*, width: int, capacity: int) -> Entries:
    return Entries(
        topic=np.full(capacity, NO_TOPIC, np.int32),
        partition=np.full(capacity, -1, np.int32),
        leader=np.full(capacity, NO_LEADER, np.int32),
        leader_epoch=np.full(capacity, NO_EPOCH, np.int32),
        isr=np.full((width, capacity), NO_BROKER, np.int32),
        recovering=np.zeros(capacity, np.bool_),
        version=np.full(capacity, NO_VERSION, np.int32),
        controller_epoch=np.full(capacity, NO_EPOCH, np.int32),
    )


def _grown(old: Entries, *, width: int, capacity: int) -> Entries:
    new = _columns(width=width, capacity=capacity)
    for field in dataclasses.fields(Entries):
        source, target = getattr(old, field.name), getattr(new, field.name)
        if source.ndim == 2:
            target[: len(source), : len(old)] = source
        else:
            target[: len(old)] = source
    return new


def topic_numbers(names: Names, known: Mapping[str, int], ids: Callable[[str], bytes] | None = None) -> Ints:
    """int32[n]: the number of each row's topic; NO_TOPIC if it is unknown.

    Args:
        known: the numbers of the topics that exist.
        ids: returns the stored id of one of them. A row that names another id is about an earlier topic of that name.
    """

    def number(ref: TopicRef) -> int:
        found = known.get(ref.name, NO_TOPIC)
        if ids is None or found == NO_TOPIC or ref.id == ZERO_ID:
            return found
        return NO_TOPIC if ref.is_other(ids(ref.name)) else found

    if len(names) * _FEW < len(names.topics):
        numbers = (number(names.topics[index]) for index in names.topic.tolist())
        return np.fromiter(numbers, np.int32, len(names))
    return np.array([number(topic) for topic in names.topics], np.int32)[names.topic]


def leader_write(name: TopicPartition, state: Leadership, *, expected: int) -> Write:
    """Returns a leader's write of its own ISR as a write of one row."""
    return Write(
        names=Names.of([name]),
        leader=np.array([state.leader], np.int32),
        leader_epoch=np.array([state.leader_epoch], np.int32),
        isr=np.array([[member] for member in state.isr], np.int32).reshape(len(state.isr), 1),
        recovering=np.array([state.recovering], np.bool_),
        expected=np.array([expected], np.int32),
    )


class ChangeLog:
    """Log of recently written entries, for clients that keep a copy of them: see `Store.changes`.

    Changes are numbered, and the most recent ones are kept. A query that begins before the oldest kept change is
    answered with "unknown". Topics are numbered as the store numbers them.
    """

    def __init__(self) -> None:
        self._changes: collections.deque[tuple[int, Ints, Ints]] = collections.deque()
        self._rows = 0
        self._complete_after = 0

    def add(self, seq: int, topic: Ints, partition: Ints) -> None:
        """Record that change `seq` wrote these entries; numbers ascend."""
        # Copies: the columns may be views of a whole change, which would be kept in memory along with them.
        self._changes.append((seq, topic.copy(), partition.copy()))
        self._rows += len(topic)
        while self._rows > ROWS_MAX or len(self._changes) > CHANGES_MAX:
            self._complete_after, topics, _ = self._changes.popleft()
            self._rows -= len(topics)

    def begin(self, seq: int) -> None:
        """Discard the log; changes up to `seq` are unknown."""
        self._changes.clear()
        self._rows, self._complete_after = 0, seq

    def since(self, seq: int) -> tuple[Ints, Ints] | None:
        """Returns topic and partition of each entry written after change `seq`, possibly repeated; None if unknown."""
        if seq < self._complete_after:
            return None
        changes = []
        for change in reversed(self._changes):
            if change[0] <= seq:
                break
            changes.append(change)
        if not changes:
            return np.zeros(0, np.int32), np.zeros(0, np.int32)
        topics, partitions = [topic for _, topic, _ in changes], [partition for _, _, partition in changes]
        return np.concatenate(topics), np.concatenate(partitions)
