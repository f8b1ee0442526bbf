"""Job `controllers`: takeovers, their durations, and whether two controllers acted at once.

`requests` covers the requests that they sent to brokers.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.columns import ID, LONG, MS, TEXT, TIME, Column
from kactl.forensics.event_types import EventType

from .job import Job
from .lines import is_a
from .terms import NAMELESS, ZOOKEEPER, is_own, terms, voiced

COLUMNS: Final = (
    Column("controller", ID, "the controller; null if no line names it"),
    Column("controller_epoch", ID, "its epoch; null if no line states it", title="epoch"),
    Column("elected_at", TIME, "when it was elected; null if before the logs", title="elected"),
    Column("ready_at", TIME, "when it had loaded the cluster and updated the brokers"),
    Column("started_at", TIME, "the last step of taking over"),
    Column("last_act_at", TIME, "its last line as this controller, responses to its requests excluded"),
    Column("resigned_at", TIME, "when it resigned, or detected that it had been replaced", title="until"),
    Column("failover_ms", MS, "from elected until started (or ready)", title="took over in"),
    Column(
        "gap_ms",
        MS,
        "from the last sign of the previous controller (its resignation, or the last line of its broker) until "
        "elected: no controller was active; null for the first",
        title="nobody before it for",
    ),
    Column(
        "overlap_ms",
        MS,
        "time for which it acted after its successor was elected; 0 if within the clock error; null if unknown",
        title="acted on for",
    ),
    Column("refused", LONG, "its requests that brokers rejected because of its epoch"),
    Column("partitions_moved", LONG, "partition transitions that it made", title="moved"),
    Column("slowest_event_ms", MS, "the slowest event that it logged; null if none"),
    Column("source", TEXT, "zookeeper, kraft or kactl"),
)
_RESIGNED: Final = (EventType.CONTROLLER_RESIGNED, EventType.CONTROLLER_MOVED)
# A controller that resigned still receives responses to its requests.
_NO_ACT: Final = (*_RESIGNED, EventType.ANSWERED, EventType.ANSWER_FAILED)


def controllers(timed: DataFrame) -> DataFrame:
    """Return one row for each term of a controller, including those that only brokers' lines show.

    Overlaps within the clock error are not reported. If epochs are missing between two terms (those of ZooKeeper
    controllers are consecutive), the gap between them is null.
    """
    lines = voiced(timed)
    found = terms(lines).withColumn("term", f.struct("controller", "controller_epoch", "begin"))
    acted = _acted(lines, found)
    known = (
        found.join(acted, "term", "left")
        .join(_refused(lines), ["controller", "controller_epoch"], "left")
        .join(_moved(lines), ["controller", "controller_epoch"], "left")
    )
    in_order = Window.partitionBy("source").orderBy("place", "begin")
    seen_last = f.lag(f.coalesce("resigned_at", "sign_at")).over(in_order)
    is_next = (f.col("source") != ZOOKEEPER) | (
        f.col("controller_epoch") - f.lag("controller_epoch").over(in_order) == 1
    )
    silent_ms = _ms(f.col("elected_at")) - _ms(seen_last)
    gap = f.when(silent_ms > 0, silent_ms).when(silent_ms <= 0, f.lit(0))
    return known.withColumns({"gap_ms": f.when(is_next, gap), "overlap_ms": _overlap()}).select(
        f.when(f.col("controller") != NAMELESS, f.col("controller")).alias("controller"),
        "controller_epoch",
        "elected_at",
        "ready_at",
        "started_at",
        "last_act_at",
        "resigned_at",
        (_ms(f.coalesce("started_at", "ready_at")) - _ms(f.col("elected_at"))).alias("failover_ms"),
        "gap_ms",
        "overlap_ms",
        f.coalesce("refused", f.lit(0)).cast("long").alias("refused"),
        f.coalesce("partitions_moved", f.lit(0)).cast("long").alias("partitions_moved"),
        "slowest_event_ms",
        "source",
    )


def _acted(lines: DataFrame, found: DataFrame) -> DataFrame:
    """Results from each term's own lines, and `sign_at`: the last line of its broker before another one was elected."""
    mine = found.where("begin is not null").select(
        "term",
        f.col("controller").alias("who"),
        f.col("controller_epoch").alias("epoch"),
        "begin",
        "until",
        "next_at",
    )
    own_epoch = f.when(is_own(), f.col("controller_epoch"))
    said = lines.select("speaker", "at", "type", "took_ms", is_own().alias("own"), own_epoch.alias("own_epoch"))
    then = (f.col("at") >= f.col("begin")) & (f.col("until").isNull() | (f.col("at") < f.col("until")))
    belongs = (f.col("own_epoch") == f.col("epoch")) | (f.col("own_epoch").isNull() & then)
    # Terms are few; a line's broker has at most one at a time.
    joined = said.join(f.broadcast(mine), (f.col("speaker") == f.col("who")) & belongs)

    def own(*types: EventType) -> Value:
        return f.when(f.col("own") & is_a(*types), f.col("at"))

    return joined.groupBy("term").agg(
        f.min(own(EventType.CONTROLLER_READY)).alias("ready_at"),
        f.min(own(EventType.CONTROLLER_STARTED)).alias("started_at"),
        f.min(own(*_RESIGNED)).alias("resigned_at"),
        f.max(f.when(f.col("own") & ~is_a(*_NO_ACT), f.col("at"))).alias("last_act_at"),
        f.max(f.when(f.col("next_at").isNull() | (f.col("at") <= f.col("next_at")), f.col("at"))).alias("sign_at"),
        f.max(f.when(f.col("own") & is_a(EventType.SLOW_EVENT), f.col("took_ms"))).alias("slowest_event_ms"),
    )


def _overlap() -> Value:
    late_us = f.unix_micros("last_act_at") - f.unix_micros("next_at")
    wrong_us = f.col("error_us") + f.col("next_error_us")
    alone = f.col("next_controller").isNull() | (f.col("next_controller") == f.col("controller")) | (late_us <= 0)
    beyond = f.when(late_us > wrong_us, f.floor(late_us / 1000)).when(late_us <= wrong_us, f.lit(0))
    return f.when(f.coalesce(alone, f.lit(False)), f.lit(0)).otherwise(beyond).cast("long")


def _refused(lines: DataFrame) -> DataFrame:
    """Requests that brokers rejected because of the controller epoch, each once, however many files contain it."""
    stale = lines.where(is_a(EventType.IGNORED) & f.col("reason").contains("its controller epoch"))
    once = stale.select("controller", "controller_epoch", "speaker", "request", "correlation_id", "at").distinct()
    return once.groupBy("controller", "controller_epoch").agg(f.count("*").alias("refused"))


def _moved(lines: DataFrame) -> DataFrame:
    moves = lines.where(is_a(EventType.PARTITION) & f.col("controller_epoch").isNotNull())
    once = moves.select("controller", "controller_epoch", "topic", "partition", "at", "to_state").distinct()
    return once.groupBy("controller", "controller_epoch").agg(f.count("*").alias("partitions_moved"))


def _ms(time: Value) -> Value:
    return f.unix_millis(time)


JOB: Final = Job(
    name="controllers",
    description="Terms of controllers: durations of takeovers, and whether two acted at once.",
    needs=("timed",),
    columns=COLUMNS,
    run=controllers,
)
