"""Job `controllers`: takeovers, their durations, and whether two controllers acted at once.

`requests` covers the requests that they sent to brokers.

A term is the controller of one epoch, its beginning and its successor (`terms`). Before 2.1 the line of an election has
no epoch; a line with the epoch follows. Lines of controller.log have none either; they belong to the term that their
broker began last.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import columns, names_of
from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.tables import kept_if_small

from .expressions import all_known, is_a, is_true, ms_between, or_zero, rows_of, stacked
from .job import Job

COLUMNS: Final = columns(
    """
    controller        id    the controller; null if no line names it
    controller_epoch  id    [epoch] its epoch; null if no line states it
    elected_at        time  [elected] when it was elected; null if before the logs
    ready_at          time  when it had loaded the cluster and updated the brokers
    started_at        time  the last step of taking over
    last_act_at       time  its last line as this controller, without responses to its requests, and in KRaft
                            without lines that the other controllers write too
    resigned_at       time  [until] when it resigned, or detected that it had been replaced
    failover_ms       ms    [took over in] from elected until started (or ready)
    gap_ms            ms    [no controller before for] from the last sign of the previous controller (its resignation,
                            or the last line of its broker) until elected: no controller was active; null for the first
    overlap_ms        ms    [acted on for] time for which it acted after its successor was elected; 0 if within the
                            clock error; null if unknown
    refused           long  its requests that brokers rejected because of its epoch
    partitions_moved  long  [moved] partition transitions that it made
    slowest_event_ms  ms    the slowest event that it logged; null if none
    source            text  zookeeper, kraft or kactl
    """
)
ZOOKEEPER: Final = "zookeeper"
KRAFT: Final = "kraft"
KACTL: Final = "kactl"
# Stands for a controller that kactl's log does not name because it begins in the middle of its term.
NAMELESS: Final = -1
# Between its election and writing the new epoch a controller does almost nothing.
_ELECTED_MS: Final = 60_000
# The reason of a request that a broker rejected because it knew of a later controller; the second form until 0.11.
STALE: Final = r"its controller epoch|an old controller"
_RESIGNED: Final = (EventType.CONTROLLER_RESIGNED, EventType.CONTROLLER_MOVED)
# A controller that resigned still receives responses to its requests.
_NO_ACT: Final = (*_RESIGNED, EventType.ANSWERED, EventType.ANSWER_FAILED)
# KRaft's other controllers log these too, about themselves and about records that they read from the metadata log.
_NO_ACT_IN_KRAFT: Final = (
    EventType.LEADERSHIP,
    EventType.PARTITION_CREATED,
    EventType.ASSIGNED,
    EventType.TOPIC_CREATED,
    EventType.TOPIC_REMOVED,
    EventType.BROKER_REGISTERED,
    EventType.BROKER_UNREGISTERED,
    EventType.PERFORMANCE,
    EventType.SLOW_EVENT,
)


def controllers(timed: DataFrame) -> DataFrame:
    """Return one row for each term of a controller, including those that only brokers' lines show.

    Overlaps within the clock error are not reported. If epochs are missing between two terms (those of ZooKeeper
    controllers are consecutive), the gap between them is null.
    """
    lines = voiced(timed)
    all_terms = kept_if_small(terms(lines).withColumn("term", f.struct("controller", "controller_epoch", "begin")))
    acted = _acted(lines, all_terms)
    known = (
        all_terms.join(acted, "term", "left")
        .join(_refused(lines), ["controller", "controller_epoch"], "left")
        .join(_moved(lines), ["controller", "controller_epoch"], "left")
    )
    in_order = rows_of("source").in_order("place", "begin")
    seen_last = in_order.previous(f.coalesce("resigned_at", "sign_at"))
    is_next = (f.col("source") != ZOOKEEPER) | (f.col("controller_epoch") - in_order.previous("controller_epoch") == 1)
    silent_ms = ms_between(seen_last, "elected_at")
    gap = f.when(silent_ms > 0, silent_ms).when(silent_ms <= 0, f.lit(0))
    return known.withColumns(
        {
            "controller": f.when(f.col("controller") != NAMELESS, f.col("controller")),
            "failover_ms": ms_between("elected_at", f.coalesce("started_at", "ready_at")),
            "gap_ms": f.when(is_next, gap),
            "overlap_ms": _overlap(),
            "refused": or_zero("refused"),
            "partitions_moved": or_zero("partitions_moved"),
        }
    ).select(*names_of(COLUMNS))


def _acted(lines: DataFrame, all_terms: DataFrame) -> DataFrame:
    """Results from each term's own lines, and `sign_at`: the last line of its broker before another one was elected."""
    begun = all_terms.where("begin is not null").select(
        "term",
        f.col("controller").alias("who"),
        f.col("controller_epoch").alias("epoch"),
        "begin",
        "until",
        "next_at",
    )
    own_epoch = f.when(is_own(), f.col("controller_epoch"))
    acts = is_own() & ~is_a(*_NO_ACT) & ~(is_true(f.col("format").startswith("K")) & is_a(*_NO_ACT_IN_KRAFT))
    spoken = lines.select(
        "speaker", "at", "type", "took_ms", is_own().alias("own"), own_epoch.alias("own_epoch"), acts.alias("acts")
    )
    is_during = (f.col("at") >= f.col("begin")) & (f.col("until").isNull() | (f.col("at") < f.col("until")))
    belongs = (f.col("own_epoch") == f.col("epoch")) | (f.col("own_epoch").isNull() & is_during)
    # Terms are few; a line's broker has at most one at a time.
    joined = spoken.join(f.broadcast(begun), (f.col("speaker") == f.col("who")) & belongs)

    def own(*types: EventType) -> Value:
        return f.when(f.col("own") & is_a(*types), f.col("at"))

    return joined.groupBy("term").agg(
        f.min(own(EventType.CONTROLLER_READY)).alias("ready_at"),
        f.min(own(EventType.CONTROLLER_STARTED)).alias("started_at"),
        f.min(own(*_RESIGNED)).alias("resigned_at"),
        f.max(f.when(f.col("acts"), f.col("at"))).alias("last_act_at"),
        f.max(f.when(f.col("next_at").isNull() | (f.col("at") <= f.col("next_at")), f.col("at"))).alias("sign_at"),
        f.max(f.when(f.col("own") & is_a(EventType.SLOW_EVENT), f.col("took_ms"))).alias("slowest_event_ms"),
    )


def _overlap() -> Value:
    late_us = f.unix_micros("last_act_at") - f.unix_micros("next_at")
    wrong_us = f.col("error_us") + f.col("next_error_us")
    alone = f.col("next_controller").isNull() | (f.col("next_controller") == f.col("controller")) | (late_us <= 0)
    beyond = f.when(late_us > wrong_us, f.floor(late_us / 1000)).when(late_us <= wrong_us, f.lit(0))
    return f.when(is_true(alone), f.lit(0)).otherwise(beyond).cast("long")


def _refused(lines: DataFrame) -> DataFrame:
    """Requests that brokers rejected because of the controller epoch, each once, however many files contain it."""
    stale = lines.where(is_a(EventType.IGNORED) & f.col("reason").rlike(STALE))
    once = stale.select("controller", "controller_epoch", "speaker", "request", "correlation_id", "at").distinct()
    return once.groupBy("controller", "controller_epoch").agg(f.count("*").alias("refused"))


def _moved(lines: DataFrame) -> DataFrame:
    moves = lines.where(is_a(EventType.PARTITION) & f.col("controller_epoch").isNotNull())
    once = moves.select("controller", "controller_epoch", "topic", "partition", "at", "to_state").distinct()
    return once.groupBy("controller", "controller_epoch").agg(f.count("*").alias("partitions_moved"))


# -- terms -------------------------------------------------------------------------------------------------------------


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
    controller = f.coalesce("named", f.lit(NAMELESS))
    return (
        named.withColumn("controller", f.when(is_kactl, controller).otherwise(f.col("controller")))
        .withColumn("speaker", f.when(is_kactl, controller).otherwise(f.col("speaker")))
        .where(f.col("speaker").isNotNull() & (f.col("kind") != Kind.DUMP))
        .drop("named")
    )


def is_own() -> Value:
    """True if a controller writes about its own actions, so that an epoch in the line is its own."""
    speaks = (f.col("role") == Role.CONTROLLER) & (f.col("controller") == f.col("speaker"))
    return is_true(speaks & ~is_a(EventType.QUORUM_LEADER))


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
    own_terms = kept_if_small(_own_terms(own))
    all_terms = stacked(
        own_terms, _others_terms(lines).join(own_terms, ["controller", "controller_epoch"], "left_anti")
    )
    of_controller = rows_of("controller").in_order("begin")
    before = rows_of("source").in_order("begin")
    place = f.coalesce(
        f.col("controller_epoch").cast("double"), before.running_before(f.max("controller_epoch")) + 0.5, f.lit(0)
    )
    in_order = rows_of("source").in_order("place", "begin")
    return (
        all_terms.withColumns({"until": of_controller.next("begin"), "place": place})
        .withColumn("next_controller", in_order.next("controller"))
        .withColumn("next_at", in_order.next("begin"))
        .withColumn("next_error_us", in_order.next("error_us"))
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
    in_order = rows_of("controller").in_order("at", f.col("controller_epoch").asc_nulls_first())
    is_bare = f.col("first_at").isNull()
    # 0.11 writes two lines without an epoch.
    again = is_bare & (ms_between(in_order.previous(f.when(is_bare, f.col("at"))), "at") <= _ELECTED_MS)
    both = both.withColumn("is_again", is_true(again)).where("not is_again").drop("is_again")
    # The line before the first one with an epoch, if it is of an election without epoch.
    bare_at = in_order.previous(f.when(is_bare, f.col("at")))
    soon = ms_between(bare_at, "first_at") <= _ELECTED_MS
    follows = ms_between("at", in_order.next("first_at")) <= _ELECTED_MS
    return (
        both.withColumn("bare_at", f.when(soon, bare_at))
        .withColumn("is_paired", is_true(is_bare & follows))
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
    others = lines.where(all_known("controller", "controller_epoch") & ~is_own())
    mentions = others.where((f.col("role") == Role.BROKER) | (f.col("controller") != f.col("speaker")))
    return mentions.groupBy("controller", "controller_epoch").agg(f.max_by(_source(), _rank()).alias("source"))


def _source() -> Value:
    is_kraft = f.col("format").startswith("K") | is_a(EventType.QUORUM_LEADER)
    return f.when(f.col("kind") == Kind.KACTL, KACTL).when(is_kraft, KRAFT).otherwise(ZOOKEEPER)


def _rank() -> Value:
    """kactl's log and KRaft's lines name their source; brokers' lines are the same for all."""
    return f.when(_source() == KACTL, 2).when(_source() == KRAFT, 1).otherwise(0)


JOB: Final = Job(
    "controllers", "Terms of controllers: durations of takeovers, and whether two acted at once.", COLUMNS, controllers
)
