"""Where partitions stand: the rows of each topic."""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from kactl.errors import IllegalState, NotFound
from kactl.model import ZERO_ID, Assignment, TopicPartition, TopicRef

from .columns import ROWS_MIN
from .records import Assignments, Names
from .rows import Ints, RowNumbers
from .slots import Slots
from .topics import AllTopics, Topics

NO_ROW: Final = -1
_NO_ROWS: Final[Ints] = np.zeros(0, np.int32)


@dataclasses.dataclass(slots=True)
class Topic:
    """One topic. `rows[partition]` is its row in the table, NO_ROW where there is no such partition."""

    number: int
    ref: TopicRef
    rows: Ints

    @property
    def name(self) -> str:
        return self.ref.name


class TopicRows(Slots):
    """Topics by name and number, and their partitions by row."""

    def __init__(self, *, width: int = 3) -> None:
        super().__init__(width=width)
        self._topics: dict[str, Topic] = {}
        self._by_number: list[Topic | None] = []
        self._by_id: dict[bytes, Topic] = {}
        self._refs = AllTopics()
        self._queued = np.zeros(0, np.bool_)  # by topic number

    @property
    def nbytes(self) -> int:
        """Bytes of the columns as allocated, and of what finds their rows by partition number."""
        return super().nbytes + sum(topic.rows.nbytes for topic in self._topics.values())

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_with_id(self, topic_id: bytes) -> Topic | None:
        """The topic of an id; None for ZERO_ID, which no topic has."""
        return self._by_id.get(topic_id)

    def topics(self) -> Iterable[Topic]:
        """All topics, in the order in which they were first seen."""
        return self._topics.values()

    def topic_count(self) -> int:
        return len(self._topics)

    def topic_at(self, number: int) -> Topic:
        topic = self._by_number[number]
        if topic is None:
            raise IllegalState(f"topic number {number} is free")
        return topic

    @property
    def refs(self) -> AllTopics:
        """Every topic there ever was by number, also those that are gone; for those who keep numbers."""
        return self._refs

    def add_topic(self, name: str, topic_id: bytes = ZERO_ID) -> Topic:
        """The topic of that name, made if there is none. A known id is not replaced by ZERO_ID.

        Raises:
            IllegalState: it is known under another id.
        """
        topic = self._topics.get(name)
        if topic is None:
            topic = Topic(len(self._by_number), TopicRef(name, topic_id), np.full(0, NO_ROW, np.int32))
            self._topics[name] = topic
            self._by_number.append(topic)
            self._refs.add(topic.ref)
            if topic.number >= len(self._queued):
                self._queued = np.concatenate([self._queued, np.zeros(max(64, len(self._queued)), np.bool_)])
        elif topic_id != ZERO_ID:
            if topic.ref.id not in (ZERO_ID, topic_id):
                raise IllegalState(f"topic {name} has the id {topic.ref.id.hex()} and was given {topic_id.hex()}")
            if topic.ref.id != topic_id:
                topic.ref = TopicRef(name, topic_id)
                self._refs.replace(topic.number, topic.ref)
        if topic_id != ZERO_ID:
            self._by_id[topic_id] = topic
        return topic

    def remove_topics(self, names: Iterable[str]) -> None:
        """Forget topics with all that is known of their partitions; those that are unknown are passed over."""
        gone = []
        for name in names:
            topic = self._topics.pop(name, None)
            if topic is None:
                continue
            self._by_number[topic.number] = None
            if self._by_id.get(topic.ref.id) is topic:
                del self._by_id[topic.ref.id]
            self._queued[topic.number] = False
            gone.append(topic)
        if gone:
            self._release(self.rows_of_all(gone))

    def queue_topic(self, name: str, queued: bool) -> None:
        """Mark that a topic waits for deletion, or no longer does."""
        topic = self._topics.get(name)
        if topic is not None:
            self._queued[topic.number] = queued

    # -- assignments ---------------------------------------------------------------------------------------------------

    def put_assignments(self, loaded: Assignments) -> RowNumbers:
        """Put what is assigned, in bulk; partitions that are known keep leadership and states by broker.

        Returns:
            the row of each of the n assignments.
        """
        if len(loaded.replicas) > self.width:
            self._widen(len(loaded.replicas))
        if not self._used and len(loaded) > ROWS_MIN:
            self._resize(len(loaded))
        numbers = np.array([self.add_topic(ref.name, ref.id).number for ref in loaded.topics], np.int32)
        at = self._rows_for(loaded, numbers)
        self._lay(at, loaded)
        return at

    def _rows_for(self, loaded: Assignments, numbers: Ints) -> RowNumbers:
        """The row of each assignment, allocated where it is new."""
        topic, partition = loaded.topic, loaded.partition
        order = np.argsort(topic, kind="stable")
        bounds = np.searchsorted(topic[order], np.arange(len(numbers) + 1)).tolist()
        homes = [self.topic_at(number) for number in numbers.tolist()]
        which = partition[order]
        found = np.full(len(loaded), NO_ROW, np.intp)  # in the order of topics, as `which` is
        for home, (begin, end) in zip(homes, pairwise(bounds), strict=True):
            if len(home.rows) and begin < end:
                there = np.flatnonzero(which[begin:end] < len(home.rows))
                found[begin + there] = home.rows[which[begin + there]]
        new = np.flatnonzero(found == NO_ROW)
        found[new] = self._allocate(len(new))
        self._columns["topic"][found[new]] = numbers[topic[order[new]]]
        self._columns["partition"][found[new]] = which[new]
        for home, (begin, end) in zip(homes, pairwise(bounds), strict=True):
            if begin < end:
                home.rows = _with(home.rows, which[begin:end], found[begin:end])
        at = np.empty(len(loaded), np.intp)
        at[order] = found
        return at

    def put_assignment(self, name: TopicPartition, assignment: Assignment) -> int:
        """Put one assignment and answer its row. Slots are put in the new order; leadership and states stay."""
        return int(self.put_assignments(Assignments.of({name: assignment}, self._ids_of([name.topic])))[0])

    def _ids_of(self, names: Iterable[str]) -> dict[str, bytes]:
        return {name: topic.ref.id for name in names if (topic := self._topics.get(name)) is not None}

    # -- by name -------------------------------------------------------------------------------------------------------

    def row(self, name: TopicPartition) -> int:
        """The row of a partition; NO_ROW if it is unknown."""
        topic = self._topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.rows):
            return NO_ROW
        return int(topic.rows[name.partition])

    def rows_named(self, names: Iterable[TopicPartition]) -> RowNumbers:
        """The rows of partitions that must be known, in the order given.

        Raises:
            NotFound: one of them is unknown.
        """
        at = []
        for name in names:
            row = self.row(name)
            if row == NO_ROW:
                raise NotFound("partition", name)
            at.append(row)
        return np.array(at, np.intp)

    def names(self, at: RowNumbers) -> Names:
        """Which partitions stand in some rows."""
        refs, topic = self.topics_of(self._columns["topic"][at])
        return Names(refs, topic, self._columns["partition"][at])

    def topics_of(self, numbers: Ints) -> tuple[Topics, Ints]:
        """The topics that a column of topic numbers names, and for each row its place among them.

        Where the column ascends, as it does in table order, the topics are in the order of the rows.
        """
        begins = np.empty(len(numbers), np.bool_)
        begins[:1] = True
        step = np.diff(numbers)
        if (step < 0).any():
            named, place = np.unique(numbers, return_inverse=True)
            return Topics(self._refs, named), place.astype(np.int32)
        np.not_equal(step, 0, out=begins[1:])
        return Topics(self._refs, numbers[begins]), np.cumsum(begins, dtype=np.int32) - np.int32(1)

    def rows_at(self, names: Names) -> RowNumbers:
        """The row of each partition, NO_ROW where it is unknown."""
        return self.rows_named_in([ref.name for ref in names.topics], names.topic, names.partition)

    def rows_named_in(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """The row of each partition `topics[topic[i]]`-`partition[i]`, NO_ROW where it is unknown."""
        rows, begins, sizes = self._laid_out([self._topics.get(name) for name in topics])
        there = (partition >= 0) & (partition < sizes[topic])
        at = np.full(len(partition), NO_ROW, np.intp)
        at[there] = rows[begins[topic[there]] + partition[there]]
        return at

    def rows_by_topic(self, names: Sequence[str]) -> tuple[RowNumbers, Ints]:
        """The rows of some topics, one topic after the other, and for each row the position of its topic in `names`.

        A topic that is unknown has none.
        """
        rows, _, sizes = self._laid_out([self._topics.get(name) for name in names])
        known = rows != NO_ROW
        return rows[known].astype(np.intp), np.repeat(np.arange(len(names), dtype=np.int32), sizes)[known]

    @staticmethod
    def _laid_out(topics: Sequence[Topic | None]) -> tuple[Ints, RowNumbers, RowNumbers]:
        """The rows of topics by partition number, one topic behind the other; where each begins, and how many it has.

        Numbers without a partition have NO_ROW; of a topic that is None there is nothing.
        """
        rows = [_NO_ROWS if topic is None else topic.rows for topic in topics]
        sizes = np.array([len(each) for each in rows], np.intp)
        # One alone is not copied: there may be very many in it, and one be asked for.
        return rows[0] if len(rows) == 1 else np.concatenate([_NO_ROWS, *rows]), np.cumsum(sizes) - sizes, sizes

    def versions(self, at: RowNumbers) -> Ints:
        """int32[n]: the version under which each row's leadership is known to be stored."""
        versions: Ints = self._columns["partition_epoch"][at]
        return versions

    def rows_of(self, topic: Topic) -> RowNumbers:
        return self.rows_of_all([topic])

    def rows_of_all(self, topics: Iterable[Topic]) -> RowNumbers:
        """The rows of some topics, one topic after the other, each by partition."""
        every: RowNumbers = np.concatenate([np.zeros(0, np.intp), *(topic.rows for topic in topics)])
        at: RowNumbers = every[every != NO_ROW]
        return at


def _with(rows: Ints, partitions: Ints, found: RowNumbers) -> Ints:
    """The rows of a topic by partition number, with those of some partitions, n > 0."""
    highest = int(partitions.max()) + 1
    if highest > len(rows):
        grown = np.full(highest, NO_ROW, np.int32)
        grown[: len(rows)] = rows
        rows = grown
    rows[partitions] = found
    return rows
