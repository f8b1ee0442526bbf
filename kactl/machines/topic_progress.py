"""Progress of a topic towards leaders that have acknowledged their orders."""

from collections.abc import Callable
from typing import Final

import numpy as np

from kactl.messages.admin import TopicEnsureRequested, TopicProgress
from kactl.model import NO_LEADER, TopicPartition
from kactl.state.cluster import Cluster

from .explain import explain_partition, handler_text
from .placement import usable_brokers
from .shortage import too_few, unusable

# As many as an error message can name.
NAMED_MAX: Final = 5


def missing_brokers(cluster: Cluster, asked: TopicEnsureRequested) -> str:
    """Returns why a topic cannot be created before more brokers have registered or linked; empty if it can.

    The brokers that count are those of `usable_brokers`, as for placement, also if an assignment names them.
    """
    usable = {broker.id for broker in usable_brokers(cluster)}
    if asked.assignment is not None:
        named = {broker for assignment in asked.assignment.values() for broker in assignment.replicas}
        return unusable(cluster, named - usable)
    wanted = 1 if asked.replication_factor is None else asked.replication_factor
    if len(usable) >= wanted:
        return ""
    return too_few(cluster, usable, wanted)


def progress_of(
    cluster: Cluster, topic: str, *, count: int, created: bool, last_error: Callable[[int], str]
) -> TopicProgress:
    """Returns which partitions of a topic wait for a leader, or for its acknowledgement.

    Acknowledgements are known for topics of `Cluster.awaited`. The leaders of other topics only have to be registered.

    Args:
        count: the number of partitions that the topic is to have at least.
        created: as the result states it.
        last_error: returns why a broker cannot be reached; empty if it can.
    """
    known = cluster.table.topic(topic)
    index = cluster.table.rows_of(known) if known is not None else np.zeros(0, np.intp)
    if len(index) < count:
        return TopicProgress(created, count - len(index), ("its partitions have not been read from the store",))
    rows = cluster.table.rows(index)
    has_leader = rows.leader != NO_LEADER
    if topic in cluster.awaited:
        acknowledged = cluster.acknowledged.holds(rows.index, rows.topic, rows.partition, rows.leader_epoch)
    else:
        acknowledged = cluster.live_brokers.registered[rows.leader]
    waiting = np.flatnonzero(~(has_leader & acknowledged))
    named = [
        _reason(cluster, TopicPartition(topic, int(rows.partition[row])), int(rows.leader[row]), last_error)
        for row in waiting[:NAMED_MAX].tolist()
    ]
    return TopicProgress(created, len(waiting), tuple(named))


def _reason(cluster: Cluster, name: TopicPartition, leader: int, last_error: Callable[[int], str]) -> str:
    if leader == NO_LEADER:
        explanation = explain_partition(cluster, name)
        if explanation is None:
            return f"{name} has no leader"
        return "; ".join((f"{name}: {explanation.verdict}", *explanation.remedies[:1]))
    if leader not in cluster.brokers:
        return f"{name}: its leader {leader} is not registered any more"
    report = cluster.replica_report(name, leader)
    state = "" if report is None else f": {handler_text(report)}"
    if cluster.table.row(name) in cluster.table.dirs_offline(leader):
        return f"{name}: its leader {leader} has reported an error{state}"
    error = last_error(leader)
    return f"{name}: its leader {leader} has not acknowledged the order{f' ({error})' if error else ''}{state}"
