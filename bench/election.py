"""Failure of one of thirty brokers: from the event to a durable decision and the bytes of all requests.

    python -m bench.election [--sizes 10000,100000,1000000] [--runs 5] [--store sqlite|memory] [--full]

The controller's own handlers and machine actors run over a real store. An outbox that encodes every request in the
newest version replaces the channels. Brokers fail one after the other and return in between, so that every run after
the first starts with an equal cluster. The first event of a process is timed separately from the repeated ones; the
cluster is loaded again in each round, so that there is more than one first event. The same failure in the object form
is timed in the same run. `--full` adds 2 M partitions, three rounds, and the object form at 1 M, which needs some
gigabytes. Figures depend on machine and run; only ratios within one run are meaningful."""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from bench import goals, objects
from bench.clusters import Shape, fill, known
from bench.figures import Found
from bench.run import main, module, numbers, say, undisturbed
from bench.stages import Stages
from kactl.actors.controller import ControllerLoop, inbox_of
from kactl.actors.handlers.base import ControllerContext
from kactl.actors.machines.machine import WHOLE
from kactl.actors.machines.partitions import Partitions
from kactl.actors.machines.replicas import Replicas
from kactl.config.controller_settings import CHUNK_PARTITIONS, ControllerSettings
from kactl.config.protocol_level import LATEST
from kactl.decide.machines import partition, replica
from kactl.decide.machines.topic_progress import Delivery
from kactl.decide.messages.control import KafkaRequest
from kactl.decide.messages.events import BrokerChange
from kactl.decide.outbound.batch import Addressed, RequestBatch
from kactl.decide.state.change import Change
from kactl.model import Broker, Fence
from kactl.runtime.clock import SystemClock
from kactl.stores.memory import MemoryStore
from kactl.stores.sqlite import SqliteStore
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.metrics import Telemetry
from kactl.transports.kafka.codec import Encoder, versions_for

NAME: Final = "election"
BROKERS = 30
TOPICS = 10_000
SIZES = (10_000, 100_000, 1_000_000)
FULL_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
STAGES = ("find", "elect", "commit", "apply", "gather", "encode", "other")
CONTROLLER = 900
FOOTPRINT_LIMIT_S = 300


class EncodingChannels:
    """Replacement for the channels that encodes every request immediately."""

    last_number = 0

    def __init__(self) -> None:
        self.encoder = Encoder(versions_for(LATEST), client_id=str(CONTROLLER), listener_name="INTERNAL")
        self.requests = 0
        self.bytes = 0

    def send(self, requests: Iterable[Addressed]) -> None:
        for _, request in requests:
            assert isinstance(request, KafkaRequest)
            self.requests += 1
            self.bytes += self.encoder.frame(request, self.requests).size

    def add(self, broker: Broker) -> None: ...

    queued = 0

    def delivery(self, queued: int) -> Delivery:
        return Delivery(lambda down: (), lambda broker: "")

    def resume(self, broker: int) -> None: ...

    def remove(self, broker: int) -> None: ...

    def close(self) -> None: ...


class Bench:
    """Deciding and committing parts of a controller over one cluster."""

    def __init__(self, shape: Shape, store: MemoryStore | SqliteStore, fence: Fence, *, chunk: int) -> None:
        self.shape = shape
        self.store = store
        self.registered = {broker.id: broker for broker in shape.registered()}
        self.cluster = known(shape, controller=CONTROLLER, fence=fence)
        self.channels = EncodingChannels()
        self.history = EventLog(SystemClock())
        self.partitions = Partitions(self.cluster, store, self.channels, self.history, chunk=chunk)
        self.replicas = Replicas(self.cluster, store, self.channels, self.history, chunk=chunk)
        self.stages = Stages()
        self.context = ControllerContext(
            self.cluster,
            store,
            self.partitions.ref,
            self.replicas.ref,
            self.channels,
            self.history,
            RequestBatch(self.cluster),
            SystemClock(),
            ControllerSettings(chunk_partitions=chunk),
            enqueue=lambda event: None,
            new_topic_id=lambda: bytes(16),
        )
        self.loop = ControllerLoop(
            self.context,
            inbox_of(self.context.clock.monotonic_ms),
            telemetry=Telemetry(),
            unclean=self.partitions.unclean,
        )

    def begin(self) -> None:
        """Creates the controller's state as after a failover."""
        self.loop.controllership.active_id = CONTROLLER
        self.store.brokers = self._brokers  # type: ignore[method-assign]

    async def _brokers(self) -> dict[int, Broker]:
        """Returns the registrations; a benchmark has no sessions that expire."""
        return dict(self.registered)

    def watch_stages(self) -> None:
        """Wraps the functions of each stage."""
        wrap, cluster = self.stages.wrap, self.cluster
        wrap(cluster.table, "find", "led_by_none_of", "in_state", "with_replica_on", "not_queued", "rows")
        wrap(partition, "elect", "move", "go_online")
        wrap(replica, "elect", "legal_offline", "go_offline")
        wrap(self.store, "commit", "commit")
        wrap(cluster, "apply", "apply")
        wrap(self.history, "apply", "add_partitions", "add_replicas")
        for batch in (self.partitions.batch, self.replicas.batch, self.context.batch):
            wrap(batch, "gather", "lead_and_follow", "stop", "update_metadata", "flush")
        wrap(self.channels, "encode", "send")

    async def fail(self, broker: int) -> dict[str, float]:
        """Returns milliseconds by stage and in total of one failure, the affected partitions, and the bytes encoded."""
        self.stages.reset()
        gone = self.registered.pop(broker)
        affected = len(self.cluster.table.with_replica_on([broker]))
        sent, requests = self.channels.bytes, self.channels.requests
        self.stages.reset()
        with undisturbed():
            began = time.perf_counter()
            await self.loop.receive(BrokerChange())
            total = (time.perf_counter() - began) * 1000
        figures = {stage: self.stages.ms.get(stage, 0.0) for stage in STAGES}
        figures["other"] = total - sum(figures.values())
        figures |= {"total": total, "affected": affected, "bytes": self.channels.bytes - sent}
        figures["requests"] = self.channels.requests - requests
        self.registered[broker] = Broker(gone.id, gone.epoch + 1, gone.endpoints)
        await self._return(broker)
        return figures

    async def _return(self, broker: int) -> None:
        """Returns the broker to all its ISRs and leaderships, as before its failure."""
        await self.loop.receive(BrokerChange())
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
        committed, conflict = await self.partitions.committer.commit(change)
        assert not conflict.any()
        assert not committed.refusal.any()
        self.cluster.apply(committed)


@contextlib.asynccontextmanager
async def running(shape: Shape, kind: str, chunk: int) -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="kactl-bench-") as folder:
        store: MemoryStore | SqliteStore = SqliteStore(Path(folder) / "kactl.db") if kind == "sqlite" else MemoryStore()
        async with store:
            fence = await store.contest(CONTROLLER)
            await fill(store, shape, fence)
            bench = Bench(shape, store, fence, chunk=chunk)
            bench.begin()
            bench.watch_stages()
            tasks = [asyncio.create_task(actor.run()) for actor in (bench.partitions, bench.replicas)]
            try:
                yield bench
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def line(title: str, rows: list[dict[str, float]]) -> str:
    """Returns the median of each stage in ms, and the spread of the total."""
    stages = "".join(f"{median(row[stage] for row in rows):>9.1f}" for stage in STAGES)
    totals = sorted(row["total"] for row in rows)
    per = median(row["total"] * 1e6 / row["affected"] for row in rows)
    spread = f"{totals[0]:.0f}-{totals[-1]:.0f}"
    return f"{title:<26}{stages}{median(totals):>10.1f} {spread:>13}{per:>12.0f}"


HEAD = f"{'':<26}" + "".join(f"{stage:>9}" for stage in STAGES) + f"{'total':>10} {'min-max':>13}{'ns/affected':>12}"


async def one_size(size: int, *, runs: int, rounds: int, kind: str, chunk: int, found: Found) -> None:
    """Measures and prints one size."""
    shape = Shape(size, min(TOPICS, size), BROKERS)
    at = f"{kind}/{size}"
    firsts, rows = [], []
    for _ in range(rounds):
        async with running(shape, kind, chunk) as bench:
            firsts.append(await bench.fail(1))
            rows += [await bench.fail(2 + run % (BROKERS - 1)) for run in range(runs)]
    for row in firsts:
        found.add(f"{at}/first/total", "ms", row["total"])
    for row in rows:
        note(found, f"{at}/repeated", row)
    first = firsts[0]
    say(f"\n{size:,} partitions, {shape.topics:,} topics, {BROKERS} brokers, RF 3, over {kind}: a failure affects")
    say(f"{first['affected']:,.0f}, {first['requests']:.0f} requests of {first['bytes'] / 1e6:.1f} MB in all")
    say(HEAD)
    say(line(f"first ({rounds} rounds), ms", firsts))
    say(line(f"repeated ({rounds} x {runs}), ms", rows))
    taken = footprint(size, kind)
    found.add_all(f"{at}/memory", "B", taken)
    say("bytes a partition: " + ", ".join(f"{what} {each:.0f}" for what, each in taken.items()))


def footprint(size: int, kind: str) -> dict[str, float]:
    """Returns the bytes per partition of the table and of the process, measured in a separate process."""
    command = [sys.executable, "-m", "bench.footprint", str(size), kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=FOOTPRINT_LIMIT_S)
    taken: dict[str, float] = json.loads(done.stdout)
    return taken


def one_size_of_objects(size: int, *, runs: int, found: Found) -> None:
    """Measures the same failure in the object form, with a dict as the store."""
    cluster = objects.object_cluster(Shape(size, min(TOPICS, size), BROKERS), CONTROLLER)
    collected: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for run in range(2 * runs):
        collecting = run % 2 == 0
        row = dict.fromkeys(STAGES, 0.0) | objects.fail(cluster, 1 + run, collecting=collecting)
        collected[collecting].append(row)
        note(found, f"objects/{size}" if collecting else f"objects uncollected/{size}", row)
    say(f"\nobject form, {size:,} partitions, its store a dict in memory (requests gathered in 'apply')")
    say(HEAD)
    say(line(f"repeated ({runs} runs), ms", collected[True]))
    say(line("without collector, ms", collected[False]))


def note(found: Found, at: str, row: dict[str, float]) -> None:
    """Adds one run to the figures: milliseconds by stage and in total, nanoseconds per affected partition."""
    for stage in ("total", *STAGES):
        found.add(f"{at}/{stage}", "ms", row[stage])
    found.add(f"{at}/per affected", "ns", row["total"] * 1e6 / row["affected"])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=numbers, help=f"partitions, by commas; {SIZES} if not given")
    parser.add_argument("--runs", type=int, default=5, help="repeated events of each round")
    parser.add_argument("--rounds", type=int, help="how often each cluster is loaded anew; 1, or 3 with --full")
    parser.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    parser.add_argument(
        "--chunk", type=int, default=CHUNK_PARTITIONS, help="partitions of a chunk; 0: the change as a whole"
    )
    parser.add_argument("--objects", type=numbers, help="partitions of the object form; 0 for none")
    parser.add_argument("--full", action="store_true", help="the sizes of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    sizes = asked.sizes or (FULL_SIZES if asked.full else SIZES)
    rounds = asked.rounds or (3 if asked.full else 1)
    of_objects = asked.objects or tuple(
        size for size in sizes if size == 100_000 or (asked.full and size in (10_000, 1_000_000))
    )
    chunk = asked.chunk or WHOLE
    for size in sizes:
        await one_size(size, runs=asked.runs, rounds=rounds, kind=asked.store, chunk=chunk, found=found)
    for size in filter(None, of_objects):
        one_size_of_objects(size, runs=min(asked.runs, 3), found=found)
    say(f"\n{goals.printed(found.figures(), NAME)}")


if __name__ == "__main__":
    main(module(__name__))
