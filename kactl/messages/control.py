"""What the controller says to brokers and what they answer, as values.

Three requests: LeaderAndIsr makes a broker lead or follow, UpdateMetadata tells it about the whole cluster,
StopReplica takes replicas away. What they say of partitions is columns, so that a transport can encode a hundred
thousand of them at once, and so that a participant in the same process can read them without any encoding.

Names of fields are the protocol's. How a transport writes them down is its own affair.
"""

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.model import Broker, TopicRef
from kactl.state.rows import Bools, Ints

Shorts = npt.NDArray[np.int16]


# Weakly referenced by those who keep what they made of it, such as its bytes, for as long as it is needed.
@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class PartitionStates:
    """n partitions, those of one topic side by side; no partition twice.

    Columns of broker ids are int32[W, n] with NO_BROKER (-1) in places that are to be passed over, anywhere in the
    column; what remains is the list in its order. Widths may differ from column to column; None means that all lists
    are empty.

    Attributes:
        topics: the topics that the rows speak of, each at least once, in the order of the rows.
        topic: int32[n], index into `topics`, ascending.
        controller_epoch: int32[n], of the controller that decided the leadership, not of the sender.
        recovering: bool[n]; only in LeaderAndIsr.
        is_new: bool[n], the replica may be created on any directory; None in UpdateMetadata.
        offline_replicas: None in LeaderAndIsr.
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

    def __len__(self) -> int:
        return len(self.partition)


@dataclasses.dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Lead or follow. `broker_epoch` is the recipient's, -1 to leave it unchecked.

    Attributes:
        live_leaders: the registered ones among the leaders that `states` names, by id.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    states: PartitionStates
    live_leaders: tuple[Broker, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """The cluster as the controller knows it.

    Attributes:
        states: merged into what the broker knows; a leader of -2 takes the partition away.
        live_brokers: the whole list, by id; it replaces the one before. Brokers that are shutting down are in it.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    states: PartitionStates
    live_brokers: tuple[Broker, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop serving n replicas; those of one topic side by side.

    Attributes:
        leader_epoch: int32[n]; -2 if the topic is being deleted, -1 if none is known.
        delete: bool[n], delete the data too.
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


Request = LeaderAndIsr | UpdateMetadata | StopReplica


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionErrors:
    """An error number for each of n partitions; `topics[topic[i]]` names the topic of row i."""

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


Response = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
