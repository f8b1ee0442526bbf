"""Arming the watches of many nodes by a few requests.

ZooKeeper's own clients arm their watches after a reconnection by one request that names all of them. Every server
supports it, and it costs a fraction of as many reads. The request carries a transaction id, and the watch of a node
that was written after it fires at once. kactl sends the highest possible id, so that the request only arms the watches,
and compares the nodes by itself. For a missing node the watch fires as for a deleted one, and nothing is armed.

A watch on the whole tree of topics would need fewer requests, but the server would report each state that kactl writes.

Source: ZooKeeper's SetWatches; DataTree.setWatches.
"""

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final

# Paths have a few hundred bytes at most, and a server accepts requests of 1 MB.
PATHS_MAX: Final = 1_000
# For fewer nodes an additional round trip costs more than the server's work.
PATHS_MIN: Final = 20

_INT: Final = struct.Struct("!i")
_NONE: Final = _INT.pack(0)
_NEVER: Final = struct.pack("!q", 2**63 - 1)


@dataclasses.dataclass(frozen=True, slots=True)
class SetWatches:
    """Watch the data of some nodes; the response is None. Paths are absolute.

    A connection has to know the paths before it sends the request: a watch may fire before the response.
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
    """Returns the requests that arm the watches of some nodes."""
    return [SetWatches(tuple(paths[begin : begin + PATHS_MAX])) for begin in range(0, len(paths), PATHS_MAX)]
