"""Engine for a snapshot in Spark: Spark computes the classes and returns them to this process if they are few.

    partitions ─group by signature─▶ classes ─┬─ few ─▶ sums are computed in this process
                                              └─ many ─▶ each task computes its sums, Spark adds them

In both cases this process receives only classes, sums, and the names of the topics that are shown.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from .classes import of_table
from .engine import HERE, OneMore, Plan, TopicLosses, evaluate
from .failure_model import COUNTS, FailureModel, Sums
from .outcomes import TOPICS, TopicShare
from .partitions import GROUPED, SCHEMA, SIGNATURE, Assumptions
from .topology import BrokerPositions, BrokerUsage, Topology

if TYPE_CHECKING:
    from pyspark.sql import Column as Value
    from pyspark.sql import DataFrame

# About 150 bytes per class while sums are computed: 300 MB.
CLASSES_HERE: Final = 2_000_000
# Column of the given topic settings -> its name beside the columns of the snapshot.
_GIVEN: Final = {"topic": "topic", "min_isr": "given_min_isr", "unclean": "given_unclean", "weight": "given_weight"}
_SUMS: Final = pa.schema([pa.field("counts", pa.binary()), pa.field("load", pa.binary())])


class SparkEngine:
    """Engine over a DataFrame with the columns of `partitions.SCHEMA`; unknown values are null.

    Args:
        classes_here: if there are more classes than this, Spark computes the sums.
        keeps: persisted DataFrames to release with the engine.
    """

    def __init__(
        self,
        partitions: "DataFrame",
        topology: Topology,
        assumed: Assumptions,
        *,
        classes_here: int = CLASSES_HERE,
        keeps: "Sequence[DataFrame]" = (),
    ) -> None:
        from pyspark.storagelevel import StorageLevel

        self.topology = topology
        self._partitions = filled(partitions, assumed)
        self._classes = grouped(self._partitions).persist(StorageLevel.DISK_ONLY)
        self._keeps = (self._classes, *keeps)
        self.classes = self._classes.count()
        self._count = len(topology.brokers)
        self._away = topology.positions(sorted(topology.away & set(topology.brokers)))
        self._model: FailureModel | None = None
        if self.classes <= classes_here:
            classes, self.stuck = of_table(self._classes.toArrow().cast(GROUPED), topology.brokers, topology.away)
            self._model = FailureModel(classes.merged(), self._away, self._count)
        else:
            self.stuck = self._stuck()

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
        from pyspark.sql.pandas.types import from_arrow_schema

        sums = self._classes.mapInArrow(_summing(self.topology, plan), from_arrow_schema(_SUMS))
        count = self._count
        parts = sums.rdd.map(lambda row: _unpacked(bytes(row.counts), bytes(row.load), count))
        return _shaped(parts.treeReduce(lambda one, other: one + other), plan)

    def lost(self, sets: Sequence[BrokerPositions]) -> list[TopicLosses]:
        """Return the same as `LocalEngine.lost`, computed for all sets in one job."""
        if not sets:
            return []
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        failed = [_ids(self.topology.brokers[position] for position in positions) for positions in sets]
        hit = [f.when(f.size(f.array_except("may_lead", ids)) == 0, f.lit(index)) for index, ids in enumerate(failed)]
        alive = self._may_lead().where(f.size("may_lead") > 0)
        which = f.explode(f.array_compact(f.array(*hit))).alias("set")
        by_topic = alive.select("topic", which).groupBy("set", "topic").agg(f.count(f.lit(1)).alias("partitions"))
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

    def _may_lead(self) -> "DataFrame":
        """Return the partitions with `may_lead`: live replicas that can lead without loss, as in `classes.of_table`."""
        from pyspark.sql import functions as f

        leader = f.when(f.col("leader") >= 0, f.array("leader")).otherwise(_ids([]))
        known = f.array_union(f.coalesce("isr", _ids([])), f.array_union(leader, f.coalesce("elr", _ids([]))))
        could = f.array_except(f.array_intersect("replicas", known), _ids(sorted(self.topology.away)))
        return self._partitions.withColumn("could", could).withColumn(
            "may_lead", f.when(f.col("leader") >= 0, f.col("could")).otherwise(_ids([]))
        )

    def _stuck(self) -> float:
        from pyspark.sql import functions as f

        return float(self._may_lead().where((f.col("leader") < 0) & (f.size("could") > 0)).count())


def filled(partitions: "DataFrame", assumed: Assumptions) -> "DataFrame":
    """Return the partitions with unknown topic settings as assumed."""
    from pyspark.sql import functions as f

    rows = [{"topic": name, **dataclasses.asdict(facts)} for name, facts in assumed.topics.items()]
    table = pa.Table.from_pylist(rows, pa.schema([SCHEMA.field(name) for name in _GIVEN]))
    given = partitions.sparkSession.createDataFrame(table.rename_columns([_GIVEN[name] for name in table.column_names]))
    weight = "coalesce(given_weight, weight, 0.0)" if assumed.weighted else "coalesce(weight, 1.0)"
    # The topics are few, because each is a line in a file.
    return partitions.join(f.broadcast(given), "topic", "left").selectExpr(
        "topic",
        "partition",
        "leader",
        "replicas",
        "isr",
        "elr",
        f"coalesce(given_min_isr, min_isr, {assumed.min_isr}) min_isr",
        f"coalesce(given_unclean, unclean, {str(assumed.unclean).lower()}) unclean",
        f"{weight} weight",
    )


def grouped(partitions: "DataFrame") -> "DataFrame":
    """Group partitions into classes; returns the columns of `partitions.GROUPED`.

    An ISR is a set, so its order is ignored.
    """
    from pyspark.sql import functions as f

    alike = partitions.withColumns({"isr": f.array_sort("isr"), "elr": f.array_sort("elr")})
    return alike.groupBy(*SIGNATURE).agg(
        f.count(f.lit(1)).cast("long").alias("partitions"), f.sum("weight").cast("double").alias("weight")
    )


def broker_usage(partitions: "DataFrame") -> list[BrokerUsage]:
    """Return the replicas and leaderships of every broker that the snapshot names. Collects one row per broker."""
    from pyspark.sql import functions as f

    led = f.col("leader") >= 0
    no_ids = _ids([])
    parts = (
        partitions.select(f.explode("replicas").alias("broker"), _ones(assigned=1)),
        partitions.where(led).select(f.col("leader").alias("broker"), _ones(leads=1)),
        partitions.select(
            f.explode(f.coalesce("isr", no_ids)).alias("broker"), _ones(in_sync=f.when(led, 1).otherwise(0))
        ),
    )
    united = functools.reduce(lambda one, other: one.unionByName(other), parts)
    summed = united.groupBy("broker").agg(
        *(f.sum(f"has.{name}").alias(name) for name in ("assigned", "leads", "in_sync"))
    )
    rows = sorted(summed.collect(), key=lambda row: int(row["broker"]))
    return [
        BrokerUsage(row["broker"], assigned=row["assigned"], leads=row["leads"], in_sync=row["in_sync"]) for row in rows
    ]


def _ones(**given: "int | Value") -> "Value":
    from pyspark.sql import functions as f

    def number(name: str) -> "Value":
        value = given.get(name, 0)
        return (f.lit(value) if isinstance(value, int) else value).cast("long").alias(name)

    return f.struct(*(number(name) for name in ("assigned", "leads", "in_sync"))).alias("has")


def _ids(brokers: Iterable[int]) -> "Value":
    from pyspark.sql import functions as f

    return f.array(*(f.lit(broker) for broker in brokers)).cast("array<int>")


def _summing(topology: Topology, plan: Plan) -> Any:
    """Return the function for workers that maps classes to one row with their sums."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        classes, _ = of_table(_table(batches), topology.brokers, topology.away)
        away = topology.positions(sorted(topology.away & set(topology.brokers)))
        sums = evaluate(FailureModel(classes, away, len(topology.brokers)), plan)
        columns = [pa.array([sums.counts.tobytes()]), pa.array([sums.load.tobytes()])]
        yield pa.RecordBatch.from_arrays(columns, schema=_SUMS)

    return work


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    collected = list(batches)
    return pa.Table.from_batches(collected).cast(GROUPED) if collected else GROUPED.empty_table()


def _unpacked(counts: bytes, load: bytes, brokers: int) -> Sums:
    """Deserialise sums, with all scenarios along one axis: [n, 6] and [n, B]."""
    return Sums(np.frombuffer(counts).reshape(-1, len(COUNTS)), np.frombuffer(load).reshape(-1, brokers))


def _shaped(sums: Sums, plan: Plan) -> Sums:
    """Reshape sums with all scenarios along one axis to the shape of the plan."""
    if not isinstance(plan, OneMore):
        return sums
    shape = (len(plan.firsts), -1)
    return Sums(sums.counts.reshape(*shape, len(COUNTS)), sums.load.reshape(*shape, sums.load.shape[-1]))
