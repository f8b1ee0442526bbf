"""Requests that only participants receive: releases of leaderships that wait, and the end of the complete state."""

from collections.abc import Iterable

import numpy as np

from kactl.decide.messages.control import LeaseRelease, StateSent
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import RowNumbers

from .batch import Addressed
from .request_columns import different, order_of


def lease_releases(cluster: Cluster, rows: RowNumbers) -> list[Addressed]:
    """Returns one LeaseRelease for each leader of some rows."""
    table = cluster.table
    leaders = table.column("leader")[rows]
    requests = []
    for broker in different(leaders):
        registered = cluster.brokers.get(broker)
        if registered is None:
            continue
        led = rows[leaders == broker]
        topic, partition = table.column("topic")[led], table.column("partition")[led]
        order = order_of(topic, partition)
        if order is not None:
            led, topic, partition = led[order], topic[order], partition[order]
        refs, position = table.topics_of(topic)
        request = LeaseRelease(
            controller_id=cluster.controller_id,
            controller_epoch=cluster.fence.epoch,
            broker_epoch=registered.epoch,
            topics=refs,
            topic=position,
            partition=partition,
            leader_epoch=np.asarray(table.column("leader_epoch")[led]),
        )
        requests.append(Addressed(broker, request))
    return requests


def state_sent(cluster: Cluster, brokers: Iterable[int]) -> list[Addressed]:
    """Returns a StateSent for each of some brokers that is a participant."""
    epoch = cluster.fence.epoch
    return [
        Addressed(broker, StateSent(cluster.controller_id, epoch, cluster.brokers[broker].epoch))
        for broker in sorted(cluster.holds.participants.intersection(brokers))
    ]
