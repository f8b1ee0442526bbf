"""Partition expansion: by a request, or by a tool that writes the store. Topics being deleted are not expanded.

Source: the classic controller's processPartitionModifications, and the admin tools' adding of partitions.
"""

import dataclasses
import functools

import numpy as np

from kactl.decide.machines.placement import check_growth, check_room
from kactl.decide.messages.admin import AddPartitions
from kactl.decide.messages.events import Event, PartitionModifications, TopicChange
from kactl.decide.messages.log import TopicEvent
from kactl.decide.state.rows import some
from kactl.decide.state.table import NO_ROW, Topic
from kactl.model import NO_BROKER, Assignment, TopicPartition
from kactl.model.errors import BeingDeleted, NotFound
from kactl.runtime.logs import logger
from kactl.runtime.threads import run_in_thread
from kactl.stores.base import Assignments, Names

from .base import ControllerContext, Handler, Handlers
from .topics import CHECKED_AT_ONCE_MAX, TopicEvents, bounded

log = logger(__name__)


class Growth(Handlers):
    """Adds partitions to topics.

    Args:
        topics: creates new partitions.
    """

    def __init__(self, context: ControllerContext, topics: TopicEvents) -> None:
        super().__init__(context)
        self._topics = topics

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            PartitionModifications: self.on_partition_modifications,
            AddPartitions: self.on_add_partitions,
        }

    async def on_partition_modifications(self, event: PartitionModifications) -> None:
        """Create partitions that were added to the stored assignment. Other changes of the assignment are ignored.

        The topic may be another one of that name, of which the controller has yet to learn: brokers would start its
        replicas under the id of the deleted topic.
        """
        try:
            await self._create_added(event)
        except Exception:
            # The next attempt would not find partitions that are in the table by now.
            self.context.enqueue(TopicChange())
            raise

    async def _create_added(self, event: PartitionModifications) -> None:
        loaded = bounded(await self.store.assignments([event.topic]))
        if deleted := self.store.take_deleted_topics():
            await self._topics.follow(deleted)
            if event.topic in deleted:
                return
        topic = self.cluster.table.topic(event.topic)
        if not loaded.topics:
            return
        if topic is None:
            # It could not be read when it was created.
            if event.topic not in self.cluster.topics_to_delete:
                await self._topics.create([event.topic])
            return
        if topic.ref.id != loaded.topics[0].id and (deleted := await self._replaced()):
            await self._topics.follow(deleted)
            if event.topic in deleted:
                return
        ref = await self._topics.ids.follow(topic, loaded.topics[0])
        added = self._added(dataclasses.replace(loaded, topics=(ref,)))
        if not len(added):
            return
        if event.topic in self.cluster.topics_to_delete:
            log.warning(
                "topic %s is being deleted; the %d partitions added to it are not created", event.topic, len(added)
            )
            await self._write_back(topic)
            return
        self.context.requests.read_back("partitions", [event.topic], self.history.current)
        self.cluster.put_assignments(added)
        self.history.add(TopicEvent(what="grown", topic=event.topic, controller_epoch=self.epoch))
        await self._topics.create_partitions(added)

    async def _replaced(self) -> frozenset[str]:
        """Returns the topics that were deleted since they were read, with all that happened before this call."""
        await self.store.topics()
        return self.store.take_deleted_topics()

    def _added(self, loaded: Assignments) -> Assignments:
        """Returns the partitions that are unknown, or had no replicas until now."""
        table = self.cluster.table
        rows = table.rows_at(Names(loaded.topics, loaded.topic, loaded.partition))
        was_empty = np.zeros(len(rows), np.bool_)
        known = rows != NO_ROW
        was_empty[known] = ~some(table.rows(rows[known]).assigned)
        return loaded.take(~known | (was_empty & some(loaded.replicas != NO_BROKER)))

    async def _write_back(self, topic: Topic) -> None:
        """Remove added partitions from the stored assignment of a topic that is being deleted."""
        begun = await self.store.partitions_begun(topic.name)
        known = {number: self.cluster.assignment(TopicPartition(topic.name, number)) for number in begun}
        assignments = {number: assignment for number, assignment in known.items() if assignment.replicas}
        if topic.ref.is_ownership:
            assignments = {number: Assignment() for number in begun}  # its owners are not stored as replicas
        try:
            await self.store.write_assignment(topic.ref, assignments, self.cluster.fence)
        except NotFound:
            log.info("topic %s was deleted meanwhile", topic.name)

    async def on_add_partitions(self, event: AddPartitions) -> None:
        known = self.cluster.table.topic(event.topic)
        if known is None:
            raise NotFound("topic", event.topic)
        if event.topic in self.cluster.topics_to_delete:
            raise BeingDeleted(event.topic)
        more = event.count - len(self.cluster.table.rows_of(known))
        check_room(self.cluster, max(more, 0), self.settings.partitions_max)
        check = functools.partial(check_growth, is_ownership=known.ref.is_ownership)
        if event.dry_run:
            outline = self._outline(known)
            if len(event.assignment or ()) > CHECKED_AT_ONCE_MAX:
                # In a thread, so that the event loop is not held.
                await run_in_thread(check, event, outline, self.cluster)
            else:
                check(event, outline, self.cluster)
            return
        stored = await self.store.assignments([event.topic])
        if not stored.topics:
            raise NotFound("topic", event.topic)
        assignments: dict[int, Assignment] = {name.partition: assignment for name, assignment in stored.items()}
        added = check(event, assignments, self.cluster)
        # Fenced: a later controller may have written an assignment that this one has not read.
        await self.store.write_assignment(known.ref, assignments | added, self.cluster.fence)
        self.context.requests.written("partitions", event.topic, self.history.current)

    def _outline(self, topic: Topic) -> dict[int, Assignment]:
        """Returns those assignments of a topic that a growth depends on: the first, the last, and one that moves."""
        table = self.cluster.table
        row_numbers = np.asarray(table.rows_of(topic))
        moving = some((table.column("adding") | table.column("removing"))[:, row_numbers])
        chosen = [row_numbers[:1], row_numbers[-1:], row_numbers[moving][:1]]
        return {name.partition: self.cluster.assignment(name) for name in table.names(np.concatenate(chosen))}
