"""Initial states of tests: a cluster described once and built as columns and as objects.

A `ClusterSeed` contains values only, so that it can be written down, drawn at random and printed after a failure.
`plain_*` convert both forms, and the requests of both, to comparable values: ISRs as sets, everything else in order.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kactl.decide.messages.control import LeaderAndIsr, PartitionStates, StopReplica, UpdateMetadata
from kactl.decide.outbound.batch import Addressed
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Ints, Rows
from kactl.model import (
    NO_BROKER,
    ZERO_ID,
    Assignment,
    Broker,
    Endpoint,
    Fence,
    Leadership,
    PartitionState,
    ReplicaState,
    TopicPartition,
)
from kactl.stores.base import Assignments, Leaderships
from tests.oracle import batch as oracle_batch
from tests.oracle.model import Leading, ObjectCluster, Partition

CONTROLLER = 5
EPOCH = 50  # of the controller under test, unless a seed sets another


def tp(text: str) -> TopicPartition:
    return TopicPartition.parse(text)


def seed_broker(id: int, *, epoch: int | None = None) -> Broker:
    """Returns a registration. By default its epoch is derived from its id."""
    return Broker(id, 1000 + id if epoch is None else epoch, (Endpoint("PLAINTEXT", f"host-{id}", 9092),))


def led(
    leader: int, epoch: int, isr: Iterable[int], version: int = 0, *, recovering: bool = False, by: int = EPOCH
) -> Leadership:
    """Returns `(L, e, [isr], v)`, written by the controller with epoch `by`."""
    return Leadership(leader, epoch, tuple(isr), version, by, recovering)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartitionSeed:
    """One partition.

    Attributes:
        states: of replicas, assigned or not; ABSENT by default.
        dirs_offline: brokers that reported a failed directory of the partition.
    """

    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leadership: Leadership | None = None
    state: PartitionState = PartitionState.ABSENT
    states: Mapping[int, ReplicaState] = dataclasses.field(default_factory=dict)
    dirs_offline: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSeed:
    """A whole cluster. Brokers that are in neither `live` nor `shutting_down` are dead."""

    live: frozenset[int] = frozenset()
    shutting_down: frozenset[int] = frozenset()
    partitions: Mapping[TopicPartition, PartitionSeed] = dataclasses.field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    queued: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    epoch: int = EPOCH
    recovery: bool = True

    @property
    def registered(self) -> frozenset[int]:
        return self.live | self.shutting_down

    def columns(self) -> Cluster:
        cluster = Cluster(CONTROLLER, recovery=self.recovery)
        cluster.fence = Fence(epoch=self.epoch, version=0)
        cluster.add_brokers(seed_broker(id) for id in self.registered)
        for id in self.shutting_down:
            cluster.mark_shutting_down(id)
        seeds = self.partitions
        assignments = {name: Assignment(seed.replicas, seed.adding, seed.removing) for name, seed in seeds.items()}
        at = cluster.put_assignments(Assignments.of(assignments, self.topic_ids))
        cluster.put_leaderships(at, Leaderships.of([seed.leadership for seed in seeds.values()]))
        cluster.set_states(at, np.array([seed.state for seed in seeds.values()], np.uint8))
        for row, seed in zip(at.tolist(), seeds.values(), strict=True):
            for id, state in seed.states.items():
                cluster.table.admit_replica(row, id, state)
            for id in seed.dirs_offline:
                cluster.table.mark_dirs(id, np.array([row], np.intp), True)
        cluster.queue_deletion(self.queued)
        cluster.begin_deletion(self.started)
        return cluster

    def objects(self) -> ObjectCluster:
        cluster = ObjectCluster(
            CONTROLLER,
            self.epoch,
            brokers={id: seed_broker(id) for id in self.registered},
            shutting_down=set(self.shutting_down),
            topic_ids=dict(self.topic_ids),
            topics_to_delete=set(self.queued),
            deletion_started=set(self.started),
            recovery=self.recovery,
        )
        for name, seed in self.partitions.items():
            held = seed.leadership
            cluster.partitions[name] = partition = Partition(
                name,
                list(seed.replicas),
                list(seed.adding),
                list(seed.removing),
                seed.state,
                replica_states=dict(seed.states),
            )
            if held is not None:
                partition.leading = cluster.store[name] = Leading(
                    held.leader,
                    held.leader_epoch,
                    list(held.isr),
                    held.partition_epoch,
                    held.controller_epoch,
                    held.recovering,
                )
            for id in seed.dirs_offline:
                cluster.offline_dirs.setdefault(id, set()).add(name)
        return cluster


def rows_of(cluster: Cluster, *names: str) -> Rows:
    """Returns the gathered rows of some partitions by name; all by default."""
    table = cluster.table
    return table.rows(table.rows_named(map(tp, names)) if names else table.all())


def slots_of(rows: Rows, *brokers: int) -> Any:
    """Returns bool[W, n]: the replicas on some brokers."""
    return np.isin(rows.replicas, brokers)


# -- both forms as values ----------------------------------------------------------------------------------------------


def plain_leadership(held: Leadership | None) -> tuple[Any, ...] | None:
    if held is None:
        return None
    return (
        held.leader,
        held.leader_epoch,
        frozenset(held.isr),
        held.partition_epoch,
        held.controller_epoch,
        held.recovering,
    )


def plain_cluster(cluster: Cluster) -> dict[TopicPartition, Any]:
    """Returns everything the columns contain of each partition."""
    found: dict[TopicPartition, Any] = {}
    for row in cluster.table.all().tolist():
        view = cluster.table.view(row)
        states = {id: state for id, state in view.replica_states.items() if state != ReplicaState.ABSENT}
        found[view.name] = (view.state, view.assignment, plain_leadership(view.leadership), states)
    return found


def plain_objects(cluster: ObjectCluster) -> dict[TopicPartition, Any]:
    """Returns everything the objects contain of each partition."""
    found: dict[TopicPartition, Any] = {}
    for name, partition in cluster.partitions.items():
        assignment = Assignment(tuple(partition.replicas), tuple(partition.adding), tuple(partition.removing))
        states = {id: state for id, state in partition.replica_states.items() if state != ReplicaState.ABSENT}
        leading = partition.leading
        held = leading and (
            leading.leader,
            leading.leader_epoch,
            frozenset(leading.isr),
            leading.version,
            leading.controller_epoch,
            leading.recovering,
        )
        found[name] = (partition.state, assignment, held, states)
    return found


# -- requests as values ------------------------------------------------------------------------------------------------


def plain_request(addressed: Addressed) -> tuple[Any, ...]:
    """Returns (kind, broker, controller id, controller epoch, broker epoch, entries by partition, nodes)."""
    request = addressed.request
    entries: dict[TopicPartition, Any]
    match request:
        case LeaderAndIsr():
            entries, nodes = plain_states(request.states), request.live_leaders
        case UpdateMetadata():
            entries, nodes = plain_states(request.states), request.live_brokers
        case StopReplica():
            entries, nodes = plain_stops(request), ()
    return (
        type(request).__name__,
        addressed.broker,
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        entries,
        [node.id for node in nodes],
    )


def plain_states(states: PartitionStates) -> dict[TopicPartition, dict[str, Any]]:
    """Returns the columns of each partition by field."""
    found: dict[TopicPartition, dict[str, Any]] = {}
    for at, (topic, partition) in enumerate(zip(states.topic.tolist(), states.partition.tolist(), strict=True)):
        entry: dict[str, Any] = {
            "topic_id": states.topics[topic].id,
            "controller_epoch": int(states.controller_epoch[at]),
            "leader": int(states.leader[at]),
            "leader_epoch": int(states.leader_epoch[at]),
            "isr": frozenset(_listed(states.isr, at)),
            "version": int(states.partition_epoch[at]),
            "replicas": _listed(states.replicas, at),
        }
        if states.is_new is not None and states.recovering is not None:
            entry["adding"] = _listed(states.adding, at)
            entry["removing"] = _listed(states.removing, at)
            entry["is_new"] = bool(states.is_new[at])
            entry["recovering"] = bool(states.recovering[at])
        else:
            entry["offline_replicas"] = _listed(states.offline_replicas, at)
        name = TopicPartition(states.topics[topic].name, partition)
        assert name not in found, f"{name} is said twice"
        found[name] = entry
    assert list(states.topic) == sorted(states.topic), "the rows of a topic stand side by side"
    return found


def plain_stops(request: StopReplica) -> dict[TopicPartition, dict[str, Any]]:
    found: dict[TopicPartition, dict[str, Any]] = {}
    for at, topic in enumerate(request.topic.tolist()):
        name = TopicPartition(request.topics[topic].name, int(request.partition[at]))
        assert name not in found, f"{name} is said twice"
        found[name] = {
            "topic_id": request.topics[topic].id,
            "leader_epoch": int(request.leader_epoch[at]),
            "delete": bool(request.delete[at]),
        }
    assert list(request.topic) == sorted(request.topic), "the rows of a topic stand side by side"
    return found


def _listed(column: Ints | None, at: int) -> list[int]:
    if column is None:
        return []
    line: list[int] = column[:, at].tolist()
    return [id for id in line if id != NO_BROKER]


def plain_object_request(request: oracle_batch.Request) -> tuple[Any, ...]:
    """Returns the same as `plain_request` for a request of objects."""
    entries = {}
    for entry in request.entries:
        fields = dataclasses.asdict(entry)
        del fields["name"]
        if "isr" in fields:
            fields["isr"] = frozenset(fields["isr"])
        entries[entry.name] = fields
    return (
        request.kind,
        request.broker,
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        entries,
        request.nodes,
    )


def ids_of(topics: Iterable[str]) -> dict[str, bytes]:
    """Returns an id for each topic, derived from its name."""
    return {topic: topic.encode().ljust(len(ZERO_ID), b".") for topic in topics}
