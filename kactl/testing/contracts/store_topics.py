"""The store contract: topics, their assignments and their configurations."""

import pytest

from kactl.model import (
    ZERO_ID,
    Assignment,
    Leadership,
    TopicPartition,
    TopicRef,
    ownership_id,
)
from kactl.model.errors import NotFound, TopicExists
from kactl.stores.base import Changed, Names

from .store_support import (
    ALL,
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    ORDERS_2,
    THREE_PARTITIONS,
    EventRecorder,
    Stores,
    create_and_lead,
    delete_topic,
    new_write,
    stored_leadership,
)


class TopicContract:
    pytestmark = pytest.mark.anyio

    async def test_new_store_has_no_topics(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            assert await store.topics() == []
            assert await store.brokers() == {}
            assert await store.deletions() == []
            assert await store.isr_notifications() == []
            assert await store.log_dir_notifications() == []
            assert (await store.assignments(["orders"])).topics == ()
            assert (await store.assignments([])).topics == ()
            assert await store.default_config() == {}

    async def test_created_topic_is_read_back(self, stores: Stores) -> None:
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

    async def test_assignments_of_many_topics_are_joined(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            wanted: dict[TopicPartition, Assignment] = {}
            for number in range(20):
                name = f"t{number:02}"
                assignment = {at: Assignment(tuple(range(1 + number % 4))) for at in range(number % 3 + 1)}
                await store.create_topic(TopicRef(name), assignment, {})
                wanted |= {TopicPartition(name, at): held for at, held in assignment.items()}

            assignments = await store.assignments(await store.topics())

            assert dict(assignments.items()) == wanted
            assert {topic.name for topic in assignments.topics} == {f"t{number:02}" for number in range(20)}
            assert all(topic.id == ZERO_ID for topic in assignments.topics)

    async def test_missing_topics_are_left_out(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})

            assignments = await store.assignments(["ghost", "orders", "phantom"])

            assert assignments.topics == (ORDERS,)
            assert len(assignments) == 3

    async def test_topic_may_have_no_partitions(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, {}, {})

            assignments = await store.assignments(["orders"])

            assert assignments.topics == (ORDERS,)
            assert len(assignments) == 0

    async def test_creating_an_existing_topic_changes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "1"})

            with pytest.raises(TopicExists):
                await store.create_topic(TopicRef("orders", bytes(15) + b"x"), {0: Assignment((9,))}, {"a": "2"})

            assert (await store.assignments(["orders"])).topics == (ORDERS,)
            assert len(await store.assignments(["orders"])) == 3
            assert await store.topic_configs(["orders"]) == {"orders": {"a": "1"}}

    @pytest.mark.parametrize("fenced", [True, False])
    async def test_assignment_is_replaced(self, stores: Stores, fenced: bool) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            grown = {at: Assignment((3, 2, 1)) for at in range(5)}

            await store.write_assignment(ORDERS, grown, fence if fenced else None)

            assignments = await store.assignments(["orders"])
            assert assignments.topics == (ORDERS,)
            assert dict(assignments.items()) == {TopicPartition("orders", at): held for at, held in grown.items()}
            assert await stored_leadership(store, ORDERS_0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)

    @pytest.mark.parametrize("fenced", [True, False])
    async def test_assignment_without_an_id_keeps_the_id(self, stores: Stores, fenced: bool) -> None:
        """Written by a tool without topic ids, or one that read the topic before it had an id."""
        async with stores.open_client() as store:
            fence = await create_and_lead(store)

            await store.write_assignment(TopicRef("orders"), {0: Assignment((9,))}, fence if fenced else None)

            assignments = await store.assignments(["orders"])
            assert assignments.topics == (ORDERS,)
            assert dict(assignments.items()) == {ORDERS_0: Assignment((9,))}

    async def test_assigning_a_missing_topic_is_rejected(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)

            for token in (None, fence):
                with pytest.raises(NotFound):
                    await store.write_assignment(ORDERS, THREE_PARTITIONS, token)

            assert await store.topics() == []

    @pytest.mark.parametrize("fenced", [True, False])
    async def test_assignment_of_an_earlier_topic_of_that_name_is_not_written(
        self, stores: Stores, fenced: bool
    ) -> None:
        """The topic was deleted and created again, by other clients, since it was read."""
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await create_and_lead(store)
            await store.assignments(["orders"])
            later = TopicRef("orders", bytes(15) + b"x")
            await delete_topic(other, "orders", fence, [0, 1, 2])
            await other.create_topic(later, {0: Assignment((9,))}, {})

            with pytest.raises(NotFound):
                await store.write_assignment(ORDERS, THREE_PARTITIONS, fence if fenced else None)

            assert (await store.assignments(["orders"])).topics == (later,)
            with pytest.raises(NotFound):
                await store.write_assignment(ORDERS, THREE_PARTITIONS, fence if fenced else None)
            stored = await store.assignments(["orders"])
            assert stored.topics == (later,)
            assert dict(stored.items()) == {ORDERS_0: Assignment((9,))}

    @pytest.mark.parametrize("fenced", [True, False])
    async def test_topic_without_an_id_is_given_one(self, stores: Stores, fenced: bool) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            await store.create_topic(TopicRef("orders"), THREE_PARTITIONS, {})
            fence = await store.contest(1)
            await other.assignments(["orders"])

            await store.write_assignment(ORDERS, {0: Assignment((1,))}, fence if fenced else None)
            await other.write_assignment(ORDERS, {0: Assignment((2,))}, fence if fenced else None)

            stored = await other.assignments(["orders"])
            assert stored.topics == (ORDERS,)
            assert dict(stored.items()) == {ORDERS_0: Assignment((2,))}

    async def test_new_partitions_can_be_led(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            await store.write_assignment(ORDERS, {at: Assignment((1,)) for at in range(300)}, fence)
            grown = [TopicPartition("orders", at) for at in range(3, 300)]

            committed = await store.commit(new_write(grown, isr=(1,)), fence)

            assert committed.committed.all()
            assert (await store.leaderships(Names.of(ALL + grown))).found.all()

    async def test_partitions_without_replicas_can_be_led(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            ref = TopicRef("jobs", ownership_id(bytes(range(16))))
            await store.create_topic(ref, {0: Assignment(), 1: Assignment()}, {"ownership.standby": "1"})
            fence = await store.contest(100)
            jobs = [TopicPartition("jobs", 0), TopicPartition("jobs", 1)]
            await store.commit(new_write(jobs, leader=2, isr=(2, 1)), fence)

            found = await other.assignments(["jobs"])

            assert found.topics == (ref,)
            assert ref.is_ownership
            assert dict(found.items()) == dict.fromkeys(jobs, Assignment())
            led = await other.leaderships(Names.of(jobs))
            assert led.leader.tolist() == [2, 2]
            assert led.isr.T.tolist() == [[2, 1], [2, 1]]
            await store.write_assignment(ref, dict.fromkeys(range(3), Assignment()), fence)
            assert (await other.assignments(["jobs"])).partition.tolist() == [0, 1, 2]

    async def test_configurations_are_replaced(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "1", "b": "2"})

            await store.set_topic_config("orders", {"unclean.leader.election.enable": "true", "ü": "ö"})

            configs = await store.topic_configs(["orders", "ghost"])
            assert configs == {"orders": {"unclean.leader.election.enable": "true", "ü": "ö"}, "ghost": {}}

    async def test_default_config_is_replaced_and_separate_from_topics(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "1"})

            for config in ({"a": "2", "b": "3"}, {"unclean.leader.election.enable": "true", "ü": "ö"}, {}, {"c": "4"}):
                await store.set_default_config(config)

                assert await store.default_config() == config
                assert await other.default_config() == config
            assert await other.topic_configs(["orders", "ghost"]) == {"orders": {"a": "1"}, "ghost": {}}
            assert await other.topics() == ["orders"]

    async def test_default_config_outlives_its_client(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.set_default_config({"a": "1"})

        async with stores.open_client() as store:
            assert await store.default_config() == {"a": "1"}

    async def test_changed_default_config_is_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            recorder = EventRecorder(watching)
            await watching.default_config()

            for config in ({"a": "1"}, {"a": "2"}, {}):
                await admin.set_default_config(config)

                await recorder.wait_for(Changed.DEFAULT_CONFIG)
                assert await watching.default_config() == config

            await watching.set_default_config({"a": "3"})

            await recorder.wait_for(Changed.DEFAULT_CONFIG)

    async def test_topics_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            recorder = EventRecorder(watching)
            await watching.topics()

            for at, name in enumerate(["one", "two"], 1):
                await admin.create_topic(TopicRef(name), THREE_PARTITIONS, {})

                await recorder.wait_for(Changed.TOPICS)
                assert len(await watching.topics()) == at

    async def test_changed_assignments_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            recorder = EventRecorder(watching)
            await admin.create_topic(ORDERS, THREE_PARTITIONS, {})
            await watching.assignments(["orders"])

            for count in (4, 5):
                await admin.write_assignment(ORDERS, {at: Assignment((1,)) for at in range(count)}, None)

                await recorder.wait_for(Changed.TOPIC, "orders")
                assert len(await watching.assignments(["orders"])) == count

    async def test_own_changes_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            recorder = EventRecorder(store)
            await store.topics()

            await store.create_topic(ORDERS, THREE_PARTITIONS, {})

            await recorder.wait_for(Changed.TOPICS)
