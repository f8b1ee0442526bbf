"""Requests to controllers and their answers in MessagePack.

The encoding follows the fields of each type: an array of a name of the type and its fields, in their order. A field
that is appended with a default is ignored by an earlier receiver, and filled in by a later one.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from kactl.decide.messages import admin, broker, leases
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.model import Assignment, ProducerIdBlock, TopicPartition, TopicRef

# Bytes of a request, and elements of its lists, which programs of other hosts send: others are rejected before they are
# decoded. Decoding takes up to some microseconds an element, and the controller does nothing else meanwhile.
# Participants divide what they send. Columns take next to no time, and have only the bounds of the network.
BYTES_MAX: Final = 512 * 1024
ROWS_MAX: Final = 10_000
_ROWS: Final = msgspec.Meta(max_length=ROWS_MAX)
_BOUNDED: Final[dict[tuple[type[ControllerRequest], str], Any]] = {
    (broker.AlterPartitionReceived, "proposals"): Annotated[tuple[broker.IsrProposal, ...], _ROWS],
    (broker.ReportPartitions, "reports"): Annotated[tuple[broker.PartitionReport, ...], _ROWS],
    (admin.EnsureTopic, "assignment"): Annotated[dict[int, Assignment], _ROWS] | None,
    (admin.EnsureTopic, "config"): Annotated[dict[str, str], _ROWS],
}
_WITH_COLUMNS: Final = frozenset({broker.ReportLeaders, leases.ReportLeaderships})

# The type of the answer to each request, which the docstring of the request documents.
ANSWERS: Final[dict[type[ControllerRequest], Any]] = {
    admin.ResignController: None,
    admin.ReleaseController: bool,
    admin.EnableUncleanElections: None,
    admin.AwaitEvents: None,
    admin.UndrainBroker: bool,
    admin.AllocateBrokerId: int,
    admin.ResetReplica: ReplicaReport,
    admin.ReplicaLeaderElection: list[admin.ElectionResult],
    admin.CreateTopic: TopicRef,
    admin.DeleteTopic: TopicRef,
    admin.EnsureTopic: admin.TopicProgress,
    admin.AddPartitions: None,
    admin.ApiPartitionReassignment: list[admin.ReassignmentResult],
    admin.ListPartitionReassignments: dict[TopicPartition, Assignment],
    admin.UpdateFeatures: list[admin.FeatureResult],
    broker.ControlledShutdown: list[TopicPartition],
    broker.AlterPartitionReceived: list[broker.IsrResult],
    broker.AllocateProducerIds: ProducerIdBlock,
    broker.ReportPartitions: None,
    broker.ReportLeaders: None,
    leases.ReportLeaderships: None,
}

# The name of each request in its encoding. Names of protocol version 1 stay, whatever the types are called.
_NAMES: Final[dict[type[ControllerRequest], str]] = {
    admin.ResignController: "ResignRequested",
    admin.ReleaseController: "ReleaseRequested",
    admin.EnableUncleanElections: "UncleanElectionsEnabled",
    admin.AwaitEvents: "EventsHandled",
    admin.UndrainBroker: "UndrainRequested",
    admin.AllocateBrokerId: "BrokerIdRequested",
    admin.ResetReplica: "ReplicaResetRequested",
    admin.ReplicaLeaderElection: "ElectionRequested",
    admin.CreateTopic: "TopicCreationRequested",
    admin.DeleteTopic: "TopicDeletionRequested",
    admin.EnsureTopic: "TopicEnsureRequested",
    admin.AddPartitions: "PartitionsRequested",
    admin.ApiPartitionReassignment: "ReassignmentRequested",
    admin.ListPartitionReassignments: "ReassignmentsListed",
    admin.UpdateFeatures: "FeatureUpdatesRequested",
    broker.ControlledShutdown: "ControlledShutdownRequested",
    broker.AlterPartitionReceived: "AlterPartitionRequested",
    broker.AllocateProducerIds: "ProducerIdsRequested",
    broker.ReportPartitions: "PartitionsReported",
    broker.ReportLeaders: "LeadersReported",
    leases.ReportLeaderships: "LeadershipsReported",
}


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """Base of the encoded forms; each has the fields of its request."""

    def build(self) -> ControllerRequest:
        return _REQUESTS[type(self)](**{name: getattr(self, name) for name in self.__struct_fields__})


def _mirror(request: type[ControllerRequest]) -> type[_Head]:
    fields: list[Any] = []
    for found in msgspec.structs.fields(request):
        kind: Any = _BOUNDED.get((request, found.name), found.type)
        if found.required:
            fields.append((found.name, kind))
        elif found.default is not msgspec.NODEFAULT:
            fields.append((found.name, kind, found.default))
        else:
            fields.append((found.name, kind, msgspec.field(default_factory=found.default_factory)))
    name = _NAMES[request]
    made: Any = msgspec.defstruct(name, fields, bases=(_Head,), frozen=True, array_like=True, tag=name)
    mirror: type[_Head] = made
    return mirror


_MIRRORS: Final = {request: _mirror(request) for request in ANSWERS}
_REQUESTS: Final = {mirror: request for request, mirror in _MIRRORS.items()}
_BY_NAME: Final = {name: request for request, name in _NAMES.items()}
_ANSWER_DECODERS: Final = {request: msgspec.msgpack.Decoder(answer) for request, answer in ANSWERS.items()}
HEADS: Final = tuple(_MIRRORS.values())


def request_head(request: ControllerRequest) -> _Head:
    """Returns the encoded form of a request."""
    return _MIRRORS[type(request)](**msgspec.structs.asdict(request))


class Begin(NamedTuple):
    """What a request names before its lists.

    Attributes:
        kind: its type; None if there is none of that name.
        broker, broker_epoch: its fields of these names; None if it has none.
    """

    kind: type[ControllerRequest] | None
    broker: int | None
    broker_epoch: int | None

    @property
    def bytes_max(self) -> float:
        """The bytes that the request may have."""
        return math.inf if self.kind in _WITH_COLUMNS else BYTES_MAX


def begin_of(data: bytes | bytearray | memoryview) -> Begin:
    """Returns what an encoded request names. Nothing else of it is decoded.

    Raises:
        msgspec.MsgspecError: the bytes are no request.
    """
    name, *values = msgspec.msgpack.decode(data, type=list[msgspec.Raw]) or [msgspec.Raw(b"\xa0")]
    kind = _BY_NAME.get(msgspec.msgpack.decode(name, type=str))
    fields = () if kind is None else kind.__struct_fields__
    numbers = [
        msgspec.msgpack.decode(values[fields.index(field)], type=int)
        if field in fields and fields.index(field) < len(values)
        else None
        for field in ("broker", "broker_epoch")
    ]
    return Begin(kind, *numbers)


def answer_decoder(request: type[ControllerRequest]) -> "msgspec.msgpack.Decoder[Any]":
    """Returns the decoder of the answers to one type of request."""
    return _ANSWER_DECODERS[request]


def every_request() -> Iterator[type[ControllerRequest]]:
    """Yields the types of all requests that can be encoded."""
    yield from ANSWERS
