"""The machine actor of replicas: moves them, takes dead ones out of ISRs, and has brokers told.

Every move but the one to OFFLINE is made for all replicas of a call at once. Going OFFLINE is done broker after broker,
ascending, since each takes its broker out of the ISR that the one before left, with an epoch of its own.

Source: the classic controller's ZkReplicaStateMachine.
"""

import logging

import numpy as np

from kactl.batch import RequestBatch
from kactl.cluster import Cluster
from kactl.errors import StoreError
from kactl.history import History
from kactl.machines import replica
from kactl.model import ReplicaState
from kactl.rows import Bools, Bytes, Change, Live, Refusal, Rows, holds, some
from kactl.store import Store

from .actor import Actor
from .ledger import ROUNDS_MAX, Ledger
from .messages import MoveReplicas
from .outbox import Outbox

log = logging.getLogger(__name__)


class Replicas(Actor[MoveReplicas]):
    """See the module. The end of our store session is logged and ends the call; nothing is sent then."""

    def __init__(self, cluster: Cluster, store: Store, outbox: Outbox, history: History) -> None:
        super().__init__("replicas")
        self.cluster = cluster
        self.outbox = outbox
        self.history = history
        self.ledger = Ledger(cluster, store)
        self.batch = RequestBatch(cluster)

    async def receive(self, message: MoveReplicas) -> None:
        """Make a move.

        Raises:
            ControllerMoved: a later controller exists; nothing was sent.
        """
        if not len(message.at):
            return
        self.batch.begin()
        try:
            if message.target == ReplicaState.OFFLINE:
                await self._go_offline(message)
            else:
                self._move(message)
            self.outbox.send(self.batch.flush())
        except StoreError as failed:
            log.error("moving replicas of %d partitions to %s failed: %s", len(message.at), message.target.name, failed)
        finally:
            # Whatever ended the call, the next one begins with an empty batch.
            self.batch.clear()

    # -- every move but one --------------------------------------------------------------------------------------------

    def _move(self, message: MoveReplicas, rows: Rows | None = None) -> None:
        rows = self.cluster.table.rows(message.at) if rows is None else rows
        which = _named(rows, message)
        planned = replica.plan(rows, which, message.target)
        self._apply(planned.change, planned.moved, message.target)
        self._refused(rows, planned.refused, message.target)
        if message.target in (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED):
            self.batch.stop(rows, planned.moved, delete=message.target == ReplicaState.DELETION_STARTED)
        told = some(planned.change.notify)
        if told.any():
            change = planned.change if told.all() else planned.change.take(told)
            self.batch.lead_and_follow(change.after(), change.notify, is_new=message.target == ReplicaState.NEW)

    # -- going offline -------------------------------------------------------------------------------------------------

    async def _go_offline(self, message: MoveReplicas) -> None:
        message = self._rest(message)
        brokers = message.brokers
        if brokers is None:
            rows = self.cluster.table.rows(message.at)
            brokers = frozenset(np.unique(rows.replicas[_named(rows, message)]).tolist())
        for broker in sorted(brokers):
            await self._broker_offline(message, broker)

    def _rest(self, message: MoveReplicas) -> MoveReplicas:
        """Move the replicas of partitions whose deletion has begun, of all brokers at once; what is left to move.

        Nothing is written for them: no broker is ever told what stands there, and a controller finds the mark first.
        """
        if not self.cluster.deletion_started:
            return message
        rows = self.cluster.table.rows(message.at)
        begun = replica.begun(rows)
        if not begun.any():
            return message
        going = rows.take(begun)
        if not going.has_leadership.all():
            # As below: there is nothing to say of them, but brokers are told whatever else is known.
            self.batch.update_metadata(self.cluster.brokers)
        self._move(message.part(begun), going)
        return message.part(~begun)

    async def _broker_offline(self, message: MoveReplicas, broker: int) -> None:
        rows = self.cluster.table.rows(message.at)
        rows = rows.take(some(_named(rows, message) & holds(rows, broker)))
        legal = replica.legal_offline(rows, broker)
        self._refused_rows(rows.take(~legal), Refusal.ILLEGAL_MOVE)
        rows = rows.take(legal)
        # With the epoch from before the ISR is shrunk.
        self.batch.stop(rows, holds(rows, broker), delete=False)
        unknown = ~rows.has_leadership
        if unknown.any():
            self._offline(self._plan(rows.take(unknown), broker), broker)
            # There is nothing to say of them, but brokers are told whatever else is known.
            self.batch.update_metadata(self.cluster.brokers)
        await self._leave_isr(rows.take(~unknown), broker)

    async def _leave_isr(self, rows: Rows, broker: int) -> None:
        """Take `broker` out of the ISRs, in rounds: rows that the store refuses are read and planned again."""
        for _ in range(ROUNDS_MAX):
            if not len(rows):
                return
            change = self._plan(rows, broker)
            settled = await self.ledger.commit(change)
            self._offline(settled.change, broker)
            self._refused_rows(rows.take(settled.failed), Refusal.STORE_FAILED)
            if not settled.conflict.any():
                return
            rows, refusal = await self.ledger.read_again(rows.take(settled.conflict))
            # Nothing stored is what one finds of a topic whose deletion is nearly done; no failure then.
            vanished = (refusal == Refusal.NO_LEADERSHIP) & rows.queued
            for reason in np.unique(refusal[(refusal != Refusal.NONE) & ~vanished]).tolist():
                self._refused_rows(rows.take((refusal == reason) & ~vanished), Refusal(reason))
            rows = rows.take(refusal == Refusal.NONE)
        self._refused_rows(rows, Refusal.STORE_FAILED)

    def _plan(self, rows: Rows, broker: int) -> Change:
        return replica.go_offline(rows, broker, controller_epoch=self.cluster.fence.epoch)

    def _offline(self, change: Change, broker: int) -> None:
        """Take over what the store has kept, and gather who is to be told."""
        if not len(change):
            return
        self._apply(change, holds(change.rows, broker), ReplicaState.OFFLINE)
        if change.writes.any():
            self._record_leadership(change)
        told = change.rows.has_leadership & ~change.rows.queued
        if told.any():
            change = change if told.all() else change.take(told)
            self.batch.lead_and_follow(change.after(), change.notify)

    # -- what both need ------------------------------------------------------------------------------------------------

    def _apply(self, change: Change, moved: Bools, target: ReplicaState) -> None:
        if not len(change):
            return
        self.cluster.apply(change)
        self.history.add_replicas(
            change.rows,
            moved,
            target,
            self.cluster.table.refs,
            controller_epoch=self.cluster.fence.epoch,
        )

    def _record_leadership(self, change: Change) -> None:
        epoch = self.cluster.fence.epoch
        self.history.add_partitions(change, self.cluster.table.refs, controller_epoch=epoch, which=change.writes)

    def _refused(self, rows: Rows, refused: Bytes, target: ReplicaState) -> None:
        for reason in np.unique(refused[refused != Refusal.NONE]).tolist():
            slots, positions = np.nonzero(refused == reason)
            log.warning(
                "%d replicas cannot become %s: %s; the first: %s on broker %d",
                len(slots), target.name, Refusal(reason).name, self._name(rows, int(positions[0])),
                rows.replicas[slots[0], positions[0]],
            )  # fmt: skip

    def _refused_rows(self, rows: Rows, reason: Refusal) -> None:
        if len(rows):
            log.warning(
                "%d replicas cannot become OFFLINE: %s; the first: %s", len(rows), reason.name, self._name(rows, 0)
            )

    def _name(self, rows: Rows, at: int) -> str:
        return f"{self.cluster.table.topic_at(int(rows.topic[at])).name}-{rows.partition[at]}"


def _named(rows: Rows, message: MoveReplicas) -> Bools:
    """bool[W, n]: the replicas that are to move; those on `brokers` are assigned, or left over with a state."""
    if message.which is not None:
        return np.pad(message.which, ((0, len(rows.replicas) - len(message.which)), (0, 0)))
    if message.brokers is None:
        return rows.assigned
    left_over = rows.replica_state != ReplicaState.ABSENT
    if message.target == ReplicaState.ONLINE:
        # What is still to be stopped is not to serve again; only what is new may come to be assigned.
        left_over = rows.replica_state == ReplicaState.NEW
    held: Bools = Live(message.brokers)[rows.replicas] & (rows.assigned | left_over)
    return held
