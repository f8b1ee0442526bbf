"""Sums over losses: the same records count once, however many replicas had them.

Several replicas may have had the same records that a new leader did not have: of each partition and epoch the replica
that had most counts, and no other.
"""

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from .turns import KEY


def by_partition(losses: DataFrame) -> DataFrame:
    """One row for each partition and epoch: what the replica that had most of it had.

    Returns:
        topic, partition, life, leader_epoch, leader, log_end, unclean; at: when that leader took its role, or else when
        the loss became known. replicas: who had some of it, ascending; evidence: of what kinds; truncated: whether a
        replica's log says that it was cut; certain: whether any row is. tail_records and committed_records, null if no
        row tells; sure_tail_records and sure_committed_records, of certain rows alone, 0 if there are none.
    """

    def sure(name: str) -> Value:
        most = f.max(f.when(f.col("certain"), f.col(name)))
        return f.coalesce(most, f.lit(0)).alias(f"sure_{name}")

    return losses.groupBy(*KEY, "leader_epoch").agg(
        f.max("leader").alias("leader"),
        f.min(f.coalesce("at", "replica_at")).alias("at"),
        f.min("log_end").alias("log_end"),
        f.max("unclean").alias("unclean"),
        f.sort_array(f.collect_set("replica")).alias("replicas"),
        f.sort_array(f.collect_set("evidence")).alias("evidence"),
        f.coalesce(f.max(f.col("truncated_to").isNotNull()), f.lit(False)).alias("truncated"),
        f.coalesce(f.max("certain"), f.lit(False)).alias("certain"),
        f.max("tail_records").alias("tail_records"),
        f.max("committed_records").alias("committed_records"),
        sure("tail_records"),
        sure("committed_records"),
    )


def by_topic(losses: DataFrame) -> DataFrame:
    """`sums` of each topic."""
    return sums(by_partition(losses), "topic")


def totals(losses: DataFrame) -> DataFrame:
    """`sums` of all: one row; zeroes if nothing was lost."""
    return sums(by_partition(losses))


def sums(partitions: DataFrame, *by: str) -> DataFrame:
    """One row for each value of `by`, of what `by_partition` made.

    Returns:
        `by`, partitions; tail_records, committed_records, sure_tail_records, sure_committed_records: added up. unknown:
        how often something of unknown size was cut. first_at, last_at.
    """

    def total(name: str) -> Value:
        return f.coalesce(f.sum(name), f.lit(0)).cast("long").alias(name)

    return partitions.groupBy(*by).agg(
        f.count_distinct("topic", "partition", "life").alias("partitions"),
        total("tail_records"),
        total("committed_records"),
        total("sure_tail_records"),
        total("sure_committed_records"),
        f.count_if(f.col("tail_records").isNull()).alias("unknown"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
    )
