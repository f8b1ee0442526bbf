"""Reassignments: requests for them, and the events that resume them.

    requested  by an admin request, with a result for each partition; or by a request that an older tool wrote into the
               store
    resumed    by a takeover, by the start of a broker of the target, by an ISR update, and after a store error or an
               unexpected one
    begun      without a new target, to stop unassigned replicas that are in sync or that a leader proposes

`reassignment_steps` has the steps of one reassignment.

Source: the classic controller's processApiPartitionReassignment, processZkPartitionReassignment,
maybeCompleteReassignment.
"""

from collections.abc import Collection, Iterable

import numpy as np

from kactl.decide.machines import reassignment
from kactl.decide.messages.admin import ApiPartitionReassignment, ListPartitionReassignments, ReassignmentResult
from kactl.decide.messages.events import Event, PartitionReassignmentIsrChange, StrayProposal, ZkPartitionReassignment
from kactl.decide.state.rows import Bools, RowNumbers, choose, common, some
from kactl.decide.state.table import NO_ROW
from kactl.model import Assignment, ReplicaState, TopicPartition
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers, in_pieces
from .deletion import Deletion
from .reassignment_failures import Failures
from .reassignment_requests import Target, WaitingRequest, check_partition, check_request, check_target
from .reassignment_steps import ReassignmentSteps

log = logger(__name__)


class Reassignments(Handlers):
    """Starts and resumes reassignments."""

    def __init__(self, context: ControllerContext, deletion: Deletion) -> None:
        super().__init__(context)
        self._waiting = WaitingRequest(context)
        self._steps = ReassignmentSteps(context, deletion, self._waiting)

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            ApiPartitionReassignment: self.on_api_partition_reassignment,
            ListPartitionReassignments: self.on_list_partition_reassignments,
            ZkPartitionReassignment: self.on_zk_partition_reassignment,
            PartitionReassignmentIsrChange: self.on_partition_reassignment_isr_change,
            StrayProposal: self.on_stray_proposal,
        }

    # -- requests ------------------------------------------------------------------------------------------------------

    async def on_api_partition_reassignment(self, event: ApiPartitionReassignment) -> list[ReassignmentResult]:
        results: dict[TopicPartition, ReassignmentResult] = {}
        planned: dict[TopicPartition, Assignment] = {}
        async for name, target in in_pieces(event.targets.items()):
            checked = check_request(self.cluster, name, target)
            if isinstance(checked, Assignment):
                planned[name] = checked
            else:
                results[name] = checked
        if planned and not event.dry_run:
            # This request replaces the one in the store.
            await self._waiting.drop(planned.keys())
        async for name in in_pieces(planned):
            if (refused := check_partition(self.cluster, name)) is not None:
                results[name] = refused
        planned = {name: assignment for name, assignment in planned.items() if name not in results}
        failures = self._steps.leaders.refusals(planned) if event.dry_run else await self._steps.begin(planned)
        async for name, assignment in in_pieces(planned.items()):
            results[name] = _result(name, assignment, failures)
        return [results[name] for name in event.targets]

    async def on_list_partition_reassignments(
        self, event: ListPartitionReassignments
    ) -> dict[TopicPartition, Assignment]:
        running = self.cluster.reassigning
        wanted = running if event.partitions is None else running.intersection(event.partitions)
        listed = {name: self.cluster.assignment(name) for name in sorted(wanted)}
        return {name: assignment for name, assignment in listed.items() if assignment.is_being_reassigned}

    async def on_zk_partition_reassignment(self, event: ZkPartitionReassignment) -> None:
        requested = await self._waiting.read()
        running = {name for name, target in (requested or {}).items() if self._is_under_way(name, target)}
        await self._run_stored(
            {name: assignment for name, assignment in (requested or {}).items() if name not in running}
        )

    def _is_under_way(self, name: TopicPartition, target: Target) -> bool:
        """Whether a reassignment to the same target is in progress."""
        assignment = self.cluster.assignment(name)
        return name in self.cluster.reassigning and assignment.is_being_reassigned and assignment.target == target

    async def _run_stored(self, requested: dict[TopicPartition, Target]) -> set[TopicPartition]:
        """Start the reassignments requested in the store, and remove the invalid ones from the request.

        Unlike an admin request it may name brokers that are not live: the reassignment waits for them.

        Returns:
            The partitions with a started reassignment.
        """
        planned = {name: self.cluster.assignment(name).reassign_to(target) for name, target in requested.items()}
        results = {name: refused for name, target in requested.items() if (refused := check_target(name, target))}
        results |= self._unknown(planned)
        planned = {name: assignment for name, assignment in planned.items() if name not in results}
        failures = await self._steps.begin(planned)
        results |= {name: _result(name, planned[name], failures) for name in failures}
        for name, refused in sorted(results.items()):
            log.warning("%s is not reassigned as requested in the store: %s", name, refused.message)
        if results:
            await self._waiting.drop(results.keys())
        return planned.keys() - results.keys()

    def _unknown(self, planned: Iterable[TopicPartition]) -> dict[TopicPartition, ReassignmentResult]:
        return {name: refused for name in planned if (refused := check_partition(self.cluster, name)) is not None}

    # -- resumption ----------------------------------------------------------------------------------------------------

    async def take_over(self) -> None:
        """Resume after a takeover: first the reassignments requested in the store, then all others."""
        self._take_up_strays(self.cluster.table.with_unassigned_in_sync())
        begun = await self._run_stored(await self._waiting.read() or {})
        await self._resume(self.cluster.reassigning - begun)

    def _take_up_strays(self, row_numbers: RowNumbers) -> None:
        """Reassign those of some rows with in-sync replicas that are not assigned: these are to be stopped.

        A controller leaves such a replica if it ends between storing a target and stopping the replicas outside of
        it; its leader may add it to the ISR later. To be stopped the replica needs a state, and its partition counts
        as being reassigned until then.

        Where no assigned replica is in sync, the assigned ones copy the records first: to stop the others would delete
        every copy. The classic controller leaves both as they are.
        """
        table = self.cluster.table
        row_numbers = row_numbers[some(reassignment.unassigned_in_sync(table.rows(row_numbers)))]
        if not len(row_numbers):
            return
        rows = table.rows(row_numbers)
        strays = reassignment.unassigned_in_sync(rows)
        self._take_up(row_numbers, strays)
        log.warning("%d partitions have in-sync replicas that are not assigned; they are reassigned", len(row_numbers))
        names = list(table.names(row_numbers))
        foreign = np.flatnonzero(~some(rows.assigned & rows.in_sync)).tolist()
        leaving = {names[position]: rows.replicas[strays[:, position], position].tolist() for position in foreign}
        self._steps.know({name: _with_leaving(self.cluster.assignment(name), each) for name, each in leaving.items()})

    def _take_up(self, row_numbers: RowNumbers, strays: Bools) -> None:
        """Give unassigned replicas a state, bool[W, n] `strays`. Their partitions count as being reassigned."""
        table = self.cluster.table
        rows = table.rows(row_numbers)
        self.history.add_replicas(rows, strays, ReplicaState.NEW, table.refs, controller_epoch=self.epoch)
        created = rows.replace(replica_state=choose(strays, np.uint8(ReplicaState.NEW), rows.replica_state))
        self.history.add_replicas(created, strays, ReplicaState.ONLINE, table.refs, controller_epoch=self.epoch)
        for slot, position in np.argwhere(strays).tolist():
            table.admit_replica(int(row_numbers[position]), int(rows.replicas[slot, position]), ReplicaState.ONLINE)
        self.cluster.reassigning |= set(table.names(row_numbers))

    async def resume_on(self, brokers: Collection[int]) -> None:
        """Resume reassignments to one of the brokers, which have started."""
        row_numbers = common(self.cluster.table.with_replica_on(brokers), self._running())
        rows = self.cluster.table.rows(row_numbers)
        wanted = (reassignment.target_of(rows) & np.isin(rows.replicas, sorted(brokers))).any(axis=0)
        await self._resume(self.cluster.table.names(row_numbers[wanted]))

    async def resume(self, row_numbers: RowNumbers) -> None:
        """Resume reassignments among some rows for which the store had failed.

        An error may also have ended the handling of a new ISR, before its unassigned replicas were taken up.
        """
        await self._steps.entries.put_back()
        self._take_up_strays(self.cluster.table.not_queued(row_numbers))
        await self._resume(self.cluster.table.names(common(row_numbers, self._running())))

    async def check_complete(self, row_numbers: RowNumbers) -> None:
        """Complete the reassignments among some rows with changed ISRs."""
        self._take_up_strays(self.cluster.table.not_queued(row_numbers))
        row_numbers = common(row_numbers, self._running())
        await self._resume(
            self.cluster.table.names(row_numbers[reassignment.is_complete(self.cluster.table.rows(row_numbers))])
        )

    async def on_partition_reassignment_isr_change(self, event: PartitionReassignmentIsrChange) -> None:
        row = self.cluster.table.row(event.partition)
        if row == NO_ROW:
            return
        row_numbers = np.array([row], np.intp)
        self._take_up_strays(self.cluster.table.not_queued(row_numbers))
        if event.partition not in self.cluster.reassigning:
            return
        if not self.settings.level.alter_partition:
            # The leader wrote the store itself. With AlterPartition the update is in the table already.
            self.cluster.put_leaderships(
                row_numbers, await self.store.leaderships(self.cluster.table.names(row_numbers))
            )
        if reassignment.is_complete(self.cluster.table.rows(row_numbers)).all():
            # Such events arrive for many partitions at once. The first one completes all that are complete, and each
            # topic's assignment is stored once.
            await self.check_complete(self._running())

    async def on_stray_proposal(self, event: StrayProposal) -> None:
        """Have unassigned replicas stopped that a leader proposes, and the leader receive its replicas.

        The new leader epoch rejects the leader's later proposals, so this happens once. Where no assigned replica is in
        sync, all replicas stay: they may have the only copies.
        """
        name, table = event.partition, self.cluster.table
        row = table.row(name)
        if row == NO_ROW or name in self.cluster.reassigning:
            return
        row_numbers = np.array([row], np.intp)
        rows = table.rows(row_numbers)
        if rows.queued.any() or rows.leader_epoch[0] != event.leader_epoch:
            return
        if not (reassignment.target_of(rows) & rows.in_sync).any():
            return
        table.admit(row_numbers, np.array([event.brokers], np.int32).T)
        rows = table.rows(row_numbers)
        strays = rows.stopped & ~rows.in_sync & np.isin(rows.replicas, event.brokers)
        if strays.any():
            log.warning("%s has replicas on %s that are not assigned; they are stopped", name, list(event.brokers))
            self._take_up(row_numbers, strays)
            self.context.enqueue(PartitionReassignmentIsrChange(name))

    def _running(self) -> RowNumbers:
        """Returns the rows that are being reassigned now, without topics with a started deletion.

        A reassignment would create their replicas again.
        """
        started = self.cluster.deletion_started
        running = (name for name in self.cluster.reassigning if name.topic not in started)
        return np.sort(self.cluster.table.rows_known(running))

    async def _resume(self, names: Iterable[TopicPartition]) -> None:
        running = sorted(names)
        with self._steps.resumed_after_errors(running):
            failures = await self._steps.advance(running)
        for name, failure in failures.items():
            log.warning("the reassignment of %s could not be resumed: %s", name, failure.message)


def _with_leaving(assignment: Assignment, strays: list[int]) -> Assignment:
    """The assignment with replicas that are to be removed. A reassignment that is under way goes on."""
    removing = (*assignment.removing, *strays)
    return Assignment((*assignment.replicas, *strays), assignment.adding, removing)


def _result(name: TopicPartition, assignment: Assignment, failures: Failures) -> ReassignmentResult:
    if name not in failures:
        return ReassignmentResult(name.topic, name.partition, assignment=assignment)
    code, message = failures[name]
    return ReassignmentResult(name.topic, name.partition, code, message)
