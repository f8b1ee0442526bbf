"""Acknowledgements of orders to lead, for callers that wait until the leaders of a new topic know of their role."""

import numpy as np

from kactl.errors import ErrorCode
from kactl.messages.events import LeaderAndIsrAnswered
from kactl.state.cluster import Cluster
from kactl.state.table import NO_ROW


def record(cluster: Cluster, event: LeaderAndIsrAnswered, now_ms: float) -> bool:
    """Store which leaders have acknowledged their orders; only of topics that a caller waits for. Returns whether any.

    A response does not name epochs, so they are taken from the request.
    """
    if not cluster.awaited or event.request is None:
        return False
    cluster.awaited = {topic: until_ms for topic, until_ms in cluster.awaited.items() if until_ms > now_ms}
    states, errors, table = event.request.states, event.response.partitions, cluster.table
    positions = [position for position, ref in enumerate(states.topics) if ref.name in cluster.awaited]
    leads = np.isin(states.topic, positions) & (states.leader == event.broker)
    names = [ref.name for ref in states.topics]
    index = table.rows_named_in(names, states.topic[leads], states.partition[leads])
    failed = errors.error != ErrorCode.NONE
    refused = table.rows_named_in(errors.topics, errors.topic[failed], errors.partition[failed])
    accepted = (index != NO_ROW) & ~np.isin(index, refused)
    rows = table.rows(index[accepted])
    leader_epoch = states.leader_epoch[leads][accepted]
    cluster.acknowledged.put(rows.index, rows.topic, rows.partition, leader_epoch, np.ones(len(rows), np.bool_))
    return bool(len(rows))
