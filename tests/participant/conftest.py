"""A small network: a store, a hub, a clock that stands still, and somebody who plays the controller."""

from collections.abc import AsyncIterator

import pytest

from kactl.messages.control import LeaderAndIsrResponse, Request, Response
from kactl.model import Assignment, Broker, Fence, Leadership, TopicPartition, TopicRef
from kactl.participant import Listener, Participant
from kactl.stores.base import Names, Store
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub, MemoryTransport
from tests.clocks import ManualClock
from tests.contracts.store_clients import write

from .requests import ORDERS_0, State, errors, leader_and_isr, update_metadata

SESSION_MS = 9_000


class Network:
    """What the tests of participants play with."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.hub = MemoryHub()
        self.fence: Fence | None = None

    def participant(self, broker: int = 1, listener: Listener | None = None) -> Participant:
        return Participant(
            broker,
            store=self.store,
            hub=self.hub,
            clock=self.clock,
            listener=listener,
            session_timeout_ms=SESSION_MS,
            shutdown_attempts=0,  # nobody plays that part of a controller
        )

    async def send(self, broker: int, request: Request) -> Response:
        return await MemoryTransport(self.hub, clock=self.clock).connect(Broker(broker, 0)).deliver(request)

    async def lead_and_follow(self, broker: int, *rows: State, epoch: int = 1) -> list[int]:
        """The answers, row by row."""
        response = await self.send(broker, leader_and_isr(*rows, epoch=epoch))
        assert isinstance(response, LeaderAndIsrResponse)
        answered = errors(response.partitions)
        return [answered[row.name] for row in rows]

    async def registered(self) -> list[int]:
        return sorted(await self.store.brokers())

    async def stored(self, name: TopicPartition = ORDERS_0) -> Leadership | None:
        return (await self.store.leaderships(Names.of([name]))).one(0)

    async def notified(self) -> list[TopicPartition]:
        return [name for notification in await self.store.isr_notifications() for name in notification.partitions]

    async def elect(
        self, *, leader: int = 1, isr: tuple[int, ...] = (1, 3), leader_epoch: int = 0, expected: int = -1
    ) -> State:
        """Have a leader of orders-0 stored, and the row that says so."""
        if self.fence is None:
            await self.store.create_topic(TopicRef("orders"), {0: Assignment((1, 2, 3))}, {})
            self.fence = await self.store.contest(100)
        row = write([ORDERS_0], leader=leader, isr=isr, leader_epoch=leader_epoch, expected=expected)
        kept = await self.store.commit(row, self.fence)
        assert kept.kept.all()
        version = int(kept.version[0])
        return State(ORDERS_0, leader=leader, leader_epoch=leader_epoch, isr=isr, partition_epoch=version)

    async def tell_all(self, row: State, *, live: tuple[int, ...] = (1, 2, 3)) -> None:
        """Metadata and instruction to all live brokers, as after an election."""
        for broker in live:
            await self.send(broker, update_metadata(row, live=live))
            await self.lead_and_follow(broker, row)


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    clock = ManualClock()
    async with MemoryStore(clock=clock) as store:
        yield Network(store, clock)


class Notes(Listener):
    """Writes down what it is told; fails for partitions that it is told to fail for."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.failing: set[TopicPartition] = set()

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self._note(name, f"leads {name} at {leader_epoch} with {isr}")

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
        self._note(name, f"follows {leader} for {name} at {leader_epoch}")

    def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
        self._note(name, f"{'deletes' if deleted else 'stops'} {name}")

    def _note(self, name: TopicPartition, what: str) -> None:
        if name in self.failing:
            raise OSError("disk full")
        self.told.append(what)
