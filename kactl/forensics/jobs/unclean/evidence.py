"""Evidence for and against an unclean election, and its certainty.

From 1.1 on no line of a controller with ZooKeeper states that an election was unclean. The evidence is that the new
leader was not in the previous ISR, and is now its only member: a clean election selects a member. How certain that is
depends on whether every ISR in between is known, which the partition epochs show: each write raises the partition epoch
by one, and each write of a controller raises the leader epoch as well. So between two states leaders wrote as many ISRs
as the partition epoch rose by more than the leader epoch. If they wrote none, or if there was no leader, no replica
rejoined the ISR.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.jobs.lines import NEW

from .mentions import ASKED, SAID, WARNED

NOT_IN_ISR: Final = "not-in-isr"
RECOVERING: Final = "recovering"
_ORDER: Final = (NOT_IN_ISR, RECOVERING, WARNED, SAID, ASKED)


def judged(elections: DataFrame, lines: DataFrame, clean: DataFrame) -> DataFrame:
    """Returns elections with their evidence, without those that have none or more evidence against it."""
    told = (
        lines.where("election_at is not null")
        .groupBy(*KEY, f.col("election_epoch").alias("leader_epoch"), f.col("election_at").alias("at"))
        .agg(
            f.collect_set("evidence").alias("told"),
            f.max("asked_by").alias("asked_by"),
            f.max("told_prev_isr").alias("told_prev_isr"),
            f.max("told_prev_leader").alias("told_prev_leader"),
        )
    )
    names = (*KEY, "leader_epoch", "at")
    joined = _left(_left(elections, told, names), clean.withColumn("is_clean", f.lit(True)), (*KEY, "leader_epoch"))
    evidence = f.concat(
        f.array_compact(f.array(f.when(_was_out(), NOT_IN_ISR), f.when(_began_to_recover(), RECOVERING))),
        f.coalesce("told", f.array().cast("array<string>")),
    )
    heard = f.coalesce("told", f.array().cast("array<string>"))
    strong = (
        f.array_contains(heard, WARNED)
        | f.array_contains(heard, SAID)
        | (_was_out() & _nothing_between() & ~_is_clean_in_kraft())
        | (_began_to_recover() & _was_recovered_just_before())
    )
    weak = (f.size(evidence) > 0) & _may_be_unclean() & ~_was_in_for_sure()
    # The election of a new partition's first leader is never unclean.
    first = f.coalesce(f.col("how") == "initial", f.lit(False)) | f.coalesce(f.col("from_state") == NEW, f.lit(False))
    prev_isr = f.coalesce("known_isr", f.when(f.size("prev_isr") > 0, f.col("prev_isr")), f.col("told_prev_isr"))
    prev_leader = f.coalesce(
        "last_leader", f.when(f.col("prev_leader") >= 0, f.col("prev_leader")), f.col("told_prev_leader")
    )
    return (
        joined.where(f.col("is_clean").isNull() & ~first & (strong | weak))
        .withColumn("evidence", f.filter(f.array(*map(f.lit, _ORDER)), lambda name: f.array_contains(evidence, name)))
        .withColumn("certain", strong)
        .select(
            *KEY,
            "at",
            "leader_epoch",
            "leader",
            prev_leader.alias("prev_leader"),
            prev_isr.alias("prev_isr"),
            "evidence",
            "certain",
            "asked_by",
            "controller",
            "controller_epoch",
        )
    )


def _left(some: DataFrame, others: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """A left join in which null equals null."""
    given = others.withColumnsRenamed({name: f"{name}_" for name in names})
    condition = [some[name].eqNullSafe(given[f"{name}_"]) for name in names]
    return some.join(given, condition, "left").drop(*(f"{name}_" for name in names))


def _sure(condition: Value) -> Value:
    """A condition with null as false."""
    return f.coalesce(condition, f.lit(False))


def _may_be_unclean() -> Value:
    """True if the state allows it: an uncleanly elected leader is alone in the ISR, and from 3.2 on recovers."""
    alone = f.col("isr").isNull() | ((f.size("isr") == 1) & f.array_contains("isr", f.col("leader")))
    return _sure(alone) & ~_sure(f.col("recovery") == "RECOVERED")


def _was_out() -> Value:
    """True if the leader was not in the last known ISR.

    An empty ISR is no evidence: KRaft may then elect a replica that it knows to have all records.
    """
    out = (f.size("prior.isr") > 0) & ~f.array_contains("prior.isr", f.col("leader"))
    another = f.col("last_told").isNull() | (f.col("last_told") != f.col("leader"))
    alone = f.col("isr").isNull() | (f.size("isr") == 1)
    return _sure(out & another & alone)


def _nothing_between() -> Value:
    """True if no replica can have joined the ISR between the last known one and the election."""
    led_by_nobody = (f.col("prior.leader") == -1) & (f.col("prior.leader_epoch") == f.col("leader_epoch") - 1)
    written = f.col("partition_epoch") - f.col("prior.partition_epoch")
    by_controllers = f.col("leader_epoch") - f.col("prior.leader_epoch")
    return _sure(led_by_nobody) | _sure(written == by_controllers)


def _was_in_for_sure() -> Value:
    return _sure(f.array_contains("prior.isr", f.col("leader"))) & _nothing_between()


def _is_clean_in_kraft() -> Value:
    """True if KRaft's recovery state shows a clean election. With ZooKeeper it depends on a setting as well."""
    return _sure(f.col("recovery") == "RECOVERED") & f.col("from_state").isNull()


def _began_to_recover() -> Value:
    """True if the leader began to recover: it was elected uncleanly now, unless it was already recovering."""
    was = f.coalesce(f.col("prior_recovery.state") == "RECOVERING", f.lit(False))
    return _sure(f.col("recovery") == "RECOVERING") & ~was


def _was_recovered_just_before() -> Value:
    recent = f.col("prior_recovery.leader_epoch") >= f.col("leader_epoch") - 1
    return _sure((f.col("prior_recovery.state") == "RECOVERED") & recent)
