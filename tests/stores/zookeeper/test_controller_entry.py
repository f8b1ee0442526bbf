"""The controller's own entry in /brokers/ids, where brokers up to 2.8 look for its address."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from kazoo.exceptions import NoNodeError
from kazoo.security import READ_ACL_UNSAFE

from kactl.actors.system import Controller
from kactl.config.controller_settings import ControllerSettings
from kactl.model import NO_EPOCH, Broker, Endpoint
from kactl.model.errors import ControllerMoved
from kactl.stores.base import Changed
from kactl.stores.formats import registration
from kactl.stores.zookeeper import ZooKeeperStore
from tests.contracts.test_zookeeper_store import end_session
from tests.interop.journal import Kind, read
from tests.support.controller_harness import RecordingBrokers
from tests.support.store_clients import SESSION_MS, EventRecorder
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

KACTL = 900
ENTRY = Broker(KACTL, NO_EPOCH, (Endpoint("INTERNAL", "127.0.0.1", 9190), Endpoint("SECURE", "::1", 9191, "SASL_SSL")))
PATH = f"/brokers/ids/{KACTL}"
LIMIT_S = 30


def store_of(connect: str, entry: Broker | None = ENTRY, *, sticky: bool = False) -> ZooKeeperStore:
    return ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, sticky=sticky, listed_as=entry)


def broker(number: int, rack: str | None = None) -> Broker:
    return Broker(number, NO_EPOCH, (Endpoint("INTERNAL", "127.0.0.1", number),), rack=rack)


async def until(reached: Callable[[], object]) -> None:
    """Wait for a condition that another thread reads from ZooKeeper."""
    with anyio.fail_after(LIMIT_S):
        while not await anyio.to_thread.run_sync(reached):
            await anyio.lowlevel.checkpoint()


async def test_active_controller_is_found_where_old_brokers_look(connect: str, tree: Any) -> None:
    async with store_of(connect) as store:
        await store.brokers()
        assert tree.exists(PATH) is None, "it is not the controller"

        await store.contest(KACTL)
        known = await store.brokers()

        data, stat = tree.get(PATH)
        node = json.loads(data)
        assert (node["host"], node["port"]) == ("127.0.0.1", 9190)
        assert node["endpoints"] == ["INTERNAL://127.0.0.1:9190", "SECURE://[::1]:9191"]
        assert node["listener_security_protocol_map"] == {"INTERNAL": "PLAINTEXT", "SECURE": "SASL_SSL"}
        assert stat.ephemeralOwner == tree.exists("/controller").ephemeralOwner
        assert known == {}
        assert await store.brokers() == {}
        assert await store.broker(KACTL) is None


async def test_no_entry_without_an_address(connect: str, tree: Any) -> None:
    async with store_of(connect, None) as store:
        await store.contest(KACTL)
        await store.brokers()

        assert tree.get_children("/brokers/ids") == []


@pytest.mark.parametrize("sticky", [False, True])
async def test_entry_goes_in_the_transaction_that_gives_up(
    sticky: bool, connect: str, chroot: str, tree: Any, zookeeper: ZooKeeperServer
) -> None:
    async with store_of(connect, sticky=sticky) as store:
        fence = await store.contest(KACTL)
        await store.brokers()

        await store.resign(fence)
        await store.brokers()

        assert tree.get_children("/brokers/ids") == []
        writes = [write for write in read(zookeeper.folder / "data") if write.path.startswith(chroot)]
        held = chroot + ("/kactl/lock" if sticky else "/controller")
        (gone,) = [write for write in writes if write.kind is Kind.DELETE and write.path == chroot + PATH]
        (last,) = [write for write in writes if write.kind is Kind.DELETE and write.path == held]
        (came,) = [write for write in writes if write.kind is Kind.CREATE and write.path == chroot + PATH]
        (first,) = [write for write in writes if write.kind is Kind.CREATE and write.path == held]
        assert first.zxid < came.zxid < gone.zxid == last.zxid
        assert writes.index(gone) < writes.index(last)
        assert came.ephemeral


async def test_entry_ends_with_the_session_of_the_controllership(connect: str, tree: Any) -> None:
    async with store_of(connect) as store:
        recorder = EventRecorder(store)
        await store.contest(KACTL)
        await store.brokers()

        await anyio.to_thread.run_sync(end_session, store._client)
        assert (tree.exists("/controller"), tree.exists(PATH)) == (None, None)
        await recorder.wait_for(Changed.SESSION_OPENED)
        await store.brokers()

        assert tree.exists(PATH) is None


@pytest.mark.parametrize("sticky", [False, True])
async def test_entry_goes_when_another_client_deletes_the_controllership(sticky: bool, connect: str, tree: Any) -> None:
    async with store_of(connect, sticky=sticky) as store:
        EventRecorder(store)
        await store.contest(KACTL)
        await store.brokers()
        await store.controller()

        await anyio.to_thread.run_sync(tree.delete, "/controller")

        await until(lambda: tree.exists(PATH) is None)
        await store.brokers()
        assert tree.exists(PATH) is None


async def test_entry_is_not_created_once_the_controllership_is_deleted(connect: str, tree: Any) -> None:
    async with store_of(connect) as store:  # nothing reports the deletion to it
        await store.contest(KACTL)
        tree.delete("/controller")

        await store.brokers()

        assert tree.exists(PATH) is None


async def test_next_controller_deletes_the_entry_of_an_earlier_one(connect: str, tree: Any) -> None:
    async with store_of(connect) as first, store_of(connect, broker(901)) as second:
        await first.contest(KACTL)
        await first.brokers()
        await second.contest(901, take_over=True)

        assert await second.brokers() == {}

        assert tree.get_children("/brokers/ids") == ["901"]
        with pytest.raises(ControllerMoved):
            await first.brokers()
        assert tree.get_children("/brokers/ids") == ["901"]


async def test_next_controller_of_the_same_id_takes_the_entry_over(connect: str, tree: Any) -> None:
    async with store_of(connect) as first, store_of(connect) as second:
        EventRecorder(first)
        await first.contest(KACTL)
        await first.brokers()
        await first.controller()
        await second.contest(KACTL, take_over=True)
        await second.brokers()
        await first.controller()  # its entry is gone, and that of the second may have gone with it

        await second.brokers()

        assert tree.exists(PATH).ephemeralOwner == tree.exists("/controller").ephemeralOwner


async def test_deleted_entry_is_created_again(connect: str, tree: Any) -> None:
    async with store_of(connect) as store:
        await store.contest(KACTL)
        await store.brokers()
        tree.delete(PATH)

        await store.brokers()

        assert tree.exists(PATH) is not None


async def test_broker_with_the_id_of_the_controller_is_left_alone(connect: str, tree: Any) -> None:
    theirs = registration.encode(broker(KACTL), 0)
    tree.ensure_path("/brokers/ids")
    tree.create(PATH, theirs, ephemeral=True)
    async with store_of(connect) as store:
        EventRecorder(store)
        fence = await store.contest(KACTL)

        assert list(await store.brokers()) == [KACTL]
        await store.resign(fence)

    assert tree.get(PATH)[0] == theirs


async def test_controller_without_permission_for_an_entry_still_controls(
    connect: str, tree: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with store_of(connect) as store:
        tree.set_acls("/brokers/ids", READ_ACL_UNSAFE)
        fence = await store.contest(KACTL)

        assert await store.brokers() == {}

        assert tree.exists(PATH) is None
        assert f"{PATH} could not be written: NoAuthError()" in caplog.text
        assert "run `kactl broker drain` before each stop" in caplog.text
        await store.resign(fence)
        assert tree.exists("/controller") is None


async def test_entry_has_a_rack_while_all_brokers_have_one(connect: str, tree: Any) -> None:
    def rack() -> object:
        try:
            return json.loads(tree.get(PATH)[0]).get("rack")
        except NoNodeError:
            return "no entry"

    async with store_of(connect) as store:
        await store.contest(KACTL)
        racks = []
        for number, each in enumerate(["b", "a", "b", None], start=1):
            tree.create(f"/brokers/ids/{number}", registration.encode(broker(number, each), 0), ephemeral=True)
            await store.brokers()
            racks.append(rack())
        tree.delete("/brokers/ids/4")
        await store.brokers()

        assert [*racks, rack()] == ["b", "a", "b", None, "b"]


async def test_controller_lists_itself_for_as_long_as_it_is_active(connect: str, tree: Any) -> None:
    settings = ControllerSettings(level="2.6", listed_as=ENTRY)  # type: ignore[arg-type]
    transport = RecordingBrokers()
    async with Controller(KACTL, store=store_of(connect), transport=transport, settings=settings) as controller:
        await controller.wait_active()
        await until(lambda: tree.exists(PATH) is not None)

        assert controller.brokers() == []

    assert (tree.exists(PATH), tree.exists("/controller")) == (None, None)
