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
from collections.abc import Callable
from typing import Final

import numpy as np

from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import (
    Bools,
    BrokerSet,
    Bytes,
    Ints,
    LiveBrokers,
    Rows,
    Transitions,
    check,
    choose,
    first,
    preferred_slot,
    some,
)
from kactl.model import NO_LEADER, PartitionState

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


def initialize(rows: Rows, brokers: LiveBrokers, *, controller_epoch: int) -> Change:
    """NEW → ONLINE: elect the first leader. Rows that are not NEW are rejected; a row goes ONLINE once it is committed.

    The write expects that nothing is stored, and rows with leadership are rejected. Exception: leadership that this
    controller wrote for a deleted topic of the same name is overwritten, under the next leader epoch.
    """
    elected = first_leader(rows, brokers)
    is_new = rows.state == NEW
    # Of an earlier topic: no assigned replica is in sync.
    earlier = (rows.controller_epoch == controller_epoch) & ~some(rows.in_sync & rows.assigned)
    stored = rows.has_leadership & ~earlier
    has_leader = is_new & ~stored & (elected.leader != NO_LEADER)
    refusal = choose(
        ~is_new,
        np.uint8(Refusal.ILLEGAL_MOVE),
        stored,
        np.uint8(Refusal.STATE_EXISTS),
        has_leader,
        np.uint8(Refusal.NONE),
        np.uint8(Refusal.NO_ONLINE_REPLICA),
    )
    # NO_EPOCH, if nothing is stored, is the epoch before the first.
    return _online(rows, elected, has_leader, refusal, epoch=rows.leader_epoch + 1, controller_epoch=controller_epoch)


def electable(rows: Rows) -> Bools:
    """Returns bool[n]: the rows that become ONLINE by an election."""
    result: Bools = (rows.state == ONLINE) | (rows.state == OFFLINE)
    return result


def elect(rows: Rows, election: Election, brokers: LiveBrokers, *, unclean: Bools, controller_epoch: int) -> Change:
    """ONLINE or OFFLINE → ONLINE: elect the next leader.

    Args:
        rows: rows with the leadership that is expected to be stored. NEW and ABSENT rows, and rows without leadership,
            are rejected.
        unclean: bool[n], rows that may have an unclean election if no in-sync replica is online. Only OFFLINE and
            UNCLEAN elections use it.
    """
    elected = STRATEGIES[election](rows, brokers, unclean)
    may_elect = electable(rows)
    known = rows.has_leadership
    has_leader = may_elect & known & (elected.leader != NO_LEADER)
    refusal = choose(
        ~may_elect,
        np.uint8(Refusal.ILLEGAL_MOVE),
        ~known,
        np.uint8(Refusal.NO_LEADERSHIP),
        has_leader,
        np.uint8(Refusal.NONE),
        np.uint8(Refusal.NO_ELIGIBLE_LEADER),
    )
    return _online(rows, elected, has_leader, refusal, epoch=rows.leader_epoch + 1, controller_epoch=controller_epoch)


def go_online(
    rows: Rows, election: Election | None, brokers: LiveBrokers, *, unclean: Bools, controller_epoch: int
) -> Change:
    """NEW, ONLINE or OFFLINE → ONLINE: elect first leaders and next leaders. ABSENT rows are rejected.

    Args:
        election: None rejects all rows that are not NEW.
        unclean: as for `elect`.
    """
    is_new = rows.state == NEW
    if election is None or is_new.all():
        return initialize(rows, brokers, controller_epoch=controller_epoch)
    change = elect(rows, election, brokers, unclean=unclean, controller_epoch=controller_epoch)
    if not is_new.any():
        return change
    return initialize(rows, brokers, controller_epoch=controller_epoch).where(is_new, change)


def _online(
    rows: Rows,
    elected: Elected,
    has_leader: Bools,
    refusal: Bytes,
    *,
    epoch: Ints,
    controller_epoch: int,
) -> Change:
    return Change.of(
        rows,
        refusal=refusal,
        writes=has_leader,
        state=choose(has_leader, np.uint8(ONLINE), rows.state),
        leader=choose(has_leader, elected.leader, rows.leader),
        leader_epoch=choose(has_leader, epoch, rows.leader_epoch),
        in_sync=choose(has_leader, elected.in_sync, rows.in_sync),
        recovering=choose(has_leader, elected.recovering, rows.recovering),
        controller_epoch=choose(has_leader, np.int32(controller_epoch), rows.controller_epoch),
        notify=elected.notify & has_leader,
        unclean=elected.unclean & has_leader,
    )


def adopt(read: Rows, staying: BrokerSet, registered: BrokerSet) -> Change:
    """NEW → ONLINE or OFFLINE, with leadership as it was read from the store.

    Every assigned replica with a registered broker is notified where a leader is online.
    """
    state = begin(read, staying).state
    notify = read.assigned & read.online(registered) & (state == ONLINE)
    # All columns as read; the table has none of them.
    return Change.of(read, state=state, leader=read.leader.copy(), notify=notify)


def begin(rows: Rows, staying: BrokerSet) -> Change:
    """Returns the initial states of partitions when a controller starts, without a transition check.

    NEW without leadership; ONLINE if a replica on one of the brokers `staying` leads; OFFLINE otherwise.
    """
    # As in `Table.led_by_none_of`: a leader that is neither assigned nor in the ISR has no slot, and may be online.
    is_led = staying[rows.leader] & ~some(rows.dir_offline & (rows.replicas == rows.leader))
    return Change.of(
        rows, state=choose(~rows.has_leadership, np.uint8(NEW), is_led, np.uint8(ONLINE), np.uint8(OFFLINE))
    )


# -- rows that still need a move ---------------------------------------------------------------------------------------

# Returns bool[n]: the rows that need a move of a large event. Small events may have made it for some of them meanwhile.
Wanted = Callable[[Rows, Cluster], Bools]


def is_leaderless(rows: Rows, cluster: Cluster) -> Bools:
    """Partitions without a leader, except those of topics queued for deletion."""
    wanting: Bools = (rows.state == NEW) | (rows.state == OFFLINE)
    return wanting & ~rows.queued


def has_lost_its_leader(rows: Rows, cluster: Cluster) -> Bools:
    """As `Table.led_by_none_of` the brokers that stay."""
    led = cluster.staying[rows.leader] & ~some(rows.dir_offline & (rows.replicas == rows.leader))
    return rows.has_leadership & ~led & ~rows.queued


def is_led_elsewhere(rows: Rows, cluster: Cluster) -> Bools:
    """Partitions that are not led by their preferred replicas, as in `balance`."""
    elsewhere: Bools = rows.leader != first(preferred_slot(rows.assigned), rows.replicas)
    return elsewhere


def prefers_another(rows: Rows, cluster: Cluster) -> Bools:
    """Partitions not led by their first replicas; also those without leadership, where only the store knows."""
    elsewhere: Bools = rows.leader != first(rows.assigned, rows.replicas)
    return elsewhere | ~rows.has_leadership


def has_no_live_leader(rows: Rows, cluster: Cluster) -> Bools:
    """Partitions whose leaders are dead; also those without leadership, where only the store knows."""
    return ~cluster.live_brokers.live[rows.leader] | ~rows.has_leadership


def is_led_by(broker: int) -> Wanted:
    """Selects partitions that a broker leads."""
    return lambda rows, _: rows.leader == broker
