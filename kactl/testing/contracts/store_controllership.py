"""The store contract: elections, fences, and the end of a controllership."""

import pytest

from kactl.model import (
    Assignment,
    Leadership,
    TopicPartition,
)
from kactl.model.errors import ControllerMoved
from kactl.stores.base import Changed, Names

from .store_support import (
    ALL,
    ORDERS,
    ORDERS_0,
    THREE_PARTITIONS,
    EventRecorder,
    Stores,
    create_and_lead,
    new_write,
    stored_leadership,
)


class ControllershipContract:
    pytestmark = pytest.mark.anyio

    async def test_new_store_has_no_controller(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            assert await store.controller() is None

    async def test_first_epoch_is_one(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(7)

            held = await store.controller()
            assert fence.epoch == 1
            assert held is not None
            assert (held.id, held.epoch) == (7, 1)
            assert held.since_ms >= 0

    async def test_record_has_the_address_of_its_controller(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            await store.contest(7, address="10.0.0.1:7373")
            held = await other.controller()
            assert held is not None
            assert (held.id, held.address) == (7, "10.0.0.1:7373")

            await other.contest(8, take_over=True)
            held = await store.controller()
            assert held is not None
            assert (held.id, held.address) == (8, "")

    async def test_lost_contest_changes_nothing(self, stores: Stores) -> None:
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

    async def test_takeover_fences_the_previous_controller(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await create_and_lead(old, controller=1)

            fence = await new.contest(2, take_over=True)

            held = await old.controller()
            assert fence.epoch == old_fence.epoch + 1
            assert held is not None
            assert (held.id, held.epoch) == (2, fence.epoch)
            with pytest.raises(ControllerMoved):
                await old.commit(new_write([ORDERS_0], leader=2, expected=0), old_fence)
            with pytest.raises(ControllerMoved):
                await old.resign(old_fence)
            assert await new.controller() == held

    async def test_takeover_without_a_controller_is_an_election(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1, take_over=True)

            assert fence.epoch == 1

    async def test_resignation_keeps_the_epoch(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)

            await store.resign(fence)

            assert await store.controller() is None
            assert (await store.contest(1)).epoch == 2

    async def test_closing_the_client_ends_its_controllership(self, stores: Stores) -> None:
        async with stores.open_client() as next_one:
            recorder = EventRecorder(next_one)
            async with stores.open_client() as holder:
                await holder.contest(1)
                assert await next_one.controller() is not None

            await recorder.wait_for(Changed.CONTROLLER_GONE)
            assert await next_one.controller() is None
            assert (await next_one.contest(2)).epoch == 2

    async def test_election_and_resignation_are_reported_to_other_clients(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as holder:
            recorder = EventRecorder(watching)
            await watching.controller()

            fence = await holder.contest(1)
            await recorder.wait_for(Changed.CONTROLLER)
            assert await watching.controller() is not None
            await holder.resign(fence)

            await recorder.wait_for(Changed.CONTROLLER_GONE)
            assert await watching.controller() is None

    async def test_takeover_is_reported_to_the_previous_controller(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            recorder = EventRecorder(old)
            await old.contest(1)
            await old.controller()

            await new.contest(2, take_over=True)

            # A store with a two-step takeover may report the first step alone.
            while (held := await old.controller()) is None or held.id != 2:
                await recorder.wait_for(Changed.CONTROLLER)
            assert held.epoch == 2

    async def test_controllership_ends_with_the_session(self, stores: Stores) -> None:
        async with stores.open_client() as holder, stores.open_client() as next_one:
            own_ear, recorder = EventRecorder(holder), EventRecorder(next_one)
            old_fence = await create_and_lead(holder, controller=1)
            await next_one.controller()

            await stores.expire(holder)

            await recorder.wait_for(Changed.CONTROLLER_GONE)
            fence = await next_one.contest(2)
            assert fence.epoch == old_fence.epoch + 1
            await own_ear.wait_for(Changed.SESSION_LOST)
            await own_ear.wait_for(Changed.SESSION_OPENED)
            with pytest.raises(ControllerMoved):
                await holder.commit(new_write([ORDERS_0], leader=2, expected=0), old_fence)
            assert (await stored_leadership(holder, ORDERS_0)) == Leadership(1, 0, (1, 2, 3), 0, old_fence.epoch)

    async def test_client_opens_a_new_session_after_a_loss(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            recorder = EventRecorder(store)
            fence = await store.contest(1)
            await stores.expire(store)
            await recorder.wait_for(Changed.SESSION_LOST)
            await recorder.wait_for(Changed.SESSION_OPENED)

            again = await store.contest(1)

            assert again.epoch == fence.epoch + 1
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            assert (await store.commit(new_write(ALL), again)).committed.all()


class FencingContract:
    pytestmark = pytest.mark.anyio

    async def test_stale_fence_cannot_commit(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await create_and_lead(old, controller=1)
            await new.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await old.commit(new_write(ALL, leader=2, leader_epoch=1, expected=0), old_fence)

            found = await new.leaderships(Names.of(ALL))
            assert [found.one(at) for at in range(3)] == [Leadership(1, 0, (1, 2, 3), 0, old_fence.epoch)] * 3

    async def test_stale_fence_cannot_create_leadership(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            await old.create_topic(ORDERS, THREE_PARTITIONS, {})
            old_fence = await old.contest(1)
            await new.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await old.commit(new_write(ALL), old_fence)

            assert not (await new.leaderships(Names.of(ALL))).found.any()

    async def test_stale_fence_cannot_write_assignments(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await create_and_lead(old, controller=1)
            await new.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await old.write_assignment(ORDERS, {0: Assignment((9,))}, old_fence)

            assert dict((await new.assignments(["orders"])).items()) == {
                TopicPartition("orders", at): assignment for at, assignment in THREE_PARTITIONS.items()
            }

    async def test_stale_fence_cannot_delete_notifications(self, stores: Stores) -> None:
        async with stores.open_client() as old, stores.open_client() as new:
            old_fence = await create_and_lead(old, controller=1)
            await old.notify_isr([ORDERS_0])
            await old.notify_log_dir(3)
            await new.contest(2, take_over=True)

            for standing in (await old.isr_notifications(), await old.log_dir_notifications()):
                with pytest.raises(ControllerMoved):
                    await old.delete_notifications(standing, old_fence)

            assert len(await new.isr_notifications()) == 1
            assert len(await new.log_dir_notifications()) == 1

    async def test_reelected_controller_is_fenced_by_its_later_epoch(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            first = await create_and_lead(store)
            second = await store.contest(100, take_over=True)

            with pytest.raises(ControllerMoved):
                await store.commit(new_write([ORDERS_0], expected=0), first)

            assert (await store.commit(new_write([ORDERS_0], expected=0), second)).version.tolist() == [1]
