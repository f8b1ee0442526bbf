"""Reassignment decisions: completion, transfer of leadership, and the rise of the epoch.

The rules are written out for one partition at a time and compared with the columns on random clusters.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines import reassignment
from kactl.decide.state.change import Refusal
from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, ReplicaState
from tests.oracle.model import ObjectCluster, Partition
from tests.support.cluster_seeds import EPOCH, ClusterSeed, PartitionSeed, led, rows_of, tp
from tests.support.cluster_strategies import BROKERS, Both, clusters

T0 = tp("t-0")
OURS = EPOCH + 1


def is_complete(partition: Partition) -> bool:
    if not partition.adding and not partition.removing:
        return True
    return partition.leading is not None and set(partition.target) <= set(partition.leading.isr)


def heir(cluster: ObjectCluster, partition: Partition, stays: tuple[int, ...]) -> int | None:
    """Return the next leader: NO_LEADER if no replica is eligible, None if the leader stays."""
    leadership = partition.leading
    if leadership is not None and leadership.leader == NO_LEADER:
        in_sync = set(leadership.isr) & set(partition.replicas)
        return NO_LEADER if in_sync and in_sync.isdisjoint(stays) else None
    if leadership is None or leadership.leader not in partition.replicas or leadership.leader in stays:
        return None
    for broker in stays:
        if broker in partition.replicas and broker in leadership.isr and cluster.is_online(broker, partition.name):
            return broker
    return NO_LEADER


@given(clusters())
def test_columns_and_objects_agree_on_completion(both: Both) -> None:
    rows = both.cluster.table.rows(both.cluster.table.all())

    complete = reassignment.is_complete(rows).tolist()

    names = list(both.cluster.table.names(rows.index))
    assert dict(zip(names, complete, strict=True)) == {
        name: is_complete(partition) for name, partition in both.objects.partitions.items()
    }


@given(clusters(), st.lists(st.sampled_from(BROKERS), unique=True))
def test_columns_and_objects_elect_the_same_leader(both: Both, stays: list[int]) -> None:
    rows = both.cluster.table.rows(both.cluster.table.all())
    column = np.array([*stays, NO_BROKER], np.int32).reshape(-1, 1) * np.ones((1, len(rows)), np.int32)

    change = reassignment.hand_over(rows, column, both.cluster.live_brokers, controller_epoch=OURS)

    for index, name in enumerate(both.cluster.table.names(rows.index)):
        expected = heir(both.objects, both.objects.partitions[name], tuple(stays))
        if expected is None or expected == NO_LEADER:
            refusal = Refusal.NONE if expected is None else Refusal.NO_ELIGIBLE_LEADER
            assert (change.refusal[index], change.writes[index]) == (refusal, False)
            assert (change.leader[index], change.leader_epoch[index]) == (rows.leader[index], rows.leader_epoch[index])
            assert change.controller_epoch[index] == rows.controller_epoch[index]
            assert not change.notify[:, index].any()
        else:
            assert (change.refusal[index], change.writes[index]) == (Refusal.NONE, True)
            assert (change.leader[index], change.leader_epoch[index]) == (expected, rows.leader_epoch[index] + 1)
            assert change.controller_epoch[index] == OURS
            assert change.notify[:, index].tolist() == rows.assigned[:, index].tolist()
        # The transfer does not shrink the ISR; stopping a replica does.
        assert change.in_sync[:, index].tolist() == rows.in_sync[:, index].tolist()


@given(clusters(), st.data())
def test_new_epoch_only_removes_stopped_replicas_from_the_isr(both: Both, data: st.DataObject) -> None:
    rows = both.cluster.table.rows(both.cluster.table.all())
    which = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), np.bool_)

    change = reassignment.raise_epoch(rows, which, controller_epoch=OURS)

    known = rows.leader_epoch != NO_EPOCH
    assert change.writes.tolist() == (which & known).tolist()
    assert (change.refusal == Refusal.NO_LEADERSHIP).tolist() == (which & ~known).tolist()
    assert change.leader_epoch.tolist() == (rows.leader_epoch + (which & known)).tolist()
    assert change.leader is rows.leader
    assert change.state is rows.state
    for index, name in enumerate(both.cluster.table.names(rows.index)):
        partition = both.objects.partitions[name]
        isr = set(partition.leading.isr) if partition.leading else set()
        stays = {
            member
            for member in isr
            if member in partition.replicas or partition.replica_state(member) != ReplicaState.ABSENT
        }
        removes = change.writes[index] and rows.leader[index] in stays
        assert {*rows.replicas[change.in_sync[:, index], index].tolist()} == (stays if removes else isr)


@pytest.mark.parametrize(
    ("leader", "isr", "after"),
    [(1, (1, 4), {1}), (1, (1, 2, 4), {1, 2}), (4, (1, 4), {1, 4}), (NO_LEADER, (1, 4), {1, 4}), (1, (1, 5), {1, 5})],
)
def test_stopped_replica_leaves_the_isr_and_running_one_stays(
    leader: int, isr: tuple[int, ...], after: set[int]
) -> None:
    """Broker 4 is stopped, 5 is not yet."""
    seed = PartitionSeed(replicas=(1, 2), leadership=led(leader, 3, isr, 7), states={5: ReplicaState.ONLINE})
    rows = rows_of(ClusterSeed(live=frozenset({1, 2, 4, 5}), partitions={T0: seed}).columns())

    change = reassignment.raise_epoch(rows, np.ones(1, np.bool_), controller_epoch=OURS)

    assert {*rows.replicas[change.in_sync].tolist()} == after
    assert change.leader_epoch.tolist() == [4]


@pytest.mark.parametrize(
    ("isr", "complete"),
    [((1, 2), False), ((1, 2, 3), False), ((3, 4), True), ((1, 2, 3, 4), True), ((3, 4, 9), True), ((), False)],
)
def test_complete_once_the_target_is_in_sync(isr: tuple[int, ...], complete: bool) -> None:
    seed = PartitionSeed(replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2), leadership=led(1, 3, isr, 7), states={})
    rows = rows_of(ClusterSeed(live=frozenset({1, 2, 3, 4}), partitions={T0: seed}).columns())

    assert reassignment.is_complete(rows).tolist() == [complete]
