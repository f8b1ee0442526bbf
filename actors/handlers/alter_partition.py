"""AlterPartition: ISR updates proposed by leaders.

All proposals of a request are validated together, committed under the fence with leader and leader epoch unchanged, and
sent to every broker. Reassignments that wait for in-sync replicas are checked after the response.

A leader may know a version that the controller has not read, and the store may reject the known version. In both cases
the row is read before the response, so that the next proposal is validated against the present state. No proposal is
written twice. While the stored assignment of a topic is in doubt, it is written again first: a replica must not join an
ISR without being assigned in the store.

A leader that proposes an unassigned replica has replicas which it should not have. The proposal is rejected, and these
replicas are stopped afterwards; see `isr_proposals`.

Leaders that send version 0 are of Kafka 2.7 to 3.1. Up to 3.0, after any error of a partition, they keep its proposal
in flight until they receive a new leader epoch: its ISR does not change any more. So the leader epoch of a rejected
proposal is raised before the answer, which is the fencing error. If this controller ends, the next one sends it.

Source: the classic controller's processAlterPartition. Unlike there, rows that the store rejects are read again.
"""

import numpy as np

from kactl.actors.machines.commit import Committer, TopicEntries
from kactl.decide.machines import reassignment
from kactl.decide.machines.alter_partition import (
    VERSION_WITH_IDS,
    Errors,
    Proposed,
    ineligible,
    is_ahead,
    is_same,
    judge,
    may_join,
    unassigned_members,
)
from kactl.decide.messages.broker import VERSION_WITH_REJECTIONS, AlterPartitionReceived, IsrProposal, IsrResult
from kactl.decide.messages.events import Event, PartitionReassignmentIsrChange, StrayProposal
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.rows import RowNumbers, some
from kactl.decide.state.table import NO_ROW, in_sync_of
from kactl.model.errors import ControllerMoved, ErrorCode, Remedy, StaleBrokerEpoch, StoreError, StoreUnavailable
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers
from .isr_proposals import ProposedStrays, RejectedProposals, count_operations, isr_sizes
from .leader_epochs import LeaderEpochs

log = logger(__name__)


class IsrProposals(Handlers):
    """Handler of AlterPartition."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._committer = Committer(context.cluster, context.store, context.history)
        self._entries = TopicEntries(context.cluster, context.store)
        self._strays = ProposedStrays(context.clock)
        self._rejected = RejectedProposals(context.clock)
        self._leader_epochs = LeaderEpochs(context)

    def handlers(self) -> dict[type[Event], Handler]:
        return {AlterPartitionReceived: self.on_alter_partition_received}

    async def on_alter_partition_received(self, event: AlterPartitionReceived) -> list[IsrResult]:
        known = self.cluster.brokers.get(event.broker)
        if known is None or known.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, None if known is None else known.epoch)
        proposed = Proposed.of(event.proposals)
        row_numbers, error = self._rows_of(event.proposals, event.version)
        # Of several proposals for one partition the last one is used; the others get its result.
        rows_at, last, which = _last_of(row_numbers)
        error[row_numbers != NO_ROW] = (await self._decide(event, rows_at, proposed.take(last)))[which]
        if len(rows_at):
            self.batch.begin()
            self.batch.update_metadata(self.cluster.brokers, self.cluster.table.rows(rows_at))
            self.channels.send(self.batch.flush())
        accepted = np.unique(row_numbers[error == ErrorCode.NONE])
        self.context.isr_operations["failed"] += int(np.count_nonzero(error))
        self.context.proposals_rejected.update(ErrorCode(code).name for code in error[error != ErrorCode.NONE].tolist())
        self._check_reassignments(accepted)
        self.continue_drains(accepted)
        return self._results(event.proposals, row_numbers, error)

    def _rows_of(self, proposals: tuple[IsrProposal, ...], version: int) -> tuple[RowNumbers, Errors]:
        """Returns the row of each proposal, NO_ROW for an unknown partition, and the errors of those."""
        table = self.cluster.table
        by_id = version >= VERSION_WITH_IDS
        refs = list(dict.fromkeys(proposal.topic for proposal in proposals))
        topics = [table.topic_with_id(ref.id) if by_id else table.topic(ref.name) for ref in refs]
        number = {ref: index for index, ref in enumerate(refs)}
        topic = np.array([number[proposal.topic] for proposal in proposals], np.int32)
        row_numbers = table.rows_named_in(
            ["" if entry is None else entry.name for entry in topics],
            topic,
            np.array([proposal.partition for proposal in proposals], np.int32),
        )
        stranger = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = np.array([stranger if entry is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for entry in topics])
        error = np.where(row_numbers == NO_ROW, missing[topic] if len(topic) else 0, ErrorCode.NONE)
        return row_numbers, error.astype(np.int16)

    async def _decide(self, event: AlterPartitionReceived, row_numbers: RowNumbers, proposed: Proposed) -> Errors:
        """Validate proposals for distinct rows and write the accepted ones. Returns the error of each."""
        table = self.cluster.table
        ahead = is_ahead(table.rows(row_numbers), proposed)
        if ahead.any():
            await self._read(row_numbers[ahead])
        await self._entries.settle(row_numbers)
        judged = judge(
            table.rows(row_numbers),
            proposed,
            broker=event.broker,
            live=may_join(self.cluster.live_brokers, event.version),
            registered=self.cluster.live_brokers.registered,
            version=event.version,
            epochs=self._epochs(),
        )
        error, unsure = judged.error.copy(), self._entries.is_unsure(row_numbers)
        error[judged.taken & unsure] = ErrorCode.UNKNOWN_SERVER_ERROR
        taken = np.flatnonzero(judged.taken & ~unsure)
        error[taken] = await self._write(event.broker, row_numbers[taken], proposed.take(taken))
        self._log_rejected(event, row_numbers, error)
        if event.version < VERSION_WITH_REJECTIONS:
            await self._fence(event.broker, row_numbers, proposed, error)
        rejected = np.flatnonzero(judged.error == ineligible(event.version))
        if len(rejected):
            self._collect_strays(row_numbers[rejected], proposed.take(rejected), event.version)
        return error

    async def _fence(self, broker: int, row_numbers: RowNumbers, proposed: Proposed, error: Errors) -> None:
        """Raise the leader epochs of rejected proposals, and make their errors FENCED_LEADER_EPOCH.

        Raises:
            StoreUnavailable: some could not be written. The leader sends all proposals again.
        """
        rows = self.cluster.table.rows(row_numbers)
        stays = rows.has_leadership & ~rows.queued & (rows.leader == broker)
        known = (error != ErrorCode.NONE) & stays & (rows.leader_epoch <= proposed.leader_epoch)
        if not await self._leader_epochs.raise_all(rows.take(known), lambda after: after.assigned):
            raise StoreUnavailable(
                f"ISRs that broker {broker} proposed are rejected, and their new leader epochs could not be written; "
                "the broker proposes them again"
            )
        error[known] = ErrorCode.FENCED_LEADER_EPOCH

    async def _write(self, broker: int, row_numbers: RowNumbers, proposed: Proposed) -> Errors:
        """Write accepted proposals. Returns int16[n], the error of each."""
        error = np.zeros(len(row_numbers), np.int16)
        if not len(row_numbers):
            return error
        table = self.cluster.table
        rows = table.rows(row_numbers)
        change, conflict = await self._committer.commit(
            Change.of(
                rows,
                in_sync=in_sync_of(rows.replicas, proposed.isr),
                recovering=proposed.recovering,
                controller_epoch=np.full(len(rows), self.epoch, np.int32),
                writes=np.ones(len(rows), np.bool_),
            )
        )
        failed = change.refusal != Refusal.NONE
        committed = change.take(~conflict & ~failed)
        before = isr_sizes(rows.in_sync)[~conflict & ~failed]
        count_operations(self.context.isr_operations, before, isr_sizes(committed.in_sync))
        self.cluster.apply(committed)
        self.history.add_partitions(committed, table.refs, controller_epoch=self.epoch)
        error[failed] = ErrorCode.UNKNOWN_SERVER_ERROR
        if conflict.any():
            error[conflict] = ErrorCode.INVALID_UPDATE_VERSION
            await self._read(row_numbers[conflict])
            # The stored ISR may be the proposed one: an earlier write with a lost response.
            error[conflict & is_same(table.rows(row_numbers), proposed, broker=broker)] = ErrorCode.NONE
        return error

    async def _read(self, row_numbers: RowNumbers) -> None:
        """Read some rows from the store. Rows that cannot be read keep their known state.

        Raises:
            ControllerMoved: a later controller has written one of them.
            StoreError: the store session, and so the controllership, has ended.
        """
        try:
            stored = await self.store.leaderships(self.cluster.table.names(row_numbers))
        except StoreError as error:
            if error.remedy is Remedy.RESIGN:
                raise
            log.warning("the leadership of %d partitions cannot be read now: %s", len(row_numbers), error)
            return
        later = int(stored.controller_epoch.max(initial=0))
        if later > self.epoch:
            raise ControllerMoved(ours=self.epoch, theirs=later)
        self.cluster.put_leaderships(row_numbers, stored)

    def _results(self, proposals: tuple[IsrProposal, ...], row_numbers: RowNumbers, error: Errors) -> list[IsrResult]:
        table = self.cluster.table
        results = []
        for proposal, row, code in zip(proposals, row_numbers.tolist(), error.tolist(), strict=True):
            leadership = table.view(row).leadership if code == ErrorCode.NONE else None
            results.append(IsrResult(proposal.topic, proposal.partition, ErrorCode(code), leadership))
        return results

    def _check_reassignments(self, row_numbers: RowNumbers) -> None:
        """Queue the reassignments among some rows: their target may be in sync now. Handled after the response.

        So are partitions with an in-sync replica that is not assigned: that replica is to be stopped.
        """
        names = self.cluster.table.names(row_numbers)
        unassigned = some(reassignment.unassigned_in_sync(self.cluster.table.rows(row_numbers))).tolist()
        for name, is_unassigned in zip(names, unassigned, strict=True):
            if is_unassigned or name in self.cluster.reassigning:
                self.context.enqueue(PartitionReassignmentIsrChange(name))

    def _epochs(self) -> dict[int, int]:
        return {broker.id: broker.epoch for broker in self.cluster.brokers.values()}

    def _collect_strays(self, row_numbers: RowNumbers, proposed: Proposed, version: int) -> None:
        """Collect the unassigned replicas in rejected proposals. Queue those of a partition that are complete.

        A reassignment in progress stops its replicas itself. A leader whose epoch was raised proposes no others.
        """
        table, brokers = self.cluster.table, self.cluster.live_brokers
        unassigned = unassigned_members(
            table.rows(row_numbers),
            proposed,
            live=may_join(brokers, version),
            registered=brokers.registered,
            epochs=self._epochs(),
        )
        leader_epochs = table.column("leader_epoch")[row_numbers]
        self._strays.prune()
        positions = np.flatnonzero(some(unassigned))
        for position, name in zip(positions.tolist(), table.names(row_numbers[positions]), strict=True):
            if name in self.cluster.reassigning:
                continue
            leader_epoch = int(leader_epochs[position])
            members = tuple(sorted(proposed.isr[unassigned[:, position], position].tolist()))
            strays = (
                members
                if leader_epoch > proposed.leader_epoch[position]
                else self._strays.add(name, members, leader_epoch=leader_epoch, controller_epoch=self.epoch)
            )
            if strays:
                self.context.enqueue(StrayProposal(name, leader_epoch, strays))

    def _log_rejected(self, event: AlterPartitionReceived, row_numbers: RowNumbers, error: Errors) -> None:
        """Log the rejected proposals, one line per error."""
        table = self.cluster.table
        for code in np.unique(error[error != ErrorCode.NONE]).tolist():
            names = list(table.names(row_numbers[error == code]))
            which, count = self._rejected.to_log(event.broker, ErrorCode(code), names)
            if which:
                log.info(
                    "%d ISRs proposed by broker %d are rejected: %s; the first: %s, known state: %s; "
                    "%d times since the last line about these partitions",
                    len(which), event.broker, ErrorCode(code).name, which[0],
                    table.view(table.row(which[0])).leadership, count,
                )  # fmt: skip


def _last_of(row_numbers: RowNumbers) -> tuple[RowNumbers, RowNumbers, RowNumbers]:
    """Returns the distinct ones of some row numbers, ascending and without NO_ROW; the last position of each; and for
    every position with a row, its index among the distinct rows."""
    known = np.flatnonzero(row_numbers != NO_ROW)
    rows, first_from_behind, which = np.unique(row_numbers[known][::-1], return_index=True, return_inverse=True)
    return rows, known[::-1][first_from_behind], which[::-1]
