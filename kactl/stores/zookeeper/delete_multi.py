"""Many partitions out of ZooKeeper in one request: a check of the fence, then each one's state and container.

It goes through `Client` like any request, but holds no object for each node: the bytes are laid when it is sent, and
the answer of a multi that was done is known beforehand, to the byte.

Source: ZooKeeper's MultiOperationRecord, MultiResponse.
"""

import functools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from kactl.state.rows import Ints

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
    """A multi: all of it or nothing. Its answer is what came of each operation, as ZooKeeper's number: 0 or an error.

    Args:
        fence: the whole path of the node that is checked.
        version: which it has to have.
        partitions: for each topic the whole path of the node that holds its partitions, and some of their numbers.
    """

    type: ClassVar[int] = 14

    def __init__(self, fence: str, version: int, partitions: Sequence[tuple[str, Ints]]) -> None:
        self._fence = fence
        self._version = version
        self._partitions = partitions

    def __len__(self) -> int:
        """The number of nodes."""
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
        found: list[int] = []
        while True:
            kind, done, error = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if done:
                return found
            if kind == _ERROR:
                offset += _INT.size  # the same number once more
            found.append(error)


@functools.lru_cache(maxsize=8)
def _all_done(nodes: int) -> bytes:
    return _HEADER.pack(_CHECK, False, 0) + _HEADER.pack(_DELETE, False, 0) * nodes + _END


def _path(path: bytes) -> bytes:
    return _INT.pack(len(path)) + path


def packed(topics: Mapping[str, Ints], size: int) -> Iterator[list[tuple[str, Ints]]]:
    """Part the partitions of some topics, in order, into pieces of `size` partitions each; the last may have fewer."""
    piece: list[tuple[str, Ints]] = []
    room = size
    for topic, numbers in topics.items():
        left = numbers
        while len(left):
            piece.append((topic, left[:room]))
            left, room = left[room:], room - len(left[:room])
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece
