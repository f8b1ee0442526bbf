"""Job `turns`: each broker's log of a partition, in segments between role changes (B4, B5, B6).

    B5 follows, epoch 3 ─ cut ─ B4 leads, epoch 4 ─ ISR shrunk ─ ISR updated ─ B5 follows, epoch 6 ─ cut
    └───────── turn 1 ────────┘└─────────────────── turn 2 ─────────────────┘└──────── turn 3 ────────┘

All lines of a segment are written by one broker, so one clock orders them; epochs order segments of different brokers.

A broker never returns to an older epoch of a partition, unless the topic was deleted and created again without a line
of a controller. Such partitions are omitted, because their lines cannot be assigned to one of the topics.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, KEY_COLUMNS, columns
from kactl.forensics.event_types import EventType, Role

from .expressions import Group, all_known, is_a, is_true, rows_of
from .job import Job

COLUMNS: Final = KEY_COLUMNS + columns(
    """
    broker           id    the broker that wrote the lines
    turn             int   number of the segment, from 1; 0 for lines before the first known role
    role             text  leads or follows; this and the next six are null in turn 0
    epoch            id    the leader epoch
    log_end          long  its log end offset when it took the role
    high_watermark   long  its high watermark then; null if the line does not have it (2.3 and before)
    prev_epoch       id    the previous leader epoch that it logged; -1 after a start; null if not logged
    at               time  when it took the role
    cut_to           long  lowest offset that its log was truncated to; null if no line states a truncation
    cut_at           time  when
    cut_format       text  format of the line that states it
    later_end        long  highest log end offset that it logged when its ISR shrank
    later_end_at     time  when
    later_watermark  long  highest high watermark that it logged then
    in_sync          ids   members of its ISR after changes; empty if it never changed
    """
)
# Lines of two files are the same line if they agree in all of these.
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


def log_segments(timed: DataFrame) -> DataFrame:
    """Returns one row for each segment of each broker in each partition."""
    lines = _lines(timed)
    own = rows_of(*KEY, "broker").in_order("at", f.col("is_role").desc(), "leader_epoch")
    partition = rows_of(*KEY)
    epoch = f.when(f.col("is_role"), f.col("leader_epoch"))
    numbered = (
        lines.withColumn("went_back", is_true(epoch < own.running_before(f.max(epoch))))
        .withColumn("turn", own.running(f.sum(f.col("is_role").cast("int"))))
        .withColumn("is_two", partition.over_all(f.max("went_back")) | _differ("topic_id", partition))
        .where("not is_two")
    )
    return numbered.groupBy(*KEY, "broker", "turn").agg(*_summed()).select(*_columns())


def _lines(timed: DataFrame) -> DataFrame:
    """The relevant lines, each once."""
    roles = is_a(EventType.LEADS, EventType.FOLLOWS)
    others = is_a(EventType.ISR_SHRUNK, EventType.ISR_EXPANDED, EventType.ISR_UPDATED, EventType.TRUNCATED)
    is_placed = all_known("topic", "partition", "speaker")
    # Role lines without their numbers are of no use here.
    is_relevant = (roles & all_known("leader_epoch", "log_end")) | others
    return (
        timed.where(is_relevant & is_placed & (f.col("role") == Role.BROKER) & f.col("at").isNotNull())
        .withColumn("broker", f.col("speaker"))
        .select(*_SAME)
        # One shuffle by partition: all later steps group by partition, or by more columns.
        .repartition(*KEY)
        .dropDuplicates()
        .withColumn("is_role", roles)
    )


def _differ(name: str, rows: Group) -> Value:
    return is_true(rows.over_all(f.min(name)) != rows.over_all(f.max(name)))


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
    values = {
        "role": f.col("begun.type"),
        "epoch": f.col("begun.leader_epoch"),
        "log_end": f.col("begun.log_end"),
        "high_watermark": f.col("begun.high_watermark"),
        # The previous epoch is always an older one. Followers of 3.9 have already stored the new one, and log that.
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
    return [values.get(column.name, f.col(column.name)).alias(column.name) for column in COLUMNS]


def starts(log_segments: DataFrame) -> DataFrame:
    """Return one row for each epoch whose leader logged the end of its log at the beginning.

    Returns:
        topic, partition, life, epoch, leader, led_at, and:
        log_end: the lowest, if the leader began more than once.
        watermark: the highest high watermark that it logged in this epoch. in_sync: as in `COLUMNS`.
        had: the largest extent of its log in this epoch: end, replica, at, cut_to.
        next: epoch, leader and log_end of the next known epoch; null for the last.
    """
    end = f.greatest("log_end", "later_end")
    grown = f.col("later_end") > f.col("log_end")
    had = f.struct(
        end.alias("end"),
        f.col("broker").alias("replica"),
        f.when(grown, f.col("later_end_at")).otherwise(f.col("at")).alias("at"),
        "cut_to",
    )
    of_epoch = (
        log_segments.where(f.col("role") == EventType.LEADS)
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
    in_order = rows_of(*KEY).in_order("epoch")
    return of_epoch.withColumn("next", in_order.next(f.struct("epoch", "leader", "log_end")))


JOB: Final = Job(
    "turns", "Log end offsets, high watermarks and truncations that brokers logged in each role.", COLUMNS, log_segments
)
