"""The cluster as the controller knows it now.

The partition table, the brokers, what waits for deletion, what is being reassigned, our epoch, and two counters that
are kept along with every change. It has one owner, the controller, who lends it to one machine at a time; nothing is
written here before the store has kept it.

Source: the classic controller's ControllerContext. Unlike there, a topic that goes takes everything with it: states,
a reassignment in progress, the mark that it cannot be deleted now.
"""

import collections
import itertools
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.errors import IllegalState
from kactl.model import (
    EPOCH_DURING_DELETE,
    NO_BROKER,
    ZERO_ID,
    Assignment,
    Broker,
    Features,
    Fence,
    PartitionState,
    PartitionView,
    ReplicaState,
    TopicPartition,
)

from .change import Change
from .deletion_blockers import DeletionBlocker
from .records import Assignments, Leaderships, Names
from .rows import Bools, BrokerSet, Ints, LiveBrokers, RowNumbers, Rows, choose, common, preferred_imbalance
from .table import NO_ROW, Table

NOT_ACTIVE: Final = Fence(epoch=0, version=0)
# Completed reassignments that are remembered by name: what an operator who has just applied a plan looks for.
LAST_MOVES_MAX: Final = 100


class CompletedMove(NamedTuple):
    """A reassignment that is complete. `time_ms`: wall clock."""

    name: TopicPartition
    time_ms: int


class Cluster:
    """See the module.

    Args:
        controller_id: ours.
        recovery: whether uncleanly elected leaders are told to recover (protocol level 3.2 and above).
        listed_as: our own entry in the list of brokers that brokers are told, for those who look for the controller
            there; None if brokers are to know nothing but our id. We are no broker by it, and hold no replica.
    """

    def __init__(self, controller_id: int, *, recovery: bool = True, listed_as: Broker | None = None) -> None:
        self.controller_id = controller_id
        self.recovery = recovery
        self.listed_as = listed_as
        self.reset()

    def reset(self) -> None:
        """Forget everything, as on resignation."""
        self.fence = NOT_ACTIVE
        self.table = Table()
        self._brokers: dict[int, Broker] = {}
        self._shutting_down: set[int] = set()
        self._drained: set[int] = set()
        self._live_brokers: LiveBrokers | None = None
        self.topics_to_delete: set[str] = set()
        self.deletion_started: set[str] = set()
        # Topics whose deletion does not go on now, and why; only topics that wait for it.
        self.deletion_ineligible: dict[str, tuple[DeletionBlocker, ...]] = {}
        # Topics that the store was told to delete without saying whether it did.
        self.deletion_unsure: set[str] = set()
        self.reassigning: set[TopicPartition] = set()
        self.completed_moves = 0
        self.last_moves: collections.deque[CompletedMove] = collections.deque(maxlen=LAST_MOVES_MAX)
        self.offline_count = 0
        self.imbalance_count = 0
        self.features: Features | None = None  # that are finalized; None before they are known, or if they cannot be
        self._undone: list[RowNumbers] = []

    def adopt(self, loaded: "Cluster") -> None:
        """Take over the topics and partitions of another one that was loaded from the same store, and forget ours.

        The other one must not be used any more.
        """
        self.table = loaded.table
        self.reassigning = loaded.reassigning
        self.imbalance_count = loaded.imbalance_count
        self.offline_count = loaded.offline_count

    # -- brokers -------------------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> dict[int, Broker]:
        """All registered brokers by id, those that are shutting down too. Not to be changed by the caller."""
        return self._brokers

    @property
    def shutting_down(self) -> frozenset[int]:
        return frozenset(self._shutting_down)

    @property
    def drained(self) -> frozenset[int]:
        """Those of `shutting_down` that an operator drained and that have not asked to stop themselves."""
        return frozenset(self._drained)

    @property
    def deletable(self) -> BrokerSet:
        """Brokers that are sent orders to delete replicas: the live ones and the drained ones.

        A drained broker is registered, reachable, and may stay for weeks. One that asked to stop goes at any moment,
        so a deletion waits until it is back.
        """
        live = self.live_brokers.live
        return BrokerSet(live.ids | (self._drained & self._brokers.keys())) if self._drained else live

    @property
    def live_brokers(self) -> LiveBrokers:
        """Who is live and who is registered, for elections and machines."""
        if self._live_brokers is None:
            registered = BrokerSet(self._brokers)
            live = BrokerSet(self._brokers.keys() - self._shutting_down) if self._shutting_down else registered
            self._live_brokers = LiveBrokers(live, registered, recovery=self.recovery)
        return self._live_brokers

    def add_brokers(self, brokers: Iterable[Broker]) -> None:
        """Add registrations, or replace them by id."""
        self._brokers |= {broker.id: broker for broker in brokers}
        self._brokers = dict(sorted(self._brokers.items()))
        self._live_brokers = None

    def remove_brokers(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            self._brokers.pop(broker, None)
        self._live_brokers = None

    def mark_shutting_down(self, broker: int, shutting_down: bool = True, *, drained: bool = False) -> None:
        """Set or remove the mark. A broker that once asked to stop itself is not drained until the mark is removed."""
        if not shutting_down:
            self._shutting_down.discard(broker)
            self._drained.discard(broker)
        elif not drained:
            self._shutting_down.add(broker)
            self._drained.discard(broker)
        elif broker not in self._shutting_down:
            self._shutting_down.add(broker)
            self._drained.add(broker)
        self._live_brokers = None

    def is_replica_online(self, broker: int, name: TopicPartition, *, include_shutting_down: bool = False) -> bool:
        """Whether one replica can serve: its broker is live, and its directory has not failed."""
        brokers = self.live_brokers.registered if include_shutting_down else self.live_brokers.live
        if broker == NO_BROKER or broker not in brokers:
            return False
        return self.table.row(name) not in self.table.dirs_offline(broker)

    def forget_offline_dirs(self, broker: int) -> None:
        self.table.mark_dirs(broker, self.table.dirs_offline(broker), False)

    # -- topics --------------------------------------------------------------------------------------------------------

    def view(self, name: TopicPartition) -> PartitionView | None:
        """One partition as an object; None if it is unknown."""
        row = self.table.row(name)
        return None if row == NO_ROW else self.table.view(row)

    def assignment(self, name: TopicPartition) -> Assignment:
        """What is assigned; an empty assignment if the partition is unknown."""
        view = self.view(name)
        return Assignment() if view is None else view.assignment

    def put_topic_id(self, name: str, topic_id: bytes) -> None:
        """Give a topic its id. Giving the same again is no change.

        Raises:
            IllegalState: the topic is unknown, has another id, or the id is another topic's.
        """
        if self.table.topic(name) is None:
            raise IllegalState(f"topic {name} is unknown, and was to get the id {topic_id.hex()}")
        for topic in self.table.topics():
            if topic_id != ZERO_ID and topic.ref.id == topic_id and topic.name != name:
                raise IllegalState(f"the id {topic_id.hex()} of topic {topic.name} was to be given to {name}")
        self.table.add_topic(name, topic_id)

    def put_assignments(self, loaded: Assignments) -> RowNumbers:
        """Put what is assigned; the rows of it."""
        known = self.table.rows_at(Names(loaded.topics, loaded.topic, loaded.partition))
        known = known[known != NO_ROW]
        before = self._imbalanced(known)
        at = self.table.put_assignments(loaded)
        for ref in loaded.topics:
            # A topic may have been queued before anything was known of it.
            if ref.name in self.topics_to_delete:
                self.table.queue_topic(ref.name, True)
        self.imbalance_count += self._imbalanced(known) - before
        return at

    def put_assignment(self, name: TopicPartition, assignment: Assignment) -> int:
        """Put one assignment; the row of it."""
        topic = self.table.topic(name.topic)
        return int(
            self.put_assignments(
                Assignments.of({name: assignment}, {name.topic: topic.ref.id} if topic is not None else None)
            )[0]
        )

    def put_leaderships(self, at: RowNumbers, loaded: Leaderships) -> None:
        """Put what the store holds of the rows `at`."""
        before = self._imbalanced(at)
        self.table.put_leaderships(at, loaded)
        self.imbalance_count += self._imbalanced(at) - before

    def queue_deletion(self, topics: Iterable[str]) -> None:
        """Let topics wait for deletion; their partitions no longer count as imbalanced."""
        fresh = set(topics) - self.topics_to_delete
        known = [topic for name in fresh if (topic := self.table.topic(name)) is not None]
        self.imbalance_count -= self._imbalanced(self.table.rows_of_all(known))
        self.topics_to_delete |= fresh
        for name in fresh:
            self.table.queue_topic(name, True)

    def begin_deletion(self, topics: Iterable[str]) -> None:
        """The deletion of topics that wait for it begins; from now on their partitions do not count as offline."""
        begun = self.topics_to_delete.intersection(topics) - self.deletion_started
        known = [topic for name in begun if (topic := self.table.topic(name)) is not None]
        rows = self.table.rows(self.table.rows_of_all(known))
        self.offline_count -= int(np.count_nonzero(rows.state == PartitionState.OFFLINE))
        self.deletion_started |= begun

    def halt_deletion(self, name: str, halt: DeletionBlocker) -> bool:
        """Note why the deletion of a topic does not go on; one of the same reason is replaced.

        Returns:
            whether that is news: the topic waits for its deletion, and that reason did not stand before.
        """
        if name not in self.topics_to_delete:
            return False
        before = self.deletion_ineligible.get(name, ())
        others = tuple(held for held in before if held.reason is not halt.reason)
        self.deletion_ineligible[name] = (*others, halt)
        return len(others) == len(before)

    def lift_blockers(self, topics: Iterable[str]) -> None:
        """The deletion of some topics may go on."""
        for name in topics:
            self.deletion_ineligible.pop(name, None)

    def complete_moves(self, names: Collection[TopicPartition], time_ms: int) -> None:
        """Reassignments are complete: count them, and remember the last by name."""
        self.reassigning.difference_update(names)
        self.completed_moves += len(names)
        self.last_moves.extend(CompletedMove(name, time_ms) for name in itertools.islice(names, LAST_MOVES_MAX))

    def remove_topic(self, name: str) -> None:
        """Forget a topic and everything that goes with it; nothing happens if it is unknown."""
        self.remove_topics([name])

    def remove_topics(self, names: Iterable[str]) -> None:
        """Forget topics and everything that goes with them; those that are unknown are passed over."""
        gone = frozenset(names)
        known = [topic for name in gone if (topic := self.table.topic(name)) is not None]
        rows = self.table.rows(self.table.rows_of_all(known))
        self.imbalance_count -= int(np.count_nonzero(preferred_imbalance(rows)))
        self.offline_count -= int(np.count_nonzero((rows.state == PartitionState.OFFLINE) & self._not_started(rows)))
        self.table.remove_topics(gone)
        self.topics_to_delete -= gone
        self.deletion_started -= gone
        self.deletion_unsure -= gone
        self.lift_blockers(gone)
        if self.reassigning:
            self.reassigning = {partition for partition in self.reassigning if partition.topic not in gone}

    # -- partitions ----------------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Take over what the store has kept, and what needs no store."""
        if not len(change):
            return
        self.offline_count += self._offline_step(change.rows, change.state)
        before = preferred_imbalance(change.rows)
        # Rows that the store refused were read again; the table, and the counter, still know what was before that.
        reread = self.table.versions(change.rows.index) != change.rows.partition_epoch
        if reread.any():
            before[reread] = preferred_imbalance(self.table.rows(change.rows.index[reread]))
        after = preferred_imbalance(change.after())
        self.imbalance_count += int(np.count_nonzero(after)) - int(np.count_nonzero(before))
        self.table.apply(change)

    def set_states(self, at: RowNumbers, state: Any) -> None:
        """Put partition states directly, without a check; the offline counter follows."""
        rows = self.table.rows(at)
        after = np.broadcast_to(np.asarray(state, np.uint8), rows.state.shape)
        self.offline_count += self._offline_step(rows, after)
        self.table.set_states(at, after)

    def stop_replica_epoch(self, rows: Rows) -> Ints:
        """int32[n]: the leader epoch that a StopReplica carries; NO_EPOCH where no leadership is known."""
        return choose(rows.queued, np.int32(EPOCH_DURING_DELETE), rows.leader_epoch)  # type: ignore[no-any-return]

    def all_replicas_in(self, topic: str, state: ReplicaState) -> bool:
        """Whether all replicas of a topic are in `state`; True for a topic without replicas."""
        known = self.table.topic(topic)
        if known is None:
            return True
        rows = self.table.rows(self.table.rows_of(known))
        return bool((rows.replica_state[rows.assigned] == state).all())

    def mark_for_retry(self, at: RowNumbers) -> None:
        """Note rows for which the store failed: what was to become of them is to be tried again."""
        if len(at):
            self._undone.append(at)

    @property
    def has_retries(self) -> bool:
        return bool(self._undone)

    def pop_retries(self) -> RowNumbers:
        """The rows that were noted, each once and as far as they are still in use; none are noted afterwards."""
        undone, self._undone = self._undone, []
        at = np.unique(np.concatenate(undone)) if undone else np.zeros(0, np.intp)
        return common(at, self.table.all())

    # -- counting ------------------------------------------------------------------------------------------------------

    def _imbalanced(self, at: RowNumbers) -> int:
        return int(np.count_nonzero(preferred_imbalance(self.table.rows(at)))) if len(at) else 0

    def _offline_step(self, rows: Rows, after: Any) -> int:
        """By how much the offline counter moves when `rows` get the states `after`."""
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

    def count_again(self) -> tuple[int, int]:
        """(offline, imbalanced), counted from nothing. The counters must agree with it at all times."""
        rows = self.table.rows(self.table.all())
        offline = (rows.state == PartitionState.OFFLINE) & self._not_started(rows)
        return int(np.count_nonzero(offline)), int(np.count_nonzero(preferred_imbalance(rows)))
