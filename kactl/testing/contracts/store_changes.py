"""The store contract: changes since an earlier read, for a client that keeps a copy."""

import pytest

from kactl.model import Assignment, Leadership, TopicPartition, TopicRef
from kactl.stores.base import Store

from .store_support import (
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    ORDERS_2,
    THREE_PARTITIONS,
    Stores,
    create_and_lead,
    delete_topic,
    new_write,
)

PAYMENTS = TopicRef("payments", bytes(range(1, 17)))


async def look(store: Store, since: tuple[int, ...]) -> tuple[tuple[int, ...], set[str], set[str]]:
    """Returns the new position, and the topics and partitions that were written."""
    changes = await store.changes(since)
    assert not changes.whole
    return changes.position, set(changes.topics), {str(name) for name in changes.partitions}


class ChangesContract:
    pytestmark = pytest.mark.anyio

    async def test_first_changes_are_unknown(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            changes = await store.changes(None)

            assert changes.whole
            assert (await look(store, changes.position))[1:] == (set(), set())

    async def test_writes_of_other_clients_are_returned_once(self, stores: Stores) -> None:
        async with stores.open_client() as copying, stores.open_client() as other:
            fence = await create_and_lead(other)
            position = (await copying.changes(None)).position

            await other.commit(new_write([ORDERS_0, ORDERS_2], leader=2, leader_epoch=1, expected=0), fence)
            position, topics, partitions = await look(copying, position)
            assert (topics, partitions) == (set(), {"orders-0", "orders-2"})

            await other.write_isr(ORDERS_1, Leadership(1, 0, (1, 2), 0, fence.epoch), expected=0)
            position, topics, partitions = await look(copying, position)
            assert (topics, partitions) == (set(), {"orders-1"})

            assert (await look(copying, position))[1:] == (set(), set())

    async def test_same_position_returns_the_same_changes(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            position = (await store.changes(None)).position
            await store.commit(new_write([ORDERS_0], leader_epoch=1, expected=0), fence)

            assert (await look(store, position))[2] == {"orders-0"}
            assert (await look(store, position))[2] == {"orders-0"}

    async def test_changes_start_over_after_the_last_read(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            position = (await store.changes(None)).position
            await store.commit(new_write([ORDERS_0], leader_epoch=1, expected=0), fence)

            changes = await store.changes(position, last=True)
            assert [str(name) for name in changes.partitions] == ["orders-0"]

            position = (await store.changes(None)).position
            await store.commit(new_write([ORDERS_1], leader_epoch=1, expected=0), fence)
            assert (await look(store, position))[2] == {"orders-1"}

    async def test_rejected_write_is_not_a_change(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            position = (await store.changes(None)).position

            await store.commit(new_write([ORDERS_0], expected=7), fence)

            assert (await look(store, position))[1:] == (set(), set())

    async def test_created_expanded_and_recreated_topics_are_returned(self, stores: Stores) -> None:
        async with stores.open_client() as copying, stores.open_client() as other:
            fence = await create_and_lead(other)
            position = (await copying.changes(None)).position

            await other.create_topic(PAYMENTS, {0: Assignment((1,))}, {})
            position, topics, _ = await look(copying, position)
            assert topics == {"payments"}

            await other.write_assignment(PAYMENTS, {0: Assignment((1,)), 1: Assignment((2,))}, None)
            position, topics, _ = await look(copying, position)
            assert topics == {"payments"}

            await delete_topic(other, "orders", fence)
            await other.create_topic(ORDERS, THREE_PARTITIONS, {})
            position, topics, _ = await look(copying, position)
            assert topics == {"orders"}

    async def test_leadership_of_a_new_topic_is_returned(self, stores: Stores) -> None:
        async with stores.open_client() as copying, stores.open_client() as other:
            fence = await create_and_lead(other)
            position = (await copying.changes(None)).position

            await other.create_topic(PAYMENTS, {0: Assignment((1,))}, {})
            position, *_ = await look(copying, position)
            await other.commit(new_write([TopicPartition("payments", 0)]), fence)

            assert (await look(copying, position))[2] == {"payments-0"}
