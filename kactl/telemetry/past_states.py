"""Earlier states of the cluster, as the state-change log returns them."""

from typing import NamedTuple, Protocol

from kactl.decide.state.cluster import Cluster


class Period(NamedTuple):
    """A time from which states are known, by the wall clock in ms; both ends are included."""

    begin_ms: int
    end_ms: int


class NotCovered(NamedTuple):
    """The state at a time is not known.

    Attributes:
        reason: as a sentence without a full stop.
        covered: the periods of which states are known, oldest first.
    """

    reason: str
    covered: tuple[Period, ...]


class PastStates(Protocol):
    """Source of earlier states."""

    async def at(self, time_ms: int) -> Cluster | NotCovered:
        """Returns the partitions of the cluster as they were at a time; the result must not be changed.

        States of replicas, reassignments, brokers and settings are not part of it.
        """
