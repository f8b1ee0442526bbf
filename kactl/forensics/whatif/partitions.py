"""Columns of a snapshot, and the columns by which partitions are grouped into classes."""

from typing import Final

import pyarrow as pa

from kactl.errors import BadRequest
from kactl.forensics.columns import columns, schema

COLUMNS: Final = columns(
    """
    topic      text  the topic
    partition  id    the partition's number
    leader     id    the leader; -1 for none
    replicas   ids   assigned brokers, the preferred leader first
    isr        ids   in-sync replicas, in any order
    elr        ids   KRaft: eligible leader replicas, which may lead without loss; null if there are none
    min_isr    int   the topic's min.insync.replicas; null if it is not known
    unclean    bool  the topic's unclean.leader.election.enable; null if it is not known
    weight     real  its part of its leader's load; null if it is not known
    """
)
SCHEMA: Final = schema(COLUMNS)
REQUIRED: Final = ("topic", "partition", "leader", "replicas", "isr")

# Key of a class. Partitions with the same key behave equally in every failure.
SIGNATURE: Final = ("leader", "replicas", "isr", "elr", "min_isr", "unclean")
GROUPED: Final = pa.schema(
    [
        *(SCHEMA.field(name) for name in SIGNATURE),
        pa.field("partitions", pa.int64()),
        pa.field("weight", pa.float64()),
    ]
)

# The same for single partitions, with their topics.
FILLED: Final = pa.schema([SCHEMA.field("topic"), *GROUPED])


class BadSnapshot(BadRequest):
    """A snapshot cannot be used; `field` is the file and, if known, the line."""
