"""Listener in front of a real controller, its store and participants; requests by librdkafka's admin client and kio."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as Named
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from kio.schema.errors import ErrorCode as KioError

from kactl.actors.system import Controller
from kactl.kafka.own_controller import ListenerController
from kactl.model import TopicPartition
from kactl.participant.group import Participants
from kactl.stores.memory import MemoryStore
from kactl.transports.kafka.listener import KafkaListener
from kactl.transports.memory import MemoryHub

from .client import Client, connected, request_class
from .listener_stub import KACTL, listening
from .test_broker_handlers import alter

pytestmark = pytest.mark.anyio


class ListenedCluster(NamedTuple):
    """Cluster of three participants with a listener."""

    store: MemoryStore
    controller: Controller
    participants: Participants
    listener: KafkaListener
    port: int
    admin: AdminClient


@pytest.fixture
async def cluster() -> AsyncIterator[ListenedCluster]:
    hub, store = MemoryHub(), MemoryStore()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(store)
        theirs = await stack.enter_async_context(store.another())
        participants = await stack.enter_async_context(
            Participants(3, store=theirs, hub=hub, session_timeout_ms=10_000)
        )
        controller = await stack.enter_async_context(Controller(KACTL, store=store.another(), hub=hub))
        await controller.wait_active()
        listener, port = await stack.enter_async_context(
            # Participants of this process have no addresses.
            listening(ListenerController(controller), partitions=2, replication_factor=3, checks_broker_addresses=False)
        )
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        yield ListenedCluster(store, controller, participants, listener, port, admin)


async def done(request: Callable[[], dict[Any, Future[Any]]]) -> dict[Any, Any]:
    """Return the error code of each future, 0 for success."""

    def wait() -> dict[Any, Any]:
        became = {}
        for key, future in request().items():
            try:
                became[key] = future.result(timeout=30)
            except KafkaException as error:
                became[key] = error.args[0].code()
        return became

    return await asyncio.to_thread(wait)


async def test_admin_client_creates_expands_and_deletes_a_topic(cluster: ListenedCluster) -> None:
    admin, controller = cluster.admin, cluster.controller
    created = await done(lambda: admin.create_topics([NewTopic("orders", 4, 2), NewTopic("open", -1, -1)]))
    led = [partition.leader for partition in controller.partitions_of("orders")]
    open_ = [len(partition.replicas) for partition in controller.partitions_of("open")]
    again = await done(lambda: admin.create_topics([NewTopic("orders", 1, 1)]))
    wide = await done(lambda: admin.create_topics([NewTopic("wide", 1, 4)]))
    mine = await done(
        lambda: admin.create_topics([NewTopic("mine", 1, replica_assignment=[[KACTL]])]),
    )
    checked = await done(lambda: admin.create_topics([NewTopic("checked", 1, 1)], validate_only=True))
    grown = await done(lambda: admin.create_partitions([NewPartitions("orders", 6)]))
    grown_mine = await done(lambda: admin.create_partitions([NewPartitions("orders", 7, [[1, KACTL]])]))
    led_then = [partition.leader for partition in controller.partitions_of("orders")]
    deleted = await done(lambda: admin.delete_topics(["orders", "lost"], operation_timeout=20))

    assert created == {"orders": None, "open": None}
    assert len(led) == 4
    assert all(leader >= 0 for leader in led)
    assert open_ == [3, 3]
    assert again == {"orders": KioError.topic_already_exists.value}
    assert wide == {"wide": KioError.invalid_replication_factor.value}
    assert mine == {"mine": KioError.invalid_replica_assignment.value}
    assert checked == {"checked": None}
    assert grown == {"orders": None}
    assert grown_mine == {"orders": KioError.invalid_replica_assignment.value}
    assert len(led_then) == 6
    assert all(leader >= 0 for leader in led_then)
    assert deleted == {"orders": None, "lost": KioError.unknown_topic_or_partition.value}
    assert [ref.name for ref in controller.topics()] == ["open"]
    assert cluster.listener.counters.rejected == {}


async def test_admin_client_elects_a_preferred_leader(cluster: ListenedCluster) -> None:
    await done(lambda: cluster.admin.create_topics([NewTopic("orders", 1, 3)]))

    elected = await done(lambda: {"all": cluster.admin.elect_leaders(ElectionType.PREFERRED, [Named("orders", 0)])})

    (result,) = elected["all"].values()
    assert result is None or result.code() == KioError.election_not_needed.value


async def test_broker_shuts_down_in_order_and_is_fenced_by_its_epoch(cluster: ListenedCluster) -> None:
    await done(lambda: cluster.admin.create_topics([NewTopic("orders", 6, 3)]))
    (broker, *_) = cluster.controller.brokers()
    async with connected(cluster.port) as client:
        stale = await client.ask(request_class(7, 3)(broker_id=broker.id, broker_epoch=broker.epoch - 1))
        unknown = await client.ask(request_class(7, 3)(broker_id=77, broker_epoch=1))
        left = await client.ask(request_class(7, 3)(broker_id=broker.id, broker_epoch=broker.epoch))

    assert stale.error_code is KioError.stale_broker_epoch
    assert unknown.error_code is KioError.broker_not_available
    assert (left.error_code, left.remaining_partitions) == (KioError.none, ())
    led = [partition.leader for partition in cluster.controller.partitions_of("orders")]
    assert broker.id not in led
    assert all(leader >= 0 for leader in led)


async def ids(client: Client, broker: Any) -> tuple[int, int]:
    answer = await client.ask(request_class(67, 0)(broker_id=broker.id, broker_epoch=broker.epoch))
    assert answer.error_code is KioError.none
    return answer.producer_id_start, answer.producer_id_len


async def test_producer_id_blocks_are_unique(cluster: ListenedCluster) -> None:
    one, two, _ = cluster.controller.brokers()
    async with connected(cluster.port) as client:
        given = [await ids(client, one), await ids(client, two), await ids(client, one)]
        stale = await client.ask(request_class(67, 0)(broker_id=one.id, broker_epoch=one.epoch - 1))
        unknown = await client.ask(request_class(67, 0)(broker_id=77, broker_epoch=1))

    assert [length for _, length in given] == [1000] * 3
    firsts = [first for first, _ in given]
    assert firsts == [firsts[0], firsts[0] + 1000, firsts[0] + 2000]
    assert stale.error_code is KioError.stale_broker_epoch
    assert unknown.error_code is KioError.broker_id_not_registered


async def test_isr_proposal_reaches_the_controller(cluster: ListenedCluster) -> None:
    """By topic name, in the two versions that brokers use for topics without ids."""
    await done(lambda: cluster.admin.create_topics([NewTopic("orders", 1, replica_assignment=[[2, 1, 3]])]))
    view = cluster.controller.partition("orders-0")
    assert view is not None
    broker = next(candidate for candidate in cluster.controller.brokers() if candidate.id == 2)
    async with connected(cluster.port) as client:
        stale = await client.ask(alter(0, (0, view.leader_epoch, (2, 1), view.partition_epoch)))
        proposal = alter(0, (0, view.leader_epoch, (2, 1), view.partition_epoch))
        object.__setattr__(proposal, "broker_epoch", broker.epoch)
        altered = await client.ask(proposal)

    assert stale.error_code is KioError.stale_broker_epoch
    (partition,) = altered.topics[0].partitions
    assert altered.error_code is partition.error_code is KioError.none
    assert (partition.leader_id, set(partition.isr), partition.partition_epoch) == (2, {1, 2}, view.partition_epoch + 1)
    now = cluster.controller.partition(TopicPartition("orders", 0))
    assert now is not None
    assert now.partition_epoch >= view.partition_epoch + 1


async def test_resigned_controller_returns_not_controller(cluster: ListenedCluster) -> None:
    store, hub = cluster.store.another(), cluster.controller.hub
    async with Controller(KACTL + 1, store=store, hub=hub, take_over=True) as second:
        await second.wait_active()
        async with connected(cluster.port) as client, asyncio.timeout(60):
            while cluster.controller.is_active:
                await cluster.controller.history.changed()
            shutdown = await client.ask(request_class(7, 3)(broker_id=1, broker_epoch=1))
            ids_ = await client.ask(request_class(67, 0)(broker_id=1, broker_epoch=1))

    assert shutdown.error_code is KioError.stale_controller_epoch
    assert ids_.error_code is KioError.not_controller
