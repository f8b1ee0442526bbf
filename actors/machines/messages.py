"""Requests of the controller to its machine actors, and their results."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from kactl.decide.machines.election import Election
from kactl.decide.machines.partition import Wanted
from kactl.decide.state.rows import Bools, Bytes, RowNumbers
from kactl.model import PartitionState, ReplicaState
from kactl.model.errors import StoreError


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Move the partitions in some rows. `election` is needed for a move to ONLINE of rows that are not NEW.

    Attributes:
        wanted: selects the rows that still need the move when their chunk is planned; the others are left as they are.
            None: all of them.
        preemptible: whether the rest is left for another call if a small event is due between two chunks.
    """

    rows: RowNumbers
    target: PartitionState
    election: Election | None = None
    wanted: Wanted | None = None
    preemptible: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of a Move, by row.

    Attributes:
        rows: the rows that were handled: all, or the first of them if a small event preempted the move.
        refusal: uint8[n] of Refusal; NONE where the move was made.
        elected: bool[n], rows that were ONLINE or OFFLINE and have a leader by an election.
        error: the error that ended the call; `refusal` is STORE_FAILED for the rows that were not moved before.
    """

    rows: RowNumbers
    refusal: Bytes
    elected: Bools
    error: StoreError | None = None

    @classmethod
    def join(cls, parts: Sequence["MoveResult"]) -> "MoveResult":
        """Returns the concatenation of one or more results, with the first error."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.refusal for part in parts]),
            np.concatenate([part.elected for part in parts]),
            next((part.error for part in parts if part.error is not None), None),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class MoveReplicas:
    """Move replicas of the partitions in some rows.

    Attributes:
        brokers: the brokers of the replicas; None: all assigned replicas.
        which: bool[W, n], the replicas by slot, in place of `brokers`. Slots that were added since are not moved.
        preemptible: whether the rest is left for another call if a small event is due between two chunks. The result is
            the number of rows that are done.
        whole: send one request of each kind to each broker after the last chunk, not one per portion.
    """

    rows: RowNumbers
    target: ReplicaState
    brokers: frozenset[int] | None = None
    which: Bools | None = None
    preemptible: bool = False
    whole: bool = False

    def part(self, part: slice | Bools) -> "MoveReplicas":
        """Returns the same move of some of the rows."""
        which = None if self.which is None else self.which[:, part]
        return dataclasses.replace(self, rows=self.rows[part], which=which)
