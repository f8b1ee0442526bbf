"""Serialized paths of many state nodes, built topic by topic."""

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final

import numpy as np

from kactl.decide.state.rows import Ints, RowNumbers
from kactl.stores.base import Names

from . import layout

_INT: Final = struct.Struct("!i")
# The end of a path after the topic's prefix, and a zero, by partition; higher numbers are rare.
_ENDS_KEPT: Final = 4_096
_ENDS: Final = [b"%d/state\0" % number for number in range(_ENDS_KEPT)]


@dataclasses.dataclass(frozen=True, slots=True)
class Paths:
    """The paths of n state nodes.

    Attributes:
        prefixes: by topic, the path of its partitions up to the number, chroot included.
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

    def take(self, rows: RowNumbers) -> "Paths":
        return Paths(self.prefixes, self.topic[rows], self.partition[rows])

    def part(self, begin: int, end: int) -> "Paths":
        return Paths(self.prefixes, self.topic[begin:end], self.partition[begin:end])

    def join(self, before: bytes) -> bytes:
        """Returns all paths as ZooKeeper strings, in order, each after `before` and followed by a zero."""
        parts = []
        for prefix, numbers in self._runs():
            for size, ends in groupby(map(_end, numbers), len):
                head = before + _INT.pack(len(prefix) + size - 1) + prefix
                parts.append(head.join((b"", *ends)))
        return b"".join(parts)

    def each(self, before: bytes) -> Iterator[bytes]:
        """Yields each path as a ZooKeeper string, in order, after `before`."""
        for prefix, numbers in self._runs():
            for size, ends in groupby(map(_end, numbers), len):
                head = before + _INT.pack(len(prefix) + size - 1) + prefix
                for end in ends:
                    yield head + end[:-1]

    def _runs(self) -> Iterator[tuple[bytes, list[int]]]:
        """Yields the adjacent partitions of one topic, with its prefix."""
        partition = self.partition.tolist()
        bounds = [0, *(np.flatnonzero(np.diff(self.topic)) + 1).tolist(), len(partition)]
        for begin, end in pairwise(bounds):
            if begin < end:
                yield self.prefixes[self.topic[begin]], partition[begin:end]


def _end(number: int) -> bytes:
    return _ENDS[number] if 0 <= number < _ENDS_KEPT else b"%d/state\0" % number
