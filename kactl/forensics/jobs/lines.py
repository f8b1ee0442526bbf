"""Partition states and line predicates that several jobs use."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

# States of partitions, as Kafka names them.
ABSENT: Final = "NonExistentPartition"
NEW: Final = "NewPartition"
ONLINE: Final = "OnlinePartition"
OFFLINE: Final = "OfflinePartition"

LEADER_AND_ISR: Final = "LEADER_AND_ISR"


def is_a(*types: EventType) -> Value:
    """True if a line is of one of these types."""
    return f.col("type").isin([str(type_) for type_ in types])
