"""Job `churn`: elections and ISR changes by hour; `flapping` has the same by partition.

Both count elections and ISR changes once, however many lines contain them (`elections`, `isr_course`). Every write of a
partition's state raises its partition epoch by one. Between two states with consecutive epochs nothing else happened,
so states alone are used; where epochs are missing in between, or lines have none, leaders' lines about their ISRs fill
the gap.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, columns, names_of
from kactl.forensics.event_types import EventType
from kactl.forensics.tables import kept_if_small

from .expressions import all_known, is_a, is_true, no_ids, or_zero, rows_of, stacked
from .job import Job

COLUMNS: Final = columns(
    """
    hour              time  the hour's beginning
    elections         long  [leaders] leaders that took over from another one, or from none
    planned           long  [requested] of them, those that were requested
    forced            long  [after a failure] of them, those after a failure
    partitions        long  partitions with an election
    shrinks           long  [ISRs shrank] ISR changes that removed a replica
    expands           long  [ISRs grew] ISR changes that added a replica
    most_in_a_minute  long  [in its worst minute] elections in its worst minute
    storm             bool  whether that minute had many times the usual number; see `churn.STORM_FACTOR`
    """
)
# Values of `leadership.how` that are elections.
_BY_ELECTION: Final = ("offline", "preferred", "controlled-shutdown")
# A minute is a storm if it has at least this many elections, and this many times the median of all minutes with any. A
# broker restart in a small cluster stays below the floor; hourly rebalancing of leaders stays below the factor.
STORM_FLOOR: Final = 50
STORM_FACTOR: Final = 10
# With fewer minutes than these the median means nothing, and the floor alone decides: logs of one incident have no
# other minutes.
USUAL_MINUTES: Final = 10


def churn(leadership: DataFrame, states: DataFrame, timed: DataFrame) -> DataFrame:
    """Return the hours with any election or ISR change.

    Elections are rows of `leadership`, one for each epoch; ISR changes are those of `isr_course`.
    """
    moved = kept_if_small(stacked(counted_elections(leadership), counted_changes(isr_course(states, timed))))
    sums = ("elections", "planned", "forced", "shrinks", "expands")
    minutes = moved.groupBy(f.date_trunc("minute", "at").alias("minute")).agg(
        *(or_zero(f.sum(name)).alias(name) for name in sums)
    )
    hours = minutes.groupBy(f.date_trunc("hour", "minute").alias("hour")).agg(
        *(f.sum(name).alias(name) for name in sums), f.max("elections").alias("most_in_a_minute")
    )
    concerned = (
        moved.where("elections > 0")
        .select(f.date_trunc("hour", "at").alias("hour"), *KEY)
        .distinct()
        .groupBy("hour")
        .agg(f.count("*").alias("partitions"))
    )
    many = f.col("most_in_a_minute") >= f.lit(STORM_FLOOR)
    unusual = f.col("most_in_a_minute") >= _usual(minutes) * STORM_FACTOR
    return (
        hours.join(concerned, "hour", "left")
        .withColumns({"partitions": f.coalesce("partitions", f.lit(0)), "storm": many & unusual})
        .select(*names_of(COLUMNS))
    )


def counted_elections(leadership: DataFrame) -> DataFrame:
    """Return one row for each election: the key, `at`, and 1 in each of elections, planned and forced that applies."""
    return elections(leadership).select(
        *KEY,
        f.col("begin").alias("at"),
        f.lit(1).alias("elections"),
        f.col("planned").cast("int").alias("planned"),
        (~f.col("planned")).cast("int").alias("forced"),
    )


def counted_changes(course: DataFrame) -> DataFrame:
    """Return one row for each ISR change: the key, `at`, and 1 in each of shrinks and expands that applies."""
    changes = course.select(
        *KEY,
        "at",
        (f.size("lost") > 0).cast("int").alias("shrinks"),
        (f.size("won") > 0).cast("int").alias("expands"),
    )
    return changes.where("shrinks + expands > 0")


def _usual(minutes: DataFrame) -> Value:
    """Median number of elections in a minute with any, over all logs; 0 if there are too few minutes."""
    busy = minutes.where("elections > 0")
    median = f.when(f.count("*") >= USUAL_MINUTES, f.median("elections")).otherwise(f.lit(0.0))
    return busy.agg(median.alias("usual")).scalar()


# -- elections and ISR changes -----------------------------------------------------------------------------------------

# At the same time, a leader's request comes before the resulting state.
_WANTED, _STORED = 0, 1


def elections(leadership: DataFrame) -> DataFrame:
    """Return the rows of `leadership` in which a leader took over from another one, or from none.

    The first leader of a partition and a new epoch of the same leader are excluded. If the previous leader is unknown,
    only a certain election counts: the first line of a partition in the logs may be about a leader that had led for
    long.
    """
    how = f.coalesce("how", f.lit("unknown"))
    before = f.col("prev_leader")
    took_over = (
        f.when(how == "offline", True)
        .when(before.isNull(), how.isin(list(_BY_ELECTION)))
        .otherwise(before != f.col("leader"))
    )
    return leadership.where((f.col("leader") >= 0) & f.col("begin").isNotNull() & (how != "initial") & took_over)


def isr_course(states: DataFrame, timed: DataFrame) -> DataFrame:
    """Return the known ISRs of each partition, in order.

    Returns:
        the key; `at`; `until`: `at` of the next one, null for the last; `leader`; `isr`; `replicas` as far as known by
            then; `whole`: whether it is from a log that has every change; `lost` and `won`: replicas that left and
            joined the ISR. Both are empty if the line repeats a known ISR.
    """
    known = states.where("isr is not null and at is not null and coalesce(leader, 0) <> -2")
    versioned = _versioned(known.where("partition_epoch is not null"))
    isrs = stacked(_logged_by_leaders(timed), versioned, _unversioned(known))
    order = ("at", "rank", "version")
    forward = rows_of(*KEY).in_order(*order)
    backward = rows_of(*KEY).in_order(*map(f.desc, order))
    are_missing = f.coalesce(backward.latest_before("version") - forward.latest_before("version") > 1, f.lit(True))
    used = isrs.withColumn("used", f.col("version").isNotNull() | are_missing).where("used")

    before = forward.previous("isr")
    is_known = is_true(f.array_sort(before) == f.array_sort("isr"))
    # A leader's line has its previous ISR; a state follows the last known one.
    base = f.coalesce("prev_isr", before)
    return used.select(
        *KEY,
        "at",
        forward.next("at").alias("until"),
        "leader",
        "isr",
        forward.latest("replicas").alias("replicas"),
        "whole",
        _without(base, f.col("isr"), is_known).alias("lost"),
        _without(f.col("isr"), base, is_known).alias("won"),
    )


def _versioned(states: DataFrame) -> DataFrame:
    """States with a partition epoch. Its time is never before that of the previous one, whatever the clocks show."""
    so_far = rows_of(*KEY).in_order("partition_epoch")
    return states.select(
        *KEY,
        so_far.running(f.max("at")).alias("at"),
        f.lit(_STORED).alias("rank"),
        f.col("partition_epoch").alias("version"),
        "leader",
        "isr",
        "replicas",
        _is_whole().alias("whole"),
    )


def _unversioned(states: DataFrame) -> DataFrame:
    """States without a partition epoch: the first of each leader epoch, because later ones repeat it.

    All states of a metadata log that begins in the middle are used although they have no epochs: it is in order and
    complete.
    """
    unnumbered = states.where("partition_epoch is null").withColumn("whole", _is_whole())
    state = f.struct("at", "leader", "isr", "replicas", "whole")
    first = (
        unnumbered.where("leader_epoch is not null")
        .groupBy(*KEY, "leader_epoch")
        .agg(f.min_by(state, "at").alias("state"))
        .select(*KEY, "state.*")
    )
    records = unnumbered.where("leader_epoch is null and whole").select(*first.columns)
    return first.unionByName(records).withColumn("rank", f.lit(_STORED))


def _logged_by_leaders(timed: DataFrame) -> DataFrame:
    """ISR changes that leaders logged, without those that failed because of a concurrent write."""
    changes = timed.where(
        is_a(EventType.ISR_SHRUNK, EventType.ISR_EXPANDED, EventType.ISR_UPDATED, EventType.ISR_REFUSED)
        & (f.col("role") == "broker")
        & all_known("topic", "at")
    )
    # The same line may stand in two files.
    once = changes.groupBy(*KEY, "speaker", "at", "type", "isr", "prev_isr").agg(f.min("offset").alias("offset"))
    in_order = rows_of(*KEY, "speaker").in_order("at", "offset")
    refused = is_true(in_order.next("type") == str(EventType.ISR_REFUSED))
    wanted = once.withColumn("refused", refused).where(
        is_a(EventType.ISR_SHRUNK, EventType.ISR_EXPANDED) & ~f.col("refused")
    )
    return wanted.where("isr is not null and prev_isr is not null").select(
        *KEY,
        "at",
        f.lit(_WANTED).alias("rank"),
        f.col("speaker").alias("leader"),
        "isr",
        "prev_isr",
        f.lit(False).alias("whole"),
    )


def _is_whole() -> Value:
    """True if a state is from KRaft's metadata log, which is complete."""
    return is_true(f.exists("formats", lambda each: each.endswith("_RECORD")))


def _without(replicas: Value, others: Value, is_known: Value) -> Value:
    no_replicas = no_ids()
    return f.when(is_known, no_replicas).otherwise(f.coalesce(f.array_except(replicas, others), no_replicas))


JOB: Final = Job("churn", "Elections and ISR changes of each hour.", COLUMNS, churn)
