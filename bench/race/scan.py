"""Decoder of partitions, leaders and epochs in control requests, over the bytes of the request.

Only the values that the race counts are read: the offsets of topics and of the records of partitions, and a few numbers
of each record. The size of a record depends on the lengths of its lists, so in general records must be read one after
the other. In most requests, however, all topics have names of one length and all records have one shape. This shape is
taken from the first topic and the first record, the offsets are computed, and numpy compares all lengths with the
expected ones. If one of them differs, the records are read one by one.

    header │ controller, epochs │ topics: name, id, partitions: record, record, ..., tags │ live brokers

Source: the message formats of Kafka 3.9 (LeaderAndIsr 4-7, StopReplica 3-4, UpdateMetadata 6-8).
"""

import struct
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6

# Leader in an UpdateMetadata request for a partition of a topic that is being deleted.
BEING_DELETED: Final = -2

_HEADER: Final = struct.Struct(">hhih")
_ID_SIZE: Final = 16
_INT32: Final = 4
# A compact length from here on has more than one byte.
_LONG: Final = 0x80

# A field of a record: its number of bytes, or a list of int32.
_LIST: Final = 0
_Shape = tuple[int, ...]


class NotServed(Exception):
    """The request is truncated, or brokers at the protocol levels of the race do not receive it."""


class _Form(msgspec.Struct, frozen=True):
    """Structure of one version of a request.

    Attributes:
        broker_epoch: offset of the broker epoch after the header.
        opening: bytes between the header and the topics.
        has_ids: whether the name of each topic is followed by its id.
        record: the fields of a partition, without tags.
    """

    broker_epoch: int
    opening: int
    has_ids: bool
    record: _Shape


def _form(api: int, version: int) -> _Form:
    kraft = version >= {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}[api]
    broker_epoch = 4 + kraft + 4
    opening = broker_epoch + 8
    if api == STOP_REPLICA:
        return _Form(broker_epoch, opening, False, (9,))
    if api == UPDATE_METADATA:
        return _Form(broker_epoch, opening, version >= 7, (16, _LIST, 4, _LIST, _LIST))
    record = (16, _LIST, 4, _LIST, _LIST, _LIST, 2 if version >= 6 else 1)
    return _Form(broker_epoch, opening + (version >= 5), version >= 5, record)


_SERVED: Final = {LEADER_AND_ISR: range(4, 8), STOP_REPLICA: range(3, 5), UPDATE_METADATA: range(6, 9)}
_FORMS: Final = {(api, version): _form(api, version) for api, served in _SERVED.items() for version in served}
# Offsets of fields in a record.
_PARTITION_AT: Final = 0
_LEADER_AT: Final = 8
_LEADER_EPOCH_AT: Final = 12
_STOP_EPOCH_AT: Final = 4
_DELETE_AT: Final = 8


class Header(msgspec.Struct, frozen=True):
    """Header of a request.

    Attributes:
        body: offset after the broker epoch; the bytes from there on are equal for all brokers with the same content.
    """

    api: int
    version: int
    correlation_id: int
    broker_epoch: int
    body: int


def header(frame: bytearray) -> Header:
    """Reads the header of a request without its length field.

    Raises:
        NotServed: the type or the version of the request is not supported.
    """
    try:
        api, version, correlation_id, client_id = _HEADER.unpack_from(frame)
        form = _FORMS.get((api, version))
        if form is None:
            raise NotServed(f"request {api} of version {version}")
        at = _skip_tags(frame, _HEADER.size + max(client_id, 0))
        (broker_epoch,) = struct.unpack_from(">q", frame, at + form.broker_epoch)
    except (struct.error, IndexError) as error:
        raise NotServed(f"truncated request of {len(frame)} bytes") from error
    return Header(api, version, correlation_id, broker_epoch, at + form.broker_epoch + 8)


class Scan(msgspec.Struct, frozen=True):
    """Offsets in one request.

    Attributes:
        topic: int64[t], offset of the length of each topic's name.
        name_end: int64[t], offset after the name, where the id is if there is one.
        counts: int64[t], number of partitions.
        record: int64[n], offset of each partition's record, in the order of the topics.
        end: offset after the topics.
        is_regular: whether all offsets were computed from one shape.
    """

    frame: bytearray
    api: int
    has_ids: bool
    topic: Offsets
    name_end: Offsets
    counts: Offsets
    record: Offsets
    end: int
    is_regular: bool = False

    def names(self) -> list[bytes]:
        """Returns the names of the topics."""
        ends = self.name_end.tolist()
        lengths = (self.name_end - self.topic - 1).tolist()
        frame = bytes(self.frame)
        return [
            frame[end - length : end] if length < _LONG - 1 else frame[_uvarint(frame, begin)[1] : end]
            for begin, end, length in zip(self.topic.tolist(), ends, lengths, strict=True)
        ]

    def partition(self) -> Ints:
        """Returns partition numbers, int32[n]."""
        return self._int32(_PARTITION_AT)

    def leader(self) -> Ints:
        """Returns leaders, int32[n]; StopReplica has none."""
        return self._int32(_LEADER_AT)

    def leader_epoch(self) -> Ints:
        """Returns leader epochs, int32[n]."""
        return self._int32(_STOP_EPOCH_AT if self.api == STOP_REPLICA else _LEADER_EPOCH_AT)

    def gone(self) -> npt.NDArray[np.bool_]:
        """Returns bool[n]: whether the replica or the partition's metadata is to be deleted."""
        if self.api == STOP_REPLICA:
            deleted: npt.NDArray[np.bool_] = np.frombuffer(self.frame, np.uint8)[self.record + _DELETE_AT] != 0
            return deleted
        removed: npt.NDArray[np.bool_] = self.leader() == BEING_DELETED
        return removed

    def _int32(self, at: int) -> Ints:
        return pieces(self.frame, ">i4")[self.record + at].astype(np.int32)


def pieces(frame: bytearray | npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """Returns the values of a type that begin at each byte."""
    size = np.dtype(kind).itemsize
    return np.ndarray((max(len(frame) - size + 1, 0),), kind, buffer=frame, strides=(1,))


def scan(frame: bytearray, header: Header) -> Scan:
    """Finds topics and records.

    Raises:
        NotServed: the request is truncated.
    """
    form = _FORMS[header.api, header.version]
    at = header.body + form.opening - form.broker_epoch - 8
    try:
        topics, at = _uvarint(frame, at)
        topics = max(topics - 1, 0)
        return _by_shape(frame, header.api, form, topics, at) or _one_by_one(frame, header.api, form, topics, at)
    except (IndexError, struct.error) as error:
        raise NotServed(f"truncated request {header.api} of {len(frame)} bytes") from error


def _by_shape(frame: bytearray, api: int, form: _Form, topics: int, at: int) -> Scan | None:
    """Returns all topics and records if they have the shape of the first ones; None if not, or if there are none."""
    if not topics or not 0 < frame[at] < _LONG:
        return None
    head = frame[at] + _ID_SIZE * form.has_ids  # with the byte of the length
    first = at + head + 1
    if not 1 < frame[first - 1] < _LONG:
        return None
    size = _record_end(frame, first, form.record) - first

    lengths = []
    count_at = at + head
    between = head + 2 - size  # the count's own byte, and the tags; the compact count is one too many
    try:
        for _ in range(topics):
            length = frame[count_at]
            lengths.append(length)
            count_at += between + length * size
    except IndexError:
        return None
    counts = np.array(lengths, np.int64) - 1
    if counts.min() < 0 or counts.max() >= _LONG - 1:
        return None
    whole = head + 2 + counts * size
    topic = at + np.cumsum(whole) - whole
    end = int(topic[-1] + whole[-1])
    if end > len(frame):
        return None
    before = np.cumsum(counts) - counts
    record = np.repeat(topic + head + 1 - before * size, counts) + np.arange(int(counts.sum())) * size
    content = np.frombuffer(frame, np.uint8)
    expected = [(topic, frame[at]), (topic + whole - 1, 0), (record + size - 1, 0)]
    expected += [(record + offset, frame[first + offset]) for offset in _lengths_at(frame, first, form.record)]
    if not all((content[offsets] == value).all() for offsets, value in expected):
        return None
    return Scan(frame, api, form.has_ids, topic, topic + frame[at], counts, record, end, True)


def _lengths_at(frame: bytearray, begin: int, record: _Shape) -> list[int]:
    """Returns the offsets in a record of the bytes of its lists' lengths."""
    offsets = []
    at = begin
    for field in record:
        if field is not _LIST:
            at += field
            continue
        length, behind = _uvarint(frame, at)
        offsets += [offset - begin for offset in range(at, behind)]
        at = behind + _INT32 * max(length - 1, 0)
    return offsets


def _one_by_one(frame: bytearray, api: int, form: _Form, topics: int, at: int) -> Scan:
    topic, name_end, counts, record = [], [], [], []
    for _ in range(topics):
        topic.append(at)
        length, at = _uvarint(frame, at)
        at += length - 1
        name_end.append(at)
        partitions, at = _uvarint(frame, at + _ID_SIZE * form.has_ids)
        counts.append(max(partitions - 1, 0))
        for _ in range(partitions - 1):
            record.append(at)
            at = _record_end(frame, at, form.record)
        at = _skip_tags(frame, at)
    columns = [np.array(values, np.int64) for values in (topic, name_end, counts, record)]
    if at > len(frame):
        raise NotServed(f"truncated request {api} of {len(frame)} bytes")
    return Scan(frame, api, form.has_ids, columns[0], columns[1], columns[2], columns[3], at)


def _record_end(frame: bytearray, at: int, record: _Shape) -> int:
    for field in record:
        if field is _LIST:
            length = frame[at]
            at += 1
            if length >= _LONG:
                length, at = _uvarint(frame, at - 1)
            if length:
                at += _INT32 * (length - 1)
        else:
            at += field
    return at + 1 if not frame[at] else _skip_tags(frame, at)


def _skip_tags(frame: bytearray, at: int) -> int:
    number, at = _uvarint(frame, at)
    for _ in range(number):
        _, at = _uvarint(frame, at)
        size, at = _uvarint(frame, at)
        at += size
    return at


def _uvarint(frame: bytearray | bytes, at: int) -> tuple[int, int]:
    """Reads a number; returns it and the offset after it."""
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _LONG:
            return value, at
        shift += 7
