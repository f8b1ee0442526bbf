"""The store contract: drains and held instances."""

import pytest

from kactl.model import Drain, Maintenance, Order
from kactl.model.errors import ControllerMoved

from .store_support import Stores, broker_info

DRAINED = Maintenance(
    {2: Drain(1_000, 2_000, "ann", "a new disk", broker_epoch=2**40), 7: Drain(3_000)},
    {100: Order(1_000, 5_000, "ann", "a new kernel"), 101: Order(4_000)},
)


class MaintenanceContract:
    pytestmark = pytest.mark.anyio

    async def test_nothing_is_drained_at_first(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            assert await store.membership() == ({}, Maintenance())

    async def test_maintenance_is_read_with_the_registrations_by_every_client(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await store.contest(1)
            session = await store.new_session(30_000)
            await session.register(broker_info(2))

            for written in (DRAINED, Maintenance({7: Drain(1, reason="\u00e9")}), Maintenance(), DRAINED):
                await store.write_maintenance(written, fence)

                assert await store.membership() == (await store.brokers(), written)
                assert (await other.membership()).maintenance == written
            assert list((await other.membership()).brokers) == [2]

    async def test_maintenance_outlives_controllers_and_registrations(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(30_000)
            await session.register(broker_info(2))
            await store.write_maintenance(DRAINED, await store.contest(1))
            await session.close()

        async with stores.open_client() as later:
            await later.contest(2, take_over=True)

            assert await later.membership() == ({}, DRAINED)

    async def test_deposed_controller_cannot_write_maintenance(self, stores: Stores) -> None:
        async with stores.open_client() as deposed, stores.open_client() as later:
            old = await deposed.contest(1)
            fence = await later.contest(2, take_over=True)

            with pytest.raises(ControllerMoved):
                await deposed.write_maintenance(DRAINED, old)
            assert (await later.membership()).maintenance == Maintenance()

            await later.write_maintenance(DRAINED, fence)
            with pytest.raises(ControllerMoved):
                await deposed.write_maintenance(Maintenance(), old)
            assert (await later.membership()).maintenance == DRAINED
