"""Merging of queued requests that name the same partition: which request decides. `coalesce` documents the rules.

A `MergeCandidate` is one request, or several merged ones, with the partitions that it decides. Every column has one
entry per partition of all queued requests, so candidates are compared element by element.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kactl.decide.messages.control import KafkaRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from kactl.decide.state.rows import Bools, Ints, RowNumbers
from kactl.model import LEADER_DURING_DELETE, Endpoint, TopicRef

from .request_columns import PARTITIONS_OF_A_REQUEST_MAX

# Live brokers, as known to one broker, and their endpoints.
Alive = dict[int, tuple[Endpoint, ...]]

# Range of a stop with a leader epoch that brokers do not compare: above all epochs.
_ANY_EPOCH = 1 << 40


class PartitionIndex:
    """All partitions of some requests, numbered by topic and partition.

    Attributes:
        rows: for each request, the number of each of its rows.
        conflicting: for each request, whether it names a topic that occurs with two ids.
        topics: by topic number, in the order of the partition numbers.
        topic, partition: of each partition number.
    """

    def __init__(self, requests: Sequence[KafkaRequest]) -> None:
        self.topics: list[TopicRef] = []
        numbers: dict[str, int] = {}
        two_ids: set[int] = set()
        keys, topics_of_request = [], []
        for request in requests:
            content = request if isinstance(request, StopReplica) else request.states
            local = np.empty(len(content.topics), np.int64)
            for index, ref in enumerate(content.topics):
                number = local[index] = numbers.setdefault(ref.name, len(numbers))
                if number == len(self.topics):
                    self.topics.append(ref)
                elif ref is not self.topics[number] and ref.id != self.topics[number].id:
                    two_ids.add(int(number))
            topics_of_request.append(set(local.tolist()))
            keys.append(local[content.topic] << 32 | content.partition)
        self.conflicting = [bool(two_ids & topics_) for topics_ in topics_of_request]
        distinct_keys, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        self.topic, self.partition = distinct_keys >> 32, (distinct_keys & 0xFFFF_FFFF).astype(np.int32)
        self.rows: list[RowNumbers] = np.split(inverse, np.cumsum([len(rows) for rows in keys])[:-1])

    def __len__(self) -> int:
        return len(self.topic)


# -- candidates --------------------------------------------------------------------------------------------------------


class Winners(NamedTuple):
    """Partitions of some merged requests, and for each the request and row that decides."""

    numbers: RowNumbers
    source: Ints
    row: Ints
    is_new: Bools


class MergeCandidate:
    """One request, or several merged ones.

    Attributes:
        members: positions of the requests, ascending.
        conflicting: it may not be merged with others, and others may not move past it.
        has: bool[partition number]: the partitions that it names.
        source, row: for each of them, the request that decides, and its row there.
        words: the same for these alone, once it is final; None of a single request.
    """

    words: Winners | None = None

    def __init__(self, position: int, named: PartitionIndex) -> None:
        self.members = [position]
        self.conflicting = named.conflicting[position]
        self.rows = named.rows[position]
        self.has = self._column(len(named), True, np.bool_)
        self.source = self._column(len(named), position, np.int32)
        self.row = self._column(len(named), np.arange(len(self.rows)), np.int32)

    def _column(self, size: int, values: Any, kind: Any) -> Any:
        column = np.zeros(size, kind)
        column[self.rows] = values
        return column

    def fits(self, later: Any) -> bool:
        """Whether `later`, a single request of the same type, can be merged into this one."""
        both = later.rows[self.has[later.rows]]
        size = np.count_nonzero(self.has) + len(later.rows) - len(both)
        return bool(size <= PARTITIONS_OF_A_REQUEST_MAX and self._agrees(later, both).all())

    def settle(self) -> None:
        """Mark as final: drop all columns but the decisions."""
        if len(self.members) > 1:
            numbers = np.flatnonzero(self.has)
            is_new = getattr(self, "is_new", self.has)[numbers]
            self.words = Winners(numbers, self.source[numbers], self.row[numbers], is_new)
        for name, column in list(vars(self).items()):
            if isinstance(column, np.ndarray):
                delattr(self, name)

    def take(self, later: Any) -> None:
        """Merge `later` into this one."""
        rows = later.rows[~self.has[later.rows] | self._prefers(later, later.rows)]
        for name, column in vars(later).items():
            if name != "rows" and isinstance(column, np.ndarray):
                getattr(self, name)[rows] = column[rows]
        self.members += later.members

    def _agrees(self, later: Any, both: RowNumbers) -> Bools:
        """For each partition that both name, whether one of the two can stand for both."""
        raise NotImplementedError

    def _prefers(self, later: Any, rows: RowNumbers) -> Bools:
        """For some partitions of `later`, whether `later` decides if both name them."""
        raise NotImplementedError


class Metadata(MergeCandidate):
    """Merge candidate of UpdateMetadata."""

    def __init__(self, position: int, request: UpdateMetadata, named: PartitionIndex, alive: Alive | None) -> None:
        super().__init__(position, named)
        self.gone = self._column(len(named), request.states.leader == LEADER_DURING_DELETE, np.bool_)
        self.before = alive
        self.after = request.alive

    def _agrees(self, later: "Metadata", both: RowNumbers) -> Bools:
        agrees: Bools = ~self.gone[both] | later.gone[both]
        return agrees

    def _prefers(self, later: "Metadata", rows: RowNumbers) -> Bools:
        return np.ones(len(rows), np.bool_)

    def take(self, later: "Metadata") -> None:
        super().take(later)
        self.after = later.after

    def changed(self) -> set[int]:
        """Returns the brokers that are added, removed or changed, if the previous list is known."""
        before = self.before or {}
        return {id_ for id_ in before.keys() | self.after.keys() if before.get(id_) != self.after.get(id_)}


class Leading(MergeCandidate):
    """Candidate of LeaderAndIsr. `replica`: it names the recipient as one; `taken`: its leader is known to be alive."""

    def __init__(
        self, position: int, request: LeaderAndIsr, named: PartitionIndex, broker: int, alive: Alive | None
    ) -> None:
        super().__init__(position, named)
        states, size = request.states, len(named)
        self.leader = self._column(size, states.leader, np.int32)
        self.epoch = self._column(size, states.leader_epoch, np.int32)
        self.replica = self._column(size, (states.replicas == broker).any(axis=0), np.bool_)
        self.taken = self._column(size, np.isin(states.leader, [broker, *(alive or ())]), np.bool_)
        self.is_new = self._column(size, False if states.is_new is None else states.is_new, np.bool_)

    def _agrees(self, later: "Leading", both: RowNumbers) -> Bools:
        accepted = self.replica[both] & later.replica[both] & later.taken[both]
        counts = self.taken[both] | self._prefers(later, both)
        agrees: Bools = accepted & counts & (self.is_new[both] | ~later.is_new[both])
        return agrees

    def _prefers(self, later: "Leading", rows: RowNumbers) -> Bools:
        prefers: Bools = later.epoch[rows] > self.epoch[rows]
        return prefers

    def take(self, later: "Leading") -> None:
        is_new = self.is_new | later.is_new
        super().take(later)
        self.is_new = is_new

    def names_leader_among(self, brokers: set[int]) -> bool:
        return bool(brokers) and bool(np.isin(self.leader[self.has], list(brokers)).any())


class Stopping(MergeCandidate):
    """Merge candidate of StopReplica."""

    def __init__(self, position: int, request: StopReplica, named: PartitionIndex) -> None:
        super().__init__(position, named)
        self.delete = self._column(len(named), request.delete, np.bool_)
        # -2 and -1 are not compared by the broker, so they are above all epochs.
        reach = np.where(request.leader_epoch < 0, np.int64(_ANY_EPOCH), request.leader_epoch)
        self.reach = self._column(len(named), reach, np.int64)

    def _agrees(self, later: "Stopping", both: RowNumbers) -> Bools:
        first, second = self.delete[both], later.delete[both]
        reach, other = self.reach[both], later.reach[both]
        twice = (reach == other) | (reach >= _ANY_EPOCH)
        agrees: Bools = np.where(first, np.where(second, twice, reach >= other), ~second | (other >= reach))
        return agrees

    def _prefers(self, later: "Stopping", rows: RowNumbers) -> Bools:
        more = later.delete[rows] & ~self.delete[rows]
        wider = ~self.delete[rows] & (later.reach[rows] > self.reach[rows])
        prefers: Bools = more | wider
        return prefers
