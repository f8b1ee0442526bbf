"""Reports of followers to the leaders of their partitions, in place of fetch requests.

A follower reports changes as they happen, and the number of its last report at intervals. A leader that does not have
the report with that number requests everything.

    follower ── changes since generation 4: generation 5 ──▶ leader
             ── generation 5, no changes ──────────────────▶        at intervals
             ◀────────────── last generation that arrived ──        after a gap, and when a leadership begins
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from kactl.decide.state.records import Names
from kactl.decide.state.rows import Bools, Ints

Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class FollowerReports:
    """What a broker follows from one leader: the changes since an earlier report, or everything.

    Attributes:
        follower, broker_epoch: the broker, and the epoch of its registration.
        generation: number of the follower's state after this report, for this leader and registration; from 1.
        base: generation to which the changes apply: `generation` if nothing changed; 0 if the rows are everything.
        names: n partitions, none twice.
        leader_epoch: int32[n], under which each is followed; NO_EPOCH if it is not followed any more.
        position: int64[n], up to which the follower has copied; -1 if it does not know.
        caught_up: bool[n].
    """

    follower: int
    broker_epoch: int
    leader: int
    generation: int
    base: int
    names: Names
    leader_epoch: Ints
    position: Longs
    caught_up: Bools

    @property
    def to(self) -> int:
        """The broker that receives the message."""
        return self.leader


@dataclasses.dataclass(frozen=True, slots=True)
class FollowerReportsRequested:
    """Request of a leader to a follower to report again.

    Attributes:
        broker_epoch: registration of the follower that the leader knows; NO_EPOCH if none.
        generation: last one that arrived of that registration; 0 if none. The follower reports everything if it has
            another one.
    """

    leader: int
    follower: int
    broker_epoch: int
    generation: int

    @property
    def to(self) -> int:
        """The broker that receives the message."""
        return self.follower


# A message from one participant to another. It may be lost.
PeerMessage = FollowerReports | FollowerReportsRequested
