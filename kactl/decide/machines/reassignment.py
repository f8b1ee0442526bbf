"""State machine of a reassignment, from the replicas that a partition has (the origin) to the requested ones (the
target).

    requested ──store and begin──▶ COPYING ──the whole target is in sync──▶ COMPLETING ──▶ done
                                      │ ▲
                                      └─┘ another target, or none

While it runs, a partition has the replicas of both. It is complete as soon as every replica of the target is in sync,
regardless of other replicas. The other replicas are then stopped, and the assignment is stored last, so that a
reassignment can be resumed at any moment before. Only the assignment itself is stored.

Source: the classic controller's onPartitionReassignment.
"""

import enum
from collections.abc import Iterable

import msgspec
import numpy as np

from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Ints, LiveBrokers, Rows, choose, some
from kactl.model import NO_BROKER, NO_LEADER, Assignment, PartitionView, TopicPartition

# -- decisions ------------------------------------------------------------------------------------------------------


def target_of(rows: Rows) -> Bools:
    """Returns bool[W, n]: the replicas of the target."""
    return rows.assigned & ~rows.removing


def is_complete(rows: Rows) -> Bools:
    """Returns bool[n]: every replica of the target is in sync, or no reassignment is in progress."""
    missing = some(target_of(rows) & ~rows.in_sync)
    complete: Bools = ~some(rows.adding | rows.removing) | (rows.has_leadership & ~missing)
    return complete


def unassigned_in_sync(rows: Rows) -> Bools:
    """bool[W, n]: in-sync replicas that are not assigned, and that nothing is about to stop."""
    return rows.in_sync & rows.stopped


def led_by_target(rows: Rows, brokers: LiveBrokers) -> Bools:
    """Returns bool[n]: the leader is an online replica of the target."""
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
    """Move leadership from a replica that is about to be stopped to one that stays, is in sync, and is online.

    Rows do not change if their leader stays, or is a replica that is not stopped. A row is rejected if no replica can
    take over: stopping its leader would leave the partition without a leader, and possibly without its newest records.
    A row without a leader is rejected if every in-sync replica would be stopped: it could never have a leader again.

    Args:
        stays: int32[K, n], the replicas that stay, in order of preference; NO_BROKER in unused positions.
    """
    eligible = rows.assigned & rows.in_sync & rows.online(brokers.electable)
    leaves = rows.has_leadership & some(rows.assigned & (rows.replicas == rows.leader))
    successor = np.full(len(rows), NO_LEADER, np.int32)
    orphaned = rows.has_leadership & (rows.leader == NO_LEADER) & some(rows.assigned & rows.in_sync)
    for line in stays:
        leaves &= rows.leader != line
        orphaned &= ~some(rows.assigned & rows.in_sync & (rows.replicas == line))
        may_lead = (line != NO_BROKER) & some(eligible & (rows.replicas == line))
        np.copyto(successor, line, where=may_lead & (successor == NO_LEADER))
    writes = leaves & (successor != NO_LEADER)
    return Change.of(
        rows,
        refusal=choose((leaves & ~writes) | orphaned, np.uint8(Refusal.NO_ELIGIBLE_LEADER), np.uint8(Refusal.NONE)),
        writes=writes,
        leader=choose(writes, successor, rows.leader),
        leader_epoch=rows.leader_epoch + writes.astype(np.int32),
        controller_epoch=choose(writes, np.int32(controller_epoch), rows.controller_epoch),
        notify=rows.assigned & writes,
    )


# -- progress ----------------------------------------------------------------------------------------------------------


class Step(enum.Enum):
    """The phase of a reassignment."""

    COPYING = "copying"  # some replicas of the target are not in sync yet
    COMPLETING = "completing"  # all are; the remaining steps failed and are retried


class Progress(msgspec.Struct, frozen=True):
    """Progress of one running reassignment.

    Attributes:
        waits_for: the replicas of the target that are not in sync, in the order of the target.
        dead: those of them that cannot come into sync now: broker not registered, or directory failed.
        leader: the leader, which adds them to the ISR; NO_LEADER if the partition has none, so that none is added.
        reason: the condition that it waits for, as a sentence.
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
    """Returns the progress of the running reassignments, by name; only those of `partitions` if given."""
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
        reason=_waits_for(view, waits_for, dead)
        if copying
        else "its completion could not be stored; the controller retries",
    )


def _waits_for(view: PartitionView, waits_for: tuple[int, ...], dead: tuple[int, ...]) -> str:
    if view.leadership is None:
        return "it never had a leader, so there is no replica to copy from: start one of its brokers"
    if view.leader == NO_LEADER:
        return f"it has no leader to add {_named(waits_for)} to the ISR: start a broker of the ISR"
    if dead == waits_for:
        return f"{_named(dead)} cannot serve: start it, or choose another target"
    alive = tuple(broker for broker in waits_for if broker not in dead)
    rest = f"; {_named(dead)} cannot serve" if dead else ""
    return f"leader {view.leader} has not yet added {_named(alive)} to the ISR{rest}"


def _named(brokers: tuple[int, ...]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
