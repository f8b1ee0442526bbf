"""Steps of a reassignment, for many partitions at once: store it, copy the target, complete it.

    begin    Store the new assignment, then apply it. Stop replicas of an earlier target that it does not contain, after
             moving their leadership to a replica that stays.
    advance  Where the target is not in sync: raise the leader epoch and have the new replicas follow.
             Where it is: elect a leader from the target, stop the other replicas, and store the final assignment last.

Each partition advances as far as possible; failures are returned as values. Only the loss of the controllership and
unexpected errors raise. Repeating a step after a crash or an error is harmless.

Source: the classic controller's onPartitionReassignment.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np

from kactl.actors.machines.commit import Committer, TopicEntries, brokers_of
from kactl.actors.machines.machine import Move, MoveResult
from kactl.decide.machines import reassignment
from kactl.decide.machines.election import Election
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.deletion_blockers import BlockerReason
from kactl.decide.state.rows import Bools, Bytes, RowNumbers, Rows, holds, some
from kactl.model import NO_LEADER, Assignment, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import BadRequest, ErrorCode, NotFound, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Assignments

from .base import ControllerContext, Handlers
from .deletion import Deletion
from .reassignment_failures import Failure, Failures, TargetLeaders, failure_of, mark_failed, refused_rows, unless_over
from .reassignment_requests import WaitingRequest

log = logger(__name__)


class ReassignmentSteps(Handlers):
    """Executes the steps."""

    def __init__(self, context: ControllerContext, deletion: Deletion, waiting: WaitingRequest) -> None:
        super().__init__(context)
        self._deletion = deletion
        self._waiting = waiting
        self._committer = Committer(context.cluster, context.store, context.history)
        self.leaders = TargetLeaders(context)
        self.entries = TopicEntries(context.cluster, context.store)

    async def _write(self, row_numbers: RowNumbers, plan: Callable[[Rows], Change]) -> tuple[Bytes, Bools]:
        """Commit and apply the change that `plan` returns for some rows, without a move of a machine. Sends nothing.

        Returns:
            uint8[n] of Refusal, and bool[n]: the row was written.

        Raises:
            ControllerMoved: a later controller exists.
            StoreError: the store has ended the session.
        """

        async def planned(rows: Rows) -> Change:
            return plan(rows)

        table = self.cluster.table
        refusal, written = np.zeros(len(row_numbers), np.uint8), np.zeros(len(row_numbers), np.bool_)
        async for positions, change in self._committer.commit_until_settled(table.rows(row_numbers), planned):
            refusal[positions], written[positions] = change.refusal, change.writes
            self.cluster.apply(change.take(change.refusal == Refusal.NONE))
            self.history.add_partitions(change, table.refs, controller_epoch=self.epoch, which=change.writes)
        return refusal, written

    # -- a new target --------------------------------------------------------------------------------------------------

    async def begin(self, wanted: Mapping[TopicPartition, Assignment]) -> Failures:
        """Start new assignments, made by `Assignment.reassign_to`, and advance them as far as possible."""
        unsure = await self.entries.put_back({name.topic for name in wanted})
        failures: Failures = {name: failure_of(unsure[name.topic]) for name in wanted if name.topic in unsure}
        failures |= await self.leaders.would_stop({name: wanted[name] for name in wanted if name not in failures})
        with self.resumed_after_errors(wanted):
            for topic, group in _by_topic(name for name in wanted if name not in failures).items():
                changed = {name: wanted[name] for name in group if wanted[name] != self.cluster.assignment(name)}
                if changed:
                    failures |= await self._announce(topic, changed)
            return failures | await self.advance([name for name in wanted if name not in failures])

    @contextlib.contextmanager
    def resumed_after_errors(self, names: Collection[TopicPartition]) -> Iterator[None]:
        """Resume some reassignments later if an unexpected error abandons their steps in the block.

        An admin request is not handled again, and without the next step no replica changes, so no event would follow.
        """
        try:
            yield
        except Exception:
            begun = self.cluster.reassigning.intersection(names)
            self.cluster.mark_for_retry(self.cluster.table.rows_named(sorted(begun)))
            raise

    async def _announce(self, topic: str, changed: dict[TopicPartition, Assignment]) -> Failures:
        """Store new assignments of one topic, apply them, and stop the replicas that they no longer contain."""
        row_numbers = self.cluster.table.rows_named(changed)
        # Replicas without a state would not be stopped.
        await self._create_missing(row_numbers)
        refusal, handed_over = await self._write(row_numbers, lambda rows: self.leaders.hand_over(rows, changed))
        self._tell(row_numbers[handed_over])
        failures = refused_rows(list(changed), refusal)
        changed = {name: assignment for name, assignment in changed.items() if name not in failures}
        if not changed:
            return failures
        try:
            await self._store(topic, changed)
        except (NotFound, BadRequest, StoreError) as error:
            self.entries.doubt(topic, error)
            return failures | {name: failure_of(error) for name in changed}
        except Exception as error:
            self.entries.doubt(topic, error)
            raise
        unneeded = {
            name: frozenset(self.cluster.assignment(name).replicas) - frozenset(assignment.replicas)
            for name, assignment in changed.items()
        }
        self.know(changed)
        self.cluster.reassigning |= set(changed)
        await self._stop(_grouped(self.cluster.table.rows_named(unneeded), unneeded.values()))
        return failures

    # -- progress ------------------------------------------------------------------------------------------------------

    async def advance(self, names: Collection[TopicPartition]) -> Failures:
        """Advance some reassignments from their present step.

        While the last write of an assignment has an unknown outcome, the next controller may know another one. It is
        written again before replicas are stopped that it may not remove.
        """
        if not names:
            return {}
        self.cluster.reassigning |= set(names)
        failed = await self.entries.put_back({name.topic for name in names})
        if failed:
            unsettled = {name: failure_of(failed[name.topic]) for name in names if name.topic in failed}
            return unsettled | await self.advance([name for name in names if name not in unsettled])
        self._deletion.mark_ineligible({name.topic for name in names}, BlockerReason.REASSIGNMENT)
        await self._watch()
        row_numbers = self.cluster.table.rows_named(names)
        # A row that is complete once it is read again needs no new epoch here.
        refusal, copying = await self._write(
            row_numbers,
            lambda rows: reassignment.raise_epoch(rows, ~reassignment.is_complete(rows), controller_epoch=self.epoch),
        )
        await self._copy(row_numbers[copying])
        complete = ~copying & (refusal == Refusal.NONE)
        await self._create_missing(row_numbers[~complete])
        ended = [name for name, is_complete in zip(names, complete.tolist(), strict=True) if is_complete]
        return refused_rows(list(names), refusal) | await self._complete(ended)

    async def _copy(self, row_numbers: RowNumbers) -> None:
        """Send all replicas the new epoch and assignment; new replicas are created and start to follow."""
        if not len(row_numbers):
            return
        rows = self.cluster.table.rows(row_numbers)
        self.batch.begin()
        self.batch.lead_and_follow(rows, rows.assigned & ~rows.adding)
        self.batch.lead_and_follow(rows, rows.adding, is_new=True)
        self.channels.send(self.batch.flush())
        for broker in np.unique(rows.replicas[rows.adding]).tolist():
            here = some(rows.adding & holds(rows, broker))
            await self.move_replicas(row_numbers[here], ReplicaState.NEW, frozenset({broker}))

    async def _create_missing(self, row_numbers: RowNumbers) -> None:
        """Move assigned replicas without a state to NEW.

        Their request could not be sent, an error has ended the step that creates them, or they were elected meanwhile.
        With the state they can be elected, are resumed after a store error, and are deleted with their topic.
        """
        rows = self.cluster.table.rows(row_numbers)
        which = rows.adding & (rows.replica_state == ReplicaState.ABSENT)
        if which.any():
            await self.move_some_replicas(row_numbers, which, ReplicaState.NEW)

    async def _complete(self, names: list[TopicPartition]) -> Failures:
        """Complete reassignments with an in-sync target: elect from the target, stop the other replicas."""
        if not names:
            return {}
        row_numbers = self.cluster.table.rows_named(names)
        before = {name: self.cluster.assignment(name) for name in names}
        targets = {name: Assignment(assignment.target) for name, assignment in before.items()}
        # Replicas without a state would not become ONLINE.
        await self._create_missing(row_numbers)
        rows = self.cluster.table.rows(row_numbers)
        for brokers, on_brokers in _grouped(row_numbers, brokers_of(rows, rows.adding)):
            await self.move_replicas(on_brokers, ReplicaState.ONLINE, brokers)
        removed = brokers_of(rows, rows.removing | _left_over(rows))
        self.know(targets)
        unended: Collection[TopicPartition] = names
        try:
            failures = unended = await self._hand_over_and_stop(row_numbers, before, removed)
        finally:
            self._restore({name: before[name] for name in unended})
        for topic, group in _by_topic(name for name in names if name not in failures).items():
            try:
                # Last: until here the next controller can repeat all of this from the stored assignment.
                await self._store(topic, {name: targets[name] for name in group})
            except (NotFound, BadRequest, StoreError) as error:
                failures |= mark_failed(self.cluster, group, error)
        return failures | await self._end({name: targets[name].replicas for name in names if name not in failures})

    async def _hand_over_and_stop(
        self, row_numbers: RowNumbers, before: Mapping[TopicPartition, Assignment], removed: list[tuple[int, ...]]
    ) -> Failures:
        """Elect leaders from the targets, and stop the other replicas."""
        refusal = await self._lead_from_target(row_numbers)
        failures = refused_rows(list(before), refusal)
        failures |= self._out_of_sync([name for name in before if name not in failures], before)
        stopped = (() if name in failures else brokers for name, brokers in zip(before, removed, strict=True))
        await self._stop(_grouped(row_numbers, stopped))
        return failures | self._not_stopped([name for name in before if name not in failures])

    def _out_of_sync(self, names: list[TopicPartition], before: Mapping[TopicPartition, Assignment]) -> Failures:
        """Returns the reassignments with a target that is not in sync after all.

        Their rows were read again, because a write without a response had taken a replica out of the ISR. The next
        change of the ISR resumes them.
        """
        rows = self.cluster.table.rows(self.cluster.table.rows_named(names))
        missing = some(rows.assigned & ~rows.in_sync).tolist()
        return {
            name: Failure(ErrorCode.UNKNOWN_SERVER_ERROR, "a replica of its target has left the ISR")
            for name, is_missing in zip(names, missing, strict=True)
            if is_missing and before[name].is_being_reassigned
        }

    def _restore(self, before: Mapping[TopicPartition, Assignment]) -> None:
        """Restore reassignments that have other replicas to stop, without the stopped ones.

        Before the retry a replica of the target may leave the ISR, and the replicas to be stopped may be the only ones
        left in it.
        """
        running: dict[TopicPartition, Assignment] = {}
        for name, assignment in before.items():
            view = self.cluster.view(name)
            if view is not None:
                stays = {*assignment.target, *view.replica_states}
                lists = (assignment.replicas, assignment.adding, assignment.removing)
                running[name] = Assignment(*(tuple(broker for broker in one if broker in stays) for one in lists))
        if running:
            self.know(running)

    def _not_stopped(self, names: list[TopicPartition]) -> Failures:
        """Returns the partitions with replicas that are not stopped because the store did not commit the smaller ISR.

        Their final assignment is not stored, or the next controller would not stop these replicas.
        """
        left = _left_over(self.cluster.table.rows(self.cluster.table.rows_named(names)))
        remaining = [name for name, is_left in zip(names, some(left).tolist(), strict=True) if is_left]
        error = StoreError("replicas that are not wanted any more are still in sync")
        return mark_failed(self.cluster, remaining, error)

    async def _lead_from_target(self, row_numbers: RowNumbers) -> Bytes:
        """Raise the epoch of a leader that stays; elect one elsewhere, if a replica is eligible.

        Returns:
            uint8[n] of Refusal; NONE also where no replica is eligible, and for partitions that never had a leader.

        If none is, for example on a broker that is shutting down, a leader from the target stays leader under a new
        epoch. Without it the leader would never receive the new replicas.

        A partition that never had a leader has no step left after a cancellation or a new order of its replicas. Its
        first leader is elected when one of them starts.
        """

        def lead_on(rows: Rows) -> Change:
            stays = reassignment.led_by_target(rows, self.cluster.live_brokers)
            return reassignment.raise_epoch(rows, stays, controller_epoch=self.epoch)

        refusal, leads_on = await self._write(row_numbers, lead_on)
        self._tell(row_numbers[leads_on])
        has_led = self.cluster.table.rows(row_numbers).has_leadership
        elected = row_numbers[has_led & ~leads_on & (refusal == Refusal.NONE)]
        if len(elected):
            moved: MoveResult = await self.partitions.ask(Move(elected, PartitionState.ONLINE, Election.REASSIGNMENT))
            if moved.error is not None:
                unless_over(moved.error)
            unelected = elected[moved.refusal == Refusal.NO_ELIGIBLE_LEADER]
            if await self._read_again(unelected):
                await self._lead_on_unelected(unelected)
            else:
                refusal[np.isin(row_numbers, unelected)] = Refusal.STORE_FAILED
            # The leader may be one of the replicas to be stopped.
            failed = moved.refusal == Refusal.STORE_FAILED
            refusal[np.isin(row_numbers, elected[failed])] = Refusal.STORE_FAILED
        return refusal

    async def _read_again(self, row_numbers: RowNumbers) -> bool:
        """Read leadership again for which no replica of the target was eligible. Returns whether it could be read.

        Below protocol level 2.7 the leader may have taken the target out of the ISR. The election has seen it, and left
        the known leadership as it was: the replicas to be stopped are the only ones in sync.
        """
        if not len(row_numbers):
            return True
        try:
            stored = await self.store.leaderships(self.cluster.table.names(row_numbers))
        except StoreError as error:
            unless_over(error)
            self.cluster.mark_for_retry(row_numbers)
            return False
        self.cluster.put_leaderships(row_numbers, stored)
        return True

    async def _lead_on_unelected(self, row_numbers: RowNumbers) -> None:
        if not len(row_numbers):
            return
        registered = self.cluster.live_brokers.registered

        def lead_on(rows: Rows) -> Change:
            here = reassignment.target_of(rows) & (rows.replicas == rows.leader) & rows.online(registered)
            return reassignment.raise_epoch(rows, some(here), controller_epoch=self.epoch)

        _, leads_on = await self._write(row_numbers, lead_on)
        self._tell(row_numbers[leads_on])

    async def _end(self, ended: Mapping[TopicPartition, tuple[int, ...]]) -> Failures:
        """Remove completed reassignments from the stored request, and send the final assignment to every broker."""
        if not ended:
            return {}
        try:
            await self._waiting.carried_out(ended)
        except StoreError as error:
            return mark_failed(self.cluster, ended, error)
        log.info("%d reassignments are complete; the first: %s", len(ended), next(iter(ended)))
        self.cluster.complete_moves(ended.keys(), self.clock.now_ms())
        await self._watch()
        self.batch.begin()
        row_numbers = self.cluster.table.rows_named(ended)
        self.batch.update_metadata(self.cluster.brokers, self.cluster.table.rows(row_numbers))
        self.channels.send(self.batch.flush())
        await self._deletion.resume_for({name.topic for name in ended})
        return {}

    # -- shared by several steps ---------------------------------------------------------------------------------------

    async def _store(self, topic: str, changed: Mapping[TopicPartition, Assignment]) -> None:
        try:
            await self.entries.write(topic, changed)
        except StoreError as error:
            unless_over(error)
            raise

    def know(self, changed: Mapping[TopicPartition, Assignment]) -> None:
        """Apply assignments in memory."""
        ids = {topic.name: topic.ref.id for name in changed if (topic := self.cluster.table.topic(name.topic))}
        self.cluster.put_assignments(Assignments.of(changed, ids))

    async def _stop(self, groups: Iterable[tuple[frozenset[int], RowNumbers]]) -> None:
        """Delete replicas, without waiting for the responses of their brokers."""
        for brokers, row_numbers in groups:
            for state in (
                ReplicaState.OFFLINE,
                ReplicaState.DELETION_STARTED,
                ReplicaState.DELETION_SUCCESSFUL,
                ReplicaState.ABSENT,
            ):
                await self.move_replicas(row_numbers, state, brokers)
            await self._lose_leaders(row_numbers)

    async def _lose_leaders(self, row_numbers: RowNumbers) -> None:
        """Move partitions to OFFLINE whose leader was stopped, so that a replica leads that becomes eligible later.

        Kafka leaves them ONLINE. There, no broker in shutdown becomes eligible again without a new registration.
        """
        rows = self.cluster.table.rows(row_numbers)
        lost = (rows.state == PartitionState.ONLINE) & (rows.leader == NO_LEADER) & rows.has_leadership
        if lost.any():
            await self.partitions.ask(Move(row_numbers[lost], PartitionState.OFFLINE))

    def _tell(self, row_numbers: RowNumbers) -> None:
        """Send LeaderAndIsr to all replicas of some rows."""
        if not len(row_numbers):
            return
        rows = self.cluster.table.rows(row_numbers)
        self.batch.begin()
        self.batch.lead_and_follow(rows, rows.assigned)
        self.channels.send(self.batch.flush())

    async def _watch(self) -> None:
        """Watch the leadership of partitions being reassigned, where leaders write ISRs into the store themselves."""
        if self.settings.level.alter_partition:
            return
        try:
            await self.store.watch_leaderships(self.cluster.reassigning)
        except StoreError as error:
            mark_failed(self.cluster, self.cluster.reassigning, error)


def _left_over(rows: Rows) -> Bools:
    """bool[W, n]: replicas that are not assigned and not stopped."""
    left: Bools = ~rows.assigned & (rows.replica_state != ReplicaState.ABSENT)
    return left


def _grouped(row_numbers: RowNumbers, brokers: Iterable[Collection[int]]) -> list[tuple[frozenset[int], RowNumbers]]:
    """Returns the rows grouped by their set of brokers, without rows that have none."""
    groups: dict[frozenset[int], list[int]] = defaultdict(list)
    for row, members in zip(row_numbers.tolist(), brokers, strict=True):
        if members:
            groups[frozenset(members)].append(row)
    return [(members, np.array(rows, np.intp)) for members, rows in groups.items()]


def _by_topic(names: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    groups: dict[str, list[TopicPartition]] = defaultdict(list)
    for name in names:
        groups[name.topic].append(name)
    return groups
