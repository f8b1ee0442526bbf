"""Job `flapping`: partitions whose leader or ISR changed repeatedly."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, KEY_COLUMNS, columns, names_of
from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.expressions import is_true, ms_between, or_zero, rows_of, stacked
from kactl.forensics.tables import kept_if_small

from .churn import counted_changes, counted_elections, isr_course
from .deletions import signs
from .job import Job

COLUMNS: Final = KEY_COLUMNS + columns(
    """
    elections             long  [leaders] number of elections of another leader than the one before
    forced                long  [after a failure] of them, those after a failure
    ping_pongs            long  [back and forth] number of times the leadership went from A to B and back to A within
                                ten minutes
    preferred_lost        long  [preferred, lost again] number of times a preferred leader lost the leadership within
                                ten minutes
    shrinks               long  [ISR shrank] number of ISR changes that removed a replica
    expands               long  [ISR grew] number of ISR changes that added a replica
    cycles_per_hour       real  shrinks followed by the return of a removed replica, in the worst sixty minutes
    worst_follower        id    [left the ISR most] replica that left the ISR most often; null if none did
    worst_follower_falls  long  number of times it did
    lone_ms               ms    [one in sync] milliseconds with at most one replica in sync, though more are assigned
    under_replicated_ms   ms    [fewer than assigned] milliseconds with fewer in sync than assigned; null if the latter
                                is unknown
    first_at              time  time of the first of these changes
    last_at               time  time of the last
    """
)
SOON_MS: Final = 600_000
_HOUR_MS: Final = 3_600_000
_COUNTS: Final = ("elections", "forced", "ping_pongs", "preferred_lost", "shrinks", "expands")


def flapping(leadership: DataFrame, states: DataFrame, timed: DataFrame) -> DataFrame:
    """Return the partitions with more than one election, or with more than one ISR change of a kind.

    The time with a small ISR is summed over `churn.isr_course`. The last known ISR lasts until the last line of a log
    that would show a change: the metadata log, server.log of the leader, or else the last line about the partition
    itself; but not beyond the beginning of the topic's deletion.
    """
    course = kept_if_small(isr_course(states, timed))
    summed = (
        stacked(
            counted_elections(leadership),
            _back_and_forth(leadership),
            _preferred_lost(leadership),
            counted_changes(course),
        )
        .groupBy(*KEY)
        .agg(
            *(or_zero(f.sum(name)).alias(name) for name in _COUNTS),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
        )
        .where("elections > 1 or shrinks > 1 or expands > 1")
    )
    falls = _falls(course)
    return (
        summed.join(_worst_hour(falls), list(KEY), "left")
        .join(_worst_follower(falls), list(KEY), "left")
        .join(_small(course, timed), list(KEY), "left")
        .withColumn("cycles_per_hour", f.coalesce("cycles_per_hour", f.lit(0.0)))
        .withColumn("worst_follower_falls", or_zero("worst_follower_falls"))
        .select(*names_of(COLUMNS))
    )


# -- leaders -----------------------------------------------------------------------------------------------------------


def _changes_of_leader(leadership: DataFrame, which: str) -> DataFrame:
    """The selected rows of `leadership` with another leader than in the row before."""
    in_order = rows_of(*KEY).in_order("leader_epoch", "begin")
    epochs = leadership.where("begin is not null").where(which)
    before = in_order.previous("leader")
    return epochs.withColumn("is_same", before.eqNullSafe(f.col("leader"))).where(~f.col("is_same"))


def _back_and_forth(leadership: DataFrame) -> DataFrame:
    """A row for each return of a leader; a time without leader in between does not count as another leader."""
    in_order = rows_of(*KEY).in_order("leader_epoch", "begin")
    gone_ms = ms_between(in_order.previous("begin"), "begin")
    back = (in_order.previous("leader", 2) == f.col("leader")) & (gone_ms <= SOON_MS)
    turns = _changes_of_leader(leadership, "leader >= 0").withColumn("back", back).where("back")
    return turns.select(*KEY, f.col("begin").alias("at"), f.lit(1).alias("ping_pongs"))


def _preferred_lost(leadership: DataFrame) -> DataFrame:
    """A row for each preferred leader that was soon followed by another leader, or by none."""
    in_order = rows_of(*KEY).in_order("leader_epoch", "begin")
    led_ms = ms_between("begin", in_order.next("begin"))
    lost = (f.col("how") == "preferred") & (led_ms <= SOON_MS)
    turns = _changes_of_leader(leadership, "leader is not null").withColumn("lost", lost).where("lost")
    return turns.select(*KEY, f.col("begin").alias("at"), f.lit(1).alias("preferred_lost"))


# -- ISRs --------------------------------------------------------------------------------------------------------------


def _falls(course: DataFrame) -> DataFrame:
    """A row for each replica that left the ISR: the key, `at`, `replica`, and `back`, whether it was seen to return."""
    left = f.transform("lost", lambda replica: f.struct(replica.alias("replica"), f.lit(True).alias("fell")))
    came = f.transform("won", lambda replica: f.struct(replica.alias("replica"), f.lit(False).alias("fell")))
    moves = course.select(*KEY, "at", f.explode(f.concat(left, came)).alias("move")).select(*KEY, "at", "move.*")
    in_order = rows_of(*KEY, "replica").in_order("at", "fell")
    back = is_true(~in_order.next("fell"))
    return moves.withColumn("back", back).where("fell").drop("fell")


def _worst_hour(falls: DataFrame) -> DataFrame:
    cycles = falls.where("back").select(*KEY, f.unix_millis("at").alias("at_ms")).distinct()
    hour = Window.partitionBy(*KEY).orderBy("at_ms").rangeBetween(1 - _HOUR_MS, 0)
    within = cycles.withColumn("within", f.count("*").over(hour))
    return within.groupBy(*KEY).agg(f.max("within").cast("double").alias("cycles_per_hour"))


def _worst_follower(falls: DataFrame) -> DataFrame:
    """The replica that left most often; of several, the one with the lowest id."""
    counted = falls.groupBy(*KEY, "replica").agg(f.count("*").alias("falls"))
    worst = counted.groupBy(*KEY).agg(f.max(f.struct("falls", (-f.col("replica")).alias("minus"))).alias("worst"))
    return worst.select(
        *KEY,
        (-f.col("worst.minus")).alias("worst_follower"),
        f.col("worst.falls").alias("worst_follower_falls"),
    )


def _small(course: DataFrame, timed: DataFrame) -> DataFrame:
    """The key, lone_ms, under_replicated_ms."""
    known = course.where("until is not null").select(*KEY, "at", "until", "isr", "replicas")
    last = _until_the_end(course.where("until is null"), timed).select(*known.columns)
    lasts_ms = f.greatest(ms_between("at", "until"), f.lit(0))

    def in_all(is_small: Value) -> Value:
        return f.sum(f.when(f.col("replicas").isNotNull(), f.when(is_small, lasts_ms).otherwise(0)))

    return (
        known.unionByName(last)
        .groupBy(*KEY)
        .agg(
            in_all((f.size("isr") <= 1) & (f.size("replicas") > 1)).alias("lone_ms"),
            in_all(f.size("isr") < f.size("replicas")).alias("under_replicated_ms"),
        )
    )


def _until_the_end(last: DataFrame, timed: DataFrame) -> DataFrame:
    """The last known ISR of each partition, with the time until which it can be relied on as `until`."""
    of_leaders = (
        timed.where((f.col("kind") == Kind.SERVER) & f.col("speaker").isNotNull())
        .groupBy(f.col("speaker").alias("leader"))
        .agg(f.max("at").alias("told_until"))
    )
    own = timed.where("topic is not null and partition is not null").groupBy(*KEY).agg(f.max("at").alias("own_until"))
    dumped = timed.where(f.col("kind") == Kind.DUMP).agg(f.max("at")).scalar()
    reliable = (
        last.join(f.broadcast(of_leaders), "leader", "left")
        .join(own, list(KEY), "left")
        .withColumn("until", f.greatest("at", "own_until", "told_until", f.when(f.col("whole"), dumped)))
    )
    ends = reliable.alias("one").join(
        signs(timed).select(f.col("topic").alias("deleted"), f.col("at").alias("deleted_at")).alias("sign"),
        (f.col("one.topic") == f.col("deleted")) & (f.col("deleted_at") >= f.col("one.at")),
        "left",
    )
    # One row for each partition: the first sign after the last known ISR.
    return ends.groupBy(*KEY).agg(
        f.first("at").alias("at"),
        f.least(f.first("until"), f.min("deleted_at")).alias("until"),
        f.first("isr").alias("isr"),
        f.first("replicas").alias("replicas"),
    )


JOB: Final = Job("flapping", "Partitions whose leader or ISR changed repeatedly.", COLUMNS, flapping)
