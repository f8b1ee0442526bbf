"""Control requests from the controller to brokers, and their responses, as values.

LeaderAndIsr makes a broker lead or follow, UpdateMetadata carries the state of the whole cluster, StopReplica stops or
deletes replicas. Partitions are columns, so that a transport can encode a hundred thousand of them at once, and a
participant in the same process can read them without encoding.

Field names are the protocol's. The encoding is up to each transport.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.decide.state.rows import Bools, Ints
from kactl.model import NO_BROKER, Broker, Endpoint, TopicRef

Shorts = npt.NDArray[np.int16]
_Text = Annotated[str, msgspec.Meta(max_length=1_000)]
_EventId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


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
            participants; None if no leader has to wait. Not part of Kafka's protocol, as those that follow.
        previous: int32[n], the leader before the change that made the request; NO_BROKER if there was none or it is not
            known. Only in LeaderAndIsr; None if none is known.
        reason: int32[n], index into the reasons of the request; None if all rows have the first one.
        unbroken: int32[n], under how many leader epochs directly before this one the leader was the same, as far as the
            controller knows; negative if other leaders were elected under these epochs and have not acted. Only in
            LeaderAndIsr; None if it is 0 for all rows.
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
    previous: Ints | None = None
    reason: Ints | None = None
    unbroken: Ints | None = None

    def __len__(self) -> int:
        return len(self.partition)


class OrderReason(msgspec.Struct, frozen=True, array_like=True):
    """Why the controller sent an order.

    Attributes:
        trigger: kind of the controller event during which it was sent, such as BrokerChange; empty if it is not known.
        strategy: of the election that chose the leader, such as offline or preferred; "first" for the first leader of a
            partition; empty if the order repeats an earlier election.
        event: id of that event, as in the `because` of events. Ids rise, also across restarts of the controller.
        origin: id of the first event of the chain that led to it, if that is another; otherwise 0.
        trace: the W3C `traceparent` of the event's span, with which a handler continues the trace; empty if the trace
            is not recorded.
        previous: the leader before; None if there was none, or it is not known.
    """

    trigger: _Text = ""
    strategy: _Text = ""
    event: _EventId = 0
    origin: _EventId = 0
    trace: _Text = ""
    previous: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Lead or follow partitions. `broker_epoch` is the recipient's, -1 to skip the check.

    Attributes:
        live_leaders: the registered ones of the leaders in `states`, by id.
        reasons: of the rows, in the order in which they arose; empty if no recipient needs them. Kafka's protocol does
            not have them.
        number: see UpdateMetadata; LeaderAndIsr and StopReplica are numbered together.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    states: PartitionStates
    live_leaders: tuple[Broker, ...] = ()
    reasons: tuple[OrderReason, ...] = ()
    number: int = 0

    def reason_of(self, row: int) -> OrderReason:
        """Returns the reason of a row; an empty one if the request has none."""
        if not self.reasons:
            return UNKNOWN_REASON
        states = self.states
        reason = self.reasons[0 if states.reason is None else int(states.reason[row])]
        previous = NO_BROKER if states.previous is None else int(states.previous[row])
        return reason if previous < 0 else msgspec.structs.replace(reason, previous=previous)


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Cluster metadata.

    Attributes:
        states: merged into the broker's metadata; a leader of -2 removes the partition.
        live_brokers: the complete list, by id; it replaces the previous one. It includes brokers that are shutting
            down.
        number: rises with each request that a controller begins to send to a broker; a repeated request keeps it. 0 if
            the request has none. Kafka's protocol does not have it.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    states: PartitionStates
    live_brokers: tuple[Broker, ...] = ()
    number: int = 0

    @property
    def alive(self) -> dict[int, tuple[Endpoint, ...]]:
        """Returns the endpoints of the live brokers, by id."""
        return {broker.id: broker.endpoints for broker in self.live_brokers}


@dataclasses.dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop serving n replicas; those of one topic are adjacent.

    Attributes:
        leader_epoch: int32[n]; -2 if the topic is being deleted, -1 if none is known.
        delete: bool[n], also delete the data.
        number: see LeaderAndIsr.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: Sequence[TopicRef]
    topic: Ints
    partition: Ints
    leader_epoch: Ints
    delete: Bools
    number: int = 0

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
    """Call a handler again now that has failed. Only sent to participants, for an operator."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic: TopicRef
    partition: int


UNKNOWN_REASON: Final = OrderReason()

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
    """Response to LeaderAndIsr.

    Attributes:
        leads_later: leaders do not act when they have acknowledged it; they report when they do (ReportLeaders).
    """

    error: int
    partitions: PartitionErrors
    leads_later: bool = False


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
