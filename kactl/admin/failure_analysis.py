"""Failure simulation of the running cluster: its columns as a snapshot for `kactl.decide.whatif`.

The columns are copied in the event loop, which takes a millisecond or two for a hundred thousand partitions. All else
is computed in a thread, by one request at a time. The result is kept until the cluster changes.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import numpy as np

from kactl.actors.system import Controller
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Ints, Rows
from kactl.decide.state.table import Table
from kactl.decide.state.topics import AllTopics
from kactl.decide.whatif.assumptions import Assumptions
from kactl.decide.whatif.classes import FREE, PartitionColumns
from kactl.decide.whatif.engine import Engine
from kactl.decide.whatif.prepared_snapshot import PreparedSnapshot
from kactl.decide.whatif.topology import Topology
from kactl.runtime.threads import run_in_thread

SOURCE: Final = "the running cluster"
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, slots=True)
class LiveCluster:
    """A copy of the parts of a cluster that failures depend on.

    Attributes:
        rows: the partitions with leadership, without those of topics that are queued for deletion. Shards have no
            replicas that failures could take; see `kactl.decide.machines.draining`.
        unknown: number of partitions that have no leadership yet.
        min_isr: int32[n], 0 if unknown; `unclean`: bool[n].
        brokers: all brokers that are registered or have a replica, ascending; `away`: those that are not live.
        racks: the rack of each broker that has one.
        at_us: time of the copy, in microseconds since 1970.
    """

    rows: Rows
    unknown: int
    min_isr: Ints
    unclean: Bools
    refs: AllTopics
    brokers: tuple[int, ...]
    away: frozenset[int]
    racks: Mapping[int, str]
    at_us: int


@dataclasses.dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """A copy of a cluster, prepared for analysis. Row i of the engine is row i of `cluster.rows`."""

    cluster: LiveCluster
    engine: Engine
    prepared: PreparedSnapshot

    @classmethod
    def of(cls, live: LiveCluster) -> "LiveSnapshot":
        """Prepare a copy."""
        rows = live.rows
        # Brokers that are in sync and not assigned cannot lead; a replica in a failed directory cannot either.
        able = rows.assigned & ~rows.dir_offline
        assigned = np.add.reduce(rows.assigned, axis=0, dtype=np.int32)
        numbers, topic = np.unique(rows.topic, return_inverse=True)
        columns = PartitionColumns(
            replicas=np.where(able, rows.replicas, FREE),
            in_sync=rows.in_sync & able,
            eligible=np.zeros(able.shape, np.bool_),
            leader=rows.leader,
            unclean=live.unclean,
            # Brokers enforce at most the number of replicas. 1 is Kafka's default.
            min_isr=np.minimum(np.maximum(live.min_isr, 1), assigned),
            partitions=np.ones(len(rows)),
            weight=np.ones(len(rows)),
        )
        by_rack: dict[str, list[int]] = {}
        for broker in live.brokers:
            if broker in live.racks:
                by_rack.setdefault(live.racks[broker], []).append(broker)
        topology = Topology(live.brokers, live.away, {rack: tuple(by_rack[rack]) for rack in sorted(by_rack)})
        engine = Engine(columns, topic.astype(np.int32), [live.refs[n].name for n in numbers.tolist()], topology)
        return cls(
            cluster=live,
            engine=engine,
            prepared=PreparedSnapshot(
                engine=engine,
                assumed=Assumptions(),
                source=SOURCE,
                partitions=len(rows),
                unknown=live.unknown,
                defaulted=int(np.count_nonzero(live.min_isr == 0)),
                at_us=live.at_us,
            ),
        )


def copied(cluster: Cluster, *, min_isr: Ints, unclean: Bools, now_ms: int) -> LiveCluster:
    """Copy a cluster.

    Args:
        min_isr, unclean: by topic number, see `TopicSettings`.
    """
    table = cluster.table
    led, every = (np.setdiff1d(each, table.owned(each)) for each in (table.with_leadership(), table.all()))
    rows = table.rows(led)
    used = np.unique(rows.replicas[rows.assigned]).tolist()
    brokers = tuple(sorted({*used, *cluster.brokers}))
    return LiveCluster(
        rows=rows,
        unknown=len(table.not_queued(every)) - len(rows),
        min_isr=min_isr[rows.topic],
        unclean=unclean[rows.topic],
        refs=table.refs,
        brokers=brokers,
        away=frozenset(brokers) - cluster.live_brokers.electable.ids,
        racks={id_: broker.rack for id_, broker in cluster.brokers.items() if broker.rack is not None},
        at_us=now_ms * 1000,
    )


class FailureAnalysis:
    """Evaluates failures of one controller's cluster."""

    def __init__(self) -> None:
        self._busy = asyncio.Lock()
        self._key: object = None
        self._latest: LiveSnapshot | None = None

    async def evaluate(
        self, controller: Controller, table: Table, function: Callable[[LiveSnapshot], _Result]
    ) -> _Result:
        """Call a function with the cluster as it is, in a thread. Returns its result.

        Args:
            table: the table that `controller.topic_settings` has read the settings of. Others count as unknown.
        """
        async with self._busy:
            cluster, settings = controller.cluster, controller.topic_settings
            min_isr, unclean = settings.min_isr_of_topics(table), settings.unclean_of_topics(table)
            key = _key(cluster, min_isr, unclean)
            known = self._latest if key == self._key else None
            if known is None:
                live = copied(cluster, min_isr=min_isr, unclean=unclean, now_ms=controller.clock.now_ms())

            def work() -> tuple[LiveSnapshot, _Result]:
                snapshot = LiveSnapshot.of(live) if known is None else known
                return snapshot, function(snapshot)

            self._latest, result = await run_in_thread(work)
            self._key = key
            return result


def _key(cluster: Cluster, min_isr: Ints, unclean: Bools) -> object:
    return (
        id(cluster.table),
        cluster.table.revision,
        tuple((id_, broker.rack) for id_, broker in sorted(cluster.brokers.items())),
        cluster.live_brokers.electable.ids,
        min_isr.tobytes(),
        unclean.tobytes(),
    )
