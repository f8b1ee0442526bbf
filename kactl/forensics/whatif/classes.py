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
import pyarrow as pa

from kactl.state.rows import Ints, RowNumbers
from kactl.state.table import in_sync_of

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
        width = len(self.members)
        columns = [*self.members, self.in_sync, self.eligible, self.electable, self.leader, self.min_isr]
        names = [f"key{index}" for index in range(len(columns))]
        keyed = dict(zip(names, columns, strict=True))
        table = pa.table(keyed | {"partitions": self.partitions, "weight": self.weight})
        grouped = table.group_by(names).aggregate([("partitions", "sum"), ("weight", "sum")])
        keys = [grouped[name].to_numpy() for name in names]
        members = np.stack(keys[:width]) if len(grouped) else self.members[:, :0]
        sums = (grouped[f"{name}_sum"].to_numpy() for name in ("partitions", "weight"))
        return Classes(members, *keys[width:], *sums)


def of_table(table: pa.Table, brokers: Sequence[int], away: Collection[int]) -> tuple[Classes, float]:
    """Return the classes of a table with the columns of `partitions.GROUPED`, one per row.

    A leader is in sync even if the ISR does not contain it. A member of the ISR that is not assigned is ignored,
    because it can never lead. If there is no leader although a live replica could lead, the snapshot does not contain
    the cause, for example a failed directory; such replicas are considered unable to lead.

    Args:
        table: `min_isr`, `unclean` and `weight` are filled.
        brokers: all brokers in the table, ascending.
        away: brokers that are not alive.

    Returns:
        The classes, and the number of partitions without a leader although a replica could lead.
    """
    replicas, isr, elr = (padded(table[name]) for name in ("replicas", "isr", "elr"))
    leader = table["leader"].to_numpy()
    partitions = table["partitions"].to_numpy().astype(np.float64)
    assigned = replicas != FREE
    in_sync = in_sync_of(replicas, isr) | ((replicas == leader) & assigned)
    eligible = in_sync_of(replicas, elr) & ~in_sync
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
        electable=np.where(table["unclean"].to_numpy(zero_copy_only=False), last, last_eligible),
        leader=_slot_of(members, leader),
        min_isr=table["min_isr"].to_numpy(),
        partitions=partitions,
        weight=table["weight"].to_numpy(),
    )
    return classes, float(partitions[stuck].sum())


def padded(column: Any) -> Ints:
    """Return the lists of a column as int32[W, n], W >= 1: values from slot 0, then FREE. Null counts as empty."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):  # combining gives chunks where one array cannot hold all, or there are none
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    lengths = whole.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = whole.flatten().to_numpy(zero_copy_only=False)
    slots = np.full((max(1, int(lengths.max(initial=0))), len(whole)), FREE, np.int32)
    row = np.repeat(np.arange(len(whole)), lengths)
    slot = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    slots[slot, row] = values
    return slots


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
