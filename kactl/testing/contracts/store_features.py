"""The store contract: finalized features, blocks of producer ids, and the leadership of watched partitions."""

import anyio
import pytest

from kactl.model import Features, Leadership, ProducerIdBlock, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved
from kactl.stores.base import Changed, Store

from .store_support import (
    ORDERS_0,
    ORDERS_1,
    ORDERS_2,
    EventRecorder,
    Stores,
    create_and_lead,
    new_write,
)

LAST = 2**63 - 1


class FeatureContract:
    pytestmark = pytest.mark.anyio

    async def test_no_features_are_stored_at_first(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            assert await store.features() is None

    @pytest.mark.parametrize("number", [1, 2])
    async def test_each_write_of_features_raises_their_version(self, stores: Stores, number: int) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await store.contest(1)

            for version, levels in enumerate([{}, {"a": 1, "b": 32_000}, {"a": 2}, {}]):
                wanted = Features(levels, enabled=version != 2, format=number)
                written = await store.write_features(wanted, fence)

                assert written == Features(levels, enabled=version != 2, format=number, version=version)
                assert await store.features() == written
                assert await other.features() == written

    async def test_deposed_controller_cannot_write_features(self, stores: Stores) -> None:
        async with stores.open_client() as deposed, stores.open_client() as later:
            old = await deposed.contest(1)
            fence = await later.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await deposed.write_features(Features({}), old)
            assert await later.features() is None

            written = await later.write_features(Features({"a": 1}), fence)
            with pytest.raises(ControllerMoved):
                await deposed.write_features(Features({}), old)
            assert await later.features() == written


class ProducerIdContract:
    pytestmark = pytest.mark.anyio

    async def test_producer_id_blocks_are_contiguous(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            block, version = await store.producer_ids()
            assert block is None

            for wanted in (ProducerIdBlock(1, 0, 1_000), ProducerIdBlock(2, LAST - 999, 1_000)):
                assert await store.write_producer_ids(wanted, expected=version)

                assert await other.producer_ids() == (wanted, version + 1)
                version += 1

    async def test_block_with_a_stale_version_is_rejected(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            _, version = await store.producer_ids()
            first = ProducerIdBlock(1, 0, 1_000)
            assert await store.write_producer_ids(first, expected=version)

            for wrong in (version, version + 2, version + 100):
                assert not await store.write_producer_ids(ProducerIdBlock(2, 0, 1_000), expected=wrong)

            assert await store.producer_ids() == (first, version + 1)

    async def test_concurrent_clients_never_allocate_a_block_twice(self, stores: Stores) -> None:
        given: list[int] = []

        async def give(store: Store, broker: int) -> None:
            for _ in range(10):
                while True:
                    block, version = await store.producer_ids()
                    first = 0 if block is None else block.last + 1
                    if await store.write_producer_ids(ProducerIdBlock(broker, first, 1_000), expected=version):
                        break
                given.append(first)

        async with stores.open_client() as one, stores.open_client() as two, anyio.create_task_group() as tasks:
            tasks.start_soon(give, one, 1)
            tasks.start_soon(give, two, 2)

        assert sorted(given) == list(range(0, 20_000, 1_000))


class WatchedLeadershipContract:
    pytestmark = pytest.mark.anyio

    async def test_each_write_of_a_watched_partition_is_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as leader:
            fence = await create_and_lead(watching)
            recorder = EventRecorder(watching)
            await watching.watch_leaderships([ORDERS_0, ORDERS_2])

            for version in range(3):
                state = Leadership(1, 0, (1, 2), 0, fence.epoch)
                assert await leader.write_isr(ORDERS_1, state, expected=version) is not None
                assert await leader.write_isr(ORDERS_2, state, expected=version) is not None
                await recorder.wait_for(Changed.LEADERSHIP, "orders-2")

            committed = await watching.commit(new_write([ORDERS_0], leader=2, leader_epoch=1, expected=0), fence)
            assert committed.committed.all()
            await recorder.wait_for(Changed.LEADERSHIP, "orders-0")
            assert recorder.events == []

    async def test_only_the_partitions_named_last_are_watched(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as leader:
            fence = await create_and_lead(watching)
            recorder = EventRecorder(watching)
            state = Leadership(1, 0, (1, 2), 0, fence.epoch)
            await watching.watch_leaderships([ORDERS_0, ORDERS_1])
            await watching.watch_leaderships([ORDERS_1, ORDERS_2])

            for name in (ORDERS_0, ORDERS_1, ORDERS_2):
                await leader.write_isr(name, state, expected=0)
            await recorder.wait_for(Changed.LEADERSHIP, "orders-1")
            await recorder.wait_for(Changed.LEADERSHIP, "orders-2")
            await watching.watch_leaderships([])
            for name in (ORDERS_0, ORDERS_1, ORDERS_2):
                await leader.write_isr(name, state, expected=1)

            await watching.topics()
            await leader.create_topic(TopicRef("more"), {}, {})
            await recorder.wait_for(Changed.TOPICS)
            assert recorder.events == []

    async def test_rejected_write_is_not_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as leader:
            fence = await create_and_lead(watching)
            recorder = EventRecorder(watching)
            await watching.watch_leaderships([ORDERS_0, ORDERS_1, TopicPartition("ghost", 0)])
            state = Leadership(1, 0, (1, 2), 0, fence.epoch)

            assert await leader.write_isr(ORDERS_0, state, expected=5) is None
            assert await leader.write_isr(ORDERS_1, state, expected=0) == 1

            await recorder.wait_for(Changed.LEADERSHIP, "orders-1")
            assert recorder.events == []
