"""A persistent controllership: brokers see a controller even while no kactl instance runs."""

from typing import Any

import anyio.to_thread
import pytest

from kactl.actors.system import Controller
from kactl.model.errors import ControllerMoved
from kactl.stores.base import Changed
from kactl.stores.zookeeper import ZooKeeperStore
from tests.contracts.test_zookeeper_store import end_session
from tests.support.controller_harness import RecordingBrokers
from tests.support.store_clients import SESSION_MS, EventRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


def sticky_store(connect: str) -> ZooKeeperStore:
    return ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, sticky=True)


def plain_store(connect: str) -> ZooKeeperStore:
    """Returns a client that, like a broker, only considers /controller."""
    return ZooKeeperStore(connect, session_timeout_ms=SESSION_MS)


async def test_brokers_do_not_contest_after_the_last_instance(connect: str) -> None:
    async with plain_store(connect) as other:
        async with sticky_store(connect) as store:
            fence = await store.contest(900)
            assert (fence.epoch, await store.controller()) == (1, await other.controller())

        held = await other.controller()
        assert held is not None
        assert held.id == 900
        with pytest.raises(ControllerMoved):
            await other.contest(1)

        async with sticky_store(connect) as store:
            assert await store.controller() is None, "among us it is vacant"
            assert (await store.contest(901)).epoch == 2
            assert (await other.controller()).id == 901  # type: ignore[union-attr]


async def test_next_instance_notices_the_end_of_the_holder(connect: str) -> None:
    async with sticky_store(connect) as first, sticky_store(connect) as second:
        recorder = EventRecorder(second)
        fence = await first.contest(900)
        assert (await second.controller()).id == 900  # type: ignore[union-attr]
        with pytest.raises(ControllerMoved):
            await second.contest(901)

        await first.resign(fence)
        await recorder.wait_for(Changed.CONTROLLER_GONE)

        assert await second.controller() is None
        assert (await second.contest(901)).epoch == 2
        with pytest.raises(ControllerMoved):
            await first.resign(fence)


async def test_session_end_frees_it_for_the_next_instance(connect: str) -> None:
    async with sticky_store(connect) as first, sticky_store(connect) as second:
        recorder = EventRecorder(second)
        await first.contest(900)
        await second.controller()

        await anyio.to_thread.run_sync(end_session, first._client)
        await recorder.wait_for(Changed.CONTROLLER_GONE)

        assert (await second.contest(901)).epoch == 2


async def test_takeover_from_an_instance_and_from_a_broker(connect: str) -> None:
    async with plain_store(connect) as stock, sticky_store(connect) as first, sticky_store(connect) as second:
        await stock.contest(1)
        with pytest.raises(ControllerMoved):
            await first.contest(900)

        assert (await first.contest(900, take_over=True)).epoch == 2
        assert (await second.contest(901, take_over=True)).epoch == 3
        assert (await stock.controller()).id == 901  # type: ignore[union-attr]


async def test_deleted_controller_node_is_created_again(connect: str, tree: Any) -> None:
    async with sticky_store(connect) as store:
        recorder = EventRecorder(store)
        await store.contest(900)
        await store.controller()

        tree.delete("/controller")
        await recorder.wait_for(Changed.CONTROLLER_GONE)

        assert await store.controller() is None
        assert (await store.contest(900)).epoch == 2


async def test_restarted_instance_keeps_the_controllership(connect: str) -> None:
    for epoch in (1, 2):
        async with Controller(900, store=sticky_store(connect), transport=RecordingBrokers()) as controller:
            assert await controller.wait_active() == epoch
