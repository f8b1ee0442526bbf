"""Job `requests`: how long brokers took to process the requests of controllers.

    controller   sent (S2, S4, S5) ─────────────────────────────▶ answered (S6, only at TRACE)
                      └── waits ──▶ received ── applies ──▶ finished
    broker                          (B1, B2, B10)          (B3, B7, B9)

A request is identified by its correlation id within one connection; see `instances`. Requests and responses at the
controller are only counted; those at the broker are examined one by one.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import columns, names_of
from kactl.forensics.event_types import EventType, Role

from .controllers import STALE
from .expressions import Group, all_known, is_a, ms_between, or_zero, rows_of
from .instances import PAIR, instances, waits
from .job import Job

COLUMNS: Final = columns(
    """
    controller    id       [by] the sender
    broker        id       the receiver
    request       text     LEADER_AND_ISR, UPDATE_METADATA or STOP_REPLICA
    sent          long     requests that the controller logged as sent; null if it logged none, as before 2.6
    received      long     [begun] requests that the broker began to process; null if it logged none
    applied       long     [done] requests that it finished; null if it logged none
    answered      long     responses that the controller received; 0 at INFO, which has none
    unanswered    long     [no answer] received, and neither finished nor answered although the broker's log continues
                           for half a minute or more, or another connection followed; null if neither is ever logged
    ignored       long     [old] partitions, or whole requests, that the broker rejected as old
    stale         long     of them, for the controller's epoch
    apply_p50_ms  real_ms  [half] processing time of the broker, median
    apply_p99_ms  real_ms  [99 %] 99th percentile
    apply_max_ms  ms       [longest] the slowest
    wait_p50_ms   real_ms  from sent until begun, median, where the two can be joined
    wait_p99_ms   real_ms  [waited, 99 %] 99th percentile
    wait_growth   real     median wait of the last quarter of requests over that of the first, both of 1 ms at least:
                           above 1 the queue grew; null if fewer than eight can be joined
    partitions    long     number of partitions in all of them; the controller's count if the broker has none
    """
)
# By default a controller considers the connection dead after this time without a response.
GIVES_UP_MS: Final = 30_000
# A response is joined with requests before it; clocks are wrong by less than a minute.
_ANSWER_SLACK_MS: Final = 60_000
_ANSWER_MAX_MS: Final = 600_000
_WAITS_MIN: Final = 8


def requests(timed: DataFrame) -> DataFrame:
    """Return one row for each controller, broker and kind of request that either of them logged.

    A count without any line for it is null, so that a missing log does not look like missing requests. Of consecutive
    requests on one connection only the last can lack a response: a controller sends the next request after the response
    to the previous one.
    """
    at_brokers = instances(timed)
    answers = _answers(timed)
    sent = _sent(timed).groupBy(*PAIR).agg(f.count("*").alias("sent"), f.sum("partitions").alias("partitions_sent"))
    parts = (
        sent,
        _done(at_brokers),
        answers.groupBy(*PAIR).agg(f.count("*").alias("answered")),
        _unanswered(at_brokers, answers, timed),
        _ignored(timed),
        _waited(timed),
    )
    keys = list(PAIR)
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.join(part, keys, "full")
    counts = {name: or_zero(name) for name in ("answered", "ignored", "stale")}
    partitions = f.coalesce("partitions_received", "partitions_sent")
    return _null_if_never_logged(joined).withColumns(counts | {"partitions": partitions}).select(*names_of(COLUMNS))


def _null_if_never_logged(counts: DataFrame) -> DataFrame:
    """A count is 0 if the same log has such lines elsewhere, and null if it never has."""
    of_controller = rows_of("controller", "request")
    of_broker = rows_of("broker", "request")

    def count_of(name: str, rows: Group) -> Value:
        return f.when(rows.over_all(f.max(name)).isNotNull(), or_zero(f.col(name)))

    are_ends_logged = (of_broker.over_all(f.max(f.coalesce("applied", f.lit(0)))) > 0) | (
        of_controller.over_all(f.max(f.coalesce("answered", f.lit(0)))) > 0
    )
    return counts.select(
        *PAIR,
        count_of("sent", of_controller).alias("sent"),
        count_of("received", of_broker).alias("received"),
        count_of("applied", of_broker).alias("applied"),
        f.when(are_ends_logged & f.col("received").isNotNull(), f.coalesce("unanswered", f.lit(0))).alias("unanswered"),
        *(name for name in counts.columns if name not in (*PAIR, "sent", "received", "applied", "unanswered")),
    )


def _sent(timed: DataFrame) -> DataFrame:
    """One row for each request that a controller logged as sent, and each destination broker."""
    lines = timed.where(is_a(EventType.SENT) & (f.col("role") == Role.CONTROLLER) & f.col("controller").isNotNull())
    # The same line may stand in two files.
    once = lines.select("controller", "request", "broker", "brokers", "at", "count", "count_also", "delete").distinct()
    to = f.explode(f.coalesce("brokers", f.array("broker")))
    counted = f.col("count") + f.coalesce("count_also", f.lit(0))
    return once.select("controller", to.alias("broker"), "request", counted.cast("long").alias("partitions"))


def _done(at_brokers: DataFrame) -> DataFrame:
    applied = f.count("ended_at")
    return at_brokers.groupBy(*PAIR).agg(
        f.count("*").alias("received"),
        f.when(applied > 0, applied).alias("applied"),
        f.percentile("took_ms", 0.5).alias("apply_p50_ms"),
        f.percentile("took_ms", 0.99).alias("apply_p99_ms"),
        f.max("took_ms").alias("apply_max_ms"),
        f.sum("partitions").alias("partitions_received"),
    )


def _answers(timed: DataFrame) -> DataFrame:
    lines = timed.where(is_a(EventType.ANSWERED) & (f.col("role") == Role.CONTROLLER) & f.col("at").isNotNull())
    named = all_known("request", "correlation_id", "broker")
    return lines.where(named).select(*PAIR, "correlation_id", "at").distinct()


def _unanswered(at_brokers: DataFrame, answers: DataFrame, timed: DataFrame) -> DataFrame:
    """`PAIR` and number of requests that broke off: the last of their connection, without an end, in a log that
    continues.
    """
    request = f.struct("request", "correlation_id", "began_at", "ended_at")
    last = at_brokers.groupBy("controller", "broker", "connection").agg(
        f.max_by(request, "correlation_id").alias("last")
    )
    following = rows_of("controller", "broker").in_order("connection").next("connection")
    logs = (
        timed.where("speaker is not null").groupBy(f.col("speaker").alias("broker")).agg(f.max("at").alias("log_end"))
    )
    broken_off = (
        last.withColumn("following", following)
        .select("controller", "broker", "following", "last.*")
        .join(f.broadcast(logs), "broker")
        .where("began_at is not null and ended_at is null")
        .where(f.col("following").isNotNull() | (ms_between("began_at", "log_end") >= GIVES_UP_MS))
    )
    answered_ms = ms_between("began_at", "at")
    same = [broken_off[name] == answers[name] for name in (*PAIR, "correlation_id")]
    left = broken_off.join(answers, [*same, answered_ms.between(-_ANSWER_SLACK_MS, _ANSWER_MAX_MS)], "left_anti")
    return left.groupBy(*PAIR).agg(f.count("*").alias("unanswered"))


def _ignored(timed: DataFrame) -> DataFrame:
    """Requests rejected as old. A follower without an available leader is excluded."""
    named = f.col("request").isNotNull() & f.col("controller").isNotNull()
    refused = timed.where(is_a(EventType.IGNORED) & f.col("reason").contains("epoch") & named)
    once = refused.select(
        "controller",
        f.col("speaker").alias("broker"),
        "request",
        "correlation_id",
        "topic",
        "partition",
        "at",
        "reason",
    ).distinct()
    stale = f.col("reason").rlike(STALE)
    return once.groupBy(*PAIR).agg(f.count("*").alias("ignored"), f.count_if(stale).alias("stale"))


def _waited(timed: DataFrame) -> DataFrame:
    quarter = rows_of(*PAIR).in_order("sent_at").so_far(f.ntile(4))
    waited = waits(timed).withColumn("quarter", quarter)

    def median(number: int) -> Value:
        return f.greatest(f.median(f.when(f.col("quarter") == number, f.col("wait_ms"))), f.lit(1.0))

    return waited.groupBy(*PAIR).agg(
        f.percentile("wait_ms", 0.5).alias("wait_p50_ms"),
        f.percentile("wait_ms", 0.99).alias("wait_p99_ms"),
        f.when(f.count("*") >= _WAITS_MIN, median(4) / median(1)).alias("wait_growth"),
    )


JOB: Final = Job("requests", "How long brokers took to process the requests of controllers.", COLUMNS, requests)
