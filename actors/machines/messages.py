"""What the controller asks of its machines, and what they answer."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from kactl.errors import StoreError
from kactl.machines.election import Election
from kactl.model import PartitionState, ReplicaState
from kactl.state.change import Refusal
from kactl.state.rows import Bools, Bytes, RowNumbers, Rows

from ..preemption import NEVER, Preemption


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Move the partitions in some rows. `election` is needed to bring those ONLINE that are not NEW.

    Attributes:
        wanted: which of the rows still want it when their turn comes, bool[n]; the others are left as they are. None:
            all do.
        preemption: if it is due between two chunks, the rest is left for another call.
    """

    at: RowNumbers
    target: PartitionState
    election: Election | None = None
    wanted: Callable[[Rows], Bools] | None = None
    preemption: Preemption = NEVER

    def rest(self, done: int) -> "Move":
        """The same for the rows behind the first `done`."""
        return dataclasses.replace(self, at=self.at[done:])


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """What became of a Move, row by row.

    Attributes:
        at: the rows whose turn came: all, or the first of them if there was a pause.
        refusal: uint8[n] of Refusal; NONE where the move was made.
        elections: bool[n], an election was held for the row, or should have been.
        error: what failed the whole call, if anything did; `refusal` is STORE_FAILED then.
    """

    at: RowNumbers
    refusal: Bytes
    elections: Bools
    error: StoreError | None = None

    @property
    def elected(self) -> Bools:
        """bool[n]: an election was held and a leader was found."""
        found: Bools = self.elections & (self.refusal == Refusal.NONE)
        return found

    @classmethod
    def of(cls, parts: Sequence["Moved"]) -> "Moved":
        """One behind the other; the first error is that of all."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([np.zeros(0, np.intp), *(each.at for each in parts)]),
            np.concatenate([np.zeros(0, np.uint8), *(each.refusal for each in parts)]),
            np.concatenate([np.zeros(0, np.bool_), *(each.elections for each in parts)]),
            next((each.error for each in parts if each.error is not None), None),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class MoveReplicas:
    """Move replicas of the partitions in some rows.

    Attributes:
        brokers: whose; None: those of all assigned brokers.
        which: bool[W, n], in place of `brokers`: just these, by slot. Slots that were added since are passed over.
        preemption: if it is due between two chunks, the rest is left for another call. The result is the number of rows
            that are done.
        whole: send one request of each kind to each broker after the last chunk, not one for each portion.
    """

    at: RowNumbers
    target: ReplicaState
    brokers: frozenset[int] | None = None
    which: Bools | None = None
    preemption: Preemption = NEVER
    whole: bool = False

    def rest(self, done: int) -> "MoveReplicas":
        """The same for the rows behind the first `done`."""
        return self.part(slice(done, None))

    def part(self, part: slice | Bools) -> "MoveReplicas":
        """The same for some of the rows."""
        return dataclasses.replace(self, at=self.at[part], which=None if self.which is None else self.which[:, part])
