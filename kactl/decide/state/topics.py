"""Topics of the partition table: by number, name and id, with the row of each partition; selections without a copy.

The failure of one broker concerns ten thousand topics in thirty requests. Requests therefore carry columns of topic
numbers, and topic objects are accessed only when a name is needed.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, overload

import numpy as np

from kactl.model import ZERO_ID, TopicPartition, TopicRef
from kactl.model.errors import IllegalState, NotFound

from .records import Assignments
from .rows import Ints, RowNumbers

NO_ROW: Final = -1
_NO_ROWS: Final[Ints] = np.zeros(0, np.int32)


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


@dataclasses.dataclass(slots=True)
class Topic:
    """One topic. `rows[partition]` is the row of a partition in the table, NO_ROW if there is no such partition."""

    number: int
    ref: TopicRef
    rows: Ints

    @property
    def name(self) -> str:
        return self.ref.name


class TopicIndex:
    """Lookup of topics and rows. A topic keeps its number for its lifetime; numbers are not reused."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_number: list[Topic | None] = []
        self._by_id: dict[bytes, Topic] = {}
        self.refs = AllTopics()

    def __len__(self) -> int:
        """The number of topics."""
        return len(self._by_name)

    @property
    def nbytes(self) -> int:
        """Size in bytes of the row lists of all topics."""
        return sum(topic.rows.nbytes for topic in self._by_name.values())

    # -- topics --------------------------------------------------------------------------------------------------------

    def named(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def with_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def all(self) -> Iterable[Topic]:
        """Returns all topics in the order in which they were added."""
        return self._by_name.values()

    def numbered(self, number: int) -> Topic:
        topic = self._by_number[number]
        if topic is None:
            raise IllegalState(f"topic number {number} is free")
        return topic

    def add(self, name: str, topic_id: bytes = ZERO_ID) -> Topic:
        """Returns the topic of that name; adds it if it is unknown. ZERO_ID does not replace a known id.

        Raises:
            IllegalState: the topic is known under another id.
        """
        topic = self._by_name.get(name)
        if topic is None:
            topic = Topic(len(self._by_number), TopicRef(name, topic_id), np.full(0, NO_ROW, np.int32))
            self._by_name[name] = topic
            self._by_number.append(topic)
            self.refs.add(topic.ref)
        elif topic_id != ZERO_ID:
            if topic.ref.id not in (ZERO_ID, topic_id):
                raise IllegalState(f"topic {name} has the id {topic.ref.id.hex()} and was given {topic_id.hex()}")
            if topic.ref.id != topic_id:
                topic.ref = TopicRef(name, topic_id)
                self.refs.replace(topic.number, topic.ref)
        if topic_id != ZERO_ID:
            self._by_id[topic_id] = topic
        return topic

    def remove(self, names: Iterable[str]) -> list[Topic]:
        """Remove topics and return them; unknown names are ignored."""
        removed = []
        for name in names:
            topic = self._by_name.pop(name, None)
            if topic is None:
                continue
            self._by_number[topic.number] = None
            if self._by_id.get(topic.ref.id) is topic:
                del self._by_id[topic.ref.id]
            removed.append(topic)
        return removed

    def ids_of(self, names: Iterable[str]) -> dict[str, bytes]:
        """Returns the ids of those topics that are known."""
        return {name: topic.ref.id for name in names if (topic := self._by_name.get(name)) is not None}

    # -- rows ----------------------------------------------------------------------------------------------------------

    def place(
        self, loaded: Assignments, numbers: Ints, allocate: Callable[[int], RowNumbers]
    ) -> tuple[RowNumbers, RowNumbers]:
        """Find the row of each of n partitions; allocate rows for new partitions and index them.

        Args:
            loaded: n partitions by topic and partition number.
            numbers: the topic number of each of `loaded.topics`.
            allocate: returns the numbers of so many new rows.

        Returns:
            The row of each partition, and the positions in `loaded` of those that are new.
        """
        topic, partition = loaded.topic, loaded.partition
        order = np.argsort(topic, kind="stable")
        bounds = np.searchsorted(topic[order], np.arange(len(numbers) + 1)).tolist()
        topics = [self.numbered(number) for number in numbers.tolist()]
        sorted_partition = partition[order]
        sorted_rows = np.full(len(loaded), NO_ROW, np.intp)  # in the order of topics, as `sorted_partition` is
        for owner, (begin, end) in zip(topics, pairwise(bounds), strict=True):
            if len(owner.rows) and begin < end:
                known = np.flatnonzero(sorted_partition[begin:end] < len(owner.rows))
                sorted_rows[begin + known] = owner.rows[sorted_partition[begin + known]]
        new = np.flatnonzero(sorted_rows == NO_ROW)
        sorted_rows[new] = allocate(len(new))
        for owner, (begin, end) in zip(topics, pairwise(bounds), strict=True):
            if begin < end:
                owner.rows = _with(owner.rows, sorted_partition[begin:end], sorted_rows[begin:end])
        rows = np.empty(len(loaded), np.intp)
        rows[order] = sorted_rows
        return rows, order[new]

    def row(self, name: TopicPartition) -> int:
        """Returns the row of a partition, NO_ROW if it is unknown."""
        topic = self._by_name.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.rows):
            return NO_ROW
        return int(topic.rows[name.partition])

    def rows_named(self, names: Iterable[TopicPartition]) -> RowNumbers:
        """Returns the rows of partitions that must be known, in the order given.

        Raises:
            NotFound: one of them is unknown.
        """
        rows = []
        for name in names:
            row = self.row(name)
            if row == NO_ROW:
                raise NotFound("partition", name)
            rows.append(row)
        return np.array(rows, np.intp)

    def rows_named_in(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """Returns the row of each partition `topics[topic[i]]`-`partition[i]`, NO_ROW if it is unknown."""
        rows, begins, sizes = self._concatenated([self._by_name.get(name) for name in topics])
        known = (partition >= 0) & (partition < sizes[topic])
        result = np.full(len(partition), NO_ROW, np.intp)
        result[known] = rows[begins[topic[known]] + partition[known]]
        return result

    def rows_by_topic(self, names: Sequence[str]) -> tuple[RowNumbers, Ints]:
        """Returns the rows of some topics, topic by topic, and for each row the position of its topic in `names`.

        An unknown topic has no rows.
        """
        rows, _, sizes = self._concatenated([self._by_name.get(name) for name in names])
        known = rows != NO_ROW
        return rows[known].astype(np.intp), np.repeat(np.arange(len(names), dtype=np.int32), sizes)[known]

    @staticmethod
    def _concatenated(topics: Sequence[Topic | None]) -> tuple[Ints, RowNumbers, RowNumbers]:
        """Returns the row lists of topics, concatenated; the position where each list begins; and its length.

        Partition numbers without a partition have NO_ROW. The list of a topic that is None is empty.
        """
        lists = [_NO_ROWS if topic is None else topic.rows for topic in topics]
        sizes = np.array([len(rows) for rows in lists], np.intp)
        # A single list is not copied: it may be very long while one row of it is needed.
        return lists[0] if len(lists) == 1 else np.concatenate([_NO_ROWS, *lists]), np.cumsum(sizes) - sizes, sizes

    def topics_of(self, numbers: Ints) -> tuple[Topics, Ints]:
        """Returns the distinct topics in a column of topic numbers, and for each row the position of its topic.

        If the column ascends, as it does in table order, the topics are in the order of the rows.
        """
        begins = np.empty(len(numbers), np.bool_)
        begins[:1] = True
        step = np.diff(numbers)
        if (step < 0).any():
            distinct, position = np.unique(numbers, return_inverse=True)
            return Topics(self.refs, distinct), position.astype(np.int32)
        np.not_equal(step, 0, out=begins[1:])
        return Topics(self.refs, numbers[begins]), np.cumsum(begins, dtype=np.int32) - np.int32(1)


def rows_of_all(topics: Iterable[Topic]) -> RowNumbers:
    """Returns the rows of some topics, topic by topic, each by partition number."""
    lists: RowNumbers = np.concatenate([np.zeros(0, np.intp), *(topic.rows for topic in topics)])
    rows: RowNumbers = lists[lists != NO_ROW]
    return rows


def _with(rows: Ints, partitions: Ints, new_rows: RowNumbers) -> Ints:
    """Returns the rows of a topic by partition number, with new rows for n > 0 partitions."""
    highest = int(partitions.max()) + 1
    if highest > len(rows):
        longer = np.full(highest, NO_ROW, np.int32)
        longer[: len(rows)] = rows
        rows = longer
    rows[partitions] = new_rows
    return rows
