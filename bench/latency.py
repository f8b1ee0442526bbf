"""Latency of single elections, idle and during the failure of a large broker.

    python -m bench.latency [--partitions 100000] [--rate 25] [--repeats 5] [--full]

A complete controller runs over a store, with brokers that respond as soon as a request is encoded. Elections of one
partition each are requested *on a schedule*, at a fixed rate, regardless of earlier responses, and timed from when they
were due, not from when they were sent. Waiting behind a long event is therefore counted completely, and a blocked loop
cannot hide it by sending fewer requests.

`durable` is the response to the request: the new leader is stored. `told` is when the LeaderAndIsr for the new leader
is encoded. The run begins with some idle seconds. Then one broker's session ends, and all elections that are due
until the last large request of that failure is encoded count as `loaded`. Then the broker returns, and other brokers
follow. Brokers are placed in racks, so that each failure begins with complete ISRs. `--full` is a cluster of 1 M
partitions in which each of 30 brokers holds 100,000."""

import argparse
import asyncio
import dataclasses
import time
from typing import Final

import numpy as np
from hdrh.histogram import HdrHistogram

from bench import goals
from bench.clusters import Racked
from bench.figures import Found
from bench.hosting import SESSION_MS, backing, collecting, load, quiet, registered, until
from bench.run import main, module, say
from bench.tables import number, plain
from kactl.actors.actor import InboxFull
from kactl.actors.system import Controller
from kactl.decide.messages.admin import ElectionKind
from kactl.decide.messages.control import LeaderAndIsr, Request, UpdateMetadata
from kactl.decide.state.rows import Ints
from kactl.model import Fence, TopicPartition
from kactl.stores.base import Names, Session, Store, Write

from .brokers import Encoding

NAME: Final = "latency"
HOLDER, CONTROLLER = 900, 901
BROKERS = 30
PARTITIONS_OF_A_TOPIC = 100
# A request with more partitions belongs to the large event.
LARGE_ROWS = 64
# The large event is complete when no large request was encoded for this long.
SILENCE_S = 1.0
# Before the failure, so that elections are under way when it comes.
LEAD_S = 0.2
LIMIT_S = 600
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
# In microseconds: from one microsecond to a minute and a half, with three digits.
_LOWEST, _HIGHEST, _DIGITS = 1, 90_000_000, 3


@dataclasses.dataclass(frozen=True, slots=True)
class Served(Racked):
    """Cluster with its last partitions reserved for single elections.

    They are on the last two brokers of each rack, which never fail here, and are led by their second replica, so that
    one preferred-leader election is possible for each.
    """

    singles: int = 0

    def replicas(self) -> Ints:
        found = Racked.replicas(self)
        racks = self.replication_factor
        number_of = np.arange(self.singles, dtype=np.int32)
        for step in range(racks):
            pick = (number_of // (2**step)) % 2
            found[step, self.partitions - self.singles :] = self.brokers - racks * pick - step
        return found

    @property
    def may_fail(self) -> list[int]:
        """Returns the brokers without reserved partitions, from all racks in turn."""
        return list(range(1, self.brokers - 2 * self.replication_factor + 1))

    def single(self, which: int) -> TopicPartition:
        at = self.partitions - self.singles + which
        return TopicPartition(f"topic-{at // self.per_topic + 1:06d}", at % self.per_topic)


class Histogram:
    """Histogram of latencies, without averages."""

    def __init__(self) -> None:
        self._kept = HdrHistogram(_LOWEST, _HIGHEST, _DIGITS)

    def add(self, seconds: float) -> None:
        self._kept.record_value(max(_LOWEST, min(_HIGHEST, round(seconds * 1e6))))

    def merge(self, other: "Histogram") -> None:
        self._kept.add(other._kept)

    def __len__(self) -> int:
        return int(self._kept.get_total_count())

    def ms(self) -> dict[str, float]:
        """Returns the percentiles in milliseconds."""
        return {name: self._kept.get_value_at_percentile(at) / 1000 for name, at in PERCENTILES.items()}


@dataclasses.dataclass(slots=True)
class Election:
    """Times of a single election: due, stored, encoded; 0.0 for not yet."""

    due: float
    durable: float = 0.0
    told: float = 0.0


class Asker:
    """Requests elections on a schedule and records their times."""

    def __init__(self, shape: Served, *, rate: float) -> None:
        self.shape = shape
        self.rate = rate
        self.brokers = Encoding(client_id=CONTROLLER, on_bytes=self._made)
        self.last_large = 0.0
        self.next = 0
        self._waiting: dict[tuple[str, int], Election] = {}
        self._first_topic = shape.single(0).topic if shape.singles else ""

    async def ask(self, controller: Controller, end: "asyncio.Future[float]") -> list[Election]:
        """Requests all elections due before `end`, and returns them when all responses and requests are complete."""
        begun, asked = time.perf_counter(), 0
        tasks: list[asyncio.Task[Election]] = []
        while True:
            due = begun + asked / self.rate
            # Elections that became due while the loop was blocked beyond the end are included.
            if end.done() and due >= end.result():
                break
            pause = due - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            # Several at once if the loop was blocked: each has its own due time.
            tasks.append(asyncio.create_task(self._elect(controller, due)))
            asked += 1
            if asked % 100 == 0:
                await asyncio.sleep(0)
        return await asyncio.gather(*tasks)

    async def _elect(self, controller: Controller, due: float) -> Election:
        if self.next >= self.shape.singles:
            raise RuntimeError(f"all {self.shape.singles} partitions were elected: ask for more --singles")
        name, election = self.shape.single(self.next), Election(due)
        self.next += 1
        self._waiting[name.topic, name.partition] = election
        try:
            (result,) = await controller.elect(ElectionKind.PREFERRED, [name])
        except InboxFull as full:
            raise RuntimeError(
                f"the controller does not keep up with {self.rate:g} elections a second: {full}"
            ) from full
        election.durable = time.perf_counter()
        assert result.outcome == "ok", result
        await until(lambda: election.told > 0, limit_s=LIMIT_S)
        return election

    def _made(self, broker: int, request: Request, at: float) -> None:
        rows = len(request.states) if isinstance(request, LeaderAndIsr | UpdateMetadata) else 0
        if rows > LARGE_ROWS:
            self.last_large = at
        if not isinstance(request, LeaderAndIsr) or not rows:
            return
        states = request.states
        # The reserved topics are the last ones, and a request is in topic order.
        if states.topics[len(states.topics) - 1].name < self._first_topic:
            return
        for row in range(rows - 1, -1, -1):
            topic = states.topics[int(states.topic[row])].name
            if topic < self._first_topic:
                break
            election = self._waiting.get((topic, int(states.partition[row])))
            if election is not None and int(states.leader[row]) == broker and not election.told:
                election.told = at


async def move_singles(store: Store, shape: Served, fence: Fence) -> None:
    """Moves the leadership of the reserved partitions to their second replicas."""
    assignments = shape.assignments()
    part = slice(shape.partitions - shape.singles, None)
    names = Names(assignments.topics, assignments.topic[part], assignments.partition[part])
    stored = await store.leaderships(names)
    write = Write(
        names,
        assignments.replicas[1, part],
        stored.leader_epoch,
        stored.isr,
        stored.recovering,
        stored.partition_epoch,
    )
    assert (await store.commit(write, fence)).committed.all()


async def idle(asker: Asker, controller: Controller, seconds: float) -> list[Election]:
    end: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    end.set_result(time.perf_counter() + seconds)
    return await asker.ask(controller, end)


async def loaded(asker: Asker, controller: Controller, broker: int, end: "asyncio.Future[None]") -> list[Election]:
    """Returns the elections that were due during the failure; `end` ends the broker's session."""
    over: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(asker.ask(controller, over))
    await asyncio.sleep(LEAD_S)
    asker.last_large = 0.0
    began = time.perf_counter()
    end.set_result(None)
    async with asyncio.timeout(LIMIT_S):
        while True:
            await asyncio.sleep(SILENCE_S / 10)
            last = asker.last_large
            is_over = broker not in controller.cluster.brokers and last and time.perf_counter() - last > SILENCE_S
            if is_over:
                break
    over.set_result(time.perf_counter())
    return [election for election in await asking if began <= election.due <= asker.last_large]


def note(found: Found, at: str, elections: list[Election], pooled: dict[str, Histogram]) -> str:
    """Adds one phase of one repeat to the figures and prints a line."""
    if not elections:
        return f"  {at:<7} no election was due in it: ask for a larger cluster, or a higher --rate"
    said = []
    for what in ("durable", "told"):
        histogram = Histogram()
        for election in elections:
            histogram.add(getattr(election, what) - election.due)
        pooled.setdefault(f"{at}/{what}", Histogram()).merge(histogram)
        ms = histogram.ms()
        for name in ("p50", "p90", "p99", "max"):
            found.add(f"{at}/{what}/{name}", "ms", ms[name])
        said.append(f"{what} " + ", ".join(f"{name} {number(ms[name])}" for name in ("p50", "p99", "max")))
    return f"  {at:<7}{len(elections):>6} elections, ms: " + "; ".join(said)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, help="100,000; with --full 1,000,000")
    parser.add_argument("--brokers", type=int, default=BROKERS, help="three racks of them; at least 12")
    parser.add_argument("--rate", type=float, default=25.0, help="single elections a second")
    parser.add_argument("--idle-s", type=float, default=10.0, help="how long each idle phase is")
    parser.add_argument("--repeats", type=int, help="failures, each of another broker; 5, or 15 with --full")
    parser.add_argument("--singles", type=int, default=20_000, help="partitions that can be elected, once each")
    parser.add_argument("--store", choices=("memory", "sqlite", "zookeeper"), default="sqlite")
    parser.add_argument("--full", action="store_true", help="the size of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    partitions = asked.partitions or (1_000_000 if asked.full else 100_000)
    # About twenty elections are due per failure: with fewer failures the 99th percentile would be the maximum.
    repeats = asked.repeats or (15 if asked.full else 5)
    singles = min(asked.singles, partitions) // PARTITIONS_OF_A_TOPIC * PARTITIONS_OF_A_TOPIC
    shape = Served(partitions, partitions // PARTITIONS_OF_A_TOPIC, asked.brokers, singles=singles)
    asker = Asker(shape, rate=asked.rate)
    pooled: dict[str, Histogram] = {}
    async with backing(asked.store) as opened, opened() as holder:
        fence = await holder.contest(HOLDER)
        await load(holder, shape, fence)
        await move_singles(holder, shape, fence)
        controller = Controller(
            CONTROLLER, store=opened(), transport=asker.brokers, auto_balance=False, standby_interval_ms=0
        )
        async with registered(holder, shape) as sessions, controller, collecting(controller):
            await holder.resign(fence)
            await controller.wait_active(timeout_ms=LIMIT_S * 1000)
            await quiet(controller, limit_s=LIMIT_S)
            say(f"{partitions:,} partitions on {asked.brokers} brokers over {asked.store}")
            say(f"{asked.rate:g} elections a second")
            # Warm-up: compilation, allocation and caching of a first election belong to neither phase.
            await idle(asker, controller, 1.0)
            for repeat in range(repeats):
                broker = shape.may_fail[repeat % len(shape.may_fail)]
                say(note(found, "idle", await idle(asker, controller, asked.idle_s), pooled))
                affected = len(controller.cluster.table.with_replica_on([broker]))
                end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                ended = asyncio.create_task(_end(end, sessions[broker - 1]))
                began = time.perf_counter()
                elections = await loaded(asker, controller, broker, end)
                await ended
                found.add("failure/affected", "count", affected)
                found.add("failure/told", "ms", (asker.last_large - began - LEAD_S) * 1000)
                say(note(found, "loaded", elections, pooled))
                await quiet(controller, limit_s=LIMIT_S)
                sessions[broker - 1] = await holder.new_session(SESSION_MS)
                await sessions[broker - 1].register(shape.registered()[broker - 1])
                await until(lambda back=broker: back in controller.cluster.brokers, limit_s=LIMIT_S)  # type: ignore[misc]
                await quiet(controller, limit_s=LIMIT_S)
    rows = []
    for at, histogram in pooled.items():
        ms = histogram.ms()
        found.add_all(f"pooled/{at}", "ms", ms)
        found.add(f"pooled/{at}/elections", "count", len(histogram))
        rows.append([at, str(len(histogram)), *(number(value) for value in ms.values())])
    say("\n" + plain(["all repeats together, ms", "elections", *PERCENTILES], rows))
    say(f"\n{goals.printed(found.figures(), NAME)}")


async def _end(asked: "asyncio.Future[None]", session: Session) -> None:
    await asked
    await session.close()


if __name__ == "__main__":
    main(module(__name__))
