"""Terms of controllers: the controller of each epoch, its beginning, and its successor.

Before 2.1 the line of an election has no epoch; a line with the epoch follows. Lines of controller.log have none
either; they belong to the term that their broker began last.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType, Kind, Role

from .lines import is_a

ZOOKEEPER: Final = "zookeeper"
KRAFT: Final = "kraft"
KACTL: Final = "kactl"
# Stands for a controller that kactl's log does not name because it begins in the middle of its term.
NAMELESS: Final = -1
# Between its election and writing the new epoch a controller does almost nothing.
_ELECTED_MS: Final = 60_000


def voiced(timed: DataFrame) -> DataFrame:
    """Returns lines with a time and a speaker, without the metadata log; kactl's lines get the controller of their
    epoch.
    """
    is_kactl = f.col("kind") == Kind.KACTL
    names = (
        timed.where(is_kactl & f.col("controller").isNotNull())
        .groupBy(f.lit(str(Kind.KACTL)).alias("kind"), "controller_epoch")
        .agg(f.max("controller").alias("named"))
    )
    named = timed.where("at is not null").join(f.broadcast(names), ["kind", "controller_epoch"], "left")
    who = f.coalesce("named", f.lit(NAMELESS))
    return (
        named.withColumn("controller", f.when(is_kactl, who).otherwise(f.col("controller")))
        .withColumn("speaker", f.when(is_kactl, who).otherwise(f.col("speaker")))
        .where(f.col("speaker").isNotNull() & (f.col("kind") != Kind.DUMP))
        .drop("named")
    )


def is_own() -> Value:
    """True if a controller writes about its own actions, so that an epoch in the line is its own."""
    speaks = (f.col("role") == Role.CONTROLLER) & (f.col("controller") == f.col("speaker"))
    return f.coalesce(speaks & ~is_a(EventType.QUORUM_LEADER), f.lit(False))


def terms(lines: DataFrame) -> DataFrame:
    """Return all terms in the logs.

    Args:
        lines: the result of `voiced`.

    Returns:
        source, controller. controller_epoch, null if no line has it. elected_at. begin: that or its first line, or null
            if only others mention it. until: begin of the same broker's next term. error_us of its clock.
            next_controller, next_at, next_error_us: the successor, and its election or first line. place: sort key of
            the terms of one source.
    """
    own = lines.where(is_own())
    heard = _own_terms(own)
    all_terms = heard.unionByName(_others_terms(lines).join(heard, ["controller", "controller_epoch"], "left_anti"))
    one = Window.partitionBy("controller").orderBy("begin")
    before = Window.partitionBy("source").orderBy("begin").rowsBetween(Window.unboundedPreceding, -1)
    place = f.coalesce(f.col("controller_epoch").cast("double"), f.max("controller_epoch").over(before) + 0.5, f.lit(0))
    in_order = Window.partitionBy("source").orderBy("place", "begin")
    return (
        all_terms.withColumns({"until": f.lead("begin").over(one), "place": place})
        .withColumn("next_controller", f.lead("controller").over(in_order))
        .withColumn("next_at", f.lead("begin").over(in_order))
        .withColumn("next_error_us", f.lead("error_us").over(in_order))
    )


def _own_terms(own: DataFrame) -> DataFrame:
    """Terms from the controller's own lines."""

    def first(type: EventType) -> Value:
        return f.min(f.when(is_a(type), f.col("at")))

    with_epoch = (
        own.where("controller_epoch is not null")
        .groupBy("controller", "controller_epoch")
        .agg(
            f.max_by(_source(), _rank()).alias("source"),
            first(EventType.CONTROLLER_ELECTED).alias("elected_at"),
            first(EventType.CONTROLLER_EPOCH).alias("raised_at"),
            f.min("at").alias("first_at"),
            f.max("at_error_us").alias("error_us"),
        )
    )
    without = (
        own.where(is_a(EventType.CONTROLLER_ELECTED) & f.col("controller_epoch").isNull())
        .groupBy("controller", "at")
        .agg(f.max("at_error_us").alias("error_us"))
    )
    both = with_epoch.withColumn("at", f.col("first_at")).unionByName(without, allowMissingColumns=True)
    one = Window.partitionBy("controller").orderBy("at", f.col("controller_epoch").asc_nulls_first())
    is_bare = f.col("first_at").isNull()
    # The line before the first one with an epoch, if it is of an election without epoch.
    bare_at = f.lag(f.when(is_bare, f.col("at"))).over(one)
    soon = f.unix_millis("first_at") - f.unix_millis(bare_at) <= _ELECTED_MS
    follows = f.unix_millis(f.lead("first_at").over(one)) - f.unix_millis("at") <= _ELECTED_MS
    return (
        both.withColumn("bare_at", f.when(soon, bare_at))
        .withColumn("is_paired", f.coalesce(is_bare & follows, f.lit(False)))
        .where("not is_paired")
        .select(
            "controller",
            "controller_epoch",
            f.coalesce("source", f.lit(ZOOKEEPER)).alias("source"),
            f.coalesce("elected_at", "bare_at", "raised_at", f.when(is_bare, f.col("at"))).alias("elected_at"),
            f.coalesce("elected_at", "bare_at", "first_at", "at").alias("begin"),
            "error_us",
        )
    )


def _others_terms(lines: DataFrame) -> DataFrame:
    """Terms from lines of others: brokers, by the requests that they process, and KRaft's other controllers."""
    others = lines.where(f.col("controller").isNotNull() & f.col("controller_epoch").isNotNull() & ~is_own())
    told = others.where((f.col("role") == Role.BROKER) | (f.col("controller") != f.col("speaker")))
    return told.groupBy("controller", "controller_epoch").agg(
        f.max_by(_source(), _rank()).alias("source"),
        f.min(f.lit(None).cast("timestamp")).alias("elected_at"),
        f.min(f.lit(None).cast("timestamp")).alias("begin"),
        f.min(f.lit(None).cast("long")).alias("error_us"),
    )


def _source() -> Value:
    is_kraft = f.col("format").startswith("K") | is_a(EventType.QUORUM_LEADER)
    return f.when(f.col("kind") == Kind.KACTL, KACTL).when(is_kraft, KRAFT).otherwise(ZOOKEEPER)


def _rank() -> Value:
    """kactl's log and KRaft's lines name their source; brokers' lines are the same for all."""
    return f.when(_source() == KACTL, 2).when(_source() == KRAFT, 1).otherwise(0)
