"""Index from partition names to the row numbers of columns that the caller owns.

A whole column of names is looked up in one search, so that a request with 100,000 partitions does not need 100,000
look-ups. A row number belongs to one partition until the partition is removed, and may be reused for another one
afterwards: callers must not keep row numbers across an `await`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.decide.state.rows import Ints, RowNumbers
from kactl.model import TopicPartition, TopicRef
from kactl.stores.base import Names

ABSENT: Final = -1

# A key is topic number * 2^32 + partition, so that the keys of one topic are adjacent.
_SPAN: Final = 1 << 32
_HALF: Final = 1 << 31

_Keys = npt.NDArray[np.int64]


class RowIndex:
    """Sorted keys of partitions, and the row of each.

    Attributes:
        capacity: the length that the caller's columns must have; above every row number in use.
    """

    def __init__(self) -> None:
        self.capacity = 0
        self._numbers: dict[str, int] = {}
        self._topics: dict[int, str] = {}
        self._next_number = 0
        self._keys: _Keys = np.zeros(0, np.int64)  # ascending
        self._rows: RowNumbers = np.zeros(0, np.intp)  # the row of each key
        self._key_of_row: _Keys = np.zeros(0, np.int64)
        self._free: RowNumbers = np.zeros(0, np.intp)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def rows(self) -> RowNumbers:
        """All rows in use, grouped by topic, in the order of the partition numbers."""
        return self._rows

    @property
    def topics(self) -> list[str]:
        """The topics that have a row, in the order in which they were added."""
        return list(self._numbers)

    def has_topic(self, topic: str) -> bool:
        """Returns whether a partition of the topic has a row."""
        return topic in self._numbers

    def rows_of(self, topic: str) -> RowNumbers:
        """Returns the rows of a topic, in the order of the partition numbers."""
        number = self._numbers.get(topic)
        if number is None:
            return np.zeros(0, np.intp)
        begin, end = np.searchsorted(self._keys, [number * _SPAN - _HALF, number * _SPAN + _HALF])
        return self._rows[begin:end]

    def find(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """Returns the row of each of n partitions, or ABSENT; `topics[topic[i]]` is the topic name of partition i."""
        rows = np.full(len(partition), ABSENT, np.intp)
        if not len(self._keys) or not len(partition):
            return rows
        keys = self._as_keys(topics, topic, partition)
        positions = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        np.copyto(rows, self._rows[positions], where=self._keys[positions] == keys)
        return rows

    def find_one(self, name: TopicPartition) -> int:
        """Returns the row of one partition, or ABSENT."""
        number = self._numbers.get(name.topic)
        if number is None:
            return ABSENT
        key = number * _SPAN + name.partition
        position = int(np.searchsorted(self._keys, key))
        is_known = position < len(self._keys) and int(self._keys[position]) == key
        return int(self._rows[position]) if is_known else ABSENT

    def add(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """Allocate rows for n partitions that have none, no partition twice. Returns the rows."""
        for position in np.unique(topic).tolist():
            name = topics[position]
            if name not in self._numbers:
                self._numbers[name] = self._next_number
                self._topics[self._next_number] = name
                self._next_number += 1
        rows = self._take_rows(len(partition))
        keys = self._as_keys(topics, topic, partition)
        self._key_of_row[rows] = keys
        merged = np.concatenate((self._keys, keys))
        order = np.argsort(merged, kind="stable")
        self._keys = merged[order]
        self._rows = np.concatenate((self._rows, rows))[order]
        return rows

    def remove(self, rows: RowNumbers) -> list[str]:
        """Release rows that are in use, none twice.

        Returns:
            the topics that have no row left; they are removed too.
        """
        removed = np.zeros(self.capacity, np.bool_)
        removed[rows] = True
        remaining = ~removed[self._rows]
        self._keys, self._rows = self._keys[remaining], self._rows[remaining]
        self._free = np.concatenate((self._free, rows))
        return [self._remove_topic(number) for number in self._numbers_of(rows) if not self._has_rows(number)]

    def names(self, rows: RowNumbers) -> Names:
        """Returns the partitions of some rows that are in use, in their order."""
        keys = self._key_of_row[rows]
        if len(self._topics) == 1 or not len(rows):
            # Most calls concern few rows, and a search for different topics is most of their cost.
            refs = tuple(TopicRef(name) for name in self._topics.values()) if len(rows) else ()
            first = next(iter(self._topics), 0) * _SPAN
            return Names(refs, np.zeros(len(rows), np.int32), (keys - first).astype(np.int32))
        numbers, topic = np.unique((keys + _HALF) // _SPAN, return_inverse=True)
        partition = keys - numbers[topic] * _SPAN
        refs = tuple(TopicRef(self._topics[number]) for number in numbers.tolist())
        return Names(refs, topic.astype(np.int32), partition.astype(np.int32))

    def _as_keys(self, topics: Sequence[str], topic: Ints, partition: Ints) -> _Keys:
        numbers = np.fromiter((self._numbers.get(name, -1) for name in topics), np.int64, len(topics))
        keys: _Keys = numbers[topic] * _SPAN + partition
        return keys

    def _take_rows(self, count: int) -> RowNumbers:
        reused, self._free = self._free[:count], self._free[count:]
        fresh = np.arange(self.capacity, self.capacity + count - len(reused))
        self.capacity += len(fresh)
        if self.capacity > len(self._key_of_row):
            longer = np.zeros(max(self.capacity, 2 * len(self._key_of_row)), np.int64)
            longer[: len(self._key_of_row)] = self._key_of_row
            self._key_of_row = longer
        return np.concatenate((reused, fresh))

    def _numbers_of(self, rows: RowNumbers) -> list[int]:
        numbers: list[int] = np.unique((self._key_of_row[rows] + _HALF) // _SPAN).tolist()
        return numbers

    def _has_rows(self, number: int) -> bool:
        lowest = number * _SPAN - _HALF
        position = int(np.searchsorted(self._keys, lowest))
        return position < len(self._keys) and int(self._keys[position]) < lowest + _SPAN

    def _remove_topic(self, number: int) -> str:
        name = self._topics.pop(number)
        del self._numbers[name]
        return name
