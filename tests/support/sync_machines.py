"""The machine actors' steps without a store and without waiting: every write is committed.

Plan, commit, apply, gather. Objects do the same in `tests.oracle`. Both are compared here; the actors, which wait for a
real store, have their own tests.
"""

from collections.abc import Collection

import numpy as np

from kactl.decide.machines import partition, replica
from kactl.decide.machines.election import Election
from kactl.decide.outbound.batch import Addressed, RequestBatch
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Bytes, RowNumbers, Rows, holds, some
from kactl.model import PartitionState, ReplicaState


def committed(change: Change) -> Change:
    """Returns the change with the versions of a store that rejects nothing."""
    return change.committed(change.rows.partition_epoch + 1)


def unclean_in(cluster: Cluster, rows: Rows, topics: Collection[str]) -> Bools:
    """Returns bool[n]: the rows of some topics."""
    names = [cluster.table.topic_at(number).name for number in rows.topic.tolist()]
    return np.array([name in topics for name in names], np.bool_)


def move_partitions(cluster: Cluster, at: RowNumbers, target: PartitionState) -> Bytes:
    """Apply a move that needs no leader. Returns the refusals."""
    change = partition.move(cluster.table.rows(at), target)
    cluster.apply(change)
    return change.refusal


def go_online(
    cluster: Cluster, batch: RequestBatch, at: RowNumbers, election: Election, unclean_topics: Collection[str] = ()
) -> tuple[Bytes, bool]:
    """Elect first leaders for NEW rows, and leaders for the others. Returns refusals and success."""
    rows = cluster.table.rows(at)
    new = rows.state == PartitionState.NEW
    refusal = np.zeros(len(rows), np.uint8)
    elected = False
    for which in (new, ~new):
        part = rows.take(which)
        if which is new:
            change = partition.initialize(part, cluster.live_brokers, controller_epoch=cluster.fence.epoch)
        else:
            unclean = np.full(len(part), election is Election.UNCLEAN) | unclean_in(cluster, part, unclean_topics)
            change = partition.elect(
                part, election, cluster.live_brokers, unclean=unclean, controller_epoch=cluster.fence.epoch
            )
            elected = bool(change.writes.any())
        refusal[which] = change.refusal
        online = committed(change).take(change.writes)
        cluster.apply(online)
        batch.lead_and_follow(online.after(), online.notify, is_new=which is new)
    return refusal, elected


def move_replicas(
    cluster: Cluster, batch: RequestBatch, at: RowNumbers, brokers: Collection[int], target: ReplicaState
) -> Bytes:
    """Move the replicas on some brokers, except to OFFLINE. Returns refusals as uint8[W, n]."""
    rows = cluster.table.rows(at)
    planned = replica.plan(rows, np.isin(rows.replicas, list(brokers)), target)
    cluster.apply(planned.change)
    if target == ReplicaState.DELETION_STARTED:
        batch.stop(rows, planned.moved, delete=True)
    told = some(planned.change.notify)
    change = planned.change.take(told)
    batch.lead_and_follow(change.after(), change.notify, is_new=target == ReplicaState.NEW)
    return planned.refused


def replicas_offline(cluster: Cluster, batch: RequestBatch, at: RowNumbers, brokers: Collection[int]) -> None:
    """Move the replicas on some brokers to OFFLINE, broker by broker."""
    for broker in sorted(brokers):
        rows = cluster.table.rows(at)
        rows = rows.take(replica.legal_offline(rows, broker))
        batch.stop(rows, holds(rows, broker), delete=False)
        if not rows.has_leadership.all():
            batch.update_metadata(cluster.brokers)
        change = committed(replica.go_offline(rows, broker, controller_epoch=cluster.fence.epoch))
        cluster.apply(change)
        told = change.take(rows.has_leadership & ~rows.queued)
        batch.lead_and_follow(told.after(), told.notify)


def broker_failed(cluster: Cluster, broker: int, *, unclean_topics: Collection[str] = ()) -> list[Addressed]:
    """Apply a broker failure and its consequences without deletions. Returns the requests in order."""
    cluster.forget_offline_dirs(broker)
    cluster.remove_brokers([broker])
    cluster.mark_shutting_down(broker, False)
    table, batch = cluster.table, RequestBatch(cluster)
    move_partitions(cluster, table.led_by_none_of(cluster.live_brokers.live), PartitionState.OFFLINE)
    waiting = table.in_state(PartitionState.OFFLINE, PartitionState.NEW)
    _, elected = go_online(cluster, batch, waiting, Election.OFFLINE, unclean_topics)
    requests = batch.flush()
    at = table.with_replica_on([broker])
    at = at[~table.rows(at).queued]
    replicas_offline(cluster, batch, at, [broker])
    requests += batch.flush()
    if not len(at) and not elected:
        batch.update_metadata(cluster.brokers)
        requests += batch.flush()
    return requests


def refusals(cluster: Cluster, at: RowNumbers, refusal: Bytes) -> dict[object, Refusal]:
    """Returns the refusals of partitions by name."""
    rows = cluster.table.rows(at)
    return {
        cluster.table.view(int(row)).name: Refusal(int(reason))
        for row, reason in zip(rows.index.tolist(), refusal.tolist(), strict=True)
        if reason
    }
