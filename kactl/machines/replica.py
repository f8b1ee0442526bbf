"""The life of a replica.

    ABSENT ──▶ NEW ──▶ ONLINE ◀──────┐
     ▲           │      │  ▲         │
     │           ▼      ▼  │         │
     │          OFFLINE ◀──┴──── DELETION_INELIGIBLE
     │            │  │                ▲        ▲
     │            │  └────────────────┘        │
     │            └──▶ DELETION_STARTED ───────┘
     │                      │
     └── DELETION_SUCCESSFUL◀

A move with no entry in the table below is refused and leaves no trace. ONLINE does not mean that the broker is up: a
replica of a new partition becomes ONLINE on a dead broker too, as in Kafka.

Going OFFLINE takes the broker out of the ISR, one write by compare-and-set for each partition in whose ISR it is. The
last member is never taken out; a leader that goes leaves NO_LEADER behind. The leader epoch rises with every write.

Source: the classic controller's ReplicaStateMachine.
"""

import dataclasses
from typing import Final

import numpy as np

from kactl.model import NO_LEADER, PartitionState, ReplicaState
from kactl.state.change import Change, Refusal
from kactl.state.rows import Bools, Bytes, Rows, Transitions, check, choose, holds, some

_S = ReplicaState

# Which states may go to each state.
TRANSITIONS: Final[dict[ReplicaState, frozenset[ReplicaState]]] = {
    _S.NEW: frozenset({_S.ABSENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.DELETION_STARTED: frozenset({_S.OFFLINE}),
    _S.DELETION_SUCCESSFUL: frozenset({_S.DELETION_STARTED}),
    _S.DELETION_INELIGIBLE: frozenset({_S.OFFLINE, _S.DELETION_STARTED}),
    _S.ABSENT: frozenset({_S.DELETION_SUCCESSFUL}),
}


def _legal_moves() -> Transitions:
    top = max(ReplicaState) + 1
    legal = np.zeros((top, top), np.bool_)
    for after, befores in TRANSITIONS.items():
        for before in befores:
            legal[before, after] = True
    return legal


LEGAL: Final = _legal_moves()


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaChange:
    """A change of some replicas of some rows.

    Attributes:
        change: what is to become of the rows; `refusal` there speaks of the row, and only for a move to OFFLINE.
        moved: bool[W, n], the replicas that may make the move.
        refused: uint8[W, n] of Refusal, for those that were asked to move and may not.
    """

    change: Change
    moved: Bools
    refused: Bytes


def begun(rows: Rows) -> Bools:
    """bool[n]: partitions whose deletion has begun. They have ceased to exist; what is left of them are replicas."""
    gone: Bools = rows.queued & (rows.state == PartitionState.ABSENT)
    return gone


def plan(rows: Rows, which: Bools, target: ReplicaState) -> ReplicaChange:
    """A move to any state of the replicas `which`, bool[W, n]; to OFFLINE only of partitions that have `begun` to go.

    Who is told: going ONLINE, the broker itself, unless the replica was NEW; going NEW, the broker itself. Nobody,
    where there is no leadership yet.
    """
    asked_to_lead = which & (rows.replicas == rows.leader) & rows.has_leadership & (target == _S.NEW)
    legal = which & check(rows.replica_state, target, LEGAL)
    moved = legal & ~asked_to_lead
    refused = choose(
        which & ~legal, np.uint8(Refusal.ILLEGAL_MOVE), legal & asked_to_lead, np.uint8(Refusal.ASKED_TO_LEAD),
        np.zeros(which.shape, np.uint8),
    )  # fmt: skip
    columns = {"replica_state": choose(moved, np.uint8(target), rows.replica_state)}
    if target == _S.NEW:
        columns["notify"] = moved & rows.has_leadership
    elif target == _S.ONLINE:
        was_new = rows.replica_state == _S.NEW
        columns["notify"] = moved & ~was_new & rows.has_leadership
        # A new replica that the assignment does not name is put at its end.
        columns["assigned"] = rows.assigned | (moved & was_new)
    elif target == _S.ABSENT:
        for name in ("assigned", "adding", "removing"):
            columns[name] = getattr(rows, name) & ~moved
    return ReplicaChange(Change.of(rows, **columns), moved, refused)


def legal_offline(rows: Rows, broker: int) -> Bools:
    """bool[n]: rows whose replica on `broker` may go OFFLINE."""
    return some(holds(rows, broker) & check(rows.replica_state, _S.OFFLINE, LEGAL))


def go_offline(rows: Rows, broker: int, *, controller_epoch: int) -> Change:
    """A move to OFFLINE of the replicas on one broker; all of them may make it (`legal_offline`).

    A stopped replica that a leader added to the ISR meanwhile does not count as another member: it has no log any more.
    Where the broker is in the ISR the leadership is to be written; where it is not, it is taken over as it is, under
    our controller epoch. Told are the other replicas, whether anything was written or not, but for topics that are
    being deleted. Rows without leadership only change their state.
    """
    here = holds(rows, broker)
    known = rows.has_leadership
    writes = some(here & rows.in_sync) & known
    alone = ~some(rows.in_sync & ~here & ~rows.stopped)
    return Change.of(
        rows,
        replica_state=choose(here, np.uint8(_S.OFFLINE), rows.replica_state),
        writes=writes,
        leader=choose(writes & (rows.leader == broker), np.int32(NO_LEADER), rows.leader),
        leader_epoch=rows.leader_epoch + writes.astype(np.int32),
        in_sync=choose(writes & ~alone, rows.in_sync & ~here, rows.in_sync),
        controller_epoch=choose(known, np.int32(controller_epoch), rows.controller_epoch),
        notify=rows.assigned & ~here & known & ~rows.queued,
    )
