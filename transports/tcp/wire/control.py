"""Control requests and their responses in MessagePack.

The states of partitions are the bulk of a request. They are encoded once for all recipients of the same object.
"""

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from kactl.decide.messages.control import (
    Acknowledged,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    LeaseRelease,
    OrderReason,
    PartitionErrors,
    PartitionStates,
    ReplicaReset,
    StateSent,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.state.rows import Bools
from kactl.model import ZERO_ID, Broker, TopicRef
from kactl.model.errors import MalformedMessage

from .columns import Array, Buffer, Column, pieces, rows, slots, values

TOPICS_MAX: Final = 1_000_000
BROKERS_MAX: Final = 100_000
REASONS_MAX: Final = 1_000_000  # one for each row, if as many requests to a slow participant were merged
ID_BYTES: Final = len(ZERO_ID)
_encode: Final = msgspec.msgpack.Encoder().encode

_Names = Annotated[list[Annotated[str, msgspec.Meta(max_length=1_000)]], msgspec.Meta(max_length=TOPICS_MAX)]
_Brokers = Annotated[tuple[Broker, ...], msgspec.Meta(max_length=BROKERS_MAX)]
_Reasons = Annotated[tuple[OrderReason, ...], msgspec.Meta(max_length=REASONS_MAX)]
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Columns of PartitionStates after the topics, in their order there: name, type, whether it has several slots and
# whether it may be missing. New ones are appended.
_LISTS: Final = ("isr", "replicas", "adding", "removing", "offline_replicas")
_COLUMNS: Final = tuple(
    (field.name, "?" if field.type in (Bools, Bools | None) else "<i4", field.name in _LISTS, field.default is None)
    for field in dataclasses.fields(PartitionStates)[1:]
)
_Arrived: Any = msgspec.defstruct(
    "_Arrived",
    [
        ("names", _Names),
        ("ids", bytes),
        *((name, Column | None, None) if is_optional else (name, Column) for name, _, _, is_optional in _COLUMNS),
    ],
    frozen=True,
    array_like=True,
)


class States(_Arrived, frozen=True, array_like=True):  # type: ignore[misc, call-arg]
    """PartitionStates as they arrived."""

    def build(self) -> PartitionStates:
        count = len(rows(self.partition, "<i4"))
        columns: dict[str, Any] = {}
        for name, dtype, is_list, _ in _COLUMNS:
            column = getattr(self, name)
            single = None if column is None or is_list else values(column, count, dtype)
            columns[name] = slots(column, count, dtype) if is_list else single
        topics = topics_of(self.names, self.ids)
        check_topics(columns["topic"], topics)
        return PartitionStates(topics=topics, **columns)


class LeaderAndIsrHead(msgspec.Struct, frozen=True, array_like=True, tag="LeaderAndIsr"):
    controller_id: _Int32
    controller_epoch: _Int32
    broker_epoch: _Int64
    states: States
    live_leaders: _Brokers = ()
    reasons: _Reasons = ()
    number: _Int64 = 0

    def build(self) -> LeaderAndIsr:
        own = (self.controller_id, self.controller_epoch, self.broker_epoch)
        states = self.states.build()
        reason = states.reason
        if reason is not None and len(reason) and (reason.min() < 0 or reason.max() >= len(self.reasons)):
            raise MalformedMessage(f"a row names a reason that is not among the {len(self.reasons)} of its message")
        return LeaderAndIsr(*own, states, self.live_leaders, self.reasons, self.number)


class UpdateMetadataHead(msgspec.Struct, frozen=True, array_like=True, tag="UpdateMetadata"):
    controller_id: _Int32
    controller_epoch: _Int32
    broker_epoch: _Int64
    states: States
    live_brokers: _Brokers = ()
    number: _Int64 = 0

    def build(self) -> UpdateMetadata:
        own = (self.controller_id, self.controller_epoch, self.broker_epoch)
        return UpdateMetadata(*own, self.states.build(), self.live_brokers, self.number)


class StopReplicaHead(msgspec.Struct, frozen=True, array_like=True, tag="StopReplica"):
    controller_id: _Int32
    controller_epoch: _Int32
    broker_epoch: _Int64
    names: _Names
    ids: bytes
    topic: Column
    partition: Column
    leader_epoch: Column
    delete: Column
    number: _Int64 = 0

    def build(self) -> StopReplica:
        topics, partition = topics_of(self.names, self.ids), rows(self.partition, "<i4")
        count = len(partition)
        topic = values(self.topic, count, "<i4")
        check_topics(topic, topics)
        epoch, delete = values(self.leader_epoch, count, "<i4"), values(self.delete, count, "?")
        own = (self.controller_id, self.controller_epoch, self.broker_epoch)
        return StopReplica(*own, topics, topic, partition, epoch, delete, self.number)


class LeaseReleaseHead(msgspec.Struct, frozen=True, array_like=True, tag="LeaseRelease"):
    controller_id: _Int32
    controller_epoch: _Int32
    broker_epoch: _Int64
    names: _Names
    ids: bytes
    topic: Column
    partition: Column
    leader_epoch: Column

    def build(self) -> LeaseRelease:
        topics, partition = topics_of(self.names, self.ids), rows(self.partition, "<i4")
        topic = values(self.topic, len(partition), "<i4")
        check_topics(topic, topics)
        epoch = values(self.leader_epoch, len(partition), "<i4")
        own = (self.controller_id, self.controller_epoch, self.broker_epoch)
        return LeaseRelease(*own, topics, topic, partition, epoch)


class StateSentHead(msgspec.Struct, frozen=True, array_like=True, tag="StateSent"):
    controller_id: _Int32
    controller_epoch: _Int32
    broker_epoch: _Int64

    def build(self) -> StateSent:
        return StateSent(self.controller_id, self.controller_epoch, self.broker_epoch)


class ReplicaResetHead(msgspec.Struct, frozen=True, array_like=True, tag="ReplicaReset"):
    controller_id: _Int32
    controller_epoch: _Int32
    broker_epoch: _Int64
    names: _Names
    ids: bytes
    partition: _Int32

    def build(self) -> ReplicaReset:
        own = (self.controller_id, self.controller_epoch, self.broker_epoch)
        topics = topics_of(self.names, self.ids)
        if len(topics) != 1:
            raise MalformedMessage(f"a ReplicaReset names {len(topics)} topics, and not one")
        return ReplicaReset(*own, topics[0], self.partition)


class AcknowledgedHead(msgspec.Struct, frozen=True, array_like=True, tag="Acknowledged"):
    error: _Int32

    def build(self) -> Acknowledged:
        return Acknowledged(self.error)


class Errors(msgspec.Struct, frozen=True, array_like=True):
    """PartitionErrors as they arrived."""

    names: _Names
    topic: Column
    partition: Column
    error: Column

    def build(self) -> PartitionErrors:
        partition = rows(self.partition, "<i4")
        topic, error = values(self.topic, len(partition), "<i4"), values(self.error, len(partition), "<i2")
        check_topics(topic, self.names, ascending=False)
        return PartitionErrors(tuple(self.names), topic, partition, error)


class LeaderAndIsrResponseHead(msgspec.Struct, frozen=True, array_like=True, tag="LeaderAndIsrResponse"):
    error: _Int32
    partitions: Errors
    leads_later: bool = False  # earlier participants do not send it

    def build(self) -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(self.error, self.partitions.build(), self.leads_later)


class UpdateMetadataResponseHead(msgspec.Struct, frozen=True, array_like=True, tag="UpdateMetadataResponse"):
    error: _Int32

    def build(self) -> UpdateMetadataResponse:
        return UpdateMetadataResponse(self.error)


class StopReplicaResponseHead(msgspec.Struct, frozen=True, array_like=True, tag="StopReplicaResponse"):
    error: _Int32
    partitions: Errors

    def build(self) -> StopReplicaResponse:
        return StopReplicaResponse(self.error, self.partitions.build())


def topics_of(names: list[str], ids: bytes) -> tuple[TopicRef, ...]:
    """Returns the topics of names and joined ids.

    Raises:
        MalformedMessage: the ids are not ID_BYTES for each name.
    """
    if len(ids) != ID_BYTES * len(names):
        raise MalformedMessage(f"{len(ids)} bytes of topic ids for {len(names)} topics, not {ID_BYTES} bytes each")
    return tuple(
        TopicRef(name, ids[at : at + ID_BYTES]) for name, at in zip(names, range(0, len(ids), ID_BYTES), strict=True)
    )


def check_topics(topic: Array, topics: Sequence[Any], *, ascending: bool = True) -> None:
    """Raises MalformedMessage if a row names a topic that is not listed, or if the topics are not in order."""
    if not len(topic):
        return
    if topic.min() < 0 or topic.max() >= len(topics):
        raise MalformedMessage(f"a row names a topic that is not among the {len(topics)} of its message")
    if ascending and (topic[1:] < topic[:-1]).any():
        raise MalformedMessage("the rows of a message are not grouped by topic")


def array(size: int) -> bytes:
    """Returns the head of a MessagePack array of up to 2^16 - 1 members."""
    return bytes((0x90 | size,)) if size < 16 else b"\xdc" + size.to_bytes(2, "big")


def topic_pieces(topics: Sequence[TopicRef]) -> list[Buffer]:
    """Returns the names and the joined ids of topics."""
    names = [topic.name for topic in topics]
    return [_encode(names), _encode(b"".join([topic.id for topic in topics]))]


# Encoded states of requests to several brokers, by the id of the object, as long as it lives.
_kept: dict[int, tuple["weakref.ref[PartitionStates]", list[Buffer]]] = {}


def states_pieces(states: PartitionStates) -> list[Buffer]:
    """Returns encoded states; the same list for the same object. Columns are views of its arrays, not copies."""
    key = id(states)
    kept = _kept.get(key)
    if kept is not None and kept[0]() is states:
        return kept[1]
    encoded: list[Buffer] = [array(2 + len(_COLUMNS)), *topic_pieces(states.topics)]
    for name, dtype, _, _ in _COLUMNS:
        encoded += pieces(getattr(states, name), dtype)
    # The arrays are kept, but not the object itself, which would then live for ever.
    _kept[key] = weakref.ref(states, lambda _: _kept.pop(key, None)), encoded
    return encoded


def forget_states() -> None:
    """Forget encoded states; for measurements."""
    _kept.clear()


def _orders(name: str, message: LeaderAndIsr | UpdateMetadata, brokers: tuple[Broker, ...], *more: Any) -> list[Buffer]:
    own = (message.controller_id, message.controller_epoch, message.broker_epoch)
    head = [array(6 + len(more)), _encode(name), *(_encode(number) for number in own)]
    return [b"".join(head), *states_pieces(message.states), _encode(brokers), *map(_encode, more)]


def _stop(message: StopReplica) -> list[Buffer]:
    own = (message.controller_id, message.controller_epoch, message.broker_epoch)
    parts: list[Buffer] = [array(11), _encode("StopReplica"), *(_encode(number) for number in own)]
    parts += topic_pieces(message.topics)
    parts += pieces(message.topic, "<i4") + pieces(message.partition, "<i4")
    parts += pieces(message.leader_epoch, "<i4") + pieces(message.delete, "?")
    return [*parts, _encode(message.number)]


def _release(message: LeaseRelease) -> list[Buffer]:
    own = (message.controller_id, message.controller_epoch, message.broker_epoch)
    parts: list[Buffer] = [array(9), _encode("LeaseRelease"), *(_encode(number) for number in own)]
    parts += topic_pieces(message.topics)
    return parts + pieces(message.topic, "<i4") + pieces(message.partition, "<i4") + pieces(message.leader_epoch, "<i4")


def _state_sent(message: StateSent) -> list[Buffer]:
    own = (message.controller_id, message.controller_epoch, message.broker_epoch)
    return [_encode(["StateSent", *own])]


def _reset(message: ReplicaReset) -> list[Buffer]:
    own = (message.controller_id, message.controller_epoch, message.broker_epoch)
    parts: list[Buffer] = [array(7), _encode("ReplicaReset"), *(_encode(number) for number in own)]
    return [*parts, *topic_pieces((message.topic,)), _encode(message.partition)]


def _errors(name: str, message: LeaderAndIsrResponse | StopReplicaResponse, *more: bool) -> list[Buffer]:
    errors, size = message.partitions, array(3 + len(more))
    parts: list[Buffer] = [size, _encode(name), _encode(message.error), array(4), _encode(list(errors.topics))]
    parts += pieces(errors.topic, "<i4") + pieces(errors.partition, "<i4") + pieces(errors.error, "<i2")
    return [*parts, *map(_encode, more)]


ENCODERS: Final[dict[type, Callable[[Any], list[Buffer]]]] = {
    LeaderAndIsr: lambda message: _orders(
        "LeaderAndIsr", message, message.live_leaders, message.reasons, message.number
    ),
    UpdateMetadata: lambda message: _orders("UpdateMetadata", message, message.live_brokers, message.number),
    StopReplica: _stop,
    LeaseRelease: _release,
    StateSent: _state_sent,
    ReplicaReset: _reset,
    Acknowledged: lambda message: [_encode(["Acknowledged", message.error])],
    LeaderAndIsrResponse: lambda message: _errors(
        "LeaderAndIsrResponse", message, *([True] if message.leads_later else [])
    ),
    UpdateMetadataResponse: lambda message: [_encode(["UpdateMetadataResponse", message.error])],
    StopReplicaResponse: lambda message: _errors("StopReplicaResponse", message),
}
REQUEST_HEADS: Final = (
    LeaderAndIsrHead,
    UpdateMetadataHead,
    StopReplicaHead,
    LeaseReleaseHead,
    StateSentHead,
    ReplicaResetHead,
)
RESPONSE_HEADS: Final = (
    LeaderAndIsrResponseHead,
    UpdateMetadataResponseHead,
    StopReplicaResponseHead,
    AcknowledgedHead,
)
