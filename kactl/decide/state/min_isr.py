"""Comparison of ISRs with `min.insync.replicas`, over all partitions of a table."""

import dataclasses

import numpy as np

from kactl.model import PartitionState

from .cluster import Cluster
from .rows import Bools, Ints
from .table import Table


@dataclasses.dataclass(frozen=True, slots=True)
class MinIsrState:
    """The size of the ISR compared with `min.insync.replicas`; bool[P] each.

    Attributes:
        under: no leader, or fewer in-sync replicas: brokers reject writes with acks=all.
        at: exactly as many: one more failure has that effect.
        unknown: with leadership, but the topic's value could not be read.
    """

    under: Bools
    at: Bools
    unknown: Bools


def in_sync_against(table: Table, min_isr: Ints) -> MinIsrState:
    """Compare the ISR of every partition with the minimum that brokers enforce: at most the number of replicas.

    Topics marked for deletion and partitions without leadership are omitted.

    Args:
        min_isr: int32[P], 0 if unknown.

    Source: Partition.effectiveTopicSettings, and isUnderTopicSettings of Kafka's tools, which counts a missing leader.
    """
    in_sync = np.add.reduce(table.column("in_sync"), axis=0, dtype=np.int32)
    replicas = np.add.reduce(table.column("assigned"), axis=0, dtype=np.int32)
    counted = np.zeros(len(min_isr), np.bool_)
    counted[table.with_leadership()] = True
    known = min_isr > 0
    enforced = np.minimum(min_isr, replicas)
    led = table.column("leader") >= 0
    under = counted & (~led | (known & (in_sync < enforced)))
    return MinIsrState(under=under, at=counted & led & known & (in_sync == enforced), unknown=counted & ~known)


def under_and_at(cluster: Cluster, min_isr: Ints) -> tuple[int, int]:
    """Returns the number of partitions below `min.insync.replicas`, those that are offline included, and at it.

    Args:
        min_isr: int32[T + 1], by topic number; 0 if unknown.
    """
    table = cluster.table
    state = in_sync_against(table, min_isr[table.column("topic")])
    # An offline partition may still have a leader in the table.
    offline = offline_partitions(cluster) & (table.column("leader_epoch") >= 0)
    return int(np.count_nonzero(state.under | offline)), int(np.count_nonzero(state.at & ~offline))


def offline_partitions(cluster: Cluster) -> Bools:
    """Returns bool[P]: rows that count as offline. Like the controller's counter, without topics being deleted."""
    offline: Bools = cluster.table.column("state") == PartitionState.OFFLINE
    for name in cluster.deletion_started:
        topic = cluster.table.topic(name)
        if topic is not None:
            offline[cluster.table.rows_of(topic)] = False
    return offline
