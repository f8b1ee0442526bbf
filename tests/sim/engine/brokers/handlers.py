"""Application of a participant that hosts a handler for each partition.

Its handlers take their time, and fail when they are told to: they raise, are not ready, resign, are slow, or hang and
ignore that they were cancelled.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import anyio

from kactl.model import NO_BROKER, TopicPartition
from kactl.model.errors import NotReady
from kactl.participant.handlers.handler import Follower, PartitionHandler
from kactl.participant.leases.leader import Leader
from kactl.testing.history import History
from kactl.testing.nodes import NODE

from .application import HandlerFault

# Longest times of calls in ms, for preparing and stopping, and between two checks of a leader.
CALL_MS: Final = 50.0
CHECK_MS: Final = 1_000.0
# A cancelled call takes up to this part of the margin of a lease, so that it is not stuck.
CLEAN_UP_SHARE: Final = 0.7

PHASES: Final = ("prepare", "lead", "follow", "stop")
FAULTS: Final = ("raise", "not ready", "resign", "slow", "hang")


class HandlerFailure(NamedTuple):
    """What the next call of a phase does.

    Attributes:
        what: one of FAULTS.
        for_ms: how long a call is slow or hangs.
    """

    phase: str
    what: str
    for_ms: float


class HandlerApplication:
    """Handlers of one process.

    Args:
        poisoned: partitions whose handlers fail at every participant.

    Attributes:
        roles: leader and leader epoch of each replica that is served.
        failures: of the next calls.
        undeletable: partitions that cannot be deleted.
        on_lead, on_check: called when `lead` begins, and after each successful check of a leader.
        margin_ms: of the lease.
        leading: number of the call of `lead` of each partition that has begun and not ended.
        hanging: partitions of which a call ignores its cancellation.
    """

    def __init__(
        self,
        broker: int,
        history: History,
        rng: random.Random,
        poisoned: Mapping[TopicPartition, HandlerFailure] = MappingProxyType({}),
    ) -> None:
        self.broker = broker
        self.roles: dict[TopicPartition, tuple[int, int]] = {}
        self.failures: list[HandlerFailure] = []
        self.undeletable: set[TopicPartition] = set()
        self.on_lead: Callable[[TopicPartition, int, int], None] = lambda name, leader_epoch, present_epoch: None
        self.on_check: Callable[[Leader], None] = lambda leader: None
        self.margin_ms = 0.0
        self.leading: dict[TopicPartition, int] = {}
        self.hanging: set[TopicPartition] = set()
        self.rng = rng
        self._poisoned = poisoned
        self._history = history
        self._number = 0

    def make(self, name: TopicPartition) -> PartitionHandler:
        """Returns the handler of a partition."""
        return SimulatedHandler(name, self)

    @contextmanager
    def phase(self, name: TopicPartition, what: str, *, epoch: int = -1, topic_id: bytes = b"") -> Iterator[None]:
        """Record the begin and the end of a call."""
        self._number += 1
        same: dict[str, Any] = {
            "broker": self.broker, "number": self._number, "topic": name.topic, "partition": name.partition,
            "phase": what,
        }  # fmt: skip
        self._history.record("phase.begin", **same, leader_epoch=epoch, topic_id=topic_id.hex())
        if what == "lead":
            self.leading[name] = self._number
        try:
            yield
        finally:
            node = NODE.get()
            if node is not None and node.state != "killed":
                if self.leading.get(name) == same["number"]:
                    del self.leading[name]
                self._history.record("phase.end", **same)

    def poison(self, name: TopicPartition, phase: str) -> HandlerFailure | None:
        """Returns how a phase fails at every participant."""
        poison = self._poisoned.get(name)
        return poison if poison is not None and poison.phase == phase else None

    def failure(self, name: TopicPartition, phase: str) -> HandlerFailure | None:
        """Returns the failure of a call; the next one of the phase is taken."""
        if (poison := self.poison(name, phase)) is not None:
            return poison
        for position, failure in enumerate(self.failures):
            if failure.phase == phase:
                return self.failures.pop(position)
        return None

    async def call(self, name: TopicPartition, phase: str) -> None:
        """Take some time, and fail if this call is to fail."""
        failure = self.failure(name, phase)
        await self._sleep(self.rng.uniform(0, CALL_MS))
        if failure is not None:
            await self.fail(name, failure)

    async def fail(self, name: TopicPartition, failure: HandlerFailure) -> None:
        """Fail as a failure says."""
        match failure.what:
            case "raise":
                raise HandlerFault(f"{failure.phase} fails")
            case "not ready":
                raise NotReady(reason="the run wants it", retry_after_ms=1_000)
            case "slow":
                await self._sleep(failure.for_ms)
            case "hang":
                self.hanging.add(name)
                with anyio.CancelScope(shield=True):
                    await self._sleep(failure.for_ms)
                self.hanging.discard(name)

    async def clean_up(self) -> None:
        """Take some time although the call is cancelled."""
        with anyio.CancelScope(shield=True):
            await self._sleep(self.rng.uniform(0, CLEAN_UP_SHARE * self.margin_ms))

    async def _sleep(self, delay_ms: float) -> None:
        await anyio.sleep(delay_ms / 1000)


class SimulatedHandler(PartitionHandler):
    """One replica."""

    def __init__(self, partition: TopicPartition, application: HandlerApplication) -> None:
        super().__init__(partition)
        self._application = application

    async def prepare(self, leader: Leader) -> None:
        token = leader.token
        with self._application.phase(
            self.partition, "prepare", epoch=token.leader_epoch, topic_id=token.topic_id
        ):  # fmt: skip
            await self._application.call(self.partition, "prepare")

    async def lead(self, leader: Leader) -> None:
        application, token = self._application, leader.token
        with application.phase(self.partition, "lead", epoch=token.leader_epoch, topic_id=token.topic_id):
            application.roles[self.partition] = (application.broker, leader.leader_epoch)
            application.on_lead(self.partition, token.leader_epoch, leader.leader_epoch)
            try:
                failure = application.failure(self.partition, "lead")
                while True:
                    leader.check()
                    application.on_check(leader)
                    if failure is not None and failure.what == "resign":
                        await leader.resign("the run wants it")
                    elif failure is not None:
                        await application.fail(self.partition, failure)
                    failure = application.poison(self.partition, "lead")
                    await application._sleep(application.rng.uniform(0, CHECK_MS))
            except Exception:
                # It does not serve any more, until it is started again. A cancellation has an order that follows.
                application.roles.pop(self.partition, None)
                raise
            finally:
                await application.clean_up()

    async def follow(self, follower: Follower) -> None:
        application = self._application
        with application.phase(self.partition, "follow", epoch=follower.leader_epoch):
            leader = NO_BROKER if follower.leader is None else follower.leader
            application.roles[self.partition] = (leader, follower.leader_epoch)
            await application.call(self.partition, "follow")
            await anyio.sleep_forever()

    async def stop(self, *, deleted: bool) -> None:
        application = self._application
        with application.phase(self.partition, "stop"):
            await application.call(self.partition, "stop")
            if deleted and self.partition in application.undeletable:
                raise HandlerFault(f"{self.partition} cannot be deleted")
            application.roles.pop(self.partition, None)
