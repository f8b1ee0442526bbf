"""Aggregates of losses. The same records count once, however many replicas had them.

Several replicas may have had records that a new leader did not have. For each partition and epoch only the replica with
the largest loss counts.
"""

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.jobs.expressions import is_true, or_zero


def by_partition(losses: DataFrame) -> DataFrame:
    """Return one row for each partition and epoch: the largest loss of any replica.

    Returns:
        topic, partition, life, leader_epoch, leader, log_end, unclean. at: when that leader took its role, or else when
            the loss became known. replicas: those with a loss, ascending. evidence: its kinds. truncated: whether a
            replica logged a truncation. certain: whether any row is. tail_records and committed_records, null if
            unknown in all rows; sure_tail_records and sure_committed_records, of certain rows only, 0 if there are
            none.
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
        is_true(f.max(f.col("truncated_to").isNotNull())).alias("truncated"),
        is_true(f.max("certain")).alias("certain"),
        f.max("tail_records").alias("tail_records"),
        f.max("committed_records").alias("committed_records"),
        sure("tail_records"),
        sure("committed_records"),
    )


def sums(partitions: DataFrame, *by: str) -> DataFrame:
    """Aggregate the result of `by_partition` by the columns `by`.

    Returns:
        `by`, partitions; tail_records, committed_records, sure_tail_records, sure_committed_records: sums. unknown:
            number of losses of unknown size.
    """

    def total(name: str) -> Value:
        return or_zero(f.sum(name)).alias(name)

    return partitions.groupBy(*by).agg(
        f.count_distinct("topic", "partition", "life").alias("partitions"),
        total("tail_records"),
        total("committed_records"),
        total("sure_tail_records"),
        total("sure_committed_records"),
        f.count_if(f.col("tail_records").isNull()).alias("unknown"),
    )
