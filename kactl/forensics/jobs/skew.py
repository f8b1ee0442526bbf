"""Job `skew`: the offset of each broker's clock, from events in a known order.

    controller                                broker
    P2b, R3  decides a leadership      ───▶   B1, B4, B5  receives it, or takes its role
    S1       sends it                  ───▶   B1          receives it
    S6       receives the response     ◀───   B1, B7, B9  processed the request
    C11      writes an ISR             ◀───   I1, I2      the leader requests it
    C11                                ───▶   I3          the leader receives it
    K4       allows a broker to lead   ───▶               a record of it is in KRaft's metadata log

KRaft's metadata log takes the place of the controller, because its records carry the clock of the active controller.
Each pair shows that one clock is ahead of another by no more than the difference of the two times. Pairs are joined by
unique keys: a leader epoch or partition epoch of a partition, or a correlation id together with the controller's epoch.
Lines without such a key (S2, B2, B3) are not used: if they were joined by order, one missing line would shift all
pairs, and P2b and B4 exist at INFO as well.
"""

from functools import partial
from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import columns
from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.tables import all_kept_if_small, kept_if_small

from .clocks import UNKNOWN, Link, solve
from .expressions import LEADER_AND_ISR, ONLINE, all_known, is_a, is_true, rows_of, stacked
from .job import Job
from .states import complete_records

COLUMNS: Final = columns(
    """
    broker     id    broker of the clock; null for logs that name no writer: kactl's own, the metadata log
    reference  id    the broker of the reference clock: the one with most links; null as above
    offset_us  long  its clock minus the reference, in microseconds: best estimate, which `timed` subtracts
    low_us     long  lower bound of the offset; null if there is none
    high_us    long  upper bound of the offset; null if there is none
    links      long  pairs of events that it is computed from
    how        text  reference, bounds, one-sided, contradictory (the clock drifted or jumped) or unknown
    """
)
# Stands for the clock of logs that name no broker.
NAMELESS: Final = -1
# A bound is the smallest observed difference, or the second smallest if differences span five seconds, the third if
# they span ten, and so on. It is still valid, and wrong pairs, such as those of two topics of the same name, do not
# falsify it: they occur together, within a second.
_MOMENTS_FOR_ONE_ASTRAY: Final = 5
_ASTRAY_LIMIT: Final = 9
_SECOND_US: Final = 1_000_000


def skew(events: DataFrame) -> DataFrame:
    """Returns one row for each clock. Reads at once: one row for each pair of brokers, and one for each broker."""
    spark = events.sparkSession
    bounds = [Link(*row) for row in links(events).collect()]
    writers = (
        events.select(clock().alias("broker"), is_a(EventType.CLOCK_BACK).alias("back"))
        .where("broker is not null")
        .groupBy("broker")
        .agg(f.max("back").alias("back"))
        .collect()
    )
    jumped = [row["broker"] for row in writers if row["back"]]
    clocks = [clock_._asdict() for clock_ in solve([row["broker"] for row in writers], bounds, jumped)]
    for row in clocks:
        for name in ("broker", "reference"):
            row[name] = None if row[name] == NAMELESS else row[name]
    return JOB.table(spark, clocks)


def clock() -> Value:
    """The clock that a line was written by; null if unknown."""
    nameless = f.col("kind").isin(str(Kind.KACTL), str(Kind.DUMP))
    return f.coalesce("speaker", f.when(nameless, f.lit(NAMELESS)))


def on_one_clock(events: DataFrame, skew: DataFrame) -> DataFrame:
    """Returns all events with `at`, `at_error_us` and `clock_known`: whether any link connects the writer's clock to
    others.
    """
    apart = f.greatest(f.col("high_us") - f.col("offset_us"), f.col("offset_us") - f.col("low_us"))
    error = f.when(all_known("high_us", "low_us"), apart)
    clocks = skew.select(
        f.coalesce("broker", f.lit(NAMELESS)).alias("clock"),
        "offset_us",
        error.alias("at_error_us"),
        (f.col("how") != UNKNOWN).alias("clock_known"),
    )
    joined = events.withColumn("clock", clock()).join(f.broadcast(clocks), "clock", "left")
    corrected = f.timestamp_micros(f.unix_micros("ts") - f.coalesce("offset_us", f.lit(0)))
    known = is_true(f.col("clock_known"))
    return joined.withColumn("at", corrected).select(*events.columns, "at", "at_error_us", known.alias("clock_known"))


def links(events: DataFrame) -> DataFrame:
    """Returns one row for each ordered pair of clocks: before, after, bound_us, pairs; see `clocks.Link`."""
    with_clock = events.where("ts is not null").withColumns({"clock": clock(), "us": f.unix_micros("ts")})
    lines = with_clock.where("clock is not null")
    recorded = kept_if_small(_recorded(lines))
    kinds_of_pairs = (
        partial(_decided, lines, recorded),
        partial(_isr, lines, recorded),
        *(partial(pairs, lines) for pairs in (_sent, _responded, _unfenced)),
    )
    pairs_of_events = stacked(*all_kept_if_small(events.sparkSession, kinds_of_pairs))
    second = f.floor(f.col("before_us") / _SECOND_US)
    pairs = (
        pairs_of_events.where("before != after")
        .select("before", "after", (f.col("after_us") - f.col("before_us")).alias("bound_us"), second.alias("second"))
        .groupBy("before", "after", "second")
        .agg(f.min("bound_us").alias("bound_us"), f.count("*").alias("pairs"))
    )
    both = rows_of("before", "after")
    ranked = pairs.withColumns(
        {
            "rank": both.in_order("bound_us").number(),
            "moments": both.over_all(f.count("*")),
            "pairs": both.over_all(f.sum("pairs")),
        }
    )
    astray = f.least(f.floor(f.col("moments") / _MOMENTS_FOR_ONE_ASTRAY), f.lit(_ASTRAY_LIMIT))
    return ranked.where(f.col("rank") == astray + 1).select("before", "after", "bound_us", "pairs")


# -- pairs: before, after, before_us, after_us -------------------------------------------------------------------------

_TP: Final = ("topic", "partition")


def _decided(lines: DataFrame, recorded: DataFrame) -> DataFrame:
    """Pairs of a decided leader epoch and a later line of a broker about it. One controller creates each epoch, once.

    An epoch that was created twice belongs to two topics of the same name, and the topic of a broker's line is unknown.
    """
    key = (*_TP, "leader_epoch")
    online = is_a(EventType.PARTITION) & (f.col("to_state") == ONLINE)
    in_log = lines.where((online | is_a(EventType.ISR_CUT)) & f.col("topic").isNotNull())
    decided = (
        in_log.select(*key, "partition_epoch", "clock", "us")
        .unionByName(recorded.where("raised").drop("raised"))
        .where("leader_epoch >= 0")
        .groupBy(*key, "partition_epoch")
        .agg(f.min("us").alias("before_us"), f.max("us").alias("last_us"), f.min("clock").alias("before"))
        .groupBy(*key)
        .agg(
            f.min_by("before", "before_us").alias("before"),
            f.max(f.col("last_us") - f.col("before_us")).alias("apart_us"),
            f.min("before_us").alias("before_us"),
        )
        .where("apart_us = 0")
    )
    is_about = is_a(EventType.LEADS, EventType.FOLLOWS) | (
        is_a(EventType.RECEIVED_PARTITION) & (f.col("request") == LEADER_AND_ISR)
    )
    began = (
        lines.where(is_about & f.col("leader_epoch").isNotNull())
        .groupBy(*key, f.col("clock").alias("after"))
        .agg(f.min("us").alias("after_us"))
    )
    return decided.join(began, list(key)).select("before", "after", "before_us", "after_us")


def _recorded(lines: DataFrame) -> DataFrame:
    """Changes in KRaft's metadata log: a record is written before any broker reads it.

    Creations are omitted, because snapshots repeat them with the time of the snapshot.
    """
    as_timed = {"at": f.col("ts"), "at_error_us": f.lit(None).cast("bigint"), "life": f.lit(0)}
    records = complete_records(lines.withColumns(as_timed)).withColumns(
        {"us": f.unix_micros("at"), "clock": f.lit(NAMELESS)}
    )
    changes = records.where(~is_a(EventType.PARTITION_CREATED))
    return changes.select(*_TP, "leader_epoch", "partition_epoch", "raised", "clock", "us")


def _sent(lines: DataFrame) -> DataFrame:
    """Pairs of sending and receiving a state. A state may be sent again."""
    of_leaders = lines.where((f.col("request") == LEADER_AND_ISR) & f.col("leader_epoch").isNotNull())
    sent = of_leaders.where(is_a(EventType.SENT_PARTITION)).withColumn("receiver", f.col("broker"))
    received = of_leaders.where(is_a(EventType.RECEIVED_PARTITION)).withColumn("receiver", f.col("clock"))
    return _first_pairs(sent, received, "controller", "controller_epoch", *_TP, "leader_epoch", "receiver")


def _responded(lines: DataFrame) -> DataFrame:
    """Pairs of a broker's last line about a request and the controller's line of the response.

    Correlation ids restart with each connection, so they are compared within one controllership. If one has two
    responses the broker had reconnected, and no pair is formed. Broker lines without the controller epoch (B2, B3) may
    belong to another controllership.
    """
    key = ("controller", "controller_epoch", "request", "correlation_id", "before")
    keyed = lines.where("correlation_id is not null and controller_epoch is not null and request is not null")
    answered = (
        keyed.where(is_a(EventType.ANSWERED))
        .withColumn("before", f.col("broker"))
        .groupBy(*key)
        .agg(f.max("us").alias("after_us"), f.min("us").alias("first_us"), f.min("clock").alias("after"))
        .where("after_us = first_us")
    )
    at_work = (
        keyed.where((f.col("role") == Role.BROKER) & ~is_a(EventType.IGNORED))
        .withColumn("before", f.col("clock"))
        .groupBy(*key)
        .agg(f.max("us").alias("before_us"), f.min("us").alias("begun_us"))
        # One request takes less; two with the same id are further apart.
        .where(f.col("before_us") - f.col("begun_us") < _REQUEST_US)
    )
    return answered.join(at_work, list(key)).select("before", "after", "before_us", "after_us")


# Kafka's request timeout, `request.timeout.ms` of a controller.
_REQUEST_US: Final = 30 * _SECOND_US


def _isr(lines: DataFrame, recorded: DataFrame) -> DataFrame:
    """From 2.7 on leaders request ISR changes from the controller, one at a time for each partition."""
    key = (*_TP, "partition_epoch")
    by_controllers = lines.where(is_a(EventType.ISR_UPDATED) & (f.col("role") == Role.CONTROLLER))
    written = (
        by_controllers.select(*key, "clock", "us")
        .unionByName(recorded.select(*key, "clock", "us"))
        .groupBy(*key)
        .agg(f.min("us").alias("written_us"), f.max("us").alias("last_us"), f.min("clock").alias("controller"))
        .where("written_us = last_us")
    )
    asked_or_heard = (EventType.ISR_SHRUNK, EventType.ISR_EXPANDED, EventType.ISR_UPDATED)
    leaders = lines.where(is_a(*asked_or_heard) & (f.col("role") == Role.BROKER))
    order = rows_of("clock", *_TP).in_order("us", "file_id", "offset")
    at_leader = (
        leaders.select("clock", *key, "type", "us", "file_id", "offset")
        .withColumns({"type_before": order.previous("type"), "asked_us": order.previous("us")})
        .where(is_a(EventType.ISR_UPDATED))
        .withColumn("asked_us", f.when(f.col("type_before") != EventType.ISR_UPDATED, f.col("asked_us")))
        .groupBy(*key, "clock")
        .agg(f.min("us").alias("heard_us"), f.min("asked_us").alias("asked_us"))
    )
    both = kept_if_small(written.join(at_leader, list(key)))
    notified = both.selectExpr("controller before", "clock after", "written_us before_us", "heard_us after_us")
    requested = both.where("asked_us is not null")
    return notified.unionByName(
        requested.selectExpr("clock before", "controller after", "asked_us before_us", "written_us after_us")
    )


def _unfenced(lines: DataFrame) -> DataFrame:
    """Pairs of a controller's line that unfences a broker and the record of it in the metadata log. A broker may be
    fenced several times in one epoch.
    """
    unfenced = lines.where(is_a(EventType.BROKER_UNFENCED) & f.col("broker_epoch").isNotNull())
    is_record = f.col("kind") == Kind.DUMP
    return _first_pairs(unfenced.where(~is_record), unfenced.where(is_record), "broker", "broker_epoch")


def _first_pairs(before: DataFrame, after: DataFrame, *key: str) -> DataFrame:
    """Pairs of the first lines of each key, where both sides have equally many: otherwise one may lack its first."""

    def first(lines: DataFrame, name: str) -> DataFrame:
        times = f.countDistinct("us").alias("times")
        return lines.groupBy(*key).agg(f.min_by("clock", "us").alias(name), f.min("us").alias(f"{name}_us"), times)

    pairs = first(before, "before").join(first(after, "after"), [*key, "times"])
    return pairs.select("before", "after", "before_us", "after_us")


JOB: Final = Job("skew", "The offset of each broker's clock, and its bounds.", COLUMNS, skew)
