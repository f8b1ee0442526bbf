"""What a batch has gathered, as columns: one row for each broker and partition, put together and parted by broker.

Nothing here knows what a request is. The words: `pairs` of brokers and rows, `taken` into columns, `by_broker` the
newest of them in table order.
"""

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.ma  # np.unique loads it when it is called first, which took 27 ms in the middle of an event

from kactl.model import NO_BROKER, Broker
from kactl.state.rows import Bools, BrokerSet, Ints, RowNumbers, Rows, members

# A partition takes some 60 to 150 bytes, and a broker closes the connection over a request of more than 100 MiB
# (socket.request.max.bytes). So a larger request is sent in parts, one behind the other.
PARTITIONS_OF_A_REQUEST_MAX: Final = 500_000

# Above this, ids are sorted to see which of them occur.
_DENSE_ID_MAX: Final = 1 << 16

# What is said to brokers, as columns by name; one row for each broker and partition. `broker` ascends, and what is said
# to one broker stands in table order. Lists of brokers are int32[W, m], or None where all are empty.
RequestColumns = dict[str, Any]

LEADERSHIP_ON_THE_WIRE: Final = (
    "partition",
    "controller_epoch",
    "leader",
    "leader_epoch",
    "isr",
    "partition_epoch",
    "replicas",
)


def leadership(rows: Rows) -> RequestColumns:
    """What every broker may hear of a partition."""
    return {
        "at": rows.index,
        "topic": rows.topic,
        "partition": rows.partition,
        "controller_epoch": rows.controller_epoch,
        "leader": rows.leader,
        "leader_epoch": rows.leader_epoch,
        "isr": members(rows.in_sync, rows.replicas),
        "partition_epoch": rows.partition_epoch,
        "replicas": members(rows.assigned, rows.replicas),
    }


def pairs(brokers: Ints, which: Bools) -> tuple[Ints, RowNumbers]:
    """The brokers in the slots `which`, ascending, and the position of the row of each; positions ascend for each."""
    width = len(brokers)
    if which.all():
        positions, named = np.repeat(np.arange(brokers.shape[1]), width), brokers.T.ravel()
    else:
        found = np.flatnonzero(np.ascontiguousarray(which.T))
        positions, named = found // width, brokers.T.ravel()[found]
    if (named == NO_BROKER).any():
        positions, named = positions[named != NO_BROKER], named[named != NO_BROKER]
    # Sixteen bits are sorted by radix, several times faster than by comparison.
    keys = named.astype(np.uint16) if not len(named) or named.max() < 1 << 16 else named
    order = np.argsort(keys, kind="stable")
    return named[order], positions[order]


def taken(columns: RequestColumns, brokers: Ints, positions: RowNumbers) -> RequestColumns:
    taken = {name: None if column is None else column[..., positions] for name, column in columns.items()}
    return {"broker": brokers, **taken}


def brokers_of(said: list[RequestColumns]) -> list[int]:
    return sorted({broker for each in said for broker in np.unique(each["broker"]).tolist()})


def by_broker(additions: list[RequestColumns], registered: dict[int, Broker]) -> Iterable[tuple[int, RequestColumns]]:
    """What is said to each registered broker, by id: the newest word on each partition, in table order."""
    if not additions:
        return
    said = newest(additions)
    brokers = said["broker"]
    if not len(brokers):
        return
    for begin, end in itertools.pairwise(bounds_of(brokers)):
        broker = int(brokers[begin])
        if broker in registered:
            yield broker, picked(said, slice(begin, end))


def newest(additions: list[RequestColumns]) -> RequestColumns:
    """The newest word on each partition to each broker, by broker and then in table order. A flag stays once it was
    set."""
    said = additions[0]
    if len(additions) > 1:
        said = _joined(additions)
        key = said["broker"].astype(np.int64) << 40 | said["at"]
        last = last_of(key)
        if len(last) < len(key):
            _, mentioned = np.unique(key, return_inverse=True)
            ever = np.zeros(len(last), np.bool_)
            np.logical_or.at(ever, mentioned, said["flag"])
            said = picked(said, last) | {"flag": ever}
    order = order_of(said["broker"].astype(np.int64) << 32 | said["topic"], said["partition"])
    return said if order is None else picked(said, order)


def bounds_of(brokers: Ints) -> list[int]:
    """Where each broker's rows begin, and the end of all; more often where they do not fit one request."""
    bounds = [0, *(np.flatnonzero(brokers[1:] != brokers[:-1]) + 1).tolist(), len(brokers)]
    parts = [part.start for begin, end in itertools.pairwise(bounds) for part in parts_of(begin, end)]
    return [*parts, len(brokers)]


def registered_only(brokers: Ints, positions: RowNumbers, registered: Iterable[int]) -> tuple[Ints, RowNumbers]:
    """Pairs without those of brokers that are not registered."""
    strangers = set(different(brokers)).difference(registered)
    if not strangers:
        return brokers, positions
    known = ~BrokerSet(strangers)[brokers]
    return brokers[known], positions[known]


def different(brokers: Ints) -> list[int]:
    """The ids that occur, ascending, NO_BROKER left out."""
    top = int(brokers.max(initial=0))
    if top >= _DENSE_ID_MAX or int(brokers.min(initial=0)) < NO_BROKER:
        found: list[int] = np.unique(brokers[brokers != NO_BROKER]).tolist()
        return found
    # NO_BROKER (-1) falls on the last entry.
    occurs = np.zeros(top + 2, np.bool_)
    occurs[brokers] = True
    found = np.flatnonzero(occurs[:-1]).tolist()
    return found


def parts_of(begin: int, end: int) -> Iterable[slice]:
    """The rows `begin` to `end` in parts that fit one request each; one part even if there are none."""
    for first in range(begin, max(end, begin + 1), PARTITIONS_OF_A_REQUEST_MAX):
        yield slice(first, min(first + PARTITIONS_OF_A_REQUEST_MAX, end))


def picked(said: RequestColumns, which: Any) -> RequestColumns:
    return {name: None if column is None else column[..., which] for name, column in said.items()}


def _joined(additions: list[RequestColumns]) -> RequestColumns:
    """Additions one behind the other; narrower lists are filled up."""
    columns: RequestColumns = {}
    for name in additions[0]:
        values = [each[name] for each in additions]
        if all(value is None for value in values):
            columns[name] = None
            continue
        if name in _LISTS:
            width = max(len(value) for value in values if value is not None)
            values = [
                np.full((width, len(each["at"])), NO_BROKER, np.int32)
                if value is None
                else tall(value, width, NO_BROKER)
                for value, each in zip(values, additions, strict=True)
            ]
        columns[name] = np.concatenate(values, axis=-1)
    return columns


_LISTS: Final = frozenset({"isr", "replicas", "adding", "removing"})


def ascends(at: RowNumbers) -> bool:
    """Whether each row is mentioned once, and in the order of the rows: as where a change was made in chunks."""
    return bool((at[1:] > at[:-1]).all())


def last_of(at: RowNumbers) -> RowNumbers:
    """The positions of the last mention of each row, in the order of the rows."""
    _, from_behind = np.unique(at[::-1], return_index=True)
    return len(at) - 1 - from_behind


def join(parts: list[Rows]) -> Rows:
    """Rows one behind the other; the slots of narrower ones are filled up."""
    if len(parts) == 1:
        return parts[0]
    width = max(len(part.replicas) for part in parts)
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(Rows):
        values = [getattr(part, field.name) for part in parts]
        if values[0].ndim == 2:
            empty = NO_BROKER if field.name == "replicas" else 0
            values = [tall(value, width, empty) for value in values]
        columns[field.name] = np.concatenate(values, axis=-1)
    return Rows(**columns)


def tall(column: Any, width: int, empty: int = 0) -> Any:
    missing = width - len(column)
    return np.pad(column, ((0, missing), (0, 0)), constant_values=empty) if missing else column


def order_of(topic: Any, partition: Ints) -> RowNumbers | None:
    """The order by topic and partition; None if they stand in it already."""
    step = np.diff(topic)
    if (step > 0).all() or ((step >= 0).all() and (np.diff(partition)[step == 0] > 0).all()):
        return None
    return np.lexsort((partition, topic))


def listed(which: Bools, rows: Rows) -> Ints | None:
    return members(which, rows.replicas) if which.any() else None
