"""The object form of a broker's failure, timed: what the tests hold the columns against, as a measure of their worth.

One object for each partition, one entry for each partition and broker of a request; its store is a dict that answers at
once, and its bytes are packed one entry after the other. It is plain Python as one would write it at first, and so
Python's garbage collector runs when it likes; how much of the time that is shows itself when it is kept out.
"""

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
    """A cluster as objects: all replicas online, all leaders the preferred ones."""
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
    """One failure: milliseconds by stage, in total, and what it affected.

    Args:
        collecting: let the garbage collector run meanwhile.
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
