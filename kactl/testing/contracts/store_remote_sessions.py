"""The store contract: registrations in sessions with the controller, and evictions."""

import msgspec
import pytest

from kactl.model import Broker, Endpoint
from kactl.model.errors import BrokerIdTaken, ControllerMoved, SessionExpired
from kactl.stores.base import Changed

from .store_support import SESSION_MS, EventRecorder, Stores, broker_info

# Two registrations of one participant, and one of another.
FIRST, NEXT, OTHER = (bytes([*range(12), 0, 0, 0, life]) for life in (1, 2, 9))
TIMEOUT_MS = 6_000


def registered(broker: Broker, epoch: int, incarnation: bytes = FIRST) -> Broker:
    """Returns a registration as it is read back."""
    return broker.in_remote_session(incarnation, TIMEOUT_MS, epoch=epoch)


class RemoteSessionContract:
    pytestmark = pytest.mark.anyio

    async def test_remote_registration_is_read_back(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await store.contest(100)
            broker = msgspec.structs.replace(broker_info(3, epoch=99), peer=Endpoint("PEER", "host3", 7373))

            epoch = await store.register_remote(broker, FIRST, TIMEOUT_MS, fence)

            for client in (store, other):
                assert await client.brokers() == {3: registered(broker, epoch)}
                assert await client.broker(3) == registered(broker, epoch)

    async def test_remote_registration_outlives_the_client_that_wrote_it(self, stores: Stores) -> None:
        async with stores.open_client() as other:
            async with stores.open_client() as store:
                fence = await store.contest(100)
                epoch = await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)

            assert await other.brokers() == {3: registered(broker_info(3), epoch)}

    async def test_repeated_remote_registration_changes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(100)
            epoch = await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)

            assert await store.register_remote(broker_info(3, rack="r9"), FIRST, TIMEOUT_MS, fence) == epoch

            assert await store.brokers() == {3: registered(broker_info(3), epoch)}

    async def test_id_of_a_remote_registration_is_taken(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await store.contest(100)
            epoch = await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)
            session = await other.new_session(SESSION_MS)

            for incarnation in (NEXT, OTHER):
                with pytest.raises(BrokerIdTaken):
                    await store.register_remote(broker_info(3), incarnation, TIMEOUT_MS, fence)
            with pytest.raises(BrokerIdTaken):
                await session.register(broker_info(3))

            assert await store.brokers() == {3: registered(broker_info(3), epoch)}

    async def test_id_of_a_store_session_is_taken(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await store.contest(100)
            session = await other.new_session(SESSION_MS)
            epoch = await session.register(msgspec.structs.replace(broker_info(3), incarnation=FIRST))

            with pytest.raises(BrokerIdTaken):
                await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)
            await store.end_remote(3, epoch, fence)

            assert (await store.brokers())[3].session == "store"

    async def test_ended_remote_registration_is_gone(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(100)
            epoch = await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)
            await store.end_remote(3, epoch - 1, fence)
            await store.end_remote(4, epoch, fence)
            assert list(await store.brokers()) == [3]

            await store.end_remote(3, epoch, fence)
            await store.end_remote(3, epoch, fence)

            assert await store.brokers() == {}
            assert await store.register_remote(broker_info(3), OTHER, TIMEOUT_MS, fence) > epoch

    async def test_epochs_of_both_kinds_of_sessions_rise_together(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence, epochs = await store.contest(100), []
            for _ in range(2):
                epochs.append(await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence))
                await store.end_remote(3, epochs[-1], fence)
                session = await store.new_session(SESSION_MS)
                epochs.append(await session.register(broker_info(3)))
                await session.close()

            assert epochs == sorted(set(epochs))

    async def test_deposed_controller_changes_no_registration(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            fence = await store.contest(100)
            epoch = await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)
            await other.contest(101, take_over=True)

            for repeated in (broker_info(3), broker_info(4)):
                with pytest.raises(ControllerMoved):
                    await store.register_remote(repeated, FIRST, TIMEOUT_MS, fence)
            for number in (3, 4):  # also where nothing would be written
                with pytest.raises(ControllerMoved):
                    await store.end_remote(number, epoch, fence)
                with pytest.raises(ControllerMoved):
                    await store.evict(number, epoch, fence)

            assert await other.brokers() == {3: registered(broker_info(3), epoch)}

    async def test_remote_registrations_and_their_ends_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as other:
            recorder, fence = EventRecorder(watching), await other.contest(100)
            await watching.brokers()

            epoch = await other.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)
            await recorder.wait_for(Changed.BROKERS)
            assert list(await watching.brokers()) == [3]
            await other.end_remote(3, epoch, fence)

            await recorder.wait_for(Changed.BROKERS)
            assert await watching.brokers() == {}

    async def test_check_that_begins_after_another_contest_fails(self, stores: Stores) -> None:
        """Grants of sessions depend on it: no check of an earlier controller succeeds after the next election."""
        async with stores.open_client() as store, stores.open_client() as other:
            for _ in range(10):
                fence = await store.contest(100, take_over=True)
                await store.check(fence)
                await other.contest(101, take_over=True)

                with pytest.raises(ControllerMoved):
                    await store.check(fence)


class EvictionContract:
    pytestmark = pytest.mark.anyio

    async def test_evicted_session_cannot_be_renewed(self, stores: Stores) -> None:
        async with stores.open_client() as store, stores.open_client() as other:
            session, fence = await other.new_session(SESSION_MS), await store.contest(100)
            epoch = await session.register(broker_info(3))
            await session.renew(0)

            await store.evict(3, epoch, fence)

            for use in (session.renew(1), session.keep_alive(), session.register(broker_info(3))):
                with pytest.raises(SessionExpired):
                    await use
            assert await store.brokers() == {3: msgspec.structs.replace(broker_info(3, epoch=epoch), evicted=True)}

    async def test_evicted_broker_registers_again_once_its_session_has_ended(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session, fence = await store.new_session(SESSION_MS), await store.contest(100)
            epoch = await session.register(broker_info(3))
            await store.evict(3, epoch, fence)
            again = await store.new_session(SESSION_MS)
            with pytest.raises(BrokerIdTaken):
                await again.register(broker_info(3))

            await session.close()

            later = await again.register(broker_info(3))
            assert later > epoch
            assert await store.brokers() == {3: broker_info(3, epoch=later)}
            await again.renew(0)

    async def test_evicted_registration_ends_with_its_session(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session, fence = await store.new_session(SESSION_MS), await store.contest(100)
            epoch = await session.register(broker_info(3))
            await store.evict(3, epoch, fence)
            recorder = EventRecorder(store)
            assert (await store.brokers())[3].evicted

            await stores.expire_session(session)

            await recorder.wait_for(Changed.BROKERS)
            assert await store.brokers() == {}

    async def test_other_registrations_are_not_evicted(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session, fence = await store.new_session(SESSION_MS), await store.contest(100)
            epoch = await session.register(broker_info(3))

            await store.evict(3, epoch - 1, fence)
            await store.evict(4, epoch, fence)

            assert await store.brokers() == {3: broker_info(3, epoch=epoch)}
            await session.renew(0)

    async def test_repeated_eviction_changes_nothing(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            session, fence = await store.new_session(SESSION_MS), await store.contest(100)
            epoch = await session.register(broker_info(3))

            await store.evict(3, epoch, fence)
            await store.evict(3, epoch, fence)

            assert (await store.brokers())[3].evicted
            await session.close()
            await store.evict(3, epoch, fence)
            assert await store.brokers() == {}

    async def test_evicted_remote_registration_stays_until_it_is_ended(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(100)
            epoch = await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)

            await store.evict(3, epoch, fence)

            expected = msgspec.structs.replace(registered(broker_info(3), epoch), evicted=True)
            assert await store.brokers() == {3: expected}
            with pytest.raises(BrokerIdTaken):
                await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence)
            await store.end_remote(3, epoch, fence)
            assert await store.register_remote(broker_info(3), FIRST, TIMEOUT_MS, fence) > epoch

    async def test_eviction_is_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as other:
            session, fence = await other.new_session(SESSION_MS), await other.contest(100)
            epoch = await session.register(broker_info(3))
            recorder = EventRecorder(watching)
            await watching.brokers()

            await other.evict(3, epoch, fence)

            await recorder.wait_for_one_of(Changed.BROKERS, Changed.BROKER)
            assert (await watching.brokers())[3].evicted
