"""Machine actor of partitions: moves them, elects their leaders, and sends brokers the requests that follow.

    plan → commit → apply → gather → send; rows that the store rejects are reloaded and planned again

Each chunk of a large move goes this way; see `chunks`.

Source: the classic controller's ZkPartitionStateMachine.
"""

import dataclasses
import functools

import numpy as np

from kactl.clock import Clock
from kactl.errors import StoreError
from kactl.machines import partition
from kactl.machines.election import Election
from kactl.model import PartitionState
from kactl.runtime.logs import logger
from kactl.state.change import Change, Refusal
from kactl.state.cluster import Cluster
from kactl.state.rows import Bools, Bytes, RowNumbers, Rows, choose, some
from kactl.stores.base import Store
from kactl.telemetry.event_log import History

from .chunks import WHOLE
from .commit import Attempt
from .machine import Machine
from .messages import Move, Moved
from .outbox import Outbox
from .unclean import Unclean

log = logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk after its first write, if it could be planned without reading the store; nothing is applied yet.

    Attributes:
        at: the rows of the chunk.
        wanted: bool[n], which of them still want the move; `rows` are these.
        first: the commit of first leaders if all rows are new, or the first attempt of an election if all are to have
            one.
    """

    at: RowNumbers
    wanted: Bools
    rows: Rows
    first: Attempt | None = None


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
        history: History,
        *,
        unclean_default: bool = False,
        chunk: int = WHOLE,
        clock: Clock | None = None,
    ) -> None:
        super().__init__("partitions", cluster, store, outbox, history, chunk=chunk, clock=clock)
        self.unclean = Unclean(cluster, store, own=unclean_default)
        self.unclean_elections = 0  # decisions, not writes: one that is planned again counts again

    async def receive(self, message: Move) -> Moved:
        """Make a move.

        Rows that were not committed when the store ended the session have failed, and nothing was sent for them. After
        the store has failed a whole call, the rest is not tried and is marked for a retry.

        Raises:
            ControllerMoved: a later controller exists; nothing was sent but what was committed before.
        """
        if not len(message.at):
            return Moved(message.at, np.zeros(0, np.uint8), np.zeros(0, np.bool_))
        parts: list[Moved] = []
        failures, error = self.committer.failures, None
        try:
            async with self._chunks(message, functools.partial(self._write, message)) as written:
                async for chunk in written:
                    parts.append(await self._settle(chunk, message))
        except StoreError as failed:
            error = failed
        rest = message.rest(sum(len(part.at) for part in parts))
        if error is not None:
            parts.append(self._failed(rest, error))
        elif len(rest.at) and self.committer.failures > failures:
            self.cluster.mark_for_retry(rest.at)
            parts.append(self._failed(rest))
        return Moved.of(parts)

    def _failed(self, rest: Move, error: StoreError | None = None) -> Moved:
        """Returns the result for rows that were not tried or not committed, since the store failed."""
        reason = "the store has failed for those before" if error is None else error
        log.error("moving %d partitions to %s failed: %s", len(rest.at), rest.target.name, reason)
        state = self.cluster.table.rows(rest.at).state
        elections = (state == PartitionState.ONLINE) | (state == PartitionState.OFFLINE)
        return Moved(rest.at, np.full(len(rest.at), Refusal.STORE_FAILED, np.uint8), elections, error)

    async def _write(self, message: Move, part: slice) -> _Chunk:
        """Plan a chunk, and write it if that needs no read of leadership."""
        at = message.at[part]
        rows = self.cluster.table.rows(at)
        wanted = np.ones(len(rows), np.bool_) if message.wanted is None else message.wanted(rows)
        chunk = _Chunk(at, wanted, rows.take(wanted))
        rows = chunk.rows
        if message.target != PartitionState.ONLINE or not len(rows):
            return chunk
        if (rows.state == PartitionState.NEW).all():
            return dataclasses.replace(chunk, first=await self.committer.attempt(rows, self._plan_first))
        if message.election is not None and _electable(rows).all():
            plan = functools.partial(self._plan_election, message.election)
            return dataclasses.replace(chunk, first=await self.committer.attempt(rows, plan))
        return chunk

    async def _settle(self, chunk: _Chunk, message: Move) -> Moved:
        """Apply a chunk, retry its rejected rows, and gather the requests that follow."""
        if message.target == PartitionState.ONLINE:
            moved = await self._go_online(chunk, message.election)
        else:
            moved = self._move(chunk.rows, message.target)
        if chunk.wanted.all():
            return moved
        refusal, elections = np.zeros(len(chunk.at), np.uint8), np.zeros(len(chunk.at), np.bool_)
        refusal[chunk.wanted], elections[chunk.wanted] = moved.refusal, moved.elections
        return Moved(chunk.at, refusal, elections, moved.error)

    def _move(self, rows: Rows, target: PartitionState) -> Moved:
        change = partition.move(rows, target)
        self._apply(change.take(change.refusal == Refusal.NONE))
        self._refused(change.take(change.refusal != Refusal.NONE), target)
        return Moved(rows.index, change.refusal, np.zeros(len(rows), np.bool_))

    async def _go_online(self, chunk: _Chunk, election: Election | None) -> Moved:
        rows = chunk.rows
        new, electable = rows.state == PartitionState.NEW, _electable(rows)
        refusal = np.full(len(rows), Refusal.ILLEGAL_MOVE, np.uint8)
        self._refused(
            Change.of(rows.take(~new & ~electable), refusal=refusal[~new & ~electable]), PartitionState.ONLINE
        )
        if new.any():
            refusal[new] = await self._initialize(rows.take(new), chunk.first)
        if not electable.any():
            return Moved(rows.index, refusal, electable)
        if election is None:
            error = StoreError("an election was asked for without saying which")
            log.error("moving %d partitions online failed: %s", int(np.count_nonzero(electable)), error)
            refusal[electable] = Refusal.STORE_FAILED
            return Moved(rows.index, refusal, electable, error)
        refusal[electable] = await self._elect(rows.take(electable), election, chunk.first)
        return Moved(rows.index, refusal, electable)

    async def _plan_first(self, rows: Rows, *, replaces: bool = False) -> Change:
        epoch = self.cluster.fence.epoch
        return partition.initialize(rows, self.cluster.live_brokers, controller_epoch=epoch, replaces=replaces)

    def _settle_first(self, attempt: Attempt) -> Bytes:
        """Apply first leaders that were committed. Returns uint8[n] of Refusal; STATE_EXISTS for conflicts."""
        result = attempt.result
        self._online(result.change.take(result.change.writes), is_new=True)
        refusal = attempt.change.refusal.copy()
        refusal[result.conflict] = Refusal.STATE_EXISTS
        refusal[result.failed] = Refusal.STORE_FAILED
        return refusal

    async def _initialize(self, rows: Rows, attempt: Attempt | None = None) -> Bytes:
        """Commit first leaders. A partition whose leadership is stored already stays NEW until a controller loads it.

        Exceptions: leadership that this controller wrote without receiving the response, or has read since, is adopted;
        leadership that it wrote for a deleted topic of the same name is overwritten.
        """
        attempt = attempt or await self.committer.attempt(rows, self._plan_first)
        refusal = self._settle_first(attempt)
        exists = rows.has_leadership | attempt.result.conflict
        failed = ~exists & (refusal != Refusal.NONE)
        self._refused(Change.of(rows, refusal=refusal).take(failed), PartitionState.ONLINE)
        if exists.any():
            refusal[exists] = await self._adopt(rows.take(exists))
        return refusal

    async def _adopt(self, rows: Rows) -> Bytes:
        """Adopt stored leadership that this controller wrote, and overwrite what it wrote for an earlier topic.

        Only a controller writes a first leader. One under the present epoch is therefore our own: the response was
        lost, or the topic was deleted and created again meanwhile. Leadership that a handler has read since is in the
        table; only its state is missing.
        """
        read, reason = await self.committer.reload(rows)
        ours = (reason == Refusal.NONE) & (read.controller_epoch == self.cluster.fence.epoch)
        # Of an earlier topic of the same name: no assigned replica is in sync.
        earlier = ours & ~some(read.in_sync & read.assigned)
        mine = (reason == Refusal.NONE) & ~earlier & (rows.has_leadership | ours)
        refusal: Bytes = choose(mine, np.uint8(Refusal.NONE), np.uint8(Refusal.STATE_EXISTS))
        if earlier.any():
            refusal[earlier] = await self._replace(read.take(earlier))
        failed = ~mine & (refusal != Refusal.NONE)
        self._refused(Change.of(rows, refusal=refusal).take(failed), PartitionState.ONLINE)
        if mine.any():
            refusal[mine] = await self._adopt_read(read.take(mine))
        return refusal

    async def _replace(self, read: Rows) -> Bytes:
        """Overwrite leadership of an earlier topic of the same name, by compare-and-set on what was read."""
        return self._settle_first(
            await self.committer.attempt(read, functools.partial(self._plan_first, replaces=True))
        )

    async def _adopt_read(self, read: Rows) -> Bytes:
        """Apply leadership as it was read; elect another leader where this one is offline."""
        state = partition.begin(read, self.cluster.live_brokers).state
        # All columns as read; the table has none of them.
        change = Change.of(read, state=state, leader=read.leader.copy())
        led = state == PartitionState.ONLINE
        # Including brokers that have registered since.
        notify = read.assigned & read.online(self.cluster.live_brokers.registered)
        self._online(change.take(led).replace(notify=notify[:, led]), is_new=True)
        self._apply(change.take(~led))
        refusal = np.zeros(len(read), np.uint8)
        if not led.all():
            orphans = self.cluster.table.rows(read.index[~led])
            refusal[~led] = await self._elect(orphans, Election.OFFLINE)
        return refusal

    async def _plan_election(self, election: Election, rows: Rows) -> Change:
        """Plan an election, with the topics' present settings for unclean ones."""
        unclean, unreadable = await self.unclean.allowed(rows, election)
        change = partition.elect(
            rows, election, self.cluster.live_brokers, unclean=unclean, controller_epoch=self.cluster.fence.epoch
        )
        self.unclean_elections += int(np.count_nonzero(change.unclean))
        if not unreadable.any():
            return change
        without = unreadable & (change.refusal == Refusal.NO_ELIGIBLE_LEADER)
        return change.replace(refusal=choose(without, np.uint8(Refusal.CONFIG_UNREADABLE), change.refusal))

    async def _elect(self, rows: Rows, election: Election, first: Attempt | None = None) -> Bytes:
        """Elect leaders for some rows and gather the requests that follow. Returns uint8[n] of Refusal.

        Args:
            first: the first attempt, if it was made already.
        """
        refusal = np.zeros(len(rows), np.uint8)
        plan = functools.partial(self._plan_election, election)
        async for settled in self.committer.commit_until_settled(rows, plan, first=first):
            refusal[settled.index] = settled.refusal
            self._online(settled.change.take(settled.change.writes), is_new=False)
            self._refused(settled.refused, PartitionState.ONLINE)
        return refusal

    def _online(self, change: Change, *, is_new: bool) -> None:
        """Apply committed rows, and gather the requests to their replicas."""
        if not len(change):
            return
        self._apply(change)
        self.batch.lead_and_follow(change.after(), change.notify, is_new=is_new)

    def _apply(self, change: Change) -> None:
        self.cluster.apply(change)
        self._record(change)

    def _refused(self, change: Change, target: PartitionState) -> None:
        """Log and record why partitions keep their states."""
        if not len(change):
            return
        log.warning("%d partitions cannot become %s; the first: %s", len(change), target.name, self._explain(change))
        self._record(change)

    def _record(self, change: Change) -> None:
        if len(change):
            self.history.add_partitions(change, self.cluster.table.refs, controller_epoch=self.cluster.fence.epoch)

    def _explain(self, change: Change) -> str:
        rows = change.rows
        name = self.cluster.table.topic_at(int(rows.topic[0])).name
        return f"{name}-{rows.partition[0]}: {Refusal(int(change.refusal[0])).name}"


def _electable(rows: Rows) -> Bools:
    """bool[n]: which rows are brought ONLINE by an election."""
    electable: Bools = (rows.state == PartitionState.ONLINE) | (rows.state == PartitionState.OFFLINE)
    return electable
