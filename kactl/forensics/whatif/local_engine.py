"""Engine for a snapshot that fits into this process, without Spark."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .classes import of_table
from .engine import BrokerPositions, Plan, evaluate
from .failure_model import FailureModel, Sums
from .partitions import GROUPED, Assumptions
from .sweep import TOPICS, TopicShare
from .topology import BrokerUsage, Topology

WHERE = "here"


class TopicLosses:
    """Topics whose partitions lose their last in-sync replica: their number, and those with most such partitions."""

    def __init__(self, topics: int = 0, worst: Sequence[TopicShare] = ()) -> None:
        self.topics = topics
        self.worst = tuple(worst)


class LocalEngine:
    """Engine over a snapshot in memory.

    Args:
        table: the columns of `partitions.SCHEMA`; only `elr`, `min_isr`, `unclean` and `weight` may be null.
    """

    where = WHERE

    def __init__(self, table: pa.Table, topology: Topology, assumed: Assumptions) -> None:
        self.topology = topology
        rows, self.stuck = of_table(filled(table, assumed), topology.brokers, topology.away)
        count, away = len(topology.brokers), topology.positions(sorted(topology.away & set(topology.brokers)))
        names = table["topic"].combine_chunks().dictionary_encode()
        self._names, self._topic = names.dictionary, names.indices.to_numpy()
        self._rows = FailureModel(rows, away, count)
        merged = rows.merged()
        self.classes = len(merged)
        self._model = FailureModel(merged, away, count)

    @property
    def topics(self) -> int:
        return len(self._names)

    def sums(self, plan: Plan) -> Sums:
        """Return the sums of a plan, with the shapes of `engine.Plan`."""
        return evaluate(self._model, plan)

    def close(self) -> None:
        """Do nothing; there are no resources to release."""

    def lost(self, sets: Sequence[BrokerPositions]) -> list[TopicLosses]:
        """Return for each set of brokers the topics with partitions that no live replica can lead without loss."""
        return [self._lost(who) for who in sets]

    def _lost(self, who: BrokerPositions) -> TopicLosses:
        hit = np.bincount(self._topic[self._rows.losing_safe_leaders(who)], minlength=len(self._names))
        topics = int(np.count_nonzero(hit))
        order = np.argsort(-hit, kind="stable")[: min(TOPICS, topics)]
        worst = [TopicShare(topic=self._names[int(at)].as_py(), partitions=int(hit[at])) for at in order]
        return TopicLosses(topics, worst)


def filled(table: pa.Table, assumed: Assumptions) -> pa.Table:
    """Return one class per partition, in the columns of `partitions.GROUPED`; unknown topic settings are as assumed."""
    topics = table["topic"].combine_chunks().dictionary_encode()
    facts = [assumed.topics.get(name) for name in topics.dictionary.to_pylist()]
    told = {
        name: pa.array([None if each is None else getattr(each, name) for each in facts], GROUPED.field(name).type)
        for name in ("min_isr", "unclean", "weight")
    }
    told = {name: column.take(topics.indices) for name, column in told.items()}
    weight = told["weight"] if assumed.weighted else pa.nulls(len(table), pa.float64())
    columns = {name: table[name] for name in ("leader", "replicas", "isr", "elr")}
    columns["min_isr"] = pc.coalesce(told["min_isr"], table["min_isr"], pa.scalar(assumed.min_isr, pa.int32()))
    columns["unclean"] = pc.coalesce(told["unclean"], table["unclean"], pa.scalar(assumed.unclean))
    columns["partitions"] = pa.array(np.ones(len(table), np.int64))
    columns["weight"] = pc.coalesce(weight, table["weight"], pa.scalar(0.0 if assumed.weighted else 1.0))
    return pa.table(columns).cast(GROUPED)


def broker_usage(table: pa.Table) -> list[BrokerUsage]:
    """Return the replicas and leaderships of every broker that the snapshot names."""
    leads = _counted(table["leader"].filter(pc.greater_equal(table["leader"], 0)))
    assigned = _counted(pc.list_flatten(table["replicas"]))
    led = table.filter(pc.greater_equal(table["leader"], 0))
    in_sync = _counted(pc.list_flatten(led["isr"]))
    named = leads.keys() | assigned.keys() | _counted(pc.list_flatten(table["isr"])).keys()
    return [
        BrokerUsage(
            broker, assigned=assigned.get(broker, 0), leads=leads.get(broker, 0), in_sync=in_sync.get(broker, 0)
        )
        for broker in sorted(named)
    ]


def _counted(brokers: pa.ChunkedArray) -> dict[int, int]:
    return {each["values"]: each["counts"] for each in pc.value_counts(brokers).to_pylist()}
