"""What a snapshot has of each partition, and what partitions that share every fate are grouped by."""

import dataclasses
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from kactl.errors import BadRequest
from kactl.forensics.columns import BOOL, ID, IDS, INT, REAL, TEXT, Column, schema

COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", ID, "the partition's number"),
    Column("leader", ID, "who leads; -1 nobody"),
    Column("replicas", IDS, "who is assigned, the preferred leader first"),
    Column("isr", IDS, "who is in sync, in any order"),
    Column("elr", IDS, "KRaft: who may lead without loss though not in sync; null if there are none"),
    Column("min_isr", INT, "the topic's min.insync.replicas; null if the snapshot does not say"),
    Column("unclean", BOOL, "the topic's unclean.leader.election.enable; null if the snapshot does not say"),
    Column("weight", REAL, "what it weighs in its leader's load; null if nobody said"),
)
SCHEMA: Final = schema(COLUMNS)
REQUIRED: Final = ("topic", "partition", "leader", "replicas", "isr")

# What a class is known by. Two partitions that agree in these fare alike, whoever dies.
SIGNATURE: Final = ("leader", "replicas", "isr", "elr", "min_isr", "unclean")
GROUPED: Final = pa.schema(
    [
        *(SCHEMA.field(name) for name in SIGNATURE),
        pa.field("partitions", pa.int64()),
        pa.field("weight", pa.float64()),
    ]
)

# Kafka's own default, where neither the topic nor anybody else says more.
MIN_ISR: Final = 1


class BadSnapshot(BadRequest):
    """A snapshot that cannot be used: `field` is the file and, where there is one, the line."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicFacts:
    """What is known of a topic beside its partitions; None where nothing is.

    Attributes:
        weight: of each of its partitions, in its leader's load.
    """

    min_isr: int | None = None
    unclean: bool | None = None
    weight: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Assumptions:
    """What is taken for true where a snapshot does not say, or says otherwise.

    Attributes:
        min_isr: min.insync.replicas of topics of which nothing is known.
        unclean: whether these allow unclean elections.
        topics: what was said of single topics; it goes before what the snapshot says.
        racks: the rack of each broker, as far as known.
        away: brokers that are away, whatever the snapshot shows; `alive`: those that are alive.
    """

    min_isr: int = MIN_ISR
    unclean: bool = False
    topics: Mapping[str, TopicFacts] = dataclasses.field(default_factory=dict)
    racks: Mapping[int, str] = dataclasses.field(default_factory=dict)
    away: frozenset[int] = frozenset()
    alive: frozenset[int] = frozenset()

    @property
    def weighted(self) -> bool:
        """Whether loads are in weights, and not in partitions."""
        return any(facts.weight is not None for facts in self.topics.values())
