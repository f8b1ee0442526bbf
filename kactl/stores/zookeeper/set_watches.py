"""Watches of many nodes, armed by a few requests.

ZooKeeper's own clients arm their watches after a reconnection by one request that names all of them. Every server knows
it, and it costs a fraction of as many reads. It takes a transaction, and fires at once for a node that was written
after it; we give it the last one that there can ever be, so that it only arms, and compare by ourselves. For a node
that is not there it fires as for one that was deleted, and arms nothing.

A watch on the whole tree of topics would be armed by less, but would have the server tell us of each state that we
write.

Source: ZooKeeper's SetWatches; DataTree.setWatches.
"""

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final

# Paths have a few hundred bytes at the worst, and a server takes requests of a megabyte.
PATHS_MAX: Final = 1_000
# For fewer nodes one round trip more counts for more than the work of the server.
PATHS_MIN: Final = 20

_INT: Final = struct.Struct("!i")
_NONE: Final = _INT.pack(0)
_NEVER: Final = struct.pack("!q", 2**63 - 1)


@dataclasses.dataclass(frozen=True, slots=True)
class SetWatches:
    """Watch the data of some nodes; its answer is None. Paths are whole.

    Links have to know of them before it is sent: it may fire before it is answered.
    """

    paths: tuple[str, ...]

    type: ClassVar[int] = 101

    def serialize(self) -> bytes:
        parts = [_NEVER, _INT.pack(len(self.paths))]
        for path in self.paths:
            text = path.encode()
            parts += (_INT.pack(len(text)), text)
        return b"".join([*parts, _NONE, _NONE])

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> None:
        return None


def requests(paths: Sequence[str]) -> list[Any]:
    """What arms the watches of some nodes."""
    return [SetWatches(tuple(paths[at : at + PATHS_MAX])) for at in range(0, len(paths), PATHS_MAX)]
