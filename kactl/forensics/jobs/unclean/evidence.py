"""Evidence for and against an unclean election, and its certainty.

From 1.1 on no line of a controller with ZooKeeper states that an election was unclean. The evidence is that the new
leader was not in the previous ISR, and is now its only member: a clean election selects a member. How certain that is
depends on whether every ISR in between is known, which the partition epochs show: each write raises the partition epoch
by one, and each write of a controller raises the leader epoch as well. So between two states leaders wrote as many ISRs
as the partition epoch rose by more than the leader epoch. If they wrote none, or if there was no leader, no replica
rejoined the ISR.

Other lines state an unclean election, and are joined with the election that they refer to. Up to 1.0 the controller
logs a warning for each (C7). KRaft logs it for each change of a partition (K6), and before the change (K7, K8). A
request for an election of kind UNCLEAN (C5) is only a request: the election is clean where possible.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.expressions import NEW, is_a, is_true, stacked
from kactl.forensics.text.columns import TEXT_LIMIT

WARNED: Final = "warned"
SAID: Final = "said"
ASKED: Final = "asked"
# An election follows its request within this time; a request for a hundred thousand partitions takes long.
FOLLOWS_US: Final = 60_000_000
# An election may seem this much older than its line, if only a broker's line dates it.
SLACK_US: Final = 1_000_000
NOT_IN_ISR: Final = "not-in-isr"
RECOVERING: Final = "recovering"
_ORDER: Final = (NOT_IN_ISR, RECOVERING, WARNED, SAID, ASKED)


def judged(elections: DataFrame, lines: DataFrame, clean: DataFrame) -> DataFrame:
    """Returns elections with their evidence, without those that have none or more evidence against it."""
    mentions = (
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
    joined = _left(_left(elections, mentions, names), clean.withColumn("is_clean", f.lit(True)), (*KEY, "leader_epoch"))
    mentioned = f.coalesce("told", f.array().cast("array<string>"))
    shown = f.array_compact(f.array(f.when(_was_out(), NOT_IN_ISR), f.when(_began_to_recover(), RECOVERING)))
    evidence = f.concat(shown, mentioned)
    strong = (
        f.array_contains(mentioned, WARNED)
        | f.array_contains(mentioned, SAID)
        | (_was_out() & _nothing_between() & ~_is_clean_in_kraft())
        | (_began_to_recover() & _was_recovered_just_before())
    )
    weak = (f.size(evidence) > 0) & _may_be_unclean() & ~_was_in_for_certain()
    # The election of a new partition's first leader is never unclean.
    first = is_true(f.col("how") == "initial") | is_true(f.col("from_state") == NEW)
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


def _left(left: DataFrame, others: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """A left join in which null equals null."""
    right = others.withColumnsRenamed({name: f"{name}_" for name in names})
    condition = [left[name].eqNullSafe(right[f"{name}_"]) for name in names]
    return left.join(right, condition, "left").drop(*(f"{name}_" for name in names))


def _may_be_unclean() -> Value:
    """True if the state allows it: an uncleanly elected leader is alone in the ISR, and from 3.2 on recovers."""
    alone = f.col("isr").isNull() | ((f.size("isr") == 1) & f.array_contains("isr", f.col("leader")))
    return is_true(alone) & ~is_true(f.col("recovery") == "RECOVERED")


def _was_out() -> Value:
    """True if the leader was not in the last known ISR.

    An empty ISR is no evidence: KRaft may then elect a replica that it knows to have all records.
    """
    out = (f.size("prior.isr") > 0) & ~f.array_contains("prior.isr", f.col("leader"))
    another = f.col("last_told").isNull() | (f.col("last_told") != f.col("leader"))
    alone = f.col("isr").isNull() | (f.size("isr") == 1)
    return is_true(out & another & alone)


def _nothing_between() -> Value:
    """True if no replica can have joined the ISR between the last known one and the election."""
    led_by_nobody = (f.col("prior.leader") == -1) & (f.col("prior.leader_epoch") == f.col("leader_epoch") - 1)
    written = f.col("partition_epoch") - f.col("prior.partition_epoch")
    by_controllers = f.col("leader_epoch") - f.col("prior.leader_epoch")
    return is_true(led_by_nobody) | is_true(written == by_controllers)


def _was_in_for_certain() -> Value:
    return is_true(f.array_contains("prior.isr", f.col("leader"))) & _nothing_between()


def _is_clean_in_kraft() -> Value:
    """True if KRaft's recovery state shows a clean election. With ZooKeeper it depends on a setting as well."""
    return is_true(f.col("recovery") == "RECOVERED") & f.col("from_state").isNull()


def _began_to_recover() -> Value:
    """True if the leader began to recover: it was elected uncleanly now, unless it was already recovering."""
    was = is_true(f.col("prior_recovery.state") == "RECOVERING")
    return is_true(f.col("recovery") == "RECOVERING") & ~was


def _was_recovered_just_before() -> Value:
    recent = f.col("prior_recovery.leader_epoch") >= f.col("leader_epoch") - 1
    return is_true((f.col("prior_recovery.state") == "RECOVERED") & recent)


# -- lines that state unclean elections --------------------------------------------------------------------------------


def matched(timed: DataFrame, elections: DataFrame) -> DataFrame:
    """Return each line with the first election that it can refer to.

    Args:
        elections: topic, partition, life, leader_epoch, leader and at of elections.

    Returns:
        topic, partition, life, at, leader, evidence, asked_by, controller, controller_epoch; told_prev_isr and
            told_prev_leader as in the line; election_epoch and election_at, the latter null if there is no such
            election.
    """
    lines = _lines(timed)
    candidates = elections.select(
        *(f.col(name).alias(f"of_{name}") for name in (*KEY, "leader_epoch", "leader")), f.col("at").alias("of_at")
    )
    after_us = f.unix_micros("of_at") - f.unix_micros("at")
    soon = f.col("line_epoch").isNull() & (after_us >= -SLACK_US) & (after_us <= FOLLOWS_US)
    same = (
        (lines["topic"] == candidates["of_topic"])
        & (lines["partition"] == candidates["of_partition"])
        & (f.col("life").isNull() | (f.col("life") == f.col("of_life")))
        & (f.col("leader").isNull() | (f.col("leader") == f.col("of_leader")))
        & ((f.col("line_epoch") == f.col("of_leader_epoch")) | soon)
    )
    election = f.struct("of_life", "of_leader_epoch", "of_at")
    # An earlier election only counts if there is no later one.
    order = f.struct(f.col("of_at") < f.col("at"), f.col("of_at"))
    joined = lines.join(candidates, same, "left").groupBy(*lines.columns)
    first = joined.agg(f.min_by(election, f.when(f.col("of_at").isNotNull(), order)).alias("election"))
    values = {
        "life": f.coalesce("life", "election.of_life"),
        "election_epoch": f.col("election.of_leader_epoch"),
        "election_at": f.col("election.of_at"),
    }
    return first.withColumns(values).drop("election", "line_epoch")


def said_clean(timed: DataFrame) -> DataFrame:
    """Returns topic, partition, life, leader_epoch of elections that KRaft logged as clean."""
    lines = timed.where(is_a(EventType.LEADERSHIP) & ~f.col("unclean") & (f.col("leader") >= 0))
    return lines.where("topic is not null and leader_epoch is not null").select(*KEY, "leader_epoch").distinct()


def _lines(timed: DataFrame) -> DataFrame:
    is_stated = is_a(EventType.LEADERSHIP) & f.col("unclean") & (f.col("leader") >= 0)
    elected = is_a(EventType.ELECTED) & f.col("unclean")
    in_kraft = f.col("topic_id").isNotNull()
    electing = is_a(EventType.ELECTING) & f.col("unclean")
    named = timed.where("topic is not null and partition is not null")
    return stacked(
        _line(named.where(is_stated), SAID, f.col("leader_epoch").alias("line_epoch")),
        _line(named.where(elected), f.when(in_kraft, SAID).otherwise(WARNED)),
        _line(named.where(electing), ASKED),
        _asked(timed),
    ).distinct()


def _line(lines: DataFrame, evidence: str | Value, *more: Value) -> DataFrame:
    return lines.select(
        *KEY,
        "at",
        "leader",
        (f.lit(evidence) if isinstance(evidence, str) else evidence).alias("evidence"),
        "controller",
        "controller_epoch",
        f.col("prev_isr").alias("told_prev_isr"),
        f.col("prev_leader").alias("told_prev_leader"),
        *more,
    )


def _asked(timed: DataFrame) -> DataFrame:
    """A row for each partition of each request for an unclean election."""
    requests = timed.where(is_a(EventType.ELECTION_ASKED) & (f.col("strategy") == "unclean"))
    names = f.split(f.regexp_replace("text", r"^\w+\(|\)$", ""), r",\s*")
    # The last name of a truncated text may be incomplete.
    whole = f.when(f.octet_length("text") < TEXT_LIMIT, names).otherwise(f.slice(names, f.lit(1), f.size(names) - 1))
    partitions = requests.withColumn("name", f.explode(whole)).where(f.col("name").rlike("^.+-[0-9]+$"))
    number = f.regexp_extract("name", "([0-9]+)$", 1).try_cast("int")
    return partitions.select(
        f.regexp_extract("name", "^(.+)-[0-9]+$", 1).alias("topic"),
        number.alias("partition"),
        "at",
        f.lit(ASKED).alias("evidence"),
        f.col("trigger").alias("asked_by"),
        "controller",
        "controller_epoch",
    )
