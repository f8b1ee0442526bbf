"""Requests to brokers, gathered from changes: at the most one of each kind for each broker.

A batch is filled while one call of a machine goes on, and flushed at its end: first LeaderAndIsr, then UpdateMetadata,
then StopReplica. What is said of a partition is taken when it is added, so change the table first.

* LeaderAndIsr: for each broker and partition the newest word wins, but "is new" stays once it was said. Every addition
  also adds the partition to the UpdateMetadata of all registered brokers, even if nobody is told by LeaderAndIsr.
* UpdateMetadata: all brokers of a batch get all partitions of it, and the whole list of registered brokers. A
  partition without leadership is passed over; one of a topic that waits for deletion is said to be without leader (-2).
* StopReplica: "delete" stays once it was said.

Only registered brokers are sent anything; what was gathered for others is dropped.

Source: the classic controller's AbstractControllerBrokerRequestBatch.
"""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.cluster import Cluster
from kactl.errors import IllegalState
from kactl.model import LEADER_DURING_DELETE, NO_BROKER, Broker
from kactl.rows import Bools, Ints, RowNumbers, Rows, choose, members
from kactl.wire import (
    LeaderAndIsr,
    PartitionErrors,
    PartitionStates,
    Request,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)


class Addressed(NamedTuple):
    """A request and the broker that is to get it."""

    broker: int
    request: Request


class RequestBatch:
    """See the module. One batch belongs to one machine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.clear()

    def clear(self) -> None:
        """Drop everything that was gathered."""
        self._lead: list[_Said] = []
        self._stop: list[_Said] = []
        self._metadata: list[tuple[Rows, Bools]] = []
        self._metadata_brokers: set[int] = set()

    def begin(self) -> None:
        """Begin to fill.

        Raises:
            IllegalState: something was gathered and never flushed.
        """
        if self._lead or self._stop or self._metadata_brokers:
            raise IllegalState(
                "a batch of requests was begun while the one before was not sent: "
                f"LeaderAndIsr for {_brokers_of(self._lead)}, StopReplica for {_brokers_of(self._stop)}, "
                f"UpdateMetadata for {sorted(self._metadata_brokers)}"
            )

    # -- filling -------------------------------------------------------------------------------------------------------

    def lead_and_follow(self, rows: Rows, notify: Bools, *, is_new: bool | Bools = False) -> None:
        """LeaderAndIsr for `rows`, as they are now, to the replicas `notify`, bool[W, n]; and UpdateMetadata to all."""
        if not len(rows):
            return
        flags = np.broadcast_to(np.asarray(is_new, np.bool_), (len(rows),))
        brokers, positions = _pairs(rows.replicas, notify)
        if len(brokers):
            columns = {
                **_leadership(rows),
                "adding": _listed(rows.adding, rows),
                "removing": _listed(rows.removing, rows),
                "recovering": rows.recovering,
                "flag": flags,
            }
            self._lead.append(_taken(columns, brokers, positions))
        self.update_metadata(self._cluster.brokers, rows)

    def stop(self, rows: Rows, which: Bools, *, delete: bool) -> None:
        """StopReplica for the replicas `which`, bool[W, n], of `rows`."""
        brokers, positions = _pairs(rows.replicas, which)
        if len(brokers):
            columns = {
                "at": rows.at,
                "topic": rows.topic,
                "partition": rows.partition,
                "leader_epoch": self._cluster.stop_replica_epoch(rows),
                "flag": np.full(len(rows), delete),
            }
            self._stop.append(_taken(columns, brokers, positions))

    def update_metadata(self, brokers: Iterable[int], rows: Rows | None = None) -> None:
        """UpdateMetadata to `brokers`; they get one even if there are no rows to speak of."""
        self._metadata_brokers.update(broker for broker in brokers if broker != NO_BROKER)
        if rows is None or not len(rows):
            return
        known = rows.has_leadership
        if not known.all():
            rows = rows.take(known)
        offline = rows.assigned & ~rows.online(self._cluster.now.live)
        self._metadata.append((rows, offline))

    # -- sending -------------------------------------------------------------------------------------------------------

    def flush(self) -> list[Addressed]:
        """The requests in the order in which they are to be sent; the batch is empty afterwards."""
        registered = self._cluster.brokers
        requests = [
            *self._leader_and_isr(registered),
            *self._update_metadata(registered),
            *self._stop_replica(registered),
        ]
        self.clear()
        return requests

    def _leader_and_isr(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        for broker, said in _by_broker(self._lead, registered):
            request = LeaderAndIsr(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                states=self._states(
                    said,
                    adding=said["adding"],
                    removing=said["removing"],
                    is_new=said["flag"],
                    recovering=said["recovering"],
                ),
                live_leaders=tuple(
                    registered[leader] for leader in np.unique(said["leader"]).tolist() if leader in registered
                ),
            )
            yield Addressed(broker, request)

    def _update_metadata(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        told = sorted(self._metadata_brokers & registered.keys())
        if not told:
            return
        states = self._metadata_states()
        live_brokers = tuple(registered.values())
        for broker in told:
            request = UpdateMetadata(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                states=states,
                live_brokers=live_brokers,
            )
            yield Addressed(broker, request)

    def _metadata_states(self) -> PartitionStates:
        """The partitions of the batch, once for all brokers."""
        if not self._metadata:
            return self._states(_leadership(self._cluster.table.rows(np.zeros(0, np.intp))))
        rows, offline = self._metadata[0]
        if len(self._metadata) > 1:
            rows = _join([each for each, _ in self._metadata])
            offline = np.concatenate([_tall(each, len(rows.replicas)) for _, each in self._metadata], axis=1)
            last = _last_of(rows.at)
            rows, offline = rows.take(last), offline[:, last]
        order = _order(rows.topic, rows.partition)
        if order is not None:
            rows, offline = rows.take(order), offline[:, order]
        queued = rows.queued
        if queued.any():
            rows = rows.replace(
                leader=choose(queued, np.int32(LEADER_DURING_DELETE), rows.leader),
                leader_epoch=choose(queued, np.int32(0), rows.leader_epoch),
                partition_epoch=choose(queued, np.int32(0), rows.partition_epoch),
            )
        offline_replicas = members(offline, rows.replicas) if offline.any() else None
        return self._states(_leadership(rows), offline_replicas=offline_replicas)

    def _stop_replica(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        for broker, said in _by_broker(self._stop, registered):
            refs, topic = self._cluster.table.topics_of(said["topic"])
            request = StopReplica(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                topics=refs,
                topic=topic,
                partition=said["partition"],
                leader_epoch=said["leader_epoch"],
                delete=said["flag"],
            )
            yield Addressed(broker, request)

    def _states(self, said: "_Said", **columns: Any) -> PartitionStates:
        refs, topic = self._cluster.table.topics_of(said["topic"])
        named = {name: said[name] for name in _LEADERSHIP_ON_THE_WIRE}
        return PartitionStates(topics=refs, topic=topic, **named, **columns)


def deletion_answers(request: StopReplica, response: StopReplicaResponse, cluster: Cluster) -> PartitionErrors:
    """What an answer says of deletions: of what `request` asked to delete, in topics whose deletion has begun.

    Empty where nothing is left; whoever stops replicas for another reason does not wait for an answer.

    Source: AbstractControllerBrokerRequestBatch.handleStopReplicaResponse.
    """
    named = zip(request.topic[request.delete].tolist(), request.partition[request.delete].tolist(), strict=True)
    asked = {(request.topics[topic].name, partition) for topic, partition in named}
    errors = response.partitions
    answered = zip((errors.topics[topic] for topic in errors.topic.tolist()), errors.partition.tolist(), strict=True)
    which = np.array([name in asked and name[0] in cluster.deletion_started for name in answered], np.bool_)
    return PartitionErrors(errors.topics, errors.topic[which], errors.partition[which], errors.error[which])


# What is said to brokers, as columns by name; one row for each broker and partition. `broker` ascends, and what is said
# to one broker stands in table order. Lists of brokers are int32[W, m], or None where all are empty.
_Said = dict[str, Any]

_LEADERSHIP_ON_THE_WIRE: Final = (
    "partition",
    "controller_epoch",
    "leader",
    "leader_epoch",
    "isr",
    "partition_epoch",
    "replicas",
)


def _leadership(rows: Rows) -> _Said:
    """What every broker may hear of a partition."""
    return {
        "at": rows.at,
        "topic": rows.topic,
        "partition": rows.partition,
        "controller_epoch": rows.controller_epoch,
        "leader": rows.leader,
        "leader_epoch": rows.leader_epoch,
        "isr": members(rows.in_sync, rows.replicas),
        "partition_epoch": rows.partition_epoch,
        "replicas": members(rows.assigned, rows.replicas),
    }


def _pairs(brokers: Ints, which: Bools) -> tuple[Ints, RowNumbers]:
    """The brokers in the slots `which`, ascending, and the position of the row of each; positions ascend for each."""
    positions, slots = np.nonzero(which.T)
    named = brokers[slots, positions]
    if (named == NO_BROKER).any():
        positions, named = positions[named != NO_BROKER], named[named != NO_BROKER]
    # Sixteen bits are sorted by radix, several times faster than by comparison.
    keys = named.astype(np.uint16) if not len(named) or named.max() < 1 << 16 else named
    order = np.argsort(keys, kind="stable")
    return named[order], positions[order]


def _taken(columns: _Said, brokers: Ints, positions: RowNumbers) -> _Said:
    taken = {name: None if column is None else column[..., positions] for name, column in columns.items()}
    return {"broker": brokers, **taken}


def _brokers_of(said: list[_Said]) -> list[int]:
    return sorted({broker for each in said for broker in np.unique(each["broker"]).tolist()})


def _by_broker(additions: list[_Said], registered: dict[int, Broker]) -> Iterable[tuple[int, _Said]]:
    """What is said to each registered broker, by id: the newest word on each partition, in table order.

    A flag stays once it was set.
    """
    if not additions:
        return
    said = additions[0]
    if len(additions) > 1:
        said = _joined(additions)
        key = said["broker"].astype(np.int64) << 40 | said["at"]
        last = _last_of(key)
        if len(last) < len(key):
            _, mentioned = np.unique(key, return_inverse=True)
            ever = np.zeros(len(last), np.bool_)
            np.logical_or.at(ever, mentioned, said["flag"])
            said = _picked(said, last) | {"flag": ever}
    order = _order(said["broker"].astype(np.int64) << 32 | said["topic"], said["partition"])
    if order is not None:
        said = _picked(said, order)
    brokers = said["broker"]
    bounds = [0, *(np.flatnonzero(np.diff(brokers)) + 1).tolist(), len(brokers)]
    for begin, end in itertools.pairwise(bounds):
        broker = int(brokers[begin])
        if broker in registered:
            yield broker, _picked(said, slice(begin, end))


def _picked(said: _Said, which: Any) -> _Said:
    return {name: None if column is None else column[..., which] for name, column in said.items()}


def _joined(additions: list[_Said]) -> _Said:
    """Additions one behind the other; narrower lists are filled up."""
    columns: _Said = {}
    for name in additions[0]:
        values = [each[name] for each in additions]
        if all(value is None for value in values):
            columns[name] = None
            continue
        if name in _LISTS:
            width = max(len(value) for value in values if value is not None)
            values = [
                np.full((width, len(each["at"])), NO_BROKER, np.int32)
                if value is None
                else _tall(value, width, NO_BROKER)
                for value, each in zip(values, additions, strict=True)
            ]
        columns[name] = np.concatenate(values, axis=-1)
    return columns


_LISTS: Final = frozenset({"isr", "replicas", "adding", "removing"})


def _last_of(at: RowNumbers) -> RowNumbers:
    """The positions of the last mention of each row, in the order of the rows."""
    _, from_behind = np.unique(at[::-1], return_index=True)
    return len(at) - 1 - from_behind


def _join(parts: list[Rows]) -> Rows:
    """Rows one behind the other; the slots of narrower ones are filled up."""
    if len(parts) == 1:
        return parts[0]
    width = max(len(part.replicas) for part in parts)
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(Rows):
        values = [getattr(part, field.name) for part in parts]
        if values[0].ndim == 2:
            empty = NO_BROKER if field.name == "replicas" else 0
            values = [_tall(value, width, empty) for value in values]
        columns[field.name] = np.concatenate(values, axis=-1)
    return Rows(**columns)


def _tall(column: Any, width: int, empty: int = 0) -> Any:
    missing = width - len(column)
    return np.pad(column, ((0, missing), (0, 0)), constant_values=empty) if missing else column


def _order(topic: Any, partition: Ints) -> RowNumbers | None:
    """The order by topic and partition; None if they stand in it already."""
    step = np.diff(topic)
    if (step > 0).all() or ((step >= 0).all() and (np.diff(partition)[step == 0] > 0).all()):
        return None
    return np.lexsort((partition, topic))


def _listed(which: Bools, rows: Rows) -> Ints | None:
    return members(which, rows.replicas) if which.any() else None
