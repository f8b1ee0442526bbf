"""How far each broker's clock is from the others', from what must have happened before what.

    controller                                broker
    P2b, R3  a leadership is decided   ───▶   B1, B4, B5  it is heard of, or its part in it is played
    S1       it is sent                ───▶   B1          it is received
    S6       the answer is there       ◀───   B1, B7, B9  the request was at work
    C11      an ISR is written         ◀───   I1, I2      the leader asks for it
    C11                                ───▶   I3          the leader has heard of it
    K4       a broker may lead again   ───▶               a record of it stands in KRaft's metadata log

KRaft's metadata log stands in for the controller, as its records are written by the clock of whoever is the active one.
Each pair says that one clock is ahead of another by no more than the difference of the two times. Pairs are found by
keys that name one thing and no other: a leader epoch or partition epoch of a partition, or a correlation id together
with the controller's epoch. What carries no such key (S2, B2, B3) is left alone: to join it by its order would take one
missing line to go wrong, and P2b and B4 are there at INFO as well.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.events import Column

from . import kraft
from .clocks import Link, solve
from .job import INT, LONG, TEXT, Job
from .lines import LEADER_AND_ISR, ONLINE, is_a

COLUMNS: Final = (
    Column("broker", INT, "whose clock; null for that of logs which name no writer: kactl's own, the metadata log"),
    Column("reference", INT, "the broker whose clock all are measured against: the one with most links; null as above"),
    Column("offset_us", LONG, "its clock minus the reference's, microseconds: the best guess, which `timed` takes off"),
    Column("low_us", LONG, "it is no less than this; null if nothing bounds it from below"),
    Column("high_us", LONG, "it is no more than this; null if nothing bounds it from above"),
    Column("links", LONG, "pairs of events that it follows from"),
    Column("how", TEXT, "reference, bounds, one-sided, contradictory (the clock drifted or jumped) or unknown"),
)
# The number of the clock that has no broker's.
NAMELESS: Final = -1
# A bound is not the smallest difference that was seen but the second smallest if there are five seconds' worth of them,
# the third if there are ten, and so on. It is true all the same, and lines that were paired wrongly, such as those of a
# topic of which there were two, do not make it false: they come together, within a second.
_MOMENTS_FOR_ONE_ASTRAY: Final = 5
_ASTRAY_LIMIT: Final = 9
_SECOND_US: Final = 1_000_000


def skew(events: DataFrame) -> DataFrame:
    """The clocks of all that wrote lines. It asks at once: for a row of each pair of brokers, and of each broker."""
    spark = events.sparkSession
    bounds = [Link(*row) for row in links(events).collect()]
    speakers = (
        events.select(clock().alias("broker"), is_a(EventType.CLOCK_BACK).alias("back"))
        .where("broker is not null")
        .groupBy("broker")
        .agg(f.max("back").alias("back"))
        .collect()
    )
    jumped = [row["broker"] for row in speakers if row["back"]]
    found = [each._asdict() for each in solve([row["broker"] for row in speakers], bounds, jumped)]
    for each in found:
        for name in ("broker", "reference"):
            each[name] = None if each[name] == NAMELESS else each[name]
    return JOB.table(spark, found)


def clock() -> Value:
    """By which clock a line was written; null if that cannot be said."""
    nameless = f.col("kind").isin(str(Kind.KACTL), str(Kind.DUMP))
    return f.coalesce("speaker", f.when(nameless, f.lit(NAMELESS)))


def links(events: DataFrame) -> DataFrame:
    """One row for each two clocks and direction: before, after, bound_us, pairs; see `clocks.Link`."""
    said = events.where("ts is not null").withColumns({"clock": clock(), "us": f.unix_micros("ts")})
    said = said.where("clock is not null")
    found = _decided(said)
    for more in (_sent, _answered, _isr, _granted):
        found = found.unionByName(more(said))
    pairs = (
        found.where("before != after")
        .select("before", "after", (f.col("after_us") - f.col("before_us")).alias("bound_us"), _second("before_us"))
        .groupBy("before", "after", "second")
        .agg(f.min("bound_us").alias("bound_us"), f.count("*").alias("pairs"))
    )
    both = Window.partitionBy("before", "after")
    ranked = pairs.withColumns(
        {
            "rank": f.row_number().over(both.orderBy("bound_us")),
            "moments": f.count("*").over(both),
            "pairs": f.sum("pairs").over(both),
        }
    )
    astray = f.least(f.floor(f.col("moments") / _MOMENTS_FOR_ONE_ASTRAY), f.lit(_ASTRAY_LIMIT))
    return ranked.where(f.col("rank") == astray + 1).select("before", "after", "bound_us", "pairs")


def _second(name: str) -> Value:
    return f.floor(f.col(name) / _SECOND_US).alias("second")


# -- pairs: before, after, before_us, after_us -------------------------------------------------------------------------

_TP: Final = ("topic", "partition")


def _decided(said: DataFrame) -> DataFrame:
    """A leader epoch is made once, by one controller; whoever speaks of it does so afterwards.

    Where it was made twice there were two topics of this name, and nobody can say which of them a broker speaks of.
    """
    key = (*_TP, "leader_epoch")
    online = is_a(EventType.PARTITION) & (f.col("to_state") == ONLINE)
    in_log = said.where((online | is_a(EventType.ISR_CUT)) & f.col("topic").isNotNull())
    made = (
        in_log.select(*key, "partition_epoch", "clock", "us")
        .unionByName(_recorded(said).where("raised").drop("raised"))
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
        said.where(is_about & f.col("leader_epoch").isNotNull())
        .groupBy(*key, f.col("clock").alias("after"))
        .agg(f.min("us").alias("after_us"))
    )
    return made.join(began, list(key)).select("before", "after", "before_us", "after_us")


def _recorded(said: DataFrame) -> DataFrame:
    """What KRaft's metadata log has of changes: a record is written before any broker reads it.

    Creations are left out: a snapshot has them, too, with the time of the snapshot.
    """
    as_timed = {"at": f.col("ts"), "at_error_us": f.lit(None).cast("bigint"), "life": f.lit(0)}
    records = kraft.filled(said.withColumns(as_timed)).withColumns(
        {"us": f.unix_micros("at"), "clock": f.lit(NAMELESS)}
    )
    changes = records.where(~is_a(EventType.PARTITION_CREATED))
    return changes.select(*_TP, "leader_epoch", "partition_epoch", "raised", "clock", "us")


def _sent(said: DataFrame) -> DataFrame:
    """The same state may be sent again, so that the first of either side belong together only if both have them all."""
    key = ("controller", "controller_epoch", *_TP, "leader_epoch", "after")
    of_leaders = said.where((f.col("request") == LEADER_AND_ISR) & f.col("leader_epoch").isNotNull())
    sent = (
        of_leaders.where(is_a(EventType.SENT_PARTITION))
        .withColumn("after", f.col("broker"))
        .groupBy(*key)
        .agg(f.min("us").alias("before_us"), f.countDistinct("us").alias("times"), f.min("clock").alias("before"))
    )
    received = (
        of_leaders.where(is_a(EventType.RECEIVED_PARTITION))
        .withColumn("after", f.col("clock"))
        .groupBy(*key)
        .agg(f.min("us").alias("after_us"), f.countDistinct("us").alias("times"))
    )
    return sent.join(received, [*key, "times"]).select("before", "after", "before_us", "after_us")


def _answered(said: DataFrame) -> DataFrame:
    """An answer comes after all that the broker did for the request.

    Correlation ids begin anew with each connection, so they count within one controllership; where one was answered
    twice even so, the broker had come back, and nothing is concluded. Lines of brokers without the controller's epoch
    (B2, B3) could be of another controllership.
    """
    key = ("controller", "controller_epoch", "request", "correlation_id", "before")
    keyed = said.where("correlation_id is not null and controller_epoch is not null and request is not null")
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
        # One request takes less; two with the same number are further apart.
        .where(f.col("before_us") - f.col("begun_us") < _REQUEST_US)
    )
    return answered.join(at_work, list(key)).select("before", "after", "before_us", "after_us")


# Kafka's own patience with a request, request.timeout.ms of a controller.
_REQUEST_US: Final = 30 * _SECOND_US


def _isr(said: DataFrame) -> DataFrame:
    """From 2.7 on leaders ask the controller for another ISR, one at a time for each partition."""
    key = (*_TP, "partition_epoch")
    by_controllers = said.where(is_a(EventType.ISR_UPDATED) & (f.col("role") == Role.CONTROLLER))
    written = (
        by_controllers.select(*key, "clock", "us")
        .unionByName(_recorded(said).select(*key, "clock", "us"))
        .groupBy(*key)
        .agg(f.min("us").alias("written_us"), f.max("us").alias("last_us"), f.min("clock").alias("controller"))
        .where("written_us = last_us")
    )
    asked_or_heard = (EventType.ISR_SHRUNK, EventType.ISR_EXPANDED, EventType.ISR_UPDATED)
    leaders = said.where(is_a(*asked_or_heard) & (f.col("role") == Role.BROKER))
    order = Window.partitionBy("clock", *_TP).orderBy("us", "file_id", "offset")
    heard = (
        leaders.select("clock", *key, "type", "us", "file_id", "offset")
        .withColumns({"type_before": f.lag("type").over(order), "asked_us": f.lag("us").over(order)})
        .where(is_a(EventType.ISR_UPDATED))
        .withColumn("asked_us", f.when(f.col("type_before") != EventType.ISR_UPDATED, f.col("asked_us")))
        .groupBy(*key, "clock")
        .agg(f.min("us").alias("heard_us"), f.min("asked_us").alias("asked_us"))
    )
    both = written.join(heard, list(key))
    told = both.selectExpr("controller before", "clock after", "written_us before_us", "heard_us after_us")
    asked = both.where("asked_us is not null")
    return told.unionByName(
        asked.selectExpr("clock before", "controller after", "asked_us before_us", "written_us after_us")
    )


def _granted(said: DataFrame) -> DataFrame:
    """A broker that may lead again is recorded as such, by the same controller, after it said so.

    It may be fenced several times under one epoch, so that the first of either side belong together only if both have
    them all.
    """
    key = ("broker", "broker_epoch")
    unfenced = said.where(is_a(EventType.BROKER_UNFENCED) & f.col("broker_epoch").isNotNull())
    is_record = f.col("kind") == Kind.DUMP
    granted = (
        unfenced.where(~is_record)
        .groupBy(*key)
        .agg(
            f.min("us").alias("before_us"),
            f.countDistinct("us").alias("times"),
            f.min_by("clock", "us").alias("before"),
        )
    )
    recorded = (
        unfenced.where(is_record)
        .groupBy(*key)
        .agg(f.min("us").alias("after_us"), f.countDistinct("us").alias("times"), f.min("clock").alias("after"))
    )
    return granted.join(recorded, [*key, "times"]).select("before", "after", "before_us", "after_us")


JOB: Final = Job(
    name="skew",
    says="How far each broker's clock is from the others', and how sure that is.",
    needs=("events",),
    columns=COLUMNS,
    run=skew,
)
