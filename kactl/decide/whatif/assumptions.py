"""Assumptions of a failure simulation: values for what a snapshot lacks, and values that override it."""

import dataclasses
from collections.abc import Mapping
from typing import Final

# Kafka's default.
MIN_ISR: Final = 1


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
