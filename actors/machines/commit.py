"""Writes of the controller to the store: changes of leadership, and assignments of topics, also of unknown outcome.

Changes of leadership are committed by compare-and-set, read back, reloaded, and planned again.
`Committer.commit_until_settled` is the only loop that retries rejected rows. Nothing here changes the table, except
that a stored broker for which a row has no slot is given one: the caller applies the committed rows.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Bytes, Ints, RowNumbers, Rows, choose, members, some
from kactl.decide.state.table import Table, in_sync_of
from kactl.model import NO_BROKER, NO_VERSION, Assignment, TopicPartition
from kactl.model.errors import BadRequest, KactlError, NotFound, Remedy, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Found, Outcome, Store, Write
from kactl.telemetry.event_log import EventLog

log = logger(__name__)

# A rejected row is planned again at most this often. Leaders write an ISR a few times per second at most: a row that is
# rejected this often does not lose a race, it is broken.
ROUNDS_MAX: Final = 50

# Refusals that may be wrong, since a leader or another controller may have written the row. It is reloaded once.
_DOUBTFUL: Final = (
    Refusal.NO_LEADERSHIP,
    Refusal.NO_ELIGIBLE_LEADER,
    Refusal.STATE_EXISTS,
    Refusal.CONFIG_UNREADABLE,
)

# Plans a change of n rows. It depends on these rows alone, so that rows can be planned again in any company. Further
# arguments are those of the call.
Plan = Callable[..., Awaitable[Change]]


class CommitResult(NamedTuple):
    """Result of one commit of n rows; nothing is applied yet.

    Attributes:
        change: the planned change with the versions that the store assigned. Rows that could not be written are
            refused with STORE_FAILED.
        conflict: bool[n], rows that another writer has changed in the store. They are not written.
    """

    change: Change
    conflict: Bools


class Settled(NamedTuple):
    """Rows that are committed or refused, and are not tried again.

    Attributes:
        positions: intp[k], their positions among the rows of the call.
    """

    positions: RowNumbers
    change: Change


class Committer:
    """Commits the changes of one machine actor.

    Args:
        history: names the event in progress, whose rows and stages are counted.

    Attributes:
        failures: number of calls of the store that failed as a whole.
    """

    def __init__(self, cluster: Cluster, store: Store, history: EventLog) -> None:
        self._cluster = cluster
        self._store = store
        self._history = history
        self.failures = 0

    async def attempt(self, rows: Rows, plan: Plan, *what: Any) -> CommitResult:
        """Plan some rows and commit the change, once. Raises as `commit` does."""
        trace = self._history.current
        with trace.plan:
            change = await plan(rows, *what)
        trace.planned += len(rows)
        trace.rejected += int(np.count_nonzero(change.refusal))
        return await self.commit(change)

    async def commit_until_settled(
        self, rows: Rows, plan: Plan, *what: Any, first: CommitResult | None = None
    ) -> AsyncIterator[Settled]:
        """Plan and commit rows until each is committed or refused. Yields after each attempt, so that the caller
        applies it before the next.

        A row that the store rejects is reloaded and planned again. So is, once, a row that is refused because its
        leadership is unknown or has no eligible leader: its leader may have changed the ISR and failed before the
        change was read. If the stored version is the known one, the refusal stands.

        Args:
            first: the first attempt, if it was made already.

        Yields:
            Each row exactly once. Rows that were reloaded have the stored leadership.

        Raises:
            ControllerMoved: a later controller exists. Nothing that was not yielded will be committed.
            StoreError: the store has ended the session, and with it the controllership.
        """
        positions = np.arange(len(rows))
        for number in range(ROUNDS_MAX):
            result, first = first or await self.attempt(rows, plan, *what), None
            change, again = result.change, result.conflict
            if number == 0 and change.refusal.any():
                again = again | np.isin(change.refusal, _DOUBTFUL)
            if not again.any():
                yield Settled(positions, change)
                return
            if not again.all():
                yield Settled(positions[~again], change.take(~again))
            positions, planned, conflict = positions[again], change.take(again), result.conflict[again]
            rows, refusal = await self.reload(planned.rows)
            stands = ~conflict & (refusal == Refusal.NONE) & (rows.partition_epoch == planned.rows.partition_epoch)
            refusal = choose(stands, planned.refusal, refusal)
            refused = refusal != Refusal.NONE
            if refused.any():
                yield Settled(positions[refused], Change.of(rows.take(refused), refusal=refusal[refused]))
                positions, rows = positions[~refused], rows.take(~refused)
            if not len(rows):
                return
            log.info("%d partitions were changed in the store meanwhile; planning them again", len(rows))
        yield Settled(positions, Change.of(rows, refusal=np.full(len(rows), Refusal.STORE_FAILED, np.uint8)))

    async def commit(self, change: Change) -> CommitResult:
        """Commit the rows of `change` that have something to write.

        If the store fails the whole call and its outcome cannot be read back, every row has failed.

        Raises:
            ControllerMoved: a later controller exists. Nothing that was not committed before will be.
            StoreError: the store has ended the session, and with it the controllership.
        """
        writes = change.writes
        if not writes.any():
            return CommitResult(change, writes)
        trace, which = self._history.current, np.flatnonzero(writes)
        outcome = np.full(len(change), Outcome.COMMITTED, np.uint8)
        version = np.full(len(change), NO_VERSION, np.int32)
        try:
            with trace.commit:
                outcome[which], version[which] = await self._write(change, which)
        except StoreError as error:
            _raise_if_over(error)
            log.error("writing the leadership of %d partitions failed: %s", np.count_nonzero(writes), error)
            outcome[writes] = Outcome.FAILED
            self.failures += 1
        rejected = int(np.count_nonzero(outcome != Outcome.COMMITTED))
        trace.committed += len(which) - rejected
        trace.rejected += rejected
        change = change.committed(version)
        failed = outcome == Outcome.FAILED
        if failed.any():
            self._cluster.mark_for_retry(change.rows.index[failed])
            change = change.refuse(failed, Refusal.STORE_FAILED)
        return CommitResult(change, outcome == Outcome.CONFLICT)

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
        """Read the outcome of a write after its response was lost, before anything else depends on it."""
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
        known = table.rows(rows.index)
        is_found = stored.found
        self._cluster.mark_for_retry(rows.index[stored.status == Found.FAILED])
        refusal = choose(
            stored.status == Found.FAILED,
            np.uint8(Refusal.STORE_FAILED),
            ~is_found,
            np.uint8(Refusal.NO_LEADERSHIP),
            stored.controller_epoch > self._cluster.fence.epoch,
            np.uint8(Refusal.LATER_CONTROLLER),
            np.uint8(Refusal.NONE),
        )
        return known.replace(
            leader=choose(is_found, stored.leader, known.leader),
            leader_epoch=choose(is_found, stored.leader_epoch, known.leader_epoch),
            in_sync=choose(is_found, in_sync_of(known.replicas, stored.isr), known.in_sync),
            partition_epoch=choose(is_found, stored.partition_epoch, known.partition_epoch),
            controller_epoch=choose(is_found, stored.controller_epoch, known.controller_epoch),
            recovering=choose(is_found, stored.recovering, known.recovering),
        ), refusal


def _raise_if_over(error: StoreError) -> None:
    """Rows that fail are refused and the others go on; the end of the session ends the call."""
    if error.remedy is Remedy.RESIGN:
        raise error


class TopicEntries:
    """Writes the assignments of topics, as a whole. `Cluster.assignments_unsure` has those of unknown outcome.

    After such a write the stored assignment may differ from the table. It is then written again from the table, before
    anything is decided by it: a leader that is elected among the replicas of the table, or a replica that joins an ISR,
    may not be assigned in the store.

    Source: the classic controller's updateReplicaAssignmentForPartition.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self.cluster = cluster
        self.store = store

    async def write(self, topic: str, changed: Mapping[TopicPartition, Assignment]) -> None:
        """Write the assignment of a topic: the table's, with `changed`, and with partitions that only the store has.

        Raises:
            NotFound: the topic is gone, or a topic with another id has its name.
            BadRequest: the store cannot represent the assignment.
            StoreError: not written; if the remedy is READ_BACK, the outcome is unknown.
        """
        known = self.cluster.table.topic(topic)
        assert known is not None, topic
        assignments = entry_of(self.cluster.table, topic)
        assignments |= {name.partition: assignment for name, assignment in changed.items()}
        stored = await self.store.assignments([topic])
        if any(any(ref.id) and ref.id != known.ref.id for ref in stored.topics):
            raise NotFound("topic", f"{topic} with the id {known.ref.id.hex()}")
        for name, assignment in stored.items():
            # Partitions may have been added by an event that is still queued.
            assignments.setdefault(name.partition, assignment)
        await self.store.write_assignment(known.ref, assignments, self.cluster.fence)

    def doubt(self, topic: str, error: Exception) -> None:
        """Note a failed write with unknown outcome, so that `put_back` restores the table's assignment.

        An unexpected error may have followed the write.
        """
        known = self.cluster.table.topic(topic)
        is_unknown = not isinstance(error, KactlError) or error.remedy is Remedy.READ_BACK
        if known is not None and is_unknown:
            self.cluster.assignments_unsure.add(topic)
            self.cluster.mark_for_retry(self.cluster.table.rows_of(known))

    async def settle(self, row_numbers: RowNumbers) -> None:
        """Write the assignments of some rows again that are in doubt. Those that fail stay in doubt."""
        if self.cluster.assignments_unsure:
            await self.put_back({name.topic for name in self.cluster.table.names(row_numbers)})

    def is_unsure(self, row_numbers: RowNumbers) -> Bools:
        """Returns bool[n]: the stored assignment of the row may be another one than the table's."""
        unsure = self.cluster.assignments_unsure
        if not unsure:
            return np.zeros(len(row_numbers), np.bool_)
        return np.array([name.topic in unsure for name in self.cluster.table.names(row_numbers)], np.bool_)

    async def put_back(self, topics: Collection[str] | None = None) -> dict[str, StoreError]:
        """Write assignments again after a write with unknown outcome; those of some topics, or all.

        Returns the error of each topic for which this failed. It is repeated with the next retry.
        """
        failed: dict[str, StoreError] = {}
        unsure = self.cluster.assignments_unsure
        for topic in sorted(unsure if topics is None else unsure.intersection(topics)):
            if (known := self.cluster.table.topic(topic)) is None:
                unsure.discard(topic)
                continue
            try:
                await self.write(topic, {})
            except (NotFound, BadRequest) as refused:
                log.warning("the stored assignment of topic %s is not restored: %s", topic, refused)
            except StoreError as error:
                if error.remedy is Remedy.RESIGN:
                    raise
                self.cluster.mark_for_retry(self.cluster.table.rows_of(known))
                failed[topic] = error
                continue
            # Not earlier: after an unexpected error the topic is written by the next retry.
            unsure.discard(topic)
        return failed


def entry_of(table: Table, topic: str) -> dict[int, Assignment]:
    """Returns the assignment of a topic by partition number; empty for an unknown topic."""
    known = table.topic(topic)
    if known is None:
        return {}
    rows = table.rows(table.rows_of(known))
    columns = zip(*(brokers_of(rows, which) for which in (rows.assigned, rows.adding, rows.removing)), strict=True)
    return {partition: Assignment(*lists) for partition, lists in zip(rows.partition.tolist(), columns, strict=True)}


def brokers_of(rows: Rows, which: Bools) -> list[tuple[int, ...]]:
    """Returns for each row the brokers in the slots `which`, in slot order."""
    if not some(which).any():
        return [()] * len(rows)
    lists = np.where(which, rows.replicas, np.int32(NO_BROKER)).T.tolist()
    return [tuple(broker for broker in line if broker != NO_BROKER) for line in lists]
