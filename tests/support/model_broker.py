"""Model of a Kafka broker: effects of the controller's three requests that the controller can observe.

Source: ReplicaManager.becomeLeaderOrFollower, stopReplicas and maybeUpdateMetadataCache.
"""

import dataclasses
from typing import Any

import numpy as np

from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaseRelease,
    PartitionStates,
    ReplicaReset,
    Request,
    StateSent,
    StopReplica,
    UpdateMetadata,
)
from kactl.model import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, NO_BROKER
from kactl.model.errors import ErrorCode

NO_EPOCH = -1
OFFLINE = "its directory has failed"
INCONSISTENT_TOPIC_ID, FENCED, UNKNOWN = 103, 74, 3

Answer = dict[str, int]  # an error by partition


@dataclasses.dataclass
class Hosted:
    """A replica. `word` is the last LeaderAndIsr content, or None if it was created without a role."""

    topic_id: bytes
    epoch: int = NO_EPOCH
    word: Any = None
    stopped: bool = False


@dataclasses.dataclass
class ModelBroker:
    """Model of one broker.

    Args:
        broker: its id.
        unmade: partitions with a directory that fails unless they are marked as new.
    """

    broker: int
    unmade: frozenset[str] = frozenset()
    controller_epoch: int = 0
    hosted: dict[str, Hosted | str] = dataclasses.field(default_factory=dict)
    deleted: set[str] = dataclasses.field(default_factory=set)
    alive: dict[int, Any] = dataclasses.field(default_factory=dict)
    known: dict[str, Any] = dataclasses.field(default_factory=dict)
    forgotten: set[tuple[str, bytes]] = dataclasses.field(default_factory=set)

    def take(self, request: Request) -> Answer:
        """Applies a request. Returns its response."""
        assert request.controller_epoch >= self.controller_epoch, "the model speaks to one controller"
        self.controller_epoch = request.controller_epoch
        match request:
            case LeaderAndIsr():
                return {name: self._lead(name, row, request.states) for name, row in _named_rows(request.states)}
            case UpdateMetadata():
                self._update(request)
                return {}
            case LeaseRelease() | StateSent() | ReplicaReset():
                raise TypeError(f"{type(request).__name__} is only for participants")
            case StopReplica():
                return {name: self._stop(name, row, request) for name, row in _named_rows(request)}

    def _lead(self, name: str, row: int, states: PartitionStates) -> int:
        topic_id = states.topics[states.topic[row]].id
        hosted = self.hosted.get(name, Hosted(topic_id))
        if not isinstance(hosted, Hosted):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if hosted.topic_id != topic_id:
            return INCONSISTENT_TOPIC_ID
        if states.leader_epoch[row] <= hosted.epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker not in states.replicas[:, row]:
            return UNKNOWN
        assert states.is_new is not None
        if name not in self.hosted and name in self.unmade and not states.is_new[row]:
            self.hosted[name] = OFFLINE
            return ErrorCode.KAFKA_STORAGE_ERROR
        self.hosted[name] = hosted
        leader = int(states.leader[row])
        if leader == self.broker or leader in self.alive:
            hosted.epoch, hosted.stopped = int(states.leader_epoch[row]), False
            # The fetch target depends on the broker's current view of the leader.
            hosted.word = (*_word(states, row), self.alive.get(leader) if leader != self.broker else None)
        return ErrorCode.NONE

    def _update(self, request: UpdateMetadata) -> None:
        self.alive = {broker.id: broker.endpoints for broker in request.live_brokers}
        states = request.states
        for name, row in _named_rows(states):
            topic_id = states.topics[states.topic[row]].id
            if states.leader[row] == LEADER_DURING_DELETE:
                self.known.pop(name, None)
                self.forgotten.add((name, topic_id))
            else:
                self.known[name] = (topic_id, *_word(states, row))

    def _stop(self, name: str, row: int, request: StopReplica) -> int:
        hosted = self.hosted.get(name)
        if hosted is None:
            return ErrorCode.NONE
        if not isinstance(hosted, Hosted):
            return ErrorCode.KAFKA_STORAGE_ERROR
        epoch = int(request.leader_epoch[row])
        if epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and epoch < hosted.epoch:
            return FENCED
        if request.delete[row]:
            del self.hosted[name]
            self.deleted.add(name)
        else:
            hosted.stopped = True
        return ErrorCode.NONE


def _named_rows(named: PartitionStates | StopReplica) -> list[tuple[str, int]]:
    numbered = zip(named.topic.tolist(), named.partition.tolist(), strict=True)
    return [(f"{named.topics[topic].name}-{partition}", row) for row, (topic, partition) in enumerate(numbered)]


def _word(states: PartitionStates, row: int) -> tuple[Any, ...]:
    """Returns the content for one partition without "is new", which does not describe its state."""
    numbers = ("controller_epoch", "leader", "leader_epoch", "partition_epoch", "recovering")
    lists = ("isr", "replicas", "adding", "removing", "offline_replicas")
    said = [_number(getattr(states, name), row) for name in numbers]
    return (*said, *(_members(getattr(states, name), row) for name in lists))


def _number(column: Any, row: int) -> int:
    return 0 if column is None else int(column[row])


def _members(column: Any, row: int) -> tuple[int, ...]:
    return () if column is None else tuple(np.extract(column[:, row] != NO_BROKER, column[:, row]).tolist())
