"""What every store keeps, as stories. A store joins by a test class with a fixture `stores`:

    class TestMemoryStore(StoreContract):
        @pytest.fixture
        def stores(self) -> Stores: ...

Events are waited for, never slept for; a store may report more than what is asked for here, but no less.
"""

from typing import cast

import numpy as np
import pytest

from kactl.errors import BrokerIdTaken, ControllerMoved, NotFound, SessionExpired, TopicExists
from kactl.model import (
    LEADER_DURING_DELETE,
    NO_BROKER,
    NO_LEADER,
    NO_VERSION,
    ZERO_ID,
    Assignment,
    Fence,
    Leadership,
    TopicPartition,
    TopicRef,
)
from kactl.store import Changed, Found, Names, Outcome, Store

from .store_clients import (
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    ORDERS_2,
    SESSION_MS,
    THREE_PARTITIONS,
    Ear,
    Stores,
    broker,
    write,
)

ALL = [ORDERS_0, ORDERS_1, ORDERS_2]


async def stored(store: Store, name: TopicPartition) -> Leadership | None:
    return (await store.leaderships(Names.of([name]))).one(0)


async def lead(store: Store, *, controller: int = 100) -> Fence:
    """A topic of three partitions that each have a first leader, and the fence under which they got it."""
    await store.create_topic(ORDERS, THREE_PARTITIONS, {})
    fence = await store.contest(controller)
    committed = await store.commit(write(ALL), fence)
    assert committed.kept.all()
    return fence


class ControllershipContract:
    pytestmark = pytest.mark.anyio

    async def test_nobody_holds_the_controllership_at_first(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            assert await store.controller() is None

    async def test_the_first_epoch_is_one(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(7)

            held = await store.controller()
            assert fence.epoch == 1
            assert held is not None
            assert (held.id, held.epoch) == (7, 1)
            assert held.since_ms >= 0

    async def test_the_loser_of_a_contest_changes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as winner, stores.open_client() as loser:
            fence = await winner.contest(1)

            with pytest.raises(ControllerMoved):
                await loser.contest(2)

            for client in (winner, loser):
                held = await client.controller()
                assert held is not None
                assert (held.id, held.epoch) == (1, 1)
            await winner.resign(fence)

    async def test_every_election_raises_the_epoch_by_one(self, stores: Stores) -> None:
        async with stores.open_client() as one, stores.open_client() as other:
            epochs = []
            for round_ in range(4):
                client = (one, other)[round_ % 2]
                fence = await client.contest(round_)
                epochs.append(fence.epoch)
                await client.resign(fence)

            assert epochs == [1, 2, 3, 4]

    async def test_a_take_over_fences_the_one_who_was_in_office(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await lead(old, controller=1)

            fence = await new.contest(2, take_over=True)

            held = await old.controller()
            assert fence.epoch == old_fence.epoch + 1
            assert held is not None
            assert (held.id, held.epoch) == (2, fence.epoch)
            with pytest.raises(ControllerMoved):
                await old.commit(write([ORDERS_0], leader=2, expected=0), old_fence)
            with pytest.raises(ControllerMoved):
                await old.resign(old_fence)
            assert await new.controller() == held

    async def test_a_take_over_of_a_vacant_office_is_an_election(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1, take_over=True)

            assert fence.epoch == 1

    async def test_who_resigns_leaves_the_office_vacant_and_the_epoch_as_it_is(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)

            await store.resign(fence)

            assert await store.controller() is None
            assert (await store.contest(1)).epoch == 2

    async def test_leaving_vacates_the_office(self, stores: Stores) -> None:
        async with stores.open_client() as next_one:
            ear = Ear(next_one)
            async with stores.open_client() as holder:
                await holder.contest(1)
                assert await next_one.controller() is not None

            await ear.hear(Changed.CONTROLLER_GONE)
            assert await next_one.controller() is None
            assert (await next_one.contest(2)).epoch == 2

    async def test_an_election_and_a_resignation_are_reported_to_others(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as holder:
            ear = Ear(watching)
            await watching.controller()

            fence = await holder.contest(1)
            await ear.hear(Changed.CONTROLLER)
            assert await watching.controller() is not None
            await holder.resign(fence)

            await ear.hear(Changed.CONTROLLER_GONE)
            assert await watching.controller() is None

    async def test_a_take_over_is_reported_to_the_one_who_was_in_office(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            ear = Ear(old)
            await old.contest(1)
            await old.controller()

            await new.contest(2, take_over=True)

            # A store whose take-over is two steps may report the first of them alone.
            while (held := await old.controller()) is None or held.id != 2:
                await ear.hear(Changed.CONTROLLER)
            assert held.epoch == 2

    async def test_the_office_ends_with_the_session(self, stores: Stores) -> None:
        async with stores.open_client() as holder, stores.open_client() as next_one:
            own_ear, ear = Ear(holder), Ear(next_one)
            old_fence = await lead(holder, controller=1)
            await next_one.controller()

            await stores.expire(holder)

            await ear.hear(Changed.CONTROLLER_GONE)
            fence = await next_one.contest(2)
            assert fence.epoch == old_fence.epoch + 1
            await own_ear.hear(Changed.SESSION_LOST)
            await own_ear.hear(Changed.SESSION_OPENED)
            with pytest.raises(ControllerMoved):
                await holder.commit(write([ORDERS_0], leader=2, expected=0), old_fence)
            assert (await stored(holder, ORDERS_0)) == Leadership(1, 0, (1, 2, 3), 0, old_fence.epoch)

    async def test_a_client_goes_on_in_a_new_session(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            ear = Ear(store)
            fence = await store.contest(1)
            await stores.expire(store)
            await ear.hear(Changed.SESSION_LOST)
            await ear.hear(Changed.SESSION_OPENED)

            again = await store.contest(1)

            assert again.epoch == fence.epoch + 1
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            assert (await store.commit(write(ALL), again)).kept.all()


class FencingContract:
    pytestmark = pytest.mark.anyio

    async def test_a_stale_fence_commits_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await lead(old, controller=1)
            await new.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await old.commit(write(ALL, leader=2, leader_epoch=1, expected=0), old_fence)

            found = await new.leaderships(Names.of(ALL))
            assert [found.one(at) for at in range(3)] == [Leadership(1, 0, (1, 2, 3), 0, old_fence.epoch)] * 3

    async def test_a_stale_fence_creates_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            await old.create_topic(ORDERS, THREE_PARTITIONS, {})
            old_fence = await old.contest(1)
            await new.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await old.commit(write(ALL), old_fence)

            assert not (await new.leaderships(Names.of(ALL))).found.any()

    async def test_a_stale_fence_assigns_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await lead(old, controller=1)
            await new.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await old.write_assignment(ORDERS, {0: Assignment((9,))}, old_fence)

            assert dict((await new.assignments(["orders"])).items()) == {
                TopicPartition("orders", at): assignment for at, assignment in THREE_PARTITIONS.items()
            }

    async def test_a_stale_fence_takes_no_notification_away(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await lead(old, controller=1)
            await old.notify_isr([ORDERS_0])
            await old.notify_log_dir(3)
            await new.contest(2, take_over=True)

            for standing in (await old.isr_notifications(), await old.log_dir_notifications()):
                with pytest.raises(ControllerMoved):
                    await old.delete_notifications(standing, old_fence)

            assert len(await new.isr_notifications()) == 1
            assert len(await new.log_dir_notifications()) == 1

    async def test_who_won_before_and_again_is_fenced_by_its_own_later_epoch(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            first = await lead(store)
            second = await store.contest(100, take_over=True)

            with pytest.raises(ControllerMoved):
                await store.commit(write([ORDERS_0], expected=0), first)

            assert (await store.commit(write([ORDERS_0], expected=0), second)).version.tolist() == [1]


class LeadershipContract:
    pytestmark = pytest.mark.anyio

    async def test_what_was_committed_is_read_back(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)

            committed = await store.commit(
                write(ALL, leader=[1, 2, NO_LEADER], leader_epoch=[0, 5, 7], isr=[(1, 2, 3), (2,), (3, 1)]), fence
            )

            found = await store.leaderships(Names.of(ALL))
            assert committed.outcome.tolist() == [Outcome.KEPT] * 3
            assert committed.version.tolist() == [0, 0, 0]
            assert found.status.tolist() == [Found.FOUND] * 3
            assert found.one(0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)
            assert found.one(1) == Leadership(2, 5, (2,), 0, fence.epoch)
            assert found.leader.tolist() == [1, 2, NO_LEADER]
            assert set(found.isr[:, 2].tolist()) - {NO_BROKER} == {3, 1}

    async def test_other_clients_read_what_was_committed(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await lead(store)
            await stored(other, ORDERS_0)

            await store.commit(write([ORDERS_0], leader=2, leader_epoch=1, isr=(2, 3), expected=0), fence)

            assert await stored(other, ORDERS_0) == Leadership(2, 1, (2, 3), 1, fence.epoch)

    async def test_each_write_raises_the_version_by_one(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)

            versions = [
                int((await store.commit(write([ORDERS_1], leader_epoch=at, expected=at), fence)).version[0])
                for at in range(4)
            ]

            state = await stored(store, ORDERS_1)
            assert versions == [1, 2, 3, 4]
            assert state is not None
            assert (state.partition_epoch, state.leader_epoch) == (4, 3)
            assert await stored(store, ORDERS_0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)

    async def test_what_exists_is_not_created_again(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)

            committed = await store.commit(write([ORDERS_0], leader=3, expected=NO_VERSION), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT]
            assert committed.version.tolist() == [NO_VERSION]
            assert await stored(store, ORDERS_0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)

    async def test_what_is_missing_is_not_updated(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)

            committed = await store.commit(write([ORDERS_0], expected=0), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT]
            assert await stored(store, ORDERS_0) is None

    @pytest.mark.parametrize("expected", [0, 2, 70_000])
    async def test_another_version_than_the_stored_one_is_a_conflict(self, stores: Stores, expected: int) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            await store.commit(write([ORDERS_0], leader_epoch=1, expected=0), fence)

            committed = await store.commit(write([ORDERS_0], leader=2, leader_epoch=2, expected=expected), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT]
            assert await stored(store, ORDERS_0) == Leadership(1, 1, (1, 2, 3), 1, fence.epoch)

    async def test_each_row_stands_for_itself(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)
            await store.commit(write([ORDERS_0, ORDERS_2]), fence)
            await store.commit(write([ORDERS_2], leader_epoch=1, expected=0), fence)

            committed = await store.commit(
                write(ALL, leader=2, leader_epoch=9, isr=(2, 3), expected=[0, NO_VERSION, 0]), fence
            )

            assert committed.outcome.tolist() == [Outcome.KEPT, Outcome.KEPT, Outcome.CONFLICT]
            assert committed.version.tolist() == [1, 0, NO_VERSION]
            assert committed.kept.tolist() == [True, True, False]
            assert await stored(store, ORDERS_0) == Leadership(2, 9, (2, 3), 1, fence.epoch)
            assert await stored(store, ORDERS_1) == Leadership(2, 9, (2, 3), 0, fence.epoch)
            assert await stored(store, ORDERS_2) == Leadership(1, 1, (1, 2, 3), 1, fence.epoch)

    async def test_the_leadership_of_a_topic_that_is_not_there_is_not_kept(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            ghost = TopicPartition("ghost", 0)

            committed = await store.commit(write([ORDERS_0, ghost], expected=[0, NO_VERSION]), fence)

            assert committed.kept.tolist() == [True, False]
            assert committed.version.tolist() == [1, NO_VERSION]
            assert await stored(store, ghost) is None
            assert await store.topics() == ["orders"]

    async def test_each_write_carries_the_epoch_of_its_controller(self, stores: Stores) -> None:
        async with stores.open_client() as one, stores.open_client() as other:
            first = await lead(one, controller=1)
            second = await other.contest(2, take_over=True)

            await other.commit(write([ORDERS_1], expected=0), second)

            found = await other.leaderships(Names.of(ALL))
            assert found.controller_epoch.tolist() == [first.epoch, second.epoch, first.epoch]

    async def test_nobody_may_lead_and_a_leader_may_be_recovering(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)

            await store.commit(
                write([ORDERS_0, ORDERS_1], leader=[NO_LEADER, 3], isr=(3,), recovering=[False, True], expected=0), fence
            )

            assert await stored(store, ORDERS_0) == Leadership(NO_LEADER, 0, (3,), 1, fence.epoch)
            assert await stored(store, ORDERS_1) == Leadership(3, 0, (3,), 1, fence.epoch, recovering=True)
            assert LEADER_DURING_DELETE not in (await store.leaderships(Names.of(ALL))).leader

    async def test_a_leader_stops_being_recovering(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            await store.commit(write([ORDERS_0], isr=(1,), recovering=True, expected=0), fence)

            await store.commit(write([ORDERS_0], isr=(1,), recovering=False, expected=1), fence)

            assert await stored(store, ORDERS_0) == Leadership(1, 0, (1,), 2, fence.epoch)

    async def test_the_isr_is_kept_whole_in_whatever_order_and_places(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            change = write([ORDERS_0, ORDERS_1], leader=3, isr=(3, 9, 1, 2, 4), expected=0)
            change.isr[:, 1] = [NO_BROKER, 77, NO_BROKER, 3, NO_BROKER]  # free places between; 77 is not assigned

            await store.commit(change, fence)

            found = await store.leaderships(Names.of([ORDERS_0, ORDERS_1]))
            assert set(found.isr[:, 0].tolist()) - {NO_BROKER} == {1, 2, 3, 4, 9}
            assert set(found.isr[:, 1].tolist()) - {NO_BROKER} == {3, 77}

    async def test_a_shorter_isr_leaves_nothing_of_a_longer_one(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)

            await store.commit(write([ORDERS_0], leader=2, isr=(2,), expected=0), fence)

            state, other = await stored(store, ORDERS_0), await stored(store, ORDERS_1)
            assert state is not None
            assert other is not None
            assert state.isr == (2,)
            assert set(other.isr) == {1, 2, 3}

    async def test_large_numbers_fit(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            top = 2**31 - 1

            await store.commit(write([ORDERS_0], leader=top, leader_epoch=top, isr=(top, 40_000), expected=0), fence)

            state = await stored(store, ORDERS_0)
            assert state is not None
            assert (state.leader, state.leader_epoch, set(state.isr)) == (top, top, {top, 40_000})

    async def test_an_empty_write_and_an_empty_read_are_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)

            committed = await store.commit(write([]), fence)

            assert (len(committed.outcome), len(committed.version)) == (0, 0)
            assert len(await store.leaderships(Names.of([]))) == 0

    async def test_what_is_not_there_is_missing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await lead(store)
            asked = [TopicPartition("orders", 3), ORDERS_1, TopicPartition("ghost", 0), TopicPartition("orders", 5_000)]

            found = await store.leaderships(Names.of(asked))

            assert found.status.tolist() == [Found.MISSING, Found.FOUND, Found.MISSING, Found.MISSING]
            assert found.leader.tolist() == [-1, 1, -1, -1]
            assert found.leader_epoch.tolist() == [-1, 0, -1, -1]
            assert found.partition_epoch.tolist() == [NO_VERSION, 0, NO_VERSION, NO_VERSION]
            assert found.recovering.tolist() == [False] * 4
            assert (found.isr[:, [0, 2, 3]] == NO_BROKER).all()

    async def test_a_large_write_is_kept_row_by_row(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            topics = [TopicRef(f"t{number}") for number in range(5)]
            assignment = {partition: Assignment((1, 2, 3)) for partition in range(1000)}
            for topic in topics:
                await store.create_topic(topic, assignment, {})
            fence = await store.contest(100)
            names = [TopicPartition(topic.name, partition) for partition in range(1000) for topic in topics]
            numbers = np.arange(len(names))
            created = await store.commit(write(names, leader_epoch=cast("list[int]", numbers.tolist())), fence)
            stale = numbers % 7 == 3
            change = write(names, leader=2, leader_epoch=cast("list[int]", (numbers + 1).tolist()), isr=(2, 3))

            change.expected[:] = np.where(stale, 5, 0)
            committed = await store.commit(change, fence)

            found = await store.leaderships(Names.of(names))
            assert created.kept.all()
            assert (committed.kept == ~stale).all()
            assert (committed.version == np.where(stale, NO_VERSION, 1)).all()
            assert (found.leader == np.where(stale, 1, 2)).all()
            assert (found.leader_epoch == np.where(stale, numbers, numbers + 1)).all()
            assert ((found.isr != NO_BROKER).sum(axis=0) == np.where(stale, 3, 2)).all()


class LeaderWriteContract:
    pytestmark = pytest.mark.anyio

    async def test_a_leader_writes_its_isr(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as leader:
            fence = await lead(controller)
            shrunk = Leadership(1, 0, (1, 3), 0, fence.epoch)

            version = await leader.write_isr(ORDERS_0, shrunk, expected=0)

            assert version == 1
            assert await stored(controller, ORDERS_0) == Leadership(1, 0, (1, 3), 1, fence.epoch)

    async def test_a_leader_that_is_behind_writes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as leader:
            fence = await lead(controller)
            await controller.commit(write([ORDERS_0], leader=2, leader_epoch=1, isr=(2,), expected=0), fence)

            version = await leader.write_isr(ORDERS_0, Leadership(1, 0, (1,), 0, fence.epoch), expected=0)

            assert version is None
            assert await stored(leader, ORDERS_0) == Leadership(2, 1, (2,), 1, fence.epoch)

    async def test_a_controller_that_does_not_know_of_a_leaders_write_gets_a_conflict(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as leader:
            fence = await lead(controller)
            await leader.write_isr(ORDERS_0, Leadership(1, 0, (1,), 0, fence.epoch), expected=0)

            committed = await controller.commit(write([ORDERS_0, ORDERS_1], leader=2, expected=0), fence)

            assert committed.outcome.tolist() == [Outcome.CONFLICT, Outcome.KEPT]
            assert await stored(controller, ORDERS_0) == Leadership(1, 0, (1,), 1, fence.epoch)

    async def test_a_leaders_write_is_not_fenced_and_carries_the_epoch_it_was_given(self, stores: Stores) -> None:
        async with stores.open_client() as controller, stores.open_client() as other:
            fence = await lead(controller)
            await other.contest(2, take_over=True)

            version = await controller.write_isr(ORDERS_0, Leadership(1, 0, (1,), 0, fence.epoch), expected=0)

            assert version == 1
            assert await stored(other, ORDERS_0) == Leadership(1, 0, (1,), 1, fence.epoch)


class TopicContract:
    pytestmark = pytest.mark.anyio

    async def test_an_empty_store_has_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            assert await store.topics() == []
            assert await store.brokers() == {}
            assert await store.deletions() == []
            assert await store.isr_notifications() == []
            assert await store.log_dir_notifications() == []
            assert (await store.assignments(["orders"])).topics == ()
            assert (await store.assignments([])).topics == ()

    async def test_a_created_topic_is_read_back(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            moving = Assignment((4, 5, 1, 2), adding=(4, 5), removing=(1, 2))
            await store.create_topic(ORDERS, {0: Assignment((1, 2, 3)), 2: Assignment((3,)), 1: moving}, {"a": "b"})

            assignments = await store.assignments(["orders"])

            assert await store.topics() == ["orders"]
            assert assignments.topics == (ORDERS,)
            assert dict(assignments.items()) == {
                ORDERS_0: Assignment((1, 2, 3)),
                ORDERS_1: moving,
                ORDERS_2: Assignment((3,)),
            }
            assert await store.topic_configs(["orders"]) == {"orders": {"a": "b"}}

    async def test_assignments_of_many_topics_come_as_one(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            wanted = {}
            for number in range(20):
                name = f"t{number:02}"
                assignment = {at: Assignment(tuple(range(1 + number % 4))) for at in range(number % 3 + 1)}
                await store.create_topic(TopicRef(name), assignment, {})
                wanted |= {TopicPartition(name, at): held for at, held in assignment.items()}

            assignments = await store.assignments(await store.topics())

            assert dict(assignments.items()) == wanted
            assert {topic.name for topic in assignments.topics} == {f"t{number:02}" for number in range(20)}
            assert all(topic.id == ZERO_ID for topic in assignments.topics)

    async def test_topics_that_are_gone_are_left_out(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})

            assignments = await store.assignments(["ghost", "orders", "phantom"])

            assert assignments.topics == (ORDERS,)
            assert len(assignments) == 3

    async def test_a_topic_may_have_no_partitions(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, {}, {})

            assignments = await store.assignments(["orders"])

            assert assignments.topics == (ORDERS,)
            assert len(assignments) == 0

    async def test_an_existing_topic_is_left_as_it_is(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "1"})

            with pytest.raises(TopicExists):
                await store.create_topic(TopicRef("orders", bytes(15) + b"x"), {0: Assignment((9,))}, {"a": "2"})

            assert (await store.assignments(["orders"])).topics == (ORDERS,)
            assert len(await store.assignments(["orders"])) == 3
            assert await store.topic_configs(["orders"]) == {"orders": {"a": "1"}}

    @pytest.mark.parametrize("fenced", [True, False])
    async def test_an_assignment_is_replaced(self, stores: Stores, fenced: bool) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            grown = {at: Assignment((3, 2, 1)) for at in range(5)}

            await store.write_assignment(ORDERS, grown, fence if fenced else None)

            assignments = await store.assignments(["orders"])
            assert assignments.topics == (ORDERS,)
            assert dict(assignments.items()) == {TopicPartition("orders", at): held for at, held in grown.items()}
            assert await stored(store, ORDERS_0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)

    async def test_a_topic_that_is_not_there_cannot_be_assigned(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)

            for token in (None, fence):
                with pytest.raises(NotFound):
                    await store.write_assignment(ORDERS, THREE_PARTITIONS, token)

            assert await store.topics() == []

    async def test_new_partitions_can_be_led(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            await store.write_assignment(ORDERS, {at: Assignment((1,)) for at in range(300)}, fence)
            grown = [TopicPartition("orders", at) for at in range(3, 300)]

            committed = await store.commit(write(grown, isr=(1,)), fence)

            assert committed.kept.all()
            assert (await store.leaderships(Names.of(ALL + grown))).found.all()

    async def test_configurations_are_replaced(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "1", "b": "2"})

            await store.set_topic_config("orders", {"unclean.leader.election.enable": "true", "ü": "ö"})

            configs = await store.topic_configs(["orders", "ghost"])
            assert configs == {"orders": {"unclean.leader.election.enable": "true", "ü": "ö"}, "ghost": {}}

    async def test_topics_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            ear = Ear(watching)
            await watching.topics()

            for at, name in enumerate(["one", "two"], 1):
                await admin.create_topic(TopicRef(name), THREE_PARTITIONS, {})

                await ear.hear(Changed.TOPICS)
                assert len(await watching.topics()) == at

    async def test_changed_assignments_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            ear = Ear(watching)
            await admin.create_topic(ORDERS, THREE_PARTITIONS, {})
            await watching.assignments(["orders"])

            for count in (4, 5):
                await admin.write_assignment(ORDERS, {at: Assignment((1,)) for at in range(count)}, None)

                await ear.hear(Changed.TOPIC, "orders")
                assert len(await watching.assignments(["orders"])) == count

    async def test_ones_own_changes_are_reported_as_well(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            ear = Ear(store)
            await store.topics()

            await store.create_topic(ORDERS, THREE_PARTITIONS, {})

            await ear.hear(Changed.TOPICS)


class BrokerContract:
    pytestmark = pytest.mark.anyio

    async def test_a_registered_broker_is_read_back(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            session = await store.new_session(SESSION_MS)

            epoch = await session.register(broker(3, epoch=99))

            for client in (store, other):
                assert await client.brokers() == {3: broker(3, epoch=epoch)}
                assert await client.broker(3) == broker(3, epoch=epoch)
                assert await client.broker(4) is None
            assert session.timeout_ms > 0

    async def test_broker_epochs_only_rise(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            epochs = []
            for number in (1, 2, 1, 1):
                session = await store.new_session(SESSION_MS)
                epochs.append(await session.register(broker(number)))
                await session.close()

            assert epochs == sorted(set(epochs))
            assert epochs[0] >= 0

    async def test_a_broker_id_is_taken_while_its_session_lives(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            first, second = await store.new_session(SESSION_MS), await other.new_session(SESSION_MS)
            epoch = await first.register(broker(1))

            with pytest.raises(BrokerIdTaken):
                await second.register(broker(1, rack="elsewhere"))

            assert await other.brokers() == {1: broker(1, epoch=epoch)}
            await first.close()
            assert await second.register(broker(1)) > epoch

    async def test_a_closed_sessions_registration_is_gone_at_once(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session, staying = await store.new_session(SESSION_MS), await store.new_session(SESSION_MS)
            await session.register(broker(1))
            epoch = await staying.register(broker(2))

            await session.close()

            assert await store.brokers() == {2: broker(2, epoch=epoch)}
            with pytest.raises(SessionExpired):
                await session.keep_alive()
            with pytest.raises(SessionExpired):
                await session.register(broker(1))

    async def test_closing_twice_is_closing_once(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)

            await session.close()
            await session.close()

            assert await store.brokers() == {}

    async def test_a_registration_ends_when_its_session_expires(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            ear = Ear(store)
            session = await store.new_session(SESSION_MS)
            await session.register(broker(1))
            assert list(await store.brokers()) == [1]

            await stores.expire_session(session)

            await ear.hear(Changed.BROKERS)
            assert await store.brokers() == {}
            with pytest.raises(SessionExpired):
                await session.keep_alive()
            with pytest.raises(SessionExpired):
                await session.register(broker(1))

    async def test_a_session_that_is_kept_alive_stays(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)
            epoch = await session.register(broker(1))

            await session.keep_alive()

            assert await store.brokers() == {1: broker(1, epoch=epoch)}

    async def test_coming_and_going_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as other:
            ear = Ear(watching)
            await watching.brokers()

            session = await other.new_session(SESSION_MS)
            await session.register(broker(1))
            await ear.hear(Changed.BROKERS)
            assert list(await watching.brokers()) == [1]
            await session.close()

            await ear.hear(Changed.BROKERS)
            assert await watching.brokers() == {}

    async def test_a_brokers_session_is_not_its_clients(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            ear = Ear(store)
            session = await store.new_session(SESSION_MS)
            epoch = await session.register(broker(1))
            fence = await store.contest(100)
            await store.controller()

            await session.close()
            assert await store.controller() is not None
            again = await store.new_session(SESSION_MS)
            epoch = await again.register(broker(1))
            await store.resign(fence)

            await ear.hear(Changed.CONTROLLER_GONE)
            assert await store.brokers() == {1: broker(1, epoch=epoch)}

    async def test_endpoints_rack_and_features_are_kept(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)
            plain = broker(1, rack=None)
            await session.register(plain)

            found = await store.broker(1)

            assert found is not None
            assert (found.endpoints, found.rack) == (plain.endpoints, None)


class NotificationContract:
    pytestmark = pytest.mark.anyio

    async def test_isr_notifications_stand_until_they_are_taken_away(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as leader:
            fence = await lead(store)
            await leader.notify_isr([ORDERS_0, ORDERS_2])
            await leader.notify_isr([ORDERS_1])

            standing = await store.isr_notifications()
            await store.delete_notifications(standing[:1], fence)

            assert [one.partitions for one in standing] == [(ORDERS_0, ORDERS_2), (ORDERS_1,)]
            assert all(one.broker == NO_BROKER for one in standing)
            assert await store.isr_notifications() == standing[1:]
            assert await leader.isr_notifications() == standing[1:]

    async def test_log_dir_notifications_stand_until_they_are_taken_away(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as participant:
            fence = await store.contest(100)
            await participant.notify_log_dir(3)
            await participant.notify_log_dir(3)

            standing = await store.log_dir_notifications()
            await store.delete_notifications(standing, fence)

            assert [one.broker for one in standing] == [3, 3]
            assert len({one.key for one in standing}) == 2
            assert await store.log_dir_notifications() == []

    async def test_what_is_gone_already_is_passed_over(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            await store.notify_isr([ORDERS_0])
            standing = await store.isr_notifications()
            await store.delete_notifications(standing, fence)
            await store.notify_isr([ORDERS_1])

            await store.delete_notifications(standing, fence)
            await store.delete_notifications([], fence)

            assert [one.partitions for one in await store.isr_notifications()] == [(ORDERS_1,)]

    async def test_both_kinds_stand_apart(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store)
            await store.notify_isr([ORDERS_0])
            await store.notify_log_dir(2)

            await store.delete_notifications(await store.log_dir_notifications(), fence)

            assert [one.partitions for one in await store.isr_notifications()] == [(ORDERS_0,)]
            assert await store.log_dir_notifications() == []

    async def test_notifications_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as leader:
            ear = Ear(store)
            fence = await lead(store)
            for count in (1, 2):
                await store.isr_notifications()
                await store.log_dir_notifications()

                await leader.notify_isr([ORDERS_0])
                await ear.hear(Changed.ISR_NOTIFICATIONS)
                await leader.notify_log_dir(1)
                await ear.hear(Changed.LOG_DIR_NOTIFICATIONS)

                assert len(await store.isr_notifications()) == count
            await store.delete_notifications(await store.isr_notifications(), fence)


class StoreContract(
    ControllershipContract,
    FencingContract,
    LeadershipContract,
    LeaderWriteContract,
    TopicContract,
    BrokerContract,
    NotificationContract,
):
    """All of it."""
