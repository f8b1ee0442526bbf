"""Topics by number: a list of all that ever were, and a few of them without a copy.

A failure of one broker speaks of ten thousand topics thirty times over. Columns of topic numbers carry that; the
objects are touched only by those who need a name.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from kactl.model import TopicRef

from .rows import Ints, RowNumbers


class AllTopics:
    """Every topic that a table has seen, by number. Numbers are not used again, so that one who keeps one may ask.

    Attributes:
        replaced: how often a topic was given another TopicRef: an id that it had not before. What was made of the
            old ones is void then.
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
        """All from `number` on."""
        return self._refs[number:]

    def add(self, ref: TopicRef) -> int:
        """The number of a topic that is new."""
        self._refs.append(ref)
        return len(self._refs) - 1

    def replace(self, number: int, ref: TopicRef) -> None:
        self._refs[number] = ref
        self.replaced += 1


class Topics(Sequence[TopicRef]):
    """Some topics, in an order: `all[numbers[i]]`."""

    __slots__ = ("all", "numbers")

    def __init__(self, all_topics: AllTopics, numbers: Ints) -> None:
        self.all = all_topics
        self.numbers = numbers

    @classmethod
    def of(cls, refs: Sequence[TopicRef]) -> "Topics":
        """Topics that no table has numbered."""
        found = AllTopics()
        return cls(found, np.array([found.add(ref) for ref in refs], np.int32))

    def take(self, places: RowNumbers) -> "Topics":
        """Those at some places."""
        return Topics(self.all, self.numbers[places])

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> TopicRef: ...
    @overload
    def __getitem__(self, at: slice) -> "Topics": ...
    def __getitem__(self, at: int | slice) -> "TopicRef | Topics":
        if isinstance(at, slice):
            return Topics(self.all, self.numbers[at])
        return self.all[int(self.numbers[at])]

    def __iter__(self) -> Iterator[TopicRef]:
        return map(self.all.__getitem__, self.numbers.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_same, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Topics({list(self)!r})"


class TopicNames(Sequence[str]):
    """The names of topics, for whoever asks; nearly always nobody does."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Sequence[TopicRef]) -> None:
        self._topics = topics

    def __len__(self) -> int:
        return len(self._topics)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> "TopicNames": ...
    def __getitem__(self, at: int | slice) -> "str | TopicNames":
        if isinstance(at, slice):
            return TopicNames(self._topics[at])
        return self._topics[at].name

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
