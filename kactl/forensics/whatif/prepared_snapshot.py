"""A snapshot, made ready to be asked: its partitions, its brokers, and what is not known of it."""

import dataclasses
import datetime
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.coverage import Coverage

from . import local_engine as here
from . import spark_engine as in_spark
from .engine import Plan, Who
from .failure_model import Sums
from .local_engine import Here, Lost
from .partitions import Assumed, BadSnapshot
from .snapshots import logs
from .spark_engine import CLASSES_HERE, InSpark
from .topology import World, world_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


class Engine(Protocol):
    """What sums up: `Here` or `InSpark`.

    Attributes:
        where: where sums are made: here, or by Spark.
        classes, topics: how many there are.
        stuck: partitions without a leader although somebody seems to be alive who could lead.
    """

    world: World
    classes: int
    stuck: float

    @property
    def where(self) -> str: ...

    @property
    def topics(self) -> int: ...

    def sums(self, plan: Plan) -> Sums: ...

    def lost(self, sets: "Sequence[Who]") -> list[Lost]: ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """A snapshot that can be asked.

    Attributes:
        partitions: those that are looked at.
        unknown: those that are not: their leader, replicas or ISR are not known.
        at_us: of what time it is; None if it does not say.
        defaulted: partitions of which min.insync.replicas is assumed.
        notes: what to know of the snapshot.
    """

    engine: Engine
    assumed: Assumed
    source: str
    partitions: int
    unknown: int
    defaulted: int
    at_us: int | None = None
    notes: tuple[str, ...] = ()


def of_table(table: pa.Table, source: str, assumed: Assumed, notes: tuple[str, ...] = ()) -> Ready:
    """From partitions in this process.

    Raises:
        BadSnapshot: there is none of which enough is known.
    """
    useful = pc.and_(pc.greater(pc.list_value_length(table["replicas"]), 0), table["isr"].is_valid())
    useful = pc.and_(useful, table["leader"].is_valid())
    kept = table.filter(pc.fill_null(useful, False))
    _check(source, len(kept), len(table))
    world = world_of(here.roles(kept), assumed)
    said = [name for name, facts in assumed.topics.items() if facts.min_isr is not None]
    silent = pc.and_(pc.is_null(kept["min_isr"]), pc.invert(pc.is_in(kept["topic"], pa.array(said, pa.string()))))
    return Ready(
        engine=Here(kept, world, assumed),
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
    assumed: Assumed,
    *,
    away: "frozenset[int]" = frozenset(),
    back: "frozenset[int]" = frozenset(),
    at_us: int | None = None,
    classes_here: int = CLASSES_HERE,
    keeps: "Sequence[DataFrame]" = (),
    only_named: int = 0,
) -> Ready:
    """From partitions that Spark has. They are read several times: keep them.

    Args:
        away: who is away, as the logs say; `back`: those of them that came back since.
        only_named: partitions of which nothing but the name is known; they are not in `partitions`.
        keeps: what Spark keeps for it, and may let go when the engine is closed.

    Raises:
        BadSnapshot: there is no partition of which enough is known.
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
    world = world_of(logs.marked(in_spark.roles(kept), back), assumed, away)
    return Ready(
        engine=InSpark(kept, world, assumed, classes_here=classes_here, keeps=keeps),
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
    assumed: Assumed,
    *,
    at: datetime.datetime | None = None,
    end_us: int | None = None,
    named: "DataFrame | None" = None,
    classes_here: int = CLASSES_HERE,
) -> Ready:
    """From the tables of an ingest.

    Args:
        at: of what time; None for where the logs end, which is `end_us` if that is known.
        named: the table `timed`; partitions that only its lines name count as unknown.

    Raises:
        BadSnapshot: nothing is known of any partition at that time.
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
