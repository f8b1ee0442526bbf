"""Content of a request batch as columns, one row for each broker and partition: pairing, merging, splitting by broker.

This module does not know the request types. `pairs` finds brokers and rows, `RequestColumns.for_brokers` gathers the
columns, and `by_broker` returns the newest row of each partition for each broker, in table order.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self, TypeVar

import msgspec
import numpy as np
import numpy.ma  # np.unique imports it at its first call, which took 27 ms in the middle of an event

from kactl.decide.messages.control import PartitionStates
from kactl.decide.state.rows import Bools, BrokerSet, Ints, RowNumbers, Rows, members
from kactl.decide.state.topics import Topics
from kactl.model import NO_BROKER, Broker

# A partition takes about 60 to 150 bytes, and a broker closes the connection on a request of more than 100 MiB
# (socket.request.max.bytes). A larger request is therefore sent in parts, one after the other.
PARTITIONS_OF_A_REQUEST_MAX: Final = 500_000

# If all ids are below this, a lookup table finds the distinct ones; otherwise they are sorted.
_DENSE_ID_MAX: Final = 1 << 16

# Columns that only some additions have, and the value in the others.
OPTIONAL: Final[dict[str, Any]] = {
    "hold": np.False_,
    "previous": np.int32(NO_BROKER),
    "reason": np.int32(0),
    "unbroken": np.int32(0),
}
_LISTS: Final = frozenset({"isr", "replicas", "adding", "removing", "offline"})
Columns = TypeVar("Columns", bound="RequestColumns")


class RequestColumns(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Columns that StopReplica needs: n rows.

    Attributes:
        row: row numbers in the table.
        topic: topic numbers of the table.
        flag: bool[n], kept once it is set for a broker and partition: "delete" of StopReplica, "is new" of
            LeaderAndIsr; None in UpdateMetadata.
        broker: the recipient of each row; None where each partition has one row for all recipients.
    """

    row: RowNumbers
    topic: Ints
    partition: Ints
    leader_epoch: Ints
    flag: Bools | None = None
    broker: Ints | None = None

    def take(self, which: Any) -> Self:
        """Returns the rows selected by a mask, positions or a slice."""
        columns: dict[str, Any] = {}
        for name in self.__struct_fields__:
            column = getattr(self, name)
            columns[name] = None if column is None else column[..., which]
        return type(self)(**columns)

    def for_brokers(self, brokers: Ints, positions: RowNumbers) -> Self:
        """Returns one row for each pair of a broker and the position of a row."""
        return msgspec.structs.replace(self.take(positions), broker=brokers)

    @property
    def brokers(self) -> Ints:
        """The recipient of each row."""
        assert self.broker is not None
        return self.broker


class LeadershipColumns(RequestColumns, frozen=True, kw_only=True, eq=False):
    """Columns that LeaderAndIsr and UpdateMetadata need. Lists of brokers are int32[W, n], None if all are empty."""

    controller_epoch: Ints
    leader: Ints
    isr: Ints
    partition_epoch: Ints
    replicas: Ints
    adding: Ints | None = None
    removing: Ints | None = None
    offline: Ints | None = None
    recovering: Bools | None = None
    hold: Bools | None = None
    previous: Ints | None = None
    reason: Ints | None = None
    unbroken: Ints | None = None


def leadership(rows: Rows, **columns: Any) -> LeadershipColumns:
    """Returns the leadership of `rows`, with other columns by name."""
    return LeadershipColumns(
        row=rows.index,
        topic=rows.topic,
        partition=rows.partition,
        controller_epoch=rows.controller_epoch,
        leader=rows.leader,
        leader_epoch=rows.leader_epoch,
        isr=members(rows.in_sync, rows.replicas),
        partition_epoch=rows.partition_epoch,
        replicas=members(rows.assigned, rows.replicas),
        **columns,
    )


def pairs(brokers: Ints, which: Bools) -> tuple[Ints, RowNumbers]:
    """Returns the brokers in the slots `which`, ascending, and the position of the row of each.

    The positions of one broker ascend.
    """
    width = len(brokers)
    if which.all():
        positions, recipients = np.repeat(np.arange(brokers.shape[1]), width), brokers.T.ravel()
    else:
        selected = np.flatnonzero(np.ascontiguousarray(which.T))
        positions, recipients = selected // width, brokers.T.ravel()[selected]
    if (recipients == NO_BROKER).any():
        positions, recipients = positions[recipients != NO_BROKER], recipients[recipients != NO_BROKER]
    # 16-bit keys are sorted by radix, several times faster than by comparison.
    keys = recipients.astype(np.uint16) if not len(recipients) or recipients.max() < 1 << 16 else recipients
    order = np.argsort(keys, kind="stable")
    return recipients[order], positions[order]


def brokers_of(additions: Iterable[RequestColumns]) -> list[int]:
    """Returns the ids of all recipients, ascending."""
    return sorted({broker for columns in additions for broker in np.unique(columns.brokers).tolist()})


def by_broker(additions: Sequence[Columns], registered: dict[int, Broker]) -> Iterable[tuple[int, Columns]]:
    """Yields each registered recipient, by id, and its rows: the newest of each partition, in table order."""
    if not additions:
        return
    columns = newest(additions)
    brokers = columns.brokers
    if not len(brokers):
        return
    for begin, end in itertools.pairwise(bounds_of(brokers)):
        broker = int(brokers[begin])
        if broker in registered:
            yield broker, columns.take(slice(begin, end))


def newest(additions: Sequence[Columns]) -> Columns:
    """Returns the newest row for each broker and partition, by broker and then in table order.

    A flag that was set once stays set.
    """
    columns = additions[0]
    if len(additions) > 1:
        columns = _joined(additions)
        key = columns.brokers.astype(np.int64) << 40 | columns.row
        last = last_of(key)
        if len(last) < len(key):
            assert columns.flag is not None
            _, group = np.unique(key, return_inverse=True)
            flag = np.zeros(len(last), np.bool_)
            np.logical_or.at(flag, group, columns.flag)
            columns = msgspec.structs.replace(columns.take(last), flag=flag)
    order = order_of(columns.brokers.astype(np.int64) << 32 | columns.topic, columns.partition)
    return columns if order is None else columns.take(order)


def bounds_of(brokers: Ints) -> list[int]:
    """Returns where the rows of each request begin, and the end of all.

    A broker has one request, or several if its rows do not fit into one.
    """
    bounds = [0, *(np.flatnonzero(brokers[1:] != brokers[:-1]) + 1).tolist(), len(brokers)]
    parts = [part.start for begin, end in itertools.pairwise(bounds) for part in parts_of(begin, end)]
    return [*parts, len(brokers)]


def registered_only(brokers: Ints, positions: RowNumbers, registered: Iterable[int]) -> tuple[Ints, RowNumbers]:
    """Returns the pairs without those of unregistered brokers."""
    unregistered = set(different(brokers)).difference(registered)
    if not unregistered:
        return brokers, positions
    known = ~BrokerSet(unregistered)[brokers]
    return brokers[known], positions[known]


def different(brokers: Ints) -> list[int]:
    """Returns the distinct ids in a column, ascending, without NO_BROKER."""
    top = int(brokers.max(initial=0))
    if top >= _DENSE_ID_MAX or int(brokers.min(initial=0)) < NO_BROKER:
        ids: list[int] = np.unique(brokers[brokers != NO_BROKER]).tolist()
        return ids
    # NO_BROKER (-1) indexes the last entry.
    occurs = np.zeros(top + 2, np.bool_)
    occurs[brokers] = True
    ids = np.flatnonzero(occurs[:-1]).tolist()
    return ids


def parts_of(begin: int, end: int) -> Iterable[slice]:
    """Yields the rows `begin` to `end` in parts that fit into one request each; one empty part if there are none."""
    for first in range(begin, max(end, begin + 1), PARTITIONS_OF_A_REQUEST_MAX):
        yield slice(first, min(first + PARTITIONS_OF_A_REQUEST_MAX, end))


def _joined(additions: Sequence[Columns]) -> Columns:
    """Returns the concatenated additions; narrower lists are padded."""
    joined: dict[str, Any] = {}
    for name in additions[0].__struct_fields__:
        values = [getattr(columns, name) for columns in additions]
        if all(value is None for value in values):
            continue
        if name in _LISTS:
            width = max(len(value) for value in values if value is not None)
            values = [
                np.full((width, len(columns.row)), NO_BROKER, np.int32)
                if value is None
                else padded(value, width, NO_BROKER)
                for value, columns in zip(values, additions, strict=True)
            ]
        elif name in OPTIONAL:
            joined[name] = joined_optional(name, values, [len(columns.row) for columns in additions])
            continue
        joined[name] = np.concatenate(values, axis=-1)
    return type(additions[0])(**joined)


def joined_optional(name: str, columns: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Returns the concatenation of a column that some additions do not have; None if none has it."""
    if all(column is None for column in columns):
        return None
    empty = OPTIONAL[name]
    return np.concatenate(
        [np.full(size, empty) if column is None else column for column, size in zip(columns, sizes, strict=True)]
    )


def ascends(rows: RowNumbers) -> bool:
    """Whether row numbers ascend strictly, as the rows of a change that was made in chunks do."""
    return bool((rows[1:] > rows[:-1]).all())


def last_of(rows: RowNumbers) -> RowNumbers:
    """Returns the position of the last occurrence of each row number, in the order of the row numbers."""
    _, from_end = np.unique(rows[::-1], return_index=True)
    return len(rows) - 1 - from_end


def join(parts: list[Rows]) -> Rows:
    """Returns concatenated rows; the slots of narrower parts are padded."""
    if len(parts) == 1:
        return parts[0]
    width = max(len(part.replicas) for part in parts)
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(Rows):
        values = [getattr(part, field.name) for part in parts]
        if values[0].ndim == 2:
            empty = NO_BROKER if field.name == "replicas" else 0
            values = [padded(value, width, empty) for value in values]
        columns[field.name] = np.concatenate(values, axis=-1)
    return Rows(**columns)


def padded(column: Any, width: int, empty: int = 0) -> Any:
    """Returns `column`, [K, n], with `width` >= K slots; the new ones hold `empty`."""
    missing = width - len(column)
    return np.pad(column, ((0, missing), (0, 0)), constant_values=empty) if missing else column


def order_of(topic: Any, partition: Ints) -> RowNumbers | None:
    """Returns the order by topic and partition; None if the rows already have this order."""
    step = np.diff(topic)
    if (step > 0).all() or ((step >= 0).all() and (np.diff(partition)[step == 0] > 0).all()):
        return None
    return np.lexsort((partition, topic))


def listed(which: Bools, rows: Rows) -> Ints | None:
    """Returns int32[W, n]: the replicas selected by `which`; None if none is selected."""
    return members(which, rows.replicas) if which.any() else None


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class FanOut:
    """Partition states, each partition stored once, and their distribution to m recipients.

    A change of ten thousand partitions goes to thirty brokers, each of which hosts some of them. A broker's part holds
    only row positions. Its columns are gathered at the first access. The network codec never accesses them: it encodes
    the bytes of each partition once and copies them into each request.

    Attributes:
        states: the partitions. The rows of one recipient are in the order in which the recipient receives them.
        positions: intp[n], rows of `states`; those of one recipient are adjacent and ascending.
        bounds: recipient i receives `positions[bounds[i]:bounds[i + 1]]`, which is not empty.
    """

    states: PartitionStates
    positions: RowNumbers
    bounds: list[int]

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
