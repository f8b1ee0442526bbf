"""Costs of what-if analysis: sweeps over single brokers, pairs, racks, and rolling restarts.

    python -m bench.whatif [--sizes 100x100000] [--placement random,even] [--runs 3] [--full]

A size is brokers x partitions. Each partition has three replicas, and one partition in a hundred has one replica that
is not in sync. With random placement hardly two partitions are alike, so that there are nearly as many classes as
partitions: the worst case. With even placement, one replica in each of three racks, there are few classes.

* `open`: from columns in memory to classes.
* `brokers`, `pairs`, `racks`, `rack+broker`, `rolling`: each sweep, with the ten worst explained.
* `text`: reading the same cluster from the output of `kafka-topics.sh --describe`; for the first size only.
* `live`: the cluster of a running controller, with even placement. `copy` is what the event loop waits for; `prepare`
  makes the engine, `stoppable` is the answer about one broker, and `restart` plans a restart of five brokers at a time.
"""

import argparse
import io
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from bench.figures import Found
from bench.run import main, module, say, words

if TYPE_CHECKING:
    from kactl.decide.whatif.assumptions import Assumptions

NAME: Final = "whatif"
RACKS: Final = 3
REPLICAS: Final = 3
PARTITIONS_OF_A_TOPIC: Final = 50
BEHIND: Final = 0.01
SIZES: Final = ("100x100000",)
FULL_SIZES: Final = ("100x1000000", "300x1000000")
# Brokers and partitions of a running controller.
LIVE_SIZES: Final = ("30x100000", "99x1000000")
PLACEMENTS: Final = ("random", "even")

_Made = TypeVar("_Made")


def replicas(brokers: int, partitions: int, placement: str, random: np.random.Generator) -> Any:
    """Returns int32[partitions, 3]: three random brokers, or one of each rack; broker b is in rack (b - 1) % 3."""
    if placement == "random":
        one, two, three = (random.integers(0, brokers - less, partitions) for less in range(REPLICAS))
        two += two >= one
        low, high = np.minimum(one, two), np.maximum(one, two)
        three += three >= low
        three += three >= high
        return np.stack([one, two, three], axis=1).astype(np.int32) + np.int32(1)
    number = np.arange(partitions)
    racks = (number[:, None] % RACKS + np.arange(REPLICAS)) % RACKS
    in_rack = (brokers - racks + RACKS - 1) // RACKS
    places = (number[:, None] // RACKS + (number[:, None] // brokers) * np.arange(REPLICAS)) % in_rack
    return (1 + racks + RACKS * places).astype(np.int32)


def snapshot(brokers: int, partitions: int, placement: str, *, seed: int) -> pa.Table:
    """Returns a cluster as a snapshot."""
    from kactl.forensics.whatif.tables import SCHEMA

    random = np.random.default_rng(seed)
    assigned = replicas(brokers, partitions, placement, random)
    in_sync = np.ones(assigned.shape, np.bool_)
    in_sync[:, -1] = random.random(partitions) >= BEHIND
    number = np.arange(partitions)
    names = pa.array([f"topic-{each:06d}" for each in range(-(-partitions // PARTITIONS_OF_A_TOPIC))])
    columns = {
        "topic": names.take(pa.array(number // PARTITIONS_OF_A_TOPIC)),
        "partition": (number % PARTITIONS_OF_A_TOPIC).astype(np.int32),
        "leader": assigned[:, 0].copy(),
        "replicas": _lists(assigned, np.ones(assigned.shape, np.bool_)),
        "isr": _lists(assigned, in_sync),
        "min_isr": np.full(partitions, 2, np.int32),
    }
    return pa.table([columns.get(field.name, pa.nulls(partitions, field.type)) for field in SCHEMA], SCHEMA)


def assumed(brokers: int) -> "Assumptions":
    from kactl.decide.whatif.assumptions import Assumptions

    return Assumptions(racks={broker: "abc"[(broker - 1) % RACKS] for broker in range(1, brokers + 1)})


def described(table: pa.Table) -> bytes:
    """Returns the cluster in the output format of Kafka's tool."""
    lines = []
    for row in table.select(["topic", "partition", "leader", "replicas", "isr"]).to_pylist():
        ids = (",".join(map(str, row[name])) for name in ("replicas", "isr"))
        line = "\tTopic: {}\tPartition: {}\tLeader: {}\tReplicas: {}\tIsr: {}\tElr: \tLastKnownElr: \n"
        lines.append(line.format(row["topic"], row["partition"], row["leader"], *ids))
    return "".join(lines).encode()


def one_size(at: str, brokers: int, table: pa.Table, *, runs: int, found: Found) -> None:
    """Measures all sweeps over one cluster."""
    from kactl.decide.whatif import Kind
    from kactl.decide.whatif.analysis import answer
    from kactl.forensics.whatif import tables

    for _ in range(runs):
        opened = timed(found, f"{at}/open", lambda: tables.of_table(table, at, assumed(brokers)))
        for kind in (each for each in Kind if each is not Kind.KILL):
            timed(found, f"{at}/{kind}", lambda: answer(opened, sweeps=[kind]))  # noqa: B023
    found.add(f"{at}/classes", "count", opened.engine.classes)
    pairs = answer(opened, sweeps=[Kind.PAIRS]).sweeps[0]
    found.add(f"{at}/pairs/scenarios", "count", pairs.scenarios)
    took = max(found.runs(f"{at}/pairs"))
    say(f"{at}: {opened.engine.classes:,} classes, {pairs.scenarios:,} pairs in {took:.2f} s")
    say(pairs.worst[0].explained)


def live(brokers: int, partitions: int, *, runs: int, found: Found) -> None:
    """Measures analyses of a running controller's columns, from the copy to the answer."""
    from bench.clusters import Racked, known
    from kactl.admin.failure_analysis import LiveSnapshot, copied
    from kactl.decide.whatif import Kind
    from kactl.decide.whatif.analysis import answer, outcome_of
    from kactl.decide.whatif.restarts import plan_restarts
    from kactl.model import Fence

    shape = Racked(partitions, partitions // PARTITIONS_OF_A_TOPIC, brokers, REPLICAS)
    cluster = known(shape, controller=0, fence=Fence(1, 1))
    topics = len(cluster.table.refs) + 1
    min_isr, unclean = np.full(topics, 2, np.int32), np.zeros(topics, np.bool_)
    at = f"live/{brokers}x{partitions}"
    for _ in range(runs):
        copy = timed(found, f"{at}/copy", lambda: copied(cluster, min_isr=min_isr, unclean=unclean, now_ms=0))
        snapshot = timed(found, f"{at}/prepare", lambda: LiveSnapshot.of(copy))  # noqa: B023
        engine, prepared = snapshot.engine, snapshot.prepared
        one = engine.topology.failing([1])
        positions = engine.topology.positions(one.brokers)
        timed(found, f"{at}/stoppable", lambda: (engine.harmed(positions), outcome_of(prepared, one)))  # noqa: B023
        timed(found, f"{at}/classes", lambda: engine.classes)  # noqa: B023
        for kind in (Kind.BROKERS, Kind.PAIRS, Kind.ROLLING):
            timed(found, f"{at}/{kind}", lambda: answer(prepared, sweeps=[kind]))  # noqa: B023
        timed(found, f"{at}/restart", lambda: plan_restarts(engine, together=5))  # noqa: B023
    say(f"{at}: one broker in {max(found.runs(f'{at}/stoppable')) * 1000:.0f} ms")


def timed(found: Found, name: str, work: "Callable[[], _Made]") -> "_Made":
    """Adds one run of a figure, in seconds."""
    began = time.perf_counter()
    made = work()
    found.add(name, "s", time.perf_counter() - began)
    return made


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=words, help=f"brokers x partitions; {','.join(SIZES)}; with --full {FULL_SIZES}"
    )
    parser.add_argument("--live-sizes", type=words, help=f"the same for a running controller; {LIVE_SIZES}")
    parser.add_argument("--placement", type=words, default=PLACEMENTS, help="how replicas are placed, by commas")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="the sizes of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    from kactl.forensics.whatif.snapshots import file

    sizes = asked.sizes or (FULL_SIZES if asked.full else SIZES)
    for brokers, partitions in _parsed(asked.live_sizes or (LIVE_SIZES if asked.full else LIVE_SIZES[:1])):
        live(brokers, partitions, runs=asked.runs, found=found)
    for number, (brokers, partitions) in enumerate(_parsed(sizes)):
        tables = {
            f"{brokers}x{partitions}/{placement}": snapshot(brokers, partitions, placement, seed=found.seed)
            for placement in asked.placement
        }
        for at, table in tables.items():
            one_size(at, brokers, table, runs=asked.runs, found=found)
        at, table = next(iter(tables.items()))
        if not number:
            text = described(table)
            for _ in range(asked.runs):
                timed(found, f"{at}/text", lambda: file.read_stream(io.BytesIO(text), "text"))  # noqa: B023


def _parsed(sizes: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    for size in sizes:
        brokers, _, partitions = size.partition("x")
        yield int(brokers), int(partitions)


def _lists(members: Any, which: Any) -> pa.ListArray:
    """Returns the selected elements of each row as a list."""
    offsets = np.concatenate([[0], np.cumsum(which.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(members[which]))


if __name__ == "__main__":
    main(module(__name__))
