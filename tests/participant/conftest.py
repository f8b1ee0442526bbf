"""A small network: a store, a hub, a manual clock, and a fake controller."""

from collections.abc import AsyncIterator

import pytest

from kactl.decide.messages.control import LeaderAndIsrResponse, Request, Response
from kactl.model import Assignment, Broker, Fence, Leadership, TopicPartition, TopicRef
from kactl.participant import Listener, Participant
from kactl.stores.base import Names, Store
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub, MemoryTransport
from tests.support.clocks import ManualClock
from tests.support.control_requests import ORDERS_0, StateRow, errors, leader_and_isr, update_metadata
from tests.support.store_clients import new_write

SESSION_MS = 9_000
MARGIN_MS = SESSION_MS / 10


class Network:
    """The store, hub and clock that participants share, and the requests of a fake controller."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.hub = MemoryHub()
        self.fence: Fence | None = None

    def participant(
        self, broker: int = 1, listener: Listener | None = None, *, transition_timeout_ms: float = 30_000
    ) -> Participant:
        return Participant(
            broker,
            store=self.store,
            hub=self.hub,
            clock=self.clock,
            listener=listener,
            session_timeout_ms=SESSION_MS,
            transition_timeout_ms=transition_timeout_ms,
            shutdown_attempts=0,  # the fake controller has no controlled shutdown
        )

    async def send(self, broker: int, request: Request) -> Response:
        return await MemoryTransport(self.hub, clock=self.clock).connect(Broker(broker, 0)).deliver(request)

    async def lead_and_follow(self, broker: int, *rows: StateRow, epoch: int = 1) -> list[int]:
        """Send a LeaderAndIsr. Returns the error code of each row."""
        response = await self.send(broker, leader_and_isr(*rows, epoch=epoch))
        assert isinstance(response, LeaderAndIsrResponse)
        codes = errors(response.partitions)
        return [codes[row.name] for row in rows]

    async def registered(self) -> list[int]:
        return sorted(await self.store.brokers())

    async def stored(self, name: TopicPartition = ORDERS_0) -> Leadership | None:
        return (await self.store.leaderships(Names.of([name]))).one(0)

    async def notified(self) -> list[TopicPartition]:
        return [name for notification in await self.store.isr_notifications() for name in notification.partitions]

    async def elect(
        self, *, leader: int = 1, isr: tuple[int, ...] = (1, 3), leader_epoch: int = 0, expected: int = -1
    ) -> StateRow:
        """Store a leader of orders-0. Returns its row for a LeaderAndIsr."""
        if self.fence is None:
            await self.store.create_topic(TopicRef("orders"), {0: Assignment((1, 2, 3))}, {})
            self.fence = await self.store.contest(100)
        row = new_write([ORDERS_0], leader=leader, isr=isr, leader_epoch=leader_epoch, expected=expected)
        committed = await self.store.commit(row, self.fence)
        assert committed.committed.all()
        version = int(committed.version[0])
        return StateRow(ORDERS_0, leader=leader, leader_epoch=leader_epoch, isr=isr, partition_epoch=version)

    async def send_to_all(self, row: StateRow, *, live: tuple[int, ...] = (1, 2, 3)) -> None:
        """Send UpdateMetadata and LeaderAndIsr to all live brokers, as after an election."""
        for broker in live:
            await self.send(broker, update_metadata(row, live=live))
            await self.lead_and_follow(broker, row)


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    clock = ManualClock()
    async with MemoryStore(clock=clock) as store:
        yield Network(store, clock)


class Recorder(Listener):
    """Records its calls; raises for the partitions in `failing`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing: set[TopicPartition] = set()

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self._record(name, f"leads {name} at {leader_epoch} with {isr}")

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
        self._record(name, f"follows {leader} for {name} at {leader_epoch}")

    def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
        self._record(name, f"{'deletes' if deleted else 'stops'} {name}")

    def _record(self, name: TopicPartition, call: str) -> None:
        if name in self.failing:
            raise OSError("disk full")
        self.calls.append(call)
