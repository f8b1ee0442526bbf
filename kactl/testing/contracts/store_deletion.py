"""The store contract: topics that are marked for deletion, deleted, and created again."""

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.model.errors import BeingDeleted, ControllerMoved
from kactl.stores.base import Changed, Names, Store

from .store_support import (
    ALL,
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    THREE_PARTITIONS,
    WAIT_S,
    EventRecorder,
    Stores,
    create_and_lead,
    delete_topic,
    new_write,
    stored_leadership,
)


async def wait_for_topics(store: Store, recorder: EventRecorder, *names: str) -> list[str]:
    """Returns the topics once they are equal to `names`; reads again after each event."""
    with anyio.fail_after(WAIT_S):
        while (topics := await store.topics()) != sorted(names):
            await recorder.wait_for(Changed.TOPICS)
    return topics


class DeletionContract:
    pytestmark = pytest.mark.anyio

    async def test_deletion_mark_is_read_back_and_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            recorder = EventRecorder(watching)
            assert await watching.deletions() == []

            for name, marked in (("orders", ["orders"]), ("a", ["a", "orders"])):
                await admin.mark_deletion(name)

                await recorder.wait_for(Changed.DELETIONS)
                assert await watching.deletions() == marked

    async def test_marking_a_topic_twice_is_rejected(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.mark_deletion("orders")

            with pytest.raises(BeingDeleted):
                await store.mark_deletion("orders")

            assert await store.deletions() == ["orders"]

    async def test_deletion_mark_deletes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            await store.mark_deletion("orders")

            assert await store.topics() == ["orders"]
            assert await stored_leadership(store, ORDERS_0) is not None
            assert (
                await store.commit(new_write([ORDERS_0], leader=2, leader_epoch=1, expected=0), fence)
            ).committed.all()

    async def test_unmarking_removes_only_marks(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            for name in ("orders", "a", "b"):
                await store.mark_deletion(name)

            await store.unmark_deletions(["orders", "b", "never marked"], fence)
            await store.unmark_deletions([], fence)

            assert await store.deletions() == ["a"]
            assert await store.topics() == ["orders"]
            await store.mark_deletion("orders")  # it can be marked again
            assert await store.deletions() == ["a", "orders"]

    async def test_deletion_removes_everything_of_a_topic(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(store)
            await store.set_topic_config("orders", {"a": "b"})
            await store.create_topic(TopicRef("other"), THREE_PARTITIONS, {"c": "d"})
            other_0 = TopicPartition("other", 0)
            await store.commit(new_write([other_0], leader=2), fence)
            await store.mark_deletion("orders")
            await store.mark_deletion("other")

            await delete_topic(store, "orders", fence)

            for client in (store, other):
                assert await client.topics() == ["other"]
                assert await client.deletions() == ["other"]
                assert [topic.name for topic in (await client.assignments(["orders", "other"])).topics] == ["other"]
                assert await client.topic_configs(["orders", "other"]) == {"orders": {}, "other": {"c": "d"}}
                assert not (await client.leaderships(Names.of(ALL))).found.any()
                assert await client.partitions_begun("orders") == []
                found = await stored_leadership(client, other_0)
                assert found is not None
                assert found.leader == 2

    async def test_only_the_given_topics_are_deleted(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(store)
            names = [f"t{number}" for number in range(40)]
            for name in (*names, "other"):
                await store.create_topic(TopicRef(name), THREE_PARTITIONS, {"a": "b"})
                await store.mark_deletion(name)
            begun = [TopicPartition(name, at) for name in (*names, "other") for at in range(3)]
            assert (await store.commit(new_write(begun), fence)).committed.all()

            failed = await store.delete_topics({name: np.arange(3, dtype=np.int32) for name in names}, fence)

            assert failed == {}
            for client in (store, other):
                assert await client.topics() == ["orders", "other"]
                assert await client.deletions() == ["other"]
                assert await client.topic_configs(["t7", "other"]) == {"t7": {}, "other": {"a": "b"}}
                found = (await client.leaderships(Names.of([*begun, ORDERS_0]))).found.tolist()
                assert found == [name.topic == "other" for name in begun] + [True]

    @pytest.mark.parametrize("told", [(), (0,), (1, 2), (0, 1, 2), (0, 1, 2, 3, 70), (5,)])
    async def test_topic_is_deleted_whole_whatever_partitions_are_given(
        self, stores: Stores, told: tuple[int, ...]
    ) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            for name in ("more", "ghost"):
                await store.create_topic(TopicRef(name), {at: Assignment((1,)) for at in range(4)}, {})
            await store.commit(new_write([TopicPartition("more", at) for at in range(4)], isr=(1,)), fence)
            for name in ("orders", "more", "ghost", "never created"):
                await store.mark_deletion(name)
            thought = np.array(told, np.int32)

            failed = await store.delete_topics(dict.fromkeys(await store.deletions(), thought), fence)

            assert failed == {}
            assert await store.topics() == await store.deletions() == []
            assert not (await store.leaderships(Names.of(ALL))).found.any()
            assert await store.partitions_begun("more") == []

    async def test_deleting_no_topics_deletes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            assert await store.delete_topics({}, fence) == {}

            assert await store.topics() == ["orders"]

    async def test_deleting_missing_topics_is_skipped(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            await store.mark_deletion("orders")
            await store.mark_deletion("never created")

            for name in ("orders", "orders", "never created", "never marked"):
                await delete_topic(store, name, fence)

            assert await store.topics() == []
            assert await store.deletions() == []

    async def test_topic_without_leadership_is_deleted(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "b"})
            await store.create_topic(TopicRef("empty"), {}, {})
            await store.mark_deletion("orders")

            await delete_topic(store, "orders", fence)
            await delete_topic(store, "empty", fence)

            assert await store.topics() == []
            assert await store.deletions() == []

    async def test_deposed_controller_cannot_delete(self, stores: Stores) -> None:
        async with stores.open_client() as deposed, stores.open_client() as later:
            old = await create_and_lead(deposed)
            await deposed.mark_deletion("orders")
            await deposed.check(old)
            new = await later.contest(2, take_over=True)
            await later.check(new)

            with pytest.raises(ControllerMoved):
                await deposed.check(old)
            with pytest.raises(ControllerMoved):
                await delete_topic(deposed, "orders", old)
            with pytest.raises(ControllerMoved):
                await deposed.unmark_deletions(["orders"], old)

            assert await later.topics() == ["orders"]
            assert await later.deletions() == ["orders"]
            assert len(await later.assignments(["orders"])) == 3
            assert (await later.leaderships(Names.of(ALL))).found.all()

    async def test_deletion_is_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as controller:
            fence = await create_and_lead(controller)
            await controller.mark_deletion("orders")
            recorder = EventRecorder(watching)
            await watching.topics()
            await watching.deletions()

            await delete_topic(controller, "orders", fence)

            await recorder.wait_for(Changed.DELETIONS)  # the mark goes last
            assert await watching.topics() == []
            assert await watching.deletions() == []

    async def test_partitions_with_stored_state_are_listed(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)
            await store.create_topic(ORDERS, {at: Assignment((1,)) for at in range(12)}, {})
            assert await store.partitions_begun("orders") == []
            assert await store.partitions_begun("ghost") == []

            await store.commit(new_write([TopicPartition("orders", at) for at in (10, 2, 0)], isr=(1,)), fence)

            assert await store.partitions_begun("orders") == [0, 2, 10]

    async def test_name_of_a_deleted_topic_can_be_reused(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(store)
            assert await stored_leadership(other, ORDERS_0) is not None
            await store.commit(new_write([ORDERS_0], leader=2, leader_epoch=7, expected=0), fence)
            await delete_topic(store, "orders", fence)
            again = TopicRef("orders", bytes(15) + b"2")

            await other.create_topic(again, {0: Assignment((5, 6))}, {})
            committed = await store.commit(new_write([ORDERS_0], leader=5, isr=(5, 6)), fence)

            assert committed.version.tolist() == [0]
            for client in (store, other):
                assert dict((await client.assignments(["orders"])).items()) == {ORDERS_0: Assignment((5, 6))}
                assert (await client.assignments(["orders"])).topics == (again,)
                found = await stored_leadership(client, ORDERS_0)
                assert found is not None
                assert (found.leader, found.leader_epoch) == (5, 0)
                assert await stored_leadership(client, ORDERS_1) is None

    async def test_many_partitions_are_deleted(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)
            many = [TopicPartition("orders", at) for at in range(1_234)]
            await store.create_topic(ORDERS, {name.partition: Assignment((1, 2)) for name in many}, {})
            assert (await store.commit(new_write(many, isr=(1, 2)), fence)).committed.all()

            await delete_topic(store, "orders", fence)

            assert await store.topics() == []
            assert not (await store.leaderships(Names.of(many))).found.any()

    async def test_recreation_between_two_reads_is_recorded_as_deletion(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as other:
            fence = await create_and_lead(other)
            await other.create_topic(TopicRef("other"), THREE_PARTITIONS, {})
            recorder = EventRecorder(watching)
            await watching.assignments(await watching.topics())

            await delete_topic(other, "orders", fence)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})

            await recorder.wait_for(Changed.TOPICS)
            assert await wait_for_topics(watching, recorder, "orders", "other") == ["orders", "other"]
            assert watching.take_deleted_topics() == {"orders"}
            assert await watching.topics() == ["orders", "other"]
            assert watching.take_deleted_topics() == frozenset()

    async def test_deleted_topics_are_recorded_until_taken(self, stores: Stores) -> None:
        """The responses to any number of reads may be lost."""
        async with stores.open_client() as watching, stores.open_client() as other:
            fence = await create_and_lead(other)
            recorder = EventRecorder(watching)
            await watching.assignments(await watching.topics())

            await delete_topic(other, "orders", fence)
            await recorder.wait_for(Changed.TOPICS)
            await wait_for_topics(watching, recorder)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})
            await recorder.wait_for(Changed.TOPICS)
            await wait_for_topics(watching, recorder, "orders")
            await watching.assignments(["orders"])
            await watching.topics()

            assert watching.take_deleted_topics() == {"orders"}
            assert watching.take_deleted_topics() == frozenset()

    async def test_topic_read_after_its_recreation_is_recorded(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as other:
            fence = await create_and_lead(other)
            recorder = EventRecorder(watching)
            await watching.assignments(await watching.topics())
            await delete_topic(other, "orders", fence)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})

            await watching.assignments(["orders"])
            await recorder.wait_for(Changed.TOPICS)
            await watching.topics()

            assert watching.take_deleted_topics() == {"orders"}

    @pytest.mark.parametrize("turns", [1, 3, 10])
    async def test_abandoned_listing_hides_no_deletion(self, stores: Stores, turns: int) -> None:
        """The response to a cancelled call is lost, however far the call has come."""
        async with stores.open_client() as watching, stores.open_client() as other:
            fence = await create_and_lead(other)
            EventRecorder(watching)
            await watching.assignments(await watching.topics())
            await delete_topic(other, "orders", fence)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watching.topics)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            await watching.topics()

            assert watching.take_deleted_topics() == {"orders"}

    async def test_existing_topics_are_not_recorded_as_deleted(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as other:
            await create_and_lead(other)
            recorder = EventRecorder(watching)
            await watching.assignments(await watching.topics())
            await other.create_topic(TopicRef("other"), THREE_PARTITIONS, {})
            await other.write_assignment(ORDERS, {0: Assignment((9,))}, None)
            await recorder.wait_for(Changed.TOPICS)
            await watching.assignments(await watching.topics())

            assert watching.take_deleted_topics() == frozenset()

    async def test_client_without_listener_lists_existing_topics(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(other)
            assert await store.topics() == ["orders"]
            await delete_topic(other, "orders", fence)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})

            assert await store.topics() == ["orders"]

    async def test_recreation_after_an_election_is_recorded(self, stores: Stores) -> None:
        """A new controller may know a topic from what it read as a standby."""
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(other)
            recorder = EventRecorder(store)
            await store.assignments(await store.topics())
            fence = await store.contest(2, take_over=True)

            await delete_topic(other, "orders", fence)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})

            await recorder.wait_for(Changed.TOPICS)
            assert await wait_for_topics(store, recorder, "orders") == ["orders"]
            assert store.take_deleted_topics() == {"orders"}

    async def test_election_keeps_recorded_deletions(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(other)
            recorder = EventRecorder(store)
            await store.assignments(await store.topics())
            await delete_topic(other, "orders", fence)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})

            await store.contest(2, take_over=True)

            await recorder.wait_for(Changed.TOPICS)
            assert await wait_for_topics(store, recorder, "orders") == ["orders"]
            assert store.take_deleted_topics() == {"orders"}

    async def test_own_deletions_are_not_recorded(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(store)
            EventRecorder(store)
            await store.assignments(await store.topics())
            await delete_topic(store, "orders", fence)

            await other.create_topic(ORDERS, THREE_PARTITIONS, {})

            assert await store.topics() == ["orders"]
            assert store.take_deleted_topics() == frozenset()
