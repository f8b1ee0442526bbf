"""Decoding of brokers' responses into columns. Every byte of a peer is validated.

A response to LeaderAndIsr contains thousands of topics with a few partitions each, in an order that the broker chooses.
The sizes of the topics are read one after the other; all other fields are read for all topics at once. A response in
another form, because of a later version or because it is malformed, is read field by field, with detailed errors.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kactl.decide.messages.control import (
    KafkaRequest,
    KafkaResponse,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.state.rows import Ints, RowNumbers
from kactl.decide.state.topics import TopicNames, Topics
from kactl.model.errors import MalformedMessage

from .primitive import NO_TAGS, Reader
from .topic_ids import ID_SIZE, Ids, TopicIdCache, halves, positions_of
from .version import Versions

_NUMBERS: Final = np.dtype([("partition", ">i4"), ("error", ">i2")])
_ID: Final = np.dtype([("id", np.void, ID_SIZE)])
_TAGS: Final = np.dtype([("tags", "u1")])
# A partition of a topic with an id; `tags` is the number of tagged fields that follow, 0 in all known versions.
_UNDER_ID: Final = np.dtype([("partition", ">i4"), ("error", ">i2"), ("tags", "u1")])


class Decoder:
    """Decodes responses in the versions of one cluster. Thread-safe."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._ids = TopicIdCache()

    def response(self, request: KafkaRequest, correlation_id: int, data: bytes) -> KafkaResponse:
        """Returns a broker's response to `request`.

        Topics are in the order of their first appearance, partitions in the order of the response. If the response has
        topic ids, the names are those of the request. If the request has several topics without an id, their results
        are omitted, because they are ambiguous.

        Args:
            correlation_id: the correlation id of the request.
            data: a frame without its length.

        Raises:
            MalformedMessage: the frame is not a response to that request.
        """
        reader = Reader(data)
        answered = reader.int32()
        if answered != correlation_id:
            raise MalformedMessage(f"an answer to request {answered}, where one to {correlation_id} was awaited")
        reader.tags()
        error = reader.int16()
        response: KafkaResponse
        match request:
            case UpdateMetadata():
                response = UpdateMetadataResponse(error)
            case LeaderAndIsr() if self._versions.leader_and_isr >= 5:
                response = LeaderAndIsrResponse(error, self._by_id(reader, request))
            case LeaderAndIsr():
                response = LeaderAndIsrResponse(error, _by_name(reader))
            case StopReplica():
                response = StopReplicaResponse(error, _by_name(reader))
        reader.tags()
        reader.end()
        return response

    def _by_id(self, reader: Reader, request: LeaderAndIsr) -> PartitionErrors:
        """Topics by id, the partitions of each in an array of fixed-size records."""
        topics = request.states.topics
        by_id = _under_ids(reader)
        places = None if by_id is None else positions_of(by_id.ids, self._ids.of(topics))
        if by_id is None or places is None:
            return _under_ids_one_by_one(reader, request)
        reader.offset = by_id.end
        named = topics.take(places) if isinstance(topics, Topics) else [topics[index] for index in places]
        topic = np.repeat(np.arange(len(places), dtype=np.int32), by_id.counts)
        return _errors(TopicNames(named), topic, by_id.records)


class _UnderIds(NamedTuple):
    """The topics of a response, the number of partitions of each, their records, and the end position."""

    ids: Ids
    counts: RowNumbers
    records: npt.NDArray[np.void]
    end: int


def _under_ids(reader: Reader) -> _UnderIds | None:
    """Read all topics at once without moving the reader. Returns None if they are not in the usual form."""
    data, before = reader.data, reader.offset
    count = reader.count(size_min=ID_SIZE + 2)
    offset, reader.offset = reader.offset, before
    begins, firsts = [], []
    try:
        for _ in range(count):
            begins.append(offset)
            offset += ID_SIZE
            announced = data[offset]  # one more than there are partitions
            offset += 1
            if announced >= 0x80:
                if data[offset] >= 0x80:
                    # More than sixteen thousand partitions of one topic on one broker: not usual.
                    return None
                announced = announced & 0x7F | data[offset] << 7
                offset += 1
            firsts.append(offset)
            offset += (announced - 1) * _UNDER_ID.itemsize + len(NO_TAGS)
    except IndexError:
        return None
    if offset > len(data):
        return None
    first = np.array(firsts, np.intp)
    ends = np.array([*begins[1:], offset], np.intp)[:count] - len(NO_TAGS)
    counts = (ends - first) // _UNDER_ID.itemsize
    if (counts < 0).any() or _at(data, ends, _TAGS)["tags"].any():
        return None
    before = np.cumsum(counts) - counts
    places = np.repeat(first - before * _UNDER_ID.itemsize, counts) + np.arange(counts.sum()) * _UNDER_ID.itemsize
    records = _at(data, places, _UNDER_ID)
    if records["tags"].any():
        # Records with tagged fields differ in size.
        return None
    ids = _at(data, np.array(begins, np.intp), _ID)
    return _UnderIds(halves(ids.tobytes()), counts, records, offset)


def _at(data: bytes, places: RowNumbers, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Returns the records at `places`, all of which are within `data`."""
    if not len(places):
        return np.zeros(0, kind)
    anywhere = np.ndarray((len(data) - kind.itemsize + 1,), f"V{kind.itemsize}", buffer=data, strides=(1,))
    return anywhere[places].view(kind)


def _under_ids_one_by_one(reader: Reader, request: LeaderAndIsr) -> PartitionErrors:
    """Read topics with ids one by one, in any valid form."""
    named: dict[bytes, str | None] = {}
    for ref in request.states.topics:
        named[ref.id] = None if ref.id in named else ref.name
    numbers: dict[str, int] = {}
    parts = []
    for _ in range(reader.count(size_min=ID_SIZE + 2)):
        key = reader.bytes(ID_SIZE)
        if key not in named:
            raise reader.fail(f"topic id {key.hex()} was not in the request")
        records = _records(reader)
        reader.tags()
        name = named[key]
        if name is not None:
            parts.append((np.full(len(records), numbers.setdefault(name, len(numbers)), np.int32), records))
    if not parts:
        return PartitionErrors.none()
    topic, records = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return _errors(tuple(numbers), topic, records)


def _records(reader: Reader) -> npt.NDArray[np.void]:
    count = reader.count(size_min=_UNDER_ID.itemsize)
    records = np.ndarray((count,), _UNDER_ID, buffer=reader.data, offset=reader.offset)
    if not records["tags"].any():
        reader.take(records.nbytes)
        return records
    records = np.zeros(count, _UNDER_ID)
    for row in range(count):
        records[row] = (reader.int32(), reader.int16(), 0)
        reader.tags()
    return records


def _by_name(reader: Reader) -> PartitionErrors:
    """A flat array, each partition with its topic's name, in any order.

    Only the names make it a walk from one to the next; all numbers are read at once.
    """
    count = reader.count(size_min=8)  # of the name's length, the two numbers and the tagged fields
    names, places = _names(reader, count)
    numbers = {name: index for index, name in enumerate(dict.fromkeys(names))}
    topic = np.fromiter(map(numbers.__getitem__, names), np.int32, count)
    try:
        topics = tuple(name.decode() for name in numbers)
    except UnicodeDecodeError as error:
        raise reader.fail("a topic's name that is not UTF-8") from error
    return _errors(topics, topic, _at(reader.data, np.array(places, np.intp), _NUMBERS))


def _names(reader: Reader, count: int) -> tuple[list[bytes], list[int]]:
    """Returns the topic name of each partition, and the position of its numbers."""
    data, limit = reader.data, len(reader.data)
    names, places = [], []
    for _ in range(count):
        offset = reader.offset
        size = data[offset] if offset < limit else 0
        begin, end = offset + 1, offset + size
        last = end + _NUMBERS.itemsize
        if 0 < size < 0x80 and last < limit and not data[last]:
            # The usual case: a name of less than 127 bytes, and no tagged fields.
            reader.offset = last + 1
        else:
            size = reader.uvarint() - 1
            if size < 0:
                raise reader.fail("no topic where there must be one")
            begin = reader.take(size + _NUMBERS.itemsize)
            end = begin + size
            reader.tags()
        names.append(data[begin:end])
        places.append(end)
    return names, places


def _errors(topics: Sequence[str], topic: Ints, records: npt.NDArray[np.void]) -> PartitionErrors:
    return PartitionErrors(topics, topic, records["partition"].astype(np.int32), records["error"].astype(np.int16))
