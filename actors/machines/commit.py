"""How a machine's change becomes durable: committed by compare-and-set, and read again where it was refused.

Not an actor; each machine has one. Store first, memory second: nothing here touches the table, except that a broker
which the store names and the row has no slot for is given one.
"""

import dataclasses
from typing import Final

import numpy as np

from kactl.errors import Remedy, StoreError
from kactl.model import NO_VERSION
from kactl.runtime.logs import logger
from kactl.state.change import Change, Refusal
from kactl.state.cluster import Cluster
from kactl.state.rows import Bools, Bytes, Ints, RowNumbers, Rows, choose, members
from kactl.state.table import in_sync_of
from kactl.stores.base import Found, Outcome, Store, Write

log = logger(__name__)

# A row is planned again as often as it is refused. Leaders write an ISR a few times in a second at the worst, so that
# a row which is refused this often is not raced but broken.
ROUNDS_MAX: Final = 50


@dataclasses.dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of a change.

    Attributes:
        change: the rows that were kept, or needed no write, with the versions that the store gave them.
        kept, conflict, failed: bool[n] over the rows of the change that was committed; each row is in one of them.
    """

    change: Change
    kept: Bools
    conflict: Bools
    failed: Bools


class Committer:
    """See the module."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self.failures = 0  # how many calls have failed as a whole

    async def commit(self, change: Change) -> CommitResult:
        """Commit the rows of `change` that have something to write; the others count as kept.

        Where the store fails the whole call, and cannot say afterwards what became of it, every row has failed.

        Raises:
            ControllerMoved: a later controller exists. Nothing that was not kept before will be.
            StoreError: the store has ended our session, and so our controllership.
        """
        writes = change.writes
        outcome = np.full(len(change), Outcome.COMMITTED, np.uint8)
        version = change.partition_epoch.copy()
        if writes.any():
            try:
                outcome[writes], version[writes] = await self._write(change, np.flatnonzero(writes))
            except StoreError as error:
                _unless_over(error)
                log.error("writing the leadership of %d partitions failed: %s", np.count_nonzero(writes), error)
                outcome[writes] = Outcome.FAILED
                self.failures += 1
        kept = outcome == Outcome.COMMITTED
        self._cluster.mark_for_retry(change.rows.index[outcome == Outcome.FAILED])
        final = change.committed(version)
        return CommitResult(
            final if kept.all() else final.take(kept), kept, outcome == Outcome.CONFLICT, outcome == Outcome.FAILED
        )

    async def _write(self, change: Change, which: RowNumbers) -> tuple[Bytes, Ints]:
        """Write the rows at some positions; what became of each, and its new version."""
        rows = change.rows
        write = Write(
            names=self._cluster.table.names(rows.index[which]),
            leader=change.leader.take(which),
            leader_epoch=change.leader_epoch.take(which),
            isr=members(change.in_sync.take(which, axis=-1), rows.replicas.take(which, axis=-1)),
            recovering=change.recovering.take(which),
            expected=rows.partition_epoch.take(which),
        )
        try:
            committed = await self._store.commit(write, self._cluster.fence)
        except StoreError as error:
            if error.remedy is not Remedy.READ_BACK:
                raise
            return await self._read_back(change.take(which), write)
        return committed.outcome, committed.version

    async def _read_back(self, change: Change, write: Write) -> tuple[Bytes, Ints]:
        """Find out what became of a write whose outcome is unknown, before anything follows from it."""
        stored = await self._store.leaderships(write.names)
        as_written = (
            stored.found
            & (stored.leader == write.leader)
            & (stored.leader_epoch == write.leader_epoch)
            & (stored.controller_epoch == self._cluster.fence.epoch)
            & (stored.recovering == write.recovering)
            & (in_sync_of(change.rows.replicas, stored.isr) == change.in_sync).all(axis=0)
            & (stored.partition_epoch == np.maximum(write.expected, NO_VERSION) + 1)
        )
        untouched = choose(stored.found, stored.partition_epoch, np.int32(NO_VERSION)) == write.expected
        outcome = choose(
            as_written, np.uint8(Outcome.COMMITTED), untouched, np.uint8(Outcome.FAILED), np.uint8(Outcome.CONFLICT)
        )
        return outcome, choose(as_written, stored.partition_epoch, np.int32(NO_VERSION))

    async def reload(self, rows: Rows) -> tuple[Rows, Bytes]:
        """The rows with the leadership that is stored now, and why some of them cannot go on.

        Returns:
            n rows, and uint8[n] of Refusal: NO_LEADERSHIP, LATER_CONTROLLER, STORE_FAILED or NONE. Where nothing could
            be read all rows are STORE_FAILED, and as they were.

        Raises:
            StoreError: the store has ended our session, and so our controllership.
        """
        table = self._cluster.table
        try:
            stored = await self._store.leaderships(table.names(rows.index))
        except StoreError as error:
            _unless_over(error)
            log.error("reading the leadership of %d partitions failed: %s", len(rows), error)
            self._cluster.mark_for_retry(rows.index)
            return rows, np.full(len(rows), Refusal.STORE_FAILED, np.uint8)
        table.admit(rows.index, stored.isr)
        now = table.rows(rows.index)
        found = stored.found
        self._cluster.mark_for_retry(rows.index[stored.status == Found.FAILED])
        refusal = choose(
            stored.status == Found.FAILED,
            np.uint8(Refusal.STORE_FAILED),
            ~found,
            np.uint8(Refusal.NO_LEADERSHIP),
            stored.controller_epoch > self._cluster.fence.epoch,
            np.uint8(Refusal.LATER_CONTROLLER),
            np.uint8(Refusal.NONE),
        )
        return now.replace(
            leader=choose(found, stored.leader, now.leader),
            leader_epoch=choose(found, stored.leader_epoch, now.leader_epoch),
            in_sync=choose(found, in_sync_of(now.replicas, stored.isr), now.in_sync),
            partition_epoch=choose(found, stored.partition_epoch, now.partition_epoch),
            controller_epoch=choose(found, stored.controller_epoch, now.controller_epoch),
            recovering=choose(found, stored.recovering, now.recovering),
        ), refusal


def _unless_over(error: StoreError) -> None:
    """Rows that fail are refused and the others go on; the end of our session ends the call."""
    if error.remedy is Remedy.RESIGN:
        raise error
