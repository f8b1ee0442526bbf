"""Job `losses`: records that replicas removed to follow a leader with a shorter log, and committed records among them.

Brokers log the end of their log when they take a role; `log_segments` reads these lines, and `truncations` derives the
losses. Record counts are exact where they are certain; the number of committed records is a lower bound, because a high
watermark lags behind. `sums` aggregates losses.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import BOOL, ID, KEY, KEY_COLUMNS, LONG, TEXT, TIME, Column, names_of
from kactl.forensics.jobs.job import Job
from kactl.forensics.jobs.log_segments import starts

from . import truncations
from .histories import histories, of_epoch, was_in_sync_between, watermark_before

COLUMNS: Final = (
    *KEY_COLUMNS,
    Column(
        "leader_epoch",
        ID,
        "the epoch from whose beginning the histories differ; null if no line states it",
        title="epoch",
    ),
    Column("leader", ID, "its leader", title="new leader"),
    Column("at", TIME, "when that leader took its role", title="when"),
    Column(
        "log_end",
        LONG,
        "its log end offset then: records of others beyond it are lost; null if no line states it",
        title="its log end",
    ),
    Column("unclean", BOOL, "whether its election was unclean; null if unknown"),
    Column("replica", ID, "a replica with a longer log; one row for each"),
    Column("replica_at", TIME, "when the end of its log was logged"),
    Column("replica_log_end", LONG, "the replica's log end offset before the truncation; null if no line states it"),
    Column("high_watermark", LONG, "the highest known earlier high watermark; null if unknown"),
    Column(
        "tail_records",
        LONG,
        "records beyond the leader's log: lost, which concerns producers with acks=0 or 1; null if unknown",
    ),
    Column(
        "committed_records",
        LONG,
        "of them, those below the high watermark: lost although committed; a lower bound, as the watermark may lag",
    ),
    Column(
        "evidence",
        TEXT,
        "follower (logged when it began to follow), leader (lines of the old leader, which need not have come back) "
        "or truncated (its own log states the truncation)",
    ),
    Column("truncated_to", LONG, "offset of the truncation that it logged; null if no line states it"),
    Column(
        "certain",
        BOOL,
        "false if the replica's earlier history is not in the logs, so that it may have copied the records elsewhere",
    ),
)
# For the same records, the evidence of the replica that had them last is preferred.
_BETTER: Final = {truncations.FOLLOWER: 2, truncations.LEADER: 1, truncations.TRUNCATED: 0}


def losses(log_segments: DataFrame, leadership: DataFrame, unclean: DataFrame) -> DataFrame:
    """Return one row for each replica, and epoch whose leader had a shorter log than the replica.

    Args:
        log_segments: what brokers logged about their logs.
        leadership: leaders whose own lines are missing, and ISRs.
    """
    began = starts(log_segments)
    followed = truncations.follows(log_segments)
    by_followers = truncations.of_followers(followed, began)
    by_leaders = truncations.of_leaders(began)
    by_logs = truncations.of_truncations(log_segments, followed, by_followers, by_leaders, leadership)
    found = _best(by_followers.unionByName(by_leaders).unionByName(by_logs))
    known = found.join(histories(began, followed, leadership, of=found), [*KEY], "left")
    elections = unclean.where("leader_epoch is not null").select(
        *KEY,
        "leader_epoch",
        f.col("certain").alias("is_unclean"),
        f.concat(f.coalesce("prev_isr", f.array().cast("array<int>")), f.array_compact(f.array("prev_leader"))).alias(
            "were_before"
        ),
    )
    judged = known.join(elections, [*KEY, "leader_epoch"], "left").withColumn("certain", _is_certain())
    return _answer(judged.where(f.col("certain") | _is_likely()))


def _best(found: DataFrame) -> DataFrame:
    """One row for each replica and epoch: the evidence with the largest loss."""
    rank = f.coalesce(*(f.when(f.col("evidence") == name, value) for name, value in _BETTER.items()))
    names = [name for name in found.columns if name not in (*KEY, "leader_epoch", "replica", "tail")]
    best = f.struct("end", rank.alias("rank"), *(name for name in names if name != "end"))
    return (
        found.groupBy(*KEY, "leader_epoch", "replica")
        .agg(
            f.max(best).alias("best"),
            f.min("truncated_to").alias("cut_to"),
            f.max("high_watermark").alias("own_watermark"),
        )
        .select(
            *KEY,
            "leader_epoch",
            "replica",
            *(f.col(f"best.{name}").alias(name) for name in names if name not in ("truncated_to", "high_watermark")),
            f.col("cut_to").alias("truncated_to"),
            "own_watermark",
        )
    )


def _is_certain() -> Value:
    """True if the replica cannot have copied its records from the leader that it is compared with.

    Its own log shows the epoch in which it took part. After a restart part of that log may be missing, which a line
    that shows it in sync in between would prove.
    """
    was_there = was_in_sync_between("history", "replica", after="known", until="told_in", at="replica_at")
    remembers = f.col("by_memory") | (f.col("known").isNotNull() & ~was_there)
    by_itself = (f.col("evidence") != truncations.TRUNCATED) & f.col("truncated_to").isNotNull()
    return f.coalesce(remembers | by_itself, f.lit(False))


def _is_likely() -> Value:
    """True if there is further evidence for a loss that is not certain.

    Otherwise a restarted follower without older lines is assumed to have copied everything from its leader.
    """
    told = f.col("known").isNotNull() | (f.col("evidence") == truncations.TRUNCATED)
    return told | f.coalesce(f.array_contains("were_before", f.col("replica")), f.lit(False))


def _answer(judged: DataFrame) -> DataFrame:
    epoch = of_epoch("history", "leader_epoch")
    unclean = f.when(f.col("is_unclean"), f.lit(True)).when(
        f.col("is_unclean").isNull() & epoch["is_clean"], f.lit(False)
    )
    of_history = watermark_before("history", "leader_epoch", took_part="took_part")
    watermark = f.greatest("own_watermark", f.when(f.col("took_part").isNotNull(), of_history))
    committed = f.greatest(f.least("end", "watermark") - f.col("base"), f.lit(0))
    by_itself = f.col("evidence") == truncations.TRUNCATED
    # If only the truncation is known, records below the watermark may have been fetched again.
    known = f.col("watermark").isNotNull() & f.col("end").isNotNull()
    answers = judged.withColumn("watermark", watermark).withColumns(
        {
            "leader": epoch["leader"],
            "at": epoch["at"],
            "log_end": f.when(~by_itself, f.col("base")),
            "unclean": unclean,
            "replica_log_end": f.col("end"),
            "high_watermark": f.col("watermark"),
            "tail_records": f.col("end") - f.col("base"),
            "committed_records": f.when(known, committed),
        }
    )
    return answers.select(*names_of(COLUMNS))


JOB: Final = Job(
    name="losses",
    description="Records that replicas removed to follow a leader with a shorter log, and committed ones among them.",
    needs=("turns", "leadership", "unclean"),
    columns=COLUMNS,
    run=losses,
)
