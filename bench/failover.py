"""Duration of a takeover by stage, for a cold instance and for a warm standby.

    python -m bench.failover [--sizes 10000,100000] [--stores memory,sqlite,zookeeper] [--runs 5] [--drift 100] [--full]

A complete controller instance is a standby over a real store, behind a client that holds the controllership. A warm
one first loads its copy. Then `drift` leaderships are written, and the holder resigns. From there the instance is
timed until it has the controllership (`elected`), has loaded all partitions (`loaded`), has held all necessary
elections and accepts requests (`ready`), has encoded the first request with partitions (`first bytes`), and the last
one (`told`). Brokers respond immediately, without a network; over ZooKeeper a server is started as in the tests. Cold
and warm takeovers alternate. `processor` is the time used by all threads of this process: over ZooKeeper the server
is another process, over the others the store is part of this one."""

import argparse
import asyncio
import time
from collections.abc import Collection
from typing import Final

import numpy as np

from bench import goals
from bench.clusters import Shape
from bench.figures import Found
from bench.footprint import resident_bytes
from bench.hosting import KINDS, Opener, backing, collecting, load, quiet, registered, until
from bench.run import main, module, numbers, say, words
from bench.tables import number, plain
from kactl.actors.system import Controller
from kactl.decide.messages.control import KafkaRequest, Request, StopReplica
from kactl.model import Fence
from kactl.stores.base import Names, Store, Write

from .brokers import Encoding

NAME: Final = "failover"
HOLDER, STANDBY = 900, 901
BROKERS = 30
PARTITIONS_OF_A_TOPIC = 20
INTERVAL_MS = 50
SIZES = (10_000, 100_000)
FULL_SIZES = {
    "memory": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    "sqlite": (10_000, 30_000, 100_000, 300_000, 1_000_000),
    # Above this size, filling the server takes longer than everything that is measured.
    "zookeeper": (10_000, 30_000, 100_000, 200_000),
    "etcd": (10_000, 100_000),
}
STAGES: Final = ("elected", "loaded", "first bytes", "told", "ready", "processor")
# Time limit of each wait.
LIMIT_S = 600


async def drift(store: Store, shape: Shape, fence: Fence, count: int) -> None:
    """Writes some leaderships, spread over all topics, with unchanged values."""
    if not count:
        return
    assignments = shape.assignments()
    which = np.linspace(0, shape.partitions - 1, min(count, shape.partitions)).astype(np.intp)
    names = Names(assignments.topics, assignments.topic[which], assignments.partition[which])
    stored = await store.leaderships(names)
    write = Write(names, stored.leader, stored.leader_epoch, stored.isr, stored.recovering, stored.partition_epoch)
    assert (await store.commit(write, fence)).committed.all()


class Clocked:
    """Time at which each stage of one takeover was reached; `time.perf_counter`."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def on_bytes(self, broker: int, request: Request, at: float) -> None:
        if isinstance(request, StopReplica) or (isinstance(request, KafkaRequest) and len(request.states)):
            self.at.setdefault("first bytes", at)
            self.at["told"] = at

    def watch(self, instance: Controller) -> None:
        """Records when the instance is elected, and when it has loaded everything."""
        failover = instance.loop.failover
        take_over, load_all = failover.take_over, failover.load

        async def taking_over(*, yields: bool) -> None:
            self.at["elected"] = time.perf_counter()
            await take_over(yields=yields)

        async def loading(names: Collection[str], deleted: Collection[str] = ()) -> None:
            await load_all(names, deleted)
            self.at["loaded"] = time.perf_counter()

        failover.take_over = taking_over  # type: ignore[method-assign]
        failover.load = loading  # type: ignore[method-assign]


async def take_over(opened: Opener, holder: Store, shape: Shape, *, warm: bool, drifting: int) -> dict[str, float]:
    """Runs one takeover. Returns each stage in milliseconds."""
    fence = await holder.contest(HOLDER, take_over=True)
    clocked = Clocked()
    brokers = Encoding(client_id=STANDBY, on_bytes=clocked.on_bytes)
    instance = Controller(
        STANDBY, store=opened(), transport=brokers, auto_balance=False, standby_interval_ms=INTERVAL_MS if warm else 0
    )
    clocked.watch(instance)
    async with instance, collecting(instance):
        await until(lambda: not warm or instance.loop.standby.copied >= shape.partitions, limit_s=LIMIT_S)
        # The standby checks its copy once more before the writes.
        await asyncio.sleep(4 * INTERVAL_MS / 1000)
        await drift(holder, shape, fence, drifting)
        used, began = time.process_time(), time.perf_counter()
        await holder.resign(fence)
        await instance.wait_active(timeout_ms=LIMIT_S * 1000)
        clocked.at["ready"] = time.perf_counter()
        await quiet(instance, limit_s=LIMIT_S)
        used = time.process_time() - used
        assert len(instance.cluster.table) == shape.partitions
        assert instance.cluster.offline_count == 0
        await holder.contest(HOLDER, take_over=True)
    return {stage: (at - began) * 1000 for stage, at in clocked.at.items()} | {"processor": used * 1000}


async def one_size(kind: str, size: int, *, runs: int, drifting: int, brokers: int, found: Found) -> None:
    """Measures and prints one size over one store."""
    shape = Shape(size, max(1, size // PARTITIONS_OF_A_TOPIC), brokers)
    async with backing(kind) as opened, opened() as holder:
        fence = await holder.contest(HOLDER)
        began = time.perf_counter()
        await load(holder, shape, fence)
        filled = time.perf_counter() - began
        async with registered(holder, shape):
            for _ in range(runs):
                for how, warm in (("cold", False), ("warm", True)):  # in turn, so that other load affects both
                    reached = await take_over(opened, holder, shape, warm=warm, drifting=drifting)
                    found.add_all(f"{kind}/{size}/{how}", "ms", {stage: reached[stage] for stage in STAGES})
        found.add(f"{kind}/{size}/memory", "MB", resident_bytes() / 1e6)
    say(f"\n{size:,} partitions of {shape.topics:,} topics over {kind}, filled in {filled:.1f} s;")
    say(f"{drifting} of them are written between the last look and the takeover; ms")
    figures = found.figures()
    rows = []
    for how in ("cold", "warm"):
        spreads = (figures[f"{kind}/{size}/{how}/{stage}"].spread for stage in STAGES)
        rows.append(
            [how, *(f"{number(each.median)} ({number(each.least)}-{number(each.greatest)})" for each in spreads)]
        )
    say(plain(["", *STAGES], rows))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=numbers, help=f"partitions, by commas; {SIZES} if not given")
    parser.add_argument("--runs", type=int, default=5, help="takeovers of each kind")
    parser.add_argument("--stores", type=words, default=KINDS, help="by commas")
    parser.add_argument("--drift", type=int, default=100, help="partitions written meanwhile")
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--full", action="store_true", help="the sizes of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    for kind in asked.stores:
        for size in asked.sizes or (FULL_SIZES[kind] if asked.full else SIZES):
            await one_size(kind, size, runs=asked.runs, drifting=asked.drift, brokers=asked.brokers, found=found)
    say(f"\n{goals.printed(found.figures(), NAME)}")


if __name__ == "__main__":
    main(module(__name__))
