"""A broker's metadata cache: the partition leaders and live brokers received with UpdateMetadata.

A copy of an earlier request contains nothing new, and is skipped. The number of the request decides, not the epochs of
its rows: the list of live brokers has none. Kafka's brokers apply every UpdateMetadata of the present controller epoch.
"""

import msgspec
import numpy as np

from kactl.decide.messages.control import PartitionStates, UpdateMetadata
from kactl.decide.state.rows import Bools, BrokerSet, Ints
from kactl.model import LEADER_DURING_DELETE, NO_BROKER, NO_EPOCH, ZERO_ID, Broker, TopicPartition
from kactl.stores.base import Names

from .growable import broker_list, grow, put_lists
from .hosted_replicas import names_of
from .request_order import RequestOrder
from .row_index import ABSENT, RowIndex


class CachedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as the broker received it."""

    name: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int


class MetadataCache:
    """Cache of the cluster's metadata. An update merges partitions, and replaces the list of live brokers."""

    def __init__(self) -> None:
        self.controller_id = NO_BROKER
        self._order = RequestOrder()
        self.live_brokers: dict[int, Broker] = {}
        self.live = BrokerSet()
        self._index = RowIndex()
        self._ids: dict[str, bytes] = {}
        self._leader: Ints = np.zeros(0, np.int32)
        self._leader_epoch: Ints = np.zeros(0, np.int32)
        self._partition_epoch: Ints = np.zeros(0, np.int32)
        self._controller_epoch: Ints = np.zeros(0, np.int32)
        self._isr: Ints = np.zeros((0, 0), np.int32)
        self._replicas: Ints = np.zeros((0, 0), np.int32)
        self._offline: Ints = np.zeros((0, 0), np.int32)

    def __len__(self) -> int:
        """Returns the number of known partitions."""
        return len(self._index)

    @property
    def topics(self) -> list[str]:
        return self._index.topics

    def topic_id(self, topic: str) -> bytes:
        """Returns the id of a topic; ZERO_ID if it has none, or is not known."""
        return self._ids.get(topic, ZERO_ID)

    def broker_epoch(self, broker: int) -> int:
        """Returns the epoch of a broker's registration; NO_EPOCH if it is not known."""
        known = self.live_brokers.get(broker)
        return NO_EPOCH if known is None else known.epoch

    def leader(self, name: TopicPartition) -> int | None:
        """Returns the leader of a partition, NO_LEADER if it has none; None if the partition is not known."""
        row = self._index.find_one(name)
        return None if row == ABSENT else int(self._leader[row])

    def partition(self, name: TopicPartition) -> CachedPartition | None:
        row = self._index.find_one(name)
        if row == ABSENT:
            return None
        return CachedPartition(
            name=name,
            leader=int(self._leader[row]),
            leader_epoch=int(self._leader_epoch[row]),
            isr=broker_list(self._isr, row),
            replicas=broker_list(self._replicas, row),
            offline_replicas=broker_list(self._offline, row),
            partition_epoch=int(self._partition_epoch[row]),
            controller_epoch=int(self._controller_epoch[row]),
        )

    def offline_replicas(self, names: Names) -> Ints:
        """Returns int32[W, n]: the replicas of some partitions that are offline, or on brokers that are shutting down.

        Free slots, and the slots of unknown partitions, contain NO_BROKER.
        """
        rows = self._index.find(names_of(names.topics), names.topic, names.partition)
        offline = np.full((len(self._offline), len(names)), NO_BROKER, np.int32)
        known = rows != ABSENT
        offline[:, known] = self._offline[:, rows[known]]
        return offline

    def update(self, request: UpdateMetadata) -> bool:
        """Apply an UpdateMetadata request. Returns False if it is a delayed copy of an earlier one, and is skipped."""
        if self._order.is_late(request):
            return False
        self.controller_id = request.controller_id
        self.live_brokers = {broker.id: broker for broker in request.live_brokers}
        self.live = BrokerSet(self.live_brokers)
        states = request.states
        if not len(states):
            return True
        deleted = states.leader == LEADER_DURING_DELETE
        self._put(states, ~deleted)
        if deleted.any():
            rows = self._index.find(names_of(states.topics), states.topic[deleted], states.partition[deleted])
            for topic in self._index.remove(rows[rows != ABSENT]):
                self._ids.pop(topic, None)
        self._update_topic_ids(states)
        return True

    def _put(self, states: PartitionStates, chosen: Bools) -> None:
        names = names_of(states.topics)
        topic, partition = states.topic[chosen], states.partition[chosen]
        rows = self._index.find(names, topic, partition)
        absent = rows == ABSENT
        if absent.any():
            rows[absent] = self._index.add(names, topic[absent], partition[absent])
            self._grow()
        self._leader[rows] = states.leader[chosen]
        self._leader_epoch[rows] = states.leader_epoch[chosen]
        self._partition_epoch[rows] = states.partition_epoch[chosen]
        self._controller_epoch[rows] = states.controller_epoch[chosen]
        offline = states.offline_replicas
        none = np.zeros((0, len(rows)), np.int32)
        self._isr = put_lists(self._isr, rows, states.isr[:, chosen])
        self._replicas = put_lists(self._replicas, rows, states.replicas[:, chosen])
        self._offline = put_lists(self._offline, rows, none if offline is None else offline[:, chosen])

    def _update_topic_ids(self, states: PartitionStates) -> None:
        """Store the topics' ids. A topic without an id in the request loses the id it had, as in Kafka."""
        for topic in states.topics:
            if topic.id == ZERO_ID or not self._index.has_topic(topic.name):
                self._ids.pop(topic.name, None)
            else:
                self._ids[topic.name] = topic.id

    def _grow(self) -> None:
        capacity = self._index.capacity
        self._leader = grow(self._leader, capacity, NO_BROKER)
        self._leader_epoch = grow(self._leader_epoch, capacity, NO_EPOCH)
        self._partition_epoch = grow(self._partition_epoch, capacity, NO_EPOCH)
        self._controller_epoch = grow(self._controller_epoch, capacity, NO_EPOCH)
        self._isr = grow(self._isr, capacity, NO_BROKER)
        self._replicas = grow(self._replicas, capacity, NO_BROKER)
        self._offline = grow(self._offline, capacity, NO_BROKER)
