"""Arrow tables of partitions as snapshots: what they lack is assumed, and their columns become those of the engine."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kactl.decide.state.rows import Ints
from kactl.decide.state.table import in_sync_of
from kactl.decide.whatif.assumptions import Assumptions
from kactl.decide.whatif.classes import FREE, PartitionColumns
from kactl.decide.whatif.coverage import Coverage
from kactl.decide.whatif.engine import Engine
from kactl.decide.whatif.prepared_snapshot import PreparedSnapshot
from kactl.decide.whatif.topology import BrokerUsage, Topology, topology_of
from kactl.forensics.columns import columns, schema
from kactl.model.errors import BadRequest

COLUMNS: Final = columns(
    """
    topic      text  the topic
    partition  id    the partition's number
    leader     id    the leader; -1 for none
    replicas   ids   assigned brokers, the preferred leader first
    isr        ids   in-sync replicas, in any order
    elr        ids   KRaft: eligible leader replicas, which may lead without loss; null if there are none
    min_isr    int   the topic's min.insync.replicas; null if it is not known
    unclean    bool  the topic's unclean.leader.election.enable; null if it is not known
    weight     real  its part of its leader's load; null if it is not known
    """
)
SCHEMA: Final = schema(COLUMNS)
REQUIRED: Final = ("topic", "partition", "leader", "replicas", "isr")

# Key of a class. Partitions with the same key behave equally in every failure.
SIGNATURE: Final = ("leader", "replicas", "isr", "elr", "min_isr", "unclean")
GROUPED: Final = pa.schema(
    [
        *(SCHEMA.field(name) for name in SIGNATURE),
        pa.field("partitions", pa.int64()),
        pa.field("weight", pa.float64()),
    ]
)

# The same for single partitions, with their topics.
FILLED: Final = pa.schema([SCHEMA.field("topic"), *GROUPED])
USAGE: Final = pa.schema([("broker", pa.int32()), *((name, pa.int64()) for name in ("assigned", "leads", "in_sync"))])


class BadSnapshot(BadRequest):
    """A snapshot cannot be used; `field` is the file and, if known, the line."""


def of_table(
    table: pa.Table,
    source: str,
    assumed: Assumptions,
    notes: tuple[str, ...] = (),
    *,
    away: frozenset[int] = frozenset(),
    at_us: int | None = None,
    only_named: int = 0,
) -> PreparedSnapshot:
    """Prepare a snapshot from partitions in memory.

    Args:
        away: brokers that are down according to the logs.
        only_named: number of partitions of which only the name is known; they are not in `table`.

    Raises:
        BadSnapshot: there is no partition with known leader, replicas and ISR.
    """
    useful = pc.and_(pc.greater(pc.list_value_length(table["replicas"]), 0), table["isr"].is_valid())
    useful = pc.and_(useful, table["leader"].is_valid())
    known = table.filter(pc.fill_null(useful, False))
    all_ = len(table) + only_named
    check_known(source, len(known), all_)
    topology = topology_of((BrokerUsage(**row) for row in broker_usage(known).to_pylist()), assumed, away)
    is_given = pc.is_in(known["topic"], pa.array(topics_with_min_isr(assumed), pa.string()))
    defaulted = pc.and_(pc.is_null(known["min_isr"]), pc.invert(is_given))
    return PreparedSnapshot(
        engine=engine_of(known, topology, assumed),
        assumed=assumed,
        source=source,
        partitions=len(known),
        unknown=all_ - len(known),
        defaulted=int(pc.sum(defaulted).as_py() or 0),
        at_us=at_us,
        notes=notes,
    )


def topics_with_min_isr(assumed: Assumptions) -> list[str]:
    """Return the topics with a given min.insync.replicas."""
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


def engine_of(table: pa.Table, topology: Topology, assumed: Assumptions) -> Engine:
    """Return an engine over a table.

    Args:
        table: the columns of `SCHEMA`; only `elr`, `min_isr`, `unclean` and `weight` may be null.
    """
    topics = table["topic"].combine_chunks().dictionary_encode()
    columns = columns_of(filled(table, assumed))
    return Engine(columns, topics.indices.to_numpy(), topics.dictionary.to_pylist(), topology)


def filled(table: pa.Table, assumed: Assumptions) -> pa.Table:
    """Return one class per partition, in the columns of `FILLED`; unknown topic settings are as assumed."""
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


def columns_of(table: pa.Table) -> PartitionColumns:
    """Return the columns of a table that has those of `GROUPED`; only `elr` may be null."""
    replicas, isr, elr = (padded(table[name]) for name in ("replicas", "isr", "elr"))
    return PartitionColumns(
        replicas=replicas,
        in_sync=in_sync_of(replicas, isr),
        eligible=in_sync_of(replicas, elr),
        leader=table["leader"].to_numpy(),
        unclean=table["unclean"].to_numpy(zero_copy_only=False),
        min_isr=table["min_isr"].to_numpy(),
        partitions=table["partitions"].to_numpy().astype(np.float64),
        weight=table["weight"].to_numpy(),
    )


def padded(column: Any) -> Ints:
    """Return the lists of a column as int32[W, n], W >= 1: values from slot 0, then FREE. Null counts as empty."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):  # combining gives chunks where one array cannot hold all, or there are none
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    lengths = whole.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = whole.flatten().to_numpy(zero_copy_only=False)
    slots = np.full((max(1, int(lengths.max(initial=0))), len(whole)), FREE, np.int32)
    row = np.repeat(np.arange(len(whole)), lengths)
    slot = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    slots[slot, row] = values
    return slots
