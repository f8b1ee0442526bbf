"""The tree that a store creates at startup, and malformed nodes in it."""

import logging
from typing import Any

import pytest
from kazoo.client import KazooClient

from kactl.model import NO_BROKER, Assignment, Broker, Endpoint, TopicPartition, TopicRef
from kactl.model.errors import BadConfig, ControllerMoved, InvalidPartitions, StoreDamaged
from kactl.stores.base import Found, Names
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.layout import PERSISTENT
from tests.support.store_clients import ORDERS, ORDERS_0, SESSION_MS, THREE_PARTITIONS
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


def open_tree_store(connect: str) -> ZooKeeperStore:
    return ZooKeeperStore(connect, session_timeout_ms=SESSION_MS)


async def test_nodes_expected_by_brokers_exist_with_null_data(connect: str, tree: Any) -> None:
    async with open_tree_store(connect):
        for path in PERSISTENT:
            data, stat = tree.get(path)

            assert data is None, path
            assert stat.ephemeralOwner == 0
        assert not tree.exists("/controller_epoch")


async def test_chroot_is_created_with_its_parents(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with open_tree_store(zookeeper.connect(f"{chroot}/deep/down/")) as store:
        await store.create_topic(ORDERS, THREE_PARTITIONS, {})

    client = KazooClient(zookeeper.connect())
    client.start()
    assert client.get(f"{chroot}/deep")[0] is None
    assert client.get_children(f"{chroot}/deep/down/brokers/topics") == ["orders"]
    client.stop()
    client.close()


async def test_cluster_keeps_its_id_and_nodes(connect: str, tree: Any) -> None:
    async with open_tree_store(connect):
        cluster_id = tree.get("/cluster/id")[0]
        tree.set("/latest_producer_id_block", b'{"version":1}')

    async with open_tree_store(connect):
        assert tree.get("/cluster/id")[0] == cluster_id
        assert tree.get("/latest_producer_id_block")[0] == b'{"version":1}'
    assert len(cluster_id) == len('{"version":"1","id":""}') + 22


def test_client_that_is_no_factory_is_rejected() -> None:
    with pytest.raises(BadConfig, match=r"client: 'kazoo' is no factory"):
        ZooKeeperStore("host:1", client="kazoo")  # type: ignore[arg-type]


@pytest.mark.parametrize("connect", ["", "/chroot", "host:1,", "host:1//a", "host:1/a//b", "host:x", "host:0/a"])
def test_invalid_connect_string_is_rejected(connect: str) -> None:
    with pytest.raises(BadConfig, match="connect"):
        ZooKeeperStore(connect)


@pytest.mark.parametrize("setting", ["session_timeout_ms", "max_in_flight", "batch_partitions"])
def test_limit_of_zero_is_rejected(setting: str) -> None:
    with pytest.raises(BadConfig, match=setting):
        ZooKeeperStore("host:1", **{setting: 0})  # type: ignore[arg-type]


async def test_malformed_nodes_are_skipped_alone(connect: str, tree: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with open_tree_store(connect) as store:
        store.subscribe(lambda event: None)
        await store.create_topic(ORDERS, THREE_PARTITIONS, {})
        tree.create("/brokers/topics/bad", b"{")
        tree.create("/brokers/topics/null", None)
        tree.create("/config/topics/bad", b"[]")
        tree.create("/config/topics/null", None)
        tree.create("/brokers/ids/7", b"?")
        tree.create("/brokers/ids/x", b"{}")
        tree.create("/brokers/ids/8", b'{"version":1,"host":"h","port":9}')
        tree.create("/brokers/topics/orders/partitions/0/state", b'{"leader":1}', makepath=True)
        tree.create("/isr_change_notification/isr_change_0000000000", b"{}")
        tree.create("/log_dir_event_notification/log_dir_event_0000000000", None)

        with caplog.at_level(logging.WARNING, "kactl"):
            assert (await store.assignments(await store.topics())).topics == (ORDERS,)
            assert await store.topic_configs(["bad", "null", "orders"]) == {"bad": None, "null": {}, "orders": {}}
            brokers = await store.brokers()
            assert await store.broker(7) is None
            found = await store.leaderships(Names.of([ORDERS_0, TopicPartition("orders", 1)]))
            notices = [*await store.isr_notifications(), *await store.log_dir_notifications()]

        assert list(brokers) == [8]
        assert brokers[8] == Broker(8, brokers[8].epoch, (Endpoint("PLAINTEXT", "h", 9),))
        assert brokers[8].epoch == tree.exists("/brokers/ids/8").czxid
        assert found.status.tolist() == [Found.UNREADABLE, Found.MISSING]
        assert [(notice.partitions, notice.broker) for notice in notices] == [((), NO_BROKER)] * 2
        for path in (
            "/brokers/topics/bad",
            "/brokers/topics/null",
            "/brokers/ids/7",
            "/brokers/ids/x",
            "partitions/0/state",
            "isr_change_",
        ):
            assert path in caplog.text
        fence = await store.contest(1)
        await store.delete_notifications(notices, fence)
        assert await store.isr_notifications() == await store.log_dir_notifications() == []


async def test_unreadable_controller_counts_as_a_controller(connect: str, tree: Any) -> None:
    async with open_tree_store(connect) as store:
        tree.create("/controller", b"{}")

        held = await store.controller()

        assert held is not None
        assert (held.id, held.epoch) == (NO_BROKER, 0)
        with pytest.raises(ControllerMoved):
            await store.contest(1)
        assert (await store.contest(1, take_over=True)).epoch == 1


async def test_malformed_epoch_is_unchanged(connect: str, tree: Any) -> None:
    async with open_tree_store(connect) as store:
        tree.create("/controller_epoch", b"seven")

        with pytest.raises(StoreDamaged, match="/controller_epoch"):
            await store.contest(1)

        assert tree.get("/controller_epoch")[0] == b"seven"
        assert not tree.exists("/controller")


async def test_highest_epoch_of_a_kafka_controller_is_followed(connect: str, tree: Any) -> None:
    async with open_tree_store(connect) as store:
        tree.create("/controller_epoch", b"41")
        tree.create("/controller", b'{"version":2,"brokerid":3,"timestamp":"1698765432100","kraftControllerEpoch":-1}')
        held = await store.controller()

        fence = await store.contest(900_001, take_over=True)

        assert held is not None
        assert (held.id, held.epoch, held.since_ms) == (3, 41, 1698765432100)
        assert (fence.epoch, fence.version) == (42, 1)


async def test_topic_written_without_its_id_keeps_it(connect: str) -> None:
    async with open_tree_store(connect) as store:
        await store.create_topic(ORDERS, THREE_PARTITIONS, {})

        await store.write_assignment(TopicRef("orders"), {0: Assignment((9,))}, None)

        assert (await store.assignments(["orders"])).topics == (ORDERS,)


async def test_topic_too_large_for_a_node_is_rejected_without_traces(connect: str) -> None:
    async with open_tree_store(connect) as store:
        huge = {number: Assignment((1_000_001, 1_000_002, 1_000_003)) for number in range(50_000)}
        fence = await store.contest(1)
        await store.create_topic(ORDERS, THREE_PARTITIONS, {})

        with pytest.raises(InvalidPartitions, match="50000 partitions"):
            await store.create_topic(TopicRef("huge"), huge, {"a": "b"})
        with pytest.raises(InvalidPartitions):
            await store.write_assignment(ORDERS, huge, fence)

        assert await store.topics() == ["orders"]
        assert await store.topic_configs(["huge"]) == {"huge": {}}
        assert len(await store.assignments(["orders"])) == 3


async def test_participants_register_as_brokers_do(connect: str, tree: Any) -> None:
    async with open_tree_store(connect) as store:
        session = await store.new_session(SESSION_MS)

        epoch = await session.register(Broker(5, 0, (Endpoint("PLAINTEXT", "::1", 9092),)))

        data, stat = tree.get("/brokers/ids/5")
        assert (stat.czxid, stat.version) == (epoch, 1)
        assert b'"version":5' in data
        assert b'"PLAINTEXT://[::1]:9092"' in data
        assert await session.register(Broker(5, 0, (Endpoint("PLAINTEXT", "::1", 9093),))) == epoch
        assert b"9093" in tree.get("/brokers/ids/5")[0]
