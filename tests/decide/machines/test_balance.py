"""Leader balance: columns compared with objects."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines.balance import balance
from kactl.decide.state.rows import BrokerSet
from kactl.model import Leadership, TopicPartition
from tests.oracle.model import ObjectCluster, Partition
from tests.support.cluster_seeds import ClusterSeed, PartitionSeed
from tests.support.cluster_strategies import Both, clusters


def preferring(objects: ObjectCluster) -> dict[int, list[Partition]]:
    """Return the partitions by preferred broker."""
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
def test_columns_and_objects_agree_on_returning_leaderships(both: Both, percentage: int) -> None:
    groups = preferring(both.objects)
    over = {
        broker: [partition for partition in group if led_elsewhere(partition)]
        for broker, group in groups.items()
        if sum(map(led_elsewhere, group)) / len(group) > percentage / 100
    }

    result = balance(both.cluster.table, both.cluster.live_brokers.live, percentage=percentage)

    assert result.brokers.tolist() == sorted(groups)
    assert result.preferring.tolist() == [len(groups[broker]) for broker in sorted(groups)]
    assert result.elsewhere.tolist() == [sum(map(led_elsewhere, groups[broker])) for broker in sorted(groups)]
    assert result.over.tolist() == sorted(over)
    assert {both.cluster.table.view(row).name for row in result.returning.tolist()} == {
        partition.name for group in over.values() for partition in group if may_return(both.objects, partition)
    }


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 100))
def test_imbalance_share_is_compared_like_a_quotient(partitions: int, moved: int, percentage: int) -> None:
    """Integer arithmetic crosses the threshold where Kafka's division does."""
    moved = min(moved, partitions)
    led = [2] * moved + [1] * (partitions - moved)
    cluster = ClusterSeed(
        live=frozenset({1, 2}),
        partitions={
            TopicPartition("t", number): PartitionSeed(replicas=(1, 2), leadership=Leadership(leader, 0, (1, 2), 0, 1))
            for number, leader in enumerate(led)
        },
    ).columns()

    result = balance(cluster.table, BrokerSet({1, 2}), percentage=percentage)

    assert (len(result.over) == 1) == (moved / partitions > percentage / 100)
    assert len(result.returning) == (moved if len(result.over) else 0)


def test_balance_of_an_empty_cluster_is_empty() -> None:
    cluster = ClusterSeed(live=frozenset(), partitions={}).columns()

    result = balance(cluster.table, BrokerSet(), percentage=0)

    assert len(result.brokers) == len(result.returning) == 0
    assert result.returning.dtype == np.intp
