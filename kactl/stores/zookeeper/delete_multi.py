"""Deletion of many partitions in one request: a check of the fence, then each partition's state and container.

It is sent through `Client` like any request, but has no object for each node: it is serialized when it is sent, and the
response to a successful multi is compared as bytes.

Source: ZooKeeper's MultiOperationRecord, MultiResponse.
"""

import functools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from kactl.decide.state.rows import Ints

_HEADER: Final = struct.Struct("!i?i")
_INT: Final = struct.Struct("!i")
_CHECK: Final = 13
_DELETE: Final = 2
_ERROR: Final = -1
_END: Final = _HEADER.pack(-1, True, -1)
_DELETES: Final = _HEADER.pack(_DELETE, False, -1)
_AT_ANY_VERSION: Final = _INT.pack(-1)
_STATE: Final = b"/state"


class PartitionsDeletion:
    """An atomic multi. Its response is the result of each operation, as ZooKeeper's number: 0 or an error.

    Args:
        fence: the absolute path of the checked node.
        version: its required version.
        partitions: for each topic the absolute path of the parent of its partitions, and some partition numbers.
    """

    type: ClassVar[int] = 14

    def __init__(self, fence: str, version: int, partitions: Sequence[tuple[str, Ints]]) -> None:
        self._fence = fence
        self._version = version
        self._partitions = partitions

    def __len__(self) -> int:
        """Returns the number of nodes."""
        return 2 * sum(len(numbers) for _, numbers in self._partitions)

    def serialize(self) -> bytes:
        parts = [_HEADER.pack(_CHECK, False, -1), _path(self._fence.encode()), _INT.pack(self._version)]
        for parent, numbers in self._partitions:
            folder = parent.encode()
            for number in numbers.tolist():
                container = b"%b/%d" % (folder, number)
                parts += (_DELETES, _path(container + _STATE), _AT_ANY_VERSION)
                parts += (_DELETES, _path(container), _AT_ANY_VERSION)
        return b"".join((*parts, _END))

    def deserialize(self, answer: bytes, offset: int) -> list[int]:
        if answer[offset:] == _all_done(len(self)):
            return [0] * (1 + len(self))
        results: list[int] = []
        while True:
            kind, done, error = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if done:
                return results
            if kind == _ERROR:
                offset += _INT.size  # the same number again
            results.append(error)


@functools.lru_cache(maxsize=8)
def _all_done(nodes: int) -> bytes:
    return _HEADER.pack(_CHECK, False, 0) + _HEADER.pack(_DELETE, False, 0) * nodes + _END


def _path(path: bytes) -> bytes:
    return _INT.pack(len(path)) + path


def packed(topics: Mapping[str, Ints], size: int) -> Iterator[list[tuple[str, Ints]]]:
    """Split the partitions of some topics, in order, into batches of `size` partitions; the last may have fewer."""
    batch: list[tuple[str, Ints]] = []
    room = size
    for topic, numbers in topics.items():
        left = numbers
        while len(left):
            batch.append((topic, left[:room]))
            left, room = left[room:], room - len(left[:room])
            if not room:
                yield batch
                batch, room = [], size
    if batch:
        yield batch
