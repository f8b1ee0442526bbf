"""The store contract: leadership, committed row by row by compare-and-set."""

import numpy as np
import pytest

from kactl.model import (
    LEADER_DURING_DELETE,
    NO_BROKER,
    NO_LEADER,
    NO_VERSION,
    Assignment,
    Leadership,
    TopicPartition,
    TopicRef,
)
from kactl.stores.base import Found, Names, Outcome

from .store_support import (
    ALL,
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    ORDERS_2,
    THREE_PARTITIONS,
    Stores,
    create_and_lead,
    delete_topic,
    new_write,
    stored_leadership,
    write_of,
)


class LeadershipContract:
    pytestmark = pytest.mark.anyio

    async def test_committed_leadership_is_read_back(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)

            committed = await store.commit(
                new_write(ALL, leader=[1, 2, NO_LEADER], leader_epoch=[0, 5, 7], isr=[(1, 2, 3), (2,), (3, 1)]),
                fence,
            )

            found = await store.leaderships(Names.of(ALL))
            assert committed.outcome.tolist() == [Outcome.COMMITTED] * 3
            assert committed.version.tolist() == [0, 0, 0]
            assert found.status.tolist() == [Found.FOUND] * 3
            assert found.one(0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)
            assert found.one(1) == Leadership(2, 5, (2,), 0, fence.epoch)
            assert found.leader.tolist() == [1, 2, NO_LEADER]
            assert set(found.isr[:, 2].tolist()) - {NO_BROKER} == {3, 1}

    async def test_other_clients_read_committed_leadership(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(store)
            await stored_leadership(other, ORDERS_0)

            await store.commit(new_write([ORDERS_0], leader=2, leader_epoch=1, isr=(2, 3), expected=0), fence)

            assert await stored_leadership(other, ORDERS_0) == Leadership(2, 1, (2, 3), 1, fence.epoch)

    async def test_each_write_raises_the_version_by_one(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            versions = [
                int((await store.commit(new_write([ORDERS_1], leader_epoch=at, expected=at), fence)).version[0])
                for at in range(4)
            ]

            state = await stored_leadership(store, ORDERS_1)
            assert versions == [1, 2, 3, 4]
            assert state is not None
            assert (state.partition_epoch, state.leader_epoch) == (4, 3)
            assert await stored_leadership(store, ORDERS_0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)

    async def test_existing_leadership_is_not_created_again(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            committed = await store.commit(new_write([ORDERS_0], leader=3, expected=NO_VERSION), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT]
            assert committed.version.tolist() == [NO_VERSION]
            assert await stored_leadership(store, ORDERS_0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)

    async def test_missing_leadership_is_not_updated(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)

            committed = await store.commit(new_write([ORDERS_0], expected=0), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT]
            assert await stored_leadership(store, ORDERS_0) is None

    @pytest.mark.parametrize("expected", [0, 2, 70_000])
    async def test_stale_version_is_a_conflict(self, stores: Stores, expected: int) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            await store.commit(new_write([ORDERS_0], leader_epoch=1, expected=0), fence)

            committed = await store.commit(new_write([ORDERS_0], leader=2, leader_epoch=2, expected=expected), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT]
            assert await stored_leadership(store, ORDERS_0) == Leadership(1, 1, (1, 2, 3), 1, fence.epoch)

    async def test_rows_are_committed_independently(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)
            await store.commit(new_write([ORDERS_0, ORDERS_2]), fence)
            await store.commit(new_write([ORDERS_2], leader_epoch=1, expected=0), fence)

            committed = await store.commit(
                new_write(ALL, leader=2, leader_epoch=9, isr=(2, 3), expected=[0, NO_VERSION, 0]), fence
            )

            assert committed.outcome.tolist() == [Outcome.COMMITTED, Outcome.COMMITTED, Outcome.CONFLICT]
            assert committed.version.tolist() == [1, 0, NO_VERSION]
            assert committed.committed.tolist() == [True, True, False]
            assert await stored_leadership(store, ORDERS_0) == Leadership(2, 9, (2, 3), 1, fence.epoch)
            assert await stored_leadership(store, ORDERS_1) == Leadership(2, 9, (2, 3), 0, fence.epoch)
            assert await stored_leadership(store, ORDERS_2) == Leadership(1, 1, (1, 2, 3), 1, fence.epoch)

    async def test_leadership_of_a_missing_topic_is_not_stored(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            ghost = TopicPartition("ghost", 0)

            committed = await store.commit(new_write([ORDERS_0, ghost], expected=[0, NO_VERSION]), fence)

            assert committed.committed.tolist() == [True, False]
            assert committed.version.tolist() == [1, NO_VERSION]
            assert await stored_leadership(store, ghost) is None
            assert await store.topics() == ["orders"]

    async def test_first_leadership_of_an_earlier_topic_of_that_name_is_not_stored(self, stores: Stores) -> None:
        """The topic was deleted and created again, by other clients, since it was read."""
        async with stores.open_client() as store, stores.open_client() as other:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)
            await store.assignments(["orders"])
            await delete_topic(other, "orders", fence)
            later = TopicRef("orders", bytes(15) + b"x")
            await other.create_topic(later, THREE_PARTITIONS, {})

            early = await store.commit(write_of(ORDERS, new_write(ALL)), fence)
            await store.assignments(["orders"])
            late = await store.commit(write_of(ORDERS, new_write(ALL)), fence)

            assert not early.committed.any()
            assert not late.committed.any()
            assert await stored_leadership(store, ORDERS_0) is None
            assert (await store.commit(write_of(later, new_write(ALL)), fence)).committed.all()

    async def test_each_write_carries_the_epoch_of_its_controller(self, stores: Stores) -> None:
        async with stores.open_client() as one, stores.open_client() as other:
            first = await create_and_lead(one, controller=1)
            second = await other.contest(2, take_over=True)

            await other.commit(new_write([ORDERS_1], expected=0), second)

            found = await other.leaderships(Names.of(ALL))
            assert found.controller_epoch.tolist() == [first.epoch, second.epoch, first.epoch]

    async def test_no_leader_and_recovering_leader_are_stored(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            await store.commit(
                new_write([ORDERS_0, ORDERS_1], leader=[NO_LEADER, 3], isr=(3,), recovering=[False, True], expected=0),
                fence,
            )

            assert await stored_leadership(store, ORDERS_0) == Leadership(NO_LEADER, 0, (3,), 1, fence.epoch)
            assert await stored_leadership(store, ORDERS_1) == Leadership(3, 0, (3,), 1, fence.epoch, recovering=True)
            assert LEADER_DURING_DELETE not in (await store.leaderships(Names.of(ALL))).leader

    async def test_recovering_flag_is_cleared(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            await store.commit(new_write([ORDERS_0], isr=(1,), recovering=True, expected=0), fence)

            await store.commit(new_write([ORDERS_0], isr=(1,), recovering=False, expected=1), fence)

            assert await stored_leadership(store, ORDERS_0) == Leadership(1, 0, (1,), 2, fence.epoch)

    async def test_isr_is_stored_in_any_order_and_slots(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            change = new_write([ORDERS_0, ORDERS_1], leader=3, isr=(3, 9, 1, 2, 4), expected=0)
            change.isr[:, 1] = [NO_BROKER, 77, NO_BROKER, 3, NO_BROKER]  # free slots between; 77 is not assigned

            await store.commit(change, fence)

            found = await store.leaderships(Names.of([ORDERS_0, ORDERS_1]))
            assert set(found.isr[:, 0].tolist()) - {NO_BROKER} == {1, 2, 3, 4, 9}
            assert set(found.isr[:, 1].tolist()) - {NO_BROKER} == {3, 77}

    async def test_shorter_isr_replaces_a_longer_one(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            await store.commit(new_write([ORDERS_0], leader=2, isr=(2,), expected=0), fence)

            state, other = await stored_leadership(store, ORDERS_0), await stored_leadership(store, ORDERS_1)
            assert state is not None
            assert other is not None
            assert state.isr == (2,)
            assert set(other.isr) == {1, 2, 3}

    async def test_large_numbers_are_stored(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            top = 2**31 - 1

            await store.commit(
                new_write([ORDERS_0], leader=top, leader_epoch=top, isr=(top, 40_000), expected=0), fence
            )

            state = await stored_leadership(store, ORDERS_0)
            assert state is not None
            assert (state.leader, state.leader_epoch, set(state.isr)) == (top, top, {top, 40_000})

    async def test_empty_writes_and_reads_return_empty_results(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            committed = await store.commit(new_write([]), fence)

            assert (len(committed.outcome), len(committed.version)) == (0, 0)
            assert len(await store.leaderships(Names.of([]))) == 0

    async def test_missing_leadership_is_reported_as_missing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await create_and_lead(store)
            asked = [TopicPartition("orders", 3), ORDERS_1, TopicPartition("ghost", 0), TopicPartition("orders", 5_000)]

            found = await store.leaderships(Names.of(asked))

            assert found.status.tolist() == [Found.MISSING, Found.FOUND, Found.MISSING, Found.MISSING]
            assert found.leader.tolist() == [-1, 1, -1, -1]
            assert found.leader_epoch.tolist() == [-1, 0, -1, -1]
            assert found.partition_epoch.tolist() == [NO_VERSION, 0, NO_VERSION, NO_VERSION]
            assert found.recovering.tolist() == [False] * 4
            assert (found.isr[:, [0, 2, 3]] == NO_BROKER).all()

    async def test_large_write_is_committed_row_by_row(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            topics = [TopicRef(f"t{number}") for number in range(5)]
            assignment = {partition: Assignment((1, 2, 3)) for partition in range(1000)}
            for topic in topics:
                await store.create_topic(topic, assignment, {})
            fence = await store.contest(100)
            names = [TopicPartition(topic.name, partition) for partition in range(1000) for topic in topics]
            numbers = np.arange(len(names))
            created = await store.commit(new_write(names, leader_epoch=numbers.tolist()), fence)
            stale = numbers % 7 == 3
            change = new_write(names, leader=2, leader_epoch=(numbers + 1).tolist(), isr=(2, 3))

            change.expected[:] = np.where(stale, 5, 0)
            committed = await store.commit(change, fence)

            found = await store.leaderships(Names.of(names))
            assert created.committed.all()
            assert (committed.committed == ~stale).all()
            assert (committed.version == np.where(stale, NO_VERSION, 1)).all()
            assert (found.leader == np.where(stale, 1, 2)).all()
            assert (found.leader_epoch == np.where(stale, numbers, numbers + 1)).all()
            assert ((found.isr != NO_BROKER).sum(axis=0) == np.where(stale, 3, 2)).all()


class LeaderWriteContract:
    pytestmark = pytest.mark.anyio

    async def test_leader_writes_its_isr(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as leader:
            fence = await create_and_lead(controller)
            shrunk = Leadership(1, 0, (1, 3), 0, fence.epoch)

            version = await leader.write_isr(ORDERS_0, shrunk, expected=0)

            assert version == 1
            assert await stored_leadership(controller, ORDERS_0) == Leadership(1, 0, (1, 3), 1, fence.epoch)

    async def test_leader_with_a_stale_version_writes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as leader:
            fence = await create_and_lead(controller)
            await controller.commit(new_write([ORDERS_0], leader=2, leader_epoch=1, isr=(2,), expected=0), fence)

            version = await leader.write_isr(ORDERS_0, Leadership(1, 0, (1,), 0, fence.epoch), expected=0)

            assert version is None
            assert await stored_leadership(leader, ORDERS_0) == Leadership(2, 1, (2,), 1, fence.epoch)

    async def test_unseen_leader_write_is_a_conflict_for_the_controller(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as leader:
            fence = await create_and_lead(controller)
            await leader.write_isr(ORDERS_0, Leadership(1, 0, (1,), 0, fence.epoch), expected=0)

            committed = await controller.commit(new_write([ORDERS_0, ORDERS_1], leader=2, expected=0), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT, Outcome.COMMITTED]
            assert await stored_leadership(controller, ORDERS_0) == Leadership(1, 0, (1,), 1, fence.epoch)

    async def test_leader_write_is_unfenced_and_keeps_its_epoch(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as other:
            fence = await create_and_lead(controller)
            await other.contest(2, take_over=True)

            version = await controller.write_isr(ORDERS_0, Leadership(1, 0, (1,), 0, fence.epoch), expected=0)

            assert version == 1
            assert await stored_leadership(other, ORDERS_0) == Leadership(1, 0, (1,), 1, fence.epoch)
