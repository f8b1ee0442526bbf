"""Engine for a snapshot in Spark: Spark computes the classes and returns them to this process if they are few.

    partitions ─group by signature─▶ classes ─┬─ few ─▶ sums are computed in this process
                                              └─ many ─▶ each task computes its sums, Spark adds them

In both cases this process receives only classes, sums, and the names of the topics that are shown. Tasks call the same
functions of Arrow tables as the engine in this process; Spark groups and adds their results.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from kactl.whatif.assumptions import Assumptions
from kactl.whatif.classes import Classes, classes_of
from kactl.whatif.engine import HERE, OneMore, Plan, TopicLosses, evaluate, model_of
from kactl.whatif.failure_model import COUNTS, FailureModel, Sums
from kactl.whatif.outcomes import TOPICS, TopicShare
from kactl.whatif.prepared_snapshot import PreparedSnapshot
from kactl.whatif.topology import BrokerPositions, BrokerUsage, Topology, topology_of

from .tables import (
    FILLED,
    GROUPED,
    SIGNATURE,
    USAGE,
    broker_usage,
    check_known,
    columns_of,
    filled,
    topics_with_min_isr,
)

# About 150 bytes per class while sums are computed: 300 MB.
CLASSES_HERE: Final = 2_000_000
_SUMS: Final = pa.schema([("counts", pa.binary()), ("load", pa.binary())])
_HITS: Final = pa.schema([("set", pa.int32()), ("topic", pa.string()), ("partitions", pa.int64())])
_STUCK: Final = pa.schema([("stuck", pa.float64())])


def of_frame(
    partitions: DataFrame,
    source: str,
    assumed: Assumptions,
    *,
    away: frozenset[int] = frozenset(),
    at_us: int | None = None,
    classes_here: int = CLASSES_HERE,
    keeps: Sequence[DataFrame] = (),
    only_named: int = 0,
) -> PreparedSnapshot:
    """Prepare a snapshot from partitions in Spark. They are read several times and should be persisted.

    Args:
        away: brokers that are down according to the logs.
        only_named: number of partitions of which only the name is known; they are not in `partitions`.
        keeps: persisted DataFrames to release when the engine is closed.

    Raises:
        BadSnapshot: there is no partition with known leader, replicas and ISR.
    """
    enough = "size(replicas) > 0 and isr is not null and leader is not null"
    topics = topics_with_min_isr(assumed)
    is_given = f.col("topic").isin(topics) if topics else f.lit(False)
    counted = partitions.agg(
        f.count(f.lit(1)).alias("all"),
        f.count_if(f.expr(enough)).alias("known"),
        f.count_if(f.expr(enough) & f.col("min_isr").isNull() & ~is_given).alias("defaulted"),
    ).first()
    assert counted is not None
    all_ = counted["all"] + only_named
    check_known(source, counted["known"], all_)
    known = partitions.where(enough)
    sums = [f.sum(name).alias(name) for name in USAGE.names[1:]]
    usages = _mapped(known, broker_usage, USAGE).groupBy("broker").agg(*sums).collect()
    topology = topology_of((BrokerUsage(**row.asDict()) for row in usages), assumed, away)
    return PreparedSnapshot(
        engine=SparkEngine(known, topology, assumed, classes_here=classes_here, keeps=keeps),
        assumed=assumed,
        source=source,
        partitions=counted["known"],
        unknown=all_ - counted["known"],
        defaulted=counted["defaulted"],
        at_us=at_us,
    )


class SparkEngine:
    """Engine over a DataFrame with the columns of `tables.SCHEMA`; unknown values are null.

    Args:
        classes_here: if there are more classes than this, Spark computes the sums.
        keeps: persisted DataFrames to release with the engine.
    """

    def __init__(
        self,
        partitions: DataFrame,
        topology: Topology,
        assumed: Assumptions,
        *,
        classes_here: int = CLASSES_HERE,
        keeps: Sequence[DataFrame] = (),
    ) -> None:
        self.topology = topology
        self._partitions, self._assumed = partitions, assumed
        rows = _mapped(partitions, lambda table: filled(table, assumed), FILLED)
        self._classes = _grouped(rows).persist(StorageLevel.DISK_ONLY)
        self._keeps = (self._classes, *keeps)
        self.classes = self._classes.count()
        self._model: FailureModel | None = None
        if self.classes <= classes_here:
            classes, self.stuck = _classes(self._classes.toArrow().cast(GROUPED), topology)
            self._model = model_of(classes.merged(), topology)
        else:
            self.stuck = _mapped(self._classes, _stuck(topology), _STUCK).agg(f.sum("stuck")).collect()[0][0]

    @property
    def where(self) -> str:
        return "Spark" if self._model is None else HERE

    @functools.cached_property
    def topics(self) -> int:
        return self._partitions.select("topic").distinct().count()

    def close(self) -> None:
        """Release the persisted DataFrames."""
        for frame in self._keeps:
            frame.unpersist()

    def sums(self, plan: Plan) -> Sums:
        """Return the sums of a plan, with the shapes of `Plan`."""
        if self._model is not None:
            return evaluate(self._model, plan)
        sums = _mapped(self._classes, _summing(self.topology, plan), _SUMS, whole=True)
        count = len(self.topology.brokers)
        parts = sums.rdd.map(lambda row: _unpacked(bytes(row.counts), bytes(row.load), count))
        return _shaped(parts.treeReduce(lambda one, other: one + other), plan)

    def lost(self, sets: Sequence[BrokerPositions]) -> list[TopicLosses]:
        """Return the same as `LocalEngine.lost`, computed for all sets in one job."""
        if not sets:
            return []
        hits = _mapped(self._partitions, _hit(self.topology, sets, self._assumed), _HITS)
        by_topic = hits.groupBy("set", "topic").agg(f.sum("partitions").alias("partitions"))
        of_set = Window.partitionBy("set")
        ranked = by_topic.withColumns(
            {
                "topics": f.count(f.lit(1)).over(of_set),
                "rank": f.row_number().over(of_set.orderBy(f.desc("partitions"), "topic")),
            }
        ).where(f.col("rank") <= TOPICS)
        losses = [TopicLosses() for _ in sets]
        for row in ranked.orderBy("set", "rank").collect():
            share = TopicShare(topic=row["topic"], partitions=row["partitions"])
            losses[row["set"]] = TopicLosses(row["topics"], (*losses[row["set"]].worst, share))
        return losses


def _grouped(partitions: DataFrame) -> DataFrame:
    """Group partitions into classes, in the columns of `tables.GROUPED`. An ISR is a set: its order is ignored."""
    alike = partitions.withColumns({"isr": f.array_sort("isr"), "elr": f.array_sort("elr")})
    return alike.groupBy(*SIGNATURE).agg(f.sum("partitions").alias("partitions"), f.sum("weight").alias("weight"))


# -- in the tasks ------------------------------------------------------------------------------------------------------

_Map = Callable[[pa.Table], pa.Table]


def _mapped(rows: DataFrame, function: _Map, schema: pa.Schema, *, whole: bool = False) -> DataFrame:
    """Apply a function to the rows of each task: by batches, so that few rows are in memory, or to all at once."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in [list(batches)] if whole else ([batch] for batch in batches):
            if part:
                yield from function(pa.Table.from_batches(part)).to_batches()

    return rows.mapInArrow(work, from_arrow_schema(schema))


def _classes(table: pa.Table, topology: Topology) -> tuple[Classes, float]:
    return classes_of(columns_of(table), topology.brokers, topology.away)


def _summing(topology: Topology, plan: Plan) -> _Map:
    """Return the function from classes to one row with their sums."""

    def sums(classes: pa.Table) -> pa.Table:
        model = model_of(_classes(classes.cast(GROUPED), topology)[0], topology)
        result = evaluate(model, plan)
        return pa.table({"counts": [result.counts.tobytes()], "load": [result.load.tobytes()]}, schema=_SUMS)

    return sums


def _stuck(topology: Topology) -> _Map:
    """Return the function from classes to the number of their partitions without a leader that could have one."""

    def stuck(classes: pa.Table) -> pa.Table:
        return pa.table({"stuck": [_classes(classes.cast(GROUPED), topology)[1]]}, schema=_STUCK)

    return stuck


def _hit(topology: Topology, sets: Sequence[BrokerPositions], assumed: Assumptions) -> _Map:
    """Return the function from partitions to those that lose their last safe leader, by set and topic."""

    def hits(partitions: pa.Table) -> pa.Table:
        table = filled(partitions, assumed)
        model = model_of(_classes(table, topology)[0], topology)
        lost = [model.losing_safe_leaders(failed) for failed in sets]
        number = np.repeat(np.arange(len(sets), dtype=np.int32), [len(rows) for rows in lost])
        named = pa.table({"set": number, "topic": table["topic"].take(pa.array(np.concatenate(lost)))})
        return named.group_by(["set", "topic"]).aggregate([([], "count_all")]).rename_columns(_HITS.names).cast(_HITS)

    return hits


def _unpacked(counts: bytes, load: bytes, brokers: int) -> Sums:
    """Deserialise sums, with all scenarios along one axis: [n, 6] and [n, B]."""
    return Sums(np.frombuffer(counts).reshape(-1, len(COUNTS)), np.frombuffer(load).reshape(-1, brokers))


def _shaped(sums: Sums, plan: Plan) -> Sums:
    """Reshape sums with all scenarios along one axis to the shape of the plan."""
    if not isinstance(plan, OneMore):
        return sums
    shape = (len(plan.firsts), -1)
    return Sums(sums.counts.reshape(*shape, len(COUNTS)), sums.load.reshape(*shape, sums.load.shape[-1]))
