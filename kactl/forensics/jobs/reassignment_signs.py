"""Signs of reassignments in the logs, and the reassignment that each belongs to.

Up to 2.3 the controller logs the beginning, and the written replicas show the end. From 2.4 on each state has the added
and removed replicas, and the end is a state without any; KRaft's metadata log has the same.
"""

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType, Kind

from . import kraft
from .lines import is_a

# Kinds of signs: a move is requested or under way, all replicas caught up, or no move is under way any more. Others
# belong to a move in progress.
_UNDER_WAY, _CAUGHT_UP, _AT_REST = "under-way", "caught-up", "at-rest"


def moves_seen(timed: DataFrame) -> DataFrame:
    """Return one row for each reassignment: the key, number, and values of its signs; null where no sign has the value.

    Returns:
        begin, next_at: its first sign, and that of the next one of its partition.
        started_at: the first sign that shows it under way.
        named: the target of the first sign that has it.
        adding, removing, all_replicas: of the first state in which it is under way.
        closed_at, closed_replicas, closed_isr: of the first state in which no move is under way any more.
        said_caught_up_at: the first sign that all had caught up. waits: number of signs that some had not.
    """
    return _together(_numbered(_signs(timed)))


def _signs(timed: DataFrame) -> DataFrame:
    """Signs of reassignments in lines: the key, at, sign, target, adding, removing, replicas, isr, waits."""
    nobody = f.lit(None).cast("array<int>")
    has_key = f.col("topic").isNotNull() & f.col("partition").isNotNull() & f.col("at").isNotNull()
    asked, waits = is_a(EventType.REASSIGNMENT_STARTED), is_a(EventType.REASSIGNMENT_WAITS)
    all_there = is_a(EventType.REASSIGNMENT_CAUGHT_UP) | (waits & (f.col("count") >= f.col("count_also")))
    said = (
        timed.where(has_key & (asked | waits | is_a(EventType.REASSIGNMENT_CAUGHT_UP)))
        .select(
            *KEY,
            "at",
            f.when(asked, _UNDER_WAY).when(all_there, _CAUGHT_UP).alias("sign"),
            f.col("replicas").alias("target"),
            nobody.alias("adding"),
            nobody.alias("removing"),
            nobody.alias("replicas"),
            nobody.alias("isr"),
            (waits & ~all_there).cast("long").alias("waits"),
        )
        .distinct()
    )
    shown = _shown(timed, has_key)
    under_way = shown.where("size(adding) + size(removing) > 0").select(*KEY)
    concerned = said.select(*KEY).unionByName(under_way).distinct()
    is_moving = f.size("adding") + f.size("removing") > 0
    facts = shown.join(concerned, list(KEY), "left_semi").select(
        *KEY,
        "at",
        f.when(is_moving, _UNDER_WAY).otherwise(_AT_REST).alias("sign"),
        f.when(is_moving, f.array_except("replicas", "removing")).alias("target"),
        f.when(is_moving, f.array_sort("adding")).alias("adding"),
        f.when(is_moving, f.array_sort("removing")).alias("removing"),
        "replicas",
        "isr",
        f.lit(0).cast("long").alias("waits"),
    )
    return said.unionByName(facts)


def _shown(timed: DataFrame, has_key: Value) -> DataFrame:
    """Added and removed replicas: once for each leader epoch, which every step raises, or for each record of KRaft's
    log.

    The metadata log is complete for a partition; brokers only repeat it, later.
    """
    both = f.col("adding").isNotNull() & f.col("removing").isNotNull()
    lines = timed.where(has_key & both & (f.col("kind") != Kind.DUMP) & f.col("leader_epoch").isNotNull())
    of_epochs = lines.groupBy(*KEY, "leader_epoch").agg(
        f.min("at").alias("at"),
        f.min_by("adding", "at").alias("adding"),
        f.min_by("removing", "at").alias("removing"),
        f.min_by("replicas", f.when(f.col("replicas").isNotNull(), f.col("at"))).alias("replicas"),
        f.min_by("isr", f.when(f.col("isr").isNotNull(), f.col("at"))).alias("isr"),
    )
    names = ("at", "adding", "removing", "replicas", "isr")
    nobody = f.array().cast("array<int>")
    records = (
        kraft.filled(timed)
        .select(*KEY, *names)
        .withColumns({name: f.coalesce(name, nobody) for name in ("adding", "removing")})
    )
    marked = of_epochs.select(*KEY, *names, f.lit(0).alias("is_record")).unionByName(
        records.withColumn("is_record", f.lit(1))
    )
    best = f.max("is_record").over(Window.partitionBy(*KEY))
    return marked.withColumn("best", best).where("is_record = best").drop("best", "is_record")


def _numbered(signs: DataFrame) -> DataFrame:
    """Signs with `number`: the reassignment of the partition that each belongs to; 0 if it began before the logs."""
    # At the same time, the end of one comes before the beginning of the next.
    rank = f.when(f.col("sign") == _AT_REST, 0).when(f.col("sign") == _UNDER_WAY, 1).otherwise(2)
    order = Window.partitionBy(*KEY).orderBy("at", "rank")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    marked = signs.withColumn("rank", rank)
    target, changes = f.array_sort("target"), f.struct("adding", "removing")
    sign_before = f.last(f.when(f.col("sign").isNotNull(), f.col("sign")), ignorenulls=True).over(before)
    target_before = f.last(target, ignorenulls=True).over(before)
    changes_before = f.last(f.when(f.col("adding").isNotNull(), changes), ignorenulls=True).over(before)
    is_other = f.coalesce(
        target != target_before, f.when(f.col("adding").isNotNull(), changes != changes_before), f.lit(False)
    )
    under_way = f.col("sign") == _UNDER_WAY
    begins = (under_way & (sign_before.isNull() | (sign_before == _AT_REST))) | (
        (under_way | (f.col("sign") == _CAUGHT_UP)) & is_other
    )
    return marked.withColumn("begins", f.coalesce(begins, f.lit(False)).cast("int")).withColumn(
        "number", f.sum("begins").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    )


def _together(numbered: DataFrame) -> DataFrame:
    """One row for each reassignment, from its signs; `next_at` is when the next one of its partition began."""
    under_way, at_rest = f.col("sign") == _UNDER_WAY, f.col("sign") == _AT_REST
    moving_at = f.when(under_way & f.col("adding").isNotNull(), f.col("at"))
    moves = (
        numbered.groupBy(*KEY, "number")
        .agg(
            f.min("at").alias("begin"),
            f.min(f.when(under_way, f.col("at"))).alias("started_at"),
            f.min_by("target", f.when(f.col("target").isNotNull(), f.col("at"))).alias("named"),
            f.min_by("adding", moving_at).alias("adding"),
            f.min_by("removing", moving_at).alias("removing"),
            f.min_by("replicas", f.when(f.col("replicas").isNotNull(), moving_at)).alias("all_replicas"),
            f.min(f.when(at_rest, f.col("at"))).alias("closed_at"),
            f.min_by("replicas", f.when(at_rest, f.col("at"))).alias("closed_replicas"),
            f.min_by("isr", f.when(at_rest, f.col("at"))).alias("closed_isr"),
            f.min(f.when(f.col("sign") == _CAUGHT_UP, f.col("at"))).alias("said_caught_up_at"),
            f.sum("waits").alias("waits"),
            f.count(f.when(~f.coalesce(at_rest, f.lit(False)), 1)).alias("said"),
        )
        .where("said > 0")
    )
    return moves.withColumn("next_at", f.lead("begin").over(Window.partitionBy(*KEY).orderBy("number")))
