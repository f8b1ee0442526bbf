"""Topics by number: the list of all topics that a table ever had, and selections of it without a copy.

The failure of one broker concerns ten thousand topics in thirty requests. Requests therefore carry columns of topic
numbers, and topic objects are accessed only when a name is needed.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from kactl.model import TopicRef

from .rows import Ints, RowNumbers


class AllTopics:
    """Every topic that a table ever had, by number. Numbers are not reused, so a stored number stays valid.

    Attributes:
        replaced: the number of times that a topic received a new TopicRef, because its id became known. Data derived
            from the old TopicRef is then invalid.
    """

    __slots__ = ("__weakref__", "_refs", "replaced")

    def __init__(self) -> None:
        self._refs: list[TopicRef] = []
        self.replaced = 0

    def __len__(self) -> int:
        return len(self._refs)

    def __getitem__(self, number: int) -> TopicRef:
        return self._refs[number]

    def since(self, number: int) -> list[TopicRef]:
        """Returns all topics from `number` on."""
        return self._refs[number:]

    def add(self, ref: TopicRef) -> int:
        """Adds a topic and returns its number."""
        self._refs.append(ref)
        return len(self._refs) - 1

    def replace(self, number: int, ref: TopicRef) -> None:
        self._refs[number] = ref
        self.replaced += 1


class Topics(Sequence[TopicRef]):
    """Selection of topics, in an order: `all[numbers[i]]`."""

    __slots__ = ("all", "numbers")

    def __init__(self, all_topics: AllTopics, numbers: Ints) -> None:
        self.all = all_topics
        self.numbers = numbers

    @classmethod
    def of(cls, refs: Sequence[TopicRef]) -> "Topics":
        """Returns topics that belong to no table."""
        topics = AllTopics()
        return cls(topics, np.array([topics.add(ref) for ref in refs], np.int32))

    def take(self, positions: RowNumbers) -> "Topics":
        """Returns the topics at some positions."""
        return Topics(self.all, self.numbers[positions])

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> TopicRef: ...
    @overload
    def __getitem__(self, index: slice) -> "Topics": ...
    def __getitem__(self, index: int | slice) -> "TopicRef | Topics":
        if isinstance(index, slice):
            return Topics(self.all, self.numbers[index])
        return self.all[int(self.numbers[index])]

    def __iter__(self) -> Iterator[TopicRef]:
        return map(self.all.__getitem__, self.numbers.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_same, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Topics({list(self)!r})"


class TopicNames(Sequence[str]):
    """The names of topics, read on demand. They are rarely needed."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Sequence[TopicRef]) -> None:
        self._topics = topics

    def __len__(self) -> int:
        return len(self._topics)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "TopicNames": ...
    def __getitem__(self, index: int | slice) -> "str | TopicNames":
        if isinstance(index, slice):
            return TopicNames(self._topics[index])
        return self._topics[index].name

    def __iter__(self) -> Iterator[str]:
        return (ref.name for ref in self._topics)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_same, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TopicNames({list(self)!r})"


def _same(left: object, right: object) -> bool:
    return left == right
