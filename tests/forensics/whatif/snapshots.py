"""Snapshots for tests, written by hand or random."""

import dataclasses
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from hypothesis import strategies as st

from kactl.decide.whatif.assumptions import Assumptions
from kactl.decide.whatif.prepared_snapshot import PreparedSnapshot
from kactl.forensics.whatif import tables
from kactl.forensics.whatif.tables import SCHEMA
from tests.support.cluster_strategies import Decisions

POOL: Final = (1, 2, 3, 5, 8, 40_000)


@dataclasses.dataclass(frozen=True)
class P:
    """A partition. Its leader is by default the first in-sync replica."""

    name: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...] | None
    leader: int | None = None
    elr: tuple[int, ...] | None = None
    min_isr: int | None = None
    unclean: bool | None = None

    @property
    def topic(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def led_by(self) -> int:
        if self.leader is not None:
            return self.leader
        return self.isr[0] if self.isr else -1

    def row(self) -> dict[str, object]:
        topic, _, number = self.name.rpartition("-")
        return {
            "topic": topic,
            "partition": int(number),
            "leader": self.led_by,
            "replicas": list(self.replicas),
            "isr": None if self.isr is None else list(self.isr),
            "elr": None if self.elr is None else list(self.elr),
            "min_isr": self.min_isr,
            "unclean": self.unclean,
            "weight": None,
        }


def table(partitions: Iterable[P]) -> pa.Table:
    """Returns partitions as the table of a snapshot."""
    return pa.Table.from_pylist([partition.row() for partition in partitions], SCHEMA)


def here(partitions: Iterable[P], assumed: Assumptions | None = None) -> PreparedSnapshot:
    """Returns a snapshot with the engine of this process."""
    return tables.of_table(table(partitions), "by hand", Assumptions() if assumed is None else assumed)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A random cluster with stopped brokers and two topics that allow unclean elections."""

    partitions: tuple[P, ...]
    away: frozenset[int]

    @property
    def brokers(self) -> tuple[int, ...]:
        return POOL

    @property
    def alive(self) -> tuple[int, ...]:
        return tuple(broker for broker in POOL if broker not in self.away)


# At least as many bytes as there are decisions.
_PARTITION_BYTES: Final = 16
_KINDS: Final = (("clean", False), ("strict", False), ("loose", True), ("risky", True))


def _partition(decide: Decisions, name: str, unclean: bool) -> P:
    replicas = decide.shuffled(POOL)[: 1 + decide.below(4)]
    isr = [broker for broker in replicas if decide.below(4)] or replicas[:1]
    leader = decide.pick([*isr, *isr, -1])
    return P(name, tuple(replicas), tuple(isr), leader, min_isr=1 + decide.below(3), unclean=unclean)


def _cluster(partitions: list[bytes], away: frozenset[int]) -> Drawn:
    kinds = [_KINDS[number % 4] for number in range(len(partitions))]
    return Drawn(
        tuple(
            _partition(Decisions(content), f"{topic}-{number}", unclean)
            for number, (content, (topic, unclean)) in enumerate(zip(partitions, kinds, strict=True))
        ),
        away,
    )


def clusters() -> st.SearchStrategy[Drawn]:
    """Draws one to eight partitions of four topics, with one to four replicas, any ISR, and some without a leader."""
    contents = st.binary(min_size=_PARTITION_BYTES, max_size=_PARTITION_BYTES)
    away = st.frozensets(st.sampled_from(POOL), max_size=2)
    return st.builds(_cluster, st.lists(contents, min_size=1, max_size=8), away)
