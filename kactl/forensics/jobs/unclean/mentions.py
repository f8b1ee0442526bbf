"""Lines that state unclean elections, joined with the elections that they refer to.

Up to 1.0 the controller logs a warning for each (C7). KRaft logs it for each change of a partition (K6), and before the
change (K7, K8). A request for an election of kind UNCLEAN (C5) is only a request: the election is clean where possible.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType
from kactl.forensics.jobs.lines import is_a
from kactl.forensics.text.columns import TEXT_LIMIT

WARNED: Final = "warned"
SAID: Final = "said"
ASKED: Final = "asked"
# An election follows its request within this time; a request for a hundred thousand partitions takes long.
FOLLOWS_US: Final = 60_000_000
# An election may seem this much older than its line, if only a broker's line dates it.
SLACK_US: Final = 1_000_000


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
    some = elections.select(
        *(f.col(name).alias(f"of_{name}") for name in (*KEY, "leader_epoch", "leader")), f.col("at").alias("of_at")
    )
    after_us = f.unix_micros("of_at") - f.unix_micros("at")
    soon = f.col("line_epoch").isNull() & (after_us >= -SLACK_US) & (after_us <= FOLLOWS_US)
    same = (
        (lines["topic"] == some["of_topic"])
        & (lines["partition"] == some["of_partition"])
        & (f.col("life").isNull() | (f.col("life") == f.col("of_life")))
        & (f.col("leader").isNull() | (f.col("leader") == f.col("of_leader")))
        & ((f.col("line_epoch") == f.col("of_leader_epoch")) | soon)
    )
    election = f.struct("of_life", "of_leader_epoch", "of_at")
    # An earlier election only counts if there is no later one.
    order = f.struct(f.col("of_at") < f.col("at"), f.col("of_at"))
    found = lines.join(some, same, "left").groupBy(*lines.columns)
    first = found.agg(f.min_by(election, f.when(f.col("of_at").isNotNull(), order)).alias("election"))
    return first.select(
        "topic",
        "partition",
        f.coalesce("life", "election.of_life").alias("life"),
        "at",
        "leader",
        "evidence",
        "asked_by",
        "controller",
        "controller_epoch",
        "told_prev_isr",
        "told_prev_leader",
        f.col("election.of_leader_epoch").alias("election_epoch"),
        f.col("election.of_at").alias("election_at"),
    )


def said_clean(timed: DataFrame) -> DataFrame:
    """Returns topic, partition, life, leader_epoch of elections that KRaft logged as clean."""
    said = timed.where(is_a(EventType.LEADERSHIP) & ~f.col("unclean") & (f.col("leader") >= 0))
    return said.where("topic is not null and leader_epoch is not null").select(*KEY, "leader_epoch").distinct()


def _lines(timed: DataFrame) -> DataFrame:
    said = is_a(EventType.LEADERSHIP) & f.col("unclean") & (f.col("leader") >= 0)
    elected = is_a(EventType.ELECTED) & f.col("unclean")
    in_kraft = f.col("topic_id").isNotNull()
    electing = is_a(EventType.ELECTING) & f.col("unclean")
    named = timed.where("topic is not null and partition is not null")
    by_id = is_a(EventType.ELECTED) & f.col("unclean") & f.col("topic").isNull() & f.col("topic_id").isNotNull()
    return (
        _line(named.where(said), SAID, epoch=f.col("leader_epoch"))
        .unionByName(_line(named.where(elected), f.when(in_kraft, SAID).otherwise(WARNED)))
        .unionByName(_line(_named(timed.where(by_id), timed), SAID))
        .unionByName(_line(named.where(electing), ASKED))
        .unionByName(_asked(timed))
        .distinct()
    )


def _line(lines: DataFrame, evidence: str | Value, epoch: Value | None = None) -> DataFrame:
    return lines.select(
        *KEY,
        "at",
        (f.lit(None) if epoch is None else epoch).cast("int").alias("line_epoch"),
        "leader",
        (f.lit(evidence) if isinstance(evidence, str) else evidence).alias("evidence"),
        f.lit(None).cast("string").alias("asked_by"),
        "controller",
        "controller_epoch",
        f.col("prev_isr").alias("told_prev_isr"),
        f.col("prev_leader").alias("told_prev_leader"),
    )


def _named(lines: DataFrame, timed: DataFrame) -> DataFrame:
    """Lines that only have the id of a topic, with its name and life from other lines."""
    known = timed.where("topic is not null and topic_id is not null")
    names = known.groupBy("topic_id").agg(f.min_by(f.struct("topic", "life"), "at").alias("name"))
    joined = lines.drop("topic", "life").join(names, "topic_id")
    return joined.withColumns({"topic": f.col("name.topic"), "life": f.col("name.life")})


def _asked(timed: DataFrame) -> DataFrame:
    """A row for each partition of each request for an unclean election."""
    asked = timed.where(is_a(EventType.ELECTION_ASKED) & (f.col("strategy") == "unclean"))
    names = f.split(f.regexp_replace("text", r"^\w+\(|\)$", ""), r",\s*")
    # The last name of a truncated text may be incomplete.
    whole = f.when(f.octet_length("text") < TEXT_LIMIT, names).otherwise(f.slice(names, f.lit(1), f.size(names) - 1))
    partitions = asked.withColumn("name", f.explode(whole)).where(f.col("name").rlike("^.+-[0-9]+$"))
    number = f.regexp_extract("name", "([0-9]+)$", 1).try_cast("int")
    return partitions.select(
        f.regexp_extract("name", "^(.+)-[0-9]+$", 1).alias("topic"),
        number.alias("partition"),
        f.lit(None).cast("int").alias("life"),
        "at",
        f.lit(None).cast("int").alias("line_epoch"),
        f.lit(None).cast("int").alias("leader"),
        f.lit(ASKED).alias("evidence"),
        f.col("trigger").alias("asked_by"),
        "controller",
        "controller_epoch",
        f.lit(None).cast("array<int>").alias("told_prev_isr"),
        f.lit(None).cast("int").alias("told_prev_leader"),
    )
