"""Machine actor of partitions: moves them, elects their leaders, and sends brokers the requests that follow.

    plan → commit → apply → gather → send; rows that the store rejects are reloaded and planned again

Each chunk of a large move goes this way; see `machine`.

Source: the classic controller's ZkPartitionStateMachine.
"""

import functools
import logging

import numpy as np

from kactl.decide.machines import partition
from kactl.decide.machines.election import Election
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bytes, RowNumbers, Rows, choose
from kactl.model import PartitionState
from kactl.model.errors import StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Store
from kactl.telemetry.event_log import FIRST, EventLog

from ..priority_inbox import NEVER, Preemption
from .commit import CommitResult, TopicEntries
from .machine import WHOLE, Machine, Move, MoveResult, Outbox
from .topic_settings import Unclean

log = logger(__name__)


class Partitions(Machine[Move]):
    """Moves partitions on request of the controller.

    Args:
        unclean_default: whether unclean elections are allowed for topics without a setting, while the store has none
            for all brokers.
        chunk: number of rows of a large move that are planned and written at once.

    Attributes:
        unclean: whether replicas that are not in sync may be elected.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        outbox: Outbox,
        history: EventLog,
        *,
        unclean_default: bool = False,
        chunk: int = WHOLE,
        clock: Clock | None = None,
        preemption: Preemption = NEVER,
    ) -> None:
        super().__init__("partitions", cluster, store, outbox, history, chunk=chunk, clock=clock, preemption=preemption)
        self.unclean = Unclean(cluster, store, own=unclean_default)
        self.entries = TopicEntries(cluster, store)
        self.unclean_elections = 0  # decisions, not writes: one that is planned again counts again

    async def receive(self, message: Move) -> MoveResult:
        """Make a move.

        Rows that were not committed when the store ended the session have failed, and nothing was sent for them. After
        the store has failed a whole call, the rest is not tried and is marked for a retry.

        Raises:
            ControllerMoved: a later controller exists; only chunks that were committed before were sent.
        """
        rows, target, done = message.rows, message.target, 0
        refusal, elected = np.full(len(rows), Refusal.STORE_FAILED, np.uint8), np.zeros(len(rows), np.bool_)
        if not len(rows):
            return MoveResult(rows, refusal, elected)
        failures, error = self.committer.failures, None
        try:
            if target == PartitionState.ONLINE:
                await self.entries.settle(rows)
            async with self._chunks(message, functools.partial(self._first_attempt, message)) as chunks:
                async for part, wanted, first in chunks:
                    planned, reasons = first.change.rows, np.zeros(len(wanted), np.uint8)
                    settling = self.committer.commit_until_settled(planned, self._plan, message, first=first)
                    async for positions, change in settling:
                        reasons[positions] = change.refusal
                        exists = change.refusal == Refusal.STATE_EXISTS
                        committed = self._apply(change.take(~exists), target, message.election)
                        self._enqueue(committed, _strategy_of(committed, target, message.election))
                        if exists.any():
                            reasons[positions[exists]] = await self._adopt(change.rows.take(exists))
                    refusal[part], done = Refusal.NONE, part.stop
                    refusal[wanted] = reasons
                    if target == PartitionState.ONLINE:
                        elected[wanted] = (reasons == Refusal.NONE) & partition.electable(planned)
        except StoreError as failed:
            error = failed
        if error is None and self.committer.failures == failures:
            return MoveResult(rows[:done], refusal[:done], elected[:done])
        self._give_up(rows[done:], f"partitions to {target.name}", error)
        return MoveResult(rows, refusal, elected, error)

    async def _first_attempt(self, message: Move, part: slice) -> tuple[slice, RowNumbers, CommitResult]:
        """Plan and commit a chunk, once. Returns also the positions of its rows that still want the move."""
        rows, positions = self.cluster.table.rows(message.rows[part]), np.arange(part.start, part.stop)
        if message.wanted is not None:
            wanted = message.wanted(rows, self.cluster)
            rows, positions = rows.take(wanted), positions[wanted]
        return part, positions, await self.committer.attempt(rows, self._plan, message)

    async def _plan(self, rows: Rows, move: Move) -> Change:
        """Plan a move of some rows, with the topics' present settings for unclean elections."""
        election = move.election
        if move.target != PartitionState.ONLINE:
            return partition.move(rows, move.target)
        unclean, unreadable = await self.unclean.allowed(rows, election)
        epoch = self.cluster.fence.epoch
        change = partition.go_online(rows, election, self.cluster.live_brokers, unclean=unclean, controller_epoch=epoch)
        if self.cluster.assignments_unsure:
            unsure = self.entries.is_unsure(rows.index)
            change = change.refuse(unsure, Refusal.STORE_FAILED)
        self.unclean_elections += int(np.count_nonzero(change.unclean))
        if not unreadable.any():
            return change
        without = unreadable & (change.refusal == Refusal.NO_ELIGIBLE_LEADER)
        return change.replace(refusal=choose(without, np.uint8(Refusal.CONFIG_UNREADABLE), change.refusal))

    async def _adopt(self, read: Rows) -> Bytes:
        """Adopt stored leadership of NEW partitions; elect another leader where the stored one is offline.

        Only a controller writes a first leader. One under the present epoch is therefore our own: the response was
        lost. Leadership that a handler has read since is in the table; only its state is missing. Other partitions stay
        NEW until a controller loads them.

        Returns:
            uint8[n] of Refusal; STATE_EXISTS for partitions that stay NEW.
        """
        known = self.cluster.table.rows(read.index)
        mine = known.has_leadership | (read.controller_epoch == self.cluster.fence.epoch)
        refusal: Bytes = choose(mine, np.uint8(Refusal.NONE), np.uint8(Refusal.STATE_EXISTS))
        self._apply(Change.of(known, refusal=refusal).take(~mine), PartitionState.ONLINE)
        change = partition.adopt(read.take(mine), self.cluster.staying, self.cluster.live_brokers.registered)
        adopted = self._apply(change, PartitionState.ONLINE)
        self._enqueue(adopted)
        orphans = np.flatnonzero(mine)[adopted.state == PartitionState.OFFLINE]
        if len(orphans):
            rows = self.cluster.table.rows(read.index[orphans])
            electing = Move(rows.index, PartitionState.ONLINE, Election.OFFLINE)
            async for positions, change in self.committer.commit_until_settled(rows, self._plan, electing):
                refusal[orphans[positions]] = change.refusal
                self._enqueue(self._apply(change, PartitionState.ONLINE), Election.OFFLINE.value)
        return refusal

    def _apply(self, change: Change, target: PartitionState, election: Election | None = None) -> Change:
        """Apply and record rows that are settled. Returns those that are not refused."""
        accepted = change.refusal == Refusal.NONE
        committed = change.take(accepted)
        refs, epoch = self.cluster.table.refs, self.cluster.fence.epoch
        with self.history.current.apply:
            self.cluster.apply(committed)
            strategy = _strategy_of(committed, target, election)
            self.history.add_partitions(change, refs, controller_epoch=epoch, strategy=strategy)
            self.history.record_leaders(committed, target, strategy)
        if len(committed) < len(change):
            refused = change.take(~accepted)
            name = next(iter(self.cluster.table.names(refused.rows.index[:1])))
            reason = Refusal(int(refused.refusal[0])).name
            # The end of the last broker is known by now, and as a rule it is meant.
            level = logging.WARNING if self.cluster.live_brokers.electable else logging.INFO
            because = self._count_refused(refused.rows.state, target)
            if len(self.cluster.table.owned(refused.rows.index[:1])):
                # A handler that fails everywhere has its shard refused, and owned again; its reports have a line.
                level = logging.DEBUG
            first = f"{name}: {reason}{because}"
            log.log(level, "%d partitions cannot become %s; the first: %s", len(refused), target.name, first)
        return committed

    def _enqueue(self, committed: Change, strategy: str = "") -> None:
        """Gather the requests to the replicas of partitions that have a leader."""
        with self.history.current.encode:
            led = committed.take(committed.state == PartitionState.ONLINE)
            is_new = led.rows.state == PartitionState.NEW
            # Written by this controller, as the first leadership of all.
            first = is_new & (led.leader_epoch == 0) & (led.controller_epoch == self.cluster.fence.epoch)
            self.batch.lead_and_follow(
                led.after(), led.notify, is_new=is_new, first=first, previous=led.rows.leader, strategy=strategy
            )


def _strategy_of(change: Change, target: PartitionState, election: Election | None) -> str:
    """Returns the name of the strategy; FIRST if none of the partitions had a leader before; empty without one."""
    if target != PartitionState.ONLINE:
        return ""
    if election is None or (len(change) and (change.rows.state == PartitionState.NEW).all()):
        return FIRST
    return election.value
