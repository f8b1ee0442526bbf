"""Handlers of deletion marks, deletion requests and responses to StopReplica.

Source: the classic controller's processTopicDeletion, processTopicDeletionStopReplicaResponseReceived.
"""

import numpy as np

from kactl.decide.messages.admin import DeleteTopic
from kactl.decide.messages.control import Shorts
from kactl.decide.messages.events import Event, TopicDeletion, TopicDeletionStopReplicaResponseReceived
from kactl.decide.state.rows import RowNumbers
from kactl.decide.state.table import NO_ROW
from kactl.model import NO_EPOCH, TopicRef
from kactl.model.errors import BeingDeleted, ErrorCode, NotFound, TopicDeletionDisabled
from kactl.runtime.logs import logger
from kactl.stores.base import Names

from .base import ControllerContext, Handler, Handlers
from .deletion import Deletion

log = logger(__name__)


class DeletionEvents(Handlers):
    """Queues topics for deletion and records which replicas brokers have deleted."""

    def __init__(self, context: ControllerContext, deletion: Deletion) -> None:
        super().__init__(context)
        self._deletion = deletion

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            TopicDeletion: self.on_topic_deletion,
            TopicDeletionStopReplicaResponseReceived: self.on_topic_deletion_stop_replica_response_received,
            DeleteTopic: self.on_delete_topic,
        }

    async def on_topic_deletion(self, event: TopicDeletion) -> None:
        marked = await self.store.deletions()
        if not self.settings.delete_topics:
            await self._deletion.unmark(marked, "deleting topics is switched off")
            return
        cluster = self.cluster
        unknown = [
            name for name in marked if cluster.table.topic(name) is None and name not in cluster.topics_to_delete
        ]
        if unknown:
            # A topic that could not be read when it was created, or was created just now, is deleted like any other.
            unknown = sorted(set(unknown) - set(await self.store.topics()))
            await self._deletion.unmark(unknown, "the topics do not exist")
        deleted = set(marked) - set(unknown)
        self.context.requests.read_back("deletion", deleted - cluster.topics_to_delete, self.history.current)
        await self._deletion.enqueue(deleted)

    async def on_topic_deletion_stop_replica_response_received(
        self, event: TopicDeletionStopReplicaResponseReceived
    ) -> None:
        table, response, broker = self.cluster.table, event.response, event.broker
        registered = self.cluster.brokers.get(broker)
        if registered is None or registered.epoch != event.broker_epoch:
            log.info("broker %d responded under registration %d, which has ended", broker, event.broker_epoch)
            return
        self._end_holds(event)
        answers = response.partitions
        row_numbers = table.rows_named_in(answers.topics, answers.topic, answers.partition)
        started = np.array([name in self.cluster.deletion_started for name in answers.topics], np.bool_)
        known = (row_numbers != NO_ROW) & started[answers.topic]
        row_numbers, errors = row_numbers[known], answers.error[known]
        if response.error:
            errors = np.full(len(row_numbers), response.error, np.int16)
        try:
            await self._note(broker, row_numbers, errors)
        except Exception:
            # The response is not handled again.
            self.cluster.deletion_unanswered.add(broker)
            self.context.enqueue(TopicDeletion())
            raise

    async def _note(self, broker: int, row_numbers: RowNumbers, errors: Shorts) -> None:
        """Note which replicas a broker has deleted, and which it could not delete. `errors`: int16[n], 0 for none."""
        for error in np.unique(errors[errors != 0]).tolist():
            failed = row_numbers[errors == error]
            log.warning("broker %d could not delete %d replicas: error %d", broker, len(failed), error)
            await self._deletion.fail_replica_deletion(failed, frozenset({broker}), error=error)
        if not errors.all():
            await self._deletion.complete_replica_deletion(row_numbers[errors == 0], frozenset({broker}))

    def _end_holds(self, event: TopicDeletionStopReplicaResponseReceived) -> None:
        """Note which leaderships have ended by a request to delete replicas of topics that are queued for deletion.

        They end before the response, and calls of handlers perhaps after it. A request that was sent after the topic
        had been queued ends leaderships of any epoch: it carries none, so that the participant reports no end, and no
        replica that was stopped is elected there again.
        """
        request, table, holds = event.request, self.cluster.table, self.cluster.holds
        if request is None or event.response.error or not holds.is_used:
            return
        answers = event.response.partitions
        fenced = answers.error == ErrorCode.FENCED_LEADER_EPOCH
        not_stopped = table.rows_named_in(answers.topics, answers.topic[fenced], answers.partition[fenced])
        rows = table.rows_at(Names(request.topics, request.topic, request.partition))
        known = (rows != NO_ROW) & request.delete & (request.leader_epoch != NO_EPOCH) & ~np.isin(rows, not_stopped)
        for number, ref in enumerate(request.topics):
            topic = table.topic(ref.name)
            if topic is None or topic.ref.id != ref.id or ref.name not in self.cluster.topics_to_delete:
                known &= request.topic != number
        holds.deleted(table.hold_columns(), rows[known], request.leader_epoch[known], event.broker)

    async def on_delete_topic(self, event: DeleteTopic) -> TopicRef:
        if not self.settings.delete_topics:
            raise TopicDeletionDisabled
        known = self.cluster.table.topic(event.topic)
        if event.topic in self.cluster.topics_to_delete:
            raise BeingDeleted(event.topic)
        if known is None and event.topic not in await self.store.topics():
            raise NotFound("topic", event.topic)
        if not event.dry_run:
            await self.store.mark_deletion(event.topic)
            self.context.requests.written("deletion", event.topic, self.history.current)
        return TopicRef(event.topic) if known is None else known.ref
