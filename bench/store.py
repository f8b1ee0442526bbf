"""Costs of reading and writing leadership over each store, per partition.

    python -m bench.store [--partitions 10000] [--writes 10000] [--stores memory,sqlite,etcd,zookeeper,kazoo] [--full]

* `read`: the leadership of all partitions, as in a takeover without a copy.
* `topics`: the assignments of all topics.
* `write`: new leadership of partitions spread over all topics, by compare-and-set with a fence, in one commit.

ZooKeeper is measured with kactl's own client (`zookeeper`) and with kazoo, and with several numbers of writes per multi
and of requests in flight (`batches/100x20`). `floor` is the lower bound: prepared multis and multi-reads of the same
nodes, whose responses are not decoded. `processor` is the time used by all threads of this process. etcd is a
single member.
"""

import argparse
import time
from collections.abc import Awaitable, Callable
from typing import Final

import numpy as np

from bench import floor
from bench.clusters import Shape
from bench.figures import Found
from bench.hosting import CHROOT, SESSION_MS, backing, load, zookeeper
from bench.run import main, module, say, undisturbed, words
from kactl.model import Fence
from kactl.stores.base import Names, Store, Write
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.connection import Factory
from tests.support.kazoo_connection import KazooConnection
from tests.support.zookeeper_server import ZooKeeperServer

NAME: Final = "store"
CONTROLLER: Final = 900
BROKERS: Final = 30
PARTITIONS_OF_A_TOPIC: Final = 20
STORES: Final = ("memory", "sqlite", "etcd", "zookeeper", "kazoo")
BATCHES: Final = (50, 100, 200, 500)
WINDOWS: Final = (5, 10, 20, 40)
FLOOR_READS: Final = (100, 500, 1000)
FLOOR_IN_FLIGHT: Final = 10
# State that a controller writes for a partition with three replicas.
STATE: Final = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3]}'


class Spent:
    """Adds the time and processor time of one call to the figures."""

    def __init__(self, found: Found) -> None:
        self.found = found

    async def note(self, at: str, count: int, work: Callable[[], Awaitable[None]]) -> None:
        with undisturbed():
            used, began = time.process_time(), time.perf_counter()
            await work()
            took, used = time.perf_counter() - began, time.process_time() - used
        self.found.add(f"{at}/partition", "us", took * 1e6 / count)
        self.found.add(f"{at}/processor", "us", used * 1e6 / count)


def all_names(shape: Shape) -> Names:
    assignments = shape.assignments()
    return Names(assignments.topics, assignments.topic, assignments.partition)


def some_names(shape: Shape, count: int) -> Names:
    """Returns partitions spread over all topics, like the partitions of one broker."""
    assignments = shape.assignments()
    which = np.linspace(0, shape.partitions - 1, min(count, shape.partitions)).astype(np.intp)
    return Names(assignments.topics, assignments.topic[which], assignments.partition[which])


async def next_write(store: Store, names: Names) -> Write:
    """Returns the next leadership of some partitions: another leader epoch, otherwise unchanged."""
    stored = await store.leaderships(names)
    return Write(names, stored.leader, stored.leader_epoch + 1, stored.isr, stored.recovering, stored.partition_epoch)


async def committed(store: Store, write: Write, fence: Fence) -> None:
    assert (await store.commit(write, fence)).committed.all()


async def one_store(store: Store, at: str, shape: Shape, *, writes: int, runs: int, fence: Fence, found: Found) -> None:
    """Measures reads and writes over a filled store."""
    spent, names, some = Spent(found), all_names(shape), some_names(shape, writes)
    topics = [ref.name for ref in shape.refs()]

    async def read() -> None:
        assert (await store.leaderships(names)).leader.min() > 0

    async def assignments() -> None:
        assert len((await store.assignments(topics)).partition) == shape.partitions

    for run in range(runs + 1):
        write = await next_write(store, some)
        # The first run of each is a warm-up and is discarded.
        where = at if run else f"warm-up/{at}"
        await spent.note(f"{where}/read", len(names), read)
        await spent.note(f"{where}/topics", len(names), assignments)
        await spent.note(f"{where}/write", len(some), lambda: committed(store, write, fence))  # noqa: B023
    found.forget("warm-up")


async def over_zookeeper(shape: Shape, *, asked: argparse.Namespace, found: Found) -> None:
    """Measures both clients, the grid of batches and windows, and the lower bound, over one server."""
    with zookeeper() as server:
        async with another(server) as store:
            fence = await store.contest(CONTROLLER)
            await load(store, shape, fence)
            for kind, factory in (("zookeeper", None), ("kazoo", KazooConnection)):
                if kind not in asked.stores:
                    continue
                async with another(server, client=factory) as client:
                    at = f"{kind}/{shape.partitions}"
                    await one_store(client, at, shape, writes=asked.writes, runs=asked.runs, fence=fence, found=found)
            if asked.grid:
                await grid(server, shape, asked=asked, fence=fence, found=found)
        plain(server, shape, asked=asked, found=found)


def another(
    server: ZooKeeperServer, *, client: Factory | None = None, batch: int = 0, in_flight: int = 0
) -> ZooKeeperStore:
    """Returns another client of the server; 0 selects the defaults."""
    sizes = {"batch_partitions": batch, "max_in_flight": in_flight}
    given = {name: size for name, size in sizes.items() if size}
    return ZooKeeperStore(server.connect(CHROOT), session_timeout_ms=SESSION_MS, client=client, **given)  # type: ignore[arg-type]


async def grid(server: ZooKeeperServer, shape: Shape, *, asked: argparse.Namespace, fence: Fence, found: Found) -> None:
    """Measures writes with several numbers of writes per multi and of multis in flight, in turn."""
    some = some_names(shape, asked.writes)
    spent = Spent(found)
    for run in range(asked.runs + 1):
        for batch in BATCHES:
            for window in WINDOWS:
                async with another(server, batch=batch, in_flight=window) as store:
                    write = await next_write(store, some)
                    at = f"batches/{batch}x{window}/write"
                    where = at if run else f"warm-up/{at}"
                    await spent.note(where, len(some), lambda: committed(store, write, fence))  # noqa: B023
    found.forget("warm-up")


def plain(server: ZooKeeperServer, shape: Shape, *, asked: argparse.Namespace, found: Found) -> None:
    """Measures the lower bound of the server for the same nodes."""

    def paths(names: Names) -> list[str]:
        prefix = f"{CHROOT}/brokers/topics"
        return [f"{prefix}/{name.topic}/partitions/{name.partition}/state" for name in names]

    everything, some = paths(all_names(shape)), paths(some_names(shape, asked.writes))
    with floor.Floor(server.port) as raw:
        for run in range(asked.runs + 1):
            for batch in FLOOR_READS:
                took = raw.run(floor.reads(everything, batch=batch), in_flight=FLOOR_IN_FLIGHT)
                if run:
                    found.add(f"floor/{shape.partitions}/read/{batch}", "us", took * 1e6 / len(everything))
            for batch in BATCHES:
                requests = floor.writes(some, STATE, fence=f"{CHROOT}/controller_epoch", batch=batch)
                took = raw.run(requests, in_flight=FLOOR_IN_FLIGHT)
                if run:
                    found.add(f"floor/{shape.partitions}/write/{batch}", "us", took * 1e6 / len(some))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, help="10,000; with --full 100,000")
    parser.add_argument("--writes", type=int, default=10_000, help="partitions in one commit")
    parser.add_argument("--stores", type=words, default=STORES, help="by commas")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--grid", action="store_true", help="other sizes of batches and windows over ZooKeeper")
    parser.add_argument("--full", action="store_true", help="the sizes of a published run, and the grid")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    asked.grid |= asked.full
    size = asked.partitions or (100_000 if asked.full else 10_000)
    shape = Shape(size, max(1, size // PARTITIONS_OF_A_TOPIC), BROKERS)
    for kind in asked.stores:
        if kind in ("memory", "sqlite", "etcd"):
            async with backing(kind) as opened, opened() as store:
                fence = await store.contest(CONTROLLER)
                await load(store, shape, fence)
                at = f"{kind}/{size}"
                await one_store(store, at, shape, writes=asked.writes, runs=asked.runs, fence=fence, found=found)
            say(f"{kind}: done")
    if {"zookeeper", "kazoo"} & set(asked.stores):
        await over_zookeeper(shape, asked=asked, found=found)


if __name__ == "__main__":
    main(module(__name__))
