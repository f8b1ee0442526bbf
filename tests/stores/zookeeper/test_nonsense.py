"""Malformed nodes of every kind.

Each is named in the log or in the error, is left unchanged, and affects no other node.
"""

import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import pytest

from kactl.model import NO_BROKER, Assignment, Fence, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved, StoreDamaged
from kactl.stores.base import Changed, Found, Names, Notification
from kactl.stores.zookeeper import ZooKeeperStore, state_reads
from tests.support.store_clients import (
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    SESSION_MS,
    THREE_PARTITIONS,
    EventRecorder,
    new_write,
)

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

# Values that are not JSON objects, or not decodable.
NO_OBJECTS: Final = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"7.5",
    b'"text"',
    b"\x00\x01\x02",
    b"\xff\xfe{}",
    b'{"\xff":1}',
    b'{"version":\xff}',
    "{}".encode("utf-16"),
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"version":1}trailing',
)
HUGE: Final = b"9" * 400
OVER_INT32: Final = b"2147483648"

STATE: Final = "/brokers/topics/orders/partitions/0/state"
CONFIG: Final = "/config/topics/orders"


@dataclasses.dataclass(frozen=True)
class NodeKind:
    """A node, malformed contents, the result of reading them, and whether a node without data is malformed, too."""

    path: str
    nonsense: Sequence[bytes]
    read: Callable[[ZooKeeperStore], Awaitable[Any]]
    found: Any
    null_is_nonsense: bool = True

    def __str__(self) -> str:
        return self.path

    @property
    def all_nonsense(self) -> list[bytes | None]:
        null: list[bytes | None] = [None] if self.null_is_nonsense else []
        # A configuration without data is an empty one.
        return [*null, *(data for data in NO_OBJECTS if data or self.null_is_nonsense), *self.nonsense]


async def broker_ids(store: ZooKeeperStore) -> list[int]:
    return list(await store.brokers())


async def topic_names(store: ZooKeeperStore) -> list[str]:
    assignments = await store.assignments(await store.topics())
    assert len(assignments) == 3 * len(assignments.topics)
    return [topic.name for topic in assignments.topics]


async def read_leaders(store: ZooKeeperStore) -> list[int | None]:
    found = await store.leaderships(Names.of([ORDERS_0, ORDERS_1]))
    return [None if (state := found.one(at)) is None else state.leader for at in range(2)]


async def configs(store: ZooKeeperStore) -> Any:
    return await store.topic_configs(["orders", "other"])


async def isr_notices(store: ZooKeeperStore) -> Any:
    return [notice.partitions for notice in await store.isr_notifications()]


async def log_dir_notices(store: ZooKeeperStore) -> Any:
    return [notice.broker for notice in await store.log_dir_notifications()]


async def controller_id(store: ZooKeeperStore) -> int:
    held = await store.controller()
    assert held is not None
    with pytest.raises(ControllerMoved):
        await store.contest(9)
    return held.id


def endpoint(text: bytes) -> bytes:
    return b'{"version":4,"endpoints":["%s"],"listener_security_protocol_map":{"P":"PLAINTEXT"}}' % text


def state_json(leader: bytes = b"1", epoch: bytes = b"0", isr: bytes = b"[1]", controller: bytes = b"1") -> bytes:
    return b'{"controller_epoch":%s,"leader":%s,"version":1,"leader_epoch":%s,"isr":%s}' % (
        controller, leader, epoch, isr,
    )  # fmt: skip


def move(partition: bytes = b"0", replicas: bytes = b"[1]", topic: bytes = b'"t"') -> bytes:
    return b'{"version":1,"partitions":[{"topic":"fine","partition":0,"replicas":[1]},' + (
        b'{"topic":%s,"partition":%s,"replicas":%s}]}' % (topic, partition, replicas)
    )


def partitions_json(partition: bytes = b"0", topic: bytes = b'"t"') -> bytes:
    return b'{"version":1,"partitions":[{"topic":"fine","partition":0},{"topic":%s,"partition":%s}]}' % (
        topic, partition,
    )  # fmt: skip


BAD_PARTITIONS: Final = (b"-1", OVER_INT32, HUGE, b'"0"', b"0.5", b"null", b"true")
PASSED_OVER: Final = (
    NodeKind(
        "/brokers/ids/7",
        [
            b"{}",
            b'{"version":5}',
            b'{"version":0,"host":"h","port":9}',
            b'{"version":-1,"host":"h","port":9}',
            b'{"version":"5","host":"h","port":9}',
            b'{"version":1,"host":null,"port":9}',
            b'{"version":1,"host":7,"port":9}',
            b'{"version":1,"host":"h","port":65536}',
            b'{"version":1,"host":"h","port":-2}',
            b'{"version":1,"host":"h","port":%s}' % HUGE,
            b'{"version":1,"host":"%s","port":9}' % (b"h" * 40_000),
            b'{"version":4,"endpoints":"P://h:9"}',
            b'{"version":4,"endpoints":["Q://h:9"],"listener_security_protocol_map":{"P":"PLAINTEXT"}}',
            *map(endpoint, (b"", b"h:9", b"P://h", b"P://h:", b"P://h:x", b"P://h:70000", b"P://h:" + HUGE, b"://h:9")),
            b'{"version":5,"endpoints":[],"rack":7}',
            b'{"version":5,"endpoints":[],"features":{"f":{"min_version":1}}}',
            b'{"version":5,"endpoints":[],"features":{"f":{"min_version":1,"max_version":99999}}}',
        ],
        broker_ids,
        [8],
    ),
    NodeKind(
        "/brokers/topics/orders",
        [
            b'{"partitions":[]}',
            b'{"partitions":{"x":[1]}}',
            b'{"partitions":{"-1":[1]}}',
            b'{"partitions":{"%s":[1]}}' % OVER_INT32,
            b'{"partitions":{"%s":[1]}}' % HUGE,
            b'{"partitions":{"0":1}}',
            b'{"partitions":{"0":["1"]}}',
            b'{"partitions":{"0":[-1]}}',
            b'{"partitions":{"0":[%s]}}' % OVER_INT32,
            b'{"partitions":{"0":[%s]}}' % b",".join([b"1"] * 1_001),
            b'{"partitions":{"0":[1]},"adding_replicas":[1]}',
            b'{"partitions":{"0":[1]},"topic_id":"short"}',
            b'{"partitions":{"0":[1]},"topic_id":7}',
        ],
        topic_names,
        ["other"],
    ),
    NodeKind(
        STATE,
        [
            b"{}",
            *(state_json(leader=bad) for bad in (b"-2", OVER_INT32, HUGE, b'"1"', b"null")),
            *(state_json(epoch=bad) for bad in (b"-1", OVER_INT32, HUGE, b'"1"')),
            *(state_json(isr=bad) for bad in (b"1", b"[-1]", b'["1"]', b"[null]", b"[%s]" % HUGE)),
            *(state_json(controller=bad) for bad in (b"-2", OVER_INT32, b'"1"')),
            state_json()[:-1] + b',"leader_recovery_state":2}',
        ],
        read_leaders,
        [None, 1],
    ),
    NodeKind(
        CONFIG,
        [b'{"config":[]}', b'{"config":{"a":1}}', b'{"config":{"a":null}}', b'{"config":null}'],
        configs,
        {"orders": None, "other": {"c": "d"}},
        null_is_nonsense=False,
    ),
    NodeKind(
        "/config/brokers/<default>",
        [b'{"config":[]}', b'{"config":{"a":1}}'],
        lambda store: store.default_config(),
        {},
        null_is_nonsense=False,
    ),
    NodeKind(
        "/isr_change_notification/isr_change_0000000000",
        [
            b"{}",
            b'{"partitions":{}}',
            *map(partitions_json, BAD_PARTITIONS),
            partitions_json(topic=b"7"),
            partitions_json(topic=b"null"),
        ],
        isr_notices,
        [(), (ORDERS_1,)],
    ),
    NodeKind(
        "/log_dir_event_notification/log_dir_event_0000000000",
        [b"{}", *(b'{"broker":%s}' % bad for bad in (b"-1", OVER_INT32, HUGE, b'"1"', b"null"))],
        log_dir_notices,
        [NO_BROKER, 8],
    ),
    NodeKind(
        "/admin/reassign_partitions",
        [
            b"{}",
            b'{"partitions":{}}',
            b'{"partitions":[{}]}',
            *map(move, BAD_PARTITIONS),
            *(move(replicas=bad) for bad in (b"1", b"[-2147483649]", b'["1"]', b"[%s]" % HUGE, b"null")),
            move(topic=b"7"),
        ],
        lambda store: store.reassignment_request(),
        {},
    ),
    NodeKind(
        "/admin/preferred_replica_election",
        [
            b"{}",
            b'{"partitions":{}}',
            b'{"partitions":[{}]}',
            *map(partitions_json, BAD_PARTITIONS),
            partitions_json(topic=b"7"),
        ],
        lambda store: store.preferred_election_request(),
        [],
    ),
    NodeKind(
        "/controller",
        [b"{}", *(b'{"version":2,"brokerid":%s}' % bad for bad in (b"-2", OVER_INT32, HUGE, b'"1"', b"null"))],
        controller_id,
        NO_BROKER,
    ),
)
RAISED: Final = (
    NodeKind(
        "/controller_epoch",
        [b"{}", b"-1", b"+1", b" 1", b"1 ", b"0x1", b"seven", OVER_INT32, HUGE, "١".encode()],
        lambda store: store.contest(1),
        None,
    ),
    NodeKind(
        "/feature",
        [
            b"{}",
            b'{"version":2,"status":1}',
            b'{"version":3,"status":1,"features":{}}',
            b'{"version":0,"status":1,"features":{}}',
            b'{"version":2,"status":2,"features":{}}',
            b'{"version":2,"status":true,"features":{}}',
            b'{"version":2,"status":1,"features":[]}',
            *(
                b'{"version":2,"status":1,"features":{"f":{"max_version_level":%s}}}' % bad
                for bad in (b"0", b"-1", b"32768", HUGE, b'"1"', b"null")
            ),
        ],
        lambda store: store.features(),
        None,
    ),
    NodeKind(
        "/latest_producer_id_block",
        [
            b"{}",
            *(
                b'{"version":1,"broker":1,"block_start":%s,"block_end":%s}' % pair
                for pair in (
                    (b'"0"', b'"x"'), (b'"-1"', b'"999"'), (b'"0"', b'"9223372036854775808"'), (b'"0"', b'"%s"' % HUGE),
                    (b'"1000"', b'"999"'), (b"null", b"999"), (b"0.5", b"999"), (b"0", HUGE), (b'""', b'""'),
                )
            ),
            b'{"version":1,"broker":"1","block_start":"0","block_end":"999"}',
            b'{"version":1,"block_start":"0","block_end":"999"}',
        ],
        lambda store: store.producer_ids(),
        None,
        null_is_nonsense=False,
    ),
)  # fmt: skip


@pytest.fixture
async def store(connect: str) -> AsyncIterator[ZooKeeperStore]:
    async with ZooKeeperStore(connect, session_timeout_ms=SESSION_MS) as opened:
        opened.subscribe(lambda event: None)
        yield opened


@pytest.fixture
async def fence(store: ZooKeeperStore, tree: Any) -> Fence:
    """Returns the fence of a stopped controller. The cluster has two topics, a broker, and notifications."""
    await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "b"})
    await store.create_topic(TopicRef("other"), THREE_PARTITIONS, {"c": "d"})
    fence = await store.contest(100)
    assert (await store.commit(new_write([ORDERS_0, ORDERS_1, TopicPartition("other", 0)]), fence)).committed.all()
    await store.resign(fence)
    tree.create("/brokers/ids/8", b'{"version":1,"host":"h","port":9}')
    await store.notify_isr([ORDERS_0])
    await store.notify_isr([ORDERS_1])
    await store.notify_log_dir(7)
    await store.notify_log_dir(8)
    return fence


async def test_malformed_states_among_many_fail_alone(
    store: ZooKeeperStore, tree: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_reads, "STATES_AT_ONCE", 7)
    names = [TopicPartition("orders", at) for at in range(40)]
    await store.create_topic(ORDERS, {name.partition: Assignment((1, 2)) for name in names}, {})
    fence = await store.contest(100)
    assert (await store.commit(new_write(names, leader_epoch=list(range(40)), isr=(2, 1)), fence)).committed.all()
    await store.resign(fence)
    path = "/brokers/topics/orders/partitions/{}/state".format
    bad = {
        3: b"{",
        9: None,
        10: b"",
        20: state_json() + b"," + state_json(),
        21: state_json()[:40],
        22: state_json()[40:],
        39: b"[]",
    }
    for at, data in bad.items():
        tree.set(path(at), data)
    for at in (0, 24):
        tree.delete(path(at))

    with caplog.at_level(logging.WARNING, "kactl"):
        found = await store.leaderships(Names.of(names))

    gone = {0: Found.MISSING, 24: Found.MISSING, **dict.fromkeys(bad, Found.UNREADABLE)}
    assert found.status.tolist() == [gone.get(at, Found.FOUND) for at in range(40)]
    assert found.leader_epoch.tolist() == [-1 if at in gone else at for at in range(40)]
    assert found.partition_epoch.tolist() == [-1 if at in gone else 0 for at in range(40)]
    assert found.isr.T.tolist() == [[-1, -1] if at in gone else [2, 1] for at in range(40)]
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == [path(at) for at in bad]


def put(tree: Any, path: str, data: bytes | None) -> None:
    if tree.exists(path):
        tree.set(path, data)
    else:
        tree.create(path, data)


@pytest.mark.parametrize("kind", PASSED_OVER, ids=str)
@pytest.mark.usefixtures("fence")
async def test_malformed_node_is_logged_skipped_and_unchanged(
    store: ZooKeeperStore, tree: Any, caplog: pytest.LogCaptureFixture, kind: NodeKind
) -> None:
    others = [other for other in PASSED_OVER if other is not kind]
    before = [tree.exists(other.path) and await other.read(store) for other in others]

    for data in kind.all_nonsense:
        put(tree, kind.path, data)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "kactl"):
            found = await kind.read(store)

        assert found == kind.found, data
        assert kind.path in caplog.text, data
        assert tree.get(kind.path)[0] == data
    assert [tree.exists(other.path) and await other.read(store) for other in others] == before


@pytest.mark.parametrize("kind", RAISED, ids=str)
@pytest.mark.usefixtures("fence")
async def test_harmful_malformed_node_is_raised(
    store: ZooKeeperStore, tree: Any, caplog: pytest.LogCaptureFixture, kind: NodeKind
) -> None:
    for data in kind.all_nonsense if kind.null_is_nonsense else [b"", *kind.all_nonsense]:
        put(tree, kind.path, data)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "kactl"), pytest.raises(StoreDamaged) as raised:
            await kind.read(store)

        assert raised.value.path == kind.path
        assert raised.value.remedy_text
        assert kind.path in caplog.text, data
        assert tree.get(kind.path)[0] == data
    assert await topic_names(store) == ["orders", "other"]
    assert await broker_ids(store) == [8]


async def test_no_epoch_follows_the_highest_one(store: ZooKeeperStore, tree: Any) -> None:
    tree.create("/controller_epoch", b"2147483647")

    with pytest.raises(StoreDamaged, match="highest"):
        await store.contest(1)

    assert tree.get("/controller_epoch")[0] == b"2147483647"
    assert not tree.exists("/controller")


@pytest.mark.usefixtures("fence")
async def test_topic_with_an_unreadable_id_is_not_overwritten(store: ZooKeeperStore, tree: Any) -> None:
    tree.set("/brokers/topics/orders", b'{"topic_id":"_-hTjXTqQ0mvGpvX0HdkzA","partitions":')

    with pytest.raises(StoreDamaged, match="topic's id"):
        await store.write_assignment(TopicRef("orders"), {0: Assignment((1,))}, None)

    assert tree.get("/brokers/topics/orders")[0].endswith(b'"partitions":')
    await store.write_assignment(ORDERS, THREE_PARTITIONS, None)
    assert await topic_names(store) == ["orders", "other"]


@pytest.mark.usefixtures("fence")
async def test_names_that_cannot_be_topics_are_left_out(
    store: ZooKeeperStore, tree: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fine = tree.get("/brokers/topics/orders")[0]
    bad = ["a b", "ä", "x" * 250, "x" * 40_000, "a:b"]
    for name in bad:
        tree.create(f"/brokers/topics/{name}", fine)

    with caplog.at_level(logging.WARNING, "kactl"):
        assert await topic_names(store) == ["orders", "other"]

    assert len(caplog.records) == len(bad)
    assert max(map(len, caplog.messages)) < 500


@pytest.mark.usefixtures("fence")
async def test_foreign_nodes_are_unchanged(store: ZooKeeperStore, tree: Any, caplog: pytest.LogCaptureFixture) -> None:
    strangers = [
        "/brokers/ids/eight",
        "/brokers/ids/99999999999",
        "/brokers/ids/-1",
        "/isr_change_notification/other_1",
        "/log_dir_event_notification/other_1",
        "/brokers/topics/orders/partitions/x",
        "/brokers/topics/orders/partitions/-1",
        "/brokers/topics/orders/partitions/99999999999",
    ]
    for path in strangers:
        tree.create(path, b"{}")

    with caplog.at_level(logging.WARNING, "kactl"):
        assert await broker_ids(store) == [8]
        assert await isr_notices(store) == [(ORDERS_0,), (ORDERS_1,)]
        assert await log_dir_notices(store) == [7, 8]
        assert await store.partitions_begun("orders") == [0, 1]

    for path in strangers:
        assert path in caplog.text
        assert tree.exists(path)


@pytest.mark.parametrize(
    ("path", "what", "good"),
    [
        ("/admin/reassign_partitions", Changed.REASSIGNMENT_REQUEST, move()),
        ("/admin/preferred_replica_election", Changed.PREFERRED_ELECTION_REQUEST, partitions_json()),
    ],
)
async def test_repaired_request_is_reported(
    store: ZooKeeperStore, tree: Any, path: str, what: Changed, good: bytes
) -> None:
    recorder = EventRecorder(store)

    async def read() -> Any:
        return await (
            store.reassignment_request() if what is Changed.REASSIGNMENT_REQUEST else store.preferred_election_request()
        )

    assert await read() is None
    tree.create(path, b"{")
    await recorder.wait_for(what)
    assert not await read()

    tree.set(path, good)

    await recorder.wait_for(what)
    assert len(await read()) == 2


@pytest.mark.usefixtures("fence")
async def test_empty_notifications_can_be_deleted(store: ZooKeeperStore, tree: Any) -> None:
    tree.set("/isr_change_notification/isr_change_0000000000", b"?")
    notices = await store.isr_notifications()

    await store.delete_notifications(notices, await store.contest(1))

    assert notices[0] == Notification("/isr_change_notification/isr_change_0000000000")
    assert tree.get_children("/isr_change_notification") == []
