"""Machine actor of replicas: moves them, removes failed ones from ISRs, and sends brokers the requests that follow.

Every move but the one to OFFLINE is made for all replicas of a call at once. The move to OFFLINE is made broker by
broker, in ascending order: each removes its broker from the ISR that the one before left, under its own leader epoch.

A large move is made in chunks of partitions; see `chunks`.

Source: the classic controller's ZkReplicaStateMachine.
"""

import dataclasses
import functools

import numpy as np

from kactl.clock import Clock
from kactl.errors import StoreError
from kactl.machines import replica
from kactl.model import ReplicaState
from kactl.runtime.logs import logger
from kactl.state.change import Change, Refusal
from kactl.state.cluster import Cluster
from kactl.state.rows import Bools, BrokerSet, Bytes, Rows, holds, some
from kactl.stores.base import Store
from kactl.telemetry.event_log import History

from .chunks import WHOLE
from .commit import Attempt
from .machine import Machine
from .messages import MoveReplicas
from .outbox import Outbox

log = logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Leaving:
    """The replicas of one broker that go OFFLINE.

    Attributes:
        rows: all of them, as they were; those of which no leadership is known are `unknown`, bool[n].
        illegal: those that may not make the move.
        first: the first attempt to commit the ISRs of the others.
    """

    broker: int
    rows: Rows
    unknown: Bools
    illegal: Rows
    first: Attempt


@dataclasses.dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk after its first write: the first broker has left the stored ISRs. Nothing is applied yet.

    Attributes:
        count: number of its rows.
        going: its rows whose deletion has begun, for which nothing is written; `message` has the others.
    """

    count: int
    message: MoveReplicas
    going: MoveReplicas | None = None
    brokers: tuple[int, ...] = ()
    first: _Leaving | None = None


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
        history: History,
        *,
        chunk: int = WHOLE,
        clock: Clock | None = None,
    ) -> None:
        super().__init__("replicas", cluster, store, outbox, history, chunk=chunk, clock=clock)

    async def receive(self, message: MoveReplicas) -> int:
        """Make a move. After the store has failed a whole call, the rest is not tried and is marked for a retry.

        Returns:
            The number of rows that are done, from the first on: all, unless a small event waits.

        Raises:
            ControllerMoved: a later controller exists; nothing was sent but what was committed before.
        """
        count, done = len(message.at), 0
        if not count:
            return 0
        failures = self.committer.failures
        try:
            async with self._chunks(message, functools.partial(self._write, message), whole=message.whole) as written:
                async for chunk in written:
                    await self._settle(chunk)
                    done += chunk.count
        except StoreError as failed:
            log.error("moving replicas of %d partitions to %s failed: %s", count, message.target.name, failed)
            return count
        if done == count or self.committer.failures == failures:
            return done
        self.cluster.mark_for_retry(message.at[done:])
        log.error(
            "moving replicas of %d partitions to %s is not tried, since the store has failed for those before",
            count - done, message.target.name,
        )  # fmt: skip
        return count

    async def _write(self, message: MoveReplicas, part: slice) -> _Chunk:
        """Plan a chunk, and write it for the first of its brokers."""
        message = message.part(part)
        count = len(message.at)
        if message.target != ReplicaState.OFFLINE:
            return _Chunk(count, message)
        going, message = self._parted(message)
        brokers = message.brokers
        if brokers is None:
            rows = self.cluster.table.rows(message.at)
            brokers = frozenset(np.unique(rows.replicas[_named(rows, message)]).tolist())
        ascending = tuple(sorted(brokers))
        first = await self._leave(message, ascending[0]) if ascending and len(message.at) else None
        return _Chunk(count, message, going, ascending, first)

    async def _settle(self, chunk: _Chunk) -> None:
        """Apply a chunk, write it for the other brokers, and gather the requests that follow."""
        if chunk.message.target != ReplicaState.OFFLINE:
            self._move(chunk.message)
        if chunk.going is not None:
            self._move_going(chunk.going)
        if chunk.first is not None:
            await self._broker_offline(chunk.first)
            for broker in chunk.brokers[1:]:
                await self._broker_offline(await self._leave(chunk.message, broker))

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

    def _parted(self, message: MoveReplicas) -> tuple[MoveReplicas | None, MoveReplicas]:
        """Divide a move into the partitions whose deletion has begun, None if there are none, and the others."""
        if not self.cluster.deletion_started:
            return None, message
        begun = replica.begun(self.cluster.table.rows(message.at))
        return (message.part(begun), message.part(~begun)) if begun.any() else (None, message)

    def _move_going(self, message: MoveReplicas) -> None:
        """Move the replicas of partitions whose deletion has begun, of all brokers at once.

        Nothing is written for them: no broker is sent their leadership any more, and the next controller reads the
        deletion mark first.
        """
        rows = self.cluster.table.rows(message.at)
        if not rows.has_leadership.all():
            # As below: no leadership is known that could be sent, but brokers receive whatever else is known.
            self.batch.update_metadata(self.cluster.brokers)
        self._move(message, rows)

    async def _leave(self, message: MoveReplicas, broker: int) -> _Leaving:
        """Take a broker out of the ISRs, in the store; one attempt."""
        rows = self.cluster.table.rows(message.at)
        rows = rows.take(some(_named(rows, message) & holds(rows, broker)))
        legal = replica.legal_offline(rows, broker)
        illegal, rows = rows.take(~legal), rows.take(legal)
        unknown = ~rows.has_leadership
        plan = functools.partial(self._plan, broker)
        return _Leaving(broker, rows, unknown, illegal, await self.committer.attempt(rows.take(~unknown), plan))

    async def _broker_offline(self, leaving: _Leaving) -> None:
        """Move the replicas on one broker to OFFLINE and gather the requests that follow."""
        rows, broker = leaving.rows, leaving.broker
        self._refused_rows(leaving.illegal, Refusal.ILLEGAL_MOVE)
        # With the epoch from before the ISR is shrunk.
        self.batch.stop(rows, holds(rows, broker), delete=False)
        if leaving.unknown.any():
            self._offline(await self._plan(broker, rows.take(leaving.unknown)), broker)
            # No leadership is known that could be sent, but brokers receive whatever else is known.
            self.batch.update_metadata(self.cluster.brokers)
        rows, plan = leaving.first.change.rows, functools.partial(self._plan, broker)
        async for settled in self.committer.commit_until_settled(rows, plan, first=leaving.first):
            self._offline(settled.change, broker)
            refused = settled.refused
            # The last rows of a topic whose deletion is nearly complete have no leadership; that is no failure.
            refused = refused.take((refused.refusal != Refusal.NO_LEADERSHIP) | ~refused.rows.queued)
            for reason in np.unique(refused.refusal).tolist():
                self._refused_rows(refused.rows.take(refused.refusal == reason), Refusal(reason))

    async def _plan(self, broker: int, rows: Rows) -> Change:
        return replica.go_offline(rows, broker, controller_epoch=self.cluster.fence.epoch)

    def _offline(self, change: Change, broker: int) -> None:
        """Apply committed rows, and gather the requests to the other replicas."""
        if not len(change):
            return
        self._apply(change, holds(change.rows, broker), ReplicaState.OFFLINE)
        if change.writes.any():
            self._record_leadership(change)
        told = change.rows.has_leadership & ~change.rows.queued
        if told.any():
            change = change if told.all() else change.take(told)
            self.batch.lead_and_follow(change.after(), change.notify)

    # -- common to both ------------------------------------------------------------------------------------------------

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
        # A replica that is still to be stopped must not serve again; only a new one may become assigned.
        left_over = rows.replica_state == ReplicaState.NEW
    if len(message.brokers) == 1:
        # A comparison is cheaper than a lookup.
        (broker,) = message.brokers
        here = holds(rows, broker)
    else:
        here = BrokerSet(message.brokers)[rows.replicas]
    held: Bools = here & (rows.assigned | left_over)
    return held
