"""Single requests at brokers, told apart by connection and correlation id.

A correlation id is unique within one connection; the next connection starts again. On one connection a controller sends
the next request after the response to the previous one, so at a broker the ids of one controller only rise. Where they
fall, or where a request begins that had already begun, another connection has begun.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Role

from .lines import LEADER_AND_ISR, is_a

PAIR: Final = ("controller", "broker", "request")
# Order of the lines about one request; of each stage only the first and the last matter.
_BEGINS, _RECEIVES, _CHANGES, _ENDS = range(4)


def instances(timed: DataFrame) -> DataFrame:
    """Return one row for each request that a broker logged.

    Returns:
        `PAIR`, connection (a rising number), correlation_id; began_at and ended_at, null if no line has it; took_ms,
            measured by the broker, or else from its lines; partitions: their number.
    """
    told = _lines(timed)
    one = Window.partitionBy("controller", "broker").orderBy("at", "correlation_id", "stage")
    id_before, stage_before = f.lag("correlation_id").over(one), f.lag("stage").over(one)
    is_same = (f.col("correlation_id") == id_before) & (f.col("request") == f.lag("request").over(one))
    is_single = f.col("stage").isin(_BEGINS, _ENDS)
    again = is_same & ((f.col("stage") < stage_before) | (is_single & (f.col("stage") == stage_before)))
    fallen = (f.col("correlation_id") < id_before) | ((f.col("correlation_id") == id_before) & ~is_same)
    is_new = f.coalesce(again | fallen, f.lit(False)).cast("int")
    so_far = one.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = told.withColumn("is_new", is_new).withColumn("connection", f.sum("is_new").over(so_far))

    begins, ends = _is_begun(), _is_ended()
    made = numbered.groupBy(*PAIR, "connection", "correlation_id").agg(
        f.min(f.when(begins, f.col("at"))).alias("began_at"),
        f.max(f.when(ends, f.col("at"))).alias("ended_at"),
        f.max("took_ms").alias("took_ms"),
        f.coalesce(f.max("counted"), f.sum("lines")).alias("partitions"),
    )
    took = f.when(f.col("request") == LEADER_AND_ISR, f.unix_millis("ended_at") - f.unix_millis("began_at"))
    return made.withColumn("took_ms", f.coalesce("took_ms", took))


def _lines(timed: DataFrame) -> DataFrame:
    """Lines about requests, with lines of the same kind, request and time merged, each once in however many files."""
    is_whole = f.col("topic").isNull()
    about = is_a(
        EventType.RECEIVED,
        EventType.RECEIVED_PARTITION,
        EventType.TRANSITION_BEGUN,
        EventType.TRANSITION_DONE,
        EventType.APPLIED,
        EventType.METADATA,
        EventType.METADATA_PARTITION,
    ) | (is_a(EventType.IGNORED) & is_whole)
    named = f.col("controller").isNotNull() & f.col("speaker").isNotNull() & f.col("correlation_id").isNotNull()
    lines = timed.where(about & named & (f.col("role") == Role.BROKER) & f.col("request").isNotNull())
    stage = (
        f.when(is_a(EventType.RECEIVED), _BEGINS)
        .when(is_a(EventType.RECEIVED_PARTITION), _RECEIVES)
        .when(is_a(EventType.APPLIED, EventType.METADATA), _ENDS)
        .otherwise(_CHANGES)
    )
    # A metadata update counts removed partitions besides updated ones.
    counted = f.when(~is_a(EventType.IGNORED), f.col("count") + f.coalesce("count_also", f.lit(0)))
    each = is_a(EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION)
    by = ("controller", "speaker", "request", "correlation_id", "at", "type")
    in_a_file = lines.groupBy(*by, "file_id").agg(
        f.first(stage).alias("stage"),
        f.max(counted).alias("counted"),
        f.max("took_ms").alias("took_ms"),
        f.sum(each.cast("int")).alias("lines"),
    )
    return (
        in_a_file.groupBy(*by)
        .agg(*(f.max(name).alias(name) for name in ("stage", "counted", "took_ms", "lines")))
        .withColumnRenamed("speaker", "broker")
    )


def _is_begun() -> Value:
    return is_a(EventType.RECEIVED, EventType.RECEIVED_PARTITION, EventType.TRANSITION_BEGUN)


def _is_ended() -> Value:
    return is_a(
        EventType.APPLIED,
        EventType.TRANSITION_DONE,
        EventType.METADATA,
        EventType.METADATA_PARTITION,
        EventType.IGNORED,
    )
