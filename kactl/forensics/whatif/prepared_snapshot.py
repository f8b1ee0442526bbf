"""Prepared snapshot: an engine over the partitions of a cluster, its brokers, and the number of unknown partitions."""

import dataclasses
import datetime
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.coverage import Coverage

from . import local_engine, spark_engine
from .engine import BrokerPositions, Plan
from .failure_model import Sums
from .local_engine import LocalEngine, TopicLosses
from .partitions import Assumptions, BadSnapshot
from .snapshots import logs
from .spark_engine import CLASSES_HERE, SparkEngine
from .topology import Topology, topology_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


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

    def lost(self, sets: "Sequence[BrokerPositions]") -> list[TopicLosses]: ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot with its engine.

    Attributes:
        partitions: partitions that are analysed.
        unknown: partitions that are not analysed because their leader, replicas or ISR are not known.
        at_us: time of the snapshot; None if it is not known.
        defaulted: partitions whose min.insync.replicas is assumed.
        notes: limits of the snapshot.
    """

    engine: Engine
    assumed: Assumptions
    source: str
    partitions: int
    unknown: int
    defaulted: int
    at_us: int | None = None
    notes: tuple[str, ...] = ()


def of_table(table: pa.Table, source: str, assumed: Assumptions, notes: tuple[str, ...] = ()) -> PreparedSnapshot:
    """Prepare a snapshot from partitions in memory.

    Raises:
        BadSnapshot: there is no partition with known leader, replicas and ISR.
    """
    useful = pc.and_(pc.greater(pc.list_value_length(table["replicas"]), 0), table["isr"].is_valid())
    useful = pc.and_(useful, table["leader"].is_valid())
    kept = table.filter(pc.fill_null(useful, False))
    _check(source, len(kept), len(table))
    topology = topology_of(local_engine.broker_usage(kept), assumed)
    said = [name for name, facts in assumed.topics.items() if facts.min_isr is not None]
    silent = pc.and_(pc.is_null(kept["min_isr"]), pc.invert(pc.is_in(kept["topic"], pa.array(said, pa.string()))))
    return PreparedSnapshot(
        engine=LocalEngine(kept, topology, assumed),
        assumed=assumed,
        source=source,
        partitions=len(kept),
        unknown=len(table) - len(kept),
        defaulted=int(pc.sum(silent).as_py() or 0),
        notes=notes,
    )


def of_frame(
    partitions: "DataFrame",
    source: str,
    assumed: Assumptions,
    *,
    away: "frozenset[int]" = frozenset(),
    back: "frozenset[int]" = frozenset(),
    at_us: int | None = None,
    classes_here: int = CLASSES_HERE,
    keeps: "Sequence[DataFrame]" = (),
    only_named: int = 0,
) -> PreparedSnapshot:
    """Prepare a snapshot from partitions in Spark. They are read several times and should be persisted.

    Args:
        away: brokers that are down according to the logs; `back`: those of them that have returned since.
        only_named: number of partitions of which only the name is known; they are not in `partitions`.
        keeps: persisted DataFrames to release when the engine is closed.

    Raises:
        BadSnapshot: there is no partition with known leader, replicas and ISR.
    """
    from pyspark.sql import functions as f

    enough = "size(replicas) > 0 and isr is not null and leader is not null"
    said = [name for name, facts in assumed.topics.items() if facts.min_isr is not None]
    is_said = f.col("topic").isin(said) if len(said) else f.lit(False)
    counted = partitions.agg(
        f.count(f.lit(1)).alias("all"),
        f.count_if(f.expr(enough)).alias("known"),
        f.count_if(f.expr(enough) & f.col("min_isr").isNull() & ~is_said).alias("defaulted"),
    ).first()
    assert counted is not None
    all_ = counted["all"] + only_named
    _check(source, counted["known"], all_)
    kept = partitions.where(enough)
    topology = topology_of(logs.marked(spark_engine.broker_usage(kept), back), assumed, away)
    return PreparedSnapshot(
        engine=SparkEngine(kept, topology, assumed, classes_here=classes_here, keeps=keeps),
        assumed=assumed,
        source=source,
        partitions=counted["known"],
        unknown=all_ - counted["known"],
        defaulted=counted["defaulted"],
        at_us=at_us,
    )


def of_logs(
    states: "DataFrame",
    absences: "DataFrame",
    deletions: "DataFrame | None",
    source: str,
    assumed: Assumptions,
    *,
    at: datetime.datetime | None = None,
    end_us: int | None = None,
    named: "DataFrame | None" = None,
    classes_here: int = CLASSES_HERE,
) -> PreparedSnapshot:
    """Prepare a snapshot from the tables of an ingest.

    Args:
        at: time of the snapshot; None for the end of the logs, which is `end_us` if known.
        named: the table `timed`; partitions that are named only in its lines count as unknown.

    Raises:
        BadSnapshot: there is no partition with known leader, replicas and ISR at that time.
    """
    found = logs.partitions(states, deletions, at).persist()
    gone = logs.away(absences, at)
    at_us = end_us if at is None else round(at.timestamp() * 1_000_000)
    back = logs.returned(found, gone)
    only_named = 0 if named is None else logs.only_named(named, states, deletions, at)
    return of_frame(
        found,
        source,
        assumed,
        away=frozenset(gone),
        back=back,
        at_us=at_us,
        classes_here=classes_here,
        keeps=[found],
        only_named=only_named,
    )


def _check(source: str, known: int, all_: int) -> None:
    if known:
        return
    if not all_:
        raise BadSnapshot(source, "nothing is known of any partition then: name a later time, or another snapshot")
    raise BadSnapshot(
        source,
        f"{Coverage.of(known=0, unknown=all_).stated}: no line has both replicas and ISR of one; logs at TRACE "
        "have them, and `kafka-topics.sh --describe` as --snapshot has",
    )
