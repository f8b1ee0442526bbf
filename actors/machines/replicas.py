"""Machine actor of replicas: moves them, removes failed ones from ISRs, and sends brokers the requests that follow.

Every move but the one to OFFLINE is made for all replicas of a call at once. The move to OFFLINE is made broker by
broker, in ascending order: each removes its broker from the ISR that the one before left, under its own leader epoch.

A large move is made in chunks of partitions; see `machine`.

Source: the classic controller's ZkReplicaStateMachine.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from kactl.decide.machines import replica
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, BrokerSet, Bytes, Rows, holds, some
from kactl.model import ReplicaState
from kactl.model.errors import StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Store
from kactl.telemetry.event_log import EventLog

from ..priority_inbox import NEVER, Preemption
from .commit import CommitResult
from .machine import WHOLE, Machine, MoveReplicas, Outbox

log = logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk after its first write; nothing is applied yet.

    Attributes:
        moving: its rows for which nothing is written.
        leaving: the other ones: their brokers leave the ISRs, in ascending order.
        first: the commit for the first of `brokers`.
    """

    moving: MoveReplicas
    leaving: MoveReplicas
    brokers: Sequence[int] = ()
    first: CommitResult | None = None


class Replicas(Machine[MoveReplicas]):
    """Moves replicas on request of the controller. The end of the store session is logged and ends the call.

    Args:
        chunk: number of partitions of a large move that are planned and written at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        outbox: Outbox,
        history: EventLog,
        *,
        chunk: int = WHOLE,
        clock: Clock | None = None,
        preemption: Preemption = NEVER,
    ) -> None:
        super().__init__("replicas", cluster, store, outbox, history, chunk=chunk, clock=clock, preemption=preemption)

    async def receive(self, message: MoveReplicas) -> int:
        """Make a move. After the store has failed a whole call, the rest is not tried and is marked for a retry.

        Returns:
            The number of rows that are done, from the first on: all, unless a small event waits.

        Raises:
            ControllerMoved: a later controller exists; only chunks that were committed before were sent.
        """
        rows, done = message.rows, 0
        if not len(rows):
            return 0
        failures, error = self.committer.failures, None
        try:
            async with self._chunks(message, functools.partial(self._commit, message), whole=message.whole) as chunks:
                async for chunk in chunks:
                    self._move(chunk.moving)
                    first = chunk.first
                    for broker in chunk.brokers:
                        await self._leave(broker, first or await self._attempt(chunk.leaving, broker))
                        first = None
                    done += len(chunk.moving.rows) + len(chunk.leaving.rows)
        except StoreError as failed:
            error = failed
        if error is None and self.committer.failures == failures:
            return done
        self._give_up(rows[done:], f"partitions' replicas to {message.target.name}", error)
        return len(rows)

    async def _commit(self, message: MoveReplicas, part: slice) -> _Chunk:
        """Plan a chunk, and commit it for the first of its brokers."""
        message = message.part(part)
        if message.target != ReplicaState.OFFLINE:
            return _Chunk(message, message.part(slice(0)))
        moving, leaving = message.part(slice(0)), message
        if self.cluster.deletion_started:
            # Nothing is written for partitions with a begun deletion: no broker is sent their leadership any more,
            # and the next controller reads the deletion mark first.
            begun = replica.begun(self.cluster.table.rows(message.rows))
            moving, leaving = message.part(begun), message.part(~begun)
        if not len(leaving.rows):
            return _Chunk(moving, leaving)
        brokers = sorted(self._brokers(leaving) if leaving.brokers is None else leaving.brokers)
        first = await self._attempt(leaving, brokers[0]) if brokers else None
        return _Chunk(moving, leaving, brokers, first)

    def _brokers(self, message: MoveReplicas) -> list[int]:
        rows = self.cluster.table.rows(message.rows)
        brokers: list[int] = np.unique(rows.replicas[_named(rows, message)]).tolist()
        return brokers

    # -- moves that are not written ------------------------------------------------------------------------------------

    def _move(self, message: MoveReplicas) -> None:
        if not len(message.rows):
            return
        rows = self.cluster.table.rows(message.rows)
        which, target = _named(rows, message), message.target
        if target == ReplicaState.OFFLINE and not rows.has_leadership.all():
            # No leadership is known that could be sent, but brokers receive the rest.
            self.batch.update_metadata(self.cluster.brokers)
        planned = replica.plan(rows, which, target)
        self._apply(planned.change, planned.moved, target)
        self._refused(rows, planned.refused, target)
        if target in (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED):
            self.batch.stop(rows, planned.moved, delete=target == ReplicaState.DELETION_STARTED)
        change = planned.change.take(some(planned.change.notify))
        self.batch.lead_and_follow(change.after(), change.notify, is_new=target == ReplicaState.NEW)

    # -- leaving the ISR -----------------------------------------------------------------------------------------------

    async def _attempt(self, message: MoveReplicas, broker: int) -> CommitResult:
        """Take a broker out of the stored ISRs; one attempt."""
        rows = self.cluster.table.rows(message.rows)
        rows = rows.take(some(_named(rows, message) & holds(rows, broker)))
        return await self.committer.attempt(rows, self._plan, broker)

    async def _plan(self, rows: Rows, broker: int) -> Change:
        change = replica.go_offline(rows, broker, controller_epoch=self.cluster.fence.epoch)
        legal = replica.legal_offline(rows, broker)
        return change if legal.all() else change.refuse(~legal, Refusal.ILLEGAL_MOVE)

    async def _leave(self, broker: int, first: CommitResult) -> None:
        """Move the replicas on one broker to OFFLINE and gather the requests that follow."""
        rows = first.change.rows
        legal = rows.take(first.change.refusal != Refusal.ILLEGAL_MOVE)
        # With the epoch from before the ISR is shrunk.
        self.batch.stop(legal, holds(legal, broker), delete=False)
        if not legal.has_leadership.all():
            self.batch.update_metadata(self.cluster.brokers)
        async for _, change in self.committer.commit_until_settled(rows, self._plan, broker, first=first):
            accepted = change.refusal == Refusal.NONE
            committed = change.take(accepted)
            self._apply(committed, holds(committed.rows, broker), ReplicaState.OFFLINE)
            led = committed.take(committed.rows.has_leadership & ~committed.rows.queued)
            with self.history.current.encode:
                self.batch.lead_and_follow(led.after(), led.notify)
            self._log_refused(change.take(~accepted), broker)

    # -- common to both ------------------------------------------------------------------------------------------------

    def _apply(self, change: Change, moved: Bools, target: ReplicaState) -> None:
        """Apply and record a change that is committed, or needs no commit."""
        if not len(change):
            return
        refs, epoch = self.cluster.table.refs, self.cluster.fence.epoch
        with self.history.current.apply:
            self.cluster.apply(change)
            self.history.add_replicas(change.rows, moved, target, refs, controller_epoch=epoch)
            self.history.add_partitions(change, refs, controller_epoch=epoch, which=change.writes)
            self.history.record_leaders(change)

    def _refused(self, rows: Rows, refused: Bytes, target: ReplicaState) -> None:
        for reason in np.unique(refused[refused != Refusal.NONE]).tolist():
            refs, epoch, refusal = self.cluster.table.refs, self.cluster.fence.epoch, Refusal(reason)
            self.history.add_replicas(rows, refused == reason, target, refs, controller_epoch=epoch, refusal=refusal)
            slots, positions = np.nonzero(refused == reason)
            because = self._count_refused(rows.replica_state[slots, positions], target)
            log.warning(
                "%d replicas cannot become %s: %s; the first: %s on broker %d%s",
                len(slots), target.name, refusal.name, self._name(rows, int(positions[0])),
                rows.replicas[slots[0], positions[0]], because,
            )  # fmt: skip

    def _log_refused(self, change: Change, broker: int) -> None:
        # The last rows of a topic have no leadership when its deletion is nearly complete; that is no failure.
        change = change.take((change.refusal != Refusal.NO_LEADERSHIP) | ~change.rows.queued)
        refused = np.where(holds(change.rows, broker), change.refusal, np.uint8(Refusal.NONE))
        self._refused(change.rows, refused, ReplicaState.OFFLINE)

    def _name(self, rows: Rows, position: int) -> str:
        topic = self.cluster.table.topic_at(int(rows.topic[position])).name
        return f"{topic}-{rows.partition[position]}"


def _named(rows: Rows, message: MoveReplicas) -> Bools:
    """bool[W, n]: the replicas that are to move; those on `brokers` are assigned, or left over with a state."""
    if message.which is not None:
        return np.pad(message.which, ((0, len(rows.replicas) - len(message.which)), (0, 0)))
    if message.brokers is None:
        return rows.assigned
    left_over = rows.replica_state != ReplicaState.ABSENT
    if message.target == ReplicaState.ONLINE:
        # A replica that is still to be stopped must not serve again; only a new one may become assigned.
        left_over = rows.replica_state == ReplicaState.NEW
    if len(message.brokers) == 1:
        # A comparison is cheaper than a lookup.
        (broker,) = message.brokers
        on_brokers = holds(rows, broker)
    else:
        on_brokers = BrokerSet(message.brokers)[rows.replicas]
    named: Bools = on_brokers & (rows.assigned | left_over)
    return named
