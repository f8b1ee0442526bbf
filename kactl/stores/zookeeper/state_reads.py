"""Reads of many states in one request, with the response decoded into columns instead of an object for each node.

Source: ZooKeeper's MultiOperationRecord, MultiResponse and Stat.
"""

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.stores.base import Found, Names
from kactl.stores.formats import states

from .state_paths import Paths

# About 80 KB of request and 160 KB of response: a server needs 2 ms for it, while the previous one is decoded.
STATES_AT_ONCE: Final = 1_000

_INT: Final = struct.Struct("!i")
_GET_DATA: Final = struct.pack("!i?i", 4, False, -1)
_END: Final = struct.pack("!i?i", -1, True, -1)
# The header of each result: its kind, the end flag, and its error.
_HEADER_SIZE: Final = 9
_FOUND: Final = struct.pack("!i?i", 4, False, 0)
_ERROR_KIND: Final = struct.pack("!i?", -1, False)
_NO_NODE: Final = -101
_STAT_SIZE: Final = 68
# Offset of the data version in a node's Stat.
_VERSION_AT: Final = 32


@dataclasses.dataclass(frozen=True, slots=True)
class ReadStates:
    """The states of some partitions in one multi-read, without watches; the response is a `states.Block`.

    Needs a server of 3.6 or later; others return UnimplementedError.
    """

    paths: Paths

    type: ClassVar[int] = 22

    def __len__(self) -> int:
        return len(self.paths)

    def serialize(self) -> bytes:
        return self.paths.join(_GET_DATA) + _END  # the zero after each path means that it is not watched

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> "states.Block":
        return _decode(answer, offset)


def requests(names: Names, chroot: str) -> list[ReadStates]:
    """Returns the requests that read the states of some partitions."""
    paths = Paths.of(names, chroot)
    begins = range(0, len(names), STATES_AT_ONCE)
    return [ReadStates(paths.part(begin, begin + STATES_AT_ONCE)) for begin in begins]


def block(nodes: Sequence[Any]) -> states.Block:
    """Returns the block of nodes that were read one by one: (data, stat), or an error, for each."""
    failed = [
        (index, Found.MISSING if isinstance(node, NoNodeError) else Found.FAILED)
        for index, node in enumerate(nodes)
        if isinstance(node, ZookeeperError)
    ]
    read = [node for node in nodes if not isinstance(node, ZookeeperError)]
    versions = np.array([stat.version for _, stat in read], np.int32)
    return states.block([data for data, _ in read], versions, failed)


def _decode(answer: bytes, offset: int) -> states.Block:
    data: list[bytes | None] = []
    ends: list[int] = []
    failed: list[tuple[int, Found]] = []
    length_at = _INT.unpack_from
    while True:
        header = answer[offset : offset + _HEADER_SIZE]
        offset += _HEADER_SIZE
        if header == _FOUND:
            (length,) = length_at(answer, offset)
            begin = offset + _INT.size
            offset = begin + length if length > 0 else begin
            data.append(answer[begin:offset] if length >= 0 else None)
            ends.append(offset)
            offset += _STAT_SIZE
        elif header == _END:
            break
        elif header.startswith(_ERROR_KIND):
            (code,) = length_at(answer, offset)
            offset += _INT.size
            failed.append((len(data) + len(failed), Found.MISSING if code == _NO_NODE else Found.FAILED))
        else:
            raise ValueError(f"a result begins with {header!r}")
    offsets = np.array(ends, np.intp)[:, np.newaxis] + np.arange(_VERSION_AT, _VERSION_AT + _INT.size)
    versions = np.frombuffer(answer, np.uint8)[offsets].view(">i4").ravel().astype(np.int32)
    return states.block(data, versions, failed)
