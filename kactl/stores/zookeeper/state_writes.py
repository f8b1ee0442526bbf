"""New leadership of many partitions, each by compare-and-set on its own version, in multis that are put together
piece by piece.

All that a multi says of its rows is a few templates with numbers in them; and of its answer, when all was done, nothing
is of interest. What is refused goes the long way, step by step (`fenced_writes`).

Source: ZooKeeper's MultiTransactionRecord; KafkaZkClient.updateLeaderAndIsr.
"""

import dataclasses
import struct
from typing import Any, ClassVar, Final

from kazoo.protocol.serialization import Transaction

from kactl.model import NO_BROKER, Fence
from kactl.state.rows import RowNumbers
from kactl.stores.base import Write

from . import layout
from .state_paths import Paths

_INT: Final = struct.Struct("!i")
_CHECK: Final = struct.pack("!i?i", 13, False, -1)
_CHECKED: Final = struct.pack("!i?i", 13, False, 0)
_SET_DATA: Final = struct.pack("!i?i", 5, False, -1)
_END: Final = struct.pack("!i?i", -1, True, -1)

_STATE: Final = b'{"controller_epoch":%d,"leader":%d,"version":1,"leader_epoch":%d,"isr":[%s]%s}'
_RECOVERING: Final = b',"leader_recovery_state":1'


class Rows:
    """Rows of a write, and their nodes' data.

    Args:
        which: their positions in `write`.
    """

    def __init__(self, write: Write, which: RowNumbers, *, epoch: int, chroot: str) -> None:
        self.at = which
        self.data = encode(write, which, epoch)
        self._expected = write.expected[which].tolist()
        self._paths = Paths.of(write.names, chroot).take(which)

    def __len__(self) -> int:
        return len(self.at)

    def operations(self, begin: int, end: int) -> list[bytes]:
        paths = self._paths.part(begin, end).each(_SET_DATA)
        rows = zip(paths, self.data[begin:end], self._expected[begin:end], strict=True)
        return [path + _INT.pack(len(data)) + data + _INT.pack(expected) for path, data, expected in rows]


@dataclasses.dataclass(frozen=True, slots=True)
class PutStates:
    """Some rows under the fence, all or nothing. Its answer is empty if all was done, and otherwise that of a multi."""

    rows: Rows
    begin: int
    end: int
    check: bytes

    type: ClassVar[int] = Transaction.type

    def serialize(self) -> bytes:
        return b"".join([self.check, *self.rows.operations(self.begin, self.end), _END])

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        # An error anywhere is an error everywhere, also at the check.
        if answer.startswith(_CHECKED, offset):
            return []
        results: list[Any] = Transaction.deserialize(answer, offset)
        return results


def requests(rows: Rows, fence: Fence, *, chroot: str, size: int) -> list[PutStates]:
    """Multis of at most `size` rows."""
    path = (chroot + layout.CONTROLLER_EPOCH).encode()
    check = _CHECK + _INT.pack(len(path)) + path + _INT.pack(fence.version)
    return [PutStates(rows, begin, min(begin + size, len(rows)), check) for begin in range(0, len(rows), size)]


def encode(write: Write, which: RowNumbers, epoch: int) -> list[bytes]:
    """The data of some rows' nodes."""
    isr_texts: dict[tuple[int, ...], bytes] = {}
    columns = zip(
        write.leader[which].tolist(),
        write.leader_epoch[which].tolist(),
        zip(*write.isr[:, which].tolist(), strict=True) if len(write.isr) else [()] * len(which),
        write.recovering[which].tolist(),
        strict=True,
    )
    data = []
    for leader, leader_epoch, isr, recovering in columns:
        text = isr_texts.get(isr)
        if text is None:
            text = isr_texts[isr] = b",".join(b"%d" % broker for broker in isr if broker != NO_BROKER)
        data.append(_STATE % (epoch, leader, leader_epoch, text, _RECOVERING if recovering else b""))
    return data
