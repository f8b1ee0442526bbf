"""Columns of a snapshot, the columns by which partitions are grouped into classes, and assumptions."""

import dataclasses
from collections.abc import Mapping
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

# Kafka's default.
MIN_ISR: Final = 1


class BadSnapshot(BadRequest):
    """A snapshot cannot be used; `field` is the file and, if known, the line."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicFacts:
    """Settings of a topic; None if not known.

    Attributes:
        weight: each partition's part of its leader's load.
    """

    min_isr: int | None = None
    unclean: bool | None = None
    weight: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Assumptions:
    """Values for what a snapshot lacks, and values that override it.

    Attributes:
        min_isr: min.insync.replicas of topics without a known value.
        unclean: whether topics without a known value allow unclean elections.
        topics: settings of single topics, which override the snapshot.
        racks: the rack of each broker, as far as known.
        away, alive: brokers that are away or alive, regardless of the snapshot.
    """

    min_isr: int = MIN_ISR
    unclean: bool = False
    topics: Mapping[str, TopicFacts] = dataclasses.field(default_factory=dict)
    racks: Mapping[int, str] = dataclasses.field(default_factory=dict)
    away: frozenset[int] = frozenset()
    alive: frozenset[int] = frozenset()

    @property
    def weighted(self) -> bool:
        """Whether loads are weights instead of numbers of partitions."""
        return any(facts.weight is not None for facts in self.topics.values())
