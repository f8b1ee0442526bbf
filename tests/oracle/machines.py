"""Both state machines as objects: every move, one partition and one replica at a time, with its writes and requests.

Each call plans from the known state, commits by compare-and-set on the version, and applies the committed plans. Plans
that the store rejects are left unapplied; reloading them is the actors' task.
"""

import dataclasses
from collections.abc import Collection, Iterable

from kactl.decide.machines.election import Election
from kactl.decide.state.change import Refusal
from kactl.model import NO_LEADER, NO_VERSION, PartitionState, ReplicaState, TopicPartition

from .batch import ObjectBatch
from .election import STRATEGIES, Choice, first_leader
from .model import Leading, ObjectCluster, Partition

# Legal previous states of each state.
PARTITION_MOVES = {
    PartitionState.NEW: (PartitionState.ABSENT,),
    PartitionState.ONLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.OFFLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.ABSENT: (PartitionState.OFFLINE,),
}
SERVING = (ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE)
REPLICA_MOVES = {
    ReplicaState.NEW: (ReplicaState.ABSENT,),
    ReplicaState.ONLINE: SERVING,
    ReplicaState.OFFLINE: SERVING,
    ReplicaState.DELETION_STARTED: (ReplicaState.OFFLINE,),
    ReplicaState.DELETION_SUCCESSFUL: (ReplicaState.DELETION_STARTED,),
    ReplicaState.DELETION_INELIGIBLE: (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED),
    ReplicaState.ABSENT: (ReplicaState.DELETION_SUCCESSFUL,),
}


@dataclasses.dataclass(slots=True)
class Planned:
    """New leadership of one partition, not stored yet. `expected` is the stored version required for the write."""

    partition: Partition
    leading: Leading
    expected: int
    told: list[int]
    is_new: bool = False
    unclean: bool = False


Refusals = dict[TopicPartition, Refusal]


def commit(cluster: ObjectCluster, plans: Iterable[Planned]) -> list[Planned]:
    """Store each plan by compare-and-set. Returns the committed plans, with their new versions."""
    committed = []
    for plan in plans:
        stored = cluster.store.get(plan.partition.name)
        if plan.expected != (NO_VERSION if stored is None else stored.version):
            continue
        plan.leading = dataclasses.replace(plan.leading, version=plan.expected + 1)
        cluster.store[plan.partition.name] = plan.leading
        committed.append(plan)
    return committed


# -- partitions --------------------------------------------------------------------------------------------------------


def move_partitions(partitions: Iterable[Partition], target: PartitionState) -> Refusals:
    """Move partitions to a state that needs no leader. Returns the refusals."""
    refused = {}
    for partition in partitions:
        if partition.state in PARTITION_MOVES[target]:
            partition.state = target
        else:
            refused[partition.name] = Refusal.ILLEGAL_MOVE
    return refused


def plan_online(
    cluster: ObjectCluster,
    partitions: Iterable[Partition],
    election: Election,
    unclean_topics: Collection[str] = (),
) -> tuple[list[Planned], Refusals]:
    """Plan first leaders for NEW partitions and elections for the others. Returns the plans and the refusals."""
    plans, refused = [], {}
    for partition in partitions:
        plan = (
            _plan_first(cluster, partition)
            if partition.state == PartitionState.NEW
            else _plan_next(cluster, partition, election, unclean_topics)
        )
        if isinstance(plan, Refusal):
            refused[partition.name] = plan
        else:
            plans.append(plan)
    return plans, refused


def _plan_first(cluster: ObjectCluster, partition: Partition) -> Planned | Refusal:
    epoch, expected, stored = 0, NO_VERSION, partition.leading
    if stored is not None:
        if stored.controller_epoch != cluster.controller_epoch or not set(stored.isr).isdisjoint(partition.replicas):
            return Refusal.STATE_EXISTS
        # This controller wrote it for an earlier topic of the same name.
        epoch, expected = stored.leader_epoch + 1, stored.version
    choice = first_leader(cluster, partition)
    if choice is None:
        return Refusal.NO_ONLINE_REPLICA
    return _planned(cluster, partition, choice, epoch=epoch, expected=expected, is_new=True)


def _plan_next(
    cluster: ObjectCluster, partition: Partition, election: Election, unclean_topics: Collection[str]
) -> Planned | Refusal:
    if partition.state not in PARTITION_MOVES[PartitionState.ONLINE]:
        return Refusal.ILLEGAL_MOVE
    leading = partition.leading
    if leading is None:
        return Refusal.NO_LEADERSHIP
    unclean = election is Election.UNCLEAN or partition.name.topic in unclean_topics
    choice = STRATEGIES[election](cluster, partition, leading, unclean=unclean)
    if choice is None:
        return Refusal.NO_ELIGIBLE_LEADER
    return _planned(cluster, partition, choice, epoch=leading.leader_epoch + 1, expected=leading.version, is_new=False)


def _planned(
    cluster: ObjectCluster, partition: Partition, choice: Choice, *, epoch: int, expected: int, is_new: bool
) -> Planned:
    leading = Leading(choice.leader, epoch, choice.isr, expected, cluster.controller_epoch, choice.recovering)
    return Planned(partition, leading, expected, choice.told, is_new, choice.unclean)


def apply_online(batch: ObjectBatch, committed: Iterable[Planned]) -> None:
    for plan in committed:
        plan.partition.leading = plan.leading
        plan.partition.state = PartitionState.ONLINE
        batch.lead_and_follow(plan.told, plan.partition, is_new=plan.is_new)


# -- replicas ----------------------------------------------------------------------------------------------------------


def move_replica(batch: ObjectBatch, partition: Partition, broker: int, target: ReplicaState) -> Refusal:
    """Move one replica to any state but OFFLINE. Returns Refusal.NONE if the move is legal."""
    before = partition.replica_state(broker)
    if before not in REPLICA_MOVES[target]:
        return Refusal.ILLEGAL_MOVE
    leading = partition.leading
    match target:
        case ReplicaState.NEW if leading is not None:
            if leading.leader == broker:
                return Refusal.ASKED_TO_LEAD
            batch.lead_and_follow([broker], partition, is_new=True)
        case ReplicaState.ONLINE if before == ReplicaState.NEW:
            if broker not in partition.replicas:
                partition.replicas = [*partition.replicas, broker]
        case ReplicaState.ONLINE if leading is not None:
            batch.lead_and_follow([broker], partition, is_new=False)
        case ReplicaState.DELETION_STARTED:
            batch.stop(broker, partition, delete=True)
        case ReplicaState.ABSENT:
            partition.replicas = [other for other in partition.replicas if other != broker]
            partition.adding = [other for other in partition.adding if other != broker]
            partition.removing = [other for other in partition.removing if other != broker]
    partition.replica_states[broker] = target
    return Refusal.NONE


def begin_offline(batch: ObjectBatch, partitions: Iterable[Partition], broker: int) -> list[Partition]:
    """Send StopReplica for all replicas that may become OFFLINE.

    Replicas of partitions without leadership become OFFLINE at once; returns the partitions with leadership.
    """
    with_leadership = []
    for partition in partitions:
        if partition.replica_state(broker) not in REPLICA_MOVES[ReplicaState.OFFLINE]:
            continue
        batch.stop(broker, partition, delete=False)
        if partition.leading is None:
            batch.update_metadata(batch.cluster.brokers, [partition])
            partition.replica_states[broker] = ReplicaState.OFFLINE
        else:
            with_leadership.append(partition)
    return with_leadership


def plan_shrink(
    cluster: ObjectCluster, partitions: Iterable[Partition], broker: int
) -> tuple[list[Planned], list[Partition]]:
    """Return plans that remove a broker from ISRs, and the partitions whose ISR does not contain it."""
    plans, untouched = [], []
    for partition in partitions:
        leading = partition.leading
        assert leading is not None
        if broker not in leading.isr:
            untouched.append(partition)
            continue
        remaining = [member for member in leading.isr if member != broker]
        # A stopped replica that a leader added to the ISR has no log any more: it does not count as a member.
        alone = all(
            member not in partition.replicas and partition.replica_state(member) == ReplicaState.ABSENT
            for member in remaining
        )
        isr = leading.isr if alone else remaining
        leader = NO_LEADER if leading.leader == broker else leading.leader
        changed = Leading(
            leader, leading.leader_epoch + 1, isr, leading.version, cluster.controller_epoch, leading.recovering
        )
        plans.append(Planned(partition, changed, leading.version, _others(partition, broker)))
    return plans, untouched


def apply_shrink(batch: ObjectBatch, committed: Iterable[Planned], untouched: Iterable[Partition], broker: int) -> None:
    """Apply the committed plans. Untouched partitions get this controller's epoch and are sent as well."""
    shrunk = []
    for plan in committed:
        plan.partition.leading = plan.leading
        shrunk.append(plan.partition)
    for partition in untouched:
        assert partition.leading is not None
        partition.leading = dataclasses.replace(partition.leading, controller_epoch=batch.cluster.controller_epoch)
        shrunk.append(partition)
    for partition in shrunk:
        partition.replica_states[broker] = ReplicaState.OFFLINE
        if not batch.cluster.is_queued(partition):
            batch.lead_and_follow(_others(partition, broker), partition, is_new=False)


def _others(partition: Partition, broker: int) -> list[int]:
    return [other for other in partition.replicas if other != broker]


def replicas_offline(cluster: ObjectCluster, batch: ObjectBatch, replicas: dict[int, list[Partition]]) -> None:
    """Move replicas to OFFLINE, one broker after the other."""
    for broker, partitions in sorted(replicas.items()):
        plans, untouched = plan_shrink(cluster, begin_offline(batch, partitions, broker), broker)
        apply_shrink(batch, commit(cluster, plans), untouched, broker)


# -- startup -----------------------------------------------------------------------------------------------------------


def state_at_the_beginning(cluster: ObjectCluster, partition: Partition) -> PartitionState:
    if partition.leading is None:
        return PartitionState.NEW
    online = cluster.is_online(partition.leading.leader, partition.name)
    return PartitionState.ONLINE if online else PartitionState.OFFLINE
