"""What a warm standby is worth: taking over with a copy of the cluster, and without.

    python -m bench.standby [--sizes 10000,100000] [--runs 5] [--stores sqlite,zookeeper] [--drift 100]

A whole controller instance stands by over a real store, behind a client that holds the controllership. One that is
warm is given the time to read everything. Then so many leaderships are written as `drift` says, and the holder gives
up. Timed is from there: until the new controller knows all partitions (`load`), and until it has told all brokers and
elected whom it had to (`ready`). Brokers answer at once, without a network. Over ZooKeeper a server is started as the
tests do it. Printed are medians and their spread; figures are of this machine, and only ratios within one run mean
something.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np

from bench.clusters import Shape, fill
from kactl.actors.system import Controller
from kactl.model import Broker, Fence
from kactl.store import Names, Session, Store, Write
from kactl.stores.sqlite import SqliteStore
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.wire import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from tests.interop.zookeeper import ZooKeeperServer

HOLDER, STANDBY = 900, 901
BROKERS = 30
PARTITIONS_OF_A_TOPIC = 10
INTERVAL_MS = 50
# Sessions outlive whatever the machine does meanwhile.
SESSION_MS = 60_000
TOPICS_AT_ONCE = 200
# Of the ZooKeeper server: 100,000 partitions are some 300,000 nodes.
HEAP_MB = 768
# For everything that is waited for, beyond which the bench gives up.
LIMIT_S = 600


class Answering:
    """Brokers that take everything and answer at once."""

    def connect(self, broker: Broker) -> "Answering":
        return self

    async def deliver(self, request: Request) -> Response:
        if isinstance(request, LeaderAndIsr):
            return LeaderAndIsrResponse(0, PartitionErrors.none())
        if isinstance(request, StopReplica):
            return StopReplicaResponse(0, PartitionErrors.none())
        return UpdateMetadataResponse(0)

    async def close(self) -> None: ...


Opener = Callable[[], Store]


async def load(store: Store, shape: Shape, fence: Fence) -> None:
    """Put the cluster into a store."""
    if isinstance(store, SqliteStore):
        await fill(store, shape, fence)
        return
    assignments = shape.assignments()
    for begin in range(0, shape.topics, TOPICS_AT_ONCE):
        numbers = range(begin, min(begin + TOPICS_AT_ONCE, shape.topics))
        held = {
            number: {name.partition: one for name, one in assignments.take(assignments.topic == number).items()}
            for number in numbers
        }
        await asyncio.gather(*(store.create_topic(assignments.topics[at], held[at], {}) for at in numbers))
    for write in shape.writes(assignments):
        assert (await store.commit(write, fence)).kept.all()


async def drift(store: Store, shape: Shape, fence: Fence, count: int) -> None:
    """Some leaderships are written, spread over all topics; they say what they said before."""
    if not count:
        return
    assignments = shape.assignments()
    which = np.linspace(0, shape.partitions - 1, count).astype(np.intp)
    names = Names(assignments.topics, assignments.topic[which], assignments.partition[which])
    stored = await store.leaderships(names)
    write = Write(names, stored.leader, stored.leader_epoch, stored.isr, stored.recovering, stored.partition_epoch)
    assert (await store.commit(write, fence)).kept.all()


async def take_over(opened: Opener, holder: Store, shape: Shape, *, warm: bool, drifting: int) -> dict[str, float]:
    """One takeover; milliseconds."""
    fence = await holder.contest(HOLDER, take_over=True)
    instance = Controller(
        STANDBY, store=opened(), transport=Answering(), standby_interval_ms=INTERVAL_MS if warm else 0
    )
    loaded = 0.0
    real = instance.loop.failover.load

    async def timed(names: list[str]) -> None:
        nonlocal loaded
        await real(names)
        loaded = time.perf_counter()

    instance.loop.failover.load = timed  # type: ignore[method-assign]
    async with instance:
        async with asyncio.timeout(LIMIT_S):
            while warm and instance.loop.standby.copied < shape.partitions:  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(INTERVAL_MS / 1000)
        # It looks at its copy once more before somebody writes.
        await asyncio.sleep(4 * INTERVAL_MS / 1000)
        await drift(holder, shape, fence, drifting)
        began = time.perf_counter()
        await holder.resign(fence)
        await instance.wait_active(timeout_ms=LIMIT_S * 1000)
        ready = time.perf_counter()
        assert len(instance.cluster.table) == shape.partitions
        assert instance.cluster.offline_count == 0
        await holder.contest(HOLDER, take_over=True)
    return {"load": (loaded - began) * 1000, "ready": (ready - began) * 1000}


@contextlib.asynccontextmanager
async def backing(kind: str) -> AsyncIterator[Opener]:
    """A place where clients of one kind meet."""
    with tempfile.TemporaryDirectory(prefix="kactl-bench-") as folder:
        if kind == "sqlite":
            yield lambda: SqliteStore(Path(folder) / "kactl.db", session_timeout_ms=SESSION_MS)
            return
        with ZooKeeperServer(Path(folder), tick_ms=SESSION_MS // 10, heap_mb=HEAP_MB) as server:
            yield lambda: ZooKeeperStore(server.connect("/bench"), session_timeout_ms=SESSION_MS)


async def register(store: Store, shape: Shape) -> list[Session]:
    sessions = []
    for broker in shape.registered():
        session = await store.new_session(SESSION_MS)
        await session.register(broker)
        sessions.append(session)
    return sessions


async def keep_alive(sessions: list[Session]) -> None:
    while True:
        await asyncio.sleep(SESSION_MS / 4000)
        for session in sessions:
            await session.keep_alive()


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):>9.1f} ({min(values):.0f}-{max(values):.0f})"


async def measure(kind: str, size: int, runs: int, drifting: int) -> None:
    """Print one size over one store."""
    shape = Shape(size, max(1, size // PARTITIONS_OF_A_TOPIC), BROKERS)
    async with backing(kind) as opened, opened() as holder:
        fence = await holder.contest(HOLDER)
        sessions = await register(holder, shape)
        tending = asyncio.create_task(keep_alive(sessions))
        try:
            began = time.perf_counter()
            await load(holder, shape, fence)
            filled = time.perf_counter() - began
            print(f"\n{size:,} partitions of {shape.topics:,} topics over {kind}, filled in {filled:.1f} s;")
            print(f"{drifting} of them are written between the last look and the takeover")
            found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
            for _ in range(runs):
                for warm in found:  # by turns, so that both meet the same machine
                    found[warm].append(await take_over(opened, holder, shape, warm=warm, drifting=drifting))
        finally:
            tending.cancel()
    for stage in ("load", "ready"):
        cold, warm_ms = ([row[stage] for row in found[warm]] for warm in (False, True))
        ratio = statistics.median(cold) / statistics.median(warm_ms)
        print(f"  {stage:<6} cold {spread(cold):<24} warm {spread(warm_ms):<24} ms   cold to warm {ratio:6.1f}")


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.standby", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="10000,100000", help="partitions, by commas")
    parser.add_argument("--runs", type=int, default=5, help="takeovers of each kind (default 5)")
    parser.add_argument("--stores", default="sqlite,zookeeper", help="by commas")
    parser.add_argument("--drift", type=int, default=100, help="partitions written meanwhile (default 100)")
    asked = parser.parse_args()
    for kind in asked.stores.split(","):
        for size in asked.sizes.split(","):
            await measure(kind, int(size), asked.runs, asked.drift)


if __name__ == "__main__":
    asyncio.run(main())
