"""Words and short forms that jobs share when they ask what a line is."""

from typing import TYPE_CHECKING, Final

from kactl.forensics.event_types import EventType

if TYPE_CHECKING:
    from pyspark.sql import Column as Value

# States of partitions, in Kafka's words.
ABSENT: Final = "NonExistentPartition"
NEW: Final = "NewPartition"
ONLINE: Final = "OnlinePartition"
OFFLINE: Final = "OfflinePartition"

LEADER_AND_ISR: Final = "LEADER_AND_ISR"


def is_a(*types: EventType) -> "Value":
    """Whether a line is of one of these types."""
    from pyspark.sql import functions as f

    return f.col("type").isin([str(each) for each in types])
