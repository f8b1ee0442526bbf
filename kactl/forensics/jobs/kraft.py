"""Complete partition states from KRaft's metadata log, whose records contain only changes and no epochs.

A record that names a leader raises the leader epoch by one, even if the leader stays the same; every record raises the
partition epoch by one. Both start from the creation record, or from a snapshot.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType, Kind

from .expressions import is_a

_CHANGES: Final = ("leader", "isr", "replicas", "adding", "removing", "recovery", "leader_epoch", "partition_epoch")


def filled(timed: DataFrame) -> DataFrame:
    """Return the records about partitions, each with the complete state after it.

    Records that several dumps of the same log contain count once. Before any creation record the known fields are
    filled in. The column `raised` is added: whether the record raised the leader epoch.
    """
    is_created = is_a(EventType.PARTITION_CREATED)
    is_record = (f.col("kind") == Kind.DUMP) & (is_created | is_a(EventType.LEADERSHIP))
    records = timed.where(is_record & f.col("topic").isNotNull() & f.col("at").isNotNull())
    once = records.groupBy(*KEY, "at", "type", *_CHANGES).agg(
        f.min(f.struct("file_id", "offset")).alias("place"),
        f.first("at_error_us").alias("at_error_us"),
        f.first("format").alias("format"),
    )
    order = Window.partitionBy(*KEY).orderBy("at", "place")
    since = Window.partitionBy(*KEY, "creation").orderBy("at", "place")
    counted = (
        once.withColumn("creation", f.count(f.when(is_created, 1)).over(order))
        .withColumns(
            {
                "base": f.first(f.when(is_created, f.struct("leader_epoch", "partition_epoch"))).over(since),
                "leaders": f.count(f.when(~is_created & f.col("leader").isNotNull(), 1)).over(since),
                "changes": f.count(f.when(~is_created, 1)).over(since),
                "raised": ~is_created & f.col("leader").isNotNull(),
            }
        )
        .withColumns(
            {
                "leader_epoch": f.col("base.leader_epoch") + f.col("leaders").cast("int"),
                "partition_epoch": f.col("base.partition_epoch") + f.col("changes").cast("int"),
            }
        )
    )
    kept = ("leader", "isr", "replicas", "adding", "removing", "recovery")
    return counted.withColumns({name: f.last(name, ignorenulls=True).over(order) for name in kept}).drop(
        "base", "leaders", "changes", "creation", "place"
    )
