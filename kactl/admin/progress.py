"""Duration for which reassignments and deletions have made no progress.

The controller keeps no times for them. Their remaining work is sampled and compared with the previous sample, over
columns: a hundred thousand of them cost some milliseconds.
"""

import asyncio
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kactl.decide.machines.reassignment import progress
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.deletion_blockers import BlockerReason
from kactl.decide.state.rows import Bools, RowNumbers, some
from kactl.decide.state.table import Table
from kactl.model import NO_LEADER, ReplicaState, TopicPartition
from kactl.runtime.clock import Clock
from kactl.telemetry.health import NAMED_MAX, Stuck

# Fine enough for limits of minutes, at about a thousandth of the event loop's time for a large cluster.
SAMPLE_MS: Final = 5_000
_TOPIC_BITS: Final = 32

Longs = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


class _Samples:
    """For each key, the time since which its figure is unchanged."""

    def __init__(self) -> None:
        self._keys: Longs = np.zeros(0, np.int64)
        self._figures: Longs = np.zeros(0, np.int64)
        self._since: Times = np.zeros(0, np.float64)

    def update(self, keys: Longs, figures: Longs, now_ms: float) -> Times:
        """Returns the time at which each figure was first sampled with its present value. Keys not given are forgotten.

        Args:
            keys: without repetition, in any order. The result is in the same order.
        """
        index = np.searchsorted(self._keys, keys)
        index[index == len(self._keys)] = 0
        since = np.full(len(keys), now_ms)
        if len(self._keys):
            same = (self._keys[index] == keys) & (self._figures[index] == figures)
            since = np.where(same, self._since[index], since)
        order = np.argsort(keys)
        self._keys, self._figures, self._since = keys[order], figures[order], since[order]
        return since


class ProgressWatch:
    """Samples the progress of reassignments and deletions. Keeps nothing while another instance is the controller."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: Table | None = None
        self._forget()

    def _forget(self) -> None:
        self._moves, self._deletions = _Samples(), _Samples()

    async def run(self, cluster: Cluster) -> None:
        """Take a sample every few seconds until cancelled."""
        while True:
            self.reassignments(cluster, limit_ms=SAMPLE_MS)
            self.deletions(cluster, limit_ms=SAMPLE_MS)
            await self._clock.sleep_ms(SAMPLE_MS)
            await asyncio.sleep(0)

    def reassignments(self, cluster: Cluster, *, limit_ms: float) -> Stuck:
        """Returns reassignments that wait for replicas that cannot serve, or made no progress for longer than the
        limit.
        """
        table, now_ms = self._table_of(cluster), self._clock.monotonic_ms()
        rows = np.flatnonzero(some(table.column("adding") | table.column("removing")))
        columns = table.rows(rows)
        wanted = columns.assigned & ~columns.removing
        in_sync = np.add.reduce(wanted & columns.in_sync, axis=0, dtype=np.int64)
        since = self._moves.update(_keys(columns.topic, columns.partition), in_sync, now_ms)
        missing = wanted & ~columns.in_sync
        dead = missing & ~columns.online(cluster.live_brokers.registered)
        halted = some(missing) & ((missing == dead).all(axis=0) | (columns.leader == NO_LEADER))
        stuck = rows[halted | (now_ms - since > limit_ms)]
        names: list[TopicPartition] = sorted(table.names(stuck[:NAMED_MAX]))
        reasons = {(move.topic, move.partition): move.reason for move in progress(cluster, names)}
        return Stuck(
            len(stuck), len(rows), tuple((str(name), reasons.get((name.topic, name.partition), "")) for name in names)
        )

    def deletions(self, cluster: Cluster, *, limit_ms: float) -> Stuck:
        """Returns deletions that are halted, or made no progress for longer than the limit.

        A deletion that waits for the end of a reassignment counts when that takes longer than the limit.
        """
        table, now_ms = self._table_of(cluster), self._clock.monotonic_ms()
        known = [topic for name in cluster.topics_to_delete if (topic := table.topic(name)) is not None]
        numbers = np.array([topic.number for topic in known], np.int64)
        since = self._deletions.update(numbers, _replicas_left(table, numbers, table.rows_of_all(known)), now_ms)
        late = now_ms - since > limit_ms
        named = zip([topic.name for topic in known], late.tolist(), strict=True)
        stuck = [name for name, is_late in named if is_late or _halted(cluster, name)]
        first = sorted(stuck)[:NAMED_MAX]
        return Stuck(len(stuck), len(cluster.topics_to_delete), tuple((name, _reason(cluster, name)) for name in first))

    def _table_of(self, cluster: Cluster) -> Table:
        """Returns the table. Samples of another table are discarded."""
        if cluster.table is not self._table:
            self._table = cluster.table
            self._forget()
        return cluster.table


def _keys(topic: Any, partition: Any) -> Longs:
    keys: Longs = topic.astype(np.int64) << _TOPIC_BITS | partition
    return keys


def _replicas_left(table: Table, numbers: Longs, rows: RowNumbers) -> Longs:
    """Returns int64[T]: the number of replicas of each topic that are not deleted yet."""
    assigned: Bools = table.column("assigned")[:, rows]
    waiting = assigned & (table.column("replica_state")[:, rows] != ReplicaState.DELETION_SUCCESSFUL)
    topic = table.column("topic")[rows]
    counts = np.bincount(topic, np.add.reduce(waiting, axis=0), minlength=int(numbers.max(initial=-1)) + 1)
    count: Longs = counts[numbers].astype(np.int64)
    return count


def _halted(cluster: Cluster, topic: str) -> bool:
    blockers = cluster.deletion_ineligible.get(topic, ())
    return any(blocker.reason is not BlockerReason.REASSIGNMENT for blocker in blockers)


def _reason(cluster: Cluster, topic: str) -> str:
    blockers = cluster.deletion_ineligible.get(topic, ())
    if not blockers:
        return "brokers have not responded to the deletion of replicas"
    stopping = cluster.shutting_down - cluster.drained
    return "; ".join(f"{blocker.text}: {blocker.remedy(stopping)}" for blocker in blockers)
