"""Goals: ratios of two figures of one run, with their bounds.

Benchmarks print the goals for which they have figures; the report prints all of them. A goal that is not reached is
marked, and causes no failure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from .figures import Figure
from .spread import Ratio, ratio
from .tables import plain, times


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Goal for one ratio.

    Attributes:
        bench: the benchmark.
        above, below: figures in numerator and denominator; without `below` the goal concerns the figure itself.
        at_least, at_most: bounds; None if there is no bound on that side.
    """

    bench: str
    what: str
    above: str
    below: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def of(self, figures: Mapping[str, Figure]) -> Ratio | None:
        """Returns the ratio and its spread; None if a figure is missing."""
        if self.above not in figures or (self.below and self.below not in figures):
            return None
        above = figures[self.above].runs
        return ratio(above, figures[self.below].runs if self.below else (1.0,))

    def reached(self, value: float) -> bool:
        low_enough = self.at_most is None or value <= self.at_most
        return low_enough and (self.at_least is None or value >= self.at_least)

    @property
    def wanted(self) -> str:
        """Returns the bound as text; empty if there is none."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""


GOALS: Final = (
    Goal(bench="lease", what="one check of a lease, ns", above="check", at_most=500),
    Goal(
        bench="election",
        what="objects / columns, broker failure at 100 k partitions",
        above="objects/100000/total",
        below="sqlite/100000/repeated/total",
        at_least=10,
    ),
    Goal(
        bench="election",
        what="objects / columns, broker failure at 1 M partitions",
        above="objects/1000000/total",
        below="sqlite/1000000/repeated/total",
        at_least=30,
    ),
    Goal(
        bench="election",
        what="the same, objects without the garbage collector",
        above="objects uncollected/1000000/total",
        below="sqlite/1000000/repeated/total",
    ),
    Goal(
        bench="election",
        what="broker failure, 2 M / 1 M partitions",
        above="sqlite/2000000/repeated/total",
        below="sqlite/1000000/repeated/total",
        at_most=2.2,
    ),
    Goal(
        bench="election",
        what="first event / repeated event at 1 M partitions",
        above="sqlite/1000000/first/total",
        below="sqlite/1000000/repeated/total",
        at_most=1.3,
    ),
    Goal(
        bench="election",
        what="bytes of a partition in the table at 1 M partitions",
        above="sqlite/1000000/memory/table",
        at_most=64,
    ),
    Goal(
        bench="tracing",
        what="broker failure at 100 k partitions, with / without its record",
        above="100000/recorded",
        below="100000/bare",
        at_most=1.01,
    ),
    Goal(
        bench="latency",
        what="p99 of single elections, in a large failure / idle",
        above="pooled/loaded/durable/p99",
        below="pooled/idle/durable/p99",
        at_most=4,
    ),
    Goal(
        bench="failover",
        what="takeover over ZooKeeper at 100 k partitions, cold / warm",
        above="zookeeper/100000/cold/told",
        below="zookeeper/100000/warm/told",
        at_least=2,
    ),
    *(
        Goal(
            bench="stores",
            what=f"rows committed in a second, etcd / ZooKeeper, at {label} partitions",
            above=f"zookeeper/{size}/commit",
            below=f"etcd/{size}/commit",
            at_least=0.7,
        )
        for size, label in ((10_000, "10 k"), (100_000, "100 k"))
    ),
    Goal(
        bench="stores",
        what="the same, etcd / SQLite, at 100 k partitions",
        above="sqlite/100000/commit",
        below="etcd/100000/commit",
    ),
    Goal(
        bench="stores",
        what="takeover of 100 k partitions, etcd / ZooKeeper",
        above="etcd/100000/takeover",
        below="zookeeper/100000/takeover",
        at_most=1.5,
    ),
    Goal(
        bench="stores",
        what="broker failure at 100 k partitions, etcd / ZooKeeper",
        above="etcd/100000/failure",
        below="zookeeper/100000/failure",
    ),
    Goal(
        bench="security",
        what="connection with TLS and login, ms of processor time",
        above="SASL_SSL/connection",
        at_most=2,
    ),
    *(
        Goal(
            bench="encryption",
            what=f"{label} at 100 k partitions, SASL_SSL / PLAINTEXT",
            above=f"100000/SASL_SSL/{name}",
            below=f"100000/PLAINTEXT/{name}",
            at_most=1.1,
        )
        for name, label in (("takeover", "takeover"), ("failure", "broker failure"))
    ),
    Goal(
        bench="forensics",
        what="ingest of 2 M lines, µs a line",
        above="2000000/ingest/warm/line",
        at_most=5,
    ),
    Goal(
        bench="whatif",
        what="every pair of 100 brokers, 1 M partitions placed at random, s",
        above="100x1000000/random/pairs",
        at_most=120,
    ),
)


class Wanted(msgspec.Struct, frozen=True):
    """Goal for one figure of the race at one size: the minimum ratio of Kafka's controller to kactl."""

    size: str
    path: str
    at_least: float


_SIZES: Final = ("10x10000", "30x100000", "100x200000")
_RACE: Final = {
    "standby failover/total": (8, 12, 10),
    "cold start/after election": (5, 5, 5),
    "broker failure/isr": (4, 6, 6),
    "broker failure/shrink": (5, 8, 8),
    "broker return/total": (1, 1.2, 1.2),
    "preferred election/isr": (3, 4, 4),
    "topic deletion/total": (5, 10, 10),
    "topic deletion/peak memory": (2, 4, 5),
}
RACE: Final = tuple(
    Wanted(size, path, at_least)
    for path, bounds in _RACE.items()
    for size, at_least in zip(_SIZES, bounds, strict=True)
)


def printed(figures: Mapping[str, Figure], bench: str, goals: Iterable[Goal] = GOALS) -> str:
    """Returns a table of the goals for which there are figures; empty if there are none."""
    rows = []
    for goal in goals:
        found = goal.of(figures) if goal.bench == bench else None
        if found is not None:
            rows.append([goal.what, times(found), goal.wanted, "" if goal.reached(found.value) else "not reached"])
    return plain(["ratios within this run", "", "wanted", ""], rows) if rows else ""
