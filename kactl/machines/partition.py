"""Partition state machine.

    ABSENT ──create──▶ NEW ──first leader──▶ ONLINE ◀──elect── OFFLINE
       ▲                │                    │    ▲               ▲ │
       │                │                    │    └──re-elect──┐  │ │
       │                └────────────────────┴──lose leader────┴──┘ │
       └──────────────────────────delete───────────────────────────┘

A transition without a row in the table below is rejected and has no effect. NEW → ONLINE is not an election: every
online replica starts in sync, under epoch 0, and the write fails if a state is stored already. Every other transition
to ONLINE is an election: the leader epoch rises by one, even if the same leader is elected again, and the write is a
compare-and-set.

Source: the classic controller's PartitionStateMachine.
"""

import enum
from typing import Final

import numpy as np

from kactl.model import NO_LEADER, PartitionState
from kactl.state.change import Change, Refusal
from kactl.state.rows import Bools, Bytes, Ints, LiveBrokers, Rows, Transitions, check, choose, some

from .election import STRATEGIES, Elected, Election, first_leader

ABSENT, NEW, ONLINE, OFFLINE = (
    PartitionState.ABSENT,
    PartitionState.NEW,
    PartitionState.ONLINE,
    PartitionState.OFFLINE,
)


class Needs(enum.Enum):
    """Precondition of a transition."""

    NOTHING = "nothing"
    FIRST_LEADER = "a first leader"
    NEXT_LEADER = "an election"


TRANSITIONS: Final[dict[tuple[PartitionState, PartitionState], Needs]] = {
    (ABSENT, NEW): Needs.NOTHING,
    (NEW, ONLINE): Needs.FIRST_LEADER,
    (NEW, OFFLINE): Needs.NOTHING,
    (ONLINE, ONLINE): Needs.NEXT_LEADER,  # re-election: the epoch moves, the state does not
    (ONLINE, OFFLINE): Needs.NOTHING,
    (OFFLINE, ONLINE): Needs.NEXT_LEADER,
    (OFFLINE, OFFLINE): Needs.NOTHING,
    (OFFLINE, ABSENT): Needs.NOTHING,
}


def _legal_moves() -> Transitions:
    legal = np.zeros((len(PartitionState), len(PartitionState)), np.bool_)
    for before, after in TRANSITIONS:
        legal[before, after] = True
    return legal


LEGAL: Final = _legal_moves()


def legal(rows: Rows, target: PartitionState) -> Bools:
    """Returns bool[n]: the rows that may change to `target`."""
    return check(rows.state, target, LEGAL)


def move(rows: Rows, target: PartitionState) -> Change:
    """Change rows to NEW, OFFLINE or ABSENT, the transitions that need no leader."""
    allowed = legal(rows, target)
    return Change.of(
        rows,
        state=choose(allowed, np.uint8(target), rows.state),
        refusal=choose(allowed, np.uint8(Refusal.NONE), np.uint8(Refusal.ILLEGAL_MOVE)),
    )


def initialize(rows: Rows, brokers: LiveBrokers, *, controller_epoch: int, replaces: bool = False) -> Change:
    """NEW → ONLINE: elect the first leader. Rows that are not NEW are rejected; a row goes ONLINE once it is committed.

    Args:
        replaces: the stored leadership belongs to a deleted topic of the same name. It is overwritten, under the next
            leader epoch. Otherwise the write expects that nothing is stored, and rows with leadership are rejected.
    """
    elected = first_leader(rows, brokers)
    is_new = rows.state == NEW
    stored = rows.has_leadership & (not replaces)
    found = is_new & ~stored & (elected.leader != NO_LEADER)
    refusal = choose(
        ~is_new,
        np.uint8(Refusal.ILLEGAL_MOVE),
        stored,
        np.uint8(Refusal.STATE_EXISTS),
        found,
        np.uint8(Refusal.NONE),
        np.uint8(Refusal.NO_ONLINE_REPLICA),
    )
    # NO_EPOCH, if nothing is stored, is the epoch before the first.
    return _online(rows, elected, found, refusal, epoch=rows.leader_epoch + 1, controller_epoch=controller_epoch)


def elect(rows: Rows, election: Election, brokers: LiveBrokers, *, unclean: Bools, controller_epoch: int) -> Change:
    """ONLINE or OFFLINE → ONLINE: elect the next leader.

    Args:
        rows: rows with the leadership that is expected to be stored. NEW and ABSENT rows, and rows without leadership,
            are rejected.
        unclean: bool[n], rows that may have an unclean election if no in-sync replica is online. Only OFFLINE and
            UNCLEAN elections use it.
    """
    elected = STRATEGIES[election](rows, brokers, unclean)
    electable = (rows.state == ONLINE) | (rows.state == OFFLINE)
    known = rows.has_leadership
    found = electable & known & (elected.leader != NO_LEADER)
    refusal = choose(
        ~electable,
        np.uint8(Refusal.ILLEGAL_MOVE),
        ~known,
        np.uint8(Refusal.NO_LEADERSHIP),
        found,
        np.uint8(Refusal.NONE),
        np.uint8(Refusal.NO_ELIGIBLE_LEADER),
    )
    return _online(rows, elected, found, refusal, epoch=rows.leader_epoch + 1, controller_epoch=controller_epoch)


def _online(
    rows: Rows,
    elected: Elected,
    found: Bools,
    refusal: Bytes,
    *,
    epoch: Ints,
    controller_epoch: int,
) -> Change:
    return Change.of(
        rows,
        refusal=refusal,
        writes=found,
        state=choose(found, np.uint8(ONLINE), rows.state),
        leader=choose(found, elected.leader, rows.leader),
        leader_epoch=choose(found, epoch, rows.leader_epoch),
        in_sync=choose(found, elected.in_sync, rows.in_sync),
        recovering=choose(found, elected.recovering, rows.recovering),
        controller_epoch=choose(found, np.int32(controller_epoch), rows.controller_epoch),
        notify=elected.notify & found,
        unclean=elected.unclean & found,
    )


def begin(rows: Rows, brokers: LiveBrokers) -> Change:
    """Returns the initial states of partitions when a controller starts, without a transition check.

    NEW without leadership; ONLINE if an online replica leads; OFFLINE otherwise.
    """
    # As in `Table.led_by_none_of`: a leader that is neither assigned nor in the ISR has no slot, and may be online.
    is_led = brokers.live[rows.leader] & ~some(rows.dir_offline & (rows.replicas == rows.leader))
    return Change.of(
        rows, state=choose(~rows.has_leadership, np.uint8(NEW), is_led, np.uint8(ONLINE), np.uint8(OFFLINE))
    )
