"""Topic deletion: stop the partitions, have every broker delete its replicas, then delete the topic from the store.

    marked ──▶ queued ──▶ started ──▶ all replicas deleted ──▶ gone, the mark last

Only this module acts on a topic that is queued for deletion: no leader is elected for it, no partition is created or
reassigned. The store keeps the topic until no earlier leader can have a valid lease, also one that is no replica any
more: the name can be used again afterwards. A failed deletion is retried when a broker with one of the replicas starts
(`resume_on`), when a reassignment of the topic completes (`resume_for`), and by the next controller, which starts again
with every replica.

Source: the classic controller's TopicDeletionManager and processTopicDeletion. Unlike there, a topic with partitions
being reassigned is marked ineligible after it was queued; marked before, it would not be found in the queue.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final

import numpy as np

from kactl.actors.machines.machine import Move
from kactl.actors.priority_inbox import Timers
from kactl.decide.machines import deletion
from kactl.decide.messages.events import TopicChange, TopicDeletion
from kactl.decide.messages.log import TopicEvent
from kactl.decide.state.deletion_blockers import BlockerReason, DeletionBlocker
from kactl.decide.state.rows import Bools, Ints, RowNumbers, some
from kactl.model import NO_EPOCH, NO_LEADER, PartitionState, ReplicaState
from kactl.model.errors import Remedy, StoreError
from kactl.runtime.logs import logger

from .base import ControllerContext, Handlers

log = logger(__name__)

# Pause before a topic that the store failed to delete is deleted again.
DELETE_AGAIN_MS: Final = 10_000
# Partitions per call of the store, roughly: preparing the call blocks the event loop for a few ms, and all topics of a
# call without a response have to be read back.
PARTITIONS_AT_ONCE: Final = 5_000


class Deletion(Handlers):
    """Deletes topics. Its state is part of the cluster and ends with the controllership.

    Args:
        timers: retry topics that the store failed to delete.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers

    # -- the queue -----------------------------------------------------------------------------------------------------

    async def init(self, marked: Collection[str]) -> None:
        """Queue the topics marked in the store, before the machines start; also those that no longer exist."""
        if not self.settings.delete_topics:
            await self.unmark(marked, "deleting topics is switched off")
            return
        self.cluster.queue_deletion(marked)
        row_numbers = self._rows_of(sorted(marked))
        self._halt_dead(row_numbers)
        self._halt_reassigned(marked)

    async def unmark(self, topics: Collection[str], reason: str) -> None:
        """Remove marks without deleting the topics."""
        if topics:
            await self.store.unmark_deletions(topics, self.cluster.fence)
            log.warning("the deletion marks of %d topics were removed, %s: %s",
                        len(topics), reason, ", ".join(sorted(topics)[:5]))  # fmt: skip

    async def enqueue(self, topics: Collection[str]) -> None:
        """Queue topics, then resume the deletion of all queued topics."""
        fresh = sorted(set(topics) - self.cluster.topics_to_delete)
        if fresh:
            log.info("%d topics are to be deleted: %s", len(fresh), ", ".join(fresh[:5]))
        self.cluster.queue_deletion(topics)
        self._halt_reassigned(topics)
        unanswered = self.cluster.deletion_unanswered
        if unanswered:
            await self.requests_dropped(frozenset(unanswered))
            unanswered.clear()
        await self.resume()

    async def vanished(self, topics: Collection[str]) -> None:
        """Process queued topics with entries that are gone from the store, deleted by a tool or by this controller.

        Their configuration and their marks are deleted now.
        """
        unknown_outcomes = self.cluster.deletion_unsure.intersection(topics)
        self.cluster.remember_deletion(topics)
        self.forget_topics(topics)
        self.cluster.deletion_unsure |= unknown_outcomes
        await self.enqueue(topics)

    # -- blockers ------------------------------------------------------------------------------------------------------

    async def resume_for(self, topics: Iterable[str]) -> None:
        """Remove the blockers of some topics and resume, if one of them is queued."""
        queued = self.cluster.topics_to_delete.intersection(topics)
        if queued:
            self.cluster.lift_blockers(queued)
            await self.resume()

    async def resume_on(self, brokers: frozenset[int]) -> None:
        """Resume topics with replicas on brokers that have started."""
        await self.resume_for(self._topics_of(self.cluster.table.queued(self.cluster.table.with_replica_on(brokers))))

    async def send_again(self, broker: int) -> None:
        """Retry replicas of a broker after its StopReplica was dropped without a response."""
        if await self.requests_dropped(frozenset({broker})):
            await self.resume()

    async def requests_dropped(self, brokers: frozenset[int]) -> bool:
        """Mark replicas as not deletable now whose StopReplica was dropped. Returns whether there are any."""
        row_numbers = self.cluster.table.queued(self.cluster.table.with_replica_on(brokers))
        rows = self.cluster.table.rows(row_numbers)
        waiting = np.isin(rows.replicas, sorted(brokers)) & (rows.replica_state == ReplicaState.DELETION_STARTED)
        if waiting.any():
            await self.move_some_replicas(row_numbers, waiting, ReplicaState.DELETION_INELIGIBLE)
        return bool(waiting.any())

    def mark_ineligible(
        self,
        topics: Iterable[str],
        reason: BlockerReason,
        *,
        brokers: tuple[int, ...] = (),
        partitions: tuple[int, ...] = (),
        error: int = 0,
    ) -> None:
        """Block the deletion of the queued ones among some topics. See `DeletionBlocker` for the arguments."""
        for name in sorted(self.cluster.topics_to_delete.intersection(topics)):
            if reason is BlockerReason.REASSIGNMENT and not partitions:
                moving = self._led_moves(name)
                if moving:
                    self._halt(name, DeletionBlocker(reason, brokers, moving, error))
            else:
                self._halt(name, DeletionBlocker(reason, brokers, partitions, error))

    async def fail_replica_deletion(self, row_numbers: RowNumbers, brokers: frozenset[int], *, error: int = 0) -> None:
        """Mark replicas on some brokers as not deletable now. Ignores replicas of topics that are not queued."""
        row_numbers = self.cluster.table.queued(row_numbers)
        if not len(row_numbers):
            return
        await self.move_replicas(row_numbers, ReplicaState.DELETION_INELIGIBLE, brokers)
        rows = self.cluster.table.rows(row_numbers)
        for number in np.unique(rows.topic).tolist():
            partitions = tuple(sorted(rows.partition[rows.topic == number].tolist()))
            name = self.cluster.table.topic_at(number).name
            self._halt(name, DeletionBlocker(BlockerReason.REPLICA_FAILED, tuple(sorted(brokers)), partitions, error))
        await self.resume()

    async def complete_replica_deletion(self, row_numbers: RowNumbers, brokers: frozenset[int]) -> None:
        """Mark replicas on some brokers as deleted. Ignores replicas of topics that are not queued."""
        row_numbers = self.cluster.table.queued(row_numbers)
        await self.move_replicas(row_numbers, ReplicaState.DELETION_SUCCESSFUL, brokers)
        await self.resume(self._topics_of(row_numbers))

    # -- progress ------------------------------------------------------------------------------------------------------

    async def resume(self, topics: Set[str] | None = None) -> None:
        """Advance each queued topic as far as possible.

        Args:
            topics: the topics that have changed; None if any may have.
        """
        names = sorted(self.cluster.topics_to_delete if topics is None else topics & self.cluster.topics_to_delete)
        if not names:
            return
        table = self.cluster.table
        row_numbers, topic = table.rows_by_topic(names)
        assigned, replica_state = (
            table.column("assigned")[:, row_numbers],
            table.column("replica_state")[:, row_numbers],
        )
        halted = np.array([name in self.cluster.deletion_ineligible for name in names], np.bool_)
        due = deletion.due(topic, assigned, replica_state, halted=halted)
        ineligible = assigned & (replica_state == ReplicaState.DELETION_INELIGIBLE) & due.retry[topic]
        complete = due.complete & ~self._held(names, row_numbers, topic)
        if complete.any():
            await self._complete([names[position] for position in np.flatnonzero(complete).tolist()])
        if ineligible.any():
            await self.move_some_replicas(row_numbers, ineligible, ReplicaState.OFFLINE)
        starting = [names[position] for position in np.flatnonzero(due.start).tolist()]
        if starting:
            await self._start(starting)

    def _held(self, names: list[str], row_numbers: RowNumbers, topic: Ints) -> Bools:
        """Returns bool[T]: topics with an earlier leader that may still have a valid lease.

        It may be none of the replicas any more. `Leases` resumes the deletion.
        """
        held, holds = np.zeros(len(names), np.bool_), self.cluster.holds
        if holds.is_used:
            have_holder = holds.have_holder(self.cluster.table.hold_columns(), row_numbers)
            held[topic[have_holder]] = True
            holds.deletions.update(np.unique(self.cluster.table.column("topic")[row_numbers[have_holder]]).tolist())
        return held

    async def _start(self, topics: list[str]) -> None:
        """Stop the partitions of topics, and send StopReplica with delete for every replica that can be deleted.

        Deleting is irreversible and nothing is written before it, so the fence is checked first. If the store cannot
        check it, the topics are retried later.
        """
        try:
            await self.store.check(self.cluster.fence)
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            log.warning("the deletion of %d topics is retried later: %s", len(topics), failed)
            self._timers.set(TopicDeletion(), DELETE_AGAIN_MS)
            return
        cluster, table = self.cluster, self.cluster.table
        fresh = [name for name in topics if name not in cluster.deletion_started]
        begun = self._rows_of(fresh)
        # An error may have ended their creation: a replica without a state cannot be deleted.
        await self.move_replicas_in(begun, ReplicaState.ABSENT, ReplicaState.NEW)
        # Before they count as started, so that their partitions leave the count of offline partitions.
        await self.partitions.ask(Move(begun, PartitionState.OFFLINE))
        await self.partitions.ask(Move(begun, PartitionState.ABSENT))
        cluster.begin_deletion(fresh)
        for name in fresh:
            self.history.add(TopicEvent(what="deletion started", topic=name, controller_epoch=self.epoch))
        row_numbers = self._rows_of(topics)
        rows = table.rows(row_numbers)
        self.batch.begin()
        self.batch.update_metadata(cluster.brokers, rows)
        self.channels.send(self.batch.flush())
        deletable = cluster.staying
        reachable = deletion.to_delete(rows, deletable)
        await self.move_some_replicas(row_numbers, deletion.dead(rows, deletable), ReplicaState.DELETION_INELIGIBLE)
        await self.move_some_replicas(row_numbers, reachable, ReplicaState.OFFLINE)
        await self.move_some_replicas(row_numbers, reachable, ReplicaState.DELETION_STARTED)
        self._halt_dead(row_numbers)

    async def _complete(self, topics: list[str]) -> None:
        """Delete topics after all their replicas: first from the store, then from the table.

        The replicas become ABSENT first, so that a retry after a store error does not find them in another state.
        """
        row_numbers = self._rows_of(topics)
        await self.move_some_replicas(row_numbers, self.cluster.table.rows(row_numbers).assigned, ReplicaState.ABSENT)
        for some_topics in self._parted(topics):
            failed = await self._delete_stored(some_topics)
            for topic, error in failed.items():
                log.warning("topic %s could not be deleted from the store, retrying: %s", topic, error)
            if failed:
                self.cluster.deletion_unsure |= failed.keys()
                self._timers.set(TopicDeletion(), DELETE_AGAIN_MS)
            deleted = [topic for topic in some_topics if topic not in failed]
            self.cluster.remember_deletion(deleted)
            self.forget_topics(deleted)
            for topic in deleted:
                self.history.add(TopicEvent(what="deleted", topic=topic, controller_epoch=self.epoch))
            if deleted:
                log.info("%d topics are deleted: %s", len(deleted), ", ".join(deleted[:5]))

    async def _delete_stored(self, topics: list[str]) -> Mapping[str, StoreError]:
        """Delete topics from the store. Returns those that may still be stored, with the error.

        A topic created again after an attempt with unknown outcome is not deleted.

        Raises:
            StoreError: the controllership has ended.
        """
        unknown_outcomes = self.cluster.deletion_unsure.intersection(topics)
        try:
            if unknown_outcomes:
                # The mark is deleted last: without it, the deletion succeeded, and a topic of that name is a new one.
                unknown_outcomes -= set(await self.store.deletions())
            if unknown_outcomes:
                self.context.enqueue(TopicChange())
            stored = {topic: self._led(topic) for topic in topics if topic not in unknown_outcomes}
            return await self.store.delete_topics(stored, self.cluster.fence) if stored else {}
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            return dict.fromkeys(topics, failed)

    def _parted(self, topics: list[str]) -> Iterator[list[str]]:
        """Yields topics in order, in parts of about PARTITIONS_AT_ONCE; a topic with more is a part of its own."""
        part: list[str] = []
        partitions = 0
        for topic in topics:
            known = self.cluster.table.topic(topic)
            # A topic that is gone already costs as much as one with a single partition.
            count = 1 if known is None else max(1, len(known.rows))
            if part and partitions + count > PARTITIONS_AT_ONCE:
                yield part
                part, partitions = [], 0
            part.append(topic)
            partitions += count
        if part:
            yield part

    # -- blocking ------------------------------------------------------------------------------------------------------

    def _halt(self, topic: str, halt: DeletionBlocker) -> None:
        if self.cluster.block_deletion(topic, halt):
            remedy = halt.remedy(self.cluster.shutting_down - self.cluster.drained)
            log.info("the deletion of topic %s is blocked, %s: %s", topic, halt.text, remedy)
            event = TopicEvent(what="deletion halted", topic=topic, cause=halt.text, controller_epoch=self.epoch)
            self.history.add(event)

    def _halt_dead(self, row_numbers: RowNumbers) -> None:
        """Block the topics that have offline replicas in the rows `row_numbers`."""
        rows = self.cluster.table.rows(row_numbers)
        dead = deletion.dead(rows, self.cluster.staying)
        for number in np.unique(rows.topic[some(dead)]).tolist():
            here = dead & (rows.topic == number)
            brokers = tuple(np.unique(rows.replicas[here]).tolist())
            partitions = tuple(sorted(rows.partition[some(here)].tolist()))
            name = self.cluster.table.topic_at(number).name
            self._halt(name, DeletionBlocker(BlockerReason.OFFLINE_REPLICAS, brokers, partitions))

    def _halt_reassigned(self, topics: Iterable[str]) -> None:
        # Not topics with a started deletion: their reassignments no longer run, so none would remove the blocker.
        moving = {name.topic for name in self.cluster.reassigning} - self.cluster.deletion_started
        self.mark_ineligible(moving.intersection(topics), BlockerReason.REASSIGNMENT)

    def _led_moves(self, topic: str) -> tuple[int, ...]:
        """Returns the partitions of a topic with a reassignment that can complete.

        Those without a leader cannot: no leader is elected for a queued topic, so no replica would be copied.
        """
        moving = [name for name in self.cluster.reassigning if name.topic == topic]
        rows = self.cluster.table.rows(self.cluster.table.rows_named(moving))
        return tuple(sorted(rows.partition[rows.leader != NO_LEADER].tolist()))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows_of(self, topics: Iterable[str]) -> RowNumbers:
        """Returns the rows of some topics, topic by topic; none for an unknown topic."""
        table = self.cluster.table
        return table.rows_of_all(topic for name in topics if (topic := table.topic(name)) is not None)

    def _led(self, topic: str) -> Ints:
        row_numbers = self._rows_of([topic])
        table = self.cluster.table
        led: Ints = table.column("partition")[row_numbers[table.column("leader_epoch")[row_numbers] != NO_EPOCH]]
        return led

    def _topics_of(self, row_numbers: RowNumbers) -> set[str]:
        numbers = np.unique(self.cluster.table.column("topic")[row_numbers])
        return {self.cluster.table.topic_at(number).name for number in numbers.tolist()}
