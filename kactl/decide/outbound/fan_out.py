"""Partition states for several brokers: each partition stored once, and for each broker the rows it receives.

A change of ten thousand partitions goes to thirty brokers, each of which hosts some of them. A broker's part holds only
row positions. Its columns are gathered at the first access. The network codec never accesses them: it encodes the bytes
of each partition once and copies them into each request.
"""

from typing import Any, Final

import numpy as np

from kactl.decide.messages.control import PartitionStates
from kactl.decide.state.rows import Ints, RowNumbers
from kactl.decide.state.topics import Topics


class FanOut:
    """Partition states and their distribution to m recipients.

    Attributes:
        states: the partitions. The rows of one recipient are in the order in which the recipient receives them.
        positions: intp[n], rows of `states`; those of one recipient are adjacent and ascending.
        bounds: recipient i receives `positions[bounds[i]:bounds[i + 1]]`, which is not empty.
    """

    __slots__ = ("__weakref__", "bounds", "positions", "states")

    def __init__(self, states: PartitionStates, positions: RowNumbers, bounds: list[int]) -> None:
        self.states = states
        self.positions = positions
        self.bounds = bounds

    def __len__(self) -> int:
        """The number of recipients."""
        return len(self.bounds) - 1

    def size_of(self, place: int) -> int:
        """Returns the number of partitions of one recipient."""
        return self.bounds[place + 1] - self.bounds[place]

    def parts(self) -> list["PartitionStatesView"]:
        """Returns the partition states of each recipient."""
        return [PartitionStatesView.part_of(self, place) for place in range(len(self))]


class PartitionStatesView(PartitionStates):
    """The partition states of one recipient; a column is gathered when it is first accessed.

    Attributes:
        fan_out: the FanOut that this is a part of; None for an independent copy.
        place: the index of the recipient in `fan_out`.
    """

    __slots__ = ("fan_out", "place")
    fan_out: FanOut | None
    place: int

    @classmethod
    def part_of(cls, fan_out: FanOut, place: int) -> "PartitionStatesView":
        view = cls.__new__(cls)
        object.__setattr__(view, "fan_out", fan_out)
        object.__setattr__(view, "place", place)
        return view

    def __len__(self) -> int:
        return len(self.partition) if self.fan_out is None else self.fan_out.size_of(self.place)

    def __getattr__(self, name: str) -> Any:
        """Gather a column at its first access."""
        if name == "fan_out":
            return None
        if name not in _FIELDS or self.fan_out is None:
            raise AttributeError(name)
        value = self._topics(name) if name in ("topics", "topic") else self._column(name)
        object.__setattr__(self, name, value)
        return value

    def _column(self, name: str) -> Any:
        assert self.fan_out is not None
        column = getattr(self.fan_out.states, name)
        return None if column is None else column[..., self._positions()]

    def _topics(self, name: str) -> Any:
        assert self.fan_out is not None
        topics = self.fan_out.states.topics
        topic: Ints = self.fan_out.states.topic[self._positions()]
        begins = np.empty(len(topic), np.bool_)
        begins[:1] = True
        np.not_equal(topic[1:], topic[:-1], out=begins[1:])
        if name == "topic":
            return np.cumsum(begins, dtype=np.int32) - np.int32(1)
        which = topic[begins].astype(np.intp)
        return topics.take(which) if isinstance(topics, Topics) else [topics[index] for index in which]

    def _positions(self) -> RowNumbers:
        assert self.fan_out is not None
        bounds = self.fan_out.bounds
        return self.fan_out.positions[bounds[self.place] : bounds[self.place + 1]]


_FIELDS: Final = frozenset(PartitionStates.__dataclass_fields__)
