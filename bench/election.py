"""One broker of thirty fails: from the event to a durable decision and the bytes of all requests.

    python -m bench.election [--sizes 10000,100000,1000000] [--runs 5] [--store sqlite|memory]

The controller's own handlers and machine actors run over a real store; in place of channels stands an outbox that
encodes every request in the newest version. Brokers fail one after the other and come back in between, so that every
run after the first meets a cluster like the one before. Printed are the median of each stage and its spread, the first
event apart from the repeated ones, the memory of a partition, and the same for the object form at 100,000 partitions.
Figures are of this machine and this run; only ratios within one run mean something.
"""

import argparse
import asyncio
import contextlib
import gc
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import numpy as np

from bench.clusters import Shape, fill
from bench.stages import Stages
from kactl.actors.controller import ControllerLoop
from kactl.actors.handlers.reach import Reach, Settings
from kactl.actors.partitions import Partitions
from kactl.actors.replicas import Replicas
from kactl.batch import Addressed, RequestBatch
from kactl.clock import SystemClock
from kactl.cluster import Cluster
from kactl.events import BrokersChanged
from kactl.history import History
from kactl.level import LATEST
from kactl.machines import partition, replica
from kactl.model import Broker, PartitionState, ReplicaState
from kactl.rows import Change
from kactl.stores.memory import MemoryStore
from kactl.stores.sqlite import SqliteStore
from kactl.telemetry import Telemetry
from kactl.transports.kafka.codec import Encoder, versions_for
from tests.oracle import batch as object_batch
from tests.oracle.failure import BrokerFailure
from tests.oracle.model import Leading, ObjectCluster, Partition

BROKERS = 30
TOPICS = 10_000
ORACLE_PARTITIONS = 100_000
STAGES = ("find", "elect", "commit", "apply", "gather", "encode", "other")
CONTROLLER = 900


class EncodingChannels:
    """Stands where channels stand: takes requests and makes their bytes, all of them, at once."""

    def __init__(self) -> None:
        self.encoder = Encoder(versions_for(LATEST), client_id=str(CONTROLLER), listener_name="INTERNAL")
        self.requests = 0
        self.bytes = 0

    def send(self, requests: Iterable[Addressed]) -> None:
        for _, request in requests:
            self.requests += 1
            self.bytes += self.encoder.frame(request, self.requests).size

    def add(self, broker: Broker) -> None: ...

    def remove(self, broker: int) -> None: ...

    def close(self) -> None: ...


class Bench:
    """A controller's deciding and committing parts over one cluster."""

    def __init__(self, shape: Shape, store: MemoryStore | SqliteStore) -> None:
        self.shape = shape
        self.store = store
        self.registered = {broker.id: broker for broker in shape.registered()}
        self.cluster = Cluster(CONTROLLER)
        self.channels = EncodingChannels()
        self.history = History(SystemClock())
        self.partitions = Partitions(self.cluster, store, self.channels, self.history)
        self.replicas = Replicas(self.cluster, store, self.channels, self.history)
        self.stages = Stages()
        self.reach = Reach(
            self.cluster,
            store,
            self.partitions.ref,
            self.replicas.ref,
            self.channels,
            self.history,
            RequestBatch(self.cluster),
            SystemClock(),
            Settings(new_topic_id=lambda: bytes(16)),
            enqueue=lambda event: None,
        )
        self.loop = ControllerLoop(self.reach, telemetry=Telemetry(), unclean=self.partitions)

    async def load(self) -> None:
        """Fill the store, and the table as a failover would leave it."""
        self.cluster.fence = await self.store.contest(CONTROLLER)
        self.loop.controllership.active_id = CONTROLLER
        assignments = await fill(self.store, self.shape, self.cluster.fence)
        self.cluster.add_brokers(self.registered.values())
        at = self.cluster.put_assignments(assignments)
        epoch = self.cluster.fence.epoch
        self.cluster.put_leaderships(at, self.shape.leaderships(assignments, controller_epoch=epoch))
        assigned = self.cluster.table.rows(at).assigned
        online, absent = np.uint8(ReplicaState.ONLINE), np.uint8(ReplicaState.ABSENT)
        self.cluster.table.set_replica_states(at, np.where(assigned, online, absent))
        self.cluster.set_states(at, PartitionState.ONLINE)
        self.store.brokers = self._brokers  # type: ignore[method-assign]

    async def _brokers(self) -> dict[int, Broker]:
        """The registrations; a bench has no sessions to end."""
        return dict(self.registered)

    def watch_stages(self) -> None:
        """Wrap what each stage calls."""
        wrap, cluster = self.stages.wrap, self.cluster
        wrap(cluster.table, "find", "led_by_none_of", "in_state", "with_replica_on", "not_queued", "rows")
        wrap(partition, "elect", "move", "elect")
        wrap(replica, "elect", "legal_offline", "go_offline")
        wrap(self.store, "commit", "commit")
        wrap(cluster, "apply", "apply")
        wrap(self.history, "apply", "add_partitions", "add_replicas")
        for batch in (self.partitions.batch, self.replicas.batch, self.reach.batch):
            wrap(batch, "gather", "lead_and_follow", "stop", "update_metadata", "flush")
        wrap(self.channels, "encode", "send")

    async def fail(self, broker: int) -> dict[str, float]:
        """One failure: milliseconds by stage, and in total; what it affected and how many bytes it made."""
        self.stages.reset()
        gone = self.registered.pop(broker)
        affected = len(self.cluster.table.with_replica_on([broker]))
        sent, requests = self.channels.bytes, self.channels.requests
        self.stages.reset()
        began = time.perf_counter()
        await self.loop.receive(BrokersChanged())
        total = (time.perf_counter() - began) * 1000
        figures = {stage: self.stages.ms.get(stage, 0.0) for stage in STAGES}
        figures["other"] = total - sum(figures.values())
        figures |= {"total": total, "affected": affected, "bytes": self.channels.bytes - sent}
        figures["requests"] = self.channels.requests - requests
        self.registered[broker] = Broker(gone.id, gone.epoch + 1, gone.endpoints)
        await self._return(broker)
        return figures

    async def _return(self, broker: int) -> None:
        """The broker comes back and is in sync everywhere again, and leads what it led, as before its failure."""
        await self.loop.receive(BrokersChanged())
        table = self.cluster.table
        at = table.with_replica_on([broker])
        rows = table.rows(at)
        change = Change.of(
            rows,
            in_sync=rows.assigned,
            leader=rows.replicas[0],
            leader_epoch=rows.leader_epoch + 1,
            writes=np.ones(len(rows), np.bool_),
        )
        settled = await self.partitions.ledger.commit(change)
        assert settled.kept.all()
        self.cluster.apply(settled.change)


@contextlib.asynccontextmanager
async def running(shape: Shape, kind: str) -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="kactl-bench-") as folder:
        store: MemoryStore | SqliteStore = SqliteStore(Path(folder) / "kactl.db") if kind == "sqlite" else MemoryStore()
        async with store:
            bench = Bench(shape, store)
            await bench.load()
            bench.watch_stages()
            tasks = [asyncio.create_task(actor.run()) for actor in (bench.partitions, bench.replicas)]
            try:
                yield bench
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def resident_bytes() -> int:
    """Resident bytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def line(title: str, rows: list[dict[str, float]]) -> str:
    """Medians of each stage in ms, and the spread of the total."""
    stages = "".join(f"{median(row[stage] for row in rows):>9.1f}" for stage in STAGES)
    totals = sorted(row["total"] for row in rows)
    per = median(row["total"] * 1e6 / row["affected"] for row in rows)
    spread = f"{totals[0]:.0f}-{totals[-1]:.0f}"
    return f"{title:<26}{stages}{median(totals):>10.1f} {spread:>13}{per:>12.0f}"


HEAD = f"{'':<26}" + "".join(f"{stage:>9}" for stage in STAGES) + f"{'total':>10} {'min-max':>13}{'ns/affected':>12}"


async def measure(size: int, runs: int, kind: str) -> dict[str, float]:
    """Print one size; what the summary needs of it."""
    gc.collect()
    before = resident_bytes()
    shape = Shape(size, min(TOPICS, size), BROKERS)
    async with running(shape, kind) as bench:
        table_bytes = bench.cluster.table.nbytes / size
        first = await bench.fail(1)
        rows = [await bench.fail(2 + run % (BROKERS - 1)) for run in range(runs)]
        resident = (resident_bytes() - before) / size
        print(
            f"\n{size:,} partitions, {shape.topics:,} topics, {BROKERS} brokers, RF 3, over {kind}: a failure affects"
        )
        print(f"{first['affected']:,.0f}, {first['requests']:.0f} requests of {first['bytes'] / 1e6:.1f} MB in all")
        print(HEAD)
        print(line("first event, ms", [first]))
        print(line(f"repeated ({runs} runs), ms", rows))
        print(f"table {table_bytes:.0f} bytes a partition; whole process {resident:.0f} more than before it was loaded")
    return {
        "ns": median(row["total"] * 1e6 / row["affected"] for row in rows),
        "first": first["total"],
        "repeated": median(row["total"] for row in rows),
        "table": table_bytes,
        "no_commit": median((row["total"] - row["commit"]) * 1e6 / row["affected"] for row in rows),
    }


def object_cluster(shape: Shape) -> ObjectCluster:
    """The same cluster as objects."""
    cluster = ObjectCluster(CONTROLLER, 1, brokers={broker.id: broker for broker in shape.registered()})
    for name, held in shape.assignments().items():
        replicas = list(held.replicas)
        states = dict.fromkeys(replicas, ReplicaState.ONLINE)
        leading = Leading(replicas[0], 0, list(replicas), 0, 1)
        cluster.partitions[name] = Partition(
            name, replicas, state=PartitionState.ONLINE, leading=leading, replica_states=states
        )
        cluster.store[name] = Leading(replicas[0], 0, list(replicas), 0, 1)
    cluster.topic_ids = {ref.name: ref.id for ref in shape.refs()}
    return cluster


def measure_objects(runs: int) -> float:
    """Print the object form, its store a dict that answers at once; its median total in ms."""
    shape = Shape(ORACLE_PARTITIONS, min(TOPICS, ORACLE_PARTITIONS), BROKERS)
    cluster = object_cluster(shape)
    stages = Stages()
    rows = []
    for run in range(runs):
        broker = 1 + run
        affected = len(cluster.with_replica_on([broker]))
        del cluster.brokers[broker]
        stages.reset()
        began = time.perf_counter()
        failure = BrokerFailure(cluster, broker)
        for stage, step in (
            ("find", failure.find_leaderless),
            ("elect", failure.elect),
            ("commit", failure.commit),
            ("apply", failure.apply_elections),
            ("find", failure.find_hosted),
            ("elect", failure.shrink),
            ("commit", failure.commit),
            ("apply", failure.apply_shrinks),
        ):
            with stages.timed(stage):
                step()
        with stages.timed("encode"):
            object_batch.encode(failure.requests)
        total = (time.perf_counter() - began) * 1000
        figures = {stage: stages.ms.get(stage, 0.0) for stage in STAGES}
        rows.append(figures | {"total": total, "affected": affected})
    print(f"\nobject form, {ORACLE_PARTITIONS:,} partitions, its store a dict in memory (requests gathered in 'apply')")
    print(HEAD)
    print(line(f"repeated ({runs} runs), ms", rows))
    return median(row["total"] for row in rows)


async def main() -> None:
    """Measure, print, and say whether the shape is what it should be."""
    parser = argparse.ArgumentParser(prog="python -m bench.election", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="10000,100000,1000000", help="partitions, by commas")
    parser.add_argument("--runs", type=int, default=5, help="repeated events of each size (default 5)")
    parser.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    found = {size: await measure(size, asked.runs, asked.store) for size in sizes}
    print("\nratios within this run")
    if {100_000, 1_000_000} <= found.keys():
        say("cost of an affected partition, 1 M to 100 k", found[1_000_000]["ns"] / found[100_000]["ns"], "<= 1.5")
    for size in sizes:
        say(f"first event to repeated, {size:,} partitions", found[size]["first"] / found[size]["repeated"])
    say("bytes of a partition in the table, at the most", max(row["table"] for row in found.values()), "<= 100")
    if ORACLE_PARTITIONS in found:
        objects = measure_objects(min(asked.runs, 3))
        ratio = objects / found[ORACLE_PARTITIONS]["repeated"]
        say(f"\n  object form to columns over {asked.store}, 100 k partitions", ratio, ">= 10")


def say(what: str, ratio: float, wanted: str = "") -> None:
    print(f"  {what:<56}{ratio:8.2f}   {wanted}")


if __name__ == "__main__":
    asyncio.run(main())
