"""Control requests as one value per partition, for code that handles a few partitions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kactl.decide.messages.control import PartitionStates, StopReplica
from kactl.decide.state.rows import Ints
from kactl.model import NO_BROKER, TopicPartition, TopicRef


class StateEntry(NamedTuple):
    """Row of a LeaderAndIsr or an UpdateMetadata. `is_new` and `recovering` are False in the latter."""

    name: TopicPartition
    topic_id: bytes
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    is_new: bool
    recovering: bool

    @property
    def topic(self) -> TopicRef:
        return TopicRef(self.name.topic, self.topic_id)


class StopEntry(NamedTuple):
    """Row of a StopReplica."""

    name: TopicPartition
    topic_id: bytes
    leader_epoch: int
    delete: bool


def state_entries(states: PartitionStates) -> list[StateEntry]:
    """Returns the rows of a LeaderAndIsr or an UpdateMetadata, in order."""
    return [
        StateEntry(
            TopicPartition(states.topics[topic].name, int(states.partition[row])),
            states.topics[topic].id,
            int(states.controller_epoch[row]),
            int(states.leader[row]),
            int(states.leader_epoch[row]),
            _members(states.isr, row),
            int(states.partition_epoch[row]),
            _members(states.replicas, row),
            _members(states.adding, row),
            _members(states.removing, row),
            _members(states.offline_replicas, row),
            _flag(states.is_new, row),
            _flag(states.recovering, row),
        )
        for row, topic in enumerate(states.topic.tolist())
    ]


def stop_entries(request: StopReplica) -> list[StopEntry]:
    """Returns the rows of a StopReplica, in order."""
    return [
        StopEntry(
            TopicPartition(request.topics[topic].name, int(request.partition[row])),
            request.topics[topic].id,
            int(request.leader_epoch[row]),
            bool(request.delete[row]),
        )
        for row, topic in enumerate(request.topic.tolist())
    ]


def led_rows(entries: Sequence[StateEntry]) -> list[list[Any]]:
    """Returns the rows of a LeaderAndIsr as a history records them; see `checkers.events.brokers.Led`."""
    return [
        [
            entry.name.topic,
            entry.topic_id.hex(),
            entry.name.partition,
            entry.leader,
            entry.leader_epoch,
            entry.partition_epoch,
            list(entry.isr),
            list(entry.replicas),
            entry.is_new,
        ]
        for entry in entries
    ]


def stopped_rows(entries: Sequence[StopEntry]) -> list[list[Any]]:
    """Returns the rows of a StopReplica as a history records them; see `checkers.events.brokers.Stopped`."""
    return [
        [entry.name.topic, entry.topic_id.hex(), entry.name.partition, entry.leader_epoch, entry.delete]
        for entry in entries
    ]


def _members(column: Ints | None, row: int) -> tuple[int, ...]:
    return () if column is None else tuple(broker for broker in column[:, row].tolist() if broker != NO_BROKER)


def _flag(column: Any, row: int) -> bool:
    return column is not None and bool(column[row])
