"""Classes of partitions that behave equally in every failure, as columns.

A class has one column per property that determines its behaviour. Its members are the replicas: those in sync first,
then KRaft's eligible leader replicas, which may lead without loss, then the others; each group in assignment order.
Kafka elects the first live member, and its position shows whether records are lost.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kactl.decide.state.rows import Bools, Ints, RowNumbers

Slots = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]

NO_SLOT: Final = np.int16(-1)
FREE: Final = np.int32(-1)
_IN_SYNC, _ELIGIBLE, _OTHER, _FREE = range(4)


@dataclasses.dataclass(frozen=True, slots=True)
class Classes:
    """n classes of at most W members.

    Attributes:
        members: int32[W, n], positions of brokers, in the order of the module docstring; FREE in unused slots.
        in_sync: int16[n], how many of the first members are in sync.
        eligible: int16[n], how many of the first may lead without loss.
        electable: int16[n], how many of the first may be elected: all members if unclean election is allowed.
        leader: int16[n], the slot of the leader; NO_SLOT for none.
        min_isr: int32[n].
        partitions: float64[n], number of partitions; floats because their sums are fast.
        weight: float64[n], sum of what the partitions add to the load of their leader.
    """

    members: Ints
    in_sync: Slots
    eligible: Slots
    electable: Slots
    leader: Slots
    min_isr: Ints
    partitions: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.in_sync)

    def take(self, which: RowNumbers) -> "Classes":
        """Return the classes at the given indices."""
        return Classes(*(getattr(self, field.name).take(which, axis=-1) for field in dataclasses.fields(Classes)))

    def merged(self) -> "Classes":
        """Return the classes with equal ones merged."""
        columns = [*self.members, self.in_sync, self.eligible, self.electable, self.leader, self.min_isr]
        first, group = _groups(columns)
        merged = self.take(first)
        partitions, weight = (_summed(each, group, len(first)) for each in (self.partitions, self.weight))
        return dataclasses.replace(merged, partitions=partitions, weight=weight)


def _summed(values: Floats, group: RowNumbers, groups: int) -> Floats:
    sums: Any = np.bincount(group, values, groups)
    return sums  # type: ignore[no-any-return]


def _groups(columns: Sequence[Any]) -> tuple[RowNumbers, RowNumbers]:
    """Return the first row of each group of equal rows, and the group of each row."""
    order = np.lexsort(columns)
    begins = np.zeros(len(order), np.bool_)
    begins[:1] = True
    for column in columns:
        values = column[order]
        begins[1:] |= values[1:] != values[:-1]
    group = np.empty(len(order), np.intp)
    group[order] = np.cumsum(begins) - 1
    return order[begins], group


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionColumns:
    """n partitions, or groups of equal ones, with at most W replicas.

    Attributes:
        replicas: int32[W, n], broker ids in assignment order; FREE in unused slots.
        in_sync: bool[W, n]; `eligible`: bool[W, n], KRaft's eligible leader replicas.
        leader: int32[n], a broker id; negative for none.
        unclean: bool[n], whether unclean election is allowed.
        min_isr: int32[n].
        partitions: float64[n], number of partitions.
        weight: float64[n], sum of what the partitions add to the load of their leader.
    """

    replicas: Ints
    in_sync: Bools
    eligible: Bools
    leader: Ints
    unclean: Bools
    min_isr: Ints
    partitions: Floats
    weight: Floats


def classes_of(columns: PartitionColumns, brokers: Sequence[int], away: Collection[int]) -> tuple[Classes, float]:
    """Return the class of each row.

    A leader is in sync even if the ISR does not contain it. A member of the ISR that is not assigned is ignored,
    because it can never lead. If there is no leader although a live replica could lead, the snapshot does not contain
    the cause, for example a failed directory; such replicas are considered unable to lead.

    Args:
        brokers: all brokers in the columns, ascending.
        away: brokers that are not alive.

    Returns:
        The classes, and the number of partitions without a leader although a replica could lead.
    """
    replicas, leader = columns.replicas, columns.leader
    assigned = replicas != FREE
    in_sync = (columns.in_sync | (replicas == leader)) & assigned
    eligible = columns.eligible & assigned & ~in_sync
    could = (in_sync | eligible) & ~np.isin(replicas, list(away))
    stuck = (leader < 0) & could.any(axis=0)
    assigned &= ~((in_sync | eligible) & stuck)
    rank = np.where(in_sync, _IN_SYNC, np.where(eligible, _ELIGIBLE, _OTHER))
    rank = np.where(assigned, rank, _FREE).astype(np.int8)
    members = _ordered(np.where(assigned, replicas, FREE), rank)
    last_sync = (rank == _IN_SYNC).sum(axis=0, dtype=np.int16)
    last_eligible = last_sync + (rank == _ELIGIBLE).sum(axis=0, dtype=np.int16)
    last = (rank != _FREE).sum(axis=0, dtype=np.int16)
    classes = Classes(
        members=_positions(members, brokers),
        in_sync=last_sync,
        eligible=last_eligible,
        electable=np.where(columns.unclean, last, last_eligible),
        leader=_slot_of(members, leader),
        min_isr=columns.min_isr,
        partitions=columns.partitions,
        weight=columns.weight,
    )
    return classes, float(columns.partitions[stuck].sum())


def _ordered(members: Ints, rank: Any) -> Ints:
    """Sort members by rank; the sort is stable."""
    if not (rank[1:] < rank[:-1]).any():
        return members
    return np.take_along_axis(members, rank.argsort(axis=0, kind="stable"), axis=0)


def _positions(members: Ints, brokers: Sequence[int]) -> Ints:
    known = np.asarray(brokers, np.int32)
    positions = np.searchsorted(known, members).astype(np.int32)
    return np.where(members == FREE, FREE, positions)


def _slot_of(members: Ints, leader: Ints) -> Slots:
    slots = np.full(members.shape[1], NO_SLOT, np.int16)
    for slot, brokers in enumerate(members):
        slots[(brokers == leader) & (brokers != FREE)] = slot
    return slots
