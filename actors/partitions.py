"""The machine actor of partitions: moves them, elects their leaders, and has brokers told.

    plan → commit → apply → gather → flush; what the store refused is read and planned again.

Source: the classic controller's ZkPartitionStateMachine.
"""

import logging

import numpy as np

from kactl.batch import RequestBatch
from kactl.cluster import Cluster
from kactl.election import Election, nobody_in_sync_online
from kactl.errors import StoreError
from kactl.history import History
from kactl.machines import partition
from kactl.model import PartitionState
from kactl.rows import Bools, Bytes, Change, Refusal, Rows, choose
from kactl.store import Store

from .actor import Actor
from .ledger import ROUNDS_MAX, Ledger
from .messages import Move, Moved
from .outbox import Outbox

log = logging.getLogger(__name__)


class Partitions(Actor[Move]):
    """See the module.

    Args:
        unclean_default: whether topics that say nothing allow unclean elections, unless the store says otherwise.

    Attributes:
        unclean_own: this instance's own setting.
        unclean_stored: what the store says for all brokers, which wins; None if it says nothing.
    """

    def __init__(
        self, cluster: Cluster, store: Store, outbox: Outbox, history: History, *, unclean_default: bool = False
    ) -> None:
        super().__init__("partitions")
        self.cluster = cluster
        self.store = store
        self.outbox = outbox
        self.history = history
        self.unclean_own = unclean_default
        self.unclean_stored: bool | None = None
        self.ledger = Ledger(cluster, store)
        self.batch = RequestBatch(cluster)
        self.unclean_elections = 0  # decisions, not writes: one that is planned again counts again

    @property
    def unclean_default(self) -> bool:
        """Whether topics that say nothing allow unclean elections."""
        return self.unclean_own if self.unclean_stored is None else self.unclean_stored

    async def receive(self, message: Move) -> Moved:
        """Make a move. Where the store has ended our session all rows have failed, and nothing was sent.

        Raises:
            ControllerMoved: a later controller exists; nothing was sent.
        """
        rows = self.cluster.table.rows(message.at)
        if not len(rows):
            return Moved(message.at, np.zeros(0, np.uint8), np.zeros(0, np.bool_))
        self.batch.begin()
        try:
            if message.target == PartitionState.ONLINE:
                moved = await self._go_online(rows, message.election)
            else:
                moved = self._move(rows, message.target)
            self.outbox.send(self.batch.flush())
        except StoreError as failed:
            log.error("moving %d partitions to %s failed: %s", len(rows), message.target.name, failed)
            elections = (rows.state == PartitionState.ONLINE) | (rows.state == PartitionState.OFFLINE)
            return Moved(message.at, np.full(len(rows), Refusal.STORE_FAILED, np.uint8), elections, failed)
        finally:
            # Whatever ended the call, the next one begins with an empty batch.
            self.batch.clear()
        return moved

    def _move(self, rows: Rows, target: PartitionState) -> Moved:
        change = partition.move(rows, target)
        self._apply(change.take(change.refusal == Refusal.NONE))
        self._refused(change.take(change.refusal != Refusal.NONE), target)
        return Moved(rows.at, change.refusal, np.zeros(len(rows), np.bool_))

    async def _go_online(self, rows: Rows, election: Election | None) -> Moved:
        new = rows.state == PartitionState.NEW
        electable = (rows.state == PartitionState.ONLINE) | (rows.state == PartitionState.OFFLINE)
        refusal = np.full(len(rows), Refusal.ILLEGAL_MOVE, np.uint8)
        self._refused(
            Change.of(rows.take(~new & ~electable), refusal=refusal[~new & ~electable]), PartitionState.ONLINE
        )
        if new.any():
            refusal[new] = await self._initialize(rows.take(new))
        if not electable.any():
            return Moved(rows.at, refusal, electable)
        if election is None:
            error = StoreError("an election was asked for without saying which")
            log.error("moving %d partitions online failed: %s", int(np.count_nonzero(electable)), error)
            refusal[electable] = Refusal.STORE_FAILED
            return Moved(rows.at, refusal, electable, error)
        refusal[electable] = await self._elect(rows.take(electable), election)
        return Moved(rows.at, refusal, electable)

    async def _initialize(self, rows: Rows) -> Bytes:
        """First leaders. Where a state is stored already the partition stays NEW until a controller loads it.

        Unless we wrote it ourselves, and were not told.
        """
        change = partition.initialize(rows, self.cluster.now, controller_epoch=self.cluster.fence.epoch)
        settled = await self.ledger.commit(change)
        refusal = change.refusal.copy()
        refusal[settled.conflict] = Refusal.STATE_EXISTS
        refusal[settled.failed] = Refusal.STORE_FAILED
        kept = settled.change
        self._online(kept.take(kept.writes), is_new=True)
        ours = settled.conflict & self.ledger.unsure(rows)
        if ours.any():
            refusal[ours] = await self._adopt(rows.take(ours))
        self._refused(Change.of(rows, refusal=refusal).take(refusal != Refusal.NONE), PartitionState.ONLINE)
        return refusal

    async def _adopt(self, rows: Rows) -> Bytes:
        """A first leader stands that we may have written ourselves: an answer was lost. If we did, it is one."""
        read, _ = await self.ledger.read_again(rows)
        mine = read.has_leadership & (read.controller_epoch == self.cluster.fence.epoch)
        read = read.take(mine)
        self.ledger.sure(read)
        state = partition.begin(read, self.cluster.now).state
        # As it was read: all of it is news to the table.
        change = Change.of(read, state=state, leader=read.leader.copy())
        led = state == PartitionState.ONLINE
        # Also those who have come since.
        notify = read.assigned & read.online(self.cluster.now.registered)
        self._online(change.take(led).replace(notify=notify[:, led]), is_new=True)
        self._apply(change.take(~led))
        refusal: Bytes = choose(mine, np.uint8(Refusal.NONE), np.uint8(Refusal.STATE_EXISTS))
        if not led.all():
            # Its leader has died since.
            orphans = self.cluster.table.rows(read.at[~led])
            refusal[np.flatnonzero(mine)[~led]] = await self._elect(orphans, Election.OFFLINE)
        return refusal

    async def _elect(self, rows: Rows, election: Election) -> Bytes:
        """Elections, in rounds: rows that the store refuses are read and elected again from what stands there.

        So are rows for which nobody is found, if they were not read before: a leader may have let somebody into the
        ISR, and died before we heard of it.
        """
        refusal = np.zeros(len(rows), np.uint8)
        waiting = np.arange(len(rows))
        read = ~rows.has_leadership
        if read.any():
            rows, refusal = await self._read_again(rows, read, refusal)
            waiting = np.flatnonzero(refusal == Refusal.NONE)
        pending, read = rows.take(waiting), read[waiting]
        for _ in range(ROUNDS_MAX):
            if not len(waiting):
                break
            unclean, unreadable = await self._permissions(pending, election)
            change = partition.elect(
                pending, election, self.cluster.now, unclean=unclean, controller_epoch=self.cluster.fence.epoch
            )
            self.unclean_elections += int(np.count_nonzero(change.unclean))
            settled = await self.ledger.commit(change)
            result = change.refusal.copy()
            result[unreadable & (result == Refusal.NO_ELIGIBLE_LEADER)] = Refusal.CONFIG_UNREADABLE
            result[settled.failed] = Refusal.STORE_FAILED
            refusal[waiting] = result
            kept = settled.change
            self._online(kept.take(kept.writes), is_new=False)
            doubtful = (change.refusal == Refusal.NO_ELIGIBLE_LEADER) & ~read
            again = settled.conflict | doubtful
            self._refused(Change.of(pending, refusal=result).take(~again & (result != 0)), PartitionState.ONLINE)
            if not again.any():
                return refusal
            waiting, known, result = waiting[again], pending.partition_epoch[again], result[again]
            pending, why = await self._read_again(
                pending.take(again), np.ones(len(waiting), np.bool_), np.zeros(len(waiting), np.uint8)
            )
            confirmed = doubtful[again] & (why == Refusal.NONE) & (pending.partition_epoch == known)
            why = choose(confirmed, result, why)
            self._refused(Change.of(pending, refusal=why).take(confirmed), PartitionState.ONLINE)
            refusal[waiting] = why
            waiting, pending = waiting[why == Refusal.NONE], pending.take(why == Refusal.NONE)
            read = np.ones(len(waiting), np.bool_)
            if len(waiting):
                log.info("%d partitions changed behind our back; electing leaders (%s) for them again",
                         len(waiting), election.value)  # fmt: skip
        refusal[waiting] = Refusal.STORE_FAILED
        self._refused(Change.of(pending, refusal=refusal[waiting]), PartitionState.ONLINE)
        return refusal

    async def _read_again(self, rows: Rows, which: Bools, refusal: Bytes) -> tuple[Rows, Bytes]:
        """All rows, those of `which` with what is stored now; refusals of those that cannot go on are logged."""
        read, refused = await self.ledger.read_again(rows if which.all() else rows.take(which))
        refusal = refusal.copy()
        refusal[which] = refused
        self._refused(Change.of(read, refusal=refused).take(refused != Refusal.NONE), PartitionState.ONLINE)
        if which.all():
            return read, refusal
        # The others are gathered anew: a stored broker may have widened the table's slots.
        merged = self.cluster.table.rows(rows.at)
        for name in ("leader", "leader_epoch", "in_sync", "partition_epoch", "controller_epoch", "recovering"):
            getattr(merged, name)[..., which] = getattr(read, name)
        return merged, refusal

    async def _permissions(self, rows: Rows, election: Election) -> tuple[Bools, Bools]:
        """Where an unclean election is allowed, and where that could not be read: bool[n] twice."""
        unclean = np.zeros(len(rows), np.bool_)
        unreadable = np.zeros(len(rows), np.bool_)
        if election not in (Election.OFFLINE, Election.UNCLEAN):
            return unclean, unreadable
        wanting = nobody_in_sync_online(rows, self.cluster.now)
        if election is Election.UNCLEAN:
            return wanting, unreadable
        numbers = np.unique(rows.topic[wanting]).tolist()
        if not numbers:
            return unclean, unreadable
        names = {number: self.cluster.table.topic_at(number).name for number in numbers}
        try:
            configs = await self.store.topic_configs(sorted(names.values()))
        except StoreError as failed:
            log.error("the configuration of %d topics could not be read: %s", len(names), failed)
            configs = dict.fromkeys(names.values())
        for number, name in names.items():
            here = wanting & (rows.topic == number)
            config = configs.get(name)
            if config is None:
                unreadable |= here
                continue
            text = config.get("unclean.leader.election.enable")
            allowed = self.unclean_default if text is None else text.strip().lower() == "true"
            unclean |= here & allowed
        return unclean, unreadable

    def _online(self, change: Change, *, is_new: bool) -> None:
        """Take over what the store has kept, and gather who is to be told."""
        if not len(change):
            return
        self._apply(change)
        self.batch.lead_and_follow(change.after(), change.notify, is_new=is_new)

    def _apply(self, change: Change) -> None:
        self.cluster.apply(change)
        self._record(change)

    def _refused(self, change: Change, target: PartitionState) -> None:
        """Say of each partition why it stays where it is."""
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
