"""Processes that use one SQLite world at random, while its faults come and go."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kactl.model import (
    Assignment,
    Broker,
    Drain,
    Features,
    Fence,
    Maintenance,
    ProducerIdBlock,
    TopicPartition,
    TopicRef,
)
from kactl.model.errors import IllegalState, KactlError
from kactl.stores.base import Names, Write
from kactl.testing import Node, SimLoop
from kactl.testing.history import History
from tests.sim.engine.worlds.sqlite import SqliteWorld
from tests.sim.engine.worlds.sqlite.client import RecordedSession, RecordedStore
from tests.support.store_clients import broker_info

TOPICS: Final = ("t0", "t1", "t2")
PARTITIONS: Final = 3
NO_FENCE: Final = Fence(epoch=0, version=0)
NAMES: Final = [TopicPartition(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]


Operation = Callable[["Process"], Awaitable[None]]


@dataclass
class Process:
    """One simulated process and its memory.

    Attributes:
        first: methods to be called before random ones.
    """

    store: RecordedStore
    rng: random.Random
    first: Iterator[Operation] = field(default_factory=lambda: iter(()))
    fence: Fence = NO_FENCE
    sessions: list[RecordedSession] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    async def step(self) -> None:
        """Call a random method. Errors of kactl are counted: the world's faults explain them."""
        operation = next(self.first, None) or self.rng.choice(OPERATIONS)
        name = operation.__name__.lstrip("_")
        try:
            await operation(self)
        except IllegalState:
            raise
        except KactlError as error:
            name = type(error).__name__
        self.done[name] += 1

    def topic(self) -> str:
        return self.rng.choice(TOPICS)

    def names(self) -> list[TopicPartition]:
        return self.rng.sample(NAMES, self.rng.randint(1, len(NAMES)))


async def _contest(process: Process) -> None:
    process.fence = await process.store.contest(process.rng.randint(100, 103), take_over=process.rng.random() < 0.3)


async def _resign(process: Process) -> None:
    await process.store.resign(process.fence)


async def _create_topic(process: Process) -> None:
    replicas = {partition: Assignment((1, 2, 3)) for partition in range(PARTITIONS)}
    topic = TopicRef(process.topic(), process.rng.randbytes(16))
    await process.store.create_topic(topic, replicas, {"retention.ms": str(process.rng.randint(0, 99))})


async def _write_assignment(process: Process) -> None:
    replicas = {partition: Assignment((2, 3, 4), (4,), (2,)) for partition in range(PARTITIONS)}
    fence = process.rng.choice([None, process.fence])
    await process.store.write_assignment(TopicRef(process.topic()), replicas, fence)


async def _write_topic_ids(process: Process) -> None:
    topics = [TopicRef(process.topic(), process.rng.randbytes(16))]
    await process.store.write_topic_ids(topics, process.fence, copies_only=process.rng.random() < 0.5)


async def _set_topic_config(process: Process) -> None:
    await process.store.set_topic_config(process.topic(), {"x": str(process.rng.random())})


async def _set_default_config(process: Process) -> None:
    await process.store.set_default_config({"x": str(process.rng.random())})


async def _mark_deletion(process: Process) -> None:
    await process.store.mark_deletion(process.topic())


async def _unmark_deletions(process: Process) -> None:
    marked = await process.store.deletions()
    await process.store.unmark_deletions([*marked[:1], process.topic()], process.fence)


async def _delete_topics(process: Process) -> None:
    topics = {process.topic(): np.arange(PARTITIONS, dtype=np.int32) for _ in range(2)}
    await process.store.delete_topics(topics, process.fence)


async def _request_reassignment(process: Process) -> None:
    await process.store.request_reassignment(dict.fromkeys(process.names(), (1, 2)))


async def _set_reassignment_request(process: Process) -> None:
    await process.store.set_reassignment_request(dict.fromkeys(process.names(), (1, 2)), process.fence)


async def _request_preferred_election(process: Process) -> None:
    await process.store.request_preferred_election(process.names())


async def _delete_preferred_election_request(process: Process) -> None:
    await process.store.delete_preferred_election_request(process.fence)


async def _write_features(process: Process) -> None:
    await process.store.write_features(Features({"x": process.rng.randint(1, 9)}), process.fence)


async def _write_maintenance(process: Process) -> None:
    drains = {process.rng.randint(1, 9): Drain(since_ms=process.rng.randint(0, 999))}
    await process.store.write_maintenance(Maintenance(drains=drains), process.fence)


async def _write_producer_ids(process: Process) -> None:
    _, version = await process.store.producer_ids()
    await process.store.write_producer_ids(ProducerIdBlock(1, 0, process.rng.randint(0, 999)), expected=version)


async def _commit(process: Process) -> None:
    names = Names.of(process.names())
    stored = await process.store.leaderships(names)
    await process.store.commit(_write(process, names, stored.partition_epoch), process.fence)


async def _write_isr(process: Process) -> None:
    name = process.rng.choice(NAMES)
    stored = await process.store.leaderships(Names.of([name]))
    state = stored.one(0)
    if state is not None:
        await process.store.write_isr(name, state, expected=int(stored.partition_epoch[0]))


async def _notify_isr(process: Process) -> None:
    await process.store.notify_isr(process.names())


async def _notify_log_dir(process: Process) -> None:
    await process.store.notify_log_dir(process.rng.randint(1, 4))


async def _delete_notifications(process: Process) -> None:
    await process.store.delete_notifications(await process.store.isr_notifications(), process.fence)


async def _register(process: Process) -> None:
    session = await process.store.new_session(process.rng.choice([1_000, 6_000]))
    process.sessions.append(session)
    await session.register(broker_info(process.rng.randint(1, 4)))


async def _register_remote(process: Process) -> None:
    broker, incarnation = process.rng.randint(5, 8), process.rng.randbytes(16)
    await process.store.register_remote(broker_info(broker), incarnation, 6_000, process.fence)


async def _end_remote(process: Process) -> None:
    await _of_registered(process, process.store.end_remote, lambda broker: broker.session == "controller")


async def _evict(process: Process) -> None:
    await _of_registered(process, process.store.evict, lambda broker: not broker.evicted)


async def _of_registered(
    process: Process, call: Callable[[int, int, Fence], Awaitable[None]], chosen: Callable[[Broker], bool]
) -> None:
    brokers = [broker for broker in (await process.store.brokers()).values() if chosen(broker)]
    if brokers:
        broker = process.rng.choice(brokers)
        await call(broker.id, broker.epoch, process.fence)


async def _close_session(process: Process) -> None:
    if process.sessions:
        await process.sessions.pop().close()


async def _keep_alive(process: Process) -> None:
    if process.sessions:
        await process.rng.choice(process.sessions).keep_alive()


OPERATIONS: Final[tuple[Operation, ...]] = (
    _commit,
    _commit,
    _commit,
    _contest,
    _close_session,
    _create_topic,
    _create_topic,
    _delete_notifications,
    _delete_preferred_election_request,
    _delete_topics,
    _end_remote,
    _evict,
    _keep_alive,
    _mark_deletion,
    _notify_isr,
    _notify_log_dir,
    _register,
    _register_remote,
    _register_remote,
    _request_preferred_election,
    _request_reassignment,
    _resign,
    _set_default_config,
    _set_reassignment_request,
    _set_topic_config,
    _unmark_deletions,
    _write_assignment,
    _write_features,
    _write_maintenance,
    _write_isr,
    _write_producer_ids,
    _write_topic_ids,
)


def _write(process: Process, names: Names, versions: np.ndarray) -> Write:
    """Returns random leadership, one row in eight with another expected version than the stored one."""
    count, rng = len(names), process.rng
    wrong = np.array([rng.random() < 1 / 8 for _ in range(count)])
    return Write(
        names=names,
        leader=np.array([rng.randint(1, 4) for _ in range(count)], np.int32),
        leader_epoch=np.array([rng.randint(0, 99) for _ in range(count)], np.int32),
        isr=np.array([[rng.randint(1, 4) for _ in range(count)], [5] * count], np.int32),
        recovering=np.array([rng.random() < 0.1 for _ in range(count)], np.bool_),
        expected=np.where(wrong, versions + 1, versions).astype(np.int32),
    )


class Hosts:
    """The processes of a world, which are started again after each kill.

    Args:
        pause_ms: longest pause between two calls of a process.
        first: methods that some process calls before random ones.

    Attributes:
        done: results of all calls, by name of the method or of the error.
        kills: number of killed processes.
    """

    def __init__(
        self,
        world: SqliteWorld,
        loop: SimLoop,
        count: int,
        *,
        pause_ms: float = 100.0,
        first: Iterable[Operation] = (),
    ) -> None:
        self.world = world
        self.loop = loop
        self.rng = loop.streams["script"]
        self._pause_ms = pause_ms
        self._first = iter(first)
        self.done: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.kills = 0
        self.nodes = [self._start(f"process {number}") for number in range(count)]

    def _start(self, name: str) -> Node:
        node = self.loop.node(name)
        self.loop.start(node, self._run(node))
        return node

    async def _run(self, node: Node) -> None:
        rng = self.loop.streams[f"client:{node.name}"]
        while True:
            try:
                async with self.world.client(node) as store:
                    process = Process(store, rng, self._first, done=self.done)
                    while True:
                        await process.step()
                        await asyncio.sleep(rng.uniform(0, self._pause_ms) / 1000)
            except KactlError as error:
                self.done[f"opening: {type(error).__name__}"] += 1  # a fault while the store was opened
            except Exception as error:
                self.errors.append(error)
                raise
            await asyncio.sleep(1)

    def restart_killed(self) -> None:
        """Start a process in the place of each one that was killed."""
        for index, node in enumerate(self.nodes):
            if node.state == "killed":
                self.kills += 1
                self.nodes[index] = self._start(node.name)

    def fault(self) -> str:
        """Begin or end a random fault. Returns its name."""
        name = self.rng.choice(
            [
                "kill",
                "kill in transaction",
                "lock",
                "disk",
                "io error",
                "hiccup",
                "slow",
                "clock",
                "restart",
                "cut",
                "heal",
            ]
        )
        node = self.rng.choice(self.nodes)
        match name:
            case "kill":
                self.loop.kill(node)
            case "kill in transaction":
                self.world.kill_in_transaction(node.name, self.rng.randint(0, 12))
            case "lock":
                self.world.lock()
            case "disk":
                self.world.set_disk(self.rng.choice(["full", "read-only"]))
            case "io error":
                self.world.fail_commits(node.name, self.rng.randint(1, 3), done=self.rng.random() < 0.5)
            case "hiccup":
                self.world.fail_statement(node.name, self.rng.randint(0, 40))
            case "slow":
                self.world.slow(node.name, (0.0, self.rng.choice([5.0, 500.0, 5_000.0])))
            case "clock":
                node.clock.wall_offset_ms = self.rng.uniform(-1e7, 1e7)
            case "restart":
                self.world.restart_machine()
            case "cut":
                self.world.cut(node.name)
            case "heal":
                self.heal()
        return name

    def heal(self) -> None:
        """End all faults."""
        self.world.unlock()
        self.world.set_disk("good")
        for node in self.nodes:
            self.world.heal(node.name)
            self.world.slow(node.name, (0.0, 5.0))


async def storm(loop: SimLoop, world: SqliteWorld, history: History, *, faults: int) -> Hosts:
    """Run three processes through some faults, and heal."""
    hosts = Hosts(world, loop, 3)
    for _ in range(faults):
        await asyncio.sleep(hosts.rng.uniform(0, 4))
        name = hosts.fault()
        history.record("fault.begin", node="", fault=name, target="")
        await asyncio.sleep(hosts.rng.uniform(0, 1))
        hosts.restart_killed()
        if hosts.rng.random() < 0.5:
            hosts.heal()
    hosts.heal()
    await asyncio.sleep(10)
    return hosts
