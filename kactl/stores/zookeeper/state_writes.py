"""Writes of new leadership, each partition by compare-and-set on its own version, serialized directly into multis.

A multi is built from a few templates and the numbers of its rows; of the response to a successful multi only the check
is decoded. Rejected rows are written again operation by operation (`fenced_writes`).

Source: ZooKeeper's MultiTransactionRecord; KafkaZkClient.updateLeaderAndIsr.
"""

import dataclasses
import struct
from typing import Any, ClassVar, Final

from kazoo.protocol.serialization import Transaction

from kactl.decide.state.rows import RowNumbers
from kactl.model import Fence
from kactl.stores.base import Write
from kactl.stores.formats.states import encode

from . import layout
from .state_paths import Paths

_INT: Final = struct.Struct("!i")
_CHECK: Final = struct.pack("!i?i", 13, False, -1)
_CHECKED: Final = struct.pack("!i?i", 13, False, 0)
_SET_DATA: Final = struct.pack("!i?i", 5, False, -1)
_END: Final = struct.pack("!i?i", -1, True, -1)


class Rows:
    """Rows of a write, and their nodes' data.

    Args:
        selection: the row numbers in `write`.
    """

    def __init__(self, write: Write, selection: RowNumbers, *, epoch: int, chroot: str) -> None:
        self.rows = selection
        self.data = encode(write, selection, epoch)
        self._expected = write.expected[selection].tolist()
        self._paths = Paths.of(write.names, chroot).take(selection)

    def __len__(self) -> int:
        return len(self.rows)

    def operations(self, begin: int, end: int) -> list[bytes]:
        paths = self._paths.part(begin, end).each(_SET_DATA)
        rows = zip(paths, self.data[begin:end], self._expected[begin:end], strict=True)
        return [path + _INT.pack(len(data)) + data + _INT.pack(expected) for path, data, expected in rows]


@dataclasses.dataclass(frozen=True, slots=True)
class PutStates:
    """Some rows under the fence, atomically. The response is empty on success, and otherwise that of a multi."""

    rows: Rows
    begin: int
    end: int
    check: bytes

    type: ClassVar[int] = Transaction.type

    def serialize(self) -> bytes:
        return b"".join([self.check, *self.rows.operations(self.begin, self.end), _END])

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        # An error of any operation is reported for every operation, also for the check.
        if answer.startswith(_CHECKED, offset):
            return []
        results: list[Any] = Transaction.deserialize(answer, offset)
        return results


def requests(rows: Rows, fence: Fence, *, chroot: str, size: int) -> list[PutStates]:
    """Returns multis of at most `size` rows."""
    path = (chroot + layout.CONTROLLER_EPOCH).encode()
    check = _CHECK + _INT.pack(len(path)) + path + _INT.pack(fence.version)
    return [PutStates(rows, begin, min(begin + size, len(rows)), check) for begin in range(0, len(rows), size)]
