"""Which members of an ISR should leave it: those that have not followed, or caught up, for too long.

A follower that is told of a new leader needs a moment to follow it, and one that hangs may go on. So nobody is dropped
before a time limit, and a new leader epoch gives everybody that time anew. Of a broker that is gone the controller
takes care much sooner.

Source: Partition.maybeShrinkIsr.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from kactl.clock import Clock
from kactl.model import NO_BROKER, TopicPartition
from kactl.state.rows import Bools, Ints, RowNumbers, some
from kactl.stores.base import Names

from .hosted_replicas import Hosted, Role
from .isr_update import Follows, InSync

# Kafka's default (replica.lag.time.max.ms).
LAG_MS: Final = 30_000
# As often as in Kafka the members are looked at in that time.
LOOKS_PER_LAG: Final = 2


class Laggards:
    """See the module. It knows what was found at the last look, and since when."""

    def __init__(
        self,
        broker: int,
        hosted: Hosted,
        *,
        clock: Clock,
        follows: Follows,
        in_sync: InSync | None,
        lag_ms: float,
    ) -> None:
        self._broker = broker
        self._hosted = hosted
        self._clock = clock
        self._follows = follows
        self._in_sync = in_sync
        self._lag_ms = lag_ms
        # By partition, leader epoch and member.
        self._since: dict[tuple[TopicPartition, int, int], float] = {}

    def look(self) -> None:
        """See who follows now."""
        rows = self._hosted.in_role(Role.LEADER)
        names, isr = self._hosted.index.names(rows), self._hosted.isr[:, rows]
        epochs = self._hosted.leader_epoch[rows]
        lagging = self._lagging(names, isr, epochs)
        partitions = list(names) if lagging.any() else []
        now_ms, before = self._clock.monotonic_ms(), self._since
        self._since = {}
        for slot, position in np.argwhere(lagging).tolist():
            key = (partitions[position], int(epochs[position]), int(isr[slot, position]))
            self._since[key] = before.get(key, now_ms)

    def to_drop(self) -> Mapping[TopicPartition, set[int]]:
        """The members that lag for too long, and still do, by partition."""
        dropped: dict[TopicPartition, set[int]] = {}
        if not self._expired():
            return dropped
        # Somebody may have left the ISR since then, or follow again.
        self.look()
        for name, _, member in self._expired():
            dropped.setdefault(name, set()).add(member)
        return dropped

    def _expired(self) -> list[tuple[TopicPartition, int, int]]:
        limit_ms = self._clock.monotonic_ms() - self._lag_ms
        return [key for key, since_ms in self._since.items() if since_ms <= limit_ms]

    def _lagging(self, names: Names, isr: Ints, epochs: Ints) -> Bools:
        """bool[K, n]: the members of int32[K, n] `isr` that do not follow, or of whom the application says that they
        have not caught up."""
        others = (isr != NO_BROKER) & (isr != self._broker)
        lagging = np.zeros(isr.shape, np.bool_)
        for member in np.unique(isr[others]).tolist():
            here = isr == member
            at: RowNumbers = np.flatnonzero(some(here))
            following = np.ones(len(names), np.bool_)
            which = np.zeros(len(names), np.bool_)
            which[at] = True
            following[at] = self._follows(member, names.take(which), epochs[at])
            lagging |= here & ~following
        if self._in_sync is not None:
            partitions = list(names)
            for slot, position in np.argwhere(others & ~lagging).tolist():
                lagging[slot, position] = not self._in_sync(partitions[position], int(isr[slot, position]))
        return lagging
