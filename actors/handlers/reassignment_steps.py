"""The steps of a reassignment, for many partitions at once: store it, have the target copied, complete it.

    begin    the new assignment is stored, then known; replicas of an earlier target that nobody wants any more are
             stopped, after their leadership, if they have it, went to one that stays
    advance  where the target is not yet in sync: a new leader epoch, and the new replicas are told to follow;
             where it is: a leader from the target, the other replicas are stopped, and the end is stored, last

Each partition comes as far as it can; what became of those that did not is a value. Only the loss of the
controllership ends a call. What is done once more, after a crash or a failure, does no harm.

Source: the classic controller's onPartitionReassignment.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from kactl.actors.machines.commit import Committer
from kactl.actors.machines.messages import Move, Moved, MoveReplicas
from kactl.errors import BadRequest, ErrorCode, NotFound, Remedy, StoreError
from kactl.machines import reassignment
from kactl.machines.election import Election
from kactl.model import NO_BROKER, Assignment, PartitionState, ReplicaState, TopicPartition
from kactl.runtime.logs import logger
from kactl.state.change import REFUSAL_TEXT, Change, Refusal
from kactl.state.deletion_blockers import BlockerReason
from kactl.state.rows import Bools, Bytes, RowNumbers, Rows, holds, some
from kactl.stores.base import Assignments

from .base import ControllerContext, Handlers
from .deletion import Deletion
from .reassignment_requests import WaitingRequest
from .topic_entries import TopicEntries, brokers_of

log = logger(__name__)


class Failure(NamedTuple):
    """Why one partition's step could not be made."""

    code: ErrorCode
    message: str


Failures = dict[TopicPartition, Failure]


class ReassignmentSteps(Handlers):
    """See the module."""

    def __init__(self, context: ControllerContext, deletion: Deletion, waiting: WaitingRequest) -> None:
        super().__init__(context)
        self._deletion = deletion
        self._waiting = waiting
        self._committer = Committer(context.cluster, context.store)
        self.entries = TopicEntries(context)

    async def _write(self, at: RowNumbers, plan: Callable[[Rows], Change]) -> tuple[Bytes, Bools]:
        """Commit and apply what `plan` makes of some rows, without a move of a machine. No broker is sent anything.

        Returns:
            uint8[n] of Refusal, and bool[n]: the row was written.

        Raises:
            ControllerMoved: a later controller exists.
            StoreError: the store has ended the session.
        """

        async def planned(rows: Rows) -> Change:
            return plan(rows)

        table = self.cluster.table
        refusal, written = np.zeros(len(at), np.uint8), np.zeros(len(at), np.bool_)
        async for settled in self._committer.commit_until_settled(table.rows(at), planned):
            refusal[settled.index], written[settled.index] = settled.refusal, settled.written
            change = settled.change
            self.cluster.apply(change)
            self.history.add_partitions(change, table.refs, controller_epoch=self.epoch, which=change.writes)
        return refusal, written

    # -- a new target --------------------------------------------------------------------------------------------------

    async def begin(self, wanted: Mapping[TopicPartition, Assignment]) -> Failures:
        """Begin with new assignments, made by `Assignment.reassign_to`, and come as far as is possible now."""
        failures: Failures = {}
        for topic, group in _by_topic(wanted).items():
            changed = {name: wanted[name] for name in group if wanted[name] != self.cluster.assignment(name)}
            if changed:
                failures |= await self._announce(topic, changed)
        return failures | await self.advance([name for name in wanted if name not in failures])

    def refusals(self, wanted: Mapping[TopicPartition, Assignment]) -> Failures:
        """Which of these would leave their partitions without a leader. Nothing is changed."""
        at = self.cluster.table.rows_named(wanted)
        change = self._hand_over(self.cluster.table.rows(at), wanted)
        return _failures(list(wanted), change.refusal)

    async def _announce(self, topic: str, changed: dict[TopicPartition, Assignment]) -> Failures:
        """Store new assignments of one topic, know them, and stop the replicas that are in none of them any more."""
        at = self.cluster.table.rows_named(changed)
        refusal, handed_over = await self._write(at, lambda rows: self._hand_over(rows, changed))
        self._tell(at[handed_over])
        failures = _failures(list(changed), refusal)
        changed = {name: held for name, held in changed.items() if name not in failures}
        if not changed:
            return failures
        try:
            await self._store(topic, changed)
        except (NotFound, BadRequest, StoreError) as error:
            self.entries.doubt(topic, error)
            return failures | {name: _failed(error) for name in changed}
        unneeded = {
            name: frozenset(self.cluster.assignment(name).replicas) - frozenset(held.replicas)
            for name, held in changed.items()
        }
        self.know(changed)
        await self._stop(_grouped(self.cluster.table.rows_named(unneeded), unneeded.values()))
        return failures

    def _hand_over(self, rows: Rows, wanted: Mapping[TopicPartition, Assignment]) -> Change:
        stays = [wanted[name].replicas for name in self.cluster.table.names(rows.index)]
        width = max(map(len, stays), default=0)
        padded = [[*replicas, *[NO_BROKER] * (width - len(replicas))] for replicas in stays]
        columns = np.array(padded, np.int32).reshape(len(rows), width).T
        return reassignment.hand_over(rows, columns, self.cluster.live_brokers, controller_epoch=self.epoch)

    # -- onwards -------------------------------------------------------------------------------------------------------

    async def advance(self, names: Collection[TopicPartition]) -> Failures:
        """Bring some reassignments onwards from wherever they stand."""
        if not names:
            return {}
        self.cluster.reassigning |= set(names)
        self._deletion.mark_ineligible({name.topic for name in names}, BlockerReason.REASSIGNMENT)
        await self._watch()
        at = self.cluster.table.rows_named(names)
        # One that turns out to be complete when it is read again is not told to go on copying.
        refusal, copying = await self._write(
            at,
            lambda rows: reassignment.raise_epoch(rows, ~reassignment.is_complete(rows), controller_epoch=self.epoch),
        )
        await self._copy(at[copying])
        await self._exist(at[refusal != Refusal.NONE])
        complete = ~copying & (refusal == Refusal.NONE)
        ended = [name for name, is_complete in zip(names, complete.tolist(), strict=True) if is_complete]
        return _failures(list(names), refusal) | await self._complete(ended)

    async def _copy(self, at: RowNumbers) -> None:
        """All replicas learn the new epoch and assignment; the new ones are made, and begin to follow."""
        if not len(at):
            return
        rows = self.cluster.table.rows(at)
        self.batch.begin()
        self.batch.lead_and_follow(rows, rows.assigned & ~rows.adding)
        self.batch.lead_and_follow(rows, rows.adding, is_new=True)
        self.channels.send(self.batch.flush())
        for broker in np.unique(rows.replicas[rows.adding]).tolist():
            here = some(rows.adding & holds(rows, broker))
            await self.move_replicas(at[here], ReplicaState.NEW, frozenset({broker}))

    async def _exist(self, at: RowNumbers) -> None:
        """Replicas that are assigned, and of which nobody could be told yet, exist all the same: they may be elected,
        have to go on when the store does, and go when their topic is deleted."""
        rows = self.cluster.table.rows(at)
        which = rows.adding & (rows.replica_state == ReplicaState.ABSENT)
        if which.any():
            await self.replicas.ask(MoveReplicas(at, ReplicaState.NEW, which=which))

    async def _complete(self, names: list[TopicPartition]) -> Failures:
        """The target is in sync: it takes over, and everybody else goes."""
        if not names:
            return {}
        at = self.cluster.table.rows_named(names)
        before = {name: self.cluster.assignment(name) for name in names}
        targets = {name: Assignment(held.target) for name, held in before.items()}
        rows = self.cluster.table.rows(at)
        for brokers, group in _grouped(at, brokers_of(rows, rows.adding)):
            await self.move_replicas(group, ReplicaState.ONLINE, brokers)
        removed = brokers_of(rows, rows.removing | _left_over(rows))
        self.know(targets)
        refusal = await self._lead_from_target(at)
        failures = _failures(names, refusal)
        led = (refusal == Refusal.NONE).tolist()
        await self._stop(_grouped(at, (brokers if here else () for brokers, here in zip(removed, led, strict=True))))
        failures |= self._not_stopped([name for name in names if name not in failures])
        self._go_on_later({name: before[name] for name in failures})
        for topic, held in _by_topic(name for name in names if name not in failures).items():
            try:
                # Last: until here whoever comes after us finds what it needs to do all of this again.
                await self._store(topic, {name: targets[name] for name in held})
            except (NotFound, BadRequest, StoreError) as error:
                failures |= self._to_be_tried_again(held, error)
        return failures | await self._end({name: targets[name].replicas for name in names if name not in failures})

    def _go_on_later(self, before: Mapping[TopicPartition, Assignment]) -> None:
        """Know reassignments as running again whose other replicas are not stopped, those left out that are.

        Until it is tried again a replica of the target may leave the ISR, and those that were to be stopped may be all
        that is left in it.
        """
        running: dict[TopicPartition, Assignment] = {}
        for name, held in before.items():
            view = self.cluster.view(name)
            if view is not None:
                stays = {*held.target, *view.replica_states}
                lists = (held.replicas, held.adding, held.removing)
                running[name] = Assignment(*(tuple(each for each in one if each in stays) for one in lists))
        if running:
            self.know(running)

    def _not_stopped(self, names: list[TopicPartition]) -> Failures:
        """Those of which replicas are left that were to be stopped: the store did not let them leave the ISR.

        Their end is not stored, or whoever comes after us would know of nothing to stop.
        """
        left = _left_over(self.cluster.table.rows(self.cluster.table.rows_named(names)))
        remaining = [name for name, is_left in zip(names, some(left).tolist(), strict=True) if is_left]
        return self._to_be_tried_again(remaining, StoreError("replicas that are not wanted any more are still in sync"))

    async def _lead_from_target(self, at: RowNumbers) -> Bytes:
        """A leader that stays leads on under a new epoch; elsewhere one is elected, if there is anybody to elect.

        If there is not, as on a broker that is shutting down, a leader of the target leads on all the same: without a
        new epoch it would never receive the new replicas.
        """

        def lead_on(rows: Rows) -> Change:
            stays = reassignment.led_by_target(rows, self.cluster.live_brokers)
            return reassignment.raise_epoch(rows, stays | ~rows.has_leadership, controller_epoch=self.epoch)

        refusal, leads_on = await self._write(at, lead_on)
        self._tell(at[leads_on])
        elected = at[~leads_on & (refusal == Refusal.NONE)]
        if len(elected):
            moved: Moved = await self.partitions.ask(Move(elected, PartitionState.ONLINE, Election.REASSIGNMENT))
            if moved.error is not None:
                _unless_over(moved.error)
            await self._lead_on_unelected(elected[moved.refusal == Refusal.NO_ELIGIBLE_LEADER])
        return refusal

    async def _lead_on_unelected(self, at: RowNumbers) -> None:
        if not len(at):
            return
        registered = self.cluster.live_brokers.registered

        def lead_on(rows: Rows) -> Change:
            here = reassignment.target_of(rows) & (rows.replicas == rows.leader) & rows.online(registered)
            return reassignment.raise_epoch(rows, some(here), controller_epoch=self.epoch)

        _, leads_on = await self._write(at, lead_on)
        self._tell(at[leads_on])

    async def _end(self, ended: Mapping[TopicPartition, tuple[int, ...]]) -> Failures:
        """What is complete and stored: it is no longer asked for, and everybody hears of it."""
        if not ended:
            return {}
        try:
            await self._waiting.carried_out(ended)
        except StoreError as error:
            return self._to_be_tried_again(ended, error)
        log.info("%d reassignments are complete; the first: %s", len(ended), next(iter(ended)))
        self.cluster.complete_moves(ended.keys(), self.clock.now_ms())
        await self._watch()
        self.batch.begin()
        at = self.cluster.table.rows_named(ended)
        self.batch.update_metadata(self.cluster.brokers, self.cluster.table.rows(at))
        self.channels.send(self.batch.flush())
        await self._deletion.resume_for({name.topic for name in ended})
        return {}

    # -- what several steps need ---------------------------------------------------------------------------------------

    async def _store(self, topic: str, changed: Mapping[TopicPartition, Assignment]) -> None:
        try:
            await self.entries.write(topic, changed)
        except StoreError as error:
            _unless_over(error)
            raise

    def know(self, changed: Mapping[TopicPartition, Assignment]) -> None:
        """Apply assignments in memory."""
        ids = {topic.name: topic.ref.id for name in changed if (topic := self.cluster.table.topic(name.topic))}
        self.cluster.put_assignments(Assignments.of(changed, ids))

    async def _stop(self, groups: Iterable[tuple[frozenset[int], RowNumbers]]) -> None:
        """Stop replicas for good. Nobody waits for their brokers' answers."""
        for brokers, at in groups:
            for state in (
                ReplicaState.OFFLINE,
                ReplicaState.DELETION_STARTED,
                ReplicaState.DELETION_SUCCESSFUL,
                ReplicaState.ABSENT,
            ):
                await self.move_replicas(at, state, brokers)

    def _tell(self, at: RowNumbers) -> None:
        """LeaderAndIsr to all replicas of some rows."""
        if not len(at):
            return
        rows = self.cluster.table.rows(at)
        self.batch.begin()
        self.batch.lead_and_follow(rows, rows.assigned)
        self.channels.send(self.batch.flush())

    async def _watch(self) -> None:
        """Where leaders write their ISRs themselves, have the store say so for what is being reassigned."""
        if self.settings.level.alter_partition:
            return
        try:
            await self.store.watch_leaderships(self.cluster.reassigning)
        except StoreError as error:
            self._to_be_tried_again(self.cluster.reassigning, error)

    def _to_be_tried_again(self, names: Iterable[TopicPartition], error: Exception) -> Failures:
        """Note that a step failed in the store: whoever takes up what was left undone comes back to it.

        Raises:
            StoreError: the store has ended our session.
        """
        _unless_over(error)
        names = list(names)
        self.cluster.mark_for_retry(self.cluster.table.rows_named(names))
        return {name: _failed(error) for name in names}


def _left_over(rows: Rows) -> Bools:
    """bool[W, n]: replicas that the assignment does not name, and that nobody has stopped."""
    left: Bools = ~rows.assigned & (rows.replica_state != ReplicaState.ABSENT)
    return left


def _grouped(at: RowNumbers, brokers: Iterable[Collection[int]]) -> list[tuple[frozenset[int], RowNumbers]]:
    """The rows that belong to the same brokers; those that belong to none are left out."""
    groups: dict[frozenset[int], list[int]] = defaultdict(list)
    for row, held in zip(at.tolist(), brokers, strict=True):
        if held:
            groups[frozenset(held)].append(row)
    return [(held, np.array(rows, np.intp)) for held, rows in groups.items()]


def _by_topic(names: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    groups: dict[str, list[TopicPartition]] = defaultdict(list)
    for name in names:
        groups[name.topic].append(name)
    return groups


def _failures(names: list[TopicPartition], refusal: Bytes) -> Failures:
    return {
        names[position]: _refused(Refusal(int(refusal[position])))
        for position in np.flatnonzero(refusal != Refusal.NONE).tolist()
    }


def _refused(reason: Refusal) -> Failure:
    if reason is Refusal.NO_ELIGIBLE_LEADER:
        return Failure(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "the present leader would be stopped, or every in-sync replica, and no replica that stays is in sync and "
            "online: name the leader in the target, or wait until another replica is in sync",
        )
    return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, REFUSAL_TEXT[reason])


def _failed(error: Exception) -> Failure:
    return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _unless_over(error: Exception) -> None:
    """A step that fails is a value and the others go on; the end of our session ends the call."""
    if isinstance(error, StoreError) and error.remedy is Remedy.RESIGN:
        raise error
