"""Job `deletions`: topics that were deleted, or whose deletion did not finish."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import columns, names_of
from kactl.forensics.event_types import DELETIONS, EventType, Role
from kactl.forensics.tables import kept_if_small
from kactl.forensics.text.columns import TEXT_LIMIT

from .expressions import NEW, all_known, is_a, is_true, ms_between, no_ids, rows_of, stacked
from .job import Job

COLUMNS: Final = columns(
    """
    topic       text  the topic; its id if no line has its name
    asked_at    time  [requested] when its deletion was requested; null if no line states it, as with KRaft
    started_at  time  when its replicas began to be stopped, the last time
    done_at     time  when it was deleted; null if no line states it
    span_ms     ms    [for] from request until done, or until the controllers' logs end; null if either is unknown
    restarts    long  [restarted] number of times it was restarted
    halts       long  [halted] number of times it was halted
    reason      text  [why] reason of the last halt, as the controller logged it
    blocked_by  ids   [blocked by] brokers with replicas that were dead, could not be stopped, or were being reassigned
    finished    bool  whether it was deleted within the logs
    """
)
STARTED: Final = "ReplicaDeletionStarted"
SUCCESSFUL: Final = "ReplicaDeletionSuccessful"
INELIGIBLE: Final = "ReplicaDeletionIneligible"
_DONE: Final = (EventType.DELETION_DONE, EventType.TOPIC_REMOVED)
# Reason of a line that repeats an earlier halt.
_STILL_HALTED: Final = "it is marked ineligible for deletion"
# "[Topic=t,Partition=0,Replica=3]"; a number that the end of a long text cut off has no bracket behind it.
_REPLICA: Final = r"Replica=(\d+)\]"


def deletions(timed: DataFrame) -> DataFrame:
    """Return one row for each deletion of a topic; a name that was used again may have several.

    A deletion ends with the line that states it, or if that is missing, with the creation of another topic of this
    name. The blocking brokers follow from dead replicas that the controller names, from replicas whose deletion failed,
    and, for unfinished deletions, from brokers that never confirmed the deletion of a replica; the latter two are only
    logged at TRACE. A deletion that began before the logs includes what the logs contain.
    """
    lines = kept_if_small(_lines(timed))
    before = rows_of("topic").in_order("at", "ends")
    numbered = lines.withColumn("number", f.coalesce(before.running_before(f.sum("ends")), f.lit(0)))
    last = timed.where(f.col("role") == Role.CONTROLLER).agg(f.max("at")).scalar()
    summed = _summed(numbered).where("said > 0").join(_unanswered(numbered), ["topic", "number"], "left")
    until = f.when(f.col("finished"), f.col("done_at")).otherwise(last)
    unanswered = f.when(f.col("finished") | f.col("unanswered").isNull(), no_ids()).otherwise(f.col("unanswered"))
    return summed.withColumns(
        {
            "started_at": f.coalesce("started_at", "stopped_at"),
            "span_ms": ms_between("asked_at", until),
            "restarts": f.greatest(f.col("starts") - 1, f.lit(0)).cast("long"),
            "blocked_by": f.array_sort(f.array_union("blocked", unanswered)),
        }
    ).select(*names_of(COLUMNS))


def signs(timed: DataFrame) -> DataFrame:
    """Return the lines about deletions, one row for each topic in a line.

    Returns:
        topic, at, type, reason, and brokers: those of the dead replicas that the line names, else null.
    """
    lines = timed.where(is_a(*DELETIONS) & f.col("at").isNotNull() & ~is_a(EventType.TOPIC_REMOVED))
    dead = f.when(
        is_a(EventType.DELETION_DEAD), f.regexp_extract_all("text", f.lit(_REPLICA), 1).try_cast("array<int>")
    )
    named = lines.select(f.explode(_names()).alias("topic"), "at", "type", "reason", dead.alias("brokers"))
    removed = (
        # Each controller's dump of the metadata log has it.
        timed.where(is_a(EventType.TOPIC_REMOVED) & f.col("topic_id").isNotNull())
        .groupBy("topic_id")
        .agg(f.min("at").alias("at"), f.min("topic").alias("name"))
        .select(
            f.coalesce("name", "topic_id").alias("topic"),
            "at",
            f.lit(str(EventType.TOPIC_REMOVED)).alias("type"),
        )
    )
    return stacked(named.distinct(), removed)


def _names() -> Value:
    """The topics that a line lists, in any collection syntax; the last, truncated one of a long list is dropped."""
    listed = f.split(f.regexp_replace("topic", r"^\w+\(|\)$", ""), ",")
    whole = f.when(f.octet_length("topic") >= TEXT_LIMIT, f.slice(listed, 1, f.size(listed) - 1)).otherwise(listed)
    return f.filter(f.transform(whole, lambda name: f.trim(name)), lambda name: name != "")


def _lines(timed: DataFrame) -> DataFrame:
    """All lines about topics that are or were to be deleted: `signs`, and transitions of their replicas and partitions.

    `ends` is 1 if no line of the same deletion can follow.
    """
    sign_lines = kept_if_small(signs(timed).withColumn("ends", is_a(*_DONE).cast("int")))
    moved = is_a(EventType.REPLICA, EventType.REPLICA_FAILED) & f.col("to_state").isin(STARTED, SUCCESSFUL, INELIGIBLE)
    # Partitions that are added to a topic are created, too, but never partition 0.
    is_creation = (f.col("partition") == 0) & (
        is_a(EventType.PARTITION_CREATED) | (is_a(EventType.PARTITION) & (f.col("to_state") == NEW))
    )
    around = timed.where((moved | is_creation | is_a(EventType.REASSIGNMENT_STARTED)) & all_known("topic", "at")).join(
        sign_lines.select("topic").distinct(), "topic", "left_semi"
    )
    return stacked(
        sign_lines,
        around.select(
            "topic",
            "at",
            "type",
            f.when(is_a(EventType.REASSIGNMENT_STARTED), f.col("replicas")).alias("brokers"),
            "partition",
            "broker",
            "to_state",
            is_creation.cast("int").alias("ends"),
        ),
    )


def _summed(numbered: DataFrame) -> DataFrame:
    """One row for each topic and number; `said` is the number of lines that are about a deletion."""

    def at(*types: EventType) -> Value:
        return f.when(is_a(*types), f.col("at"))

    failed = is_a(EventType.REPLICA_FAILED) | (is_a(EventType.REPLICA) & (f.col("to_state") == INELIGIBLE))
    is_still_halted = is_a(EventType.DELETION_HALTED) & f.col("reason").eqNullSafe(_STILL_HALTED)
    halted_at = f.when(~is_still_halted, at(EventType.DELETION_HALTED))
    halted_by_moving = is_a(EventType.DELETION_HALTED) & f.col("reason").contains("reassign")
    return (
        numbered.groupBy("topic", "number")
        .agg(
            f.count(at(*DELETIONS)).alias("said"),
            f.min(at(EventType.DELETION_ASKED)).alias("asked_at"),
            f.max(at(EventType.DELETION_STARTED)).alias("started_at"),
            f.min(f.when(f.col("to_state") == STARTED, f.col("at"))).alias("stopped_at"),
            f.min(at(*_DONE)).alias("done_at"),
            f.count_distinct(at(EventType.DELETION_STARTED)).alias("starts"),
            f.count_distinct(halted_at).alias("halts"),
            f.coalesce(f.max_by(f.col("reason"), halted_at), f.max(f.when(is_still_halted, f.col("reason")))).alias(
                "reason"
            ),
            f.max("ends").alias("ends"),
            f.flatten(f.collect_set(f.when(is_a(EventType.DELETION_DEAD), f.col("brokers")))).alias("dead"),
            f.collect_set(f.when(failed, f.col("broker"))).alias("failed"),
            f.flatten(f.collect_set(f.when(is_a(EventType.REASSIGNMENT_STARTED), f.col("brokers")))).alias("targets"),
            is_true(f.max(halted_by_moving)).alias("is_moving"),
        )
        .withColumn("finished", f.col("ends") > 0)
        .withColumn("moving", f.when(f.col("is_moving"), f.col("targets")).otherwise(no_ids()))
        .withColumn("blocked", f.array_union(f.array_union("dead", "failed"), "moving"))
    )


def _unanswered(numbered: DataFrame) -> DataFrame:
    """topic, number, unanswered: brokers with a replica whose deletion began, and neither succeeded nor failed."""
    moves = numbered.where(is_a(EventType.REPLICA))
    # Of two transitions in one millisecond the later one is the result.
    order = f.struct(f.col("at"), (f.col("to_state") != STARTED))
    last = moves.groupBy("topic", "number", "partition", "broker").agg(f.max_by("to_state", order).alias("last"))
    waiting = last.where(f.col("last") == STARTED)
    return waiting.groupBy("topic", "number").agg(f.collect_set("broker").alias("unanswered"))


JOB: Final = Job("deletions", "Topics that were deleted, or whose deletion did not finish.", COLUMNS, deletions)
