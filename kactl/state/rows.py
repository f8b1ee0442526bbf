"""Partitions as columns: the values that elections and machines reason with, and the few words they reason in.

A `Rows` is a gathered copy of some rows of the table: n partitions, W slots for replicas. One value per partition is
shaped `[n]`, one per replica `[W, n]` ("slot-major": all first replicas, then all second ones ...). Assigned replicas
fill the first slots in assignment order; behind them come members that are in sync, or still have a state, although
the assignment does not name them. Free slots hold NO_BROKER.
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

# Above this, ids are looked up by search: a table by id would be larger than the cluster is worth.
_DENSE_ID_MAX: Final = 1 << 16


class BrokerSet:
    """A set of broker ids that answers for whole columns: `live[p.replicas]` is bool of the same shape.

    NO_BROKER is never in it, nor is anything below.
    """

    def __init__(self, brokers: Iterable[int] = ()) -> None:
        self.ids = frozenset(broker for broker in brokers if broker > NO_BROKER)
        members = np.fromiter(sorted(self.ids), np.int64, len(self.ids))
        top = int(members[-1]) if len(members) else 0
        self._dense: Bools | None = None
        self._members = members
        if top <= _DENSE_ID_MAX:
            # One more than the highest id, so that NO_BROKER (-1) falls on a last entry that is never set.
            self._dense = np.zeros(top + 2, np.bool_)
            self._dense[members] = True

    def __getitem__(self, brokers: Ints) -> Bools:
        if self._dense is None:
            return np.isin(brokers, self._members)
        last = len(self._dense) - 1
        if brokers.max(initial=NO_BROKER) > last or brokers.min(initial=NO_BROKER) < NO_BROKER:
            # Ids above the highest member land on the last entry, and so does what is no id.
            brokers = np.clip(brokers, NO_BROKER, last)
        # Reading -1 wraps to the last entry.
        return self._dense.take(brokers)

    def __contains__(self, broker: int) -> bool:
        return broker in self.ids

    def __len__(self) -> int:
        return len(self.ids)


@dataclasses.dataclass(frozen=True, slots=True)
class LiveBrokers:
    """What a choice depends on besides the rows.

    Attributes:
        live: brokers that are registered and not shutting down; they may lead.
        registered: those that are shutting down as well; they are still told.
        recovery: whether a leader that was elected uncleanly is told to recover (protocol level 3.2 and above).
    """

    live: BrokerSet
    registered: BrokerSet
    recovery: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Some partitions, by value. See the module for shapes."""

    index: RowNumbers  # row numbers in the table
    topic: Ints
    partition: Ints
    replicas: Ints  # [W, n]
    assigned: Bools  # [W, n]
    in_sync: Bools  # [W, n]
    adding: Bools  # [W, n]
    removing: Bools  # [W, n]
    dir_offline: Bools  # [W, n] the broker said that the replica's directory failed
    replica_state: Bytes  # [W, n]
    state: Bytes
    leader: Ints
    leader_epoch: Ints  # NO_EPOCH where there is no leadership information
    partition_epoch: Ints
    controller_epoch: Ints
    recovering: Bools
    queued: Bools  # its topic waits for deletion

    def __len__(self) -> int:
        return len(self.index)

    @property
    def has_leadership(self) -> Bools:
        known: Bools = self.leader_epoch != NO_EPOCH
        return known

    @property
    def stopped(self) -> Bools:
        """bool[W, n]: replicas that are neither assigned nor have a state. Their brokers have deleted the log."""
        stopped: Bools = ~self.assigned & (self.replica_state == ReplicaState.ABSENT)
        return stopped

    def take(self, which: Bools | RowNumbers) -> "Rows":
        """The rows that `which` names, by mask or by position; these very rows if a mask names all."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)  # once, where each column would look for itself
        return Rows(**{name: getattr(self, name).take(which, axis=-1) for name in _ROWS_FIELDS})

    def replace(self, **columns: Any) -> "Rows":
        return dataclasses.replace(self, **columns)

    def online(self, live: BrokerSet) -> Bools:
        """[W, n]: the broker is in `live` and the replica's directory has not failed. Assigned or not."""
        return live[self.replicas] & ~self.dir_offline


_ROWS_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Rows))


# -- the vocabulary ----------------------------------------------------------------------------------------------------


def first(eligible: Bools, brokers: Ints) -> Ints:
    """For each partition the first eligible broker in slot order; NO_LEADER where there is none.

    Args:
        eligible: bool[W, n].
        brokers: int32[W, n].
    """
    found = np.full(brokers.shape[1], NO_LEADER, np.int32)
    for slot in range(brokers.shape[0] - 1, -1, -1):
        np.copyto(found, brokers[slot], where=eligible[slot])
    return found


def choose(*cases: Any) -> Any:
    """`choose(condition, value, condition, value, ..., otherwise)`: for each row the value of the first condition
    that holds. Values are columns or scalars; conditions are bool[n] and spread over slots."""
    *pairs, chosen = cases
    for at in range(len(pairs) - 2, -1, -2):
        chosen = np.where(pairs[at], pairs[at + 1], chosen)
    return chosen


def holds(rows: Rows, broker: int) -> Bools:
    """bool[W, n]: the slots in which `broker` stands."""
    here: Bools = rows.replicas == broker
    return here


def some(column: Bools) -> Bools:
    """bool[n]: whether a slot of the partition holds."""
    found: Bools = np.logical_or.reduce(column, axis=0)
    return found


def check(before: Bytes, target: int, legal: Transitions) -> Bools:
    """bool of `before`'s shape: which of them may go to `target`. `legal[before, target]` is the table of moves."""
    allowed: Bools = legal[:, target].take(before)
    return allowed


def members(which: Bools, brokers: Ints) -> Ints:
    """int32[W, n]: the brokers for which `which` holds, in their slots; NO_BROKER in the others."""
    return np.where(which, brokers, np.int32(NO_BROKER))


def preferred_imbalance(rows: Rows) -> Bools:
    """bool[n]: partitions that count as not led by their preferred replica, which is the first that is assigned.

    The preferred replica of a partition that is being reassigned does not count before it is in sync, and once it is
    it counts as imbalanced, even if it leads: as in Kafka. A partition without leadership, without replicas, or of a
    topic that waits for deletion counts nothing.

    Source: ControllerContext.hasPreferredLeader.
    """
    if len(rows.assigned) and rows.assigned[0].all() and not rows.adding[0].any():
        # As good as always: the first slot says all.
        led_elsewhere: Bools = rows.has_leadership & ~rows.queued & (rows.replicas[0] != rows.leader)
        return led_elsewhere
    head = preferred_slot(rows.assigned)
    being_added = some(head & rows.adding)
    settled = choose(being_added, ~some(head & rows.in_sync), some(head & (rows.replicas == rows.leader)))
    counts: Bools = rows.has_leadership & ~rows.queued & some(rows.assigned) & ~settled
    return counts


def preferred_slot(assigned: Bools) -> Bools:
    """bool[W, n]: the first assigned slot of each partition; none where nothing is assigned."""
    head = np.zeros(assigned.shape, np.bool_)
    if not len(assigned):
        return head
    if assigned[0].all():
        # As good as always: only a replica that was taken out leaves a gap before others.
        head[0] = True
        return head
    missing = np.ones(assigned.shape[1], np.bool_)
    for slot, here in enumerate(assigned):
        head[slot] = here & missing
        missing &= ~here
    return head
