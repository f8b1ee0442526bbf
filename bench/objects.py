"""Broker failure in the object form, with which the tests compare the columns.

There is one object per partition, and one entry per partition and broker of a request. The store is a dict, and
requests are packed entry by entry. Python's garbage collector runs as usual; a second measurement without it shows
its share."""

import contextlib
import time

from kactl.model import PartitionState, ReplicaState
from tests.oracle import batch
from tests.oracle.failure import BrokerFailure
from tests.oracle.model import Leading, ObjectCluster, Partition

from .clusters import Shape
from .run import undisturbed
from .stages import Stages


def object_cluster(shape: Shape, controller: int) -> ObjectCluster:
    """Returns a cluster as objects: all replicas online, all leaders preferred."""
    cluster = ObjectCluster(controller, 1, brokers={broker.id: broker for broker in shape.registered()})
    for name, held in shape.assignments().items():
        replicas = list(held.replicas)
        states = dict.fromkeys(replicas, ReplicaState.ONLINE)
        leading = Leading(replicas[0], 0, list(replicas), 0, 1)
        cluster.partitions[name] = Partition(
            name, replicas, state=PartitionState.ONLINE, leading=leading, replica_states=states
        )
        cluster.store[name] = Leading(replicas[0], 0, list(replicas), 0, 1)
    cluster.topic_ids = {ref.name: ref.id for ref in shape.refs()}
    return cluster


def fail(cluster: ObjectCluster, broker: int, *, collecting: bool) -> dict[str, float]:
    """Returns milliseconds by stage and in total of one failure, and the affected partitions.

    Args:
        collecting: leave the garbage collector enabled.
    """
    stages = Stages()
    affected = len(cluster.with_replica_on([broker]))
    del cluster.brokers[broker]
    failure = BrokerFailure(cluster, broker)
    steps = (
        ("find", failure.find_leaderless),
        ("elect", failure.elect),
        ("commit", failure.commit),
        ("apply", failure.apply_elections),
        ("find", failure.find_hosted),
        ("elect", failure.shrink),
        ("commit", failure.commit),
        ("apply", failure.apply_shrinks),
    )
    with contextlib.nullcontext() if collecting else undisturbed():
        began = time.perf_counter()
        for stage, step in steps:
            with stages.timed(stage):
                step()
        with stages.timed("encode"):
            batch.encode(failure.requests)
        total = (time.perf_counter() - began) * 1000
    return stages.ms | {"total": total, "affected": float(affected)}
