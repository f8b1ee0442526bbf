"""Prepared snapshot: an engine over the partitions of a cluster, its brokers, and the number of unknown partitions."""

import dataclasses

import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.coverage import Coverage

from .engine import Engine, LocalEngine, broker_usage
from .partitions import Assumptions, BadSnapshot
from .topology import BrokerUsage, topology_of


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
    check_known(source, len(known), len(table))
    topology = topology_of((BrokerUsage(**row) for row in broker_usage(known).to_pylist()), assumed)
    is_given = pc.is_in(known["topic"], pa.array(topics_with_min_isr(assumed), pa.string()))
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


def topics_with_min_isr(assumed: Assumptions) -> list[str]:
    """Return the topics whose min.insync.replicas is given."""
    return [name for name, facts in assumed.topics.items() if facts.min_isr is not None]


def check_known(source: str, known: int, all_: int) -> None:
    """Raise BadSnapshot if no partition is known."""
    if known:
        return
    if not all_:
        raise BadSnapshot(source, "no partition is known at that time: name a later time, or another snapshot")
    raise BadSnapshot(
        source,
        f"{Coverage.of(known=0, unknown=all_).stated}: no line has the replicas and the ISR of a partition; logs "
        "at TRACE have them, and so has the output of `kafka-topics.sh --describe` as --snapshot",
    )
