"""What becomes of the ISRs that leaders propose (AlterPartition): one table, decided for all proposals at once.

A proposal carries what the leader knows. One that knows more than we do says that we may be outdated; one that knows
less is refused; one that asks for what holds already is a repetition, and succeeds without a write, also if its
partition epoch is an older one: the answer to the first may have been lost. That is looked at before the partition
epoch is.

Source: the classic controller's tryProcessAlterPartition. Unlike there, a proposal is taken from the stored leader
only, the ISR that it proposes holds the leader, and broker epochs that it names are compared: a follower that has
restarted since the leader found it in sync may have lost its log.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.errors import ErrorCode, UnknownRecoveryState
from kactl.messages.broker import IsrProposal
from kactl.model import NO_BROKER, NO_EPOCH
from kactl.state.rows import Bools, BrokerSet, Ints, Rows, choose, some

Errors = npt.NDArray[np.int16]
Longs = npt.NDArray[np.int64]

# From this version of the request on, a member that is not live is refused by a code of its own; and topics are named
# by their ids.
VERSION_WITH_IDS: Final = 2
# Stands for a member NO_BROKER, which would be taken for a free place; it is never live either.
_NOBODY: Final = NO_BROKER - 1
# Stands for a broker epoch that no registration has.
_NO_REGISTRATION: Final = NO_EPOCH - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Proposed:
    """n proposals as columns.

    Attributes:
        isr: int32[K, n], each member once, NO_BROKER behind the last.
        recovering: bool[n].
        broker_epoch: int64[K, n] of each member, NO_EPOCH where it is not checked; None if none is.
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
        """Columns of some proposals.

        Raises:
            UnknownRecoveryState: one of them carries a number that no state has.
        """
        states = [proposal.recovering for proposal in proposals]
        for state in states:
            if state not in (0, 1):
                raise UnknownRecoveryState(int(state))
        lists = [tuple(dict.fromkeys(proposal.isr)) for proposal in proposals]
        isr = np.full((max(map(len, lists), default=0), len(lists)), NO_BROKER, np.int32)
        for at, members in enumerate(lists):
            isr[: len(members), at] = [_NOBODY if member == NO_BROKER else member for member in members]
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
    """The broker epochs of the members in `lists`; None if no proposal names one."""
    if not any(proposal.broker_epochs for proposal in proposals):
        return None
    epochs = np.full((max(map(len, lists), default=0), len(lists)), NO_EPOCH, np.int64)
    for at, (proposal, members) in enumerate(zip(proposals, lists, strict=True)):
        if not proposal.broker_epochs:
            continue
        named: dict[int, int] = {}
        for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True):
            # One that is named under two epochs is in sync under neither.
            named[member] = epoch if named.get(member, epoch) == epoch else _NO_REGISTRATION
        epochs[: len(members), at] = [named[member] for member in members]
    return epochs


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of each of n proposals.

    Attributes:
        error: int16[n] of ErrorCode; NONE if it succeeds.
        same: bool[n], it succeeds and holds already; nothing is to be written.
    """

    error: Errors
    same: Bools

    @property
    def taken(self) -> Bools:
        """bool[n]: it is to be written."""
        taken: Bools = (self.error == ErrorCode.NONE) & ~self.same
        return taken


def judge(
    rows: Rows,
    proposed: Proposed,
    *,
    broker: int,
    live: BrokerSet,
    version: int,
    epochs: Mapping[int, int] | None = None,
) -> Judged:
    """Judge what `broker` proposes for n rows. The first of the cases that holds decides.

    Args:
        live: who may be in an ISR: registered, and not shutting down.
        version: of the request.
        epochs: under which each broker is registered; needed where a proposal names broker epochs.
    """
    same = is_same(rows, proposed, broker=broker)
    is_member = proposed.isr != NO_BROKER
    not_live = ErrorCode.INELIGIBLE_REPLICA if version >= VERSION_WITH_IDS else ErrorCode.OPERATION_NOT_ATTEMPTED
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
        some(is_member & (~live[proposed.isr] | _is_stale(proposed, epochs or {}))),
        not_live,
        ErrorCode.NONE,
    ).astype(np.int16)
    return Judged(error, same & (error == ErrorCode.NONE))


def _is_stale(proposed: Proposed, epochs: Mapping[int, int]) -> Bools:
    """bool[K, n]: the leader names another registration of the member than the one that stands.

    Source: ReplicationControlManager.validateAlterPartitionData, of Kafka's controller without ZooKeeper.
    """
    if proposed.broker_epoch is None:
        return np.zeros(proposed.isr.shape, np.bool_)
    ids = np.array(sorted(epochs), np.int32)
    registered = np.array([*(epochs[id_] for id_ in ids.tolist()), NO_EPOCH], np.int64)
    place = np.searchsorted(ids, proposed.isr)
    found = np.append(ids, np.int32(_NOBODY))[place] == proposed.isr
    named = (proposed.broker_epoch != NO_EPOCH) & (proposed.isr != NO_BROKER)
    stale: Bools = named & (~found | (registered[place] != proposed.broker_epoch))
    return stale


def is_ahead(rows: Rows, proposed: Proposed) -> Bools:
    """bool[n]: the leader knows of an epoch that we have not heard of."""
    ahead: Bools = (proposed.partition_epoch > rows.partition_epoch) | (proposed.leader_epoch > rows.leader_epoch)
    return ahead & rows.has_leadership


def is_same(rows: Rows, proposed: Proposed, *, broker: int) -> Bools:
    """bool[n]: what is proposed holds already, under this partition epoch or a later one. ISRs compare as sets."""
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
    """bool[n]: int32[K, n] `isr` names those that are in sync, and nobody else."""
    found = np.zeros(isr.shape[1], np.int64)
    for line in isr:
        found += some(rows.in_sync & (rows.replicas == line) & (line != NO_BROKER))
    same: Bools = (found == rows.in_sync.sum(axis=0)) & (found == (isr != NO_BROKER).sum(axis=0))
    return same
