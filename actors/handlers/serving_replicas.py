"""Replicas that a broker could not serve and serves again, without a restart of the broker.

A participant's application may fail once and succeed when the same request arrives again. Its first response has
stopped the replica meanwhile, so the replica is started anew. Kafka's brokers serve a replica whose directory has
failed only after a restart.
"""

import numpy as np

from kactl.messages.events import Event, ReplicasServe
from kactl.model import ReplicaState, TopicPartition
from kactl.state.rows import RowNumbers, common

from .base import ControllerContext, Handler, Handlers
from .deletion import Deletion
from .reassignments import Reassignments
from .stopped_replicas import StoppedReplicas


class ServingReplicas(Handlers):
    """Starts replicas again that have failed."""

    def __init__(
        self, context: ControllerContext, stopped: StoppedReplicas, *, deletion: Deletion, reassignments: Reassignments
    ) -> None:
        super().__init__(context)
        self._stopped = stopped
        self._deletion = deletion
        self._reassignments = reassignments
        # Replicas without an error in their last response, by broker, until they are started again.
        self._answered: dict[int, dict[TopicPartition, None]] = {}

    def handlers(self) -> dict[type[Event], Handler]:
        return {ReplicasServe: self.on_replicas_serve}

    def answered(self, broker: int, serving: RowNumbers, failed: RowNumbers) -> None:
        """Queue the start of replicas that count as failed and answered without an error; forget those that failed."""
        names = self._answered.setdefault(broker, {})
        names |= dict.fromkeys(self.cluster.table.names(serving))
        for name in self.cluster.table.names(failed):
            names.pop(name, None)
        if not names:
            del self._answered[broker]
        elif len(serving):
            self.context.enqueue(ReplicasServe(broker, self.cluster.brokers[broker].epoch))

    async def on_replicas_serve(self, event: ReplicasServe) -> None:
        registered = self.cluster.brokers.get(event.broker)
        if registered is not None and registered.epoch == event.broker_epoch:
            rows = self.cluster.table.rows_named(self._answered.get(event.broker, {}))
            await self.serve(event.broker, np.sort(rows))
        self._answered.pop(event.broker, None)

    async def serve(self, broker: int, row_numbers: RowNumbers) -> None:
        """Use replicas again although their directory, or application, counts as failed.

        Raises:
            StoreError: their leader epochs could not be written; they count as failed as before.
        """
        table = self.cluster.table
        row_numbers = common(row_numbers, table.dirs_offline(broker))
        if not len(row_numbers):
            return
        ids = frozenset({broker})
        await self._stopped.raise_epochs(broker, table.not_queued(row_numbers))
        table.mark_dirs(broker, row_numbers, False)
        await self.move_many_replicas(
            row_numbers,
            ReplicaState.ONLINE,
            ids,
            wanted=lambda rows: np.setdiff1d(rows, table.dirs_offline(broker)),  # one may have failed again
        )
        await self.elect_offline()
        await self._reassignments.resume_on(ids)
        await self._deletion.resume_on(ids)
