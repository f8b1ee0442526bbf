"""Brokers' answers, from bytes to columns. Nothing that a peer sends is trusted."""

from typing import Final

import numpy as np

from kactl.errors import MalformedMessage
from kactl.wire import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)

from .primitive import Reader
from .version import Versions

_ID_SIZE: Final = 16
_NUMBERS: Final = np.dtype([("partition", ">i4"), ("error", ">i2")])
# A partition under its topic's id; `tags` counts the tagged fields that follow, 0 as long as nobody adds one.
_UNDER_ID: Final = np.dtype([("partition", ">i4"), ("error", ">i2"), ("tags", "u1")])


def decode(request: Request, versions: Versions, correlation_id: int, data: bytes) -> Response:
    """What a broker answered to `request`.

    Topics are in the order of their first appearance, partitions in the order of the answer. Where the answer names
    topics by id, the request says which name an id stands for; what is said of topics without an id is left out when
    the request had several of those, because it cannot be told to which of them it belongs.

    Args:
        correlation_id: what the request was sent under.
        data: a frame without its length.

    Raises:
        MalformedMessage: it is not the answer to that request.
    """
    reader = Reader(data)
    answered = reader.int32()
    if answered != correlation_id:
        raise MalformedMessage(f"an answer to request {answered}, where one to {correlation_id} was awaited")
    reader.tags()
    error = reader.int16()
    response: Response
    match request:
        case UpdateMetadata():
            response = UpdateMetadataResponse(error)
        case LeaderAndIsr() if versions.leader_and_isr >= 5:
            response = LeaderAndIsrResponse(error, _by_id(reader, request))
        case LeaderAndIsr():
            response = LeaderAndIsrResponse(error, _by_name(reader))
        case StopReplica():
            response = StopReplicaResponse(error, _by_name(reader))
    reader.tags()
    reader.end()
    return response


def _by_name(reader: Reader) -> PartitionErrors:
    """A flat array, each partition with its topic's name, in any order.

    Only the names make it a walk from one to the next; all numbers are read at once.
    """
    count = reader.count(size_min=8)  # of the name's length, the two numbers and the tagged fields
    places = np.empty(count, np.int64)
    topic = np.empty(count, np.int32)
    numbers: dict[bytes, int] = {}
    data = reader.data
    for row in range(count):
        size = reader.uvarint() - 1
        if size < 0:
            raise reader.fail("no topic where there must be one")
        begin = reader.take(size + _NUMBERS.itemsize)
        places[row] = begin + size
        topic[row] = numbers.setdefault(data[begin : begin + size], len(numbers))
        reader.tags()
    anywhere = np.ndarray((max(len(data) - _NUMBERS.itemsize + 1, 0),), _NUMBERS, buffer=data, strides=(1,))
    found = anywhere[places]
    try:
        topics = tuple(name.decode() for name in numbers)
    except UnicodeDecodeError as error:
        raise reader.fail("a topic's name that is not UTF-8") from error
    return PartitionErrors(topics, topic, found["partition"].astype(np.int32), found["error"].astype(np.int16))


def _by_id(reader: Reader, request: LeaderAndIsr) -> PartitionErrors:
    """Topics by id, the partitions of each in an array of fixed-size records."""
    named: dict[bytes, str | None] = {}
    for ref in request.states.topics:
        named[ref.id] = None if ref.id in named else ref.name
    numbers: dict[str, int] = {}
    parts = []
    for _ in range(reader.count(size_min=_ID_SIZE + 2)):
        key = reader.bytes(_ID_SIZE)
        if key not in named:
            raise reader.fail(f"topic id {key.hex()} was not in the request")
        found = _records(reader)
        reader.tags()
        name = named[key]
        if name is not None:
            parts.append((np.full(len(found), numbers.setdefault(name, len(numbers)), np.int32), found))
    if not parts:
        return PartitionErrors.none()
    topic, records = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return PartitionErrors(
        tuple(numbers), topic, records["partition"].astype(np.int32), records["error"].astype(np.int16)
    )


def _records(reader: Reader) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    count = reader.count(size_min=_UNDER_ID.itemsize)
    found = np.ndarray((count,), _UNDER_ID, buffer=reader.data, offset=reader.at)
    if not found["tags"].any():
        reader.take(found.nbytes)
        return found
    # Somebody has added tagged fields: records differ in size from here on.
    found = np.zeros(count, _UNDER_ID)
    for row in range(count):
        found[row] = (reader.int32(), reader.int16(), 0)
        reader.tags()
    return found
