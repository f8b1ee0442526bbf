"""New leader epochs for partitions whose leader stays.

A Kafka broker ignores a LeaderAndIsr under the leader epoch that it knows. Under the next one it starts a replica that
was stopped, and a leader gives up an ISR that it has proposed.
"""

from collections.abc import Callable

import numpy as np

from kactl.actors.machines.commit import Committer
from kactl.decide.machines.reassignment import raise_epoch
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.rows import Bools, Rows

from .base import ControllerContext, Handlers


class LeaderEpochs(Handlers):
    """Writes leader epochs and sends them to the replicas."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._committer = Committer(context.cluster, context.store, context.history)

    async def raise_all(self, rows: Rows, receive: Callable[[Rows], Bools]) -> bool:
        """Raise the leader epochs of n rows, and send them to the replicas `receive`, bool[W, n] of the rows after it.

        Returns False if some could not be written.
        """
        table, written = self.cluster.table, True

        async def plan(rows: Rows) -> Change:
            return raise_epoch(rows, np.ones(len(rows), np.bool_), controller_epoch=self.epoch)

        if not len(rows):
            return True
        async for _, change in self._committer.commit_until_settled(rows, plan):
            committed = change.take(change.refusal == Refusal.NONE)
            self.cluster.apply(committed)
            self.history.add_partitions(committed, table.refs, controller_epoch=self.epoch)
            self.batch.begin()
            after = committed.after()
            self.batch.lead_and_follow(after, receive(after))
            self.channels.send(self.batch.flush())
            written &= not (change.refusal == Refusal.STORE_FAILED).any()
        return written
