"""The store contract: registrations that depend on sessions, and notifications."""

import anyio
import pytest
from msgspec import structs

from kactl.model import (
    NO_BROKER,
)
from kactl.model.errors import BrokerIdTaken, SessionExpired
from kactl.stores.base import Changed

from .store_support import (
    ORDERS_0,
    ORDERS_1,
    ORDERS_2,
    SESSION_MS,
    EventRecorder,
    Stores,
    broker_info,
    create_and_lead,
)


class BrokerContract:
    pytestmark = pytest.mark.anyio

    async def test_registered_broker_is_read_back(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            session = await store.new_session(SESSION_MS)

            epoch = await session.register(broker_info(3, epoch=99))

            for client in (store, other):
                assert await client.brokers() == {3: broker_info(3, epoch=epoch)}
                assert await client.broker(3) == broker_info(3, epoch=epoch)
                assert await client.broker(4) is None
            assert session.timeout_ms > 0

    async def test_broker_epochs_increase(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            epochs = []
            for number in (1, 2, 1, 1):
                session = await store.new_session(SESSION_MS)
                epochs.append(await session.register(broker_info(number)))
                await session.close()

            assert epochs == sorted(set(epochs))
            assert epochs[0] >= 0

    async def test_broker_id_of_a_live_session_is_rejected(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            first, second = await store.new_session(SESSION_MS), await other.new_session(SESSION_MS)
            epoch = await first.register(broker_info(1))

            with pytest.raises(BrokerIdTaken):
                await second.register(broker_info(1, rack="elsewhere"))

            assert await other.brokers() == {1: broker_info(1, epoch=epoch)}
            await first.close()
            assert await second.register(broker_info(1)) > epoch

    async def test_closing_a_session_removes_its_registration(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session, staying = await store.new_session(SESSION_MS), await store.new_session(SESSION_MS)
            await session.register(broker_info(1))
            epoch = await staying.register(broker_info(2))

            await session.close()

            assert await store.brokers() == {2: broker_info(2, epoch=epoch)}
            with pytest.raises(SessionExpired):
                await session.keep_alive()
            with pytest.raises(SessionExpired):
                await session.renew(0)
            with pytest.raises(SessionExpired):
                await session.register(broker_info(1))

    async def test_closing_a_session_is_idempotent(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)

            await session.close()
            await session.close()

            assert await store.brokers() == {}

    async def test_registration_ends_when_its_session_expires(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            recorder = EventRecorder(store)
            session = await store.new_session(SESSION_MS)
            await session.register(broker_info(1))
            assert list(await store.brokers()) == [1]

            await stores.expire_session(session)

            await recorder.wait_for(Changed.BROKERS)
            assert await store.brokers() == {}
            with pytest.raises(SessionExpired):
                await session.keep_alive()
            with pytest.raises(SessionExpired):
                await session.renew(0)
            with pytest.raises(SessionExpired):
                await session.register(broker_info(1))

    async def test_kept_alive_session_does_not_expire(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)
            epoch = await session.register(broker_info(1))

            await session.keep_alive()

            assert await store.brokers() == {1: broker_info(1, epoch=epoch)}

    async def test_renewals_may_overlap(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)
            await session.renew(0)  # before the registration too
            epoch = await session.register(broker_info(1))

            async with anyio.create_task_group() as tasks:
                for sent_ns in range(5):
                    tasks.start_soon(session.renew, sent_ns)

            assert await store.brokers() == {1: broker_info(1, epoch=epoch)}

    async def test_renewal_succeeds_after_registering_again(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)
            await session.register(broker_info(1))
            epoch = await session.register(broker_info(1, rack="elsewhere"))

            await session.renew(0)

            assert await store.brokers() == {1: broker_info(1, epoch=epoch, rack="elsewhere")}

    async def test_bound_of_a_session_is_stated(self, stores: Stores) -> None:
        """`kind` decides how long a lease may last, so a store has to choose one."""
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)

            assert session.bound.kind in ("counted", "witnessed")
            assert session.bound.resolution_ns >= 0

    async def test_registrations_and_their_ends_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as other:
            recorder = EventRecorder(watching)
            await watching.brokers()

            session = await other.new_session(SESSION_MS)
            await session.register(broker_info(1))
            await recorder.wait_for(Changed.BROKERS)
            assert list(await watching.brokers()) == [1]
            await session.close()

            await recorder.wait_for(Changed.BROKERS)
            assert await watching.brokers() == {}

    async def test_broker_session_survives_its_clients_session(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            recorder = EventRecorder(store)
            session = await store.new_session(SESSION_MS)
            epoch = await session.register(broker_info(1))
            fence = await store.contest(100)
            await store.controller()

            await session.close()
            assert await store.controller() is not None
            again = await store.new_session(SESSION_MS)
            epoch = await again.register(broker_info(1))
            await store.resign(fence)

            await recorder.wait_for(Changed.CONTROLLER_GONE)
            assert await store.brokers() == {1: broker_info(1, epoch=epoch)}

    async def test_endpoints_rack_and_features_are_stored(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)
            plain = broker_info(1, rack=None)
            await session.register(plain)

            found = await store.broker(1)

            assert found is not None
            assert (found.endpoints, found.rack) == (plain.endpoints, None)

    async def test_groups_and_weight_of_a_participant_are_stored(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session = await store.new_session(SESSION_MS)
            offers = structs.replace(broker_info(1), groups=("jobs", "mail"), weight=3)
            await session.register(offers)

            found = await store.broker(1)

            assert found is not None
            assert (found.groups, found.weight) == (offers.groups, 3)


class NotificationContract:
    pytestmark = pytest.mark.anyio

    async def test_isr_notifications_remain_until_deleted(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as leader:
            fence = await create_and_lead(store)
            await leader.notify_isr([ORDERS_0, ORDERS_2])
            await leader.notify_isr([ORDERS_1])

            standing = await store.isr_notifications()
            await store.delete_notifications(standing[:1], fence)

            assert [one.partitions for one in standing] == [(ORDERS_0, ORDERS_2), (ORDERS_1,)]
            assert all(one.broker == NO_BROKER for one in standing)
            assert await store.isr_notifications() == standing[1:]
            assert await leader.isr_notifications() == standing[1:]

    async def test_log_dir_notifications_remain_until_deleted(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as participant:
            fence = await store.contest(100)
            await participant.notify_log_dir(3)
            await participant.notify_log_dir(3)

            standing = await store.log_dir_notifications()
            await store.delete_notifications(standing, fence)

            assert [one.broker for one in standing] == [3, 3]
            assert len({one.key for one in standing}) == 2
            assert await store.log_dir_notifications() == []

    async def test_deleting_missing_notifications_is_skipped(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            await store.notify_isr([ORDERS_0])
            standing = await store.isr_notifications()
            await store.delete_notifications(standing, fence)
            await store.notify_isr([ORDERS_1])

            await store.delete_notifications(standing, fence)
            await store.delete_notifications([], fence)

            assert [one.partitions for one in await store.isr_notifications()] == [(ORDERS_1,)]

    async def test_notification_kinds_are_separate(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await create_and_lead(store)
            await store.notify_isr([ORDERS_0])
            await store.notify_log_dir(2)

            await store.delete_notifications(await store.log_dir_notifications(), fence)

            assert [one.partitions for one in await store.isr_notifications()] == [(ORDERS_0,)]
            assert await store.log_dir_notifications() == []

    async def test_notifications_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as leader:
            recorder = EventRecorder(store)
            fence = await create_and_lead(store)
            for count in (1, 2):
                await store.isr_notifications()
                await store.log_dir_notifications()

                await leader.notify_isr([ORDERS_0])
                await recorder.wait_for(Changed.ISR_NOTIFICATIONS)
                await leader.notify_log_dir(1)
                await recorder.wait_for(Changed.LOG_DIR_NOTIFICATIONS)

                assert len(await store.isr_notifications()) == count
            await store.delete_notifications(await store.isr_notifications(), fence)
