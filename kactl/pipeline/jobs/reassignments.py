"""Partitions that were moved to other replicas, or should have been.

    what is asked for (C10) ──┐
    who is added, who goes ───┼─▶ signs, in order ─▶ moves ─▶ with the states meanwhile: who caught up, where it ended
    what is written (S7) ─────┘

Up to 2.3 the controller says what it begins, and replicas that are written show the end. From 2.4 on each state tells
who is added and who is to go, and the end is that nobody is; KRaft's metadata log has the same.
"""

from typing import TYPE_CHECKING, Final

from kactl.pipeline.event_types import EventType, Kind, Role
from kactl.pipeline.events import Column

from . import kraft
from .job import BOOL, IDS, INT, LONG, TEXT, TIME, Job
from .lines import is_a
from .moves import KEY

if TYPE_CHECKING:
    from pyspark.sql import Column as Value
    from pyspark.sql import DataFrame

COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", INT, "the partition's number"),
    Column("life", INT, "which topic of this name; see `timed`"),
    Column("started_at", TIME, "when it began, or the first line that shows it under way; null if none does"),
    Column("caught_up_at", TIME, "when all of the target had caught up"),
    Column("done_at", TIME, "when the target alone was assigned; null if no line shows it"),
    Column("span_ms", LONG, "from started until done, given up or followed by another, or to the end of the logs"),
    Column("origin", IDS, "who was assigned before; null if unknown"),
    Column("target", IDS, "who was to be"),
    Column("copy_ms", LONG, "from started until caught up"),
    Column("waits", LONG, "how often the controller found that some had not caught up"),
    Column("waiting_for", IDS, "of the target, those never seen in the ISR meanwhile; empty if all caught up"),
    Column("finished", BOOL, "whether it came to its end within the logs; null if all caught up and no more is told"),
)
# "Sent LeaderAndIsr request LeaderAndIsr(..) with new replica assignment 1,2 to leader 2 for partition ..."
_WRITTEN: Final = r"with new replica assignment ([\d, ]+) to leader"
# What a sign is: a move is asked for or under way, all caught up, or nothing is under way any more. Others are of a
# move that goes on.
_UNDER_WAY, _CAUGHT_UP, _AT_REST = "under-way", "caught-up", "at-rest"


def reassignments(timed: "DataFrame", states: "DataFrame") -> "DataFrame":
    """One row for each reassignment of a partition.

    Another one begins where somebody else is to be assigned than before, and after the end of the one before; the same
    again, as a new controller says it, is the same. One that was given up, or that another one took the place of, is
    not finished. Who caught up is seen from ISRs.
    """
    from pyspark.sql import functions as f

    moves = _moves(_numbered(_signs(timed)))
    judged = _judged(moves.join(_courses(moves, timed, states), [*KEY, "number"], "left"))
    last = timed.where(f.col("role") == Role.CONTROLLER).agg(f.max("at")).scalar()
    until = (
        f.when(f.col("finished").isNull(), None)
        .when(f.col("finished"), f.col("done_at"))
        .otherwise(f.coalesce("closed_at", "next_at", last))
    )
    return judged.select(
        *KEY,
        "started_at",
        "caught_up_at",
        "done_at",
        (f.unix_millis(until) - f.unix_millis("started_at")).alias("span_ms"),
        "origin",
        "target",
        (f.unix_millis("caught_up_at") - f.unix_millis("started_at")).alias("copy_ms"),
        "waits",
        "waiting_for",
        "finished",
    )


# -- signs -------------------------------------------------------------------------------------------------------------


def _signs(timed: "DataFrame") -> "DataFrame":
    """What tells of reassignments, in lines: the key, at, sign, target, adding, removing, replicas, isr, waits."""
    from pyspark.sql import functions as f

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


def _shown(timed: "DataFrame", has_key: "Value") -> "DataFrame":
    """Who was being added and removed: once for each leader epoch, which every step raises, or each record of KRaft's.

    What the metadata log has of a partition is all there is; brokers only repeat it, and later.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

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


def _numbered(signs: "DataFrame") -> "DataFrame":
    """Signs with `number`: which reassignment of its partition each belongs to; 0 if it began before the logs."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # At the same time, the end of one stands before the beginning of the next.
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


def _moves(numbered: "DataFrame") -> "DataFrame":
    """One row for each reassignment, from its signs; `next_at` is when the next of its partition began."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

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


# -- what became of them -----------------------------------------------------------------------------------------------


def _courses(moves: "DataFrame", timed: "DataFrame", states: "DataFrame") -> "DataFrame":
    """The key, number, and `course`: all that is known of the partition's replicas and ISR until the next one began."""
    from pyspark.sql import functions as f

    ids = f.transform(f.split(f.regexp_extract("text", _WRITTEN, 1), ","), lambda each: f.trim(each).try_cast("int"))
    written = timed.where(is_a(EventType.REASSIGNMENT_SENT) & f.col("topic").isNotNull()).select(
        *KEY, "at", ids.alias("replicas"), f.lit(None).cast("array<int>").alias("isr")
    )
    known = (
        states.where("at is not null")
        .select(*KEY, "at", "replicas", "isr")
        .unionByName(written.where("at is not null and replicas[0] is not null"))
    )
    spans = moves.select(*KEY, "number", "next_at")
    joined = spans.join(known, list(KEY)).where(f.col("next_at").isNull() | (f.col("at") < f.col("next_at")))
    state = f.struct("at", "replicas", "isr")
    return joined.groupBy(*KEY, "number").agg(f.array_sort(f.collect_list(state)).alias("course"))


def _judged(moves: "DataFrame") -> "DataFrame":
    """Moves with origin, target, caught_up_at, done_at, waiting_for and finished."""
    from pyspark.sql import functions as f

    states = "array<struct<at:timestamp,replicas:array<int>,isr:array<int>>>"
    told = moves.withColumns(
        {"course": f.coalesce("course", f.array().cast(states)), "since": f.coalesce("started_at", "begin")}
    )
    judged = _with_followers(_with_end(_with_target(told)))
    is_there, is_closed = f.col("caught_up_at").isNotNull(), f.col("closed_at").isNotNull()
    return judged.withColumn(
        "finished",
        f.when(f.col("done_at").isNotNull(), True)
        .when(is_closed & f.col("reached").isNull(), None)
        .when(is_there & ~is_closed & f.col("next_at").isNull(), None)
        .otherwise(False),
    )


def _with_target(moves: "DataFrame") -> "DataFrame":
    """With origin and target: as lines name them, or by who was assigned before and who was added and removed."""
    from pyspark.sql import functions as f

    earlier = f.filter("course", lambda each: (each.at < f.col("since")) & each.replicas.isNotNull())
    before = f.try_element_at(earlier, f.lit(-1)).replicas
    # If another one was under way, what was assigned before is not where it came from.
    by_signs = f.array_except("all_replicas", "adding")
    is_same = f.array_sort(before) == f.array_sort(by_signs)
    origin = f.when(by_signs.isNull() | is_same, before).otherwise(by_signs)
    by_changes = f.array_union(f.array_except("origin", "removing"), f.col("adding"))
    return moves.withColumn("origin", f.coalesce(origin, by_signs)).withColumn(
        "target", f.coalesce("named", by_changes)
    )


def _with_end(moves: "DataFrame") -> "DataFrame":
    """With `reached`, and done_at: by the sign that nothing is under way any more, or by what was assigned."""
    from pyspark.sql import functions as f

    assigned = f.filter("course", lambda each: (each.at > f.col("since")) & (each.replicas == f.col("target")))
    assigned_at = f.try_element_at(assigned, f.lit(1)).at
    reached = f.col("reached")
    return moves.withColumn("reached", _reached()).withColumn(
        "done_at", f.when(reached, f.col("closed_at")).when(reached.isNull(), assigned_at)
    )


def _with_followers(moves: "DataFrame") -> "DataFrame":
    """With caught_up_at and waiting_for: by ISRs from the beginning until the end."""
    from pyspark.sql import functions as f

    nobody = f.array().cast("array<int>")
    end = f.coalesce("done_at", "closed_at")
    known = f.filter("course", lambda each: each.isr.isNotNull())
    at_start = f.try_element_at(f.filter(known, lambda each: each.at <= f.col("since")), f.lit(-1)).isr
    meanwhile = f.filter(known, lambda each: (each.at > f.col("since")) & (end.isNull() | (each.at <= end)))
    all_in = f.filter("meanwhile", lambda each: f.size(f.array_except("target", each.isr)) == 0)
    was_in = f.size(f.array_except("target", at_start)) == 0
    caught_up_at = f.when(was_in, f.col("since")).otherwise(
        f.coalesce("said_caught_up_at", f.try_element_at(all_in, f.lit(1)).at)
    )
    seen = f.concat(f.flatten(f.transform("meanwhile", lambda each: each.isr)), f.coalesce("at_start", nobody))
    is_known = f.col("at_start").isNotNull() | (f.size("meanwhile") > 0)
    missing = f.when(is_known & f.col("target").isNotNull(), f.array_sort(f.array_except("target", seen)))
    is_there = f.col("done_at").isNotNull() | f.col("caught_up_at").isNotNull()
    return (
        moves.withColumns({"meanwhile": meanwhile, "at_start": at_start})
        .withColumn("caught_up_at", caught_up_at)
        .withColumn("waiting_for", f.when(is_there, nobody).otherwise(missing))
    )


def _reached() -> "Value":
    """Whether the target is what was assigned when nothing was under way any more; null if that cannot be told.

    Where the line has no replicas: who was added is in sync by then, and who was to go is not; the other way round if
    it was given up.
    """
    from pyspark.sql import functions as f

    by_replicas = f.array_sort("closed_replicas") == f.array_sort("target")
    by_isr = (f.size(f.array_except("adding", "closed_isr")) == 0) & ~f.arrays_overlap("removing", "closed_isr")
    return f.when(f.col("closed_at").isNotNull(), f.coalesce(by_replicas, by_isr))


JOB: Final = Job(
    name="reassignments",
    says="Partitions that were moved to other replicas, or should have been.",
    needs=("timed", "states"),
    columns=COLUMNS,
    run=reassignments,
)
