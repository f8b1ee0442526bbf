"""Control requests from the controller to brokers, and their responses, as values.

LeaderAndIsr makes a broker lead or follow, UpdateMetadata carries the state of the whole cluster, StopReplica stops or
deletes replicas. Partitions are columns, so that a transport can encode a hundred thousand of them at once, and a
participant in the same process can read them without encoding.

Field names are the protocol's. The encoding is up to each transport.
"""

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.model import Broker, TopicRef
from kactl.state.rows import Bools, Ints

Shorts = npt.NDArray[np.int16]


# Weak references let caches keep derived data, such as encoded bytes, for the lifetime of the states.
@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class PartitionStates:
    """States of n distinct partitions; those of one topic are adjacent.

    Columns of broker ids are int32[W, n]. Positions with NO_BROKER (-1), which may be anywhere, are skipped; the rest
    is the list in its order. Widths may differ from column to column. None means that all lists are empty.

    Attributes:
        topics: the topics of the rows, each with at least one row, in the order of the rows.
        topic: int32[n], index into `topics`, ascending.
        controller_epoch: int32[n], of the controller that decided the leadership, not of the sender.
        recovering: bool[n]; only in LeaderAndIsr.
        is_new: bool[n], the replica may be created on any directory; None in UpdateMetadata.
        offline_replicas: None in LeaderAndIsr.
        hold: bool[n], an earlier leader may still act: the new one starts after its release. Only in LeaderAndIsr to
            participants; None if no leader has to wait. Not part of Kafka's protocol.
    """

    topics: Sequence[TopicRef]
    topic: Ints
    partition: Ints
    controller_epoch: Ints
    leader: Ints
    leader_epoch: Ints
    isr: Ints
    partition_epoch: Ints
    replicas: Ints
    adding: Ints | None = None
    removing: Ints | None = None
    offline_replicas: Ints | None = None
    is_new: Bools | None = None
    recovering: Bools | None = None
    hold: Bools | None = None

    def __len__(self) -> int:
        return len(self.partition)


@dataclasses.dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Lead or follow partitions. `broker_epoch` is the recipient's, -1 to skip the check.

    Attributes:
        live_leaders: the registered ones of the leaders in `states`, by id.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    states: PartitionStates
    live_leaders: tuple[Broker, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Cluster metadata.

    Attributes:
        states: merged into the broker's metadata; a leader of -2 removes the partition.
        live_brokers: the complete list, by id; it replaces the previous one. It includes brokers that are shutting
            down.
        number: rises with each request of a controller epoch to a broker; a repeated request keeps it. 0 if the
            request has none. Kafka's protocol does not have it.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    states: PartitionStates
    live_brokers: tuple[Broker, ...] = ()
    number: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop serving n replicas; those of one topic are adjacent.

    Attributes:
        leader_epoch: int32[n]; -2 if the topic is being deleted, -1 if none is known.
        delete: bool[n], also delete the data.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicRef]
    topic: Ints
    partition: Ints
    leader_epoch: Ints
    delete: Bools

    def __len__(self) -> int:
        return len(self.partition)


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseRelease:
    """Start leaderships that wait: n partitions; those of one topic are adjacent. Only sent to participants.

    Attributes:
        leader_epoch: int32[n]; a participant that leads under another epoch by now ignores the row.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicRef]
    topic: Ints
    partition: Ints
    leader_epoch: Ints

    def __len__(self) -> int:
        return len(self.partition)


@dataclasses.dataclass(frozen=True, slots=True)
class StateSent:
    """Everything that the recipient hosts was in the requests of this controller before. Only sent to participants.

    The recipient ends leaderships that this controller has not named, and reports when they have ended.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaReset:
    """Use a replica again although its handler has failed too often. Only sent to participants, for an operator."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic: TopicRef
    partition: int


# The requests of Kafka's protocol, and those of participants.
KafkaRequest = LeaderAndIsr | UpdateMetadata | StopReplica
Request = KafkaRequest | LeaseRelease | StateSent | ReplicaReset


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionErrors:
    """Error code of each of n partitions; `topics[topic[i]]` is the topic of row i."""

    topics: Sequence[str]
    topic: Ints
    partition: Ints
    error: Shorts

    def __len__(self) -> int:
        return len(self.partition)

    @classmethod
    def none(cls) -> "PartitionErrors":
        empty = np.zeros(0, np.int32)
        return cls((), empty, empty, np.zeros(0, np.int16))


class LeaderAndIsrResponse(msgspec.Struct, frozen=True):
    error: int
    partitions: PartitionErrors


class UpdateMetadataResponse(msgspec.Struct, frozen=True):
    error: int


class StopReplicaResponse(msgspec.Struct, frozen=True):
    error: int
    partitions: PartitionErrors


class Acknowledged(msgspec.Struct, frozen=True):
    """Response to LeaseRelease, StateSent and ReplicaReset."""

    error: int


KafkaResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
Response = KafkaResponse | Acknowledged
