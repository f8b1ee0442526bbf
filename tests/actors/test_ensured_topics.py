"""Topics that programs create or ensure: they wait until the leaders have acknowledged their orders."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

import kactl
from kactl.decide.messages.admin import ControllerRequest
from kactl.model import TopicPartition
from kactl.model.errors import ActionTimedOut, BadConfig, BadRequest, NotFound, TopicExists
from kactl.testing.contracts.link_support import until
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


class Gated(kactl.Listener):
    """Acknowledges orders to lead when its gate is open."""

    def __init__(self) -> None:
        self.gate = anyio.Event()

    async def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        await self.gate.wait()


class Poisoned(kactl.PartitionHandler):
    """Its partition 0 fails on every participant."""

    async def prepare(self, leader: kactl.Leader) -> None:
        if self.partition.partition == 0:
            raise ValueError("cannot parse the job")

    async def lead(self, leader: kactl.Leader) -> None:
        await anyio.sleep_forever()


@asynccontextmanager
async def cluster(
    clock: ManualClock,
    listener: kactl.Listener | None = None,
    count: int = 3,
    handler: type[kactl.PartitionHandler] | None = None,
) -> AsyncIterator[tuple[kactl.Controller, kactl.Participants]]:
    async with (
        kactl.Controller(100, clock=clock, auto_balance=False) as controller,
        kactl.Participants(
            count,
            store=controller.store,
            hub=controller.hub,
            clock=clock,
            session_timeout_ms=6_000,
            listener=None if handler else lambda _: listener or kactl.Listener(),
            handler=handler,
        ) as participants,
    ):
        await settle()
        yield controller, participants


@pytest.mark.parametrize("method", ["create_topic", "ensure_topic"])
async def test_a_new_topic_waits_for_its_leaders_to_acknowledge(clock: ManualClock, method: str) -> None:
    listener = Gated()
    async with cluster(clock, listener) as (controller, _):
        call = getattr(controller, method)
        creating = asyncio.ensure_future(call("orders", partitions=3, replication_factor=2, wait="led"))
        await settle()

        assert all(view.leader > 0 for view in controller.partitions_of("orders"))
        assert not creating.done()
        listener.gate.set()
        await asyncio.wait_for(creating, 60)


@pytest.mark.parametrize("method", ["create_topic", "ensure_topic"])
async def test_stored_topic_is_not_waited_for_any_longer(clock: ManualClock, method: str) -> None:
    async with cluster(clock, Gated()) as (controller, _):
        call = getattr(controller, method)

        await asyncio.wait_for(call("orders", partitions=3, replication_factor=2, wait="stored"), 60)

        assert len(controller.partitions_of("orders")) == 3


async def test_shard_that_fails_everywhere_delays_no_program(clock: ManualClock) -> None:
    async with cluster(clock, handler=Poisoned) as (controller, participants):
        ensuring = asyncio.ensure_future(participants[1].ensure_topic("shards", partitions=8))
        await clock.advance(1_000)
        assert await asyncio.wait_for(ensuring, 60) is True
        await clock.advance(20_000)

        assert await asyncio.wait_for(controller.ensure_topic("shards", partitions=8), 60) is False
        again = asyncio.ensure_future(participants[2].ensure_topic("shards", partitions=8, timeout_ms=0))
        await clock.advance(100)
        assert await asyncio.wait_for(again, 60) is False


async def test_error_has_what_each_partition_waits_for(clock: ManualClock) -> None:
    async with cluster(clock, handler=Poisoned) as (controller, participants):
        await controller.ensure_topic("shards", partitions=8)
        await clock.advance(20_000)
        calls = [
            asyncio.ensure_future(caller.ensure_topic("shards", partitions=8, wait="ready", timeout_ms=2_000))
            for caller in (controller, participants[1])
        ]
        await clock.advance(3_000)

        for call in calls:
            with pytest.raises(ActionTimedOut) as late:
                await asyncio.wait_for(call, 60)
            assert sorted(late.value.partitions) == [0]
            assert "cannot parse the job" in late.value.partitions[0]


async def test_leader_that_fails_soon_after_its_begin_is_not_ready(clock: ManualClock) -> None:
    fails = True

    class Unreachable(kactl.PartitionHandler):
        async def lead(self, leader: kactl.Leader) -> None:
            if fails:
                await clock.sleep_ms(150)
                raise OSError("the database cannot be reached")
            await anyio.sleep_forever()

    async with cluster(clock, handler=Unreachable) as (controller, participants):
        ensuring = [
            asyncio.ensure_future(caller.ensure_topic("jobs", partitions=2, wait="ready", timeout_ms=600_000))
            for caller in (controller, participants[1])
        ]
        for _ in range(200):
            await clock.advance(50)
            await settle()
        assert not any(each.done() for each in ensuring)

        fails = False
        await clock.advance(60_000)

        assert sorted(await asyncio.wait_for(asyncio.gather(*ensuring), 60)) == [False, True]


async def test_error_has_a_reason_for_more_partitions_than_its_text(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, participants):
        participants.pause(1)

        with pytest.raises(ActionTimedOut) as late:
            await controller.create_topic("orders", assignment={number: [1, 2] for number in range(7)}, timeout_ms=200)

        assert sorted(late.value.partitions) == [*range(7)]
        assert all("its leader 1 has not acknowledged" in reason for reason in late.value.partitions.values())
        participants.resume(1)


async def test_leaders_of_an_old_topic_count_after_a_failure_and_a_takeover(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, participants):
        await controller.ensure_topic("orders", assignment={0: [1, 2], 1: [2, 3]}, wait="ready")
        await participants.kill(3)
        await clock.advance(10_000)
        for _ in range(2):
            ensuring = [
                asyncio.ensure_future(caller.ensure_topic("orders", partitions=2, wait="led"))
                for caller in (controller, participants[1])
            ]
            await clock.advance(1_000)

            assert await asyncio.wait_for(asyncio.gather(*ensuring), 60) == [False, False]
            await controller.resign()
            await clock.advance(1_000)


async def test_timeout_names_what_the_first_partitions_wait_for(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, participants):
        participants.pause(1)

        with pytest.raises(ActionTimedOut) as late:
            await controller.create_topic("orders", assignment={number: [1, 2] for number in range(7)}, timeout_ms=200)

        assert late.value.reason.count("its leader 1 has not acknowledged the order") == 5
        assert "orders-4: " in late.value.reason
        assert "orders-5" not in late.value.reason
        participants.resume(1)


async def test_leader_that_rejects_its_order_is_replaced_before_the_call_returns(clock: ManualClock) -> None:
    class Picky(kactl.Listener):
        def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
            if leader_epoch == 0:
                raise ValueError("not me")

    async with cluster(clock, Picky()) as (controller, _):
        await controller.create_topic("orders", assignment={0: [1, 2]})

        view = controller.partition("orders-0")
        assert view is not None
        assert (view.leader, view.leader_epoch) == (2, 1)


async def test_no_replica_can_lead(clock: ManualClock) -> None:
    class Broken(kactl.Listener):
        def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
            raise ValueError("not me")

    async with cluster(clock, Broken(), count=1) as (controller, _):
        with pytest.raises(ActionTimedOut):
            await controller.create_topic("orders", partitions=1, replication_factor=1, timeout_ms=200)
        await until(lambda: [view.leader for view in controller.partitions_of("orders")] == [-1])

        with pytest.raises(ActionTimedOut, match=r"orders-0: no leader: .*its application has failed"):
            await controller.ensure_topic("orders", partitions=1, wait="led", timeout_ms=200)


async def test_ensuring_twice_creates_once(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, _):
        assert await controller.ensure_topic("orders", partitions=2) is True
        assert await controller.ensure_topic("orders", partitions=2) is False
        assert sorted(await asyncio.gather(*(controller.ensure_topic("jobs") for _ in range(4)))) == [False] * 3 + [
            True
        ]
        view = controller.partition("orders-1")
        assert view is not None
        assert len(view.replicas) == 3
        with pytest.raises(TopicExists):
            await controller.ensure_topic("orders", partitions=3)
        with pytest.raises(TopicExists, match="were requested: ensure it with partitions="):
            await controller.ensure_topic("orders", assignment={0: [1]})
        with pytest.raises(BadRequest):
            await controller.ensure_topic("other", partitions=0)


async def test_a_participant_ensures_topics_at_whichever_controller_is_active(clock: ManualClock) -> None:
    listener = Gated()
    store, hub = kactl.MemoryStore(clock=clock), kactl.MemoryHub()
    async with (
        kactl.Controller(100, store=store, hub=hub, clock=clock) as controller,
        kactl.Controller(101, store=store.another(), hub=hub, clock=clock) as standby,
        kactl.Participant(1, store=store, hub=hub, clock=clock, listener=listener) as participant,
    ):
        ensuring = asyncio.ensure_future(participant.ensure_topic("orders", assignment={0: [1]}, wait="led"))
        await clock.advance(1_000)
        assert not ensuring.done()
        listener.gate.set()
        await clock.advance(1_000)
        assert await ensuring is True
        await controller.resign()
        again = asyncio.ensure_future(participant.ensure_topic("orders"))
        await clock.advance(3_000)
        assert standby.is_active
        assert await again is False
        more = asyncio.ensure_future(participant.ensure_topic("orders", partitions=2))
        await clock.advance(100)
        with pytest.raises(TopicExists):
            await more


async def test_a_participant_gives_up_without_a_controller(clock: ManualClock) -> None:
    store, hub = kactl.MemoryStore(clock=clock), kactl.MemoryHub()
    async with store, kactl.Participant(1, store=store, hub=hub, clock=clock, shutdown_attempts=0) as participant:
        ensuring = asyncio.ensure_future(participant.ensure_topic("orders", timeout_ms=1_000))
        await clock.advance(1_500)

        with pytest.raises(ActionTimedOut, match="UpdateMetadata"):
            await ensuring


async def test_a_participant_gives_up_in_time_if_the_controller_does_not_respond(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, participants):
        hub = controller.hub
        ask = hub.controller(100)
        assert ask is not None

        async def hang(_: ControllerRequest) -> None:
            await anyio.sleep_forever()

        hub.attach_controller(100, hang)
        ensuring = asyncio.ensure_future(participants[1].ensure_topic("orders", timeout_ms=1_000))
        await clock.advance(999)
        assert not ensuring.done()
        await clock.advance(1)

        with pytest.raises(ActionTimedOut, match="no response in the rest of the time"):
            await asyncio.wait_for(ensuring, 60)
        hub.attach_controller(100, ask)


async def test_overrides_of_a_topic_are_read_and_changed(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, _):
        await controller.ensure_topic("orders", config={"retention.ms": "1000", "min.insync.replicas": "2"})
        await controller.set_topic_config("orders", {"retention.ms": None, "cleanup.policy": "compact"})

        assert await controller.topic_config("orders") == {"min.insync.replicas": "2", "cleanup.policy": "compact"}
        with pytest.raises(BadConfig):
            await controller.set_topic_config("orders", {"min.insync.replicas": "none"})
        with pytest.raises(NotFound):
            await controller.topic_config("none")


async def test_ensuring_waits_for_brokers_that_have_not_registered(clock: ManualClock) -> None:
    async with kactl.Controller(100, clock=clock) as controller:
        await controller.wait_active()
        ensuring = asyncio.ensure_future(controller.ensure_topic("orders", assignment={0: [1, 2]}))
        factor = asyncio.ensure_future(controller.ensure_topic("jobs", replication_factor=2))
        await settle()
        with pytest.raises(ActionTimedOut, match="broker 7 is not registered"):
            await controller.ensure_topic("other", assignment={0: [7]}, timeout_ms=50)
        assert controller.topics() == []

        async with kactl.Participants(2, store=controller.store, hub=controller.hub, clock=clock):
            assert await asyncio.wait_for(ensuring, 60) is True
            assert await asyncio.wait_for(factor, 60) is True
