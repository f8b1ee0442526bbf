"""The controller's protocol as stories: what happens to the cluster, and who is told what."""

import asyncio

import msgspec
import pytest

from kactl.config.protocol_level import ProtocolLevel
from kactl.errors import TopicExists
from kactl.messages.control import StopReplica, UpdateMetadata
from kactl.messages.events import BrokersChanged
from kactl.messages.log import BrokerEvent
from kactl.model import NO_LEADER, Broker, PartitionState, ReplicaState
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, kinds, partitions_of, world

pytestmark = pytest.mark.anyio

NEW, OFFLINE = PartitionState.NEW, PartitionState.OFFLINE


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_a_new_topic_gets_leaders_and_only_its_replicas_lead_or_follow() -> None:
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


async def test_a_topic_without_an_id_is_given_one_where_ids_are_used_and_only_there() -> None:
    async with world(1) as w:
        await w.create("orders", [[1]])

        (ref,) = (await w.store.assignments(["orders"])).topics
        assert any(ref.id)
        assert w.controller.topics() == [ref]
    async with world(1, level=ProtocolLevel(2, 7, 2)) as w:
        await w.create("orders", [[1]])

        (ref,) = (await w.store.assignments(["orders"])).topics
        assert not any(ref.id)


async def test_partitions_on_dead_brokers_only_wait_for_one_of_them() -> None:
    async with world(1) as w:
        await w.create("orders", [[2, 3]])

        assert w.known("orders-0").state == NEW
        # Becoming ONLINE is not a statement about the broker.
        assert w.known("orders-0").replica_states == {2: ReplicaState.ONLINE, 3: ReplicaState.ONLINE}

        await w.start(3)

        assert await w.stored("orders-0") == (3, 0, (3,))
        assert w.brokers.told(3) == {"orders-0": (3, 0, (3,), True)}
        await w.check()


async def test_a_topic_grows_and_its_old_partitions_are_left_alone() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        ref = (await w.store.assignments(["orders"])).topics[0]
        w.brokers.forget()
        held = dict(enumerate([w.known("orders-0").assignment.reassign_to((2, 1)), w.known("orders-0").assignment]))

        await w.store.write_assignment(ref, held, None)
        await settle()

        assert await w.stored("orders-1") == (1, 0, (1, 2))
        # What changed of a partition that was there is not followed.
        assert w.known("orders-0").replicas == (1, 2)
        assert set(w.brokers.told(1)) == {"orders-1"}
        await w.check()


async def test_topic_creation_is_checked_before_anything_is_written() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1]])

        with pytest.raises(TopicExists):
            await w.controller.create_topic("orders", partitions=1, replication_factor=1)
        ref = await w.controller.create_topic("dry", partitions=2, replication_factor=2, dry_run=True)

        assert ref.name == "dry"
        assert await w.store.topics() == ["orders"]


# -- brokers -----------------------------------------------------------------------------------------------------------


async def test_a_dead_leader_is_followed_by_the_next_in_sync_with_one_epoch_more() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2, 3]])
        w.brokers.forget()

        await w.stop(1)

        assert await w.stored("orders-0") == (2, 1, (2, 3))
        # Once by the election, and once more when the dead replica goes offline: as in Kafka.
        assert kinds(w.brokers.of(2)) == ["LeaderAndIsr", "UpdateMetadata"] * 2
        assert w.brokers.told(2) == w.brokers.told(3) == {"orders-0": (2, 1, (2, 3), False)}
        assert w.known("orders-0").replica_states[1] == ReplicaState.OFFLINE
        await w.check()


async def test_a_dead_follower_leaves_the_isr_with_one_epoch_more() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])

        await w.stop(2)

        assert await w.stored("orders-0") == (1, 1, (1,))
        await w.check()


async def test_the_last_in_sync_replica_stays_in_the_isr_and_leads_again_when_it_returns() -> None:
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


async def test_a_broker_that_hosts_nothing_dies_and_the_others_learn_who_is_left() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        await w.stop(3)

        for broker in (1, 2):
            (last,) = w.brokers.of(broker)
            assert isinstance(last, UpdateMetadata)
            assert not len(last.states)
            assert [each.id for each in last.live_brokers] == [1, 2]


async def test_a_new_broker_is_told_everything_and_the_others_about_it() -> None:
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


async def test_new_bounced_and_dead_brokers_of_one_reading_are_handled_in_that_order() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2, 3]])
        before = w.controller.snapshot().seq
        # Three changes before the controller's reading is answered: it shows them all.
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


async def test_a_bounced_broker_gets_a_channel_without_anything_old_and_the_whole_state() -> None:
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


async def test_a_second_reading_of_the_same_brokers_changes_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        await w.controller.loop.receive(BrokersChanged())
        await settle()

        assert w.brokers.sent == []


async def test_requests_carry_the_epoch_of_the_registration_they_are_for() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])

        for broker, request in w.brokers.sent:
            assert request.broker_epoch == w.controller.cluster.brokers[broker].epoch
            assert request.controller_epoch == 1
            assert request.controller_id == CONTROLLER


# -- what brokers wrote and answered -----------------------------------------------------------------------------------


async def test_an_isr_that_a_leader_wrote_is_taken_over_told_and_its_notification_taken_away() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        await w.write_isr("orders-0", 1)

        assert w.known("orders-0").isr == (1,)
        assert await w.store.isr_notifications() == []
        assert kinds(w.brokers.of(2)) == ["UpdateMetadata"]
        await w.check()


async def test_an_isr_that_was_written_unnoticed_is_found_by_the_refused_write() -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2, 3]])
        partition, state = await w._stored("orders-0")
        shrunk = msgspec.structs.replace(state, isr=(1, 3))
        assert await w.store.write_isr(partition, shrunk, expected=state.partition_epoch) == 1

        await w.stop(1)

        # By what the controller knew 2 would lead; by what is stored 2 is not in sync.
        assert await w.stored("orders-0") == (3, 1, (3,))
        await w.check()


async def test_a_failed_directory_moves_leaders_away_and_is_forgotten_when_the_broker_returns() -> None:
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


async def test_the_same_answer_twice_is_news_once() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.failed_dirs[1] = {"orders-0"}
        await w.store.notify_log_dir(1)
        await settle()
        stored = await w.stored("orders-0")

        await w.store.notify_log_dir(1)
        await settle()

        assert await w.stored("orders-0") == stored


async def test_an_answer_with_an_error_of_its_own_says_nothing_of_directories() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.failed_dirs[1] = {"orders-0"}
        w.brokers.error[1] = 77

        await w.store.notify_log_dir(1)
        await settle()

        assert await w.stored("orders-0") == (1, 0, (1, 2))
