"""Single requests at brokers, and the time from sending each until the broker began to process it.

A correlation id is unique within one connection; the next connection starts again. On one connection a controller sends
the next request after the response to the previous one, so at a broker the ids of one controller only rise. Where they
fall, or where a request begins that had already begun, another connection has begun.

Requests that were sent are joined with these. A controller does not log the correlation ids of requests that it sends.
At TRACE both sides log each partition of a request with its epochs. At INFO only the number of partitions is logged,
and requests are joined in order where both sides have equally many of that size.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Role

from .expressions import LEADER_AND_ISR, all_known, best_only, is_a, is_true, ms_between, rows_of

# A pause this long separates runs that are joined in order: no request waits longer, because controllers time out by
# then.
PAUSE_MS: Final = 30_000
# A clock without bounds may show a request to begin this much before it was sent.
_SLACK_US: Final = 1_000_000
PAIR: Final = ("controller", "broker", "request")
# Lines that a request begins and ends with; a rejected one ends, too.
_BEGUN: Final = (EventType.RECEIVED, EventType.RECEIVED_PARTITION, EventType.TRANSITION_BEGUN)
_DONE: Final = (EventType.APPLIED, EventType.TRANSITION_DONE, EventType.METADATA, EventType.METADATA_PARTITION)
# Order of the lines about one request; of each stage only the first and the last matter.
_BEGINS, _RECEIVES, _CHANGES, _ENDS = range(4)


def instances(timed: DataFrame) -> DataFrame:
    """Return one row for each request that a broker logged.

    Returns:
        `PAIR`, connection (a rising number), correlation_id; began_at and ended_at, null if no line has it; took_ms,
            measured by the broker, or else from its lines; partitions: their number.
    """
    lines = _lines(timed)
    in_order = rows_of("controller", "broker").in_order("at", "correlation_id", "stage")
    id_before, stage_before = in_order.previous("correlation_id"), in_order.previous("stage")
    is_same = (f.col("correlation_id") == id_before) & (f.col("request") == in_order.previous("request"))
    is_single = f.col("stage").isin(_BEGINS, _ENDS)
    again = is_same & ((f.col("stage") < stage_before) | (is_single & (f.col("stage") == stage_before)))
    fallen = (f.col("correlation_id") < id_before) | ((f.col("correlation_id") == id_before) & ~is_same)
    is_new = is_true(again | fallen).cast("int")
    numbered = lines.withColumn("is_new", is_new).withColumn("connection", in_order.running(f.sum("is_new")))

    requests = numbered.groupBy(*PAIR, "connection", "correlation_id").agg(
        f.min(f.when(is_a(*_BEGUN), f.col("at"))).alias("began_at"),
        f.max(f.when(is_a(*_DONE, EventType.IGNORED), f.col("at"))).alias("ended_at"),
        f.max("took_ms").alias("took_ms"),
        f.coalesce(f.max("counted"), f.sum("lines")).alias("partitions"),
    )
    took = f.when(f.col("request") == LEADER_AND_ISR, ms_between("began_at", "ended_at"))
    return requests.withColumn("took_ms", f.coalesce("took_ms", took))


def _lines(timed: DataFrame) -> DataFrame:
    """Lines about requests, with lines of the same kind, request and time merged, each once in however many files."""
    is_whole = f.col("topic").isNull()
    about = is_a(*_BEGUN, *_DONE) | (is_a(EventType.IGNORED) & is_whole)
    named = all_known("controller", "speaker", "correlation_id")
    lines = timed.where(about & named & (f.col("role") == Role.BROKER) & f.col("request").isNotNull())
    stage = (
        f.when(is_a(EventType.RECEIVED), _BEGINS)
        .when(is_a(EventType.RECEIVED_PARTITION), _RECEIVES)
        .when(is_a(EventType.APPLIED, EventType.METADATA), _ENDS)
        .otherwise(_CHANGES)
    )
    # A metadata update counts removed partitions besides updated ones.
    counted = f.when(~is_a(EventType.IGNORED), f.col("count") + f.coalesce("count_also", f.lit(0)))
    is_of_partition = is_a(EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION)
    by = ("controller", "speaker", "request", "correlation_id", "at", "type")
    in_a_file = lines.groupBy(*by, "file_id").agg(
        f.first(stage).alias("stage"),
        f.max(counted).alias("counted"),
        f.max("took_ms").alias("took_ms"),
        f.sum(is_of_partition.cast("int")).alias("lines"),
    )
    return (
        in_a_file.groupBy(*by)
        .agg(*(f.max(name).alias(name) for name in ("stage", "counted", "took_ms", "lines")))
        .withColumnRenamed("speaker", "broker")
    )


# -- waiting -----------------------------------------------------------------------------------------------------------


def waits(timed: DataFrame) -> DataFrame:
    """Return a row for each request that can be joined.

    Returns:
        `PAIR`, sent_at, wait_ms: at least 0. Requests are joined in order only for pairs without any exact join.
    """
    joined = (
        _exact(timed).withColumn("is_exact", f.lit(1)).unionByName(_in_order(timed).withColumn("is_exact", f.lit(0)))
    )
    wait_us = f.unix_micros("began_at") - f.unix_micros("sent_at")
    possible = joined.withColumn("wait_us", wait_us).where(
        f.col("wait_us") >= -f.coalesce("error_us", f.lit(_SLACK_US))
    )
    return best_only(possible, "is_exact", *PAIR).select(
        *PAIR, "sent_at", (f.greatest("wait_us", f.lit(0)) / 1000).alias("wait_ms")
    )


def _exact(timed: DataFrame) -> DataFrame:
    """Requests with at least one partition that was sent once and processed once."""
    is_sent = is_a(EventType.SENT_PARTITION) & (f.col("role") == Role.CONTROLLER)
    is_received = is_a(EventType.RECEIVED_PARTITION) & (f.col("role") == Role.BROKER)
    lines = timed.where(
        (is_sent | is_received) & (f.col("request") == LEADER_AND_ISR) & f.col("leader_epoch").isNotNull()
    )
    sent_at, began_at = f.when(is_sent, f.col("at")), f.when(is_received, f.col("at"))
    broker = f.when(is_sent, f.col("broker")).otherwise(f.col("speaker"))
    by = ("controller", "controller_epoch", "topic", "partition", "life", "leader_epoch", "partition_epoch")
    both = (
        lines.groupBy(*by, broker.alias("broker"))
        .agg(
            f.min(sent_at).alias("sent_at"),
            f.max(sent_at).alias("sent_last_at"),
            f.min(began_at).alias("began_at"),
            f.max(began_at).alias("began_last_at"),
            f.max("correlation_id").alias("correlation_id"),
            _error(is_sent, is_received).alias("error_us"),
        )
        # A repeated request could be joined in more than one way.
        .where("sent_at = sent_last_at and began_at = began_last_at")
    )
    return (
        both.groupBy("controller", "controller_epoch", "broker", "correlation_id")
        .agg(
            f.first(f.lit(LEADER_AND_ISR)).alias("request"),
            # All partitions are logged before the request is queued.
            f.max("sent_at").alias("sent_at"),
            f.min("began_at").alias("began_at"),
            f.max("error_us").alias("error_us"),
        )
        .drop("controller_epoch", "correlation_id")
    )


def _in_order(timed: DataFrame) -> DataFrame:
    """Join the n-th sent with the n-th begun request of the same size, if both sides have equally many of that size."""
    sent = is_a(EventType.SENT) & (f.col("role") == Role.CONTROLLER) & f.col("broker").isNotNull()
    received = is_a(EventType.RECEIVED) & (f.col("role") == Role.BROKER)
    lines = timed.where((sent | received) & all_known("count", "at")).select(
        "controller",
        f.when(sent, f.col("broker")).otherwise(f.col("speaker")).alias("broker"),
        "request",
        (f.col("count") + f.coalesce("count_also", f.lit(0))).alias("size"),
        "at",
        f.when(sent, 0).otherwise(1).alias("side"),
        "correlation_id",
        "at_error_us",
    )
    alike = (*PAIR, "size")
    in_time = rows_of(*alike).in_order("at", "side", "correlation_id")
    pause = ms_between(in_time.previous("at"), "at") > PAUSE_MS
    one_side = rows_of(*alike, "run", "side").in_order("at", "correlation_id")
    numbered = (
        lines.distinct()
        .withColumn("begins", is_true(pause).cast("int"))
        .withColumn("run", in_time.running(f.sum("begins")))
        .withColumn("number", one_side.number())
    )
    is_sent, is_received = f.col("side") == 0, f.col("side") == 1
    matched = numbered.groupBy(*alike, "run", "number").agg(
        f.max(f.when(is_sent, f.col("at"))).alias("sent_at"),
        f.max(f.when(is_received, f.col("at"))).alias("began_at"),
        _error(is_sent, is_received).alias("error_us"),
    )
    lonely = (f.col("sent_at").isNull() | f.col("began_at").isNull()).cast("int")
    alone = rows_of(*alike, "run").over_all(f.sum(lonely))
    return matched.withColumn("alone", alone).where("alone = 0").select(*PAIR, "sent_at", "began_at", "error_us")


def _error(is_sent: Value, is_received: Value) -> Value:
    """Maximum error of a wait; null if the error of one of the two clocks is unbounded."""
    of_sender = f.max(f.when(is_sent, f.col("at_error_us")))
    of_receiver = f.max(f.when(is_received, f.col("at_error_us")))
    return of_sender + of_receiver
