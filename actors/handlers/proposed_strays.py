"""Unassigned replicas that leaders propose for their ISRs, collected until they can be stopped together.

A controller leaves such replicas if it ends after it has stored an assignment without them, and before it has stopped
them: nothing in the store names them. They go on copying, and each proposal of their leader with one of them is
rejected.

A leader proposes them one at a time, each when it fetches. It gets a new leader epoch when they are stopped, and does
not propose the others any more. So they are collected for some seconds first.
"""

import dataclasses
from collections.abc import Collection
from typing import Final

from kactl.model import TopicPartition
from kactl.runtime.clock import Clock

# A Kafka follower that has copied everything fetches every 500 ms by default. Between two fetches of one follower its
# leader proposes each of the others.
COLLECT_MS: Final = 2_000
# A leader that has not proposed a replica for this long does not have it any more.
FORGET_MS: Final = 60_000


@dataclasses.dataclass(slots=True)
class _Collected:
    """Replicas of one partition under one leader epoch."""

    controller_epoch: int
    leader_epoch: int
    since_ms: float
    brokers: set[int]


class ProposedStrays:
    """Collects the unassigned replicas of each partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._collected: dict[TopicPartition, _Collected] = {}

    def __len__(self) -> int:
        return len(self._collected)

    def add(
        self, name: TopicPartition, brokers: Collection[int], *, leader_epoch: int, controller_epoch: int
    ) -> tuple[int, ...]:
        """Add replicas that were proposed now. Returns all of the partition if they are complete, else none."""
        now_ms = self._clock.monotonic_ms()
        found = self._collected.get(name)
        if found is None or (found.controller_epoch, found.leader_epoch) != (controller_epoch, leader_epoch):
            found = self._collected[name] = _Collected(controller_epoch, leader_epoch, now_ms, set())
        found.brokers.update(brokers)
        if now_ms - found.since_ms < COLLECT_MS:
            return ()
        del self._collected[name]
        return tuple(sorted(found.brokers))

    def prune(self) -> None:
        """Remove the partitions that were first proposed long ago."""
        oldest_ms = self._clock.monotonic_ms() - FORGET_MS
        self._collected = {name: found for name, found in self._collected.items() if found.since_ms >= oldest_ms}
