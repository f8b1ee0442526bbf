"""Leader epochs under which brokers that stay registered were sent StopReplica, and their use again.

A broker does not start a replica under the leader epoch of its stop: a delayed request is no newer than the stop. A
replica that leaves the ISR is stopped under the epoch before; one that is not in the ISR is stopped under the present
epoch, which is raised here before the replica serves again.
"""

import numpy as np

from kactl.decide.state.rows import RowNumbers, Rows, holds
from kactl.model import TopicPartition
from kactl.model.errors import StoreError

from .base import ControllerContext, Handlers
from .leader_epochs import LeaderEpochs


class StoppedReplicas(Handlers):
    """Replicas that were stopped on brokers which shut down, are drained, or reported a failure."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._leader_epochs = LeaderEpochs(context)
        self._epochs: dict[int, dict[TopicPartition, int]] = {}

    def add(self, broker: int, rows: Rows) -> None:
        """Remember the leader epochs of rows whose replica on a broker is about to be stopped."""
        names = self.cluster.table.names(rows.index)
        self._epochs.setdefault(broker, {}).update(zip(names, rows.leader_epoch.tolist(), strict=True))

    def forget(self, broker: int) -> None:
        """Forget the stops of a registration that has ended."""
        self._epochs.pop(broker, None)

    async def raise_epochs(self, broker: int, row_numbers: RowNumbers) -> None:
        """Raise the leader epochs that are still those of the StopReplica, and send them to the other replicas.

        That is where the broker was not in the ISR, or where the smaller ISR could not be written. The caller sends
        the broker itself its replicas.

        Raises:
            StoreError: some epochs could not be written.
        """
        stopped = self._epochs.get(broker, {})
        table = self.cluster.table
        epochs = table.column("leader_epoch")[row_numbers].tolist()
        same = [stopped.get(name) == epoch for name, epoch in zip(table.names(row_numbers), epochs, strict=True)]
        rows = table.rows(row_numbers[np.array(same, np.bool_)])
        if not await self._leader_epochs.raise_all(rows, lambda after: after.assigned & ~holds(after, broker)):
            raise StoreError(f"broker {broker} cannot serve again: leader epochs could not be written")
