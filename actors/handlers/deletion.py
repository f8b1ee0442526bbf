"""Topics are deleted: their partitions stop, every broker deletes its replicas, and then nothing is stored any more.

    marked ──▶ queued ──▶ started ──▶ all replicas deleted ──▶ gone, the mark last

A topic that waits for its deletion is nobody's business any more but this one's: no leader is elected for it, nothing
is created or moved. What could not be deleted is tried again when a broker starts that holds it (`resume_on`), when a
reassignment of it completes (`resume_for`), and by the next controller, who begins with every replica anew.

Source: the classic controller's TopicDeletionManager and processTopicDeletion. Unlike there, a topic of which
partitions are being reassigned is marked so after it was queued, which is what lets the mark hold.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final

import numpy as np

from kactl.actors.machines.messages import Move, MoveReplicas
from kactl.errors import Remedy, StoreError
from kactl.machines import deletion
from kactl.messages.events import DeletionsChanged, TopicsChanged
from kactl.messages.log import TopicEvent
from kactl.model import NO_EPOCH, NO_LEADER, PartitionState, ReplicaState
from kactl.runtime.logs import logger
from kactl.state.deletion_blockers import BlockerReason, DeletionBlocker
from kactl.state.rows import Bools, Ints, RowNumbers, holds, some

from .base import ControllerContext, Handlers
from .timers import Timers

log = logger(__name__)

# When a topic is looked at again that the store failed to delete.
DELETE_AGAIN_MS: Final = 10_000
# The store is given about as many partitions at a time: what it lays out for them takes the loop a few ms, and what it
# fails to answer has to be looked at again.
PARTITIONS_AT_ONCE: Final = 5_000


class Deletion(Handlers):
    """See the module. What it knows of topics stands in the cluster, and goes with the controllership.

    Args:
        timers: bring back a topic that the store failed to delete.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers

    # -- what comes in and goes ----------------------------------------------------------------------------------------

    async def init(self, marked: Collection[str]) -> None:
        """Begin with the marks that are stored, before the machines start; topics that are gone are queued, too."""
        if not self.settings.delete_topics:
            await self.unmark(marked, "deleting topics is switched off")
            return
        self.cluster.queue_deletion(marked)
        at = self._rows_of(sorted(marked))
        self._halt_dead(at)
        self._halt_reassigned(marked)

    async def unmark(self, topics: Collection[str], reason: str) -> None:
        """Take away marks without deleting anything."""
        if topics:
            await self.store.unmark_deletions(topics, self.cluster.fence)
            log.warning("the marks of %d topics for deletion were taken away, %s: %s",
                        len(topics), reason, ", ".join(sorted(topics)[:5]))  # fmt: skip

    async def enqueue(self, topics: Collection[str]) -> None:
        """Queue topics, those that are queued already too; then go on with whatever can go on."""
        fresh = sorted(set(topics) - self.cluster.topics_to_delete)
        if fresh:
            log.info("%d topics are to be deleted: %s", len(fresh), ", ".join(fresh[:5]))
        self.cluster.queue_deletion(topics)
        self._halt_reassigned(topics)
        await self.resume()

    async def vanished(self, topics: Collection[str]) -> None:
        """Topics that waited for their deletion are gone from the store, by somebody else's hand or by our own.

        What else is stored of them goes now: overrides and the mark.
        """
        unknown_outcomes = self.cluster.deletion_unsure.intersection(topics)
        self.forget_topics(topics)
        self.cluster.deletion_unsure |= unknown_outcomes
        await self.enqueue(topics)

    # -- what halts, and what does so no longer ------------------------------------------------------------------------

    async def resume_for(self, topics: Iterable[str]) -> None:
        """What halted some topics is over; nothing happens if none of them waits for its deletion."""
        queued = self.cluster.topics_to_delete.intersection(topics)
        if queued:
            self.cluster.lift_blockers(queued)
            await self.resume()

    async def resume_on(self, brokers: frozenset[int]) -> None:
        """Brokers have started: go on with the topics of which they hold replicas."""
        await self.resume_for(self._topics_of(self.cluster.table.queued(self.cluster.table.with_replica_on(brokers))))

    async def send_again(self, broker: int) -> None:
        """Orders to a broker were dropped before it answered: let the replicas be tried again."""
        at = self.cluster.table.queued(self.cluster.table.with_replica_on([broker]))
        rows = self.cluster.table.rows(at)
        waiting = holds(rows, broker) & (rows.replica_state == ReplicaState.DELETION_STARTED)
        if waiting.any():
            await self._move(at, waiting, ReplicaState.DELETION_INELIGIBLE)
            await self.resume()

    def mark_ineligible(
        self,
        topics: Iterable[str],
        reason: BlockerReason,
        *,
        brokers: tuple[int, ...] = (),
        partitions: tuple[int, ...] = (),
        error: int = 0,
    ) -> None:
        """Halt the deletion of those of some topics that wait for it. See `DeletionBlocker` for the arguments."""
        for name in sorted(self.cluster.topics_to_delete.intersection(topics)):
            if reason is BlockerReason.REASSIGNMENT and not partitions:
                moving = self._led_moves(name)
                if moving:
                    self._halt(name, DeletionBlocker(reason, brokers, moving, error))
            else:
                self._halt(name, DeletionBlocker(reason, brokers, partitions, error))

    async def fail_replica_deletion(self, at: RowNumbers, brokers: frozenset[int], *, error: int = 0) -> None:
        """Replicas on some brokers could not be deleted, or cannot be now; those of other topics are passed over."""
        at = self.cluster.table.queued(at)
        if not len(at):
            return
        await self.move_replicas(at, ReplicaState.DELETION_INELIGIBLE, brokers)
        rows = self.cluster.table.rows(at)
        for number in np.unique(rows.topic).tolist():
            partitions = tuple(sorted(rows.partition[rows.topic == number].tolist()))
            name = self.cluster.table.topic_at(number).name
            self._halt(name, DeletionBlocker(BlockerReason.REPLICA_FAILED, tuple(sorted(brokers)), partitions, error))
        await self.resume()

    async def complete_replica_deletion(self, at: RowNumbers, brokers: frozenset[int]) -> None:
        """Replicas on some brokers are deleted; those of other topics are passed over."""
        at = self.cluster.table.queued(at)
        await self.move_replicas(at, ReplicaState.DELETION_SUCCESSFUL, brokers)
        await self.resume(self._topics_of(at))

    # -- going on ------------------------------------------------------------------------------------------------------

    async def resume(self, topics: Set[str] | None = None) -> None:
        """Go on with the topics that wait for their deletion, as far as each can go.

        Args:
            topics: the only ones of which anything has changed; None if that may be any.
        """
        names = sorted(self.cluster.topics_to_delete if topics is None else topics & self.cluster.topics_to_delete)
        if not names:
            return
        table = self.cluster.table
        at, topic = table.rows_by_topic(names)
        assigned, replica_state = table.column("assigned")[:, at], table.column("replica_state")[:, at]
        halted = np.array([name in self.cluster.deletion_ineligible for name in names], np.bool_)
        due = deletion.due(topic, assigned, replica_state, halted=halted)
        ineligible = assigned & (replica_state == ReplicaState.DELETION_INELIGIBLE) & due.retry[topic]
        if due.complete.any():
            await self._complete([names[position] for position in np.flatnonzero(due.complete).tolist()])
        if ineligible.any():
            await self._move(at, ineligible, ReplicaState.OFFLINE)
        starting = [names[position] for position in np.flatnonzero(due.start).tolist()]
        if starting:
            await self._start(starting)

    async def _start(self, topics: list[str]) -> None:
        """Stop the partitions of topics, and have every replica deleted that can be and is not.

        Nothing is written before brokers delete what nobody can bring back, so that it has to be seen first that we
        are still the one to say so. Where the store does not tell, the topics wait.
        """
        try:
            await self.store.check(self.cluster.fence)
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            log.warning("the deletion of %d topics is begun later: %s", len(topics), failed)
            self._timers.set(DeletionsChanged(), DELETE_AGAIN_MS)
            return
        cluster, table = self.cluster, self.cluster.table
        fresh = [name for name in topics if name not in cluster.deletion_started]
        begun = self._rows_of(fresh)
        # Before they count as started, so that partitions which were offline stop counting as such.
        await self.partitions.ask(Move(begun, PartitionState.OFFLINE))
        await self.partitions.ask(Move(begun, PartitionState.ABSENT))
        cluster.begin_deletion(fresh)
        for name in fresh:
            self.history.add(TopicEvent(what="deletion started", topic=name, controller_epoch=self.epoch))
        at = self._rows_of(topics)
        rows = table.rows(at)
        self.batch.begin()
        self.batch.update_metadata(cluster.brokers, rows)
        self.channels.send(self.batch.flush())
        deletable = cluster.deletable
        reachable = deletion.to_delete(rows, deletable)
        await self._move(at, deletion.dead(rows, deletable), ReplicaState.DELETION_INELIGIBLE)
        await self._move(at, reachable, ReplicaState.OFFLINE)
        await self._move(at, reachable, ReplicaState.DELETION_STARTED)
        self._halt_dead(at)

    async def _complete(self, topics: list[str]) -> None:
        """All replicas of some topics are deleted: let the store forget these, and then ourselves.

        The replicas go first, so that nobody takes them for something if the store fails and this is done again.
        """
        at = self._rows_of(topics)
        await self._move(at, self.cluster.table.rows(at).assigned, ReplicaState.ABSENT)
        for some_topics in self._parted(topics):
            failed = await self._delete_stored(some_topics)
            for topic, error in failed.items():
                log.warning("topic %s could not be deleted from the store, and will be again: %s", topic, error)
            if failed:
                self.cluster.deletion_unsure |= failed.keys()
                self._timers.set(DeletionsChanged(), DELETE_AGAIN_MS)
            deleted = [topic for topic in some_topics if topic not in failed]
            self.forget_topics(deleted)
            for topic in deleted:
                self.history.add(TopicEvent(what="deleted", topic=topic, controller_epoch=self.epoch))
            if deleted:
                log.info("%d topics are deleted: %s", len(deleted), ", ".join(deleted[:5]))

    async def _delete_stored(self, topics: list[str]) -> Mapping[str, StoreError]:
        """Delete topics from the store; why some of them may be there still.

        Not one that was made anew after an attempt of which we do not know.

        Raises:
            StoreError: it was the end of our controllership.
        """
        unknown_outcomes = self.cluster.deletion_unsure.intersection(topics)
        try:
            if unknown_outcomes:
                # The mark goes last: all went well where it is gone. If there is such a topic, it is another one.
                unknown_outcomes -= set(await self.store.deletions())
            if unknown_outcomes:
                self.context.enqueue(TopicsChanged())
            stored = {topic: self._led(topic) for topic in topics if topic not in unknown_outcomes}
            return await self.store.delete_topics(stored, self.cluster.fence) if stored else {}
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            return dict.fromkeys(topics, failed)

    def _parted(self, topics: list[str]) -> Iterator[list[str]]:
        """Some topics, in order, in parts of about PARTITIONS_AT_ONCE; one that has more is a part for itself."""
        part: list[str] = []
        partitions = 0
        for topic in topics:
            known = self.cluster.table.topic(topic)
            # One that is gone already is as much work as one of a partition.
            count = 1 if known is None else max(1, len(known.rows))
            if part and partitions + count > PARTITIONS_AT_ONCE:
                yield part
                part, partitions = [], 0
            part.append(topic)
            partitions += count
        if part:
            yield part

    # -- halts ---------------------------------------------------------------------------------------------------------

    def _halt(self, topic: str, halt: DeletionBlocker) -> None:
        if self.cluster.halt_deletion(topic, halt):
            remedy = halt.remedy(self.cluster.shutting_down - self.cluster.drained)
            log.info("the deletion of topic %s halts, %s: %s", topic, halt.text, remedy)
            event = TopicEvent(what="deletion halted", topic=topic, cause=halt.text, controller_epoch=self.epoch)
            self.history.add(event)

    def _halt_dead(self, at: RowNumbers) -> None:
        """Halt the topics that have replicas in the rows `at` which are not online."""
        rows = self.cluster.table.rows(at)
        dead = deletion.dead(rows, self.cluster.deletable)
        for number in np.unique(rows.topic[some(dead)]).tolist():
            here = dead & (rows.topic == number)
            brokers = tuple(np.unique(rows.replicas[here]).tolist())
            partitions = tuple(sorted(rows.partition[some(here)].tolist()))
            name = self.cluster.table.topic_at(number).name
            self._halt(name, DeletionBlocker(BlockerReason.OFFLINE_REPLICAS, brokers, partitions))

    def _halt_reassigned(self, topics: Iterable[str]) -> None:
        # Not those that have begun to go: nothing is moved there any more, and so no end of it would lift the halt.
        moving = {each.topic for each in self.cluster.reassigning} - self.cluster.deletion_started
        self.mark_ineligible(moving.intersection(topics), BlockerReason.REASSIGNMENT)

    def _led_moves(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic whose reassignment is worth waiting for.

        Not those without a leader: nobody is elected for a topic that is to go, and so nothing would ever be copied.
        """
        moving = [name for name in self.cluster.reassigning if name.topic == topic]
        rows = self.cluster.table.rows(self.cluster.table.rows_named(moving))
        return tuple(sorted(rows.partition[rows.leader != NO_LEADER].tolist()))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows_of(self, topics: Iterable[str]) -> RowNumbers:
        """The rows of some topics, one topic after the other; none of one that is unknown."""
        table = self.cluster.table
        return table.rows_of_all(topic for name in topics if (topic := table.topic(name)) is not None)

    def _led(self, topic: str) -> Ints:
        """The partitions of a topic that have leadership, as far as we know."""
        at = self._rows_of([topic])
        table = self.cluster.table
        led: Ints = table.column("partition")[at[table.column("leader_epoch")[at] != NO_EPOCH]]
        return led

    def _topics_of(self, at: RowNumbers) -> set[str]:
        numbers = np.unique(self.cluster.table.column("topic")[at])
        return {self.cluster.table.topic_at(number).name for number in numbers.tolist()}

    async def _move(self, at: RowNumbers, which: Bools, target: ReplicaState) -> None:
        moving = some(which)
        await self.replicas.ask(MoveReplicas(at[moving], target, which=which[:, moving]))
