"""Replicas whose handlers fail: another one leads, and they are used again once they are ready."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kactl.actors.system import Controller
from kactl.errors import BrokerNotAvailable, NotReady, StaleBrokerEpoch
from kactl.messages.broker import PartitionReport, PartitionsReported, ReplicaStatus
from kactl.model import NO_LEADER, TopicPartition
from kactl.participant import Participant
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.leases.leader import Leader
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

T0 = TopicPartition("t", 0)


class Cluster:
    """Three participants.

    Attributes:
        prepare: what `prepare` does on a broker; raises to fail.
        leading: the tokens under which a broker leads t-0, as its handler sees it.
    """

    def __init__(self, controller: Controller, clock: ManualClock) -> None:
        self.controller = controller
        self.clock = clock
        self.prepare: dict[int, Callable[[], None]] = {}
        self.leading: dict[int, Leader] = {}
        self.brokers: dict[int, Participant] = {}

    def handler(self, broker: int) -> Callable[[TopicPartition], PartitionHandler]:
        cluster = self

        class Handler(PartitionHandler):
            async def prepare(self, leader: Leader) -> None:
                cluster.prepare.get(broker, lambda: None)()

            async def lead(self, leader: Leader) -> None:
                cluster.leading[broker] = leader

        return Handler

    @property
    def leader(self) -> int:
        view = self.controller.partition(T0)
        assert view is not None
        return view.leader

    @property
    def valid(self) -> list[int]:
        """The brokers whose handlers lead with a valid lease."""
        return [broker for broker, leader in sorted(self.leading.items()) if leader.is_valid]

    def fail(self, broker: int, error: Exception) -> None:
        def prepare() -> None:
            raise error

        self.prepare[broker] = prepare


@asynccontextmanager
async def open_cluster() -> AsyncIterator[Cluster]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with Controller(100, store=store, clock=clock) as controller, AsyncExitStack() as stack:
        cluster = Cluster(controller, clock)
        for broker in (1, 2, 3):
            cluster.brokers[broker] = participant = Participant(
                broker,
                store=store,
                hub=controller.hub,
                clock=clock,
                handler=cluster.handler(broker),
                shutdown_attempts=0,
            )
            await stack.enter_async_context(participant)
        await settle()
        yield cluster


async def test_replica_that_cannot_prepare_is_passed_over() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, OSError("disk full"))
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()

        assert cluster.leader == 2
        assert cluster.valid == [2]


async def test_failed_replica_joins_the_isr_again_once_it_is_ready() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, OSError("disk full"))
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        assert cluster.controller.partition(T0).isr == (2, 3)  # type: ignore[union-attr]
        cluster.prepare.clear()
        await cluster.clock.advance(2_000)

        assert cluster.controller.partition(T0).isr == (1, 2, 3)  # type: ignore[union-attr]
        assert cluster.leader == 2


async def test_leader_that_resigns_is_replaced() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        assert cluster.valid == [1]
        first = cluster.leading[1]

        await first.resign("too hot")
        await settle()

        assert cluster.leader == 2
        assert cluster.valid == [2]
        assert first.token < cluster.leading[2].token


async def test_only_replica_that_was_not_ready_leads_after_its_delay() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, NotReady(2_500, "the cache is cold"))
        await cluster.controller.create_topic("t", assignment={0: (1,)}, timeout_ms=0)
        await settle()
        assert cluster.valid == []
        assert cluster.leader == NO_LEADER
        cluster.prepare.clear()
        await cluster.clock.advance(2_499)
        assert cluster.valid == []
        await cluster.clock.advance(1)

        assert cluster.leader == 1
        assert cluster.valid == [1]


async def test_report_of_another_registration_is_rejected() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2)})
        report = PartitionReport(T0, 0, ReplicaStatus.FAILED, "prepare: disk full")
        ask = cluster.controller.hub.controller(100)
        assert ask is not None
        epoch = cluster.brokers[1].epoch

        for broker, broker_epoch, error in ((1, epoch - 1, StaleBrokerEpoch), (9, 0, BrokerNotAvailable)):
            with pytest.raises(error):
                await ask(PartitionsReported(broker, broker_epoch, (report,)))
        await settle()
        assert cluster.leader == 1

        await ask(PartitionsReported(1, epoch, (report,)))
        await settle()
        assert cluster.leader == 2


async def test_report_of_a_deleted_topic_is_ignored() -> None:
    async with open_cluster() as cluster:
        ask = cluster.controller.hub.controller(100)
        assert ask is not None
        reports = tuple(PartitionReport(T0, 0, status) for status in (ReplicaStatus.STUCK, ReplicaStatus.READY))

        await ask(PartitionsReported(1, cluster.brokers[1].epoch, reports))

        assert cluster.controller.topics() == []
