"""Engines, which evaluate plans of failure scenarios over a snapshot, and the engine that works in this process.

A plan lists the failures to simulate; `evaluate` computes its sums over some classes. Sums are additive, so the classes
can be evaluated all at once in this process, or in parts by Spark tasks.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .classes import Classes, of_table
from .failure_model import FailureModel, Sums, stacked
from .outcomes import TOPICS, TopicShare
from .partitions import FILLED, GROUPED, Assumptions
from .topology import BrokerPositions, Topology

HERE: Final = "here"
USAGE: Final = pa.schema([("broker", pa.int32()), *((name, pa.int64()) for name in ("assigned", "leads", "in_sync"))])


@dataclasses.dataclass(frozen=True, slots=True)
class Simultaneous:
    """Failure of each set separately; sums are [sets, ...]."""

    sets: tuple[BrokerPositions, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class OneMore:
    """Failure of each set together with every other broker; sums are [sets, B, ...]."""

    firsts: tuple[BrokerPositions, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InSequence:
    """Rolling restart: each set is back before the next fails; sums are [steps + 1, ...], see `FailureModel.roll`."""

    steps: tuple[BrokerPositions, ...]


Plan = Simultaneous | OneMore | InSequence


def evaluate(model: FailureModel, plan: Plan) -> Sums:
    """Return the sums of a plan over the classes of a model."""
    match plan:
        case Simultaneous():
            return stacked([model.after(failed) for failed in plan.sets])
        case OneMore():
            return stacked([model.each_after(failed) for failed in plan.firsts])
        case InSequence():
            return model.roll(plan.steps)


@dataclasses.dataclass(frozen=True, slots=True)
class TopicLosses:
    """Topics whose partitions lose their last in-sync replica: their number, and those with most such partitions."""

    topics: int = 0
    worst: tuple[TopicShare, ...] = ()


class Engine(Protocol):
    """Interface of `LocalEngine` and `SparkEngine`.

    Attributes:
        where: where sums are computed: "here" or "Spark".
        classes, topics: numbers of them.
        stuck: partitions without a leader although an eligible replica seems to be alive.
    """

    topology: Topology
    classes: int
    stuck: float

    @property
    def where(self) -> str: ...

    @property
    def topics(self) -> int: ...

    def sums(self, plan: Plan) -> Sums: ...

    def lost(self, sets: Sequence[BrokerPositions]) -> list[TopicLosses]: ...

    def close(self) -> None: ...


class LocalEngine:
    """Engine over a snapshot in memory.

    Args:
        table: the columns of `partitions.SCHEMA`; only `elr`, `min_isr`, `unclean` and `weight` may be null.
    """

    where = HERE

    def __init__(self, table: pa.Table, topology: Topology, assumed: Assumptions) -> None:
        self.topology = topology
        rows, self.stuck = of_table(filled(table, assumed), topology.brokers, topology.away)
        names = table["topic"].combine_chunks().dictionary_encode()
        self._names, self._topic = names.dictionary, names.indices.to_numpy()
        self._rows = model_of(rows, topology)
        merged = rows.merged()
        self.classes = len(merged)
        self._model = model_of(merged, topology)

    @property
    def topics(self) -> int:
        return len(self._names)

    def sums(self, plan: Plan) -> Sums:
        """Return the sums of a plan, with the shapes of `Plan`."""
        return evaluate(self._model, plan)

    def close(self) -> None:
        """Do nothing; there are no resources to release."""

    def lost(self, sets: Sequence[BrokerPositions]) -> list[TopicLosses]:
        """Return for each set of brokers the topics with partitions that no live replica can lead without loss."""
        return [self._lost(failed) for failed in sets]

    def _lost(self, failed: BrokerPositions) -> TopicLosses:
        hit = np.bincount(self._topic[self._rows.losing_safe_leaders(failed)], minlength=len(self._names))
        topics = int(np.count_nonzero(hit))
        order = np.argsort(-hit, kind="stable")[: min(TOPICS, topics)]
        worst = [TopicShare(topic=self._names[int(index)].as_py(), partitions=int(hit[index])) for index in order]
        return TopicLosses(topics, tuple(worst))


def model_of(classes: Classes, topology: Topology) -> FailureModel:
    """Return the failure model of the brokers of a snapshot."""
    return FailureModel(classes, topology.positions(sorted(topology.away)), len(topology.brokers))


def filled(table: pa.Table, assumed: Assumptions) -> pa.Table:
    """Return one class per partition, in the columns of `partitions.FILLED`; unknown topic settings are as assumed."""
    topics = table["topic"].combine_chunks().dictionary_encode()
    facts = [assumed.topics.get(name) for name in topics.dictionary.to_pylist()]
    given = {
        name: pa.array([fact and getattr(fact, name) for fact in facts], GROUPED.field(name).type).take(topics.indices)
        for name in ("min_isr", "unclean", "weight")
    }
    weight = given["weight"] if assumed.weighted else pa.nulls(len(table), pa.float64())
    columns = {name: table[name] for name in ("topic", "leader", "replicas", "isr", "elr")}
    columns["min_isr"] = pc.coalesce(given["min_isr"], table["min_isr"], pa.scalar(assumed.min_isr, pa.int32()))
    columns["unclean"] = pc.coalesce(given["unclean"], table["unclean"], pa.scalar(assumed.unclean))
    columns["partitions"] = pa.array(np.ones(len(table), np.int64))
    columns["weight"] = pc.coalesce(weight, table["weight"], pa.scalar(0.0 if assumed.weighted else 1.0))
    return pa.table(columns).cast(FILLED)


def broker_usage(table: pa.Table) -> pa.Table:
    """Return the numbers of every broker that the snapshot names, in the columns of `USAGE`; see `BrokerUsage`."""
    led = table.filter(pc.greater_equal(table["leader"], 0))
    numbers = (pc.list_flatten(table["replicas"]), led["leader"], pc.list_flatten(led["isr"]))
    parts = [
        pa.table({"broker": brokers, name: pa.repeat(1, len(brokers))})
        for name, brokers in zip(USAGE.names[1:], numbers, strict=True)
    ]
    named = pa.table({"broker": pc.list_flatten(table["isr"])})
    summed = pa.concat_tables([*parts, named], promote_options="default").group_by("broker")
    sums = summed.aggregate([(name, "sum") for name in USAGE.names[1:]])
    columns = {name: pc.fill_null(sums[f"{name}_sum"], 0) for name in USAGE.names[1:]}
    return pa.table({"broker": sums["broker"]} | columns).cast(USAGE)
