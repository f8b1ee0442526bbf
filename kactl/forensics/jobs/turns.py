"""What each broker says of its log of a partition, in turns: from one line of taking a role (B4, B5, B6) to its next.

    B5 follows, epoch 3 ─ cut ─ B4 leads, epoch 4 ─ ISR shrunk ─ ISR updated ─ B5 follows, epoch 6 ─ cut
    └───────── turn 1 ────────┘└─────────────────── turn 2 ─────────────────┘└──────── turn 3 ────────┘

Everything in a turn was written by one broker, so that one clock orders it; between brokers epochs do.

A broker never goes back to an older epoch of a partition, unless that is another partition: a topic that was deleted
and made again, of which no controller's log tells. Such partitions are left out: nothing says which lines are of which.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.events import Column

from .job import IDS, INT, LONG, TEXT, TIME, Job
from .lines import is_a

COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", INT, "the partition's number"),
    Column("life", INT, "which topic of this name; see `timed`"),
    Column("broker", INT, "the broker, which speaks of itself"),
    Column("turn", INT, "its number, from 1 on; 0 for what it says before its first role is known"),
    Column("role", TEXT, "leads or follows; this and the next six are null in turn 0"),
    Column("epoch", INT, "the leader epoch"),
    Column("log_end", LONG, "its log end offset as it took the role"),
    Column("high_watermark", LONG, "its high watermark then; null if the line does not say (2.3 and before)"),
    Column("prev_epoch", INT, "the leader epoch before, as it remembers; -1 after it was started; null if not said"),
    Column("at", TIME, "when it took the role"),
    Column("cut_to", LONG, "the shortest that its log was cut to; null if it does not say that it was"),
    Column("cut_at", TIME, "when"),
    Column("cut_format", TEXT, "the format of the line that says so"),
    Column("later_end", LONG, "the highest log end offset that it tells of as its ISR shrinks"),
    Column("later_end_at", TIME, "when"),
    Column("later_watermark", LONG, "the highest high watermark that it tells of then"),
    Column("in_sync", IDS, "whom its ISR held after it had changed; empty if it never did"),
)
KEY: Final = ("topic", "partition", "life")
# Two lines are one, in two files, if they agree in all of these.
_SAME: Final = (
    *KEY,
    "broker",
    "type",
    "format",
    "at",
    "leader_epoch",
    "log_end",
    "high_watermark",
    "prev_leader_epoch",
    "isr",
    "topic_id",
)


def turns(timed: DataFrame) -> DataFrame:
    """One row for each turn of each broker in each partition."""
    lines = _lines(timed)
    own = Window.partitionBy(*KEY, "broker").orderBy("at", f.col("is_role").desc(), "leader_epoch")
    before = own.rowsBetween(Window.unboundedPreceding, -1)
    until_now = own.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    partition = Window.partitionBy(*KEY)
    epoch = f.when(f.col("is_role"), f.col("leader_epoch"))
    numbered = (
        lines.withColumn("went_back", f.coalesce(epoch < f.max(epoch).over(before), f.lit(False)))
        .withColumn("turn", f.sum(f.col("is_role").cast("int")).over(until_now))
        .withColumn("is_two", f.max("went_back").over(partition) | _differ("topic_id", partition))
        .where("not is_two")
    )
    return numbered.groupBy(*KEY, "broker", "turn").agg(*_summed()).select(*_columns())


def _lines(timed: DataFrame) -> DataFrame:
    """The lines that count, each once."""
    roles = is_a(EventType.LEADS, EventType.FOLLOWS)
    others = is_a(EventType.ISR_SHRUNK, EventType.ISR_EXPANDED, EventType.ISR_UPDATED, EventType.TRUNCATED)
    whose = f.col("topic").isNotNull() & f.col("partition").isNotNull() & f.col("speaker").isNotNull()
    # Roles of which the line lost its numbers say nothing here.
    told = (roles & f.col("leader_epoch").isNotNull() & f.col("log_end").isNotNull()) | others
    return (
        timed.where(told & whose & (f.col("role") == Role.BROKER) & f.col("at").isNotNull())
        .withColumn("broker", f.col("speaker"))
        .select(*_SAME)
        # Once by partition: all that follows is by partition, or by less.
        .repartition(*KEY)
        .dropDuplicates()
        .withColumn("is_role", roles)
    )


def _differ(name: str, window: WindowSpec) -> Value:
    return f.coalesce(f.min(name).over(window) != f.max(name).over(window), f.lit(False))


def _summed() -> list[Value]:
    begun = f.struct("at", "type", "leader_epoch", "log_end", "high_watermark", "prev_leader_epoch")
    let_in = is_a(EventType.ISR_EXPANDED, EventType.ISR_UPDATED) & f.col("isr").isNotNull()
    shrunk = is_a(EventType.ISR_SHRUNK)
    return [
        f.max(f.when(f.col("is_role"), begun)).alias("begun"),
        f.min(f.when(is_a(EventType.TRUNCATED), f.struct("log_end", "at", "format"))).alias("cut"),
        f.max(f.when(shrunk & f.col("log_end").isNotNull(), f.struct("log_end", "at"))).alias("later"),
        f.max(f.when(shrunk, f.col("high_watermark"))).alias("later_watermark"),
        f.array_distinct(f.flatten(f.collect_set(f.when(let_in, f.col("isr"))))).alias("in_sync"),
    ]


def _columns() -> list[Value]:
    found = {
        "role": f.col("begun.type"),
        "epoch": f.col("begun.leader_epoch"),
        "log_end": f.col("begun.log_end"),
        "high_watermark": f.col("begun.high_watermark"),
        # The one before is always an older one. Followers of 3.9 have noted the new one by then, and name that.
        "prev_epoch": f.when(
            f.col("begun.prev_leader_epoch") < f.col("begun.leader_epoch"), f.col("begun.prev_leader_epoch")
        ),
        "at": f.col("begun.at"),
        "cut_to": f.col("cut.log_end"),
        "cut_at": f.col("cut.at"),
        "cut_format": f.col("cut.format"),
        "later_end": f.col("later.log_end"),
        "later_end_at": f.col("later.at"),
        "turn": f.col("turn").cast("int"),
    }
    return [found.get(each.name, f.col(each.name)).alias(each.name) for each in COLUMNS]


def starts(turns: DataFrame) -> DataFrame:
    """One row for each epoch whose leader says where its log ended as it began.

    Returns:
        topic, partition, life, epoch, leader, led_at, and:
        log_end: the lowest, if the leader began more than once.
        watermark: the highest that it knew of in this epoch. in_sync: as in `turns`.
        had: the furthest that its log is known to have come in this epoch: end, replica, at, cut_to.
        next: epoch, leader and log_end of the next one that is known; null for the last.
    """
    end = f.greatest("log_end", "later_end")
    grown = f.col("later_end") > f.col("log_end")
    had = f.struct(
        end.alias("end"),
        f.col("broker").alias("replica"),
        f.when(grown, f.col("later_end_at")).otherwise(f.col("at")).alias("at"),
        "cut_to",
    )
    one = (
        turns.where(f.col("role") == EventType.LEADS)
        .groupBy(*KEY, "epoch")
        .agg(
            f.min_by("broker", "log_end").alias("leader"),
            f.min("at").alias("led_at"),
            f.min("log_end").alias("log_end"),
            f.max(f.greatest("high_watermark", "later_watermark")).alias("watermark"),
            f.flatten(f.collect_list("in_sync")).alias("in_sync"),
            f.max(had).alias("had"),
        )
    )
    in_order = Window.partitionBy(*KEY).orderBy("epoch")
    return one.withColumn("next", f.lead(f.struct("epoch", "leader", "log_end")).over(in_order))


JOB: Final = Job(
    name="turns",
    says="What brokers say of their logs as they lead or follow.",
    needs=("timed",),
    columns=COLUMNS,
    run=turns,
)
