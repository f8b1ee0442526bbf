"""What several brokers are told at a time: each partition once, and for each broker which of them.

A change of ten thousand partitions is told to thirty brokers, each of which hosts some of them. Kept for each broker
are positions alone. Its columns are gathered when somebody asks for them, which over a network nobody does: there the
bytes of each partition are made once and copied.
"""

from typing import Any, Final

import numpy as np

from kactl.messages.control import PartitionStates
from kactl.state.rows import Ints, RowNumbers
from kactl.state.topics import Topics


class FanOut:
    """Partitions of which several brokers are told.

    Attributes:
        states: the partitions; those that one broker is told stand in the order in which it is told.
        positions: intp[m], rows of `states`, those for one broker side by side and ascending.
        bounds: the broker at place i is told `positions[bounds[i]:bounds[i + 1]]`, which is not empty.
    """

    __slots__ = ("__weakref__", "bounds", "positions", "states")

    def __init__(self, states: PartitionStates, positions: RowNumbers, bounds: list[int]) -> None:
        self.states = states
        self.positions = positions
        self.bounds = bounds

    def __len__(self) -> int:
        """How many brokers are told."""
        return len(self.bounds) - 1

    def size_of(self, place: int) -> int:
        return self.bounds[place + 1] - self.bounds[place]

    def parts(self) -> list["PartitionStatesView"]:
        """What each broker is told."""
        return [PartitionStatesView.part_of(self, place) for place in range(len(self))]


class PartitionStatesView(PartitionStates):
    """What one broker is told; columns appear when they are asked for.

    Attributes:
        told: what this is a part of, None if it is a copy that stands for itself.
        place: which part.
    """

    __slots__ = ("place", "told")
    told: FanOut | None
    place: int

    @classmethod
    def part_of(cls, told: FanOut, place: int) -> "PartitionStatesView":
        made = cls.__new__(cls)
        object.__setattr__(made, "told", told)
        object.__setattr__(made, "place", place)
        return made

    def __len__(self) -> int:
        return len(self.partition) if self.told is None else self.told.size_of(self.place)

    def __getattr__(self, name: str) -> Any:
        """A column for the first time."""
        if name == "told":
            return None
        if name not in _FIELDS or self.told is None:
            raise AttributeError(name)
        value = self._topics(name) if name in ("topics", "topic") else self._column(name)
        object.__setattr__(self, name, value)
        return value

    def _column(self, name: str) -> Any:
        assert self.told is not None
        column = getattr(self.told.states, name)
        return None if column is None else column[..., self._positions()]

    def _topics(self, name: str) -> Any:
        assert self.told is not None
        every = self.told.states.topics
        topic: Ints = self.told.states.topic[self._positions()]
        begins = np.empty(len(topic), np.bool_)
        begins[:1] = True
        np.not_equal(topic[1:], topic[:-1], out=begins[1:])
        if name == "topic":
            return np.cumsum(begins, dtype=np.int32) - np.int32(1)
        which = topic[begins].astype(np.intp)
        return every.take(which) if isinstance(every, Topics) else [every[at] for at in which]

    def _positions(self) -> RowNumbers:
        assert self.told is not None
        bounds = self.told.bounds
        return self.told.positions[bounds[self.place] : bounds[self.place + 1]]


_FIELDS: Final = frozenset(PartitionStates.__dataclass_fields__)
