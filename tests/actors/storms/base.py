"""State of a storm: clock, store, controllers and brokers from one seed, and requests by callers."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kactl.actors.system import Controller
from kactl.config.protocol_level import ProtocolLevel
from kactl.errors import KactlError
from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.stores.base import Session
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock

from .fleet import Fleet
from .weather import Weather

# Protocol levels: leaders write ISRs; leaders propose ISRs; topics have ids; leaders are told to recover.
LEVELS: Final = tuple(map(ProtocolLevel.parse, ("2.6", "2.7", "2.8", "3.9")))
BROKERS: Final = (1, 2, 3, 4)
CONTROLLERS: Final = (100, 101)
SESSION_TIMEOUT_MS: Final = 10_000
# Partitions per chunk of a change: few, so that there are many boundaries; or all.
CHUNKS: Final = (1, 2, 3, 4096)
SHUTDOWN_LIMIT_MS: Final = 20_000
BALANCE_INTERVAL_MS: Final = 15_000
# Allowed final replicas of a partition, and since when; None if unknown.
Ends = dict[TopicPartition, dict[tuple[int, ...], int] | None]


class Base:
    """State of a storm. All events are recorded in `happened`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed)
        level = LEVELS[seed % len(LEVELS)]
        self.alter_partition, self.topic_ids = level.alter_partition, level.topic_ids
        self.rate = dice.choice((0.0, 0.0, 0.03, 0.1, 0.25))
        self.weather = Weather(dice, self.rate)
        self.clock = ManualClock()
        self.fleet = Fleet(self.clock, dice, self.is_assigned)
        self.store = MemoryStore(clock=self.clock)
        self.options: dict[str, Any] = {
            "level": level, "unclean_leader_election": dice.random() < 0.3, "shutdown_limit_ms": SHUTDOWN_LIMIT_MS,
            "balance_interval_ms": BALANCE_INTERVAL_MS, "balance_percentage": dice.choice((0, 10)),
            "standby_interval_ms": dice.choice((0, 200, 1000)),
            "chunk_partitions": CHUNKS[seed // len(LEVELS) % len(CHUNKS)],
        }  # fmt: skip
        self.controllers: list[Controller] = []
        self.sessions: dict[int, Session] = {}
        self.asked: list[asyncio.Future[Any]] = []
        self.happened: list[str] = []
        self.ends: Ends = {}
        self.names: set[str] = set()
        self.unmoved: set[str] = set()  # topics by name whose replicas were never reassigned
        self.vanished: set[str] = set()  # topics by name that were removed from the store by hand
        self.drained: dict[int, int] = {}  # registrations of drained brokers
        self.number = 0
        self.hasty = True  # whether requests are sent during a commit

    def note(self, what: str) -> None:
        self.happened.append(f"{self.clock.monotonic_ms() / 1000:9.2f} s  {what}")

    @property
    def active(self) -> Controller | None:
        """Returns the active controller that is ready, or None."""
        epoch = self.store.state.epoch
        return next((each for each in self.controllers if each.is_active and each.cluster.fence.epoch == epoch), None)

    def topics(self) -> dict[str, TopicRef]:
        return {name: topic.ref for name, topic in self.store.state.topics.items()}

    def is_assigned(self, broker: int, name: TopicPartition) -> bool:
        """Returns whether a broker is a stored replica of a partition."""
        topic = self.store.state.topics.get(name.topic)
        if topic is None:
            return False
        assignment = topic.assignment
        return bool((assignment.replicas[:, assignment.partition == name.partition] == broker).any())

    async def partitions(self) -> dict[TopicPartition, Assignment]:
        """Returns the stored assignments of all topics."""
        return dict((await self.store.assignments(list(self.topics()))).items())

    def ask(self, asked: Coroutine[Any, Any, Any], then: Callable[[Any], None] = lambda _: None) -> None:
        """Send a request in the background and record its outcome."""

        async def answered() -> None:
            try:
                answer = await asked
            except KactlError as refused:
                answer = refused
            except ZeroDivisionError as bug:
                answer = bug
            then(answer)

        self.asked.append(asyncio.ensure_future(answered()))

    def replicas(self, most: int = 3) -> tuple[int, ...]:
        return tuple(self.dice.sample(BROKERS, self.dice.randint(1, most)))

    async def a_topic(self) -> str | None:
        return self.dice.choice(sorted(self.topics())) if self.topics() else None

    def may_end(self, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
        for name, target in targets.items():
            ends = self.ends.get(name)
            if ends is not None:
                ends[target] = self.number

    def must_end(self, name: TopicPartition, target: tuple[int, ...], asked: int) -> None:
        """Forget earlier requests."""
        ends = self.ends.get(name)
        if ends is not None:
            self.ends[name] = {each: then for each, then in ends.items() if then > asked} | {target: asked}


def targets_text(targets: dict[TopicPartition, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} to {list(target)}" for name, target in targets.items())
