"""Routing table of a spectator, in columns.

Each row has the version of its last change, by which a reader resumes, and its *tick*: the number of that change at
this spectator. A reader that has seen tick t has missed exactly the rows with a higher tick.
"""

import collections
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kactl.decide.machines.route_log import moved_brokers
from kactl.decide.messages.routes import Delta, Longs, RemovedRows, RouteMessage, RouteRows, Version
from kactl.decide.state.records import Names
from kactl.decide.state.rows import Bools, Ints, RowNumbers
from kactl.model import NO_BROKER, NO_LEADER, Broker, Endpoint, TopicPartition
from kactl.participant.growable import broker_list, grow, put_lists
from kactl.participant.row_index import ABSENT, RowIndex

from .routes import Route, RouteChange

# Removals that a slow reader may have missed. Beyond them it receives the whole table.
REMOVED_MAX: Final = 100_000
NOTHING: Final = Version(-1, -1)


class RouteTable:
    """The routes that a spectator has received.

    Attributes:
        version: of the metadata; `NOTHING` until the first message.
        base: the version from which on every change is known here.
        tick: number of the last change.
        removed_before: ticks of removals up to this one are not known any more.
    """

    def __init__(self, *, removed_max: int = REMOVED_MAX) -> None:
        self.version = self.base = NOTHING
        self.tick = 0
        self.removed_before = 0
        self._index = RowIndex()
        self._brokers: dict[int, Broker] = {}
        self._columns: dict[str, Any] = {
            "leader": np.zeros(0, np.int32),
            "leader_epoch": np.zeros(0, np.int32),
            "ready": np.zeros(0, np.bool_),
            "epoch": np.zeros(0, np.int32),
            "seq": np.zeros(0, np.int64),
            "tick": np.zeros(0, np.int64),
        }
        self._in_sync: Ints = np.zeros((0, 0), np.int32)
        self._removed: collections.OrderedDict[TopicPartition, tuple[int, Version]] = collections.OrderedDict()
        self._removed_max = removed_max

    def __len__(self) -> int:
        return len(self._index)

    # -- receiving

    def apply(self, message: RouteMessage) -> bool:
        """Apply a message. Returns False for one that is older than the table, which is not changed then.

        Raises:
            MalformedMessage: the columns do not fit each other. The table is not changed.
        """
        routes = RouteRows.decoded(message.routes)
        removed = RemovedRows.decoded(message.removed) if isinstance(message, Delta) else None
        if message.version < self.version:
            return False
        if message.version == self.version:
            return True
        epoch, brokers, before = message.version.controller_epoch, self._brokers, self.tick
        if message.brokers is not None:
            self._brokers = {broker.id: broker for broker in message.brokers}
        if removed is not None:
            self._remove_named(removed, epoch)
            self._put(routes, epoch, routes.seq > self.version.seq)
        else:
            self._remove_missing(routes, Version(epoch, 0))
            self._put(routes, epoch, np.isin(routes.leader, moved_brokers(brokers, self._brokers)))
            if self.base == NOTHING:
                self.base = message.version
        self._order(before)
        self._forget_removed()
        self.version = message.version
        return True

    def rewind(self, after: Version, message: RouteMessage) -> None:
        """Learn the removals between a version and the first message, from a response to a request for them.

        The routes of a first message have the versions of their last changes, so only removals are missing.
        """
        if not isinstance(message, Delta) or message.version.controller_epoch != self.base.controller_epoch:
            return
        for name, seq in _last(RemovedRows.decoded(message.removed)).items():
            if name not in self._removed and self._index.find_one(name) == ABSENT:
                self.tick += 1
                self._removed[name] = self.tick, Version(self.base.controller_epoch, seq)
        self.base = min(self.base, after)
        self._forget_removed()

    def _put(self, routes: RouteRows, epoch: int, changed: Bools) -> None:
        """Store routes: those that are `changed`, bool[n], or differ. Others keep the version of their last change."""
        rows = self._index.find(routes.topics, routes.topic, routes.partition)
        absent = rows == ABSENT
        if absent.any():
            rows[absent] = self._index.add(routes.topics, routes.topic[absent], routes.partition[absent])
            self._grow()
        columns, in_sync = self._columns, self._in_sync
        changed = changed | absent
        for name in ("leader", "leader_epoch", "ready"):
            changed |= columns[name][rows] != getattr(routes, name)
        changed |= _differ(in_sync[:, rows], routes.in_sync)
        rows = rows[changed]
        for name in ("leader", "leader_epoch", "ready", "seq"):
            columns[name][rows] = getattr(routes, name)[changed]
        columns["epoch"][rows] = epoch
        self._in_sync = put_lists(in_sync, rows, routes.in_sync[:, changed])
        columns["tick"][rows] = np.arange(self.tick + 1, self.tick + 1 + len(rows))
        self.tick += len(rows)
        if self._removed:
            for partition in self._index.names(rows):
                self._removed.pop(partition, None)

    def _remove_named(self, removed: RemovedRows, epoch: int) -> None:
        """Remove partitions, without those that an earlier message has removed, which this one had been sent before."""
        last = {name: seq for name, seq in _last(removed).items() if seq > self.version.seq}
        names = Names.of(list(last))
        rows = self._index.find([topic.name for topic in names.topics], names.topic, names.partition)
        known = rows != ABSENT
        self._remove(rows[known], [Version(epoch, seq) for seq in np.array([*last.values()], np.int64)[known].tolist()])

    def _remove_missing(self, routes: RouteRows, version: Version) -> None:
        """Remove the partitions that a snapshot does not contain."""
        missing = np.zeros(self._index.capacity, np.bool_)
        missing[self._index.rows] = True
        found = self._index.find(routes.topics, routes.topic, routes.partition)
        missing[found[found != ABSENT]] = False
        rows = np.flatnonzero(missing)
        self._remove(rows, [version] * len(rows))

    def _remove(self, rows: RowNumbers, versions: Sequence[Version]) -> None:
        if not len(rows):
            return
        for name, version in zip(self._index.names(rows), versions, strict=True):
            self.tick += 1
            self._removed[name] = self.tick, version
        self._index.remove(rows)

    def _order(self, before: int) -> None:
        """Number the changes of one message, those after tick `before`, in the order of their versions: a reader that
        resumes after one of them has seen all earlier ones."""
        removed: list[tuple[TopicPartition, Version]] = []
        while self._removed and next(reversed(self._removed.values()))[0] > before:
            name, (_, version) = self._removed.popitem()
            removed.append((name, version))
        if not removed:
            return  # routes come in order
        rows = self._index.rows
        rows = rows[self._columns["tick"][rows] > before]
        of_removed = np.array([version.seq for _, version in removed], np.int64)
        order = np.argsort(np.concatenate((of_removed, self._columns["seq"][rows])), kind="stable")
        ticks = np.empty(len(order), np.int64)
        ticks[order] = np.arange(before + 1, before + 1 + len(order))
        self.tick = before + len(order)
        self._columns["tick"][rows] = ticks[len(removed) :]
        for position in np.argsort(ticks[: len(removed)]).tolist():
            name, version = removed[position]
            self._removed[name] = int(ticks[position]), version

    def _forget_removed(self) -> None:
        while len(self._removed) > self._removed_max:
            _, (self.removed_before, _) = self._removed.popitem(last=False)

    def _grow(self) -> None:
        for name, column in self._columns.items():
            self._columns[name] = grow(column, self._index.capacity, 0)
        self._in_sync = grow(self._in_sync, self._index.capacity, NO_BROKER)

    # -- reading

    def route(self, name: TopicPartition) -> Route | None:
        row = self._index.find_one(name)
        return None if row == ABSENT else self._route(name, row)

    def routes(self, topic: str) -> list[Route]:
        """Returns the routes of a topic, by partition number."""
        rows = self._index.rows_of(topic)
        return [self._route(name, int(row)) for name, row in zip(self._index.names(rows), rows, strict=True)]

    def tick_of(self, after: Version) -> int | None:
        """Returns a tick after which every change is later than a version; None if not all of those are known.

        The removals that one snapshot has shown share a version, whose number is 0, and are all repeated after it.
        """
        if not self.base <= after <= self.version:
            return None
        rows = self._index.rows
        epoch, seq = self._columns["epoch"][rows], self._columns["seq"][rows]
        later = (epoch > after.controller_epoch) | ((epoch == after.controller_epoch) & (seq > after.seq))
        ticks: Longs = self._columns["tick"][rows][later]
        first = int(ticks.min()) if len(ticks) else self.tick + 1
        removed = [
            tick for tick, version in self._removed.values() if version > after or (version == after and not after.seq)
        ]
        tick = min(first, *removed) - 1 if removed else first - 1
        return tick if tick >= self.removed_before else None

    def changes(self, after: int, limit: int) -> list[tuple[int, RouteChange]]:
        """Returns up to `limit` changes after a tick with their ticks, the oldest first."""
        rows = self._index.rows
        ticks = self._columns["tick"][rows]
        rows = rows[ticks > after]
        rows = rows[np.argsort(self._columns["tick"][rows], kind="stable")][:limit]
        found = [
            (int(self._columns["tick"][row]), RouteChange(self._version(int(row)), name, self._route(name, int(row))))
            for name, row in zip(self._index.names(rows), rows, strict=True)
        ]
        for name, (tick, version) in reversed(self._removed.items()):
            if tick <= after:
                break
            found.append((tick, RouteChange(version, name, None)))
        return sorted(found, key=lambda pair: pair[0])[:limit]

    def _version(self, row: int) -> Version:
        return Version(int(self._columns["epoch"][row]), int(self._columns["seq"][row]))

    def _route(self, name: TopicPartition, row: int) -> Route:
        columns = self._columns
        leader = int(columns["leader"][row])
        return Route(
            partition=name,
            leader=None if leader == NO_LEADER else leader,
            endpoint=_endpoint(self._brokers.get(leader)),
            leader_epoch=int(columns["leader_epoch"][row]),
            ready=bool(columns["ready"][row]),
            in_sync=broker_list(self._in_sync, row),
        )


class Cursor:
    """Position of a reader in the changes of a table.

    Args:
        tick: the reader has seen everything up to this one; None if it has seen nothing.
    """

    def __init__(self, table: RouteTable, tick: int | None) -> None:
        self._table = table
        self._tick = -1 if tick is None else tick
        self._whole_from = self._tick  # the removals after this tick concern the reader

    def restarts(self) -> bool:
        """Returns whether the reader has to begin again, because it has missed removals that are not known any more.

        The whole table follows as changes then.
        """
        if max(self._tick, self._whole_from) >= self._table.removed_before and self._tick >= 0:
            return False
        self._tick, self._whole_from = 0, self._table.tick
        return True

    def read(self, limit: int) -> list[RouteChange]:
        """Returns up to `limit` changes that the reader has not seen, the oldest first."""
        changes = self._table.changes(self._tick, limit)
        if changes:
            self._tick = changes[-1][0]
        return [change for _, change in changes]


def _last(removed: RemovedRows) -> dict[TopicPartition, int]:
    """Returns the number of the last removal of each partition: a topic may have been created and removed again."""
    last: dict[TopicPartition, int] = {}
    for topic, partition, seq in zip(removed.topic, removed.partition.tolist(), removed.seq.tolist(), strict=True):
        name = TopicPartition(removed.topics[topic], partition)
        last[name] = max(seq, last.get(name, seq))
    return last


def _endpoint(broker: Broker | None) -> Endpoint | None:
    return broker.endpoints[0] if broker is not None and broker.endpoints else None


def _differ(before: Ints, after: Ints) -> Bools:
    """Returns bool[n]: the lists of int32[W, n] and int32[K, n] that differ, positions included."""
    width = max(len(before), len(after))

    def padded(column: Ints) -> Ints:
        wider = np.full((width, column.shape[1]), NO_BROKER, np.int32)
        wider[: len(column)] = column
        return wider

    differ: Bools = (padded(before) != padded(after)).any(axis=0)
    return differ
