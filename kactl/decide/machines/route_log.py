"""Numbered changes of the routing metadata of one controllership.

The log compares the partition table with what it has published before. Changing a partition therefore costs nothing:
the comparison runs when a spectator asks, over whole columns, and only if the table has changed. Each changed partition
gets a number of its own, and a partition keeps only the number of its last change, so the log is as large as the table.
Only removed partitions are kept by name, up to a limit.
"""

import collections
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from kactl.decide.messages.routes import Delta, Longs, RemovedRows, RouteMessage, RouteRows, Snapshot, Version
from kactl.decide.state.columns import grown
from kactl.decide.state.readiness import Readiness
from kactl.decide.state.rows import Bools, Ints, RowNumbers
from kactl.decide.state.table import Table
from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, Broker, Endpoint

# A spectator that is further behind receives everything.
REMOVED_MAX: Final = 100_000
_EMPTY: Final[Mapping[str, tuple[Any, int]]] = {
    "topic": (np.int32, -1),
    "partition": (np.int32, -1),
    "leader": (np.int32, NO_LEADER),
    "leader_epoch": (np.int32, NO_EPOCH),
    "ready": (np.bool_, False),
}


class RouteLog:
    """Changes of the metadata of one table, as far as they have been looked at.

    Args:
        first: the number before the first change.

    Attributes:
        seq: number of the last change.
        table: the table with these changes.
    """

    def __init__(self, table: Table, *, first: int = 0, removed_max: int = REMOVED_MAX) -> None:
        self.table = table
        self.seq = first
        self._columns: dict[str, Any] = {name: np.full(0, empty, kind) for name, (kind, empty) in _EMPTY.items()}
        self._in_sync: Ints = np.full((0, 0), NO_BROKER, np.int32)
        self._seq: Longs = np.zeros(0, np.int64)  # of the last change of each row; 0 if the row has no route
        self._removed: collections.deque[tuple[int, int, int]] = collections.deque()  # number, topic, partition
        self._removed_max = removed_max
        self._complete_after = first  # the removals after this number are all known
        self._brokers: dict[int, Broker] = {}
        self._brokers_seq = first
        self._looked_at: tuple[int, int] = (-1, -1)

    def update(self, brokers: Mapping[int, Broker], readiness: Readiness) -> None:
        """Number the changes since the last call.

        Args:
            brokers: the registered brokers.
        """
        revisions = (self.table.revision, readiness.revision)
        if revisions != self._looked_at:
            self._looked_at = revisions
            self._compare(readiness)
        if brokers != self._brokers:
            self._replace_brokers(dict(brokers))

    def since(
        self, epoch: int, after: Version | None, topics: Collection[str] | None, *, age_ms: float
    ) -> RouteMessage:
        """Returns the changes after a version, or everything if they are not known any more.

        Args:
            epoch: of the controllership.
            topics: those of interest; None for all.
        """
        version = Version(epoch, self.seq)
        if after is None or after.controller_epoch != epoch or not self._complete_after <= after.seq <= self.seq:
            routes = self._rows(np.flatnonzero(self._seq > 0), topics)
            return Snapshot(version, age_ms, tuple(self._brokers.values()), routes.encoded())
        brokers = tuple(self._brokers.values()) if self._brokers_seq > after.seq else None
        routes = self._rows(np.flatnonzero(self._seq > after.seq), topics)
        return Delta(version, age_ms, brokers, routes.encoded(), self._removals(after.seq, topics).encoded())

    # -- comparison

    def _compare(self, readiness: Readiness) -> None:
        table = self.table
        topic, partition = table.column("topic"), table.column("partition")
        leader, leader_epoch = table.column("leader"), table.column("leader_epoch")
        in_sync = np.where(table.column("in_sync"), table.column("replicas"), np.int32(NO_BROKER))
        self._grow(len(topic), len(in_sync))
        has_route = (topic >= 0) & (leader_epoch != NO_EPOCH)
        queued = table.queued(np.flatnonzero(has_route))
        has_route[queued] = False
        ready = has_route & readiness.of(topic, partition, leader_epoch, table.led_since())
        before, had_route = self._columns, self._seq > 0
        other = (before["topic"] != topic) | (before["partition"] != partition)
        changed = has_route & (
            ~had_route
            | other
            | (before["leader"] != leader)
            | (before["leader_epoch"] != leader_epoch)
            | (before["ready"] != ready)
            | (self._in_sync != in_sync).any(axis=0)
        )
        self._remove(np.flatnonzero(had_route & (other | ~has_route)))
        rows = np.flatnonzero(changed)
        self._seq[~has_route] = 0
        self._seq[rows] = np.arange(self.seq + 1, self.seq + 1 + len(rows))
        self.seq += len(rows)
        self._columns = {
            "topic": topic.copy(),
            "partition": partition.copy(),
            "leader": leader.copy(),
            "leader_epoch": leader_epoch.copy(),
            "ready": ready,
        }
        self._in_sync = in_sync

    def _replace_brokers(self, brokers: dict[int, Broker]) -> None:
        """Number the change of the brokers, and that of each route whose leader has other addresses."""
        before, self._brokers = self._brokers, brokers
        self.seq += 1
        self._brokers_seq = self.seq
        moved = moved_brokers(before, brokers)
        rows = np.flatnonzero((self._seq > 0) & np.isin(self._columns["leader"], moved))
        self._seq[rows] = np.arange(self.seq + 1, self.seq + 1 + len(rows))
        self.seq += len(rows)

    def _grow(self, count: int, width: int) -> None:
        if count > len(self._seq):
            self._columns = {name: grown(column, count, _EMPTY[name][1]) for name, column in self._columns.items()}
            self._seq = grown(self._seq, count, 0)
        if self._in_sync.shape != (width, count):
            wider = np.full((width, count), NO_BROKER, np.int32)
            wider[: len(self._in_sync), : self._in_sync.shape[1]] = self._in_sync
            self._in_sync = wider

    def _remove(self, rows: RowNumbers) -> None:
        topic, partition = self._columns["topic"][rows].tolist(), self._columns["partition"][rows].tolist()
        numbers = range(self.seq + 1, self.seq + 1 + len(rows))
        self._removed.extend(zip(numbers, topic, partition, strict=True))
        self.seq += len(rows)
        while len(self._removed) > self._removed_max:
            self._complete_after = self._removed.popleft()[0]

    # -- messages

    def _rows(self, rows: RowNumbers, topics: Collection[str] | None) -> RouteRows:
        """Returns the routes of some rows, without those of topics that are not of interest, by their numbers."""
        columns = self._columns
        if topics is not None:
            rows = rows[np.isin(columns["topic"][rows], self._numbers(topics))]
        rows = rows[np.argsort(self._seq[rows], kind="stable")]
        names, topic = self._names(columns["topic"][rows])
        return RouteRows(
            topics=names,
            topic=topic,
            partition=columns["partition"][rows],
            leader=columns["leader"][rows],
            leader_epoch=columns["leader_epoch"][rows],
            seq=self._seq[rows],
            ready=columns["ready"][rows],
            in_sync=self._in_sync[:, rows],
        )

    def _removals(self, after: int, topics: Collection[str] | None) -> RemovedRows:
        newest: list[tuple[int, int, int]] = []
        for entry in reversed(self._removed):
            if entry[0] <= after:
                break
            newest.append(entry)
        seq, topic, partition = np.array(newest[::-1], np.int64).reshape((len(newest), 3)).T
        if topics is not None:
            wanted: Bools = np.isin(topic, [number for number, name in self._refs(topic) if name in topics])
            seq, topic, partition = seq[wanted], topic[wanted], partition[wanted]
        names, position = self._names(topic.astype(np.int32))
        return RemovedRows(names, position, partition.astype(np.int32), seq)

    def _numbers(self, topics: Collection[str]) -> list[int]:
        known = (self.table.topic(name) for name in topics)
        return [topic.number for topic in known if topic is not None]

    def _refs(self, numbers: Any) -> list[tuple[int, str]]:
        refs = self.table.refs
        return [(number, refs[number].name) for number in np.unique(numbers).tolist()]

    def _names(self, numbers: Ints) -> tuple[tuple[str, ...], Ints]:
        refs, distinct = self.table.refs, np.unique(numbers)
        return tuple(refs[number].name for number in distinct.tolist()), np.searchsorted(distinct, numbers).astype(
            np.int32
        )


def moved_brokers(before: Mapping[int, Broker], after: Mapping[int, Broker]) -> list[int]:
    """Returns the brokers whose addresses differ, sorted; a broker without a registration has none."""

    def endpoints(brokers: Mapping[int, Broker], broker: int) -> tuple[Endpoint, ...]:
        return brokers[broker].endpoints if broker in brokers else ()

    ids = sorted(before.keys() | after.keys())
    return [broker for broker in ids if endpoints(before, broker) != endpoints(after, broker)]
