"""Job `states`: every state of a partition in the logs: leader, epochs, ISR.

    lines ─▶ content of each, once ─▶ epochs for those without ─▶ one row for each state ─▶ assigned replicas

A state has two numbers: the leader epoch, and the partition epoch, which rises with every ISR change as well. Most
lines have both. The leader's "ISR updated" has no leader epoch: it belongs to the state with the highest partition
epoch before it, if the broker that wrote it led then. Before 3.x broker lines have no partition epoch: they describe
the first state of their leader epoch, which is the one that brokers are sent. Up to 1.0 controllers named a leader
without any number; the state that they sent a moment later has it.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, KEY_COLUMNS, columns, names_of
from kactl.forensics.event_types import EventType, Kind, Role

from .expressions import NEW, ONLINE, all_known, is_a, is_true, rows_of, stacked
from .job import Job

COLUMNS: Final = KEY_COLUMNS + columns(
    """
    leader_epoch      id     the leader epoch; null if no line states or implies it
    partition_epoch   id     version of the stored state; null where no line has it (1.0 and before)
    leader            id     the leader; -1 none, -2 the partition is being deleted
    isr               ids    in-sync replicas, in the order written; null if no line states them
    replicas          ids    assigned replicas, as far as known at that time
    recovery          text   RECOVERED or RECOVERING, from 3.2 on
    at                time   when it began: its earliest line, the controller's before the brokers'
    at_error_us       long   maximum error of `at` in either direction
    told_by           text   controller if its controller's own line dates it; else broker: it may be older
    controller        id     the controller that made it; if told_by is broker, the one that sent it first
    controller_epoch
    from_state        text   the partition's state before, if the line has it
    formats           texts  formats of the lines that contain it, ascending
    """
)
DELETED: Final = -2
_CHANGES: Final = ("leader", "isr", "replicas", "adding", "removing", "recovery", "leader_epoch", "partition_epoch")
_VALUES: Final = ("leader", "isr", "replicas", "recovery", "from_state", "controller", "controller_epoch")
# Rank of a line as the date of a state: written by the controller that made it, or by a receiver.
_MADE, _RECEIVED = 0, 1
# Up to 1.0 the state is sent within the same event that names the leader.
_SENT_WITHIN_US: Final = 60_000_000


def states(timed: DataFrame) -> DataFrame:
    """Returns one row for each state; for lines without any number, one for each line."""
    in_lines = _states_in_lines(timed)
    numbered = _with_partition_epochs(_with_leader_epochs(in_lines))
    known = _kept(_one_each(numbered))
    told_by = f.when(f.col("rank") == _MADE, Role.CONTROLLER.value).otherwise(Role.BROKER.value)
    return (
        known.where(~f.col("only_assigned"))
        .withColumns({"at": f.timestamp_micros("at_us"), "told_by": told_by, "formats": f.array_sort("formats")})
        .select(*names_of(COLUMNS))
    )


# -- states in lines---------------------------------------------------------------------------------------------------


def _states_in_lines(timed: DataFrame) -> DataFrame:
    """Return the states in lines, each once with the earliest time: many lines repeat a state, one for each broker.

    Adds: `rank`, `format`, `deleted`, `is_isr_change`; `speaker`, the broker that must have led for the line to apply;
    `unchanged`, whether null means "as before"; `only_assigned`, whether the line has only an assignment;
    `unnumbered_us`, which separates states without numbers.
    """
    lines = stacked(_lines(timed), _records(timed))
    keys = [name for name in lines.columns if name != "at_us"]
    once = lines.groupBy(*keys).agg(f.min("at_us").alias("at_us"))
    has_number = f.col("leader_epoch").isNotNull() | f.col("partition_epoch").isNotNull()
    return once.withColumns(
        {
            "deleted": is_true(f.col("leader") == DELETED),
            "unnumbered_us": f.when(~has_number, f.col("at_us")),
        }
    )


def _lines(timed: DataFrame) -> DataFrame:
    online = is_a(EventType.PARTITION) & (f.col("to_state") == ONLINE)
    assigned = is_a(EventType.PARTITION) & (f.col("to_state") == NEW) & f.col("replicas").isNotNull()
    by_leader = is_a(EventType.ISR_UPDATED) & (f.col("role") == Role.BROKER)
    in_log = is_a(EventType.LEADERSHIP, EventType.PARTITION_CREATED) & (f.col("kind") != Kind.DUMP)
    is_made = (
        online
        | in_log
        | is_a(EventType.ISR_CUT, EventType.EPOCH_RAISED)
        | (is_a(EventType.ISR_UPDATED) & (f.col("role") == Role.CONTROLLER))
    )
    sent = is_a(EventType.SENT_PARTITION, EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION)
    carries = f.col("request").isNull() | (f.col("request") != "STOP_REPLICA")
    is_received = (sent & carries & f.col("leader").isNotNull()) | is_a(EventType.LEADS, EventType.FOLLOWS) | by_leader
    of_partitions = all_known("topic", "partition", "at")
    leader = f.when(is_a(EventType.LEADS) | by_leader, f.col("speaker")).otherwise(f.col("leader"))
    return timed.where(of_partitions & (is_made | is_received | assigned)).select(
        *KEY,
        f.when(~assigned, f.col("leader_epoch")).alias("leader_epoch"),
        f.when(~assigned, f.col("partition_epoch")).alias("partition_epoch"),
        f.when(~assigned, leader).alias("leader"),
        f.when(~assigned, f.col("isr")).alias("isr"),
        "replicas",
        "recovery",
        f.when(online, f.col("from_state")).alias("from_state"),
        "controller",
        "controller_epoch",
        f.when(is_made & ~_is_from_snapshot(), _MADE).otherwise(_RECEIVED).alias("rank"),
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
    """States of the metadata log, each complete."""
    return complete_records(timed).select(
        *KEY,
        "leader_epoch",
        "partition_epoch",
        "leader",
        "isr",
        "replicas",
        "recovery",
        f.when(_is_from_snapshot(), _RECEIVED).otherwise(_MADE).alias("rank"),
        f.unix_micros("at").alias("at_us"),
        "at_error_us",
        f.lit(False).alias("is_isr_change"),
        f.lit(False).alias("unchanged"),
        f.lit(False).alias("only_assigned"),
        "format",
    )


def _is_from_snapshot() -> Value:
    """True for a creation from a snapshot: partitions are created with both epochs 0, and a snapshot creates them with
    their current epochs.
    """
    return is_a(EventType.PARTITION_CREATED) & ((f.col("leader_epoch") > 0) | (f.col("partition_epoch") > 0))


# -- records of KRaft's metadata log -----------------------------------------------------------------------------------


def complete_records(timed: DataFrame) -> DataFrame:
    """Return the records about partitions in KRaft's metadata log, each with the complete state after it.

    Records contain only changes and no epochs. A record that names a leader raises the leader epoch by one, even if the
    leader stays the same; every record raises the partition epoch by one. Both start from the creation record, or from
    a snapshot.

    Records that several dumps of the same log contain count once. Before any creation record the known fields are
    filled in. The column `raised` is added: whether the record raised the leader epoch.
    """
    is_created = is_a(EventType.PARTITION_CREATED)
    is_record = (f.col("kind") == Kind.DUMP) & (is_created | is_a(EventType.LEADERSHIP))
    records = timed.where(is_record & all_known("topic", "at"))
    once = records.groupBy(*KEY, "at", "type", *_CHANGES).agg(
        f.min(f.struct("file_id", "offset")).alias("place"),
        f.first("at_error_us").alias("at_error_us"),
        f.first("format").alias("format"),
    )
    order = rows_of(*KEY).in_order("at", "place")
    since = rows_of(*KEY, "creation").in_order("at", "place")
    counted = (
        once.withColumn("creation", order.so_far(f.count(f.when(is_created, 1))))
        .withColumns(
            {
                "base": since.so_far(f.first(f.when(is_created, f.struct("leader_epoch", "partition_epoch")))),
                "leaders": since.so_far(f.count(f.when(~is_created & f.col("leader").isNotNull(), 1))),
                "changes": since.so_far(f.count(f.when(~is_created, 1))),
                "raised": ~is_created & f.col("leader").isNotNull(),
            }
        )
        .withColumns(
            {
                "leader_epoch": f.col("base.leader_epoch") + f.col("leaders").cast("int"),
                "partition_epoch": f.col("base.partition_epoch") + f.col("changes").cast("int"),
            }
        )
    )
    carried = ("leader", "isr", "replicas", "adding", "removing", "recovery")
    return counted.withColumns({name: order.latest(name, with_equals=True) for name in carried}).drop(
        "base", "leaders", "changes", "creation", "place"
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def _with_leader_epochs(in_lines: DataFrame) -> DataFrame:
    """Add leader epochs to states that only have a partition epoch, or only a time."""
    by_version = rows_of(*KEY, f.col("partition_epoch").isNull()).in_order("partition_epoch")
    by_time = rows_of(*KEY).in_order("at_us")
    backwards = rows_of(*KEY).in_order(f.desc("at_us"))
    has_epoch = f.col("leader_epoch").isNotNull() & ~f.col("deleted")
    numbered = f.when(has_epoch, f.struct("leader_epoch", "leader", "at_us"))
    # A window frame includes rows of the same number or time.
    with_neighbours = in_lines.withColumns(
        {
            "of_version": by_version.latest(numbered, with_equals=True),
            "of_time": by_time.latest(numbered, with_equals=True),
            "unversioned": by_time.so_far(
                f.last(f.when(f.col("partition_epoch").isNull(), numbered), ignorenulls=True)
            ),
            "later": backwards.latest(f.when(f.col("leader").isNotNull(), numbered), with_equals=True),
        }
    )
    is_named_only = f.col("unnumbered_us").isNotNull() & (f.col("rank") == _MADE)
    is_sent_next = (f.col("later.leader") == f.col("leader")) & (
        f.col("later.at_us") - f.col("at_us") <= _SENT_WITHIN_US
    )
    # Without a partition epoch only the order of time is known.
    versioned = f.greatest(_if_it_led("of_version"), _if_it_led("unversioned"))
    seen_last = f.when(f.col("partition_epoch").isNotNull(), versioned).otherwise(_if_it_led("of_time"))
    epoch_found = f.when(is_named_only, f.when(is_sent_next, f.col("later.leader_epoch"))).otherwise(seen_last)
    epoch = f.when(~f.col("only_assigned"), f.coalesce("leader_epoch", epoch_found))
    return with_neighbours.withColumn("leader_epoch", epoch).drop("of_version", "of_time", "unversioned", "later")


def _if_it_led(state: str) -> Value:
    """The leader epoch of a seen state, unless another broker than the writer led in it."""
    other = f.col("speaker").isNotNull() & f.col(f"{state}.leader").isNotNull()
    return f.when(~other | (f.col("speaker") == f.col(f"{state}.leader")), f.col(f"{state}.leader_epoch"))


def _with_partition_epochs(numbered: DataFrame) -> DataFrame:
    """Add the partition epoch to states that only have a leader epoch: that of its first known state that is not an ISR
    change.
    """
    of_epoch = rows_of(*KEY, "leader_epoch", "deleted")
    first = of_epoch.over_all(f.min(f.when(~f.col("is_isr_change"), f.col("partition_epoch"))))
    lent = f.col("partition_epoch").isNull() & f.col("leader_epoch").isNotNull() & ~f.col("only_assigned")
    return numbered.withColumns(
        {
            "lent": lent,
            "partition_epoch": f.when(lent, first).otherwise(f.col("partition_epoch")),
            "unnumbered_us": f.when(f.col("leader_epoch").isNull(), f.col("unnumbered_us")),
        }
    )


def _one_each(rows: DataFrame) -> DataFrame:
    """Return one row for each pair of numbers with the best value of each column: lines with their own number before
    those with an inferred one, lines that made the state before those that received it, and the earliest of them.
    """
    order = f.struct("lent", "rank", "at_us")
    dated = f.struct("rank", "at_us", "at_error_us")
    once = rows.groupBy(*KEY, "leader_epoch", "partition_epoch", "deleted", "only_assigned", "unnumbered_us").agg(
        f.min(dated).alias("dated"),
        f.collect_set("format").alias("formats"),
        f.bool_and("unchanged").alias("unchanged"),
        f.max("prev_partition_epoch").alias("prev_partition_epoch"),
        *(f.min_by(name, f.when(f.col(name).isNotNull(), order)).alias(name) for name in _VALUES),
    )
    return once.select("*", "dated.*").drop("dated")


# -- what stays as it was ----------------------------------------------------------------------------------------------


def _kept(rows: DataFrame) -> DataFrame:
    """Carry assignments forward until the next one; for KRaft's changes, carry forward all fields that a change does
    not name.
    """
    by_time = rows_of(*KEY).in_order("at_us")
    epoch = f.coalesce("leader_epoch", by_time.so_far(f.max("leader_epoch")), f.lit(-1))
    rows = rows.withColumn("in_epoch", epoch)
    order = rows_of(*KEY).in_order(f.desc("only_assigned"), "in_epoch", "partition_epoch", "at_us")
    follows = f.col("unchanged") & (f.col("version_before") == f.col("prev_partition_epoch"))
    chained = rows.withColumns(
        {
            "version_before": order.previous("partition_epoch"),
            "replicas": order.latest("replicas", with_equals=True),
        }
    ).withColumn("chain", order.so_far(f.count(f.when(~is_true(follows), 1))))
    # A change may follow another one that did not name the field either: the last named value holds, unless changes are
    # missing between.
    unbroken = rows_of(*KEY, "chain").in_order("in_epoch", "partition_epoch")
    carried = {
        name: f.when(f.col("unchanged"), unbroken.latest(name, with_equals=True)).otherwise(f.col(name))
        for name in ("leader", "isr", "recovery")
    }
    return chained.withColumns(carried)


JOB: Final = Job(
    "states", "Every state of a partition in the logs: leader, epochs and in-sync replicas.", COLUMNS, states
)
