"""Synthetic clusters: topics of equal size, replicas and leaders spread evenly, all of them in sync."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Ints
from kactl.model import NO_VERSION, Broker, Endpoint, Fence, PartitionState, ReplicaState, TopicRef
from kactl.stores.base import Assignments, Leaderships, Names, Write
from kactl.stores.memory import MemoryStore
from kactl.stores.sqlite import SqliteStore

# Rows per write; the first leaders of all partitions in one write would be an unusually large journal entry.
_ROWS_AT_ONCE = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Size of a cluster."""

    partitions: int
    topics: int
    brokers: int
    replication_factor: int = 3

    @property
    def per_topic(self) -> int:
        return self.partitions // self.topics

    def refs(self) -> tuple[TopicRef, ...]:
        return tuple(
            TopicRef(f"topic-{number:06d}", number.to_bytes(16, "big")) for number in range(1, self.topics + 1)
        )

    def registered(self) -> list[Broker]:
        return [
            Broker(id_, 1000 + id_, (Endpoint("INTERNAL", f"broker-{id_}.example", 9092),))
            for id_ in range(1, self.brokers + 1)
        ]

    def replicas(self) -> Ints:
        """Returns int32[slot, row]: leaders in turn, followers with a stride that changes every round."""
        number = np.arange(self.partitions, dtype=np.int32)
        leader = number % self.brokers
        stride = 1 + (number // self.brokers) % (self.brokers - self.replication_factor + 1)
        followers = [(leader + stride + step) % self.brokers for step in range(self.replication_factor - 1)]
        return np.stack([leader, *followers]).astype(np.int32) + np.int32(1)

    def assignments(self) -> Assignments:
        """Returns all partitions, topic by topic."""
        number = np.arange(self.partitions, dtype=np.int32)
        replicas = self.replicas()
        nothing = np.zeros(replicas.shape, np.bool_)
        return Assignments(
            self.refs(),
            number // np.int32(self.per_topic),
            number % np.int32(self.per_topic),
            replicas,
            nothing,
            nothing,
        )

    def leaderships(self, assignments: Assignments, *, controller_epoch: int) -> Leaderships:
        """Returns first leaders as stored: version 0, leader epoch 0."""
        count = self.partitions
        return Leaderships(
            status=np.zeros(count, np.uint8),
            leader=assignments.replicas[0].copy(),
            leader_epoch=np.zeros(count, np.int32),
            isr=assignments.replicas,
            partition_epoch=np.zeros(count, np.int32),
            controller_epoch=np.full(count, controller_epoch, np.int32),
            recovering=np.zeros(count, np.bool_),
        )

    def writes(self, assignments: Assignments) -> Iterator[Write]:
        """Returns the same leadership as writes to a store that has the topics."""
        for begin in range(0, self.partitions, _ROWS_AT_ONCE):
            part = slice(begin, begin + _ROWS_AT_ONCE)
            count = len(assignments.partition[part])
            yield Write(
                names=Names(assignments.topics, assignments.topic[part], assignments.partition[part]),
                leader=assignments.replicas[0, part],
                leader_epoch=np.zeros(count, np.int32),
                isr=assignments.replicas[:, part],
                recovering=np.zeros(count, np.bool_),
                expected=np.full(count, NO_VERSION, np.int32),
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Racked(Shape):
    """Cluster with as many racks as replicas, and one replica of each partition in each rack.

    Brokers of one rack share no partition. Each of them can fail and return in turn without changing the ISRs that the
    others rely on. Broker b is in rack (b - 1) % replication_factor.
    """

    def replicas(self) -> Ints:
        racks, number = self.replication_factor, np.arange(self.partitions, dtype=np.int32)
        in_rack = self.brokers // racks
        first = number % racks
        places = [(number // racks + (number // self.brokers) * step) % in_rack for step in range(racks)]
        slots = [((first + step) % racks + racks * places[step]).astype(np.int32) for step in range(racks)]
        return np.stack(slots) + np.int32(1)


def known(shape: Shape, *, controller: int, fence: Fence) -> Cluster:
    """Returns the state of a controller after a failover: everything online, with preferred leaders."""
    cluster = Cluster(controller)
    cluster.fence = fence
    cluster.add_brokers(shape.registered())
    assignments = shape.assignments()
    at = cluster.put_assignments(assignments)
    cluster.put_leaderships(at, shape.leaderships(assignments, controller_epoch=fence.epoch))
    assigned = cluster.table.rows(at).assigned
    online, absent = np.uint8(ReplicaState.ONLINE), np.uint8(ReplicaState.ABSENT)
    cluster.table.set_replica_states(at, np.where(assigned, online, absent))
    cluster.set_states(at, PartitionState.ONLINE)
    return cluster


async def fill(store: MemoryStore | SqliteStore, shape: Shape, fence: Fence) -> Assignments:
    """Writes a cluster to a store: all topics at once, then the first leaders as a controller would."""
    assignments = shape.assignments()
    await store.create_topics(assignments)
    for write in shape.writes(assignments):
        committed = await store.commit(write, fence)
        assert committed.committed.all()
    return assignments
