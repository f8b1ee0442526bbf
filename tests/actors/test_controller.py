"""Controller scenarios: events of the cluster and the requests sent to brokers."""

import asyncio

import msgspec
import pytest

from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.control import StopReplica, UpdateMetadata
from kactl.decide.messages.events import BrokerChange
from kactl.decide.messages.log import BrokerEvent
from kactl.model import NO_LEADER, Broker, PartitionState, ReplicaState
from kactl.model.errors import TopicExists
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, kinds, partitions_of, world

pytestmark = pytest.mark.anyio

NEW, OFFLINE = PartitionState.NEW, PartitionState.OFFLINE


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_new_topic_gets_leaders_and_its_replicas_get_requests() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2], [2, 3]])

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert await w.stored("orders-1") == (2, 0, (2, 3))
        assert w.brokers.told(1) == {"orders-0": (1, 0, (1, 2), True)}
        assert w.brokers.told(2) == {"orders-0": (1, 0, (1, 2), True), "orders-1": (2, 0, (2, 3), True)}
        for broker in (1, 2, 3):
            last = w.brokers.of(broker, UpdateMetadata)[-1]
            assert partitions_of(last) == ["orders-0", "orders-1"]
        assert w.known("orders-0").replica_states == {1: ReplicaState.ONLINE, 2: ReplicaState.ONLINE}
        await w.check()


async def test_missing_topic_id_is_assigned_only_if_the_level_has_ids() -> None:
    async with world(1) as w:
        await w.create("orders", [[1]])

        (ref,) = (await w.store.assignments(["orders"])).topics
        assert any(ref.id)
        assert w.controller.topics() == [ref]
    async with world(1, level=ProtocolLevel(2, 7, 2)) as w:
        await w.create("orders", [[1]])

        (ref,) = (await w.store.assignments(["orders"])).topics
        assert not any(ref.id)


async def test_partition_with_only_dead_replicas_waits_for_one() -> None:
    async with world(1) as w:
        await w.create("orders", [[2, 3]])

        assert w.known("orders-0").state == NEW
        # The state ONLINE does not depend on the broker.
        assert w.known("orders-0").replica_states == {2: ReplicaState.ONLINE, 3: ReplicaState.ONLINE}

        await w.start(3)

        assert await w.stored("orders-0") == (3, 0, (3,))
        assert w.brokers.told(3) == {"orders-0": (3, 0, (3,), True)}
        await w.check()


async def test_partition_expansion_keeps_existing_partitions() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        ref = (await w.store.assignments(["orders"])).topics[0]
        w.brokers.forget()
        held = dict(enumerate([w.known("orders-0").assignment.reassign_to((2, 1)), w.known("orders-0").assignment]))

        await w.store.write_assignment(ref, held, None)
        await settle()

        assert await w.stored("orders-1") == (1, 0, (1, 2))
        # A changed assignment of an existing partition is ignored.
        assert w.known("orders-0").replicas == (1, 2)
        assert set(w.brokers.told(1)) == {"orders-1"}
        await w.check()


async def test_topic_creation_is_validated_before_any_write() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1]])

        with pytest.raises(TopicExists):
            await w.controller.create_topic("orders", partitions=1, replication_factor=1)
        ref = await w.controller.create_topic("dry", partitions=2, replication_factor=2, dry_run=True)

        assert ref.name == "dry"
        assert await w.store.topics() == ["orders"]


# -- brokers -----------------------------------------------------------------------------------------------------------


async def test_next_in_sync_replica_leads_with_the_next_epoch() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2, 3]])
        w.brokers.forget()

        await w.stop(1)

        assert await w.stored("orders-0") == (2, 1, (2, 3))
        # Two requests as in Kafka: one for the election, one for the replica that goes offline.
        assert kinds(w.brokers.of(2)) == ["LeaderAndIsr", "UpdateMetadata"] * 2
        assert w.brokers.told(2) == w.brokers.told(3) == {"orders-0": (2, 1, (2, 3), False)}
        assert w.known("orders-0").replica_states[1] == ReplicaState.OFFLINE
        await w.check()


async def test_dead_follower_leaves_the_isr_with_the_next_epoch() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])

        await w.stop(2)

        assert await w.stored("orders-0") == (1, 1, (1,))
        await w.check()


async def test_last_in_sync_replica_stays_in_the_isr_and_leads_again() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await w.stop(2)

        await w.stop(1)

        assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))
        assert w.known("orders-0").state == OFFLINE
        assert w.controller.snapshot().offline_partitions == 1

        await w.start(2)

        assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))

        await w.start(1)

        assert await w.stored("orders-0") == (1, 3, (1,))
        assert w.controller.snapshot().offline_partitions == 0
        await w.check()


async def test_failure_of_an_empty_broker_updates_live_brokers() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        await w.stop(3)

        for broker in (1, 2):
            (last,) = w.brokers.of(broker)
            assert isinstance(last, UpdateMetadata)
            assert not len(last.states)
            assert [each.id for each in last.live_brokers] == [1, 2]


async def test_new_broker_gets_full_metadata_and_others_get_the_new_broker() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2], [2, 4]])
        w.brokers.forget()

        await w.start(4)

        first, *_ = w.brokers.of(4)
        assert isinstance(first, UpdateMetadata)
        assert partitions_of(first) == ["orders-0", "orders-1"]
        assert set(w.brokers.told(4)) == {"orders-1"}
        (to_others, *_) = w.brokers.of(1)
        assert isinstance(to_others, UpdateMetadata)
        assert not len(to_others.states)
        assert [each.id for each in to_others.live_brokers] == [1, 2, 4]


async def test_one_reading_handles_new_then_bounced_then_dead_brokers() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2, 3]])
        before = w.controller.snapshot().seq
        # Three changes before the read returns, which then contains all of them.
        gate = asyncio.Event()
        real = w.controller.store.brokers

        async def held_up() -> dict[int, Broker]:
            await gate.wait()
            return await real()

        w.controller.store.brokers = held_up  # type: ignore[method-assign]
        await w.start(2, 3)
        await w.stop(1)
        gate.set()
        await settle()

        found = [event for event in w.events("broker") if event.seq > before]
        assert [(event.what, event.broker) for event in found if isinstance(event, BrokerEvent)] == [
            ("started", 3),
            ("failed", 2),
            ("bounced", 2),
            ("failed", 1),
        ]
        await w.check()


async def test_bounced_broker_gets_an_empty_channel_and_the_full_state() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.silent.add(2)
        await w.create("stuck", [[1, 2]])
        assert len(w.controller.channels[2]) > 0
        w.brokers.forget()

        old = w.sessions.pop(2)
        await old.close()
        w.brokers.silent.clear()
        await w.start(2)

        epoch = w.controller.cluster.brokers[2].epoch
        assert {request.broker_epoch for request in w.brokers.of(2)} == {epoch}
        assert set(w.brokers.told(2)) == {"orders-0", "stuck-0"}
        await w.check()


async def test_second_reading_of_the_same_brokers_has_no_effect() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        await w.controller.loop.receive(BrokerChange())
        await settle()

        assert w.brokers.sent == []


async def test_requests_contain_the_epoch_of_the_registration() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])

        for broker, request in w.brokers.sent:
            assert request.broker_epoch == w.controller.cluster.brokers[broker].epoch
            assert request.controller_epoch == 1
            assert request.controller_id == CONTROLLER


# -- ISR changes and responses of brokers ------------------------------------------------------------------------------


async def test_isr_notification_is_applied_sent_and_deleted() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        await w.write_isr("orders-0", 1)

        assert w.known("orders-0").isr == (1,)
        assert await w.store.isr_notifications() == []
        assert kinds(w.brokers.of(2)) == ["UpdateMetadata"]
        await w.check()


async def test_rejected_write_finds_an_unreported_isr() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2, 3]])
        partition, state = await w._stored("orders-0")
        shrunk = msgspec.structs.replace(state, isr=(1, 3))
        assert await w.store.write_isr(partition, shrunk, expected=state.partition_epoch) == 1

        await w.stop(1)

        # By the controller's state 2 would lead. By the stored ISR, 2 is not in sync.
        assert await w.stored("orders-0") == (3, 1, (3,))
        await w.check()


async def test_failed_directory_moves_leaders_until_the_broker_restarts() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2], [1, 2]])
        w.brokers.failed_dirs[1] = {"orders-0"}
        w.brokers.forget()

        await w.store.notify_log_dir(1)
        await settle()

        assert await w.store.log_dir_notifications() == []
        assert await w.stored("orders-0") == (2, 1, (2,))
        assert await w.stored("orders-1") == (1, 0, (1, 2))
        (stop,) = w.brokers.of(1, StopReplica)
        assert partitions_of(stop) == ["orders-0"]
        assert not w.controller.cluster.is_replica_online(1, w.known("orders-0").name)
        await w.check()

        w.brokers.failed_dirs.clear()
        await w.stop(1)
        await w.start(1)

        assert w.controller.cluster.is_replica_online(1, w.known("orders-0").name)


async def test_failed_directory_of_a_replica_that_is_being_added_is_found() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1]])
        await w.controller.reassign({"orders-0": [2]})
        w.brokers.failed_dirs[2] = {"orders-0"}

        await w.store.notify_log_dir(2)
        await settle()

        assert not w.controller.cluster.is_replica_online(2, w.known("orders-0").name)
        await w.check()


async def test_repeated_directory_error_is_handled_once() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.failed_dirs[1] = {"orders-0"}
        await w.store.notify_log_dir(1)
        await settle()
        stored = await w.stored("orders-0")

        await w.store.notify_log_dir(1)
        await settle()

        assert await w.stored("orders-0") == stored


async def test_response_with_a_top_level_error_marks_no_directories() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.failed_dirs[1] = {"orders-0"}
        w.brokers.error[1] = 77

        await w.store.notify_log_dir(1)
        await settle()

        assert await w.stored("orders-0") == (1, 0, (1, 2))
