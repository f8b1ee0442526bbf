"""Partitions as columns: the values that elections and state machines compute with, and the operations on them.

A `Rows` is a gathered copy of some rows of the table: n partitions, W slots for replicas. A column of one value per
partition has the shape `[n]`; a column of one value per replica has the shape `[W, n]` ("slot-major": all first
replicas, then all second ones, and so on). Assigned replicas fill the first slots in assignment order. The slots after
them hold replicas that are in sync, or still have a state, but are not assigned. Free slots hold NO_BROKER.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, ReplicaState

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
RowNumbers = npt.NDArray[np.intp]
Transitions = npt.NDArray[np.bool_]

# Broker ids above this are looked up by binary search: a lookup table by id would be larger than the cluster justifies.
_DENSE_ID_MAX: Final = 1 << 16


class BrokerSet:
    """Set of broker ids with a vectorised membership test: `live[p.replicas]` returns bool of the same shape.

    NO_BROKER and smaller numbers are never members.
    """

    def __init__(self, brokers: Iterable[int] = ()) -> None:
        self.ids = frozenset(broker for broker in brokers if broker > NO_BROKER)
        members = np.fromiter(sorted(self.ids), np.int64, len(self.ids))
        top = int(members[-1]) if len(members) else 0
        self._dense: Bools | None = None
        self._members = members
        if top <= _DENSE_ID_MAX:
            # One entry more than the highest id: NO_BROKER (-1) indexes the last entry, which is never set.
            self._dense = np.zeros(top + 2, np.bool_)
            self._dense[members] = True

    def __getitem__(self, brokers: Ints) -> Bools:
        if self._dense is None:
            return np.isin(brokers, self._members)
        last = len(self._dense) - 1
        if brokers.max(initial=NO_BROKER) > last or brokers.min(initial=NO_BROKER) < NO_BROKER:
            # Ids above the highest member, and numbers below NO_BROKER, are clipped to the last entry.
            brokers = np.clip(brokers, NO_BROKER, last)
        # Index -1 wraps around to the last entry.
        return self._dense.take(brokers)

    def __contains__(self, broker: int) -> bool:
        return broker in self.ids

    def __len__(self) -> int:
        return len(self.ids)


@dataclasses.dataclass(frozen=True, slots=True)
class LiveBrokers:
    """Brokers of the cluster, as elections and state machines need them.

    Attributes:
        live: brokers that are registered and not shutting down. They may stay leaders, and in ISRs.
        registered: all registered brokers, including those that are shutting down. They still receive requests.
        recovery: whether an uncleanly elected leader is instructed to recover (protocol level 3.2 and above).
        unfenced: those of `live` that can be reached; None if all can.
        spare: drained brokers that can be reached; None if there are none. They lead only what no live broker can lead
            without a loss of records.
    """

    live: BrokerSet
    registered: BrokerSet
    recovery: bool = True
    unfenced: BrokerSet | None = None
    spare: BrokerSet | None = None

    @property
    def electable(self) -> BrokerSet:
        """The brokers that may become a leader, or join an ISR."""
        return self.live if self.unfenced is None else self.unfenced


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Copy of n rows of the partition table. The module docstring defines the shapes."""

    index: RowNumbers  # row numbers in the table
    topic: Ints
    partition: Ints
    replicas: Ints  # [W, n]
    assigned: Bools  # [W, n]
    in_sync: Bools  # [W, n]
    adding: Bools  # [W, n]
    removing: Bools  # [W, n]
    dir_offline: Bools  # [W, n] the broker reported that the replica's log directory failed
    replica_state: Bytes  # [W, n]
    state: Bytes
    leader: Ints
    leader_epoch: Ints  # NO_EPOCH where there is no leadership information
    partition_epoch: Ints
    controller_epoch: Ints
    recovering: Bools
    queued: Bools  # the topic is queued for deletion

    def __len__(self) -> int:
        return len(self.index)

    @property
    def has_leadership(self) -> Bools:
        has_leadership: Bools = self.leader_epoch != NO_EPOCH
        return has_leadership

    @property
    def stopped(self) -> Bools:
        """Returns bool[W, n]: replicas that are not assigned and have no state. Their brokers have deleted the log."""
        stopped: Bools = ~self.assigned & (self.replica_state == ReplicaState.ABSENT)
        return stopped

    def take(self, which: Bools | RowNumbers) -> "Rows":
        """Returns the rows selected by a mask or by positions; `self` if a mask selects all rows."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)  # once, instead of once for each column
        return Rows(**{name: getattr(self, name).take(which, axis=-1) for name in _ROWS_FIELDS})

    def replace(self, **columns: Any) -> "Rows":
        return dataclasses.replace(self, **columns)

    def online(self, live: BrokerSet) -> Bools:
        """Returns bool[W, n]: the broker is in `live` and the replica's log directory has not failed.

        Replicas that are not assigned are included.
        """
        return live[self.replicas] & ~self.dir_offline


_ROWS_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Rows))


# -- operations on columns ---------------------------------------------------------------------------------------------


def first(eligible: Bools, brokers: Ints) -> Ints:
    """Returns, for each partition, the first eligible broker in slot order; NO_LEADER if no broker is eligible.

    Args:
        eligible: bool[W, n].
        brokers: int32[W, n].
    """
    leaders = np.full(brokers.shape[1], NO_LEADER, np.int32)
    for slot in range(brokers.shape[0] - 1, -1, -1):
        np.copyto(leaders, brokers[slot], where=eligible[slot])
    return leaders


def choose(*cases: Any) -> Any:
    """Returns, for each row, the value of the first condition that holds.

    Called as `choose(condition, value, condition, value, ..., otherwise)`. Values are columns or scalars. Conditions
    are bool[n] and are broadcast over slots.
    """
    *pairs, chosen = cases
    for index in range(len(pairs) - 2, -1, -2):
        chosen = np.where(pairs[index], pairs[index + 1], chosen)
    return chosen


def holds(rows: Rows, broker: int) -> Bools:
    """Returns bool[W, n]: the slots that hold `broker`."""
    slots: Bools = rows.replicas == broker
    return slots


def some(column: Bools) -> Bools:
    """Returns bool[n]: whether bool[W, n] `column` is True in any slot of the partition."""
    result: Bools = np.logical_or.reduce(column, axis=0)
    return result


def check(before: Bytes, target: int, legal: Transitions) -> Bools:
    """Returns bool of the shape of `before`: whether each state may change to `target`.

    `legal[before, target]` is the transition table.
    """
    allowed: Bools = legal[:, target].take(before)
    return allowed


def members(which: Bools, brokers: Ints) -> Ints:
    """Returns int32[W, n]: the brokers selected by `which`, in their slots; NO_BROKER in all other slots."""
    return np.where(which, brokers, np.int32(NO_BROKER))


def preferred_imbalance(rows: Rows) -> Bools:
    """Returns bool[n]: partitions that count as not led by their preferred replica, the first assigned one.

    As in Kafka, a partition with a preferred replica that is being added counts as imbalanced exactly if it is in
    sync, even if it leads. A partition without leadership, without replicas, or of a topic that is queued for deletion
    never counts.

    Source: ControllerContext.hasPreferredLeader.
    """
    if len(rows.assigned) and rows.assigned[0].all() and not rows.adding[0].any():
        # The usual case: the first slot holds the preferred replica of every partition.
        led_elsewhere: Bools = rows.has_leadership & ~rows.queued & (rows.replicas[0] != rows.leader)
        return led_elsewhere
    head = preferred_slot(rows.assigned)
    being_added = some(head & rows.adding)
    settled = choose(being_added, ~some(head & rows.in_sync), some(head & (rows.replicas == rows.leader)))
    counts: Bools = rows.has_leadership & ~rows.queued & some(rows.assigned) & ~settled
    return counts


def preferred_slot(assigned: Bools) -> Bools:
    """Returns bool[W, n]: the first assigned slot of each partition; no slot if no replica is assigned."""
    head = np.zeros(assigned.shape, np.bool_)
    if not len(assigned):
        return head
    if assigned[0].all():
        # The usual case: only a removed replica leaves a gap in front of assigned ones.
        head[0] = True
        return head
    missing = np.ones(assigned.shape[1], np.bool_)
    for slot, is_assigned in enumerate(assigned):
        head[slot] = is_assigned & missing
        missing &= ~is_assigned
    return head


# -- sets of row numbers -----------------------------------------------------------------------------------------------
# NumPy's set operations sort or hash their input, which takes tens of milliseconds for a million rows in the middle of
# an event. Row numbers are small and dense, so an array of marks does it in one millisecond.


def common(rows: RowNumbers, others: RowNumbers) -> RowNumbers:
    """Returns the row numbers of `rows` that are also in `others`, in the order of `rows`."""
    return rows[_among(rows, others)]


def without(rows: RowNumbers, others: RowNumbers) -> RowNumbers:
    """Returns the row numbers of `rows` that are not in `others`, in the order of `rows`."""
    return rows[~_among(rows, others)] if len(others) else rows


def _among(rows: RowNumbers, others: RowNumbers) -> Bools:
    """Returns bool of the length of `rows`. Neither argument may contain NO_ROW."""
    marks = np.zeros(1 + max(rows.max(initial=0), others.max(initial=0)), np.bool_)
    marks[others] = True
    result: Bools = marks[rows]
    return result
