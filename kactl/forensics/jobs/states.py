"""Every state of a partition that the logs know of: who led, in which epoch, with whom in sync.

    lines ─▶ what each says, once ─▶ epochs for those without ─▶ one row for each state ─▶ who was assigned

A state has two numbers: the leader epoch, and the partition epoch, which rises with every change of the ISR as well.
Most lines have both. The leader's "ISR updated" has no leader epoch: it is that of the state with the highest partition
epoch before it, if the one who says it led then. What brokers said before 3.x has no partition epoch: it is about the
first state of its leader epoch, which is what they are sent. Up to 1.0 controllers named a leader without any number;
the state they sent a moment later has it.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.events import Column

from . import kraft
from .job import IDS, INT, LONG, TEXT, TEXTS, TIME, Job
from .lines import NEW, ONLINE, is_a

COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", INT, "the partition's number"),
    Column("life", INT, "which topic of this name; see `timed`"),
    Column("leader_epoch", INT, "the leader epoch; null if no line says or implies it"),
    Column("partition_epoch", INT, "version of the stored state; null where no line has it (1.0 and before)"),
    Column("leader", INT, "who leads; -1 nobody, -2 the partition is being deleted"),
    Column("isr", IDS, "who is in sync, in the order written; null if no line says it"),
    Column("replicas", IDS, "who is assigned, as far as known at that time"),
    Column("recovery", TEXT, "RECOVERED or RECOVERING, from 3.2 on"),
    Column("at", TIME, "when it came to be: the earliest line of it, the controller's before the brokers'"),
    Column("at_error_us", LONG, "by how much `at` may be wrong, either way"),
    Column("told_by", TEXT, "controller if the line with which one made it dates it; else broker: it may be older"),
    Column("controller", INT, "the controller that made it; if told_by broker, the one that sent it first"),
    Column("controller_epoch", INT, "its epoch"),
    Column("from_state", TEXT, "the partition's state before, if the line has it"),
    Column("formats", TEXTS, "the formats of the lines that tell of it, ascending"),
)
DELETED: Final = -2
_KEY: Final = ("topic", "partition", "life")
_VALUES: Final = ("leader", "isr", "replicas", "recovery", "from_state", "controller", "controller_epoch")
# How good a line is to date a state by: made with it, or heard of it.
_MADE, _HEARD = 0, 1
# Up to 1.0 the state is sent within the same event in which the leader was named.
_SENT_WITHIN_US: Final = 60_000_000


def states(timed: DataFrame) -> DataFrame:
    """One row for each state; of a state without any number, one for each line."""
    said = _said(timed)
    numbered = _with_partition_epochs(_with_leader_epochs(said))
    known = _kept(_one_each(numbered))
    told_by = f.when(f.col("rank") == _MADE, Role.CONTROLLER.value).otherwise(Role.BROKER.value)
    return (
        known.where(~f.col("only_assigned"))
        .withColumns({"at": f.timestamp_micros("at_us"), "told_by": told_by, "formats": f.array_sort("formats")})
        .select(*(each.name for each in COLUMNS))
    )


# -- what lines say ----------------------------------------------------------------------------------------------------


def _said(timed: DataFrame) -> DataFrame:
    """What lines say of states, each once with the earliest time: many lines say the same, one for each broker.

    On top: `rank`, `format`, `deleted`, `is_isr_change`; `speaker`, who must have led for it to be true; `unchanged`,
    whether null means "as before"; `only_assigned`, whether it is no state but an assignment; `unnumbered_us`, which
    keeps what has no number apart.
    """
    lines = _lines(timed).unionByName(_records(timed))
    keys = [name for name in lines.columns if name != "at_us"]
    once = lines.groupBy(*keys).agg(f.min("at_us").alias("at_us"))
    has_number = f.col("leader_epoch").isNotNull() | f.col("partition_epoch").isNotNull()
    return once.withColumns(
        {
            "deleted": f.coalesce(f.col("leader") == DELETED, f.lit(False)),
            "unnumbered_us": f.when(~has_number, f.col("at_us")),
        }
    )


def _lines(timed: DataFrame) -> DataFrame:
    online = is_a(EventType.PARTITION) & (f.col("to_state") == ONLINE)
    assigned = is_a(EventType.PARTITION) & (f.col("to_state") == NEW) & f.col("replicas").isNotNull()
    by_leader = is_a(EventType.ISR_UPDATED) & (f.col("role") == Role.BROKER)
    in_log = is_a(EventType.LEADERSHIP, EventType.PARTITION_CREATED) & (f.col("kind") != Kind.DUMP)
    made = (
        online
        | in_log
        | is_a(EventType.ISR_CUT, EventType.EPOCH_RAISED)
        | (is_a(EventType.ISR_UPDATED) & (f.col("role") == Role.CONTROLLER))
    )
    sent = is_a(EventType.SENT_PARTITION, EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION)
    carries = f.col("request").isNull() | (f.col("request") != "STOP_REPLICA")
    heard = (sent & carries & f.col("leader").isNotNull()) | is_a(EventType.LEADS, EventType.FOLLOWS) | by_leader
    of_partitions = f.col("topic").isNotNull() & f.col("partition").isNotNull() & f.col("at").isNotNull()
    leader = f.when(is_a(EventType.LEADS) | by_leader, f.col("speaker")).otherwise(f.col("leader"))
    return timed.where(of_partitions & (made | heard | assigned)).select(
        *_KEY,
        f.when(~assigned, f.col("leader_epoch")).alias("leader_epoch"),
        f.when(~assigned, f.col("partition_epoch")).alias("partition_epoch"),
        f.when(~assigned, leader).alias("leader"),
        f.when(~assigned, f.col("isr")).alias("isr"),
        "replicas",
        "recovery",
        f.when(online, f.col("from_state")).alias("from_state"),
        "controller",
        "controller_epoch",
        f.when(made & ~_is_from_snapshot(), _MADE).otherwise(_HEARD).alias("rank"),
        f.unix_micros("at").alias("at_us"),
        "at_error_us",
        f.when(by_leader, f.col("speaker")).alias("speaker"),
        is_a(EventType.ISR_UPDATED).alias("is_isr_change"),
        (in_log & is_a(EventType.LEADERSHIP)).alias("unchanged"),
        "prev_partition_epoch",
        assigned.alias("only_assigned"),
        "format",
    )


def _records(timed: DataFrame) -> DataFrame:
    """The metadata log's, of which each is whole."""
    nobody = f.lit(None).cast("int")
    return kraft.filled(timed).select(
        *_KEY,
        "leader_epoch",
        "partition_epoch",
        "leader",
        "isr",
        "replicas",
        "recovery",
        f.lit(None).cast("string").alias("from_state"),
        nobody.alias("controller"),
        nobody.alias("controller_epoch"),
        f.when(_is_from_snapshot(), _HEARD).otherwise(_MADE).alias("rank"),
        f.unix_micros("at").alias("at_us"),
        "at_error_us",
        nobody.alias("speaker"),
        f.lit(False).alias("is_isr_change"),
        f.lit(False).alias("unchanged"),
        nobody.alias("prev_partition_epoch"),
        f.lit(False).alias("only_assigned"),
        "format",
    )


def _is_from_snapshot() -> Value:
    """Partitions are created with both epochs 0; a snapshot creates them again, as they are by then."""
    return is_a(EventType.PARTITION_CREATED) & ((f.col("leader_epoch") > 0) | (f.col("partition_epoch") > 0))


# -- numbers -----------------------------------------------------------------------------------------------------------


def _with_leader_epochs(said: DataFrame) -> DataFrame:
    """Leader epochs for what has only a partition epoch, or nothing but the time."""
    by_version = Window.partitionBy(*_KEY, f.col("partition_epoch").isNull()).orderBy("partition_epoch")
    by_time = Window.partitionBy(*_KEY).orderBy("at_us")
    backwards = Window.partitionBy(*_KEY).orderBy(f.desc("at_us"))
    has_epoch = f.col("leader_epoch").isNotNull() & ~f.col("deleted")
    numbered = f.when(has_epoch, f.struct("leader_epoch", "leader", "at_us"))
    # A frame holds what has the same number or time as well.
    seen = said.withColumns(
        {
            "of_version": f.last(numbered, ignorenulls=True).over(by_version),
            "of_time": f.last(numbered, ignorenulls=True).over(by_time),
            "unversioned": f.last(f.when(f.col("partition_epoch").isNull(), numbered), ignorenulls=True).over(by_time),
            "later": f.last(f.when(f.col("leader").isNotNull(), numbered), ignorenulls=True).over(backwards),
        }
    )
    is_named_only = f.col("unnumbered_us").isNotNull() & (f.col("rank") == _MADE)
    is_sent_next = (f.col("later.leader") == f.col("leader")) & (
        f.col("later.at_us") - f.col("at_us") <= _SENT_WITHIN_US
    )
    # What has no version cannot be seen by version; that it came before is all that can be said.
    versioned = f.greatest(_if_it_led("of_version"), _if_it_led("unversioned"))
    seen_last = f.when(f.col("partition_epoch").isNotNull(), versioned).otherwise(_if_it_led("of_time"))
    found = f.when(is_named_only, f.when(is_sent_next, f.col("later.leader_epoch"))).otherwise(seen_last)
    epoch = f.when(~f.col("only_assigned"), f.coalesce("leader_epoch", found))
    return seen.withColumn("leader_epoch", epoch).drop("of_version", "of_time", "unversioned", "later")


def _if_it_led(seen: str) -> Value:
    """The leader epoch of a state that was seen, unless somebody else led in it than the one who speaks."""
    other = f.col("speaker").isNotNull() & f.col(f"{seen}.leader").isNotNull()
    return f.when(~other | (f.col("speaker") == f.col(f"{seen}.leader")), f.col(f"{seen}.leader_epoch"))


def _with_partition_epochs(numbered: DataFrame) -> DataFrame:
    """What has only a leader epoch is about the first state of it, as far as that is known: not a change of its ISR."""
    of_epoch = Window.partitionBy(*_KEY, "leader_epoch", "deleted")
    first = f.min(f.when(~f.col("is_isr_change"), f.col("partition_epoch"))).over(of_epoch)
    lent = f.col("partition_epoch").isNull() & f.col("leader_epoch").isNotNull() & ~f.col("only_assigned")
    return numbered.withColumns(
        {
            "lent": lent,
            "partition_epoch": f.when(lent, first).otherwise(f.col("partition_epoch")),
            "unnumbered_us": f.when(f.col("leader_epoch").isNull(), f.col("unnumbered_us")),
        }
    )


def _one_each(rows: DataFrame) -> DataFrame:
    """One row for each pair of numbers, with the best that lines say of each value: those with their own number before
    those that were lent one, those that made the state before those that heard of it, and the earliest of them."""
    order = f.struct("lent", "rank", "at_us")
    dated = f.struct("rank", "at_us", "at_error_us")
    once = rows.groupBy(*_KEY, "leader_epoch", "partition_epoch", "deleted", "only_assigned", "unnumbered_us").agg(
        f.min(dated).alias("dated"),
        f.collect_set("format").alias("formats"),
        f.bool_and("unchanged").alias("unchanged"),
        f.max("prev_partition_epoch").alias("prev_partition_epoch"),
        *(f.min_by(name, f.when(f.col(name).isNotNull(), order)).alias(name) for name in _VALUES),
    )
    return once.select("*", "dated.*").drop("dated")


# -- what stays as it was ----------------------------------------------------------------------------------------------


def _kept(rows: DataFrame) -> DataFrame:
    """Assignments hold until another one is told; of KRaft's changes, so does what they do not name."""
    by_time = Window.partitionBy(*_KEY).orderBy("at_us")
    epoch = f.coalesce("leader_epoch", f.max("leader_epoch").over(by_time), f.lit(-1))
    rows = rows.withColumn("in_epoch", epoch)
    order = Window.partitionBy(*_KEY).orderBy(f.desc("only_assigned"), "in_epoch", "partition_epoch", "at_us")
    follows = f.col("unchanged") & (f.col("version_before") == f.col("prev_partition_epoch"))
    chained = rows.withColumns(
        {
            "version_before": f.lag("partition_epoch").over(order),
            "replicas": f.last("replicas", ignorenulls=True).over(order),
        }
    ).withColumn("chain", f.count(f.when(~f.coalesce(follows, f.lit(False)), 1)).over(order))
    # A change may follow another one that did not name it either: what holds is what was named last, unless changes are
    # missing between.
    unbroken = Window.partitionBy(*_KEY, "chain").orderBy("in_epoch", "partition_epoch")
    held = {
        name: f.when(f.col("unchanged"), f.last(name, ignorenulls=True).over(unbroken)).otherwise(f.col(name))
        for name in ("leader", "isr", "recovery")
    }
    return chained.withColumns(held)


JOB: Final = Job(
    name="states",
    says="Every state of a partition that the logs know of: who led, in which epoch, with whom in sync.",
    needs=("timed",),
    columns=COLUMNS,
    run=states,
)
