"""Complete partition states from KRaft's metadata log, whose records contain only changes and no epochs.

A record that names a leader raises the leader epoch by one, even if the leader stays the same; every record raises the
partition epoch by one. Both start from the creation record, or from a snapshot.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType, Kind

from .expressions import all_known, is_a, rows_of

_CHANGES: Final = ("leader", "isr", "replicas", "adding", "removing", "recovery", "leader_epoch", "partition_epoch")


def filled(timed: DataFrame) -> DataFrame:
    """Return the records about partitions, each with the complete state after it.

    Records that several dumps of the same log contain count once. Before any creation record the known fields are
    filled in. The column `raised` is added: whether the record raised the leader epoch.
    """
    is_created = is_a(EventType.PARTITION_CREATED)
    is_record = (f.col("kind") == Kind.DUMP) & (is_created | is_a(EventType.LEADERSHIP))
    records = timed.where(is_record & all_known("topic", "at"))
    once = records.groupBy(*KEY, "at", "type", *_CHANGES).agg(
        f.min(f.struct("file_id", "offset")).alias("place"),
        f.first("at_error_us").alias("at_error_us"),
        f.first("format").alias("format"),
    )
    order = rows_of(*KEY).in_order("at", "place")
    since = rows_of(*KEY, "creation").in_order("at", "place")
    counted = (
        once.withColumn("creation", order.so_far(f.count(f.when(is_created, 1))))
        .withColumns(
            {
                "base": since.so_far(f.first(f.when(is_created, f.struct("leader_epoch", "partition_epoch")))),
                "leaders": since.so_far(f.count(f.when(~is_created & f.col("leader").isNotNull(), 1))),
                "changes": since.so_far(f.count(f.when(~is_created, 1))),
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
    carried = ("leader", "isr", "replicas", "adding", "removing", "recovery")
    return counted.withColumns({name: order.latest(name, with_equals=True) for name in carried}).drop(
        "base", "leaders", "changes", "creation", "place"
    )
