"""ISR proposals of leaders, over many events: their counts, the rejected ones to be logged, and unassigned replicas.

A controller leaves unassigned replicas if it ends after it has stored an assignment without them, and before it has
stopped them: nothing in the store names them. They go on copying, and each proposal of their leader with one of them is
rejected. A leader proposes them one at a time, each when it fetches. It gets a new leader epoch when they are stopped,
and does not propose the others any more. So they are collected for some seconds first.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from kactl.decide.state.rows import Bools, Ints
from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode
from kactl.runtime.clock import Clock

# A Kafka follower that has copied everything fetches every 500 ms by default. Between two fetches of one follower its
# leader proposes each of the others.
COLLECT_MS: Final = 2_000
# A leader that has not proposed a replica for this long does not have it any more.
FORGET_MS: Final = 60_000

REPEAT_MS: Final = 60_000


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


@dataclasses.dataclass(slots=True)
class _Repeated:
    logged_ms: float
    count: int = 0


class RejectedProposals:
    """Counts the rejections of each partition, by leader and error, and selects those to be logged.

    A leader may repeat one twice a second, for as long as its reason lasts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeated: dict[tuple[int, ErrorCode, TopicPartition], _Repeated] = {}
        self._pruned_ms = clock.monotonic_ms()

    def to_log(
        self, broker: int, error: ErrorCode, names: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], int]:
        """Count a rejection of each partition. Returns those that were not logged within REPEAT_MS, and the number of
        their rejections since then, these included.
        """
        now_ms = self._clock.monotonic_ms()
        self._prune(now_ms)
        due, count = [], 0
        for name in names:
            known = self._repeated.setdefault((broker, error, name), _Repeated(now_ms - REPEAT_MS))
            known.count += 1
            if now_ms - known.logged_ms >= REPEAT_MS:
                due.append(name)
                count += known.count
                known.logged_ms, known.count = now_ms, 0
        return due, count

    def _prune(self, now_ms: float) -> None:
        """Forget, once per REPEAT_MS, what was not rejected again for as long."""
        if now_ms - self._pruned_ms < REPEAT_MS:
            return
        self._pruned_ms = now_ms
        oldest_ms = now_ms - 2 * REPEAT_MS
        self._repeated = {key: known for key, known in self._repeated.items() if known.logged_ms >= oldest_ms}


def isr_sizes(in_sync: Bools) -> Ints:
    """Returns int32[n], the number of in-sync replicas of each row, from a column of shape [slot, row]."""
    sizes: Ints = np.sum(in_sync, axis=0, dtype=np.int32)
    return sizes


def count_operations(counts: Counter[str], before: Ints, after: Ints) -> None:
    """Count the rows whose ISR has become smaller or larger by an update of its leader.

    Changes that the controller makes itself, as when a broker fails, are not among them.

    Source: ReplicaManager's IsrShrinksPerSec, IsrExpandsPerSec and FailedIsrUpdatesPerSec, which each broker counts for
    the partitions that it leads.
    """
    counts["shrink"] += int(np.count_nonzero(after < before))
    counts["expand"] += int(np.count_nonzero(after > before))
