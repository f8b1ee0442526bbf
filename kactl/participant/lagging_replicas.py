"""Detection of ISR members that have not followed, or not caught up, for too long.

A follower that receives a new leader needs a moment to follow it, and a follower that hangs may recover. No member is
therefore removed before a time limit, which begins with its last report. A new leader epoch restarts the time of every
member. If a broker has failed,
the controller removes it from the ISRs much sooner.

Source: Partition.maybeShrinkIsr.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from kactl.decide.state.rows import Bools, Ints, RowNumbers, some
from kactl.model import NO_BROKER, TopicPartition
from kactl.runtime.clock import Clock
from kactl.stores.base import Names

from .followers import Floats, Followers
from .hosted_replicas import HostedReplicas
from .isr_update import InSync
from .leader_positions import NEVER

# Kafka's default (replica.lag.time.max.ms).
LAG_MS: Final = 30_000
# Checks of the members within that time, as in Kafka.
CHECKS_PER_LAG: Final = 2


class LaggingReplicas:
    """The ISR members that lagged at the last check, and the time since which each has lagged."""

    def __init__(
        self,
        broker: int,
        hosted: HostedReplicas,
        *,
        clock: Clock,
        followers: Followers,
        in_sync: InSync | None,
        lag_ms: float,
    ) -> None:
        self._broker = broker
        self._hosted = hosted
        self._clock = clock
        self._followers = followers
        self._in_sync = in_sync
        self._lag_ms = lag_ms
        # By partition, leader epoch and member.
        self._since: dict[tuple[TopicPartition, int, int], float] = {}

    def check(self) -> None:
        """Check which members follow now."""
        rows = self._hosted.led_replicated()
        names, isr = self._hosted.index.names(rows), self._hosted.isr[:, rows]
        epochs = self._hosted.leader_epoch[rows]
        confirmed_ms = np.full(isr.shape, NEVER)
        lagging = self._lagging(names, isr, epochs, confirmed_ms)
        partitions = list(names) if lagging.any() else []
        now_ms, before = self._clock.monotonic_ms(), self._since
        self._since = {}
        for slot, position in np.argwhere(lagging).tolist():
            key = (partitions[position], int(epochs[position]), int(isr[slot, position]))
            last_ms = float(confirmed_ms[slot, position])
            self._since[key] = before.get(key, now_ms if last_ms == NEVER else last_ms)

    def expired(self) -> Mapping[TopicPartition, set[int]]:
        """Returns the members that have lagged for too long and still lag, by partition."""
        members: dict[TopicPartition, set[int]] = {}
        if not self._expired():
            return members
        # A member may have left the ISR since then, or follow again.
        self.check()
        for name, _, member in self._expired():
            members.setdefault(name, set()).add(member)
        return members

    def _expired(self) -> list[tuple[TopicPartition, int, int]]:
        limit_ms = self._clock.monotonic_ms() - self._lag_ms
        return [key for key, since_ms in self._since.items() if since_ms <= limit_ms]

    def _lagging(self, names: Names, isr: Ints, epochs: Ints, confirmed_ms: Floats) -> Bools:
        """Returns bool[K, n]: the members of int32[K, n] `isr` that do not follow, or that have not caught up according
        to the application.

        Args:
            confirmed_ms: float64[K, n]; receives the times of the last reports of members whose reports are missing.
        """
        others = (isr != NO_BROKER) & (isr != self._broker)
        lagging = np.zeros(isr.shape, np.bool_)
        for member in np.unique(isr[others]).tolist():
            slots = isr == member
            positions: RowNumbers = np.flatnonzero(some(slots))
            led, led_epochs = names.take(some(slots)), epochs[positions]
            following = np.ones(len(names), np.bool_)
            following[positions] = self._followers.follows(member, led, led_epochs)
            last_ms = np.full(len(names), NEVER)
            last_ms[positions] = self._followers.confirmed_ms(member, led, led_epochs)
            is_lagging = slots & ~following
            lagging |= is_lagging
            confirmed_ms[is_lagging] = np.broadcast_to(last_ms, isr.shape)[is_lagging]
        if self._in_sync is not None:
            by_position = list(names)
            for slot, position in np.argwhere(others & ~lagging).tolist():
                lagging[slot, position] = not self._in_sync(by_position[position], int(isr[slot, position]))
        return lagging
