"""Replicas that become offline because a broker or a log directory failed.

Source: the classic controller's onReplicasBecomeOffline.
"""

import numpy as np

from kactl.actors.machines.machine import Move
from kactl.decide.machines.partition import has_lost_its_leader
from kactl.decide.state.rows import RowNumbers, Rows, common, holds
from kactl.model import PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import StoreError
from kactl.runtime.logs import logger

from .base import ControllerContext, Handlers
from .deletion import Deletion
from .leader_epochs import LeaderEpochs
from .ownership import Ownership

log = logger(__name__)


class StoppedReplicas(Handlers):
    """Replicas that were stopped on brokers which shut down, are drained, or reported a failure.

    A broker does not start a replica under the leader epoch of its stop: a delayed request is no newer than the stop. A
    replica that leaves the ISR is stopped under the epoch before; one that is not in the ISR is stopped under the
    present epoch, which is raised here before the replica serves again.
    """

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


class Offline(Handlers):
    """Elects leaders in place of offline replicas and removes these from the ISRs."""

    def __init__(
        self, context: ControllerContext, deletion: Deletion, stopped: StoppedReplicas, ownership: Ownership
    ) -> None:
        super().__init__(context)
        self._ownership = ownership
        self._deletion = deletion
        self._stopped = stopped
        # Replicas whose failure is noted, but has had no effect yet because of an error, by broker.
        self._unfinished: dict[int, set[TopicPartition]] = {}

    async def directories_failed(self, broker: int, row_numbers: RowNumbers) -> None:
        """Take replicas offline that a broker cannot serve: their directories, or applications, have failed.

        Replicas that are offline for that reason already are left out, unless an error has ended the call for them.
        After an error the rows are marked for a retry: the report of the failure may not be repeated.
        """
        table = self.cluster.table
        marked = table.dirs_offline(broker)
        fresh = np.setdiff1d(row_numbers, marked)
        if len(fresh):
            # Those of shards are tried again for as long as their handlers fail; their reports have a line.
            if count := len(fresh) - len(table.owned(fresh)):
                log.warning(
                    "broker %d: %d replicas do not serve: a directory or application failed, or it resigned",
                    broker, count,
                )  # fmt: skip
            table.mark_dirs(broker, fresh, True)
            self.history.add(self.broker_event("directory-failed", broker))
        unfinished = table.rows_known(sorted(self._unfinished.get(broker, ())))
        due = np.union1d(fresh, common(np.unique(row_numbers), np.unique(unfinished)))
        if not len(due):
            return
        try:
            await self.replicas_offline(due, frozenset({broker}))
        except Exception:
            self._unfinished.setdefault(broker, set()).update(table.names(due))
            self.cluster.mark_for_retry(due)
            raise

    async def replicas_offline(self, row_numbers: RowNumbers, brokers: frozenset[int]) -> None:
        """Elect new leaders for partitions that the replicas led, then remove the replicas from the ISRs.

        Replicas of topics queued for deletion stay in their ISRs; their deletion fails for now.
        """
        table = self.cluster.table
        await self._ownership.settle()
        if len(owned := table.owned(row_numbers)):
            # Other participants have most of them now.
            row_numbers = np.setdiff1d(row_numbers, np.setdiff1d(owned, table.with_replica_on(brokers)))
        staying = table.not_queued(row_numbers)
        lost = table.led_by_none_of(self.cluster.staying)
        await self.move_many(Move(lost, PartitionState.OFFLINE, wanted=has_lost_its_leader))
        moved = await self.elect_offline()
        for broker in sorted(brokers & self.cluster.brokers.keys()):
            self._stopped.add(broker, table.rows(staying))

        def offline(rows: RowNumbers) -> RowNumbers:
            return self._still_offline(rows, brokers)

        await self.move_many_replicas(staying, ReplicaState.OFFLINE, brokers, wanted=offline)
        await self._deletion.fail_replica_deletion(offline(row_numbers), brokers)
        if not len(staying) and not moved.elected.any():
            # No request was sent that contains the live brokers.
            self.tell_brokers(self.cluster.brokers)
        for broker in brokers & self._unfinished.keys():
            self._unfinished[broker].difference_update(table.names(row_numbers))

    def _still_offline(self, row_numbers: RowNumbers, brokers: frozenset[int]) -> RowNumbers:
        """Returns the rows without those whose replicas serve again. All of the brokers are registered, or none.

        A participant may have reported so in a small event meanwhile. That report is handled, and is not repeated.
        """
        failed = [self.cluster.table.dirs_offline(broker) for broker in brokers & self.cluster.brokers.keys()]
        return common(row_numbers, np.unique(np.concatenate(failed))) if failed else row_numbers
