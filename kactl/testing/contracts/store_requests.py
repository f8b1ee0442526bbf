"""The store contract: admin requests that remain until the controller deletes them."""

import anyio
import pytest

from kactl.model import TopicPartition
from kactl.model.errors import ControllerMoved, RequestWaits
from kactl.stores.base import Changed

from .store_support import ORDERS_0, ORDERS_1, ORDERS_2, EventRecorder, Stores

TARGETS = {ORDERS_0: (4, 5, 6), ORDERS_2: (1,), TopicPartition("ä-b.c_d-1", 7): (2, 1)}
WANTED = [ORDERS_2, ORDERS_0, TopicPartition("a-1", 7)]


class RequestContract:
    pytestmark = pytest.mark.anyio

    async def test_new_store_has_no_admin_requests(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            assert await store.reassignment_request() is None
            assert await store.preferred_election_request() is None

    async def test_requested_reassignment_is_read_back_and_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            recorder = EventRecorder(watching)
            await watching.reassignment_request()

            await admin.request_reassignment(TARGETS)

            await recorder.wait_for(Changed.REASSIGNMENT_REQUEST)
            assert await watching.reassignment_request() == TARGETS
            assert await admin.reassignment_request() == TARGETS

    async def test_requested_reassignment_to_no_broker_is_read_back(self, stores: Stores) -> None:
        """The controller rejects that partition only."""
        async with stores.open_client() as store, stores.open_client() as admin:
            wanted = {ORDERS_0: (-1, 2), ORDERS_1: (1, 1), ORDERS_2: (2, 3)}

            await admin.request_reassignment(wanted)

            assert await store.reassignment_request() == wanted

    async def test_second_reassignment_request_is_rejected(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.request_reassignment(TARGETS)

            with pytest.raises(RequestWaits):
                await store.request_reassignment({ORDERS_1: (9,)})

            assert await store.reassignment_request() == TARGETS

    async def test_reassignment_request_is_replaced_and_deleted(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            fence = await store.contest(1)
            await store.request_reassignment(TARGETS)

            await store.set_reassignment_request({ORDERS_2: (1,)}, fence)
            assert await store.reassignment_request() == {ORDERS_2: (1,)}

            for _ in range(2):  # the second call has nothing to delete
                await store.set_reassignment_request({}, fence)
                assert await store.reassignment_request() is None

            await store.set_reassignment_request({ORDERS_1: (3, 4)}, fence)  # another client deleted it meanwhile
            assert await store.reassignment_request() == {ORDERS_1: (3, 4)}

    async def test_only_new_reassignment_requests_are_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            fence = await watching.contest(1)
            recorder = EventRecorder(watching)
            await watching.reassignment_request()

            for _ in range(3):
                await admin.request_reassignment(TARGETS)
                await recorder.wait_for(Changed.REASSIGNMENT_REQUEST)
                assert await watching.reassignment_request() == TARGETS
                await watching.set_reassignment_request({ORDERS_2: (1,)}, fence)
                await watching.deletions()  # all events of the store have arrived
                await watching.set_reassignment_request({}, fence)
                await watching.deletions()
                assert recorder.events == []

            await admin.request_preferred_election([ORDERS_0])
            await watching.preferred_election_request()
            await watching.delete_preferred_election_request(fence)
            await admin.request_preferred_election([ORDERS_0])
            await recorder.wait_for(Changed.PREFERRED_ELECTION_REQUEST)
            assert recorder.events == []

    async def test_requested_election_is_read_back_and_reported(self, stores: Stores) -> None:
        async with stores.open_client() as watching, stores.open_client() as admin:
            recorder = EventRecorder(watching)
            fence = await watching.contest(1)
            await watching.preferred_election_request()

            for wanted in (WANTED, [ORDERS_1]):
                await admin.request_preferred_election([*wanted, wanted[0]])

                await recorder.wait_for(Changed.PREFERRED_ELECTION_REQUEST)
                assert await watching.preferred_election_request() == wanted
                await watching.delete_preferred_election_request(fence)
                assert await admin.preferred_election_request() is None

            await watching.delete_preferred_election_request(fence)  # there is none

    async def test_second_election_request_is_rejected(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.request_preferred_election(WANTED)

            with pytest.raises(RequestWaits):
                await store.request_preferred_election([])

            assert await store.preferred_election_request() == WANTED

    async def test_one_of_two_concurrent_requests_is_rejected(self, stores: Stores) -> None:
        async with stores.open_client() as one, stores.open_client() as two:
            refused: list[int] = []

            async def ask(number: int) -> None:
                try:
                    await (one, two)[number].request_reassignment({ORDERS_0: (number,)})
                except RequestWaits:
                    refused.append(number)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, 0)
                tasks.start_soon(ask, 1)

            assert len(refused) == 1
            assert await one.reassignment_request() == {ORDERS_0: (1 - refused[0],)}

    async def test_requests_outlive_their_client(self, stores: Stores) -> None:
        async with stores.open_client() as store:
            await store.request_reassignment(TARGETS)
            await store.request_preferred_election(WANTED)

        async with stores.open_client() as store:
            assert await store.reassignment_request() == TARGETS
            assert await store.preferred_election_request() == WANTED

    async def test_deposed_controller_cannot_change_requests(self, stores: Stores) -> None:
        async with stores.open_client() as deposed, stores.open_client() as later:
            old = await deposed.contest(1)
            await later.request_reassignment(TARGETS)
            await later.request_preferred_election(WANTED)
            await later.contest(2, take_over=True)

            for targets in ({}, {ORDERS_1: (9,)}):
                with pytest.raises(ControllerMoved):
                    await deposed.set_reassignment_request(targets, old)
            with pytest.raises(ControllerMoved):
                await deposed.delete_preferred_election_request(old)

            assert await later.reassignment_request() == TARGETS
            assert await later.preferred_election_request() == WANTED
