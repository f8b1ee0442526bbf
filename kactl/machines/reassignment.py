"""The life of a reassignment: from the replicas that a partition has, the origin, to those it is to have, the target.

    asked ──store and begin──▶ COPYING ──the whole target is in sync──▶ COMPLETING ──▶ done
                                  │ ▲
                                  └─┘ another target, or none

While it runs, a partition has the replicas of both. It is complete as soon as every replica of the target is in sync,
whoever else is; the others are stopped then, and the assignment is stored last, so that it can be taken up again at
any moment before. Nothing of it is kept but the assignment itself.

Source: the classic controller's onPartitionReassignment.
"""

import enum
from collections.abc import Iterable

import msgspec
import numpy as np

from kactl.model import NO_BROKER, NO_LEADER, Assignment, PartitionView, TopicPartition
from kactl.state.change import Change, Refusal
from kactl.state.cluster import Cluster
from kactl.state.rows import Bools, Ints, LiveBrokers, Rows, choose, some

# -- what is decided ---------------------------------------------------------------------------------------------------


def target_of(rows: Rows) -> Bools:
    """bool[W, n]: the replicas that stay."""
    return rows.assigned & ~rows.removing


def is_complete(rows: Rows) -> Bools:
    """bool[n]: every replica of the target is in sync, or nothing is being reassigned."""
    missing = some(target_of(rows) & ~rows.in_sync)
    complete: Bools = ~some(rows.adding | rows.removing) | (rows.has_leadership & ~missing)
    return complete


def unassigned_in_sync(rows: Rows) -> Bools:
    """bool[W, n]: in-sync replicas that are not assigned, and that nothing is about to stop."""
    return rows.in_sync & rows.stopped


def led_by_target(rows: Rows, brokers: LiveBrokers) -> Bools:
    """bool[n]: a replica of the target leads, and is online."""
    return some(target_of(rows) & rows.online(brokers.live) & (rows.replicas == rows.leader))


def raise_epoch(rows: Rows, which: Bools, *, controller_epoch: int) -> Change:
    """Raise the leader epoch of the rows `which`, bool[n], so that brokers accept the request as a new one.

    Replicas that were stopped and are not assigned leave the ISR in the same write: a leader may have added one of them
    after the controller last read the ISR. They stay where no other in-sync replica leads.
    Rows without leadership are rejected.

    Source: the classic controller's updateLeaderEpoch; removeReplicasFromIsr, which reads the stored ISR first.
    """
    writes = which & rows.has_leadership
    stays = rows.in_sync & ~rows.stopped
    removes = writes & some(stays & (rows.replicas == rows.leader))
    return Change.of(
        rows,
        refusal=choose(which & ~writes, np.uint8(Refusal.NO_LEADERSHIP), np.uint8(Refusal.NONE)),
        writes=writes,
        in_sync=choose(removes, stays, rows.in_sync),
        leader_epoch=rows.leader_epoch + writes.astype(np.int32),
        controller_epoch=choose(writes, np.int32(controller_epoch), rows.controller_epoch),
    )


def hand_over(rows: Rows, stays: Ints, brokers: LiveBrokers, *, controller_epoch: int) -> Change:
    """Leadership moves from a replica that is about to be stopped to one that stays, is in sync and online.

    Rows that are led by a replica that stays, or by one that nobody will stop, are left as they are. Where nobody can
    follow, the row is refused: to stop its leader would leave the partition without one, and perhaps without its newest
    records. So is a row without a leader of which every in-sync replica would be stopped: it could never have a leader
    again.

    Args:
        stays: int32[K, n], the replicas that stay, in the order in which they are preferred; NO_BROKER where fewer.
    """
    eligible = rows.assigned & rows.in_sync & rows.online(brokers.live)
    leaves = rows.has_leadership & some(rows.assigned & (rows.replicas == rows.leader))
    heir = np.full(len(rows), NO_LEADER, np.int32)
    orphaned = rows.has_leadership & (rows.leader == NO_LEADER) & some(rows.assigned & rows.in_sync)
    for line in stays:
        leaves &= rows.leader != line
        orphaned &= ~some(rows.assigned & rows.in_sync & (rows.replicas == line))
        may_lead = (line != NO_BROKER) & some(eligible & (rows.replicas == line))
        np.copyto(heir, line, where=may_lead & (heir == NO_LEADER))
    writes = leaves & (heir != NO_LEADER)
    return Change.of(
        rows,
        refusal=choose((leaves & ~writes) | orphaned, np.uint8(Refusal.NO_ELIGIBLE_LEADER), np.uint8(Refusal.NONE)),
        writes=writes,
        leader=choose(writes, heir, rows.leader),
        leader_epoch=rows.leader_epoch + writes.astype(np.int32),
        controller_epoch=choose(writes, np.int32(controller_epoch), rows.controller_epoch),
        notify=rows.assigned & writes,
    )


# -- what is told ------------------------------------------------------------------------------------------------------


class Step(enum.Enum):
    """Where a reassignment stands."""

    COPYING = "copying"  # replicas of the target are not in sync yet
    COMPLETING = "completing"  # all are; what is left to do failed, and is tried again


class Progress(msgspec.Struct, frozen=True):
    """One reassignment that runs.

    Attributes:
        waits_for: the replicas of the target that are not in sync, in its order.
        dead: those of them that cannot come into sync now: broker not registered, or directory failed.
        leader: who takes them into the ISR; NO_LEADER if nobody leads, and so nobody is taken in.
        reason: what it waits for, as a sentence.
    """

    topic: str
    partition: int
    assignment: Assignment
    step: Step
    waits_for: tuple[int, ...]
    dead: tuple[int, ...]
    leader: int
    reason: str


def progress(cluster: Cluster, partitions: Iterable[TopicPartition] | None = None) -> list[Progress]:
    """How far the reassignments are that run, by name; of `partitions`, those that are being reassigned."""
    wanted = cluster.reassigning if partitions is None else cluster.reassigning.intersection(partitions)
    return [_progress(cluster, view) for name in sorted(wanted) if (view := cluster.view(name)) is not None]


def _progress(cluster: Cluster, view: PartitionView) -> Progress:
    waits_for = tuple(broker for broker in view.assignment.target if broker not in view.isr)
    dead = tuple(
        broker for broker in waits_for if not cluster.is_replica_online(broker, view.name, include_shutting_down=True)
    )
    copying = bool(waits_for) and view.assignment.is_being_reassigned
    return Progress(
        topic=view.topic,
        partition=view.partition,
        assignment=view.assignment,
        step=Step.COPYING if copying else Step.COMPLETING,
        waits_for=waits_for if copying else (),
        dead=dead if copying else (),
        leader=view.leader,
        reason=_waits_for(view, waits_for, dead) if copying else "its end was not stored; it is tried again",
    )


def _waits_for(view: PartitionView, waits_for: tuple[int, ...], dead: tuple[int, ...]) -> str:
    if view.leadership is None:
        return "it never had a leader, and so has no replica that could be copied: start one of its brokers"
    if view.leader == NO_LEADER:
        return f"it has no leader who could take {_named(waits_for)} into the ISR: start a broker of the ISR"
    if dead == waits_for:
        return f"{_named(dead)} cannot serve: start it, or choose another target"
    alive = tuple(broker for broker in waits_for if broker not in dead)
    rest = f"; {_named(dead)} cannot serve" if dead else ""
    return f"leader {view.leader} has not yet taken {_named(alive)} into the ISR{rest}"


def _named(brokers: tuple[int, ...]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
