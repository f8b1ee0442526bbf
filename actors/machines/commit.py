"""Commit changes of partition leadership: compare-and-set, read back, reload, and plan again.

`Committer.commit_until_settled` is the only loop that retries rejected rows. Nothing here changes the table, except
that a stored broker for which a row has no slot is given one: the caller applies what was committed.
"""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
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

# A rejected row is planned again at most this often. Leaders write an ISR a few times per second at most: a row that is
# rejected this often does not lose a race, it is broken.
ROUNDS_MAX: Final = 50

# Refusals that may be wrong, since a leader or another controller may have written the row. It is reloaded once.
_DOUBTFUL: Final = (Refusal.NO_LEADERSHIP, Refusal.NO_ELIGIBLE_LEADER, Refusal.CONFIG_UNREADABLE)

# Plans a change of n rows. It depends on these rows alone, so that rows can be planned again in any company.
Plan = Callable[[Rows], Awaitable[Change]]


@dataclasses.dataclass(frozen=True, slots=True)
class CommitResult:
    """Result of one commit of n rows.

    Attributes:
        change: the rows that were committed or had nothing to write, with the versions that the store assigned.
        committed, conflict, failed: bool[n]; each row is in exactly one of them.
    """

    change: Change
    committed: Bools
    conflict: Bools
    failed: Bools


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """A planned change and the result of its commit; nothing is applied yet."""

    change: Change
    result: CommitResult


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """Rows that are not tried any more.

    Attributes:
        index: intp[k], positions of the rows among those of the call.
        refusal: uint8[k] of Refusal; NONE where the change is in force or had nothing to write.
        change: the committed rows, and those that had nothing to write, refused ones included; to be applied.
        refused: the rows with a refusal, unchanged but for `refusal`.
        written: bool[k], rows that were written.
    """

    index: RowNumbers
    refusal: Bytes
    change: Change
    refused: Change
    written: Bools


class Committer:
    """Commits the changes of one machine actor.

    Attributes:
        failures: number of calls of the store that failed as a whole.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self.failures = 0

    async def attempt(self, rows: Rows, plan: Plan) -> Attempt:
        """Plan some rows and commit the change, once. Raises what `commit` raises."""
        change = await plan(rows)
        return Attempt(change, await self.commit(change))

    async def commit_until_settled(
        self, rows: Rows, plan: Plan, *, first: Attempt | None = None
    ) -> AsyncIterator[Settled]:
        """Plan and commit rows until each is committed or refused. Yields after each attempt, so that the caller
        applies it before the next.

        A row that the store rejects is reloaded and planned again. So is, once, a row that is refused because its
        leadership is unknown or has no eligible leader: its leader may have changed the ISR and failed before the
        change was read. If the stored version is the known one, the refusal stands.

        Args:
            first: the first attempt, if it was made already.

        Yields:
            Each row exactly once; none if an attempt settles no row.

        Raises:
            ControllerMoved: a later controller exists. Nothing that was not yielded will be committed.
            StoreError: the store has ended the session, and with it the controllership.
        """
        index = np.arange(len(rows))
        reloaded = False
        for _ in range(ROUNDS_MAX):
            attempt, first = first or await self.attempt(rows, plan), None
            change, result = attempt.change, attempt.result
            doubtful = np.zeros(len(rows), np.bool_) if reloaded else np.isin(change.refusal, _DOUBTFUL)
            again = result.conflict | doubtful
            yield _settled(index, attempt, ~again)
            if not again.any():
                return
            known, planned = rows.partition_epoch[again], change.refusal[again]
            index, doubtful, reloaded = index[again], doubtful[again], True
            rows, refusal = await self.reload(rows.take(again))
            unchanged = doubtful & (refusal == Refusal.NONE) & (rows.partition_epoch == known)
            refusal = choose(unchanged, planned, refusal)
            if refusal.any():
                yield _refused(index, rows, refusal)
                index, rows = index[refusal == Refusal.NONE], rows.take(refusal == Refusal.NONE)
            if not len(rows):
                return
            log.info("%d partitions were changed in the store meanwhile; planning them again", len(rows))
        yield _refused(index, rows, np.full(len(rows), Refusal.STORE_FAILED, np.uint8))

    async def commit(self, change: Change) -> CommitResult:
        """Commit the rows of `change` that have something to write; the others count as committed.

        If the store fails the whole call and its outcome cannot be read back, every row has failed.

        Raises:
            ControllerMoved: a later controller exists. Nothing that was not committed before will be.
            StoreError: the store has ended the session, and with it the controllership.
        """
        writes = change.writes
        outcome = np.full(len(change), Outcome.COMMITTED, np.uint8)
        version = change.partition_epoch.copy()
        if writes.any():
            try:
                outcome[writes], version[writes] = await self._write(change, np.flatnonzero(writes))
            except StoreError as error:
                _raise_if_over(error)
                log.error("writing the leadership of %d partitions failed: %s", np.count_nonzero(writes), error)
                outcome[writes] = Outcome.FAILED
                self.failures += 1
        committed = outcome == Outcome.COMMITTED
        failed = outcome == Outcome.FAILED
        self._cluster.mark_for_retry(change.rows.index[failed])
        return CommitResult(change.committed(version).take(committed), committed, outcome == Outcome.CONFLICT, failed)

    async def _write(self, change: Change, which: RowNumbers) -> tuple[Bytes, Ints]:
        """Write the rows at some positions. Returns the outcome of each and its new version."""
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
        """Read the outcome of a write whose response was lost, before anything else depends on it."""
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
        """Read the stored leadership of some rows.

        Returns:
            n rows, and uint8[n] of Refusal: NO_LEADERSHIP, LATER_CONTROLLER, STORE_FAILED or NONE. If the call fails,
            all rows are STORE_FAILED and unchanged.

        Raises:
            StoreError: the store has ended the session, and with it the controllership.
        """
        table = self._cluster.table
        try:
            stored = await self._store.leaderships(table.names(rows.index))
        except StoreError as error:
            _raise_if_over(error)
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


def _settled(index: RowNumbers, attempt: Attempt, which: Bools) -> Settled:
    """The rows of an attempt that are not tried again, bool[n]."""
    change, result = attempt.change, attempt.result
    refusal = choose(result.failed, np.uint8(Refusal.STORE_FAILED), change.refusal)[which]
    written = (result.committed & change.writes)[which]
    rows = change.rows.take(which & ((change.refusal != Refusal.NONE) | result.failed))
    return Settled(
        index[which],
        refusal,
        result.change.take(which[result.committed]),
        Change.of(rows, refusal=refusal[refusal != Refusal.NONE]),
        written,
    )


def _refused(index: RowNumbers, rows: Rows, refusal: Bytes) -> Settled:
    """Rows that cannot be planned again, out of n rows that were reloaded; `refusal` is uint8[n]."""
    which = refusal != Refusal.NONE
    rows, refusal = rows.take(which), refusal[which]
    nothing = rows.take(np.zeros(len(rows), np.bool_))
    return Settled(
        index[which], refusal, Change.of(nothing), Change.of(rows, refusal=refusal), np.zeros(len(rows), np.bool_)
    )


def _raise_if_over(error: StoreError) -> None:
    """Rows that fail are refused and the others go on; the end of the session ends the call."""
    if error.remedy is Remedy.RESIGN:
        raise error
