"""What the controller asks of its machines, and what they answer."""

import dataclasses

from kactl.election import Election
from kactl.errors import StoreError
from kactl.model import PartitionState, ReplicaState
from kactl.rows import Bools, Bytes, Refusal, RowNumbers


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Move the partitions in some rows. `election` is needed to bring those ONLINE that are not NEW."""

    at: RowNumbers
    target: PartitionState
    election: Election | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """What became of a Move, row by row.

    Attributes:
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


@dataclasses.dataclass(frozen=True, slots=True)
class MoveReplicas:
    """Move replicas of the partitions in some rows.

    Attributes:
        brokers: whose; None: those of all assigned brokers.
        which: bool[W, n], in place of `brokers`: just these, by slot. Slots that were added since are passed over.
    """

    at: RowNumbers
    target: ReplicaState
    brokers: frozenset[int] | None = None
    which: Bools | None = None
