"""Many writes at once against a real server: the fence, rejected rows, and the number of round trips."""

from typing import Any

import anyio
import numpy as np
import pytest
from kazoo.security import READ_ACL_UNSAFE

from kactl.model import NO_VERSION, Assignment, Fence, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved, StoreError
from kactl.stores.base import Names, Outcome
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.request import MultiRead
from kactl.stores.zookeeper.state_reads import ReadStates
from tests.support.store_clients import ORDERS, ORDERS_0, SESSION_MS, new_write

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

HUNDRED = [TopicPartition("orders", number) for number in range(100)]


@pytest.fixture
async def fence(store: ZooKeeperStore) -> Fence:
    """Returns the fence of a controller, after it has written leaders of a hundred partitions."""
    await store.create_topic(ORDERS, {name.partition: Assignment((1, 2, 3)) for name in HUNDRED}, {})
    fence = await store.contest(100)
    assert (await store.commit(new_write(HUNDRED), fence)).committed.all()
    return fence


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that records the number of requests of each round trip."""
    taken: list[int] = []
    ask_all = Client.ask_all

    async def count(self: Client, requests: Any) -> Any:
        taken.append(len(requests))
        return await ask_all(self, requests)

    monkeypatch.setattr(Client, "ask_all", count)
    return taken


async def test_hundred_rows_take_one_request(store: ZooKeeperStore, fence: Fence, trips: list[int]) -> None:
    committed = await store.commit(new_write(HUNDRED, expected=0), fence)

    assert committed.committed.all()
    assert trips == [1]


@pytest.mark.parametrize("bad", [{0}, {57}, {99}, set(range(0, 100, 2)), set(range(50)), set(range(100))], ids=len)
async def test_rejected_rows_cost_one_read_and_one_write(
    store: ZooKeeperStore, fence: Fence, trips: list[int], bad: set[int]
) -> None:
    expected = [7 if at in bad else 0 for at in range(100)]

    committed = await store.commit(new_write(HUNDRED, leader=2, leader_epoch=1, expected=expected), fence)

    assert committed.outcome.tolist() == [Outcome.CONFLICT if at in bad else Outcome.COMMITTED for at in range(100)]
    assert committed.version.tolist() == [NO_VERSION if at in bad else 1 for at in range(100)]
    assert len(trips) <= 3
    found = await store.leaderships(Names.of(HUNDRED))
    assert found.leader.tolist() == [1 if at in bad else 2 for at in range(100)]


@pytest.mark.parametrize("there", [{3}, set(range(0, 100, 3)), set(range(100))], ids=len)
async def test_states_that_exist_are_not_created_again(
    store: ZooKeeperStore, fence: Fence, trips: list[int], there: set[int]
) -> None:
    names = [TopicPartition("orders", at if at in there else 100 + at) for at in range(100)]

    committed = await store.commit(new_write(names, leader=2), fence)

    assert committed.outcome.tolist() == [Outcome.CONFLICT if at in there else Outcome.COMMITTED for at in range(100)]
    # The topic's container and its rejection; then the rows, with twice as many operations as fit into one request.
    assert len(trips) <= 5


async def test_existing_containers_are_accepted(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    tree.create("/brokers/topics/orders/partitions/200", None)

    committed = await store.commit(new_write([TopicPartition("orders", number) for number in range(198, 203)]), fence)

    assert committed.committed.all()


@pytest.mark.parametrize("forbidden", [{5}, {0, 1, 2, 50, 99}, set(range(100))], ids=len)
async def test_rows_that_fail_otherwise_fail_alone(
    store: ZooKeeperStore, tree: Any, fence: Fence, trips: list[int], forbidden: set[int]
) -> None:
    for at in forbidden:
        tree.set_acls(f"/brokers/topics/orders/partitions/{at}/state", READ_ACL_UNSAFE)

    committed = await store.commit(new_write(HUNDRED, leader=2, expected=0), fence)

    assert committed.outcome.tolist() == [Outcome.FAILED if at in forbidden else Outcome.COMMITTED for at in range(100)]
    assert len(trips) <= 20


async def test_deleted_topics_fail_immediately(store: ZooKeeperStore, fence: Fence, trips: list[int]) -> None:
    ghosts = [TopicPartition(f"ghost-{number % 10}", number) for number in range(500)]

    committed = await store.commit(new_write([*ghosts, HUNDRED[0]], expected=[*[NO_VERSION] * 500, 0]), fence)

    assert committed.outcome.tolist() == [*[Outcome.FAILED] * 500, Outcome.COMMITTED]
    assert len(trips) <= 12


async def test_fence_error_is_distinguished_from_a_rejected_row(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    refused = await store.commit(new_write([ORDERS_0], expected=9), fence)
    tree.set("/controller_epoch", b"2")

    with pytest.raises(ControllerMoved) as moved:
        await store.commit(new_write([ORDERS_0], expected=9), fence)

    assert refused.outcome.tolist() == [Outcome.CONFLICT]
    assert moved.value.ours == fence.epoch


async def test_missing_controller_epoch_is_reported(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    tree.delete("/controller_epoch")

    with pytest.raises(StoreError, match="controller_epoch is missing"):
        await store.commit(new_write([ORDERS_0], expected=0), fence)


async def test_rows_beyond_the_window_stay_in_order(connect: str, fence: Fence) -> None:
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, max_in_flight=2, batch_partitions=3) as narrow:
        committed = await narrow.commit(new_write(HUNDRED, leader_epoch=list(range(100)), expected=0), fence)
        found = await narrow.leaderships(Names.of(HUNDRED))

    assert committed.version.tolist() == [1] * 100
    assert found.leader_epoch.tolist() == list(range(100))


async def test_written_nodes_equal_kafkas(store: ZooKeeperStore, tree: Any) -> None:
    await store.create_topic(TopicRef("t"), {0: Assignment((1, 2))}, {"retention.ms": "1"})
    fence = await store.contest(900_001)
    await store.commit(new_write([TopicPartition("t", 0)], isr=(1, 2)), fence)

    assert tree.get("/brokers/topics/t/partitions")[0] is None
    assert tree.get("/brokers/topics/t/partitions/0")[0] is None
    state, stat = tree.get("/brokers/topics/t/partitions/0/state")
    assert state == b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
    assert (stat.version, stat.ephemeralOwner) == (0, 0)
    assert tree.get("/controller_epoch")[0] == b"1"
    assert tree.get("/controller")[1].ephemeralOwner == tree_session(store)
    assert tree.get("/config/topics/t")[0] == b'{"version":1,"config":{"retention.ms":"1"}}'


def tree_session(store: ZooKeeperStore) -> int | None:
    return store._client.session_id


async def test_servers_without_multi_read_get_single_reads(
    store: ZooKeeperStore, fence: Fence, monkeypatch: pytest.MonkeyPatch, trips: list[int]
) -> None:
    for kind in (MultiRead, ReadStates):
        monkeypatch.setattr(kind, "type", 999)  # response of a server before 3.6 to the real request

    found = await store.leaderships(Names.of([*HUNDRED, TopicPartition("ghost", 0)]))
    again = await store.leaderships(Names.of(HUNDRED))

    assert found.found.tolist() == [True] * 100 + [False]
    assert trips == [1, 2, 101, 100]
    assert np.array_equal(again.leader, found.leader[:100])


async def test_rejected_row_affects_only_its_multi(connect: str, fence: Fence, trips: list[int]) -> None:
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, batch_partitions=10) as narrow:
        trips.clear()
        expected = [7 if at == 34 else 0 for at in range(100)]
        committed = await narrow.commit(new_write(HUNDRED, leader=2, expected=expected), fence)
        asked = list(trips)
        found = await narrow.leaderships(Names.of(HUNDRED))

    assert committed.outcome.tolist() == [Outcome.CONFLICT if at == 34 else Outcome.COMMITTED for at in range(100)]
    assert asked == [10, 1, 2]  # all of them; a read of the ten; the other nine
    assert found.leader.tolist() == [1 if at == 34 else 2 for at in range(100)]
    assert found.partition_epoch.tolist() == [0 if at == 34 else 1 for at in range(100)]


async def test_first_leaders_and_later_ones_go_together(store: ZooKeeperStore, fence: Fence) -> None:
    names = [TopicPartition("orders", at) for at in range(90, 110)]
    expected = [NO_VERSION if at >= 100 or at == 95 else 3 if at == 94 else 0 for at in range(90, 110)]

    committed = await store.commit(new_write(names, leader=3, expected=expected), fence)

    # One has a state already, the other has another version.
    assert committed.outcome.tolist() == [
        Outcome.CONFLICT if at in (94, 95) else Outcome.COMMITTED for at in range(90, 110)
    ]
    assert committed.version.tolist() == [
        NO_VERSION if at in (94, 95) else 1 if at < 100 else 0 for at in range(90, 110)
    ]


async def test_commits_of_different_rows_can_overlap(connect: str) -> None:
    """Chunks of one change overlap, also those of a topic that has only its assignment."""
    topics = [TopicRef(f"t{number}") for number in range(3)]
    chunks = [[TopicPartition(topic.name, at) for topic in topics for at in range(begin, 60, 4)] for begin in range(4)]
    every = [name for chunk in chunks for name in chunk]
    kept: list[int] = []

    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS, max_in_flight=5, batch_partitions=7) as narrow:
        fence = await narrow.contest(100)
        for topic in topics:
            await narrow.create_topic(topic, {at: Assignment((1, 2)) for at in range(60)}, {})

        async def commit(chunk: list[TopicPartition], leader: int, expected: int) -> None:
            refused = new_write(chunk, leader=leader, expected=[9 if at == 8 else expected for at in range(len(chunk))])
            committed = await narrow.commit(refused if expected == 0 else new_write(chunk, leader=leader), fence)
            kept.append(int(np.count_nonzero(committed.committed)))

        for leader, expected in ((1, NO_VERSION), (2, 0)):
            async with anyio.create_task_group() as tasks:
                for chunk in chunks:
                    tasks.start_soon(commit, chunk, leader, expected)
        found = await narrow.leaderships(Names.of(every))

    assert kept == [45] * 4 + [44] * 4
    refused = [chunk[8] for chunk in chunks]
    assert found.leader.tolist() == [1 if name in refused else 2 for name in every]


async def test_later_controller_ends_all_overlapping_commits(store: ZooKeeperStore, tree: Any, fence: Fence) -> None:
    tree.set("/controller_epoch", b"2")
    raised: list[ControllerMoved] = []

    async def commit(chunk: list[TopicPartition]) -> None:
        with pytest.raises(ControllerMoved) as moved:
            await store.commit(new_write(chunk, leader=2, expected=0), fence)
        raised.append(moved.value)

    async with anyio.create_task_group() as tasks:
        for begin in range(0, 100, 25):
            tasks.start_soon(commit, HUNDRED[begin : begin + 25])

    assert len(raised) == 4
    assert (await store.leaderships(Names.of(HUNDRED))).leader.tolist() == [1] * 100
