"""Requests to brokers, gathered from changes: one of each type for each broker, unless it grows too large.

A batch is filled during one call of a machine and flushed at its end: first LeaderAndIsr, then UpdateMetadata, then
StopReplica. Adding a partition copies its current state, so apply the change to the table first.

* LeaderAndIsr: for each broker and partition the newest addition is sent, but "is new" stays set once it was set. Every
  addition also adds the partition to the UpdateMetadata of all registered brokers, even if no broker receives a
  LeaderAndIsr for it.
* UpdateMetadata: all recipients of a batch receive all its partitions and the whole list of registered brokers. A
  partition without leadership is skipped. A partition of a topic that is queued for deletion is sent without a leader
  (-2).
* StopReplica: "delete" stays set once it was set. A drained broker receives one after each LeaderAndIsr that makes it
  follow: it must not be a leader any longer, and a follower that fetches is proposed for the ISR again and again.

Only registered brokers receive requests; additions for other brokers are dropped.

Source: the classic controller's AbstractControllerBrokerRequestBatch.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from kactl.decide.messages.control import (
    UNKNOWN_REASON,
    LeaderAndIsr,
    OrderReason,
    PartitionErrors,
    PartitionStates,
    Request,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Ints, RowNumbers, Rows, choose
from kactl.model import LEADER_DURING_DELETE, NO_BROKER, Broker
from kactl.model.errors import IllegalState

from .request_columns import (
    OPTIONAL,
    FanOut,
    LeadershipColumns,
    RequestColumns,
    ascends,
    bounds_of,
    brokers_of,
    by_broker,
    different,
    join,
    joined_optional,
    last_of,
    leadership,
    listed,
    newest,
    order_of,
    padded,
    pairs,
    parts_of,
    registered_only,
)

ReasonOf = Callable[[str], OrderReason | None]


class Addressed(NamedTuple):
    """A request and its recipient."""

    broker: int
    request: Request


class _Lead(NamedTuple):
    """One addition to LeaderAndIsr.

    Attributes:
        notify: bool[W, n], the replicas that receive it.
        is_new: bool[n].
        hold: bool[n], or None if no leader has to wait.
        previous: int32[n], or None if no earlier leader is known.
        reason: int32[n], the number of the reason in the batch, or None if it is 0.
        unbroken: int32[n], as in PartitionStates.
    """

    rows: Rows
    notify: Bools
    is_new: Bools
    hold: Bools | None
    previous: Ints | None = None
    reason: Ints | None = None
    unbroken: Ints | None = None

    @classmethod
    def joined(cls, leads: list["_Lead"]) -> "_Lead | None":
        """Returns several additions as one; None if a row may be in two of them."""
        if len(leads) == 1:
            return leads[0]
        rows = join([lead.rows for lead in leads])
        if not ascends(rows.index):
            return None
        width = len(rows.replicas)
        notify = np.concatenate([padded(lead.notify, width) for lead in leads], axis=1)
        sizes = [len(lead.rows) for lead in leads]
        optional = {name: joined_optional(name, [getattr(lead, name) for lead in leads], sizes) for name in OPTIONAL}
        return cls(rows, notify, np.concatenate([lead.is_new for lead in leads]), **optional)

    def once(self, registered: Iterable[int]) -> tuple[LeadershipColumns, Ints, RowNumbers]:
        """Returns the columns of the rows in table order, and pairs of a registered recipient and a row position.

        The recipients ascend.
        """
        lead = self
        order = order_of(lead.rows.topic, lead.rows.partition)
        if order is not None:
            columns = {name: getattr(lead, name) for name in OPTIONAL}
            optional = {name: None if column is None else column[order] for name, column in columns.items()}
            lead = _Lead(lead.rows.take(order), lead.notify[:, order], lead.is_new[order], **optional)
        brokers, positions = pairs(lead.rows.replicas, lead.notify)
        return lead._columns(), *registered_only(brokers, positions, registered)

    def expanded(self) -> LeadershipColumns:
        """Returns one row for each recipient and partition."""
        return self._columns().for_brokers(*pairs(self.rows.replicas, self.notify))

    def _columns(self) -> LeadershipColumns:
        rows = self.rows
        return leadership(
            rows,
            adding=listed(rows.adding, rows),
            removing=listed(rows.removing, rows),
            recovering=rows.recovering,
            flag=self.is_new,
            **{name: getattr(self, name) for name in OPTIONAL},
        )


class RequestBatch:
    """Collects requests. Each machine has its own batch.

    Args:
        reason: (strategy) -> the reason of what is added now; None if it is not known.
    """

    def __init__(self, cluster: Cluster, reason: ReasonOf = lambda strategy: None) -> None:
        self._cluster = cluster
        self._reason = reason
        self.clear()

    def clear(self) -> None:
        """Drop all additions."""
        self._lead: list[_Lead] = []
        self._reasons: list[OrderReason] = []
        self._stop: list[RequestColumns] = []
        self._metadata: list[tuple[Rows, Bools]] = []
        self._metadata_brokers: set[int] = set()

    def begin(self) -> None:
        """Start a batch.

        Raises:
            IllegalState: the previous batch was not flushed.
        """
        if self._lead or self._stop or self._metadata_brokers:
            leading = brokers_of(lead.expanded() for lead in self._lead)
            raise IllegalState(
                "a request batch was started before the previous one was sent: "
                f"LeaderAndIsr for {leading}, StopReplica for {brokers_of(self._stop)}, "
                f"UpdateMetadata for {sorted(self._metadata_brokers)}"
            )

    # -- filling -------------------------------------------------------------------------------------------------------

    def lead_and_follow(
        self,
        rows: Rows,
        notify: Bools,
        *,
        is_new: bool | Bools = False,
        first: Bools | None = None,
        previous: Ints | None = None,
        strategy: str = "",
    ) -> None:
        """Add LeaderAndIsr for `rows` to the replicas `notify`, bool[W, n], and UpdateMetadata to all brokers.

        Args:
            first: bool[n], partitions that never had a leader before; their leaders wait for no other broker.
            previous: int32[n], the leaders before; None if they are not known.
            strategy: of the election that chose the leaders.
        """
        if not len(rows):
            return
        cluster = self._cluster
        holds = cluster.holds
        # The columns are made on first use.
        hold = holds.held(cluster.table.hold_columns(), rows.index, rows.leader) if holds.is_used else None
        if hold is not None and first is not None:
            hold &= ~first
        reason = unbroken = None
        if holds.participants:
            reason = self._reason_column(self._reason(strategy), len(rows))
            unbroken = holds.unbroken(cluster.table.hold_columns(), rows.index, rows.leader_epoch)
        else:
            previous = None  # Kafka's brokers need none of them
        is_new = np.broadcast_to(np.asarray(is_new, np.bool_), (len(rows),))
        self._lead.append(_Lead(rows, notify, is_new, hold, previous, reason, unbroken))
        if cluster.drained:
            follows = notify & np.isin(rows.replicas, list(cluster.drained)) & (rows.replicas != rows.leader)
            self.stop(rows, follows, delete=False)
        self.update_metadata(self._cluster.brokers, rows)

    def _reason_column(self, reason: OrderReason | None, count: int) -> Ints | None:
        """Returns the number of a reason in the batch, for each of some rows; None if it is 0."""
        if reason is None:
            reason = UNKNOWN_REASON
        if reason not in self._reasons:
            self._reasons.append(reason)
        number = self._reasons.index(reason)
        return np.full(count, number, np.int32) if number else None

    def stop(self, rows: Rows, which: Bools, *, delete: bool) -> None:
        """Add StopReplica for the replicas `which`, bool[W, n], of `rows`."""
        brokers, positions = registered_only(*pairs(rows.replicas, which), self._cluster.brokers)
        if len(brokers):
            columns = RequestColumns(
                row=rows.index,
                topic=rows.topic,
                partition=rows.partition,
                leader_epoch=self._cluster.stop_replica_epoch(rows),
                flag=np.full(len(rows), delete),
            )
            self._stop.append(columns.for_brokers(brokers, positions))

    def update_metadata(self, brokers: Iterable[int], rows: Rows | None = None) -> None:
        """Add UpdateMetadata to `brokers`. They receive a request even if there are no rows."""
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
        """Returns the requests in the order in which they must be sent, and empties the batch."""
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
            columns, brokers, positions = lead.once(registered)
        else:
            columns = newest([addition.expanded() for addition in self._lead])
            brokers, positions = registered_only(columns.brokers, np.arange(len(columns.row)), registered)
        if not len(brokers):
            return
        bounds = bounds_of(brokers)
        fan_out = FanOut(
            self._states(
                columns,
                adding=columns.adding,
                removing=columns.removing,
                is_new=columns.flag,
                recovering=columns.recovering,
                **{name: getattr(columns, name) for name in OPTIONAL},
            ),
            positions,
            bounds,
        )
        leaders, reasons = columns.leader, tuple(self._reasons)
        for broker, begin, end, states in zip(
            brokers[bounds[:-1]].tolist(), bounds[:-1], bounds[1:], fan_out.parts(), strict=True
        ):
            request = LeaderAndIsr(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                states=states,
                live_leaders=self._live_leaders(leaders[positions[begin:end]]),
                reasons=reasons,
            )
            yield Addressed(broker, request)

    def _live_leaders(self, leaders: Ints) -> tuple[Broker, ...]:
        """Returns the registered ones of these brokers, by id."""
        registered = self._cluster.brokers
        return tuple(registered[leader] for leader in different(leaders) if leader in registered)

    def _update_metadata(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        recipients = sorted(self._metadata_brokers & registered.keys())
        if not recipients:
            return
        parts = self._metadata_states()
        live_brokers = self._listed(registered)
        for broker in recipients:
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
        """Returns the brokers in UpdateMetadata, by id: the registered ones, and this controller if it is listed."""
        own_entry = self._cluster.listed_as
        if own_entry is None or own_entry.id in registered:
            return tuple(registered.values())
        return tuple(broker for _, broker in sorted({**registered, own_entry.id: own_entry}.items()))

    def _metadata_states(self) -> list[PartitionStates]:
        """Returns the partitions of the batch, the same for all recipients, in as many parts as they need."""
        if not self._metadata:
            return [self._states(leadership(self._cluster.table.rows(np.zeros(0, np.intp))))]
        rows, offline = self._metadata[0]
        if len(self._metadata) > 1:
            rows = join([part for part, _ in self._metadata])
            offline = np.concatenate([padded(mask, len(rows.replicas)) for _, mask in self._metadata], axis=1)
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
        columns = leadership(rows, offline=listed(offline, rows))
        parts = [columns.take(part) for part in parts_of(0, len(rows))]
        return [self._states(part, offline_replicas=part.offline) for part in parts]

    def _stop_replica(self, registered: dict[int, Broker]) -> Iterable[Addressed]:
        for broker, columns in by_broker(self._stop, registered):
            refs, topic = self._cluster.table.topics_of(columns.topic)
            assert columns.flag is not None
            request = StopReplica(
                controller_id=self._cluster.controller_id,
                controller_epoch=self._cluster.fence.epoch,
                broker_epoch=registered[broker].epoch,
                topics=refs,
                topic=topic,
                partition=columns.partition,
                leader_epoch=columns.leader_epoch,
                delete=columns.flag,
            )
            yield Addressed(broker, request)

    def _states(self, columns: LeadershipColumns, **extra: Any) -> PartitionStates:
        """Returns the columns that LeaderAndIsr and UpdateMetadata have in common, and others by name."""
        refs, topic = self._cluster.table.topics_of(columns.topic)
        return PartitionStates(
            topics=refs,
            topic=topic,
            partition=columns.partition,
            controller_epoch=columns.controller_epoch,
            leader=columns.leader,
            leader_epoch=columns.leader_epoch,
            isr=columns.isr,
            partition_epoch=columns.partition_epoch,
            replicas=columns.replicas,
            **extra,
        )


def deletion_answers(request: StopReplica, response: StopReplicaResponse, cluster: Cluster) -> PartitionErrors:
    """Returns the results of the deletions that `request` demanded, for topics whose deletion has started.

    The result is empty if there are none. A StopReplica for another reason does not need its response. With
    participants, those for topics that are only queued are returned as well: a deletion waits for earlier leaders.

    Source: AbstractControllerBrokerRequestBatch.handleStopReplicaResponse.
    """
    awaited = cluster.topics_to_delete if cluster.holds.is_used else cluster.deletion_started
    numbers = {topic.name: index for index, topic in enumerate(request.topics) if topic.name in awaited}
    errors = response.partitions
    topic = np.array([numbers.get(name, -1) for name in errors.topics], np.int64)[errors.topic]
    requested = request.topic[request.delete].astype(np.int64) << 32 | request.partition[request.delete]
    which = np.isin(topic << 32 | errors.partition, requested) & (topic >= 0)
    return PartitionErrors(errors.topics, errors.topic[which], errors.partition[which], errors.error[which])
