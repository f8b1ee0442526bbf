"""The cluster state of the active controller.

It holds the partition table, the brokers, topics that are queued for deletion, reassignments in progress, the
controller epoch, and two counters that follow every change. The controller owns it and lends it to one machine at a
time. A change is applied only after the store has committed it.

Source: the classic controller's ControllerContext. Unlike there, removing a topic removes everything that belongs to
it: states, a reassignment in progress, and deletion blockers.
"""

import collections
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.model import (
    EPOCH_DURING_DELETE,
    NO_BROKER,
    ZERO_ID,
    Assignment,
    Broker,
    Features,
    Fence,
    Maintenance,
    PartitionState,
    PartitionView,
    ReplicaState,
    ReplicaStatus,
    TopicPartition,
    TopicRef,
)
from kactl.model.errors import IllegalState

from .change import Change
from .deletion_blockers import DeletionBlocker
from .holds import Holds
from .readiness import Readiness
from .records import Assignments, Leaderships, Names
from .replica_reports import ReplicaReport, ReplicaReports
from .rows import Bools, BrokerSet, Ints, LiveBrokers, RowNumbers, Rows, choose, common, preferred_imbalance
from .table import NO_ROW, Table, altered_columns

NOT_ACTIVE: Final = Fence(epoch=0, version=0)
# Completed reassignments that are kept by name, for an operator who has just applied a plan.
LAST_MOVES_MAX: Final = 100


class CompletedMove(NamedTuple):
    """A completed reassignment. `time_ms`: wall clock."""

    name: TopicPartition
    time_ms: int


class AwaitedTopic(NamedTuple):
    """A topic that a remote caller waits for, which repeats its request.

    Attributes:
        until_ms: monotonic time after which the caller is taken to be gone.
        epochs: of the leaders whose orders were queued under `queued` or before; None until it is led.
    """

    until_ms: float
    epochs: bytes | None = None
    queued: int = 0


class HandoverInProgress(NamedTuple):
    """A partition whose next owner prepares.

    Attributes:
        former: the owner that leads until then.
        until_ms: monotonic time after which another owner is chosen.
    """

    former: int
    until_ms: float


class Resigned(NamedTuple):
    """A leadership that automatic balancing does not return, until a monotonic time or the end of the registration.

    Attributes:
        earlier: the brokers that have resigned it shortly before, the latest first.
        requested: by the application, and not because its handler has failed.
    """

    broker: int
    broker_epoch: int
    until_ms: float
    earlier: tuple[int, ...] = ()
    requested: bool = False


class FailedShard(NamedTuple):
    """The last owner of a shard with a handler that has failed.

    Attributes:
        last_ms: when it was last known to fail (monotonic).
        has_healed: the shard works again, as the log states.
    """

    owner: int
    last_ms: float
    has_healed: bool = False


# Deleted topics that are remembered: participants that were away meanwhile report soon after they are back.
DELETED_MAX: Final = 20_000


class Cluster:
    """State of one cluster.

    Args:
        controller_id: the id of this controller.
        recovery: whether uncleanly elected leaders are instructed to recover (protocol level 3.2 and above).
        listed_as: the entry of this controller in the list of brokers that UpdateMetadata carries, for clients that
            look for the controller there; None if brokers receive only the controller's id. The entry does not make
            this controller a broker, and it holds no replica. See `Broker.listed_among` for its rack.
    """

    def __init__(self, controller_id: int, *, recovery: bool = True, listed_as: Broker | None = None) -> None:
        self.controller_id = controller_id
        self.recovery = recovery
        self._listed_as = listed_as
        self.reset()

    def reset(self) -> None:
        """Clear all state, as on resignation."""
        self.fence = NOT_ACTIVE
        self.table = Table()
        self.readiness = Readiness()
        # Topics that remote callers wait for.
        self.awaited: dict[str, AwaitedTopic] = {}
        # Brokers that have answered a LeaderAndIsr in their registration, and whether their leaders act later.
        self.leads_later: dict[int, bool] = {}
        self._brokers: dict[int, Broker] = {}
        # Registrations that are not known because the handling of their start failed; it is repeated.
        self.start_failed: dict[int, Broker] = {}
        self._leaving: set[int] = set()  # brokers that requested their shutdown
        self._maintenance = Maintenance()
        self._fenced: frozenset[int] = frozenset()
        self._live_brokers: LiveBrokers | None = None
        self.listed_as = self._listed_as
        self.topics_to_delete: set[str] = set()
        self.deletion_started: set[str] = set()
        # Topics with a blocked deletion, and the reasons. Only topics that are queued for deletion.
        self.deletion_ineligible: dict[str, tuple[DeletionBlocker, ...]] = {}
        # Topics with a deletion that was sent to the store and has an unknown outcome.
        self.deletion_unsure: set[str] = set()
        # Brokers with a response to a deletion whose handling an error has ended.
        self.deletion_unanswered: set[int] = set()
        # Topics with a write of their assignment that has an unknown outcome.
        self.assignments_unsure: set[str] = set()
        # Topics with new partitions, until a check finds that the creation of these is complete.
        self.creations_unchecked: set[str] = set()
        self.without_id: set[str] = set()  # topics whose ids were lost
        self.deleted: dict[TopicRef, None] = {}  # the last ones that this controller has deleted, as ordered
        self.resigned: dict[TopicPartition, Resigned] = {}
        self.standbys: dict[str, int] = {}  # of ownership topics: how many participants follow each partition
        self.handovers: dict[TopicPartition, HandoverInProgress] = {}
        self.failed_shards: dict[TopicPartition, FailedShard] = {}
        self.reassigning: set[TopicPartition] = set()
        self.completed_moves = 0
        self.last_moves: collections.deque[CompletedMove] = collections.deque(maxlen=LAST_MOVES_MAX)
        self.offline_count = 0
        self.imbalance_count = 0
        self.holds = Holds()
        self.replica_reports = ReplicaReports()
        self.features: Features | None = None  # finalized features; None if unknown or unsupported
        self._retries: list[RowNumbers] = []

    def adopt(self, loaded: "Cluster") -> None:
        """Replace the topics and partitions by those of `loaded`, which was loaded from the same store.

        `loaded` must not be used afterwards.
        """
        self.table = loaded.table
        self.readiness = Readiness()
        self.reassigning = loaded.reassigning
        self.imbalance_count = loaded.imbalance_count
        self.offline_count = loaded.offline_count

    # -- brokers -------------------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> dict[int, Broker]:
        """All registered brokers by id, including those that are shutting down. The caller must not change it."""
        return self._brokers

    @property
    def maintenance(self) -> Maintenance:
        """The stored drains, also of brokers that are not registered, and held instances."""
        return self._maintenance

    def set_maintenance(self, maintenance: Maintenance) -> None:
        self._maintenance = maintenance
        self._live_brokers = None

    @property
    def shutting_down(self) -> frozenset[int]:
        return frozenset(self._leaving | self.drained)

    @property
    def drained(self) -> frozenset[int]:
        """Registered brokers that an operator drained and that do not request a shutdown themselves."""
        drains = self._maintenance.drains
        return frozenset((drains.keys() & self._brokers.keys()) - self._leaving) if drains else frozenset()

    @property
    def fenced(self) -> frozenset[int]:
        """Registered participants that this controller has not reached yet. They get no new roles, and keep those that
        they have."""
        return self._fenced & self._brokers.keys()

    def set_fenced(self, brokers: frozenset[int]) -> None:
        """Replace the set of fenced brokers."""
        if brokers != self._fenced:
            self._fenced = brokers
            self._live_brokers = None

    @property
    def staying(self) -> BrokerSet:
        """Brokers that stay leaders, and receive requests to delete replicas: the live ones and the drained ones.

        A drained broker is registered and reachable, and may stay for weeks. A broker that requested its own shutdown
        stops at any moment, so a deletion waits until it is back.
        """
        live = self.live_brokers.live
        return BrokerSet(live.ids | self.drained) if self.drained else live

    @property
    def live_brokers(self) -> LiveBrokers:
        """The live and the registered brokers, for elections and machines."""
        if self._live_brokers is None:
            registered = BrokerSet(self._brokers)
            leaving, drained = self.shutting_down, self.drained - self._fenced
            live = BrokerSet(self._brokers.keys() - leaving) if leaving else registered
            unfenced = BrokerSet(live.ids - self._fenced) if self._fenced & live.ids else None
            spare = BrokerSet(drained) if drained else None
            self._live_brokers = LiveBrokers(live, registered, recovery=self.recovery, unfenced=unfenced, spare=spare)
        return self._live_brokers

    def add_brokers(self, brokers: Iterable[Broker]) -> None:
        """Add registrations, or replace them by id."""
        added = {broker.id: broker for broker in brokers}
        for broker in added.keys() & self._brokers.keys():
            if added[broker].epoch != self._brokers[broker].epoch:
                self.leads_later.pop(broker, None)
        self._brokers |= added
        self._brokers = dict(sorted(self._brokers.items()))
        self._brokers_changed()

    def remove_brokers(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            self._brokers.pop(broker, None)
            self.leads_later.pop(broker, None)
            self.replica_reports.forget(broker)
        self._brokers_changed()

    def _brokers_changed(self) -> None:
        self._live_brokers = None
        if self._listed_as is not None:
            self.listed_as = self._listed_as.listed_among(self._brokers.values())
        self.holds.brokers_changed(self._brokers.values())

    def members(self, topic: str) -> dict[int, int]:
        """Returns the weights of the participants that may own partitions of an ownership topic, by id."""
        electable = self.live_brokers.electable
        return {
            id_: broker.weight for id_, broker in self._brokers.items() if broker.offers(topic) and id_ in electable
        }

    def unreached(self, topic: str) -> frozenset[int]:
        """Returns the other participants that offer an ownership topic: those that this controller has no link to."""
        live, electable = self.live_brokers.live, self.live_brokers.electable
        offering = (id_ for id_, broker in self._brokers.items() if broker.offers(topic))
        return frozenset(id_ for id_ in offering if id_ in live and id_ not in electable)

    def is_shard(self, name: TopicPartition) -> bool:
        """Whether a partition belongs to an ownership topic."""
        topic = self.table.topic(name.topic)
        return topic is not None and topic.ref.is_ownership

    def mark_shutting_down(self, broker: int, shutting_down: bool = True) -> None:
        """Set or remove the mark of a broker that requests its shutdown itself. It may be drained as well."""
        if shutting_down:
            self._leaving.add(broker)
        else:
            self._leaving.discard(broker)
        self._live_brokers = None

    def is_replica_online(self, broker: int, name: TopicPartition, *, include_shutting_down: bool = False) -> bool:
        """Whether a replica can serve: its broker is live, and its log directory has not failed."""
        brokers = self.live_brokers.registered if include_shutting_down else self.live_brokers.live
        if broker == NO_BROKER or broker not in brokers:
            return False
        return self.table.row(name) not in self.table.dirs_offline(broker)

    def forget_offline_dirs(self, broker: int) -> None:
        self.table.mark_dirs(broker, self.table.dirs_offline(broker), False)

    def replica_report(self, name: TopicPartition, broker: int) -> ReplicaReport | None:
        """Returns why a replica of a participant is not in its normal state, as far as that is known; None if it is."""
        registered = self._brokers.get(broker)
        report = None if registered is None else self.replica_reports.of(name, registered)
        if report is None or not report.status.is_failure:
            return report
        # A replica that has carried out an order since then serves again.
        return report if self.table.row(name) in self.table.dirs_offline(broker) else None

    def reported_replicas(self) -> Iterator[tuple[TopicPartition, int, ReplicaReport]]:
        """Yields the replicas that are not in their normal state, as participants report it, with their brokers."""
        for id_, broker in self._brokers.items():
            reports = self.replica_reports.of_broker(broker)
            if not reports:
                continue
            failed = set(self.table.dirs_offline(id_).tolist())
            for name, report in reports.items():
                if not report.status.is_failure or self.table.row(name) in failed:  # as in `replica_report`
                    yield name, id_, report

    def replica_status_counts(self) -> Counter[ReplicaStatus]:
        """Returns the number of replicas of participants in each status but READY, as far as they have reported."""
        return Counter(report.status for _, _, report in self.reported_replicas())

    def holders_of(self, name: TopicPartition) -> tuple[int, ...]:
        """Returns the registered broker whose leadership of a partition may not have ended, if there is one."""
        row = self.table.row(name)
        if row == NO_ROW or not self.holds.is_used:
            return ()
        columns = self.table.hold_columns()
        holder = int(columns.holder[row])
        return (holder,) if holder in self._brokers and not self.holds.exempt(columns, np.array([row])).any() else ()

    # -- topics --------------------------------------------------------------------------------------------------------

    def view(self, name: TopicPartition) -> PartitionView | None:
        """Returns one partition as an object; None if it is unknown."""
        row = self.table.row(name)
        return None if row == NO_ROW else self.table.view(row)

    def assignment(self, name: TopicPartition) -> Assignment:
        """Returns the assignment of a partition; an empty assignment if the partition is unknown."""
        row = self.table.row(name)
        return Assignment() if row == NO_ROW else self.table.assignment(row)

    def put_topic_id(self, name: str, topic_id: bytes) -> None:
        """Set the id of a topic. Setting the same id again has no effect.

        Raises:
            IllegalState: the topic is unknown, has another id, or another topic has the id.
        """
        if self.table.topic(name) is None:
            raise IllegalState(f"topic {name} is unknown and cannot be given the id {topic_id.hex()}")
        for topic in self.table.topics():
            if topic_id != ZERO_ID and topic.ref.id == topic_id and topic.name != name:
                raise IllegalState(
                    f"the id {topic_id.hex()} belongs to topic {topic.name} and cannot be given to {name}"
                )
        self.table.add_topic(name, topic_id)

    def put_assignments(self, loaded: Assignments) -> RowNumbers:
        """Store assignments and return their rows."""
        known = self.table.rows_at(Names(loaded.topics, loaded.topic, loaded.partition))
        known = known[known != NO_ROW]
        before = self._imbalanced(known)
        rows = self.table.put_assignments(loaded)
        for ref in loaded.topics:
            # A topic may have been queued for deletion before its partitions were known.
            if ref.name in self.topics_to_delete:
                self.table.queue_topic(ref.name, True)
        self.imbalance_count += self._imbalanced(known) - before
        return rows

    def put_assignment(self, name: TopicPartition, assignment: Assignment) -> int:
        """Store one assignment and return its row."""
        topic = self.table.topic(name.topic)
        return int(
            self.put_assignments(
                Assignments.of({name: assignment}, {name.topic: topic.ref.id} if topic is not None else None)
            )[0]
        )

    def put_leaderships(self, rows: RowNumbers, loaded: Leaderships) -> None:
        """Store the leadership that was loaded for `rows`."""
        before = self._imbalanced(rows)
        if self.holds.is_used:
            found = loaded.found
            columns = self.table.hold_columns()
            self.holds.leaders_changed(columns, rows[found], loaded.leader[found], loaded.leader_epoch[found])
        self.table.put_leaderships(rows, loaded)
        self.table.assign_owned(self.table.owned(rows[loaded.found]))
        self.imbalance_count += self._imbalanced(rows) - before

    def assign_owned(self, rows: RowNumbers) -> None:
        """See `Table.assign_owned`."""
        before = self._imbalanced(rows)
        self.table.assign_owned(rows)
        self.imbalance_count += self._imbalanced(rows) - before

    def queue_deletion(self, topics: Iterable[str]) -> None:
        """Queue topics for deletion. Their partitions no longer count as imbalanced."""
        fresh = set(topics) - self.topics_to_delete
        known = [topic for name in fresh if (topic := self.table.topic(name)) is not None]
        self.imbalance_count -= self._imbalanced(self.table.rows_of_all(known))
        self.topics_to_delete |= fresh
        for name in fresh:
            self.table.queue_topic(name, True)

    def begin_deletion(self, topics: Iterable[str]) -> None:
        """Start the deletion of topics that are queued for it. Their partitions no longer count as offline."""
        started = self.topics_to_delete.intersection(topics) - self.deletion_started
        known = [topic for name in started if (topic := self.table.topic(name)) is not None]
        rows = self.table.rows(self.table.rows_of_all(known))
        self.offline_count -= int(np.count_nonzero(rows.state == PartitionState.OFFLINE))
        self.deletion_started |= started

    def block_deletion(self, name: str, blocker: DeletionBlocker) -> bool:
        """Record why the deletion of a topic is blocked. A blocker with the same reason is replaced.

        Returns:
            True if the topic is queued for deletion and had no blocker with that reason before.
        """
        if name not in self.topics_to_delete:
            return False
        before = self.deletion_ineligible.get(name, ())
        others = tuple(other for other in before if other.reason is not blocker.reason)
        self.deletion_ineligible[name] = (*others, blocker)
        return len(others) == len(before)

    def resign(
        self, name: TopicPartition, broker: int, *, broker_epoch: int, until_ms: float, requested: bool = False
    ) -> None:
        """Remember that a broker has resigned a leadership, and which ones did so before as long as that is known."""
        before = self.resigned.get(name)
        known = () if before is None else (before.broker, *before.earlier)
        earlier = tuple(other for other in known if other != broker)
        self.resigned[name] = Resigned(broker, broker_epoch, until_ms, earlier, requested)

    def held_leaderships(self, now_ms: float) -> RowNumbers:
        """Returns the partitions that automatic balancing does not return to the replicas that resigned."""
        epochs = {id_: broker.epoch for id_, broker in self._brokers.items()}
        self.resigned = {
            name: held
            for name, held in self.resigned.items()
            if held.until_ms > now_ms and epochs.get(held.broker) == held.broker_epoch
        }
        return self.table.rows_known(self.resigned)

    def remember_deletion(self, names: Iterable[str]) -> None:
        """Record that topics are deleted because that was ordered. They are still in the table."""
        self.deleted |= {topic.ref: None for name in names if (topic := self.table.topic(name)) is not None}
        for oldest in list(itertools.islice(self.deleted, max(0, len(self.deleted) - DELETED_MAX))):
            del self.deleted[oldest]

    def lift_blockers(self, topics: Iterable[str]) -> None:
        """Remove the deletion blockers of some topics."""
        for name in topics:
            self.deletion_ineligible.pop(name, None)

    def complete_moves(self, names: Collection[TopicPartition], time_ms: int) -> None:
        """Mark reassignments as complete: count them, and keep the last ones by name."""
        self.reassigning.difference_update(names)
        self.completed_moves += len(names)
        self.last_moves.extend(CompletedMove(name, time_ms) for name in itertools.islice(names, LAST_MOVES_MAX))

    def remove_topic(self, name: str) -> None:
        """Remove a topic and everything that belongs to it; an unknown topic is ignored."""
        self.remove_topics([name])

    def remove_topics(self, names: Iterable[str]) -> None:
        """Remove topics and everything that belongs to them; unknown topics are ignored."""
        removed = frozenset(names)
        known = [topic for name in removed if (topic := self.table.topic(name)) is not None]
        rows = self.table.rows(self.table.rows_of_all(known))
        self.imbalance_count -= int(np.count_nonzero(preferred_imbalance(rows)))
        self.offline_count -= int(np.count_nonzero((rows.state == PartitionState.OFFLINE) & self._not_started(rows)))
        self.table.remove_topics(removed)
        self.holds.forget_topics(topic.number for topic in known)
        self.replica_reports.forget_topics(removed)
        self.topics_to_delete -= removed
        self.deletion_started -= removed
        self.deletion_unsure -= removed
        self.assignments_unsure -= removed
        self.creations_unchecked -= removed
        self.without_id -= removed
        self.resigned = {name: held for name, held in self.resigned.items() if name.topic not in removed}
        self.handovers = {name: former for name, former in self.handovers.items() if name.topic not in removed}
        self.failed_shards = {name: failed for name, failed in self.failed_shards.items() if name.topic not in removed}
        for name in removed:
            self.standbys.pop(name, None)
        self.lift_blockers(removed)
        if self.reassigning:
            self.reassigning = {partition for partition in self.reassigning if partition.topic not in removed}

    # -- partitions ----------------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Apply a change that the store has committed, or that needs no commit."""
        if not len(change):
            return
        self.offline_count += self._offline_step(change.rows, change.state)
        before = preferred_imbalance(change.rows)
        # Rows that the store rejected were reloaded; the table and the counter still have the values before that.
        reread = self.table.versions(change.rows.index) != change.rows.partition_epoch
        if reread.any():
            before[reread] = preferred_imbalance(self.table.rows(change.rows.index[reread]))
        after = preferred_imbalance(change.after())
        self.imbalance_count += int(np.count_nonzero(after)) - int(np.count_nonzero(before))
        if self.holds.is_used and "leader" in altered_columns(change):  # with it, all columns of leadership
            columns = self.table.hold_columns()
            read = change.rows.leader, change.rows.leader_epoch
            self.holds.leaders_changed(columns, change.rows.index, change.leader, change.leader_epoch, read=read)
        self.table.apply(change)

    def set_states(self, index: RowNumbers, state: Any) -> None:
        """Set partition states without a check; the offline counter is updated."""
        rows = self.table.rows(index)
        after = np.broadcast_to(np.asarray(state, np.uint8), rows.state.shape)
        self.offline_count += self._offline_step(rows, after)
        self.table.set_states(index, after)

    def stop_replica_epoch(self, rows: Rows) -> Ints:
        """Returns int32[n]: the leader epoch that a StopReplica carries; NO_EPOCH where no leadership is known."""
        return choose(rows.queued, np.int32(EPOCH_DURING_DELETE), rows.leader_epoch)  # type: ignore[no-any-return]

    def all_replicas_in(self, topic: str, state: ReplicaState) -> bool:
        """Whether all replicas of a topic are in `state`; True for a topic without replicas."""
        entry = self.table.topic(topic)
        if entry is None:
            return True
        rows = self.table.rows(self.table.rows_of(entry))
        return bool((rows.replica_state[rows.assigned] == state).all())

    def mark_for_retry(self, rows: RowNumbers) -> None:
        """Mark rows that the store failed to write, or whose change an error has ended, so that it is retried."""
        if len(rows):
            self._retries.append(rows)

    @property
    def has_retries(self) -> bool:
        return bool(self._retries)

    def pop_retries(self) -> RowNumbers:
        """Returns the marked rows that are still in use, without duplicates, and clears all marks."""
        retries, self._retries = self._retries, []
        rows = np.unique(np.concatenate(retries)) if retries else np.zeros(0, np.intp)
        return common(rows, self.table.all())

    # -- counting ------------------------------------------------------------------------------------------------------

    def _imbalanced(self, rows: RowNumbers) -> int:
        return int(np.count_nonzero(preferred_imbalance(self.table.rows(rows)))) if len(rows) else 0

    def _offline_step(self, rows: Rows, after: Any) -> int:
        """Returns the change of the offline counter if `rows` change to the states `after`."""
        if after is rows.state:
            return 0
        counted = self._not_started(rows)
        was = (rows.state == PartitionState.OFFLINE) & counted
        becomes = (after == PartitionState.OFFLINE) & counted
        return int(np.count_nonzero(becomes)) - int(np.count_nonzero(was))

    def _not_started(self, rows: Rows) -> Bools:
        if not self.deletion_started:
            return np.ones(len(rows), np.bool_)
        started = [topic.number for name in self.deletion_started if (topic := self.table.topic(name)) is not None]
        return ~np.isin(rows.topic, started)

    @property
    def offline_replicated_count(self) -> int:
        """Number of offline partitions without shards, which lack an owner in place of a replica."""
        rows = self.table.rows(self.table.owned(self.table.all()))
        return self.offline_count - int(
            np.count_nonzero((rows.state == PartitionState.OFFLINE) & self._not_started(rows))
        )

    def count_again(self) -> tuple[int, int]:
        """Returns (offline, imbalanced), counted from the table. The counters must always equal these values."""
        rows = self.table.rows(self.table.all())
        offline = (rows.state == PartitionState.OFFLINE) & self._not_started(rows)
        return int(np.count_nonzero(offline)), int(np.count_nonzero(preferred_imbalance(rows)))
