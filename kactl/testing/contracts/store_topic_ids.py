"""The store contract: topic ids that are written back, and their copies."""

import pytest

from kactl.model import Assignment, Fence, Leadership, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved
from kactl.stores.base import Store

from .store_support import ALL, ORDERS, ORDERS_0, THREE_PARTITIONS, Stores, delete_topic, new_write, stored_leadership

NAMELESS = TopicRef("orders")
OTHER = TopicRef("orders", bytes(15) + b"x")


async def lead(store: Store, topic: TopicRef) -> Fence:
    """Create a topic with leadership, as it is at protocol levels without ids."""
    await store.create_topic(topic, THREE_PARTITIONS, {})
    fence = await store.contest(100)
    await store.assignments([topic.name])
    await store.commit(new_write(ALL), fence)
    return fence


class TopicIdContract:
    pytestmark = pytest.mark.anyio

    @pytest.mark.parametrize("stored", [NAMELESS, OTHER], ids=["no id", "another id"])
    async def test_id_is_written_into_an_entry_as_it_is_stored(self, stores: Stores, stored: TopicRef) -> None:
        async with stores.open_client() as store, stores.open_client() as tool:
            fence = await lead(store, stored)
            grown = {at: Assignment((3, 2, 1)) for at in range(5)}
            await tool.write_assignment(stored, grown, None)

            await store.write_topic_ids([ORDERS], fence)

            assignments = await store.assignments(["orders"])
            assert assignments.topics == (ORDERS,)
            assert dict(assignments.items()) == {TopicPartition("orders", at): held for at, held in grown.items()}
            assert await tool.topic_id_copies(["orders", "ghost"]) == {"orders": ORDERS.id}
            assert await stored_leadership(store, ORDERS_0) == Leadership(1, 0, (1, 2, 3), 0, fence.epoch)

    async def test_copy_alone_leaves_the_entry_unchanged(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await lead(store, NAMELESS)
            assert await store.topic_id_copies(["orders"]) == {}

            await store.write_topic_ids([ORDERS], fence, copies_only=True)

            assert (await store.assignments(["orders"])).topics == (NAMELESS,)
            assert await store.topic_id_copies(["orders"]) == {"orders": ORDERS.id}

    async def test_topic_without_leadership_is_skipped(self, stores: Stores) -> None:
        """It may be a later topic of the name."""
        async with stores.open_client() as store:
            fence = await store.contest(100)
            await store.create_topic(OTHER, THREE_PARTITIONS, {})
            await store.assignments(["orders"])

            for copies_only in (True, False):
                await store.write_topic_ids([ORDERS, TopicRef("ghost", ORDERS.id)], fence, copies_only=copies_only)

            assert (await store.assignments(["orders"])).topics == (OTHER,)
            assert await store.topic_id_copies(["orders"]) == {}
            assert await store.topics() == ["orders"]

    async def test_copy_ends_with_its_topic(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await lead(store, ORDERS)
            await store.write_topic_ids([ORDERS], fence)
            await delete_topic(other, "orders", fence, [0, 1, 2])
            assert await store.topic_id_copies(["orders"]) == {}

            await other.create_topic(OTHER, THREE_PARTITIONS, {})
            await store.assignments(["orders"])
            await store.commit(new_write([ORDERS_0]), fence)

            assert await store.topic_id_copies(["orders"]) == {}

    @pytest.mark.parametrize("copies_only", [True, False])
    async def test_stale_fence_cannot_write_ids(self, stores: Stores, copies_only: bool) -> None:
        async with stores.open_client() as store, stores.open_client() as later:
            fence = await lead(store, NAMELESS)
            await later.contest(101, take_over=True)

            with pytest.raises(ControllerMoved):
                await store.write_topic_ids([ORDERS], fence, copies_only=copies_only)

            assert (await store.assignments(["orders"])).topics == (NAMELESS,)
            assert await store.topic_id_copies(["orders"]) == {}
