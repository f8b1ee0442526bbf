"""Object model of the cluster."""

import dataclasses
from collections.abc import Iterable

from kactl.model import NO_EPOCH, Broker, PartitionState, ReplicaState, TopicPartition


@dataclasses.dataclass(slots=True)
class Leading:
    """Leadership of a partition. `version` is the version of the stored entry."""

    leader: int
    leader_epoch: int
    isr: list[int]
    version: int
    controller_epoch: int
    recovering: bool = False


@dataclasses.dataclass(slots=True)
class Partition:
    """One partition. `leading` is None before the first election; a replica without a state is ABSENT."""

    name: TopicPartition
    replicas: list[int]
    adding: list[int] = dataclasses.field(default_factory=list)
    removing: list[int] = dataclasses.field(default_factory=list)
    state: PartitionState = PartitionState.ABSENT
    leading: Leading | None = None
    replica_states: dict[int, ReplicaState] = dataclasses.field(default_factory=dict)

    @property
    def target(self) -> list[int]:
        return [broker for broker in self.replicas if broker not in self.removing]

    def replica_state(self, broker: int) -> ReplicaState:
        return self.replica_states.get(broker, ReplicaState.ABSENT)


@dataclasses.dataclass(slots=True)
class ObjectCluster:
    """All controller state; `store` is the stored leadership."""

    controller_id: int
    controller_epoch: int
    brokers: dict[int, Broker] = dataclasses.field(default_factory=dict)  # registered, shutting down or not
    shutting_down: set[int] = dataclasses.field(default_factory=set)
    offline_dirs: dict[int, set[TopicPartition]] = dataclasses.field(default_factory=dict)
    partitions: dict[TopicPartition, Partition] = dataclasses.field(default_factory=dict)
    topic_ids: dict[str, bytes] = dataclasses.field(default_factory=dict)
    topics_to_delete: set[str] = dataclasses.field(default_factory=set)
    deletion_started: set[str] = dataclasses.field(default_factory=set)
    store: dict[TopicPartition, Leading] = dataclasses.field(default_factory=dict)
    recovery: bool = True  # whether uncleanly elected leaders receive a recovery state

    # -- brokers -------------------------------------------------------------------------------------------------------

    def is_live(self, broker: int) -> bool:
        return broker in self.brokers and broker not in self.shutting_down

    def is_registered(self, broker: int) -> bool:
        return broker in self.brokers

    def is_online(self, broker: int, name: TopicPartition, *, include_shutting_down: bool = False) -> bool:
        """Return whether the broker is live (or registered) and its log directory is online."""
        there = self.is_registered(broker) if include_shutting_down else self.is_live(broker)
        return there and name not in self.offline_dirs.get(broker, ())

    # -- partitions ----------------------------------------------------------------------------------------------------

    def is_queued(self, partition: Partition) -> bool:
        return partition.name.topic in self.topics_to_delete

    def with_offline_leader(self) -> list[Partition]:
        """Return partitions that have leadership but no online leader, except those of topics queued for deletion."""
        return [
            partition
            for partition in self.partitions.values()
            if partition.leading is not None
            and not self.is_queued(partition)
            and not self.is_online(partition.leading.leader, partition.name)
        ]

    def led_by(self, broker: int) -> list[Partition]:
        """Return partitions led by `broker` with at least two replicas, except those of topics queued for deletion."""
        return [
            partition
            for partition in self.partitions.values()
            if partition.leading is not None
            and partition.leading.leader == broker
            and len(partition.replicas) > 1
            and not self.is_queued(partition)
        ]

    def with_replica_on(self, brokers: Iterable[int]) -> list[Partition]:
        broker_ids = set(brokers)
        return [
            partition
            for partition in self.partitions.values()
            if any(broker in broker_ids for broker in partition.replicas)
        ]

    def waiting_for_a_leader(self) -> list[Partition]:
        """Return candidates of a global election: OFFLINE and NEW partitions, except topics queued for deletion."""
        return [
            partition
            for partition in self.partitions.values()
            if partition.state in (PartitionState.OFFLINE, PartitionState.NEW) and not self.is_queued(partition)
        ]

    def stop_epoch(self, partition: Partition) -> int:
        """Return the leader epoch for StopReplica requests."""
        if self.is_queued(partition):
            return -2
        return NO_EPOCH if partition.leading is None else partition.leading.leader_epoch

    # -- counters ------------------------------------------------------------------------------------------------------

    def count_offline(self) -> int:
        """Count OFFLINE partitions, except those of topics whose deletion has begun."""
        return sum(
            partition.state == PartitionState.OFFLINE and partition.name.topic not in self.deletion_started
            for partition in self.partitions.values()
        )

    def count_imbalanced(self) -> int:
        return sum(self.is_imbalanced(partition) for partition in self.partitions.values())

    def is_imbalanced(self, partition: Partition) -> bool:
        """Return whether the partition counts as imbalanced, i.e. not led by its preferred replica."""
        leading = partition.leading
        if leading is None or self.is_queued(partition) or not partition.replicas:
            return False
        preferred = partition.replicas[0]
        if preferred in partition.adding:
            return preferred in leading.isr
        return leading.leader != preferred
