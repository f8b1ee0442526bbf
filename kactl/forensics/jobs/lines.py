"""Words and short forms that jobs share when they ask what a line is."""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import functions as f

from kactl.forensics.event_types import EventType

# States of partitions, in Kafka's words.
ABSENT: Final = "NonExistentPartition"
NEW: Final = "NewPartition"
ONLINE: Final = "OnlinePartition"
OFFLINE: Final = "OfflinePartition"

LEADER_AND_ISR: Final = "LEADER_AND_ISR"


def is_a(*types: EventType) -> Value:
    """Whether a line is of one of these types."""
    return f.col("type").isin([str(each) for each in types])
