"""Prepared snapshot: an engine over the partitions of a cluster, its brokers, and the number of unknown partitions."""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.coverage import Coverage

from . import engine, spark_engine
from .engine import Engine, LocalEngine
from .partitions import Assumptions, BadSnapshot
from .snapshots import logs
from .spark_engine import CLASSES_HERE, SparkEngine
from .topology import topology_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    known = table.filter(pc.fill_null(useful, False))
    _check(source, len(known), len(table))
    topology = topology_of(engine.broker_usage(known), assumed)
    is_given = pc.is_in(known["topic"], pa.array(_topics_with_min_isr(assumed), pa.string()))
    defaulted = pc.and_(pc.is_null(known["min_isr"]), pc.invert(is_given))
    return PreparedSnapshot(
        engine=LocalEngine(known, topology, assumed),
        assumed=assumed,
        source=source,
        partitions=len(known),
        unknown=len(table) - len(known),
        defaulted=int(pc.sum(defaulted).as_py() or 0),
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
    topics = _topics_with_min_isr(assumed)
    is_given = f.col("topic").isin(topics) if topics else f.lit(False)
    counted = partitions.agg(
        f.count(f.lit(1)).alias("all"),
        f.count_if(f.expr(enough)).alias("known"),
        f.count_if(f.expr(enough) & f.col("min_isr").isNull() & ~is_given).alias("defaulted"),
    ).first()
    assert counted is not None
    all_ = counted["all"] + only_named
    _check(source, counted["known"], all_)
    known = partitions.where(enough)
    usages = [dataclasses.replace(usage, back=usage.broker in back) for usage in spark_engine.broker_usage(known)]
    topology = topology_of(usages, assumed, away)
    return PreparedSnapshot(
        engine=SparkEngine(known, topology, assumed, classes_here=classes_here, keeps=keeps),
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
    partitions = logs.partitions(states, deletions, at).persist()
    gone = logs.away(absences, at)
    at_us = end_us if at is None else round(at.timestamp() * 1_000_000)
    back = logs.returned(partitions, gone)
    only_named = 0 if named is None else logs.only_named(named, states, deletions, at)
    return of_frame(
        partitions,
        source,
        assumed,
        away=frozenset(gone),
        back=back,
        at_us=at_us,
        classes_here=classes_here,
        keeps=[partitions],
        only_named=only_named,
    )


def _topics_with_min_isr(assumed: Assumptions) -> list[str]:
    return [name for name, facts in assumed.topics.items() if facts.min_isr is not None]


def _check(source: str, known: int, all_: int) -> None:
    if known:
        return
    if not all_:
        raise BadSnapshot(source, "no partition is known at that time: name a later time, or another snapshot")
    raise BadSnapshot(
        source,
        f"{Coverage.of(known=0, unknown=all_).stated}: no line has the replicas and the ISR of a partition; logs "
        "at TRACE have them, and so has the output of `kafka-topics.sh --describe` as --snapshot",
    )
