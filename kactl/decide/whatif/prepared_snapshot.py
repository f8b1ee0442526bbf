"""Prepared snapshot: an engine over the partitions of a cluster, and the numbers that its answers begin with."""

import dataclasses

from .assumptions import Assumptions
from .engine import Engine


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot with its engine.

    Attributes:
        partitions: partitions that are analysed.
        unknown: partitions that are not analysed because their leader, replicas or ISR are not known.
        at_us: time of the snapshot; None if it is not known.
        defaulted: partitions with an assumed min.insync.replicas.
        notes: limits of the snapshot.
    """

    engine: Engine
    assumed: Assumptions
    source: str
    partitions: int
    unknown: int
    defaulted: int
    at_us: int | None = None
    notes: tuple[str, ...] = ()
