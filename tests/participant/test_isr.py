"""ISR updates that the leader writes to the store; test_isr_proposer covers the updates through the controller."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from kactl.model import Assignment, Leadership, TopicPartition, TopicRef
from kactl.model.errors import StoreUnavailable
from kactl.participant import Participants
from kactl.participant.isr import RETRY_MS
from kactl.participant.isr_writer import WRITES_IN_FLIGHT
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle
from tests.support.control_requests import ORDERS_0, StateRow, update_metadata
from tests.support.store_clients import new_write

from .conftest import SESSION_MS, Network

pytestmark = pytest.mark.anyio


def store_isr_group(network: Network) -> Participants:
    return Participants(
        3,
        store=network.store,
        hub=network.hub,
        clock=network.clock,
        session_timeout_ms=SESSION_MS,
        alter_partition=False,
    )


async def isr(network: Network) -> tuple[int, ...]:
    stored = await network.stored()
    assert stored is not None
    return stored.isr


async def test_following_replica_joins_the_isr(network: Network) -> None:
    async with store_isr_group(network) as brokers:
        await network.send_to_all(await network.elect(isr=(3, 1)))
        await settle()

        stored = await network.stored()
        assert stored == Leadership(
            leader=1, leader_epoch=0, isr=(1, 2, 3), partition_epoch=1, controller_epoch=1, recovering=False
        )
        assert await network.notified() == [ORDERS_0]
        hosted = brokers[1].hosted(ORDERS_0)
        assert hosted is not None
        assert (hosted.isr, hosted.partition_epoch) == ((1, 2, 3), 1)


async def test_complete_isr_is_not_written(network: Network) -> None:
    async with store_isr_group(network):
        await network.send_to_all(await network.elect(isr=(1, 2, 3)))
        await settle()

        stored = await network.stored()
        assert stored is not None
        assert stored.partition_epoch == 0
        assert await network.notified() == []


async def test_request_order_of_leader_and_follower_does_not_matter(network: Network) -> None:
    async with store_isr_group(network):
        row = await network.elect()
        for broker in (2, 1, 3):
            await network.lead_and_follow(broker, row)
        await settle()
        assert await isr(network) == (1, 3)  # no broker is known as live yet

        await network.send(1, update_metadata(row))
        await settle()
        assert await isr(network) == (1, 3)  # broker 2 does not know its leader as live

        await network.send(2, update_metadata(row))
        await settle()
        assert await isr(network) == (1, 2, 3)


async def test_replica_not_live_in_the_metadata_does_not_join(network: Network) -> None:
    async with store_isr_group(network):
        row = await network.elect()
        await network.send_to_all(row, live=(1, 3))
        await network.send(2, update_metadata(row))
        await network.lead_and_follow(2, row)
        await settle()

        assert await isr(network) == (1, 3)


async def test_replica_following_an_older_epoch_does_not_join(network: Network) -> None:
    async with store_isr_group(network):
        await network.send_to_all(await network.elect(isr=(1, 2, 3)))
        newer = await network.elect(isr=(1, 3), leader_epoch=1, expected=0)
        await network.send(1, update_metadata(newer))
        await network.lead_and_follow(1, newer)
        await settle()
        assert await isr(network) == (1, 3)

        await network.lead_and_follow(2, newer)
        await settle()
        assert await isr(network) == (1, 2, 3)


async def test_paused_follower_joins_after_resume(network: Network) -> None:
    async with store_isr_group(network) as brokers:
        row = await network.elect()
        await network.send(2, update_metadata(row))
        await network.lead_and_follow(2, row)
        brokers.pause(2)
        await network.send_to_all(row, live=(1,))
        await network.send(1, update_metadata(row))
        await settle()
        assert await isr(network) == (1, 3)

        brokers.resume(2)
        await settle()
        assert await isr(network) == (1, 2, 3)


async def test_paused_leader_writes_nothing(network: Network) -> None:
    async with store_isr_group(network) as brokers:
        row = await network.elect()
        await network.lead_and_follow(1, row)
        await network.send(1, update_metadata(row))
        brokers.pause(1)
        await network.send(2, update_metadata(row))
        await network.lead_and_follow(2, row)
        await settle()
        assert await isr(network) == (1, 3)

        brokers.resume(1)
        await settle()
        assert await isr(network) == (1, 2, 3)


async def test_killed_follower_does_not_join_while_registered(network: Network) -> None:
    async with store_isr_group(network) as brokers:
        row = await network.elect()
        await network.lead_and_follow(2, row)
        await network.send(2, update_metadata(row))
        await brokers.kill(2)
        await network.send_to_all(row, live=(1,))
        await network.send(1, update_metadata(row))
        await settle()

        assert await isr(network) == (1, 3)


async def test_replica_with_a_failed_directory_does_not_join(network: Network) -> None:
    async with store_isr_group(network) as brokers:
        row = await network.elect()
        await network.send_to_all(row, live=(2, 3))
        await network.send(2, update_metadata(row))
        await brokers[2].fail_directory([ORDERS_0])
        await network.send(1, update_metadata(row))
        await network.lead_and_follow(1, row)
        await settle()

        assert await isr(network) == (1, 3)


async def test_newer_leadership_in_the_store_is_not_overwritten(network: Network) -> None:
    async with store_isr_group(network):
        row = await network.elect()
        for broker in (2, 3):
            await network.send(broker, update_metadata(row))
            await network.lead_and_follow(broker, row)
        await network.elect(leader=3, isr=(3,), leader_epoch=1, expected=0)
        await network.send(1, update_metadata(row))
        await network.lead_and_follow(1, row)  # late
        await network.clock.advance(10 * RETRY_MS)

        stored = await network.stored()
        assert stored is not None
        assert (stored.leader, stored.leader_epoch, stored.isr, stored.partition_epoch) == (3, 1, (3,), 1)
        assert await network.notified() == []


async def test_leader_ends_its_recovery(network: Network) -> None:
    async with store_isr_group(network):
        row = await network.elect(isr=(1, 2, 3))
        await network.send_to_all(row.but(recovering=True))
        await settle()

        stored = await network.stored()
        assert stored is not None
        assert (stored.isr, stored.recovering, stored.partition_epoch) == ((1, 2, 3), False, 1)


async def test_follower_joins_when_the_application_reports_it_in_sync(network: Network) -> None:
    calls: list[tuple[TopicPartition, int]] = []
    caught_up = False

    def in_sync(name: TopicPartition, follower: int) -> bool:
        calls.append((name, follower))
        return caught_up

    async with Participants(
        3, store=network.store, hub=network.hub, clock=network.clock, in_sync=in_sync, alter_partition=False
    ):
        await network.send_to_all(await network.elect())
        await settle()
        assert set(calls) == {(ORDERS_0, 2)}
        assert await isr(network) == (1, 3)

        caught_up = True
        await network.clock.advance(RETRY_MS)
        assert await isr(network) == (1, 2, 3)


class Unreliable(MemoryStore):
    """Commits the next `lost_responses` writes, and raises instead of confirming them."""

    lost_responses = 0

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        version = await super().write_isr(name, state, expected=expected)
        self._maybe_fail()
        return version

    async def notify_isr(self, partitions: Sequence[TopicPartition]) -> None:
        self._maybe_fail()
        await super().notify_isr(partitions)

    def _maybe_fail(self) -> None:
        if self.lost_responses:
            self.lost_responses -= 1
            raise StoreUnavailable("the connection broke")


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_unconfirmed_write_is_read_back_and_notified(failures: int) -> None:
    clock = ManualClock()
    async with Unreliable(clock=clock) as store, store_isr_group(network := Network(store, clock)) as brokers:
        store.lost_responses = failures
        await network.send_to_all(await network.elect())
        await clock.advance(4 * RETRY_MS)

        stored = await network.stored()
        assert stored is not None
        assert (stored.isr, stored.partition_epoch) == ((1, 2, 3), 1)
        assert await network.notified() == [ORDERS_0]
        hosted = brokers[1].hosted(ORDERS_0)
        assert hosted is not None
        assert hosted.partition_epoch == 1


BILLS = [TopicPartition("bills", number) for number in range(50)]


async def elect_many(network: Network) -> None:
    """Create fifty partitions that broker 1 leads, and that broker 2 follows without being in sync."""
    await network.store.create_topic(TopicRef("bills"), {name.partition: Assignment((1, 2)) for name in BILLS}, {})
    first = await network.elect()  # for the fence
    assert network.fence is not None
    await network.store.commit(new_write(BILLS, isr=(1,)), network.fence)
    rows = [StateRow(name, isr=(1,), replicas=(1, 2)) for name in BILLS]
    for broker in (2, 1):
        await network.send(broker, update_metadata(first))
        await network.lead_and_follow(broker, *rows)
    await settle()


async def test_one_notification_covers_many_partitions(network: Network) -> None:
    async with store_isr_group(network):
        await elect_many(network)

        notifications = await network.store.isr_notifications()
        assert [sorted(notification.partitions) for notification in notifications] == [BILLS]


class Interrupted(MemoryStore):
    """Calls `interrupt` after the first write has been committed, before it returns."""

    writes = 0
    interrupt: Callable[[], Awaitable[None]]

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        self.writes += 1
        first = self.writes == 1
        version = await super().write_isr(name, state, expected=expected)
        if first:
            await self.interrupt()
        return version


async def test_leader_paused_during_writes_stops_writing() -> None:
    clock = ManualClock()
    async with Interrupted(clock=clock) as store, store_isr_group(network := Network(store, clock)) as brokers:

        async def hang() -> None:
            brokers.pause(1)

        store.interrupt = hang
        await elect_many(network)
        assert 0 < store.writes <= 2 * WRITES_IN_FLIGHT
        assert await network.notified() == []

        brokers.resume(1)
        await settle()
        assert store.writes == len(BILLS)
        assert sorted(await network.notified()) == BILLS


async def test_leader_and_isr_during_a_write_is_not_undone() -> None:
    clock = ManualClock()
    async with Interrupted(clock=clock) as store, store_isr_group(network := Network(store, clock)) as brokers:

        async def elect_again() -> None:
            newer = await network.elect(isr=(1, 3), leader_epoch=1, expected=1)
            await network.lead_and_follow(1, newer)

        store.interrupt = elect_again
        await network.send_to_all(await network.elect())
        await settle()

        hosted = brokers[1].hosted(ORDERS_0)
        assert hosted is not None
        assert (hosted.leader_epoch, hosted.isr, hosted.partition_epoch) == (1, (1, 3), 2)
