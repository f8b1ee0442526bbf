"""Whether an election was unclean: what speaks for it and against it, and how sure that is.

From 1.1 on no line of a controller with ZooKeeper says that an election was unclean. What shows it is that the new
leader was not in the ISR before, and now is alone in it: a clean election takes somebody who was in it. How sure that
is depends on whether every ISR in between is known, and the stored versions tell: each write raises the version by one,
and each write of a controller the leader epoch as well, so that between two states of a partition leaders wrote as many
ISRs as the version rose by more than the epoch. Where they wrote none, or where nobody led, nobody was let back in.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from .lines import NEW
from .moves import KEY
from .unclean_lines import ASKED, SAID, WARNED

NOT_IN_ISR: Final = "not-in-isr"
RECOVERING: Final = "recovering"
_ORDER: Final = (NOT_IN_ISR, RECOVERING, WARNED, SAID, ASKED)


def judged(elections: DataFrame, lines: DataFrame, clean: DataFrame) -> DataFrame:
    """Elections with their evidence; those with none, or with more against it, are left out."""
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
        | (_was_out() & _nothing_between() & ~_kraft_says_clean())
        | (_began_to_recover() & _was_recovered_just_before())
    )
    weak = (f.size(evidence) > 0) & _may_be_unclean() & ~_was_in_for_sure()
    # An election of a new partition's first leader is none of this.
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
    """A left join in which null is a value like any other."""
    given = others.withColumnsRenamed({name: f"{name}_" for name in names})
    condition = [some[name].eqNullSafe(given[f"{name}_"]) for name in names]
    return some.join(given, condition, "left").drop(*(f"{name}_" for name in names))


def _sure(condition: Value) -> Value:
    """A condition of which null is no."""
    return f.coalesce(condition, f.lit(False))


def _may_be_unclean() -> Value:
    """Whether the state itself allows it: who is elected uncleanly is alone in the ISR, and from 3.2 on recovers."""
    alone = f.col("isr").isNull() | ((f.size("isr") == 1) & f.array_contains("isr", f.col("leader")))
    return _sure(alone) & ~_sure(f.col("recovery") == "RECOVERED")


def _was_out() -> Value:
    """Whether the leader was not in the last ISR that is known.

    An empty ISR says nothing: KRaft may then elect somebody of whom it knows that he has everything.
    """
    out = (f.size("prior.isr") > 0) & ~f.array_contains("prior.isr", f.col("leader"))
    another = f.col("last_told").isNull() | (f.col("last_told") != f.col("leader"))
    alone = f.col("isr").isNull() | (f.size("isr") == 1)
    return _sure(out & another & alone)


def _nothing_between() -> Value:
    """Whether nobody can have been let into the ISR between the last one that is known and the election."""
    led_by_nobody = (f.col("prior.leader") == -1) & (f.col("prior.leader_epoch") == f.col("leader_epoch") - 1)
    written = f.col("partition_epoch") - f.col("prior.partition_epoch")
    by_controllers = f.col("leader_epoch") - f.col("prior.leader_epoch")
    return _sure(led_by_nobody) | _sure(written == by_controllers)


def _was_in_for_sure() -> Value:
    return _sure(f.array_contains("prior.isr", f.col("leader"))) & _nothing_between()


def _kraft_says_clean() -> Value:
    """KRaft says of every leader whether it has to recover; with ZooKeeper that depends on a setting as well."""
    return _sure(f.col("recovery") == "RECOVERED") & f.col("from_state").isNull()


def _began_to_recover() -> Value:
    """A leader that recovers was elected uncleanly: now, unless it was recovering before."""
    was = f.coalesce(f.col("prior_recovery.state") == "RECOVERING", f.lit(False))
    return _sure(f.col("recovery") == "RECOVERING") & ~was


def _was_recovered_just_before() -> Value:
    recent = f.col("prior_recovery.leader_epoch") >= f.col("leader_epoch") - 1
    return _sure((f.col("prior_recovery.state") == "RECOVERED") & recent)
