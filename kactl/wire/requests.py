"""Requests to controllers and their answers in MessagePack.

The encoding follows the fields of each type: an array of the name of the type and its fields, in their order. A field
that is appended with a default is ignored by an earlier receiver, and filled in by a later one.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kactl.messages import admin, broker, leases
from kactl.messages.admin import ControllerRequest
from kactl.model import Assignment, ProducerIdBlock, TopicPartition, TopicRef
from kactl.state.replica_reports import ReplicaReport

# The type of the answer to each request, which the docstring of the request documents.
ANSWERS: Final[dict[type[ControllerRequest], Any]] = {
    admin.ResignRequested: None,
    admin.UncleanElectionsEnabled: None,
    admin.EventsHandled: None,
    admin.UndrainRequested: bool,
    admin.ReplicaResetRequested: ReplicaReport,
    admin.ElectionRequested: list[admin.ElectionResult],
    admin.TopicCreationRequested: TopicRef,
    admin.TopicDeletionRequested: TopicRef,
    admin.TopicEnsureRequested: admin.TopicProgress,
    admin.PartitionsRequested: None,
    admin.ReassignmentRequested: list[admin.ReassignmentResult],
    admin.ReassignmentsListed: dict[TopicPartition, Assignment],
    admin.FeatureUpdatesRequested: list[admin.FeatureResult],
    broker.ControlledShutdownRequested: list[TopicPartition],
    broker.AlterPartitionRequested: list[broker.IsrResult],
    broker.ProducerIdsRequested: ProducerIdBlock,
    broker.PartitionsReported: None,
    broker.LeadersReported: None,
    leases.LeadershipsReported: None,
}


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """Base of the encoded forms; each has the fields of its request."""

    def build(self) -> ControllerRequest:
        return _REQUESTS[type(self)](**{name: getattr(self, name) for name in self.__struct_fields__})


def _mirror(request: type[ControllerRequest]) -> type[_Head]:
    """Returns the type of the array with the fields of a request."""
    fields: list[Any] = []
    for found in msgspec.structs.fields(request):
        if found.required:
            fields.append((found.name, found.type))
        elif found.default is not msgspec.NODEFAULT:
            fields.append((found.name, found.type, found.default))
        else:
            fields.append((found.name, found.type, msgspec.field(default_factory=found.default_factory)))
    name = request.__name__
    made: Any = msgspec.defstruct(name, fields, bases=(_Head,), frozen=True, array_like=True, tag=name)
    mirror: type[_Head] = made
    return mirror


_MIRRORS: Final = {request: _mirror(request) for request in ANSWERS}
_REQUESTS: Final = {mirror: request for request, mirror in _MIRRORS.items()}
_ANSWER_DECODERS: Final = {request: msgspec.msgpack.Decoder(answer) for request, answer in ANSWERS.items()}
HEADS: Final = tuple(_MIRRORS.values())


def request_head(request: ControllerRequest) -> _Head:
    """Returns the encoded form of a request."""
    return _MIRRORS[type(request)](**msgspec.structs.asdict(request))


def answer_decoder(request: type[ControllerRequest]) -> "msgspec.msgpack.Decoder[Any]":
    """Returns the decoder of the answers to one type of request."""
    return _ANSWER_DECODERS[request]


def every_request() -> Iterator[type[ControllerRequest]]:
    """Yields the types of all requests that can be encoded."""
    yield from ANSWERS
