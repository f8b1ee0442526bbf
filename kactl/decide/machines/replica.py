"""Replica state machine.

    ABSENT ──▶ NEW ──▶ ONLINE ◀──────┐
     ▲           │      │  ▲         │
     │           ▼      ▼  │         │
     │          OFFLINE ◀──┴──── DELETION_INELIGIBLE
     │            │  │                ▲        ▲
     │            │  └────────────────┘        │
     │            └──▶ DELETION_STARTED ───────┘
     │                      │
     └── DELETION_SUCCESSFUL◀

A transition without an entry in the table below is rejected and has no effect. ONLINE does not mean that the broker is
up: as in Kafka, a replica of a new partition becomes ONLINE on a dead broker too.

A transition to OFFLINE removes the broker from the ISR, by one compare-and-set write for each partition that has it in
the ISR. The last member is never removed. If the leader leaves, the new leader is NO_LEADER. The leader epoch rises
with every write.

Source: the classic controller's ReplicaStateMachine.
"""

import dataclasses
from typing import Final

import numpy as np

from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.rows import Bools, Bytes, Rows, Transitions, check, choose, holds, some
from kactl.model import NO_LEADER, PartitionState, ReplicaState

_S = ReplicaState

# The allowed previous states of each state.
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
    """Change of some replicas of some rows.

    Attributes:
        change: the change of the rows; its `refusal` concerns the row, and only a transition to OFFLINE.
        moved: bool[W, n], the replicas that change their state.
        refused: uint8[W, n] of Refusal, for the requested replicas that may not change.
    """

    change: Change
    moved: Bools
    refused: Bytes


def begun(rows: Rows) -> Bools:
    """Returns bool[n]: partitions with a started deletion. They are removed; only their replicas are left to delete."""
    result: Bools = rows.queued & (rows.state == PartitionState.ABSENT)
    return result


def plan(rows: Rows, which: Bools, target: ReplicaState) -> ReplicaChange:
    """Change the replicas `which`, bool[W, n], to `target`; to OFFLINE only those of partitions with a `begun`
    deletion.

    A replica that becomes ONLINE is notified itself, unless it was NEW; so is a replica that becomes NEW. No replica of
    a partition without leadership is notified.
    """
    is_leader = which & (rows.replicas == rows.leader) & rows.has_leadership & (target == _S.NEW)
    legal = which & check(rows.replica_state, target, LEGAL)
    moved = legal & ~is_leader
    refused = choose(
        which & ~legal, np.uint8(Refusal.ILLEGAL_MOVE), legal & is_leader, np.uint8(Refusal.ASKED_TO_LEAD),
        np.zeros(which.shape, np.uint8),
    )  # fmt: skip
    columns = {"replica_state": choose(moved, np.uint8(target), rows.replica_state)}
    if target == _S.NEW:
        columns["notify"] = moved & rows.has_leadership
    elif target == _S.ONLINE:
        was_new = rows.replica_state == _S.NEW
        columns["notify"] = moved & ~was_new & rows.has_leadership
        # A new replica that is not assigned yet is appended to the assignment.
        columns["assigned"] = rows.assigned | (moved & was_new)
    elif target == _S.ABSENT:
        for name in ("assigned", "adding", "removing"):
            columns[name] = getattr(rows, name) & ~moved
    return ReplicaChange(Change.of(rows, **columns), moved, refused)


def legal_offline(rows: Rows, broker: int) -> Bools:
    """Returns bool[n]: rows with a replica on `broker` that may become OFFLINE."""
    return some(holds(rows, broker) & check(rows.replica_state, _S.OFFLINE, LEGAL))


def go_offline(rows: Rows, broker: int, *, controller_epoch: int) -> Change:
    """Change the replicas on one broker to OFFLINE; all of them must be allowed to (`legal_offline`).

    A stopped replica that a leader added to the ISR meanwhile does not count as another member: it has no log any more.
    If the broker is in the ISR, leadership must be written; otherwise it is taken over unchanged, under this
    controller's epoch. The other replicas are notified in both cases, except those of topics that are being deleted.
    Rows without leadership only change their state.
    """
    slots = holds(rows, broker)
    known = rows.has_leadership
    writes = some(slots & rows.in_sync) & known
    alone = ~some(rows.in_sync & ~slots & ~rows.stopped)
    return Change.of(
        rows,
        replica_state=choose(slots, np.uint8(_S.OFFLINE), rows.replica_state),
        writes=writes,
        leader=choose(writes & (rows.leader == broker), np.int32(NO_LEADER), rows.leader),
        leader_epoch=rows.leader_epoch + writes.astype(np.int32),
        in_sync=choose(writes & ~alone, rows.in_sync & ~slots, rows.in_sync),
        controller_epoch=choose(known, np.int32(controller_epoch), rows.controller_epoch),
        notify=rows.assigned & ~slots & known & ~rows.queued,
    )
