"""Tools that rewrite the entry of a topic without its id, over real stores: the id comes back, and no data is deleted.

Such tools are kafka-topics --zookeeper of Kafka before 2.8, CMAK, and scripts of operators.
"""

import base64
import itertools
import json
import sqlite3
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from kazoo.client import KazooClient

import kactl
from kactl.model import ZERO_ID, TopicPartition
from kactl.stores.base import Store
from kactl.stores.etcd import EtcdStore
from kactl.stores.formats.records import decode_id, encode_id
from kactl.stores.sqlite import SqliteStore
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.testing.contracts.link_support import until
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["chroot", "jars", "zookeeper"]

pytestmark = pytest.mark.anyio

SESSION_MS = 10_000

_clusters = itertools.count(1)


class SqliteTool:
    """SQL statements by hand. Nothing notifies kactl of them."""

    notifies = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def open_store(self) -> Store:
        return SqliteStore(self._path, session_timeout_ms=SESSION_MS)

    def _run(self, statement: str, *values: object) -> list[Any]:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=60)
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    def stored_id(self) -> bytes:
        ((topic_id,),) = self._run("SELECT id FROM topics WHERE name = 't'")
        assert isinstance(topic_id, bytes)
        return topic_id

    def rewrite(self, topic_id: bytes, partitions: dict[str, list[int]]) -> None:
        self._run("UPDATE topics SET id = ? WHERE name = 't'", topic_id)

    def drop_copy(self) -> None:
        self._run("DELETE FROM records WHERE name LIKE 'topic id %'")


class ZooKeeperTool:
    """Writes the topic's node, as the tools of Kafka did."""

    notifies = True

    def __init__(self, connect: str) -> None:
        self._connect = connect

    def open_store(self) -> Store:
        return ZooKeeperStore(self._connect, session_timeout_ms=SESSION_MS)

    @contextmanager
    def _client(self) -> Iterator[KazooClient]:
        client = KazooClient(self._connect)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def stored_id(self) -> bytes:
        with self._client() as client:
            return _id_in(client.get("/brokers/topics/t")[0])

    def rewrite(self, topic_id: bytes, partitions: dict[str, list[int]]) -> None:
        with self._client() as client:
            client.set("/brokers/topics/t", _entry(topic_id, partitions))

    def drop_copy(self) -> None:
        with self._client() as client:
            client.set("/brokers/topics/t/partitions", b"")


class EtcdTool:
    """Puts the topic's key through the JSON gateway."""

    notifies = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._cluster = f"ids-{next(_clusters)}"

    def open_store(self) -> Store:
        return EtcdStore([self._url], cluster=self._cluster, session_timeout_ms=SESSION_MS)

    def _call(self, path: str, **body: str) -> dict[str, Any]:
        data = json.dumps({name: base64.b64encode(value.encode()).decode() for name, value in body.items()}).encode()
        with urllib.request.urlopen(f"{self._url}/v3/kv/{path}", data, timeout=60) as response:
            found: dict[str, Any] = json.load(response)
            return found

    @property
    def _key(self) -> str:
        return f"/kactl/{self._cluster}/assignments/t"

    def stored_id(self) -> bytes:
        (found,) = self._call("range", key=self._key)["kvs"]
        return _id_in(base64.b64decode(found["value"]))

    def rewrite(self, topic_id: bytes, partitions: dict[str, list[int]]) -> None:
        self._call("put", key=self._key, value=_entry(topic_id, partitions).decode())

    def drop_copy(self) -> None:
        folder = f"/kactl/{self._cluster}/ids/"
        self._call("deleterange", key=folder, range_end=folder[:-1] + "0")


Tool = SqliteTool | ZooKeeperTool | EtcdTool


def _entry(topic_id: bytes, partitions: dict[str, list[int]]) -> bytes:
    entry: dict[str, Any] = {"version": 1, "partitions": partitions}
    return json.dumps(entry if topic_id == ZERO_ID else entry | {"topic_id": encode_id(topic_id)}).encode()


def _id_in(data: bytes) -> bytes:
    text = json.loads(data).get("topic_id")
    return ZERO_ID if text is None else decode_id(text)


@pytest.fixture(params=["sqlite", "etcd", pytest.param("zookeeper", marks=pytest.mark.interop)])
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tool]:
    if request.param == "sqlite":
        yield SqliteTool(tmp_path / "kactl.db")
    elif request.param == "zookeeper":
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        yield ZooKeeperTool(server.connect(request.getfixturevalue("chroot")))
    else:
        require_etcd()
        with EtcdServer(tmp_path) as etcd:
            yield EtcdTool(etcd.url)


class Data(kactl.PartitionHandler):
    """Records stops, and which replicas act."""

    stops: list[bool]
    leads: set[str]

    async def lead(self, leader: kactl.Leader) -> None:
        self.leads.add(str(leader.partition))
        try:
            await anyio.sleep_forever()
        finally:
            self.leads.discard(str(leader.partition))

    async def stop(self, *, deleted: bool) -> None:
        self.stops.append(deleted)


@pytest.fixture
def handler() -> type[Data]:
    return type("Fresh", (Data,), {"stops": [], "leads": set()})


class Cluster:
    """One participant that lives through several controllers."""

    def __init__(self, tool: Tool, hub: kactl.MemoryHub) -> None:
        self._tool = tool
        self._hub = hub
        self._next_id = itertools.count(100)

    def controller(self, **settings: Any) -> kactl.Controller:
        return kactl.Controller(next(self._next_id), store=self._tool.open_store(), hub=self._hub, **settings)

    @asynccontextmanager
    async def participant(self, handler: type[Data]) -> AsyncIterator[None]:
        async with (
            self._tool.open_store() as store,
            kactl.Participant(1, store=store, hub=self._hub, session_timeout_ms=SESSION_MS, handler=handler),
        ):
            yield


def id_of(controller: kactl.Controller) -> bytes:
    return next(topic.id for topic in controller.topics() if topic.name == "t")


async def rewrite(tool: Tool, topic_id: bytes, partitions: int = 1) -> None:
    await anyio.to_thread.run_sync(tool.rewrite, topic_id, {str(number): [1] for number in range(partitions)})


async def test_lost_topic_id_comes_back_and_no_data_is_deleted(tool: Tool, handler: type[Data]) -> None:
    cluster = Cluster(tool, kactl.MemoryHub())
    async with cluster.participant(handler):
        async with cluster.controller() as first:
            await first.create_topic("t", assignment={0: [1]})
            own = id_of(first)
            if tool.notifies:
                await rewrite(tool, ZERO_ID, partitions=2)
                await until(lambda: handler.leads == {"t-0", "t-1"})
                assert await anyio.to_thread.run_sync(tool.stored_id) == own == id_of(first)

        await rewrite(tool, ZERO_ID)
        async with cluster.controller() as second:
            await second.wait_active()
            assert await anyio.to_thread.run_sync(tool.stored_id) == own == id_of(second)
            await until(lambda: "t-0" in handler.leads)
            assert True not in handler.stops

            await second.delete_topic("t")
            assert True in handler.stops  # this deletion was ordered


@pytest.mark.parametrize("found", [ZERO_ID, b"another id 16 by"], ids=["no id", "another id"])
async def test_data_is_kept_under_an_unknown_topic_id(tool: Tool, handler: type[Data], found: bytes) -> None:
    """The copy of the id is gone, too. Topics with ids show that this cluster has them."""
    cluster = Cluster(tool, kactl.MemoryHub())
    async with cluster.participant(handler):
        async with cluster.controller() as first:
            await first.create_topic("t", assignment={0: [1]})
            await first.create_topic("other", assignment={0: [1]})
            await until(lambda: handler.leads == {"t-0", "other-0"})
            own = id_of(first)
        await rewrite(tool, found)
        await anyio.to_thread.run_sync(tool.drop_copy)

        async with cluster.controller() as second:
            await second.wait_active()
            assert await anyio.to_thread.run_sync(tool.stored_id) == found == id_of(second)
            if found == ZERO_ID:
                await until(lambda: handler.leads == {"t-0", "other-0"})
                assert second.cluster.without_id == {"t"}
            else:
                await until(lambda: "of topic id " + own.hex() in status_of(second))
            assert True not in handler.stops


def status_of(controller: kactl.Controller) -> str:
    """Returns what participant 1 has reported of its replica."""
    report = controller.cluster.replica_report(TopicPartition("t", 0), 1)
    return "" if report is None else report.detail
