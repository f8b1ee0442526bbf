"""The paths of many state nodes as the bytes that stand in a request, put together topic by topic."""

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from kactl.rows import Ints, RowNumbers
from kactl.store import Names

from . import layout

_INT: Final = struct.Struct("!i")
# What follows a topic's own part of the path, by partition; numbers above are rare.
_ENDS_KEPT: Final = 4_096
_ENDS: Final = [b"%d/state" % number for number in range(_ENDS_KEPT)]


@dataclasses.dataclass(frozen=True, slots=True)
class Paths:
    """Of n states.

    Attributes:
        prefixes: by topic, all of its partitions' paths up to the number, chroot included.
        topic: int32[n], index into `prefixes`.
        partition: int32[n].
    """

    prefixes: Sequence[bytes]
    topic: Ints
    partition: Ints

    def __len__(self) -> int:
        return len(self.partition)

    @classmethod
    def of(cls, names: Names, chroot: str) -> "Paths":
        prefixes = [f"{chroot}{layout.partitions(topic.name)}/".encode() for topic in names.topics]
        return cls(prefixes, names.topic, names.partition)

    def take(self, which: RowNumbers) -> "Paths":
        return Paths(self.prefixes, self.topic[which], self.partition[which])

    def part(self, begin: int, end: int) -> "Paths":
        return Paths(self.prefixes, self.topic[begin:end], self.partition[begin:end])

    def records(self, before: bytes, behind: bytes) -> Iterator[bytes]:
        """Each path as a string of ZooKeeper's, in order, with something before and behind it."""
        bounds = [0, *(np.flatnonzero(np.diff(self.topic)) + 1).tolist(), len(self)]
        for begin, end in pairwise(bounds):
            if begin == end:
                return
            prefix = self.prefixes[self.topic[begin]]
            heads: dict[int, bytes] = {}
            for number in self.partition[begin:end].tolist():
                tail = _ENDS[number] if 0 <= number < _ENDS_KEPT else b"%d/state" % number
                head = heads.get(len(tail))
                if head is None:
                    head = heads[len(tail)] = before + _INT.pack(len(prefix) + len(tail)) + prefix
                yield head + tail + behind
