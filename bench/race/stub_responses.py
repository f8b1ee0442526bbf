"""Responses of a stub broker: success for the request and for each of its partitions.

A response is built as soon as the request is received. It is therefore built with columns: the request's own bytes are
copied to their positions in the response.

Source: the message formats of Kafka 3.9; responses to LeaderAndIsr name topics by id from version 5 on.
"""

import struct
from typing import Final

import numpy as np

from .scan import LEADER_AND_ISR, UPDATE_METADATA, Header, Offsets, Scan, pieces

_LENGTH_AND_CORRELATION: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\0"
_NO_ERROR: Final = b"\0\0"
_ID_SIZE: Final = 16
_PARTITION: Final = 4
_RESULT: Final = _PARTITION + len(_NO_ERROR) + len(_NO_TAGS)
_IDS_SINCE: Final = 5


def answer(header: Header, found: Scan | None) -> bytes:
    """Returns the complete frame, including its length.

    Args:
        found: not needed for UpdateMetadata, because its response contains no partition.
    """
    if header.api == UPDATE_METADATA or found is None:
        body = b""
    elif header.api == LEADER_AND_ISR and header.version >= _IDS_SINCE:
        body = _by_id(found)
    else:
        body = _by_name(found)
    content = _NO_TAGS + _NO_ERROR + body + _NO_TAGS
    return _LENGTH_AND_CORRELATION.pack(4 + len(content), header.correlation_id) + content


def _by_id(found: Scan) -> bytes:
    """Returns each topic's id, partitions and tags."""
    head = _ID_SIZE + _size_of(found.counts + 1)
    sizes = head + found.counts * _RESULT + len(_NO_TAGS)
    number = uvarint(len(found.counts) + 1)
    out = np.zeros(len(number) + int(sizes.sum()), np.uint8)
    out[: len(number)] = np.frombuffer(number, np.uint8)
    if not len(sizes):
        return out.tobytes()
    places = len(number) + np.cumsum(sizes) - sizes
    pieces(out, "V16")[places] = pieces(found.frame, "V16")[found.name_end]
    _put_lengths(out, places + _ID_SIZE, found.counts + 1)
    if len(found.record):
        within = np.arange(len(found.record)) - np.repeat(np.cumsum(found.counts) - found.counts, found.counts)
        results = np.repeat(places + head, found.counts) + within * _RESULT
        pieces(out, "V4")[results] = pieces(found.frame, "V4")[found.record]
    return out.tobytes()


def _by_name(found: Scan) -> bytes:
    """Returns each partition after the name of its topic."""
    frame = bytes(found.frame)
    parts = [uvarint(len(found.record) + 1)]
    records = iter(found.record.tolist())
    end = _NO_ERROR + _NO_TAGS
    for begin, behind, count in zip(found.topic.tolist(), found.name_end.tolist(), found.counts.tolist(), strict=True):
        name = frame[begin:behind]
        for _ in range(count):
            record = next(records)
            parts += (name, frame[record : record + _PARTITION], end)
    return b"".join(parts)


def uvarint(value: int) -> bytes:
    """Returns a compact length."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _size_of(values: Offsets) -> Offsets:
    """Returns the encoded size of each compact length."""
    return 1 + (values >= 1 << 7).astype(np.int64) + (values >= 1 << 14) + (values >= 1 << 21)


def _put_lengths(out: np.ndarray[tuple[int], np.dtype[np.uint8]], places: Offsets, values: Offsets) -> None:
    sizes = _size_of(values)
    for at in range(int(sizes.max())):
        here = sizes > at
        more = (sizes[here] > at + 1).astype(np.int64) << 7
        out[places[here] + at] = values[here] >> 7 * at & 0x7F | more
