"""Job `reassignments`: partitions that were moved to other replicas, or whose move did not finish.

    requested moves (C10) ──┬─▶ signs, in order ─▶ moves ─┬─▶ caught-up replicas, end of each move
    added, removed replicas ┘                             │
    states meanwhile, written assignments (S7) ───────────┘

The signs depend on the version. Up to 2.3 the controller logs the beginning, and the written replicas show the end.
From 2.4 on each state has the added and removed replicas, and the end is a state without any; KRaft's metadata log has
the same. The ZooKeeper controller logs both assignments as well when it has written them.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, KEY_COLUMNS, columns, names_of
from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.tables import kept_if_small

from .expressions import all_known, best_only, is_a, is_true, ms_between, no_ids, null, rows_of, stacked
from .job import Job
from .states import complete_records

COLUMNS: Final = KEY_COLUMNS + columns(
    """
    started_at    time  [begun] when it began, or the first line that shows it under way; null if there is none
    caught_up_at  time  when all of the target had caught up
    done_at       time  when only the target was assigned; null if no line shows it
    span_ms       ms    [for] from started until done, cancelled or replaced by another, or to the end of the logs
    origin        ids   replicas assigned before; null if unknown
    target        ids   [target] replicas to be assigned
    copy_ms       ms    from started until caught up
    waits         long  number of times the controller found replicas that had not caught up
    waiting_for   ids   [not in sync yet] replicas of the target never seen in the ISR meanwhile; empty if all caught up
    finished      bool  whether it finished within the logs; null if all caught up and no later line exists
    """
)
# "Sent LeaderAndIsr request LeaderAndIsr(..) with new replica assignment 1,2 to leader 2 for partition ..."
_WRITTEN: Final = r"with new (?:replica assignment|assigned replica list) ([\d, ]+) to leader"


def reassignments(timed: DataFrame, states: DataFrame) -> DataFrame:
    """Return one row for each reassignment of a partition.

    Another one begins when the target differs from the one before, and after the end of the one before; a repetition by
    a new controller is the same one. A reassignment that was cancelled or replaced by another one is not finished.
    Caught-up replicas are seen from ISRs.
    """
    moves = kept_if_small(moves_seen(timed))
    assessed = _judged(moves.join(_courses(moves, timed, states), [*KEY, "number"], "left"))
    last = timed.where(f.col("role") == Role.CONTROLLER).agg(f.max("at")).scalar()
    until = (
        f.when(f.col("finished").isNull(), None)
        .when(f.col("finished"), f.col("done_at"))
        .otherwise(f.coalesce("closed_at", "next_at", last))
    )
    spans = {"span_ms": ms_between("started_at", until), "copy_ms": ms_between("started_at", "caught_up_at")}
    return assessed.withColumns(spans).select(*names_of(COLUMNS))


# -- targets and ends --------------------------------------------------------------------------------------------------


def _courses(moves: DataFrame, timed: DataFrame, states: DataFrame) -> DataFrame:
    """The key, number, and `course`: all known replicas and ISRs of the partition until the next reassignment began."""
    ids = f.transform(f.split(f.regexp_extract("text", _WRITTEN, 1), ","), lambda each: f.trim(each).try_cast("int"))
    sent = is_a(EventType.REASSIGNMENT_SENT)
    written = timed.where((sent | _is_written()) & f.col("topic").isNotNull()).select(
        *KEY, "at", f.when(sent, ids).otherwise(f.col("replicas")).alias("replicas"), null("array<int>").alias("isr")
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


def _judged(moves: DataFrame) -> DataFrame:
    """Add origin, target, caught_up_at, done_at, waiting_for and finished."""
    states = "array<struct<at:timestamp,replicas:array<int>,isr:array<int>>>"
    complete = moves.withColumns(
        {"course": f.coalesce("course", f.array().cast(states)), "since": f.coalesce("started_at", "begin")}
    )
    assessed = _with_followers(_with_end(_with_target(complete)))
    is_there, is_closed = f.col("caught_up_at").isNotNull(), f.col("closed_at").isNotNull()
    return assessed.withColumn(
        "finished",
        f.when(f.col("done_at").isNotNull(), True)
        .when(is_closed & f.col("reached").isNull(), None)
        .when(is_there & ~is_closed & f.col("next_at").isNull(), None)
        .otherwise(False),
    )


def _with_target(moves: DataFrame) -> DataFrame:
    """Add origin and target: as lines name them, or from the previous assignment and the added and removed replicas."""
    earlier = f.filter("course", lambda state: (state.at < f.col("since")) & state.replicas.isNotNull())
    before = f.try_element_at(earlier, f.lit(-1)).replicas
    # If another one was under way, the previous assignment is not the origin.
    by_signs = f.array_except("all_replicas", "adding")
    is_same = f.array_sort(before) == f.array_sort(by_signs)
    origin = f.when(by_signs.isNull() | is_same, before).otherwise(by_signs)
    by_changes = f.array_union(f.array_except("origin", "removing"), f.col("adding"))
    return moves.withColumn("origin", f.coalesce(origin, by_signs)).withColumn(
        "target", f.coalesce("named", by_changes)
    )


def _with_end(moves: DataFrame) -> DataFrame:
    """Add `reached`, and done_at: by the sign that no move is under way, or by the assignment."""
    assigned = f.filter("course", lambda state: (state.at > f.col("since")) & (state.replicas == f.col("target")))
    assigned_at = f.try_element_at(assigned, f.lit(1)).at
    reached = f.col("reached")
    return moves.withColumn("reached", _reached()).withColumn(
        "done_at", f.when(reached, f.col("closed_at")).when(reached.isNull(), assigned_at)
    )


def _with_followers(moves: DataFrame) -> DataFrame:
    """Add caught_up_at and waiting_for: by ISRs from the beginning until the end."""
    no_replicas = no_ids()
    end = f.coalesce("done_at", "closed_at")
    known = f.filter("course", lambda state: state.isr.isNotNull())
    at_start = f.try_element_at(f.filter(known, lambda state: state.at <= f.col("since")), f.lit(-1)).isr
    meanwhile = f.filter(known, lambda state: (state.at > f.col("since")) & (end.isNull() | (state.at <= end)))
    all_in = f.filter("meanwhile", lambda state: f.size(f.array_except("target", state.isr)) == 0)
    was_in = f.size(f.array_except("target", at_start)) == 0
    caught_up_at = f.when(was_in, f.col("since")).otherwise(
        f.coalesce("said_caught_up_at", f.try_element_at(all_in, f.lit(1)).at)
    )
    seen_in_sync = f.concat(
        f.flatten(f.transform("meanwhile", lambda state: state.isr)), f.coalesce("at_start", no_replicas)
    )
    is_known = f.col("at_start").isNotNull() | (f.size("meanwhile") > 0)
    missing = f.when(is_known & f.col("target").isNotNull(), f.array_sort(f.array_except("target", seen_in_sync)))
    is_there = f.col("done_at").isNotNull() | f.col("caught_up_at").isNotNull()
    return (
        moves.withColumns({"meanwhile": meanwhile, "at_start": at_start})
        .withColumn("caught_up_at", caught_up_at)
        .withColumn("waiting_for", f.when(is_there, no_replicas).otherwise(missing))
    )


def _reached() -> Value:
    """True if the target was assigned when no move was under way any more; null if unknown.

    If the line has no replicas: the added replicas are then in sync and the removed ones are not, or the other way
    round if the move was cancelled.
    """
    by_replicas = f.array_sort("closed_replicas") == f.array_sort("target")
    by_isr = (f.size(f.array_except("adding", "closed_isr")) == 0) & ~f.arrays_overlap("removing", "closed_isr")
    return f.when(f.col("closed_at").isNotNull(), f.coalesce(by_replicas, by_isr))


# -- signs -------------------------------------------------------------------------------------------------------------

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
    has_key = all_known("topic", "partition", "at")
    is_requested, waits = is_a(EventType.REASSIGNMENT_STARTED), is_a(EventType.REASSIGNMENT_WAITS)
    all_there = is_a(EventType.REASSIGNMENT_CAUGHT_UP) | (waits & (f.col("count") >= f.col("count_also")))
    requests = (
        timed.where(has_key & (is_requested | waits | is_a(EventType.REASSIGNMENT_CAUGHT_UP)))
        .select(
            *KEY,
            "at",
            f.when(is_requested, _UNDER_WAY).when(all_there, _CAUGHT_UP).alias("sign"),
            f.col("replicas").alias("target"),
            (waits & ~all_there).cast("long").alias("waits"),
        )
        .distinct()
    )
    changes = kept_if_small(_shown(timed, has_key))
    under_way = changes.where("size(adding) + size(removing) > 0").select(*KEY)
    concerned = requests.select(*KEY).unionByName(under_way).distinct()
    is_moving = f.size("adding") + f.size("removing") > 0
    facts = changes.join(concerned, list(KEY), "left_semi").select(
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
    return stacked(requests, facts)


def _shown(timed: DataFrame, has_key: Value) -> DataFrame:
    """Added and removed replicas: once for each leader epoch, which every step raises, for each assignment that the
    ZooKeeper controller has written, or for each record of KRaft's log.

    The metadata log is complete for a partition; brokers only repeat it, later.
    """
    both = all_known("adding", "removing")
    lines = timed.where(has_key & both & (f.col("kind") != Kind.DUMP) & f.col("leader_epoch").isNotNull())
    of_epochs = lines.groupBy(*KEY, "leader_epoch").agg(
        f.min("at").alias("at"),
        f.min_by("adding", "at").alias("adding"),
        f.min_by("removing", "at").alias("removing"),
        f.min_by("replicas", f.when(f.col("replicas").isNotNull(), f.col("at"))).alias("replicas"),
        f.min_by("isr", f.when(f.col("isr").isNotNull(), f.col("at"))).alias("isr"),
    )
    names = ("at", "adding", "removing", "replicas", "isr")
    # The same line may be in two files.
    written = timed.where(has_key & both & _is_written()).select(*KEY, *names).distinct()
    no_replicas = no_ids()
    records = (
        complete_records(timed)
        .select(*KEY, *names)
        .withColumns({name: f.coalesce(name, no_replicas) for name in ("adding", "removing")})
    )
    of_states = of_epochs.select(*KEY, *names).unionByName(written)
    marked = of_states.withColumn("is_record", f.lit(0)).unionByName(records.withColumn("is_record", f.lit(1)))
    return best_only(marked, "is_record", *KEY)


def _is_written() -> Value:
    """True for an assignment that a ZooKeeper controller has just written. A KRaft controller repeats those of its log
    when it starts.
    """
    return is_a(EventType.ASSIGNED) & f.col("topic_id").isNull()


def _numbered(signs: DataFrame) -> DataFrame:
    """Signs with `number`: the reassignment of the partition that each belongs to; 0 if it began before the logs."""
    # At the same time, the end of one comes before the beginning of the next.
    rank = f.when(f.col("sign") == _AT_REST, 0).when(f.col("sign") == _UNDER_WAY, 1).otherwise(2)
    order = rows_of(*KEY).in_order("at", "rank")
    marked = signs.withColumn("rank", rank)
    target, changes = f.array_sort("target"), f.struct("adding", "removing")
    sign_before = order.latest_before(f.when(f.col("sign").isNotNull(), f.col("sign")))
    target_before = order.latest_before(target)
    changes_before = order.latest_before(f.when(f.col("adding").isNotNull(), changes))
    is_other = f.coalesce(
        target != target_before, f.when(f.col("adding").isNotNull(), changes != changes_before), f.lit(False)
    )
    under_way = f.col("sign") == _UNDER_WAY
    begins = (under_way & (sign_before.isNull() | (sign_before == _AT_REST))) | (
        (under_way | (f.col("sign") == _CAUGHT_UP)) & is_other
    )
    return marked.withColumn("begins", is_true(begins).cast("int")).withColumn("number", order.running(f.sum("begins")))


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
            f.count(f.when(~is_true(at_rest), 1)).alias("said"),
        )
        .where("said > 0")
    )
    return moves.withColumn("next_at", rows_of(*KEY).in_order("number").next("begin"))


JOB: Final = Job(
    "reassignments",
    "Partitions that were moved to other replicas, or whose move did not finish.",
    COLUMNS,
    reassignments,
)
