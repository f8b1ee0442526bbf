"""Many topics that are read and watched at once: changes meanwhile, and later, are reported as for a single topic."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import anyio
import pytest

from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.zookeeper import ZooKeeperStore, set_watches
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.request import MultiRead
from tests.support.kazoo_connection import CLIENTS, Kind
from tests.support.store_clients import SESSION_MS, WAIT_S, EventRecorder, new_write

from .proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

NAMES: Final = [f"topic-{number:03}" for number in range(3 * set_watches.PATHS_MIN)]
NODE: Final = b'{"version":1,"partitions":{"0":[%d]}}'
# Response of a server to an unknown request type.
UNKNOWN: Final = 999


@pytest.fixture
async def store(
    proxy: Proxy, chroot: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ZooKeeperStore]:
    monkeypatch.setattr(set_watches, "PATHS_MAX", 2 * set_watches.PATHS_MIN)  # so that there are two requests
    connect = f"127.0.0.1:{proxy.port}{chroot}"
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, client=CLIENTS[kind]) as opened:
        yield opened


@pytest.fixture
def topics(store: ZooKeeperStore, tree: Any) -> None:
    for name in NAMES:
        tree.create(f"/brokers/topics/{name}", NODE % 1)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[None]]) -> None:
    """Runs `happens` between arming the watches of topics and the first read of the topics."""
    read_all = Client.read_all
    happened: list[bool] = []

    async def late(self: Client, paths: Any) -> Any:
        if not happened and len(paths) == len(NAMES):
            happened.append(True)
            await happens()
        return await read_all(self, paths)

    monkeypatch.setattr(Client, "read_all", late)


async def first_replicas(store: ZooKeeperStore) -> dict[str, int]:
    """Returns the first replica of each topic."""
    found = await store.assignments(await store.topics())
    return {found.topics[topic].name: int(found.replicas[0, at]) for at, topic in enumerate(found.topic.tolist())}


async def hears_each(recorder: EventRecorder, tree: Any, names: list[str]) -> None:
    """Writes some topics, one after the other, and expects one event for each."""
    for name in names:
        tree.set(f"/brokers/topics/{name}", NODE % 7)
        await recorder.wait_for(Changed.TOPIC, name)
    assert recorder.events == []


@pytest.mark.usefixtures("topics")
async def test_each_of_many_topics_is_watched(store: ZooKeeperStore, tree: Any) -> None:
    recorder = EventRecorder(store)

    found = await first_replicas(store)

    assert found == dict.fromkeys(NAMES, 1)
    await hears_each(recorder, tree, [NAMES[0], NAMES[set_watches.PATHS_MIN], NAMES[-1]])


@pytest.mark.usefixtures("topics")
async def test_many_topics_take_few_requests(store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch) -> None:
    EventRecorder(store)
    names = await store.topics()
    asked: list[Any] = []
    submit = Client.submit

    def note(self: Client, requests: Any, finished: Any) -> Any:
        asked.extend(requests)
        return submit(self, requests, finished)

    monkeypatch.setattr(Client, "submit", note)

    await store.assignments(names)

    assert [type(request) for request in asked] == [set_watches.SetWatches, set_watches.SetWatches, MultiRead]


@pytest.mark.usefixtures("topics")
async def test_topic_written_in_between_is_read_and_watched(
    store: ZooKeeperStore, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = EventRecorder(store)

    async def written() -> None:
        tree.set(f"/brokers/topics/{NAMES[5]}", NODE % 2)

    meanwhile(monkeypatch, written)

    found = await first_replicas(store)

    assert found == {**dict.fromkeys(NAMES, 1), NAMES[5]: 2}
    await recorder.wait_for(Changed.TOPIC, NAMES[5])
    await hears_each(recorder, tree, [NAMES[4], NAMES[5], NAMES[6]])


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("before", [True, False], ids=["is gone when watches are armed", "goes after that"])
async def test_topic_replaced_in_between_is_watched(
    store: ZooKeeperStore, tree: Any, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    recorder = EventRecorder(store)
    names = await store.topics()
    path = f"/brokers/topics/{NAMES[5]}"

    async def replaced() -> None:
        if not before:
            tree.delete(path)
        tree.create(path, NODE % 3)

    if before:
        tree.delete(path)
    meanwhile(monkeypatch, replaced)

    found = await store.assignments(names)

    assert found.replicas[0, 5] == 3
    await recorder.wait_for(Changed.TOPICS)
    await hears_each(recorder, tree, [NAMES[5], NAMES[6]])


@pytest.mark.usefixtures("topics")
async def test_deleted_topic_is_skipped(store: ZooKeeperStore, tree: Any) -> None:
    recorder = EventRecorder(store)
    names = await store.topics()
    tree.delete(f"/brokers/topics/{NAMES[5]}")

    found = await store.assignments(names)

    assert [topic.name for topic in found.topics] == [name for name in NAMES if name != NAMES[5]]
    await recorder.wait_for(Changed.TOPICS)


@pytest.mark.usefixtures("topics")
async def test_lost_connection_in_between_loses_no_watch(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = EventRecorder(store)

    async def broken() -> None:
        await proxy.cut()
        with anyio.fail_after(WAIT_S):
            while store._client.connected:  # noqa: ASYNC110 - only events report it
                await anyio.sleep(0.01)

    meanwhile(monkeypatch, broken)

    found = await first_replicas(store)

    assert found == dict.fromkeys(NAMES, 1)
    recorder.events.clear()
    await hears_each(recorder, tree, [NAMES[0], NAMES[-1]])


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(
    "unknown", [[], [MultiRead], [set_watches.SetWatches]], ids=["", "no multi-reads", "no arming"]
)
async def test_reconnection_reports_changes_and_rearms_all_watches(
    store: ZooKeeperStore, proxy: Proxy, tree: Any, monkeypatch: pytest.MonkeyPatch, unknown: list[Any]
) -> None:
    recorder = EventRecorder(store)
    for kind in unknown:
        monkeypatch.setattr(kind, "type", UNKNOWN)
    await first_replicas(store)
    proxy.reachable = False
    await proxy.cut()
    tree.set(f"/brokers/topics/{NAMES[5]}", NODE % 2)
    tree.delete(f"/brokers/topics/{NAMES[6]}")
    tree.create(f"/brokers/topics/{NAMES[7]}/partitions")  # no change of the topic
    proxy.reachable = True

    await recorder.wait_for_all(StoreEvent(Changed.TOPIC, NAMES[5]), StoreEvent(Changed.TOPICS))

    assert recorder.events == []
    await hears_each(recorder, tree, [NAMES[0], NAMES[7], NAMES[-1]])


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("unknown", [MultiRead, set_watches.SetWatches], ids=["no multi-reads", "no arming"])
async def test_older_servers_get_single_requests(
    store: ZooKeeperStore, tree: Any, monkeypatch: pytest.MonkeyPatch, unknown: Any
) -> None:
    recorder = EventRecorder(store)
    monkeypatch.setattr(unknown, "type", UNKNOWN)

    found = await first_replicas(store)

    assert found == dict.fromkeys(NAMES, 1)
    await hears_each(recorder, tree, [NAMES[0], NAMES[-1]])


async def test_controller_gets_no_events_of_its_own_states(store: ZooKeeperStore) -> None:
    recorder = EventRecorder(store)
    for name in NAMES:
        await store.create_topic(TopicRef(name), {0: Assignment((1,))}, {})
    await first_replicas(store)
    fence = await store.contest(1)
    recorder.events.clear()
    told: list[str] = []
    store._client._on_watch = lambda kind, path: told.append(path)

    written = await store.commit(new_write([TopicPartition(name, 0) for name in NAMES]), fence)

    assert written.committed.all()
    assert told == []
