"""Requests to brokers, gathered from changes: one of each kind for each broker, as long as it does not grow too large.

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

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kactl.errors import IllegalState
from kactl.messages.control import (
    LeaderAndIsr,
    PartitionErrors,
    PartitionStates,
    Request,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)
from kactl.model import LEADER_DURING_DELETE, NO_BROKER, Broker
from kactl.state.cluster import Cluster
from kactl.state.rows import Bools, Ints, RowNumbers, Rows, choose, members

from .fan_out import FanOut
from .request_columns import (
    LEADERSHIP_ON_THE_WIRE,
    RequestColumns,
    ascends,
    bounds_of,
    brokers_of,
    by_broker,
    different,
    join,
    last_of,
    leadership,
    listed,
    newest,
    order_of,
    pairs,
    parts_of,
    picked,
    registered_only,
    taken,
    tall,
)


class Addressed(NamedTuple):
    """A request and the broker that is to get it."""

    broker: int
    request: Request


class _Lead(NamedTuple):
    """One addition to LeaderAndIsr: the replicas `notify`, bool[W, n], of `rows`; `is_new` for each row."""

    rows: Rows
    notify: Bools
    is_new: Bools

    @classmethod
    def joined(cls, leads: list["_Lead"]) -> "_Lead | None":
        """Several as one; None if a row may be in two of them."""
        if len(leads) == 1:
            return leads[0]
        rows = join([lead.rows for lead in leads])
        if not ascends(rows.index):
            return None
        width = len(rows.replicas)
        notify = np.concatenate([tall(lead.notify, width) for lead in leads], axis=1)
        return cls(rows, notify, np.concatenate([lead.is_new for lead in leads]))

    def once(self, registered: Iterable[int]) -> tuple[RequestColumns, Ints, RowNumbers]:
        """What is said of each row, in table order; the registered brokers that are told, ascending, and of which row
        each."""
        lead = self
        order = order_of(lead.rows.topic, lead.rows.partition)
        if order is not None:
            lead = _Lead(lead.rows.take(order), lead.notify[:, order], lead.is_new[order])
        brokers, positions = pairs(lead.rows.replicas, lead.notify)
        return lead._columns(), *registered_only(brokers, positions, registered)

    def said(self) -> RequestColumns:
        """One row for each broker and row."""
        return taken(self._columns(), *pairs(self.rows.replicas, self.notify))

    def _columns(self) -> RequestColumns:
        rows = self.rows
        return {
            **leadership(rows),
            "adding": listed(rows.adding, rows),
            "removing": listed(rows.removing, rows),
            "recovering": rows.recovering,
            "flag": self.is_new,
        }


class RequestBatch:
    """See the module. One batch belongs to one machine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.clear()

    def clear(self) -> None:
        """Drop everything that was gathered."""
        self._lead: list[_Lead] = []
        self._stop: list[RequestColumns] = []
        self._metadata: list[tuple[Rows, Bools]] = []
        self._metadata_brokers: set[int] = set()

    def begin(self) -> None:
        """Begin to fill.

        Raises:
            IllegalState: something was gathered and never flushed.
        """
        if self._lead or self._stop or self._metadata_brokers:
            leading = brokers_of([lead.said() for lead in self._lead])
            raise IllegalState(
                "a batch of requests was begun while the one before was not sent: "
                f"LeaderAndIsr for {leading}, StopReplica for {brokers_of(self._stop)}, "
                f"UpdateMetadata for {sorted(self._metadata_brokers)}"
            )

    # -- filling -------------------------------------------------------------------------------------------------------

    def lead_and_follow(self, rows: Rows, notify: Bools, *, is_new: bool | Bools = False) -> None:
        """LeaderAndIsr for `rows`, as they are now, to the replicas `notify`, bool[W, n]; and UpdateMetadata to all."""
        if not len(rows):
            return
        self._lead.append(_Lead(rows, notify, np.broadcast_to(np.asarray(is_new, np.bool_), (len(rows),))))
        self.update_metadata(self._cluster.brokers, rows)

    def stop(self, rows: Rows, which: Bools, *, delete: bool) -> None:
        """StopReplica for the replicas `which`, bool[W, n], of `rows`."""
        brokers, positions = registered_only(*pairs(rows.replicas, which), self._cluster.brokers)
        if len(brokers):
            columns = {
                "at": rows.index,
                "topic": rows.topic,
                "partition": rows.partition,
                "leader_epoch": self._cluster.stop_replica_epoch(rows),
                "flag": np.full(len(rows), delete),
            }
            self._stop.append(taken(columns, brokers, positions))

    def update_metadata(self, brokers: Iterable[int], rows: Rows | None = None) -> None:
        """UpdateMetadata to `brokers`; they get one even if there are no rows to speak of."""
        self._metadata_brokers.update(broker for broker in brokers if broker != NO_BROKER)
        if rows is None or not len(rows):
            return
        known = rows.has_leadership
        if not known.all():
            rows = rows.take(known)
        offline = rows.assigned & ~rows.online(self._cluster.live_brokers.live)
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
        if not self._lead:
            return
        lead = _Lead.joined(self._lead)
        if lead is not None:
            said, brokers, positions = lead.once(registered)
        else:
            said = newest([each.said() for each in self._lead])
            brokers, positions = registered_only(said["broker"], np.arange(len(said["broker"])), registered)
        if not len(brokers):
            return
        bounds = bounds_of(brokers)
        told = FanOut(
            self._states(
                said,
                adding=said["adding"],
                removing=said["removing"],
                is_new=said["flag"],
                recovering=said["recovering"],
            ),
            positions,
            bounds,
        )
        leaders = said["leader"]
        for broker, begin, end, states in zip(
            brokers[bounds[:-1]].tolist(), bounds[:-1], bounds[1:], told.parts(), strict=True
        ):
            request = LeaderAndIsr(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                states=states,
                live_leaders=self._live_leaders(leaders[positions[begin:end]]),
            )
            yield Addressed(broker, request)

    def _live_leaders(self, leaders: Ints) -> tuple[Broker, ...]:
        """The registered ones of these, by id."""
        registered = self._cluster.brokers
        return tuple(registered[leader] for leader in different(leaders) if leader in registered)

    def _update_metadata(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        told = sorted(self._metadata_brokers & registered.keys())
        if not told:
            return
        parts = self._metadata_states()
        live_brokers = self._listed(registered)
        for broker in told:
            for states in parts:
                request = UpdateMetadata(
                    controller_id=self._cluster.controller_id,
                    controller_epoch=self._cluster.fence.epoch,
                    broker_epoch=registered[broker].epoch,
                    states=states,
                    live_brokers=live_brokers,
                )
                yield Addressed(broker, request)

    def _listed(self, registered: dict[int, Broker]) -> tuple[Broker, ...]:
        """The brokers that are told of, by id: the registered ones, and ourselves if we are to be found among them."""
        ours = self._cluster.listed_as
        if ours is None or ours.id in registered:
            return tuple(registered.values())
        return tuple(broker for _, broker in sorted({**registered, ours.id: ours}.items()))

    def _metadata_states(self) -> list[PartitionStates]:
        """The partitions of the batch, once for all brokers, in as many parts as they need."""
        if not self._metadata:
            return [self._states(leadership(self._cluster.table.rows(np.zeros(0, np.intp))))]
        rows, offline = self._metadata[0]
        if len(self._metadata) > 1:
            rows = join([each for each, _ in self._metadata])
            offline = np.concatenate([tall(each, len(rows.replicas)) for _, each in self._metadata], axis=1)
            if not ascends(rows.index):
                last = last_of(rows.index)
                rows, offline = rows.take(last), offline[:, last]
        order = order_of(rows.topic, rows.partition)
        if order is not None:
            rows, offline = rows.take(order), offline[:, order]
        queued = rows.queued
        if queued.any():
            rows = rows.replace(
                leader=choose(queued, np.int32(LEADER_DURING_DELETE), rows.leader),
                leader_epoch=choose(queued, np.int32(0), rows.leader_epoch),
                partition_epoch=choose(queued, np.int32(0), rows.partition_epoch),
            )
        said = leadership(rows) | {"offline": members(offline, rows.replicas) if offline.any() else None}
        parts = [picked(said, part) for part in parts_of(0, len(rows))]
        return [self._states(part, offline_replicas=part["offline"]) for part in parts]

    def _stop_replica(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        for broker, said in by_broker(self._stop, registered):
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

    def _states(self, said: "RequestColumns", **columns: Any) -> PartitionStates:
        refs, topic = self._cluster.table.topics_of(said["topic"])
        named = {name: said[name] for name in LEADERSHIP_ON_THE_WIRE}
        return PartitionStates(topics=refs, topic=topic, **named, **columns)


def deletion_answers(request: StopReplica, response: StopReplicaResponse, cluster: Cluster) -> PartitionErrors:
    """What an answer says of deletions: of what `request` asked to delete, in topics whose deletion has begun.

    Empty where nothing is left; whoever stops replicas for another reason does not wait for an answer.

    Source: AbstractControllerBrokerRequestBatch.handleStopReplicaResponse.
    """
    numbers = {topic.name: at for at, topic in enumerate(request.topics) if topic.name in cluster.deletion_started}
    errors = response.partitions
    topic = np.array([numbers.get(name, -1) for name in errors.topics], np.int64)[errors.topic]
    asked = request.topic[request.delete].astype(np.int64) << 32 | request.partition[request.delete]
    which = np.isin(topic << 32 | errors.partition, asked) & (topic >= 0)
    return PartitionErrors(errors.topics, errors.topic[which], errors.partition[which], errors.error[which])
