"""How long a single election takes while nothing else happens, and in the middle of a large broker's failure.

    python -m bench.latency [--partitions 100000] [--rate 25] [--repeats 5] [--full]

A whole controller runs over a store, and brokers that take everything at once, once its bytes are made. Elections of
one partition each are asked for *by schedule*, at a fixed rate, whether those before are answered or not; and timed
from when they were due, not from when there was time to ask. So whoever waits behind a long event is counted with all
of his waiting, and a loop that is held up cannot hide it by asking less.

`durable` is the answer to the request: the new leader is stored. `told` is when the bytes of the LeaderAndIsr for the
new leader are made. First some seconds of it idle; then one broker's session ends, and all elections count as `loaded`
that were due from then on until the last large request of that failure was made. Then the broker comes back, and so on
with others. Brokers stand in racks, so that each failure finds complete ISRs. `--full` is the 1 M-partition cluster of
which each of 30 brokers holds 100,000.
"""

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
from kactl.messages.admin import ElectionKind
from kactl.messages.control import LeaderAndIsr, Request, StopReplica
from kactl.model import Fence, TopicPartition
from kactl.state.rows import Ints
from kactl.stores.base import Names, Session, Store, Write

from .brokers import Encoding

NAME: Final = "latency"
HOLDER, CONTROLLER = 900, 901
BROKERS = 30
PARTITIONS_OF_A_TOPIC = 100
# A request that speaks of more is one of the large event's.
LARGE_ROWS = 64
# The large event is over when no large request has been made for so long.
SILENCE_S = 1.0
# Before the failure, so that elections are under way when it comes.
LEAD_S = 0.2
LIMIT_S = 600
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
# In microseconds: from one to a minute and a half, three digits of each value.
_LOWEST, _HIGHEST, _DIGITS = 1, 90_000_000, 3


@dataclasses.dataclass(frozen=True, slots=True)
class Served(Racked):
    """A cluster whose last partitions are those that single elections are asked for.

    They live on the last two brokers of each rack, which never fail here, and are led by their second replica, so that
    each of them can be elected once: to the preferred one.
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
        """Brokers without such partitions, of all racks by turns."""
        return list(range(1, self.brokers - 2 * self.replication_factor + 1))

    def single(self, which: int) -> TopicPartition:
        at = self.partitions - self.singles + which
        return TopicPartition(f"topic-{at // self.per_topic + 1:06d}", at % self.per_topic)


class Histogram:
    """Latencies; nothing is averaged."""

    def __init__(self) -> None:
        self._kept = HdrHistogram(_LOWEST, _HIGHEST, _DIGITS)

    def add(self, seconds: float) -> None:
        self._kept.record_value(max(_LOWEST, min(_HIGHEST, round(seconds * 1e6))))

    def merge(self, other: "Histogram") -> None:
        self._kept.add(other._kept)

    def __len__(self) -> int:
        return int(self._kept.get_total_count())

    def ms(self) -> dict[str, float]:
        """Each percentile in milliseconds."""
        return {name: self._kept.get_value_at_percentile(at) / 1000 for name, at in PERCENTILES.items()}


@dataclasses.dataclass(slots=True)
class Election:
    """One single election: when it was due, stored, and told; 0.0 for not yet."""

    due: float
    durable: float = 0.0
    told: float = 0.0


class Asker:
    """Asks for elections by schedule, and notes what becomes of them."""

    def __init__(self, shape: Served, *, rate: float) -> None:
        self.shape = shape
        self.rate = rate
        self.brokers = Encoding(client_id=CONTROLLER, on_bytes=self._made)
        self.last_large = 0.0
        self.next = 0
        self._waiting: dict[tuple[str, int], Election] = {}
        self._first_topic = shape.single(0).topic if shape.singles else ""

    async def ask(self, controller: Controller, end: "asyncio.Future[float]") -> list[Election]:
        """Ask for all that are due before `end`, which may be told later; they, once they are answered and told."""
        begun, asked = time.perf_counter(), 0
        tasks: list[asyncio.Task[Election]] = []
        while True:
            due = begun + asked / self.rate
            # Also where the loop was held up until behind the end: what was due in it is not left out.
            if end.done() and due >= end.result():
                break
            pause = due - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            # Several at once where the loop was held up: each was due at its own time.
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
        rows = 0 if isinstance(request, StopReplica) else len(request.states)
        if rows > LARGE_ROWS:
            self.last_large = at
        if not isinstance(request, LeaderAndIsr) or not rows:
            return
        states = request.states
        # Theirs are the last topics there are, and a request has its topics in their order.
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
    """Let their second replica lead the partitions that are to be elected."""
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
    assert (await store.commit(write, fence)).kept.all()


async def idle(asker: Asker, controller: Controller, seconds: float) -> list[Election]:
    end: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    end.set_result(time.perf_counter() + seconds)
    return await asker.ask(controller, end)


async def loaded(asker: Asker, controller: Controller, broker: int, end: "asyncio.Future[None]") -> list[Election]:
    """Elections that were due in the middle of the failure; `end` lets somebody end the broker's session."""
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
    """One phase of one repeat into the figures; a line that says so."""
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
    # Some twenty elections are due in a failure: with fewer failures the 99th percentile is the worst of all.
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
            # What a first election compiles, allocates and caches belongs to neither phase.
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
