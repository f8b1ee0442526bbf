"""Validation of the ISRs that leaders propose (AlterPartition): one decision table, evaluated for all proposals at
once.

A proposal carries the epochs that the leader knows. A proposal with newer epochs than the controller's shows that this
controller may be outdated. A proposal with an older leader epoch is rejected. A proposal of the current state is a
repetition and succeeds without a write, even with an older partition epoch: the response to the first one may have been
lost. Repetitions are therefore detected before the partition epoch is compared.

Source: the classic controller's tryProcessAlterPartition. Unlike there, only the stored leader may propose, the
proposed ISR must contain the leader, and the broker epochs in it are compared: a follower that has restarted since the
leader found it in sync may have lost its log. A broker that is not assigned cannot join: a reassignment has stopped it
and the leader does not know yet, or a controller has ended before it could stop it. Members of the ISR that are no
longer assigned may stay until the controller removes them. So may members that are shutting down, as long as they are
registered: the leader may be one itself, for as long as it is drained and no other replica is in sync, and only others
that join the ISR end this.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.decide.messages.broker import VERSION_WITH_REJECTIONS, IsrProposal
from kactl.decide.state.rows import Bools, BrokerSet, Ints, LiveBrokers, Rows, choose, some
from kactl.model import NO_BROKER, NO_EPOCH
from kactl.model.errors import ErrorCode, UnknownRecoveryState

Errors = npt.NDArray[np.int16]
Longs = npt.NDArray[np.int64]

# From this request version on, a member that is not live has an error code of its own, and topics are identified by
# their ids.
VERSION_WITH_IDS: Final = 2
# Replaces a member NO_BROKER, which would look like an unused position; it is never live either.
_NOBODY: Final = NO_BROKER - 1
# Replaces a broker epoch that no registration has.
_NO_REGISTRATION: Final = NO_EPOCH - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Proposed:
    """Columns of n proposals.

    Attributes:
        isr: int32[K, n], each member once, then NO_BROKER.
        recovering: bool[n].
        broker_epoch: int64[K, n] of each member, NO_EPOCH if it is not checked; None if none is checked.
    """

    leader_epoch: Ints
    partition_epoch: Ints
    isr: Ints
    recovering: Bools
    broker_epoch: Longs | None = None

    def __len__(self) -> int:
        return len(self.leader_epoch)

    @classmethod
    def of(cls, proposals: Sequence[IsrProposal]) -> "Proposed":
        """Returns the columns of some proposals.

        Raises:
            UnknownRecoveryState: a proposal carries an undefined recovery state.
        """
        states = [proposal.recovering for proposal in proposals]
        for state in states:
            if state not in (0, 1):
                raise UnknownRecoveryState(int(state))
        lists = [tuple(dict.fromkeys(proposal.isr)) for proposal in proposals]
        isr = np.full((max(map(len, lists), default=0), len(lists)), NO_BROKER, np.int32)
        for row, members in enumerate(lists):
            isr[: len(members), row] = [_NOBODY if member == NO_BROKER else member for member in members]
        return cls(
            np.array([proposal.leader_epoch for proposal in proposals], np.int32),
            np.array([proposal.partition_epoch for proposal in proposals], np.int32),
            isr,
            np.array(states, np.bool_),
            _broker_epochs(proposals, lists),
        )

    def take(self, which: Bools | npt.NDArray[np.intp]) -> "Proposed":
        return Proposed(
            self.leader_epoch[which],
            self.partition_epoch[which],
            self.isr[:, which],
            self.recovering[which],
            None if self.broker_epoch is None else self.broker_epoch[:, which],
        )


def _broker_epochs(proposals: Sequence[IsrProposal], lists: Sequence[tuple[int, ...]]) -> Longs | None:
    """Returns the broker epochs of the members in `lists`; None if no proposal carries one."""
    if not any(proposal.broker_epochs for proposal in proposals):
        return None
    epochs = np.full((max(map(len, lists), default=0), len(lists)), NO_EPOCH, np.int64)
    for row, (proposal, members) in enumerate(zip(proposals, lists, strict=True)):
        if not proposal.broker_epochs:
            continue
        epoch_of: dict[int, int] = {}
        for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True):
            # A member with two different epochs matches no registration.
            epoch_of[member] = epoch if epoch_of.get(member, epoch) == epoch else _NO_REGISTRATION
        epochs[: len(members), row] = [epoch_of[member] for member in members]
    return epochs


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """Decisions on n proposals.

    Attributes:
        error: int16[n] of ErrorCode; NONE if the proposal succeeds.
        same: bool[n], the proposal succeeds and equals the current state; it needs no write.
    """

    error: Errors
    same: Bools

    @property
    def taken(self) -> Bools:
        """Returns bool[n]: the proposal must be written."""
        taken: Bools = (self.error == ErrorCode.NONE) & ~self.same
        return taken


def judge(
    rows: Rows,
    proposed: Proposed,
    *,
    broker: int,
    live: BrokerSet,
    registered: BrokerSet,
    version: int,
    epochs: Mapping[int, int] | None = None,
) -> Judged:
    """Returns the decisions on the proposals of `broker` for n rows. The first matching case decides.

    Args:
        live: brokers that may join an ISR, as of `may_join`.
        registered: brokers that may stay in an ISR.
        version: of the request.
        epochs: broker epoch of each registered broker; needed if a proposal carries broker epochs.
    """
    same = is_same(rows, proposed, broker=broker)
    is_member = proposed.isr != NO_BROKER
    error = choose(
        ~rows.has_leadership,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        is_ahead(rows, proposed),
        ErrorCode.NOT_CONTROLLER,
        proposed.leader_epoch < rows.leader_epoch,
        ErrorCode.FENCED_LEADER_EPOCH,
        same,
        ErrorCode.NONE,
        proposed.partition_epoch < rows.partition_epoch,
        ErrorCode.INVALID_UPDATE_VERSION,
        (rows.leader != broker) | ~some(proposed.isr == broker),
        ErrorCode.INVALID_REQUEST,
        proposed.recovering & (is_member.sum(axis=0) > 1),
        ErrorCode.INVALID_REQUEST,
        proposed.recovering & ~rows.recovering,
        ErrorCode.INVALID_REQUEST,
        some(is_member & ~(_may_be_member(rows, proposed.isr, live, registered) & ~_is_stale(proposed, epochs or {}))),
        ineligible(version),
        ErrorCode.NONE,
    ).astype(np.int16)
    return Judged(error, same & (error == ErrorCode.NONE))


def may_join(brokers: LiveBrokers, version: int) -> BrokerSet:
    """Returns the brokers that a leader may add to an ISR. In version 0 those that are shutting down, too, as Kafka's
    controllers of its versions permit: they leave the ISR when their registration ends.
    """
    return brokers.electable if version >= VERSION_WITH_REJECTIONS else brokers.registered


def ineligible(version: int) -> ErrorCode:
    """Returns the error of a proposal with a member that may not be in the ISR. No other proposal has it."""
    return ErrorCode.INELIGIBLE_REPLICA if version >= VERSION_WITH_IDS else ErrorCode.OPERATION_NOT_ATTEMPTED


def unassigned_members(
    rows: Rows, proposed: Proposed, *, live: BrokerSet, registered: BrokerSet, epochs: Mapping[int, int]
) -> Bools:
    """Returns bool[K, n]: members of rejected ISRs that are live, but not assigned. Their leader has replicas which it
    should not have.

    Only rows where this is the only reason of the rejection have any. All proposals must have the error `ineligible`.
    """
    fresh = ~_is_stale(proposed, epochs)
    rejected = (proposed.isr != NO_BROKER) & ~(_may_be_member(rows, proposed.isr, live, registered) & fresh)
    unassigned = rejected & live[proposed.isr] & fresh
    for replica, assigned in zip(rows.replicas, rows.assigned, strict=True):
        unassigned &= ~((proposed.isr == replica) & assigned)
    only: Bools = unassigned & ~some(rejected & ~unassigned)
    return only


def _may_be_member(rows: Rows, isr: Ints, live: BrokerSet, registered: BrokerSet) -> Bools:
    """Returns bool[K, n]: members of `isr` that are assigned and live, or in sync already and registered."""
    joins, stays = np.zeros(isr.shape, np.bool_), np.zeros(isr.shape, np.bool_)
    for replica, assigned, in_sync in zip(rows.replicas, rows.assigned, rows.in_sync, strict=True):
        joins |= (isr == replica) & assigned
        stays |= (isr == replica) & in_sync
    allowed: Bools = (joins & live[isr]) | (stays & registered[isr])
    return allowed


def _is_stale(proposed: Proposed, epochs: Mapping[int, int]) -> Bools:
    """Returns bool[K, n]: the leader names another registration of the member than the current one.

    Source: ReplicationControlManager.validateAlterPartitionData, of Kafka's controller without ZooKeeper.
    """
    if proposed.broker_epoch is None:
        return np.zeros(proposed.isr.shape, np.bool_)
    ids = np.array(sorted(epochs), np.int32)
    registered = np.array([*(epochs[id_] for id_ in ids.tolist()), NO_EPOCH], np.int64)
    position = np.searchsorted(ids, proposed.isr)
    is_registered = np.append(ids, np.int32(_NOBODY))[position] == proposed.isr
    has_epoch = (proposed.broker_epoch != NO_EPOCH) & (proposed.isr != NO_BROKER)
    stale: Bools = has_epoch & (~is_registered | (registered[position] != proposed.broker_epoch))
    return stale


def is_ahead(rows: Rows, proposed: Proposed) -> Bools:
    """Returns bool[n]: the leader knows a newer epoch than this controller."""
    ahead: Bools = (proposed.partition_epoch > rows.partition_epoch) | (proposed.leader_epoch > rows.leader_epoch)
    return ahead & rows.has_leadership


def is_same(rows: Rows, proposed: Proposed, *, broker: int) -> Bools:
    """Returns bool[n]: the proposal equals the current state, under this partition epoch or an older one. ISRs compare
    as sets.
    """
    same: Bools = (
        rows.has_leadership
        & (rows.leader == broker)
        & (proposed.leader_epoch == rows.leader_epoch)
        & (proposed.partition_epoch <= rows.partition_epoch)
        & (proposed.recovering == rows.recovering)
        & _same_members(rows, proposed.isr)
    )
    return same


def _same_members(rows: Rows, isr: Ints) -> Bools:
    """Returns bool[n]: int32[K, n] `isr` contains exactly the replicas that are in sync."""
    matches = np.zeros(isr.shape[1], np.int64)
    for line in isr:
        matches += some(rows.in_sync & (rows.replicas == line) & (line != NO_BROKER))
    same: Bools = (matches == rows.in_sync.sum(axis=0)) & (matches == (isr != NO_BROKER).sum(axis=0))
    return same
