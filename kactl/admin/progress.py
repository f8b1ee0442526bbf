"""How long reassignments and deletions have made no progress.

The controller keeps no times for them. They are sampled: what each still has to do is compared with the sample before,
over columns, so that a hundred thousand of them cost some milliseconds.
"""

import asyncio
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kactl.clock import Clock
from kactl.machines.reassignment import progress
from kactl.model import NO_LEADER, ReplicaState, TopicPartition
from kactl.state.cluster import Cluster
from kactl.state.deletion_blockers import BlockerReason
from kactl.state.rows import Bools, RowNumbers, some
from kactl.state.table import Table
from kactl.telemetry.health import NAMED_MAX, Stuck

# Fine enough for limits of minutes, at about a thousandth of the loop for a large cluster.
SAMPLE_MS: Final = 5_000
_TOPIC_BITS: Final = 32

Longs = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


class _Sampled:
    """For each key since when its figure is the same."""

    def __init__(self) -> None:
        self._keys: Longs = np.zeros(0, np.int64)
        self._figures: Longs = np.zeros(0, np.int64)
        self._since: Times = np.zeros(0, np.float64)

    def update(self, keys: Longs, figures: Longs, now_ms: float) -> Times:
        """The time at which each figure was first seen as it is; keys that are not named are forgotten.

        Args:
            keys: each once, in any order; the answer is in their order.
        """
        place = np.searchsorted(self._keys, keys)
        place[place == len(self._keys)] = 0
        since = np.full(len(keys), now_ms)
        if len(self._keys):
            same = (self._keys[place] == keys) & (self._figures[place] == figures)
            since = np.where(same, self._since[place], since)
        order = np.argsort(keys)
        self._keys, self._figures, self._since = keys[order], figures[order], since[order]
        return since


class ProgressWatch:
    """See the module. Nothing is kept while another instance is the controller."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: Table | None = None
        self._forget()

    def _forget(self) -> None:
        self._moves, self._deletions = _Sampled(), _Sampled()

    async def run(self, cluster: Cluster) -> None:
        """Take a sample every few seconds, until cancelled."""
        while True:
            self.reassignments(cluster, limit_ms=SAMPLE_MS)
            self.deletions(cluster, limit_ms=SAMPLE_MS)
            await self._clock.sleep_ms(SAMPLE_MS)
            await asyncio.sleep(0)

    def reassignments(self, cluster: Cluster, *, limit_ms: float) -> Stuck:
        """Reassignments that wait for replicas which cannot serve, or made no progress for longer than a limit."""
        table, now_ms = self._table_of(cluster), self._clock.monotonic_ms()
        at = np.flatnonzero(some(table.column("adding") | table.column("removing")))
        rows = table.rows(at)
        wanted = rows.assigned & ~rows.removing
        in_sync = np.add.reduce(wanted & rows.in_sync, axis=0, dtype=np.int64)
        since = self._moves.update(_keys(rows.topic, rows.partition), in_sync, now_ms)
        missing = wanted & ~rows.in_sync
        dead = missing & ~rows.online(cluster.live_brokers.registered)
        halted = some(missing) & ((missing == dead).all(axis=0) | (rows.leader == NO_LEADER))
        stuck = at[halted | (now_ms - since > limit_ms)]
        names: list[TopicPartition] = sorted(table.names(stuck[:NAMED_MAX]))
        reasons = {(each.topic, each.partition): each.reason for each in progress(cluster, names)}
        return Stuck(
            len(stuck), len(at), tuple((str(name), reasons.get((name.topic, name.partition), "")) for name in names)
        )

    def deletions(self, cluster: Cluster, *, limit_ms: float) -> Stuck:
        """Deletions that are halted, or made no progress for longer than a limit.

        One that waits for the end of a reassignment counts once that takes longer than the limit.
        """
        table, now_ms = self._table_of(cluster), self._clock.monotonic_ms()
        known = [topic for name in cluster.topics_to_delete if (topic := table.topic(name)) is not None]
        numbers = np.array([topic.number for topic in known], np.int64)
        since = self._deletions.update(numbers, _left(table, numbers, table.rows_of_all(known)), now_ms)
        late = now_ms - since > limit_ms
        named = zip([topic.name for topic in known], late.tolist(), strict=True)
        stuck = [name for name, is_late in named if is_late or _halted(cluster, name)]
        first = sorted(stuck)[:NAMED_MAX]
        return Stuck(len(stuck), len(cluster.topics_to_delete), tuple((name, _reason(cluster, name)) for name in first))

    def _table_of(self, cluster: Cluster) -> Table:
        """The table; what was sampled of another one does not count."""
        if cluster.table is not self._table:
            self._table = cluster.table
            self._forget()
        return cluster.table


def _keys(topic: Any, partition: Any) -> Longs:
    keys: Longs = topic.astype(np.int64) << _TOPIC_BITS | partition
    return keys


def _left(table: Table, numbers: Longs, at: RowNumbers) -> Longs:
    """int64[T]: how many replicas of each topic are not deleted yet."""
    assigned: Bools = table.column("assigned")[:, at]
    waiting = assigned & (table.column("replica_state")[:, at] != ReplicaState.DELETION_SUCCESSFUL)
    topic = table.column("topic")[at]
    count = np.bincount(topic, np.add.reduce(waiting, axis=0), minlength=int(numbers.max(initial=-1)) + 1)
    left: Longs = count[numbers].astype(np.int64)
    return left


def _halted(cluster: Cluster, topic: str) -> bool:
    return any(halt.reason is not BlockerReason.REASSIGNMENT for halt in cluster.deletion_ineligible.get(topic, ()))


def _reason(cluster: Cluster, topic: str) -> str:
    halts = cluster.deletion_ineligible.get(topic, ())
    if not halts:
        return "brokers that were ordered to delete replicas have not answered"
    stopping = cluster.shutting_down - cluster.drained
    return "; ".join(f"{halt.text}: {halt.remedy(stopping)}" for halt in halts)
