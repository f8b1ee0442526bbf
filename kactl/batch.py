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
from collections.abc import Iterable
from typing import Any, NamedTuple

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


@dataclasses.dataclass(frozen=True, slots=True)
class _Share:
    """What one addition says to one broker: some rows of it."""

    rows: Rows
    which: RowNumbers
    flag: Bools  # is new, or delete; by row of the share
    epoch: Ints | None = None  # of a StopReplica


class RequestBatch:
    """See the module. One batch belongs to one machine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.clear()

    def clear(self) -> None:
        """Drop everything that was gathered."""
        self._lead: dict[int, list[_Share]] = {}
        self._stop: dict[int, list[_Share]] = {}
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
                f"LeaderAndIsr for {sorted(self._lead)}, StopReplica for {sorted(self._stop)}, "
                f"UpdateMetadata for {sorted(self._metadata_brokers)}"
            )

    # -- filling -------------------------------------------------------------------------------------------------------

    def lead_and_follow(self, rows: Rows, notify: Bools, *, is_new: bool | Bools = False) -> None:
        """LeaderAndIsr for `rows`, as they are now, to the replicas `notify`, bool[W, n]; and UpdateMetadata to all."""
        if not len(rows):
            return
        flags = np.broadcast_to(np.asarray(is_new, np.bool_), (len(rows),))
        for broker, which in _by_broker(rows.replicas, notify):
            self._lead.setdefault(broker, []).append(_Share(rows, which, flags[which]))
        self.update_metadata(self._cluster.brokers, rows)

    def stop(self, rows: Rows, which: Bools, *, delete: bool) -> None:
        """StopReplica for the replicas `which`, bool[W, n], of `rows`."""
        epoch = self._cluster.stop_replica_epoch(rows)
        for broker, mine in _by_broker(rows.replicas, which):
            share = _Share(rows, mine, np.full(len(mine), delete), epoch[mine])
            self._stop.setdefault(broker, []).append(share)

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
        for broker, shares in sorted(self._lead.items()):
            if broker not in registered:
                continue
            rows, is_new = _newest(shares)
            rows, is_new = _grouped(rows, is_new)
            leaders = np.unique(rows.leader).tolist()
            request = LeaderAndIsr(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                states=dataclasses.replace(
                    self._states(rows),
                    adding=_listed(rows.adding, rows),
                    removing=_listed(rows.removing, rows),
                    is_new=is_new,
                    recovering=rows.recovering,
                ),
                live_leaders=tuple(registered[leader] for leader in leaders if leader in registered),
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
            return self._states(self._cluster.table.rows(np.zeros(0, np.intp)))
        rows, offline = self._metadata[0]
        if len(self._metadata) > 1:
            rows = _join([each for each, _ in self._metadata])
            offline = np.concatenate([_tall(each, len(rows.replicas)) for _, each in self._metadata], axis=1)
            last = _last_of(rows.at)
            rows, offline = rows.take(last), offline[:, last]
        order = _order(rows)
        if order is not None:
            rows, offline = rows.take(order), offline[:, order]
        queued = rows.queued
        if queued.any():
            rows = rows.replace(
                leader=choose(queued, np.int32(LEADER_DURING_DELETE), rows.leader),
                leader_epoch=choose(queued, np.int32(0), rows.leader_epoch),
                partition_epoch=choose(queued, np.int32(0), rows.partition_epoch),
            )
        return dataclasses.replace(
            self._states(rows), offline_replicas=members(offline, rows.replicas) if offline.any() else None
        )

    def _stop_replica(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        for broker, shares in sorted(self._stop.items()):
            if broker not in registered:
                continue
            rows, delete = _newest(shares)
            epoch = np.concatenate([share.epoch for share in shares if share.epoch is not None])
            if len(shares) > 1:
                epoch = epoch[_last_of(np.concatenate([share.rows.at[share.which] for share in shares]))]
            rows, delete, epoch = _grouped(rows, delete, epoch)
            refs, topic = self._cluster.table.topics_of(rows.topic)
            request = StopReplica(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                topics=refs,
                topic=topic,
                partition=rows.partition,
                leader_epoch=epoch,
                delete=delete,
            )
            yield Addressed(broker, request)

    def _states(self, rows: Rows) -> PartitionStates:
        refs, topic = self._cluster.table.topics_of(rows.topic)
        return PartitionStates(
            topics=refs,
            topic=topic,
            partition=rows.partition,
            controller_epoch=rows.controller_epoch,
            leader=rows.leader,
            leader_epoch=rows.leader_epoch,
            isr=members(rows.in_sync, rows.replicas),
            partition_epoch=rows.partition_epoch,
            replicas=members(rows.assigned, rows.replicas),
        )


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


def _by_broker(brokers: Ints, which: Bools) -> Iterable[tuple[int, RowNumbers]]:
    """For each broker among the slots `which`, the positions of its rows, ascending."""
    slots, positions = np.nonzero(which)
    named = brokers[slots, positions]
    if not len(named):
        return
    top = int(named.max())
    # Sixteen bits are sorted by radix, several times faster than by comparison.
    keys = named.astype(np.uint16) if named.min() >= 0 and top < 1 << 16 else named
    # Positions ascend within a slot only; sorting by position first keeps each broker's rows in table order.
    order = np.argsort(keys, kind="stable")
    sorted_names = named[order]
    bounds = np.flatnonzero(np.diff(sorted_names)) + 1
    for part in np.split(order, bounds):
        broker = int(named[part[0]])
        if broker != NO_BROKER:
            yield broker, np.sort(positions[part])


def _newest(shares: list[_Share]) -> tuple[Rows, Bools]:
    """One row for each partition: the newest, with a flag that stays once it was set. In the order of `_last_of`."""
    if len(shares) == 1:
        (share,) = shares
        return share.rows.take(share.which), share.flag
    rows = _join([share.rows.take(share.which) for share in shares])
    flags = np.concatenate([share.flag for share in shares])
    last = _last_of(rows.at)
    _, inverse = np.unique(rows.at, return_inverse=True)
    ever = np.zeros(len(last), np.bool_)
    np.logical_or.at(ever, inverse, flags)
    return rows.take(last), ever[inverse[last]]


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


def _order(rows: Rows) -> RowNumbers | None:
    """The order by topic and partition; None if they stand in it already."""
    step = np.diff(rows.topic)
    if (step > 0).all() or ((step >= 0).all() and (np.diff(rows.partition)[step == 0] > 0).all()):
        return None
    return np.lexsort((rows.partition, rows.topic))


def _grouped(rows: Rows, *columns: Any) -> Any:
    order = _order(rows)
    if order is None:
        return rows, *columns
    return rows.take(order), *(column[order] for column in columns)


def _listed(which: Bools, rows: Rows) -> Ints | None:
    return members(which, rows.replicas) if which.any() else None
