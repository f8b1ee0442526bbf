"""Partitions by name, as row numbers of columns that somebody else keeps.

A whole column of names is looked up at once, so that a request over a hundred thousand partitions costs a search and
not a hundred thousand look-ups. A row number belongs to one partition until it is removed, and may be given to another
one afterwards: nobody keeps row numbers across an `await`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kactl.model import TopicPartition, TopicRef
from kactl.state.rows import Ints, RowNumbers
from kactl.stores.base import Names

ABSENT: Final = -1

# A key is topic number * 2^32 + partition, so that all keys of a topic stand side by side.
_SPAN: Final = 1 << 32
_HALF: Final = 1 << 31

_Keys = npt.NDArray[np.int64]


class Index:
    """See the module. `capacity` is how long the columns have to be: above every row number in use."""

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
        """All rows in use, those of one topic side by side, by partition number."""
        return self._rows

    @property
    def topics(self) -> list[str]:
        """The topics that have a row, in the order in which they came."""
        return list(self._numbers)

    def has_topic(self, topic: str) -> bool:
        """Whether a partition of the topic has a row."""
        return topic in self._numbers

    def find(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """The row of each of n partitions, ABSENT where there is none; `topics[topic[i]]` names the topic of i."""
        found = np.full(len(partition), ABSENT, np.intp)
        if not len(self._keys) or not len(partition):
            return found
        keys = self._as_keys(topics, topic, partition)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        np.copyto(found, self._rows[at], where=self._keys[at] == keys)
        return found

    def find_one(self, name: TopicPartition) -> int:
        """The row of one partition, or ABSENT."""
        number = self._numbers.get(name.topic)
        if number is None:
            return ABSENT
        key = number * _SPAN + name.partition
        at = int(np.searchsorted(self._keys, key))
        return int(self._rows[at]) if at < len(self._keys) and int(self._keys[at]) == key else ABSENT

    def add(self, topics: Sequence[str], topic: Ints, partition: Ints) -> RowNumbers:
        """Rows for n partitions that have none; no partition twice."""
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
        """Forget some rows that are in use, none twice.

        Returns:
            the topics that have no row left; they are forgotten too.
        """
        gone = np.zeros(self.capacity, np.bool_)
        gone[rows] = True
        kept = ~gone[self._rows]
        self._keys, self._rows = self._keys[kept], self._rows[kept]
        self._free = np.concatenate((self._free, rows))
        return [self._forget(number) for number in self._numbers_of(rows) if not self._has_rows(number)]

    def names(self, rows: RowNumbers) -> Names:
        """The partitions of some rows that are in use, in their order."""
        keys = self._key_of_row[rows]
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
        at = int(np.searchsorted(self._keys, lowest))
        return at < len(self._keys) and int(self._keys[at]) < lowest + _SPAN

    def _forget(self, number: int) -> str:
        name = self._topics.pop(number)
        del self._numbers[name]
        return name
