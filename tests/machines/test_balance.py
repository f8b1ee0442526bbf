"""Who leads where others are preferred: the columns say what objects, looked at one by one, say."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kactl.machines.balance import balance
from kactl.model import Leadership, TopicPartition
from kactl.state.rows import BrokerSet
from tests.oracle.model import ObjectCluster, Partition
from tests.support.cluster_seeds import ClusterSeed, PartitionSeed
from tests.support.cluster_strategies import Both, clusters


def preferring(objects: ObjectCluster) -> dict[int, list[Partition]]:
    """The partitions that prefer each broker."""
    groups: dict[int, list[Partition]] = {}
    for partition in objects.partitions.values():
        if partition.replicas and not objects.is_queued(partition):
            groups.setdefault(partition.replicas[0], []).append(partition)
    return groups


def led_elsewhere(partition: Partition) -> bool:
    return partition.leading is not None and partition.leading.leader != partition.replicas[0]


def may_return(objects: ObjectCluster, partition: Partition) -> bool:
    preferred = partition.replicas[0]
    assert partition.leading is not None
    return objects.is_online(preferred, partition.name) and preferred in partition.leading.isr


@given(clusters(partitions_max=8), st.sampled_from([0, 10, 33, 50, 99, 100]))
def test_columns_and_objects_agree_on_who_is_to_return(both: Both, percentage: int) -> None:
    groups = preferring(both.objects)
    over = {
        broker: [each for each in group if led_elsewhere(each)]
        for broker, group in groups.items()
        if sum(map(led_elsewhere, group)) / len(group) > percentage / 100
    }

    found = balance(both.cluster.table, both.cluster.live_brokers.live, percentage=percentage)

    assert found.brokers.tolist() == sorted(groups)
    assert found.preferring.tolist() == [len(groups[broker]) for broker in sorted(groups)]
    assert found.elsewhere.tolist() == [sum(map(led_elsewhere, groups[broker])) for broker in sorted(groups)]
    assert found.over.tolist() == sorted(over)
    assert {both.cluster.table.view(row).name for row in found.returning.tolist()} == {
        each.name for group in over.values() for each in group if may_return(both.objects, each)
    }


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 100))
def test_a_share_is_compared_as_if_it_were_divided(partitions: int, moved: int, percentage: int) -> None:
    """Whole numbers cross the threshold where Kafka's division does."""
    moved = min(moved, partitions)
    led = [2] * moved + [1] * (partitions - moved)
    cluster = ClusterSeed(
        live=frozenset({1, 2}),
        partitions={
            TopicPartition("t", number): PartitionSeed(replicas=(1, 2), leadership=Leadership(leader, 0, (1, 2), 0, 1))
            for number, leader in enumerate(led)
        },
    ).columns()

    found = balance(cluster.table, BrokerSet({1, 2}), percentage=percentage)

    assert (len(found.over) == 1) == (moved / partitions > percentage / 100)
    assert len(found.returning) == (moved if len(found.over) else 0)


def test_nothing_is_found_where_there_is_nothing() -> None:
    cluster = ClusterSeed(live=frozenset(), partitions={}).columns()

    found = balance(cluster.table, BrokerSet(), percentage=0)

    assert len(found.brokers) == len(found.returning) == 0
    assert found.returning.dtype == np.intp
