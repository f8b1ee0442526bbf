"""Job `losses`: records that replicas removed to follow a leader with a shorter log, and committed records among them.

Brokers log the end of their log when they take a role; `log_segments` reads these lines, and `truncations` derives the
losses. Record counts are exact where they are certain; the number of committed records is a lower bound, because a high
watermark lags behind. `sums` aggregates losses.

The history of a partition that lost records is the list of its epochs: the leader of each, the end of its log, and how
far records were known to be committed. A high watermark describes the history in which it was logged. If a later leader
had a shorter log, the watermark holds up to there only; if the start of a leader in between is unknown, it is not used.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, KEY_COLUMNS, columns, names_of
from kactl.forensics.jobs.expressions import NEW, all_known, is_true, no_ids, null, stacked
from kactl.forensics.jobs.job import Job
from kactl.forensics.jobs.log_segments import starts
from kactl.forensics.tables import kept_if_small

from . import truncations

COLUMNS: Final = KEY_COLUMNS + columns(
    """
    leader_epoch       id    [epoch] the epoch from whose beginning the histories differ; null if no line states it
    leader             id    [new leader] its leader
    at                 time  [when] when that leader took its role
    log_end            long  [its log end] its log end offset then: records of others beyond it are lost; null if no
                             line states it
    unclean            bool  whether its election was unclean; null if unknown
    replica            id    a replica with a longer log; one row for each
    replica_at         time  when the end of its log was logged
    replica_log_end    long  the replica's log end offset before the truncation; null if no line states it
    high_watermark     long  the highest known earlier high watermark; null if unknown
    tail_records       long  records beyond the leader's log: lost, which concerns producers with acks=0 or 1; null if
                             unknown
    committed_records  long  of them, those below the high watermark: lost although committed; a lower bound, as the
                             watermark may lag
    evidence           text  follower (logged when it began to follow), leader (lines of the old leader, which need not
                             have come back) or truncated (its own log states the truncation)
    truncated_to       long  offset of the truncation that it logged; null if no line states it
    certain            bool  false if the replica's earlier history is not in the logs, so that it may have copied the
                             records elsewhere
    """
)
# A broker that is stopped and started again is back after no less than this.
RESTARTED_US: Final = 5_000_000
_FIELDS: Final = ("epoch", "leader", "log_end", "watermark", "at", "in_sync", "is_clean")
# For the same records, the evidence of the replica that had them last is preferred.
_BETTER: Final = {truncations.FOLLOWER: 2, truncations.LEADER: 1, truncations.TRUNCATED: 0}


def losses(turns: DataFrame, leadership: DataFrame, unclean: DataFrame) -> DataFrame:
    """Return one row for each replica, and epoch whose leader had a shorter log than the replica.

    Args:
        turns: what brokers logged about their logs.
        leadership: leaders whose own lines are missing, and ISRs.
    """
    began = kept_if_small(starts(turns))
    followed = kept_if_small(truncations.follows(turns))
    by_followers = kept_if_small(truncations.of_followers(followed, began))
    by_leaders = truncations.of_leaders(began)
    by_logs = truncations.of_truncations(turns, followed, by_followers, by_leaders, leadership)
    candidates = kept_if_small(_best(stacked(by_followers, by_leaders, by_logs)))
    known = candidates.join(histories(began, followed, leadership, of=candidates), [*KEY], "left")
    elections = unclean.where("leader_epoch is not null").select(
        *KEY,
        "leader_epoch",
        f.col("certain").alias("is_unclean"),
        f.concat(f.coalesce("prev_isr", no_ids()), f.array_compact(f.array("prev_leader"))).alias("were_before"),
    )
    assessed = known.join(elections, [*KEY, "leader_epoch"], "left").withColumn("certain", _is_certain())
    return _answer(assessed.where(f.col("certain") | _is_likely()))


def _best(candidates: DataFrame) -> DataFrame:
    """One row for each replica and epoch: the evidence with the largest loss."""
    rank = f.coalesce(*(f.when(f.col("evidence") == name, value) for name, value in _BETTER.items()))
    names = [name for name in candidates.columns if name not in (*KEY, "leader_epoch", "replica", "tail")]
    best = f.struct("end", rank.alias("rank"), *(name for name in names if name != "end"))
    return (
        candidates.groupBy(*KEY, "leader_epoch", "replica")
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
    return is_true(remembers | by_itself)


def _is_likely() -> Value:
    """True if there is further evidence for a loss that is not certain.

    Otherwise a restarted follower without older lines is assumed to have copied everything from its leader.
    """
    has_evidence = f.col("known").isNotNull() | (f.col("evidence") == truncations.TRUNCATED)
    return has_evidence | is_true(f.array_contains("were_before", f.col("replica")))


def _answer(assessed: DataFrame) -> DataFrame:
    epoch = of_epoch("history", "leader_epoch")
    unclean = f.when(f.col("is_unclean"), f.lit(True)).when(
        f.col("is_unclean").isNull() & epoch["is_clean"], f.lit(False)
    )
    of_history = watermark_before("history", "leader_epoch", took_part="took_part")
    watermark = f.greatest("own_watermark", f.when(f.col("took_part").isNotNull(), of_history))
    committed = f.greatest(f.least("end", "watermark") - f.col("base"), f.lit(0))
    by_itself = f.col("evidence") == truncations.TRUNCATED
    # If only the truncation is known, records below the watermark may have been fetched again.
    known = all_known("watermark", "end")
    answers = assessed.withColumn("watermark", watermark).withColumns(
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


# -- histories of partitions -------------------------------------------------------------------------------------------


def histories(starts: DataFrame, followed: DataFrame, leadership: DataFrame, of: DataFrame) -> DataFrame:
    """Return the epochs of the partitions in `of`, in order.

    Returns:
        topic, partition, life, history. Each element has: epoch; leader, -1 none; log_end, of the leader at its
            beginning; watermark, the highest known in it; at, when its leader took its role; in_sync, all replicas that
            any line shows in sync, null without a leader; is_clean, true if its leader was certainly elected cleanly.
    """
    partitions = of.select(*KEY).distinct()
    by_broker = starts.select(*KEY, "epoch", "leader", "log_end", "watermark", f.col("led_at").alias("at"), "in_sync")
    # A watermark that a follower logs when it begins belongs to the epoch in which it last took part.
    by_follower = followed.where("tail_known is not null").select(
        *KEY, f.col("tail_known").alias("epoch"), f.col("high_watermark").alias("watermark")
    )
    by_controller = leadership.where("leader_epoch is not null").select(
        *KEY,
        f.col("leader_epoch").alias("epoch"),
        "leader",
        f.coalesce("led_at", "begin").alias("began_at"),
        f.when(f.col("leader") >= 0, f.col("isr")).alias("in_sync"),
        _is_clean().alias("is_clean"),
    )
    every = stacked(by_broker, by_follower, by_controller)
    members = f.when(f.col("in_sync").isNotNull(), f.col("in_sync"))
    epochs = (
        every.join(partitions, [*KEY], "left_semi")
        .groupBy(*KEY, "epoch")
        .agg(
            f.max("leader").alias("leader"),
            f.min("log_end").alias("log_end"),
            f.max("watermark").alias("watermark"),
            f.coalesce(f.min("at"), f.min("began_at")).alias("at"),
            f.array_distinct(f.flatten(f.collect_list(members))).alias("in_sync"),
            is_true(f.max("is_clean")).alias("is_clean"),
        )
    )
    return epochs.groupBy(*KEY).agg(f.sort_array(f.collect_list(f.struct(*_FIELDS))).alias("history"))


def _is_clean() -> Value:
    """True if a row of `leadership` cannot be of an unclean election."""
    was_in = f.array_contains("prev_isr", f.col("leader"))
    is_next = f.col("prev_leader_epoch") == f.col("leader_epoch") - 1
    reasons = (
        (f.col("how") == "initial") | (f.col("from_state") == NEW),
        f.size("isr") > 1,  # an uncleanly elected leader is alone
        is_next & (f.col("leader") == f.col("prev_leader")) & (f.col("leader") >= 0),
        is_next & was_in & (f.col("prev_leader") == -1),
        was_in & (f.col("recovery") == "RECOVERED"),
    )
    is_clean = f.lit(False)
    for reason in reasons:
        is_clean = is_clean | is_true(reason)
    return is_clean


def watermark_before(history: str, epoch: str, *, took_part: str) -> Value:
    """Return the high watermark of the history that ended where `epoch` began, for a replica that last took part in
    `took_part`.

    Null if none is known. If a leader's start is in no line, the replica may already have left that history.
    """
    nothing = f.struct(
        null("long").alias("watermark"),
        null("int").alias("epoch"),
        null("int").alias("leader"),
    )

    def go_on(known: Value, epoch_: Value) -> Value:
        is_next = epoch_["epoch"] == known["epoch"] + 1
        cuts_where = epoch_["log_end"].isNotNull() | (epoch_["leader"] == -1) | (epoch_["leader"] == known["leader"])
        inherited = f.when(
            is_true(is_next & cuts_where) & known["watermark"].isNotNull(),
            f.least(known["watermark"], epoch_["log_end"]),
        )
        return f.struct(
            f.greatest(inherited, epoch_["watermark"]).alias("watermark"),
            epoch_["epoch"].alias("epoch"),
            epoch_["leader"].alias("leader"),
        )

    def is_blind(epoch_: Value) -> Value:
        return (epoch_["epoch"] > f.col(took_part)) & epoch_["log_end"].isNull() & (epoch_["leader"] >= 0)

    left = f.array_min(f.transform(f.filter(history, is_blind), lambda epoch_: epoch_["epoch"]))
    before = f.filter(
        history, lambda epoch_: (epoch_["epoch"] < f.col(epoch)) & (epoch_["epoch"] < f.coalesce(left, f.col(epoch)))
    )
    return f.aggregate(before, nothing, go_on, lambda known: known["watermark"])


def of_epoch(history: str, epoch: str) -> Value:
    """Returns the element of one epoch; null if there is none."""
    return f.get(f.filter(history, lambda entry: entry["epoch"] == f.col(epoch)), f.lit(0))


def was_in_sync_between(history: str, replica: str, *, after: str, until: str, at: str) -> Value:
    """True if a replica was in sync with another leader in an epoch after `after` and up to `until`.

    An epoch that began right before `at`, when the replica logged its role, does not count: a replica that is in sync
    when an epoch begins has not copied anything in it yet, and no broker restarts that quickly.
    """

    def long_ago(entry: Value) -> Value:
        since_us = f.unix_micros(at) - f.unix_micros(entry["at"])
        return f.coalesce(since_us > RESTARTED_US, f.lit(True))

    def with_it(entry: Value) -> Value:
        return (
            (entry["epoch"] > f.col(after))
            & (entry["epoch"] <= f.col(until))
            & (entry["leader"] >= 0)
            & (entry["leader"] != f.col(replica))
            & f.array_contains(entry["in_sync"], f.col(replica))
            & long_ago(entry)
        )

    return is_true(f.exists(history, with_it))


JOB: Final = Job(
    "losses",
    "Records that replicas removed to follow a leader with a shorter log, and committed ones among them.",
    COLUMNS,
    losses,
)
