"""Metadata on listeners that relay nothing: brokers, topics and partitions from the controller's own table."""

import uuid
from typing import Any

import anyio.to_thread
import pytest
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.state.records import Leaderships
from kactl.model import Assignment, Broker, Endpoint, Leadership, TopicPartition, TopicRef
from kactl.security.access import Acl, AclAuthorizer, Acls, Operation, Resource, ResourceType, topic
from kactl.transports.kafka.listener import ListenerSecurity

from .client import Client, connected, part, request_class
from .listener_stub import KACTL, LISTENER, ControllerStub, listening

pytestmark = pytest.mark.anyio

ORDERS, HIDDEN, EMPTY = (
    TopicRef(name, bytes([number]) * 16) for number, name in enumerate(("orders", "hidden", "new"), 1)
)


class Cluster(ControllerStub):
    """Brokers 1 and 2 have the listener, 3 has another one, and 4 is not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.live = [Broker(broker, 1, (Endpoint(LISTENER, f"b{broker}", 9092),), "rack") for broker in (1, 2)]
        self.live.append(Broker(3, 1, (Endpoint("OTHER", "b3", 9092),)))

    def add(self, ref: TopicRef, *partitions: tuple[tuple[int, ...], Leadership | None]) -> None:
        self.named.append(ref)
        self.table.add_topic(ref.name, ref.id)
        for number, (replicas, leadership) in enumerate(partitions):
            row = self.table.put_assignment(TopicPartition(ref.name, number), Assignment(replicas))
            self.table.put_leaderships(
                self.table.rows_named([TopicPartition(ref.name, number)]), Leaderships.of([leadership])
            )
            assert row >= 0


def _led(leader: int, *isr: int, epoch: int = 7) -> Leadership:
    return Leadership(leader, epoch, isr, 1, 1)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add(
        ORDERS,
        ((1, 2), _led(1, 1, 2)),
        ((2, 4), _led(2, 2)),
        ((3, 1), _led(3, 3, 1)),
        ((4, 1), _led(4, 4)),
        ((1, 2), None),
    )
    cluster.add(HIDDEN, ((1,), _led(1, 1)))
    cluster.add(EMPTY)
    return cluster


def _security(*shown: str) -> ListenerSecurity:
    """Everybody may describe these topics, and nobody any other; without any, everybody may describe all."""
    everybody = [Acl("User:*", "*", Operation.DESCRIBE)]
    lists = {topic(name): everybody for name in shown} or {Resource(ResourceType.TOPIC, "*"): everybody}
    return ListenerSecurity(authorizer=AclAuthorizer(acls=Acls(lists)))


async def _metadata(
    client: Client, version: int, *names: str, ids: tuple[bytes, ...] = (), all_of_them: bool = False
) -> Any:
    request, entry = request_class(3, version), part(3, version, "MetadataRequestTopic")
    no_id = {"topic_id": None} if version >= 10 else {}
    topics = tuple(entry(name=name, **no_id) for name in names)
    topics += tuple(entry(name=None, topic_id=uuid.UUID(bytes=one)) for one in ids)
    more = {"include_topic_authorized_operations": False} if version >= 8 else {}
    more |= {"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {}
    if all_of_them:
        topics = () if version == 0 else None  # type: ignore[assignment]
    return await client.ask(request(topics=topics, **more))


def _topics(response: Any) -> dict[str, tuple[KioError, int]]:
    """Returns the error and the number of partitions of each topic."""
    return {entry.name: (entry.error_code, len(entry.partitions)) for entry in response.topics}


async def test_partitions_are_those_of_the_table(cluster: Cluster) -> None:
    async with listening(cluster, security=_security()) as (_, port), connected(port) as client:
        response = await _metadata(client, 12, "orders")

    assert [(one.node_id, one.host, one.rack) for one in response.brokers] == [
        (1, "b1", "rack"),
        (2, "b2", "rack"),
        (KACTL, "127.0.0.1", None),
    ]
    assert response.controller_id == KACTL
    (entry,) = response.topics
    assert (entry.name, entry.topic_id.bytes, entry.is_internal) == ("orders", ORDERS.id, False)
    assert [
        (one.partition_index, one.error_code, one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes,
         one.offline_replicas)
        for one in entry.partitions
    ] == [
        (0, KioError.none, 1, 7, (1, 2), (1, 2), ()),
        (1, KioError.none, 2, 7, (2, 4), (2,), (4,)),
        (2, KioError.listener_not_found, -1, 7, (3, 1), (3, 1), ()),
        (3, KioError.leader_not_available, -1, 7, (4, 1), (4,), (4,)),
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(13))
async def test_every_version_has_the_partitions(cluster: Cluster, version: int) -> None:
    async with listening(cluster, security=_security()) as (_, port), connected(port) as client:
        response = await _metadata(client, version, all_of_them=True)

    assert _topics(response) == {
        "orders": (KioError.none, 4),
        "hidden": (KioError.none, 1),
        "new": (KioError.leader_not_available, 0),
    }
    third = response.topics[0].partitions[2]
    assert third.error_code is (KioError.listener_not_found if version >= 6 else KioError.leader_not_available)
    # Clients of version 0 take no replicas that they cannot reach.
    second = response.topics[0].partitions[1]
    assert (second.error_code, second.replica_nodes) == (
        (KioError.replica_not_available, (2,)) if version == 0 else (KioError.none, (2, 4))
    )


@pytest.mark.parametrize("version", [0, 1, 12])
async def test_topics_that_may_not_be_described_are_left_out(cluster: Cluster, version: int) -> None:
    async with listening(cluster, security=_security("orders")) as (_, port), connected(port) as client:
        everything = await _metadata(client, version, all_of_them=True)
        some = await _metadata(client, version, "orders", "hidden", "unknown")
    assert _topics(everything) == {"orders": (KioError.none, 4)}
    assert _topics(some) == {
        "orders": (KioError.none, 4),
        "hidden": (KioError.topic_authorization_failed, 0),
        "unknown": (KioError.topic_authorization_failed, 0),
    }


@pytest.mark.parametrize("version", [0, 1, 12])
async def test_nothing_that_may_be_described_is_not_everything(cluster: Cluster, version: int) -> None:
    """An empty list of topics means all of them in version 0."""
    async with listening(cluster, security=_security("other")) as (_, port), connected(port) as client:
        assert _topics(await _metadata(client, version, all_of_them=True)) == {}
        response = await _metadata(client, version, "hidden")
        assert _topics(response) == {"hidden": (KioError.topic_authorization_failed, 0)}
        assert len(response.brokers) == 3


async def test_unknown_topics_are_unknown(cluster: Cluster) -> None:
    async with listening(cluster, security=_security()) as (_, port), connected(port) as client:
        response = await _metadata(client, 12, "orders", "unknown", ids=(HIDDEN.id, bytes([9]) * 16))
    assert [(entry.name, entry.error_code) for entry in response.topics] == [
        ("orders", KioError.none),
        ("unknown", KioError.unknown_topic_or_partition),
        ("hidden", KioError.none),
        (None, KioError.unknown_topic_id),
    ]


async def test_topic_is_unknown_from_the_begin_of_its_deletion(cluster: Cluster) -> None:
    cluster.table.queue_topic("orders", True)
    async with listening(cluster, security=_security()) as (_, port), connected(port) as client:
        response = await _metadata(client, 12, "orders")
    assert _topics(response) == {"orders": (KioError.unknown_topic_or_partition, 0)}


async def test_topic_that_is_named_often_is_listed_once(cluster: Cluster) -> None:
    """Some bytes of a request would otherwise become megabytes of a response."""
    async with listening(cluster, security=_security()) as (_, port), connected(port) as client:
        response = await _metadata(client, 12, *["orders"] * 1000)
    assert len(response.topics) == 1


async def test_standby_lets_clients_try_again(cluster: Cluster) -> None:
    cluster.is_active, cluster.active_id = False, 901
    async with listening(cluster, security=_security()) as (_, port), connected(port) as client:
        response = await _metadata(client, 12, "orders")
        assert _topics(response) == {"orders": (KioError.leader_not_available, 0)}
        assert response.controller_id == 901


async def test_librdkafka_lists_the_cluster(cluster: Cluster) -> None:
    async with listening(cluster, security=_security()) as (_, port):
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        listed = await anyio.to_thread.run_sync(lambda: admin.list_topics(timeout=20))
    assert sorted(listed.brokers) == [1, 2, KACTL]
    assert [one.leader for _, one in sorted(listed.topics["orders"].partitions.items())] == [1, 2, -1, -1]
    assert listed.topics["orders"].partitions[1].replicas == [2, 4]
