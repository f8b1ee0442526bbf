"""Snapshots for tests, written by hand or random."""

import dataclasses
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from hypothesis import strategies as st

from kactl.forensics.whatif import prepared_snapshot
from kactl.forensics.whatif.partitions import SCHEMA, Assumptions
from kactl.forensics.whatif.prepared_snapshot import PreparedSnapshot

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
    return prepared_snapshot.of_table(table(partitions), "by hand", Assumptions() if assumed is None else assumed)


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


@st.composite
def _partitions(draw: st.DrawFn, name: str, unclean: bool) -> P:
    replicas = draw(st.permutations(POOL))[: draw(st.integers(1, 4))]
    isr = [broker for broker in replicas if draw(st.integers(0, 3))] or replicas[:1]
    leader = draw(st.sampled_from([*isr, *isr, -1]))
    return P(name, tuple(replicas), tuple(isr), leader, min_isr=draw(st.integers(1, 3)), unclean=unclean)


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    """Draws one to eight partitions of four topics, with one to four replicas, any ISR, and some without a leader."""
    kinds = [("clean", False), ("strict", False), ("loose", True), ("risky", True)]
    count = draw(st.integers(1, 8))
    partitions = [draw(_partitions(f"{kinds[at % 4][0]}-{at}", kinds[at % 4][1])) for at in range(count)]
    return Drawn(tuple(partitions), frozenset(draw(st.sets(st.sampled_from(POOL), max_size=2))))
