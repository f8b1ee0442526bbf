"""Records lost: what replicas cut off their logs to follow a leader that had less, and what of it was committed.

Where each log ended stands in the lines with which brokers take their roles; `cuts` says what follows from them, and
`turns` how they are read. Numbers are of records, and exact where they are certain; what was committed of them is a
lower bound, as a high watermark lags behind what it speaks of. Sums over losses are in `loss_sums.py`.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ..events import Column
from . import cuts
from .histories import histories, of_epoch, was_in_sync_between, watermark_before
from .job import BOOL, INT, LONG, TEXT, TIME, Job
from .turns import KEY, starts

COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", INT, "the partition's number"),
    Column("life", INT, "which topic of this name; see `timed`"),
    Column("leader_epoch", INT, "the epoch from whose beginning on history differs; null if no line tells"),
    Column("leader", INT, "who led in it"),
    Column("at", TIME, "when that leader took its role"),
    Column("log_end", LONG, "its log end offset then: what others had beyond it is gone; null if no line says it"),
    Column("unclean", BOOL, "whether its election was unclean; null if that cannot be told"),
    Column("replica", INT, "who had more; one row for each"),
    Column("replica_at", TIME, "when it became known how much it had"),
    Column("replica_log_end", LONG, "the replica's log end offset before it cut it; null if no line says it"),
    Column("high_watermark", LONG, "the highest known high watermark of before; null if unknown"),
    Column(
        "tail_records",
        LONG,
        "records beyond what the leader had: gone, and of matter to writers with acks=0 or 1; null: not known how many",
    ),
    Column(
        "committed_records",
        LONG,
        "of them, those below the high watermark: gone although committed; a lower bound, as the watermark may lag",
    ),
    Column(
        "evidence",
        TEXT,
        "follower (as it began to follow), leader (of an old leader's own lines; it need not have come back) "
        "or truncated (its log says so itself)",
    ),
    Column("truncated_to", LONG, "where its log says that it was cut; null if no line says it"),
    Column(
        "certain",
        BOOL,
        "false if the replica's own history before is not in the logs, so that it may have had it from elsewhere",
    ),
)
# Of the same records, the account of whoever had them last is the better one.
_BETTER: Final = {cuts.FOLLOWER: 2, cuts.LEADER: 1, cuts.TRUNCATED: 0}


def losses(turns: DataFrame, leadership: DataFrame, unclean: DataFrame) -> DataFrame:
    """One row for each replica that had more than the leader of an epoch, and that epoch.

    What brokers say of their logs is in `turns`; who led where the lines of those who did are missing, and who was in
    sync, in `leadership`.
    """
    began = starts(turns)
    followed = cuts.follows(turns)
    by_followers = cuts.of_followers(followed, began)
    by_leaders = cuts.of_leaders(began)
    by_logs = cuts.of_truncations(turns, followed, by_followers, by_leaders, leadership)
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
    """One row for each replica and epoch: the account that goes furthest."""
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
    """Whether the replica cannot have had what it had from the leader it is compared with.

    Its own log tells of the epoch it took part in. If it was restarted since, part of that log may be missing; that it
    was in sync with somebody in between would show that it is.
    """
    was_there = was_in_sync_between("history", "replica", after="known", until="told_in", at="replica_at")
    remembers = f.col("by_memory") | (f.col("known").isNotNull() & ~was_there)
    by_itself = (f.col("evidence") != cuts.TRUNCATED) & f.col("truncated_to").isNotNull()
    return f.coalesce(remembers | by_itself, f.lit(False))


def _is_likely() -> Value:
    """Whether something else speaks for a loss that is not certain.

    Otherwise a follower that was restarted, and of which nothing older is there, is taken for one that has all it has
    from its leader.
    """
    told = f.col("known").isNotNull() | (f.col("evidence") == cuts.TRUNCATED)
    return told | f.coalesce(f.array_contains("were_before", f.col("replica")), f.lit(False))


def _answer(judged: DataFrame) -> DataFrame:
    epoch = of_epoch("history", "leader_epoch")
    unclean = f.when(f.col("is_unclean"), f.lit(True)).when(
        f.col("is_unclean").isNull() & epoch["is_clean"], f.lit(False)
    )
    of_history = watermark_before("history", "leader_epoch", took_part="took_part")
    watermark = f.greatest("own_watermark", f.when(f.col("took_part").isNotNull(), of_history))
    committed = f.greatest(f.least("end", "watermark") - f.col("base"), f.lit(0))
    by_itself = f.col("evidence") == cuts.TRUNCATED
    # Of a log that only says where it was cut, what is below the watermark may have been fetched again.
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
    return answers.select(*(each.name for each in COLUMNS))


JOB: Final = Job(
    name="losses",
    says="Records that replicas cut off their logs to follow a leader that had less, and what of it was committed.",
    needs=("turns", "leadership", "unclean"),
    columns=COLUMNS,
    run=losses,
)
