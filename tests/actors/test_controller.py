"""The controller's protocol as stories: what happens to the cluster, and who is told what."""

import asyncio

import anyio
import msgspec
import pytest

from kactl.errors import ControllerMoved, NotController, StoreUnavailable, TopicExists
from kactl.events import BrokersChanged
from kactl.history import BrokerEvent, ControllerEvent
from kactl.level import ProtocolLevel
from kactl.model import NO_LEADER, Broker, Fence, PartitionState, ReplicaState, TopicPartition
from kactl.requests import ElectionKind
from kactl.store import Notification
from kactl.wire import LeaderAndIsr, StopReplica, UpdateMetadata
from tests.actors.world import CONTROLLER, World, kinds, partitions_of, standby, world
from tests.clocks import settle

pytestmark = pytest.mark.anyio

NEW, ONLINE, OFFLINE = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE


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


# -- elections ---------------------------------------------------------------------------------------------------------


async def test_where_it_is_allowed_anybody_who_is_online_leads_and_recovers() -> None:
    for unclean, config in ((True, {}), (False, {"unclean.leader.election.enable": "true"})):
        async with world(1, 2, unclean=unclean) as w:
            await w.create("orders", [[1, 2]], config)
            await w.stop(2)
            await w.start(2)

            await w.stop(1)

            assert await w.stored("orders-0") == (2, 2, (2,))
            assert w.known("orders-0").recovering
            assert w.controller.partitions.unclean_elections == 1
            await w.check()


async def test_an_override_forbids_what_the_default_allows() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]], {"unclean.leader.election.enable": "false"})
        await w.stop(2)
        await w.start(2)

        await w.stop(1)

        assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))
        assert w.controller.partitions.unclean_elections == 0


async def test_allowing_it_for_a_topic_or_by_default_revives_what_waits() -> None:
    async with world(1, 2) as w:
        for topic in ("orders", "audit"):
            await w.create(topic, [[1, 2]])
        await w.stop(2)
        await w.start(2)
        await w.stop(1)
        assert w.controller.snapshot().offline_partitions == 2

        await w.store.set_topic_config("orders", {"unclean.leader.election.enable": "true"})
        await settle()

        assert (await w.stored("orders-0"))[0] == 2
        assert (await w.stored("audit-0"))[0] == NO_LEADER

        await w.controller.set_unclean_leader_election(True)

        assert (await w.stored("audit-0"))[0] == 2
        await w.check()


async def test_elections_on_request_answer_for_each_partition() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2], [2, 1], [3, 1]])
        await w.stop(1)
        await w.start(1)
        await w.write_isr("orders-0", 1, 2)

        before = await w.stored("orders-0")
        dry = await w.controller.elect(ElectionKind.PREFERRED, dry_run=True)
        assert await w.stored("orders-0") == before
        results = await w.controller.elect(
            ElectionKind.PREFERRED,
            [TopicPartition.parse(name) for name in ("orders-2", "orders-0", "orders-1", "none-0")],
        )

        assert [(each.topic, each.partition, each.outcome, each.leader) for each in dry] == [
            ("orders", 0, "ok", 1),
            ("orders", 2, "failed", 1),
        ]
        assert [(each.partition, each.outcome, int(each.error)) for each in results] == [
            (2, "failed", 80),
            (0, "ok", 0),
            (1, "not_needed", 84),
            (0, "failed", 3),
        ]
        assert (await w.stored("orders-0"))[0] == 1
        await w.check()


# -- the controllership ------------------------------------------------------------------------------------------------


async def test_the_second_instance_stands_by_and_takes_over_with_a_higher_epoch() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        second, told = standby(w, 200)
        async with second:
            await settle()
            assert not second.is_active
            assert second.loop.active_id == CONTROLLER
            with pytest.raises(NotController, match="the controller is 100"):
                await second.create_topic("x", partitions=1, replication_factor=1)

            w.controller.loop.controllership.stopping = True
            await w.controller.resign()
            await settle()

            assert second.is_active
            assert second.cluster.fence.epoch == 2
            assert not w.controller.is_active
            # Who is live before who leads; then everything that each broker hosts, under the new epoch.
            first, then, *_ = told.of(1)
            assert isinstance(first, UpdateMetadata)
            assert not len(first.states)
            assert isinstance(then, LeaderAndIsr)
            assert then.controller_epoch == 2
            assert set(told.told(1)) == {"orders-0"}


async def test_a_takeover_deposes_the_one_before_which_then_sends_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        second, _ = standby(w, 200, take_over=True)
        async with second:
            await settle()

            assert second.is_active
            assert not w.controller.is_active
            assert w.controller.snapshot().brokers == 0
            w.brokers.forget()
            await w.stop(1)
            assert w.brokers.sent == []
            assert await w.stored("orders-0") == (2, 1, (2,))


async def test_a_lost_fence_is_noticed_by_the_next_write_and_ends_in_resignation() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()
        # Somebody takes over while the controller knows of nothing: its watch has not told it yet.
        w.controller.cluster.fence = Fence(epoch=1, version=0)

        await w.stop(1)

        assert [type(request) for _, request in w.brokers.sent if isinstance(request, LeaderAndIsr)] == []
        assert await w.stored("orders-0") == (1, 0, (1, 2))


async def test_the_end_of_the_session_voids_what_waits_and_a_new_one_contests_again() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        outcomes: list[str] = []

        async def ask() -> None:
            try:
                await w.controller.create_topic("late", partitions=1, replication_factor=1)
            except NotController:
                outcomes.append("not controller")

        async with anyio.create_task_group() as tasks:
            w.controller.loop.inbox.put(BrokersChanged())
            tasks.start_soon(ask)
            await asyncio.sleep(0)
            w.controller.store.expire()  # type: ignore[attr-defined]
            await settle()

        assert outcomes == ["not controller"]
        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2
        assert [event.what for event in w.events("controller") if isinstance(event, ControllerEvent)] == [
            "elected",
            "resigned",
            "elected",
        ]
        await w.check()


async def test_taking_over_after_a_leader_died_costs_two_epochs() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        # The broker dies while nobody rules: the next controller takes it out of the ISR first, and then elects.
        second, _ = standby(w, 200)
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await settle()
        await w.stop(1)
        async with second:
            await settle()

            assert await w.stored("orders-0") == (2, 2, (2,))


async def test_old_notifications_are_taken_away_when_taking_over() -> None:
    async with world(1) as w:
        await w.create("orders", [[1]])
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await w.store.notify_isr([TopicPartition.parse("orders-0")])
        await w.store.notify_log_dir(1)
        second, _ = standby(w, 200)
        async with second:
            await settle()

            assert await w.store.isr_notifications() == []
            assert await w.store.log_dir_notifications() == []


async def test_a_takeover_that_fails_gives_the_controllership_up_and_is_tried_again() -> None:
    async with world(1) as w:
        second, _ = standby(w, 200, take_over=True)
        failures = 1

        async def broken(notifications: list[Notification], fence: Fence) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise ZeroDivisionError("a bug")
            await real(notifications, fence)

        real = second.store.delete_notifications
        second.store.delete_notifications = broken  # type: ignore[method-assign,assignment]
        w.controller.loop.controllership.stopping = True
        async with second:
            await settle()
            assert not second.is_active
            assert await w.store.controller() is None

            await w.clock.advance(2_000)

            assert second.is_active
            assert second.cluster.fence.epoch == 3


async def test_while_the_store_fails_for_a_moment_an_event_is_tried_again() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        failures = 2
        real = w.controller.store.brokers

        async def failing() -> object:
            nonlocal failures
            if failures:
                failures -= 1
                raise StoreUnavailable("the store is away for a moment")
            return await real()

        w.controller.store.brokers = failing  # type: ignore[method-assign,assignment]
        await w.stop(1)
        assert (await w.stored("orders-0"))[0] == 1

        await w.clock.advance(1_000)

        assert failures == 0
        assert await w.stored("orders-0") == (2, 1, (2,))


async def test_a_handler_that_fails_does_not_end_the_loop() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        real = w.controller.store.topics

        async def broken() -> list[str]:
            w.controller.store.topics = real  # type: ignore[method-assign]
            raise ZeroDivisionError("a bug")

        w.controller.store.topics = broken  # type: ignore[method-assign]
        await w.create("lost", [[1]])
        assert w.controller.partition("lost-0") is None

        # It is looked at again by itself: the reading that was not made is what would have told of the next topic.
        await w.create("found", [[1]])
        await w.clock.advance(10_000)

        assert w.controller.partition("found-0") is not None
        assert w.controller.partition("lost-0") is not None
        assert w.controller.loop.state.name == "IDLE"


async def test_stopping_gives_the_controllership_up_at_once() -> None:
    async with world(1) as w:
        second, _ = standby(w, 200)
        async with second:
            await settle()
            await w.controller._stop()
            await settle()

            assert second.is_active


async def test_a_broker_that_heard_a_later_controller_makes_us_look_and_nothing_more() -> None:
    async with world(1, 2) as w:
        w.brokers.error[1] = 11

        await w.create("orders", [[1, 2]])

        # It was a mistake: the store still names us.
        assert w.controller.is_active


async def test_contesting_in_vain_is_no_error() -> None:
    async with world(1) as w:
        with pytest.raises(ControllerMoved):
            await w.store.contest(300)
        assert w.controller.is_active


async def test_a_controller_that_ends_by_a_bug_resigns_and_begins_anew() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        real = w.controller.telemetry.processed

        def broken(state: str, duration_ms: float) -> None:
            w.controller.telemetry.processed = real  # type: ignore[method-assign]
            raise ZeroDivisionError("a bug outside of any handler")

        w.controller.telemetry.processed = broken  # type: ignore[method-assign]
        await w.start(3)
        await w.clock.advance(5_000)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2
        assert sorted(w.controller.cluster.brokers) == [1, 2, 3]
        await w.check()


# -- what the store says for all brokers -------------------------------------------------------------------------------

ALLOWED = {"unclean.leader.election.enable": "true"}
FORBIDDEN = {"unclean.leader.election.enable": "false"}


async def lose_the_last_in_sync(w: World) -> None:
    """Of replicas 1 and 2, 2 falls out of sync and comes back, and then 1 dies."""
    await w.stop(2)
    await w.start(2)
    await w.stop(1)


async def test_allowing_it_for_all_brokers_revives_what_waits_and_an_override_still_forbids() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await w.create("strict", [[1, 2]], FORBIDDEN)
        await lose_the_last_in_sync(w)
        assert w.controller.snapshot().offline_partitions == 2

        await w.store.set_default_config(ALLOWED)
        await settle()

        assert await w.stored("orders-0") == (2, 3, (2,))
        assert w.known("orders-0").recovering
        assert (await w.stored("strict-0"))[0] == NO_LEADER
        assert w.controller.partitions.unclean_elections == 1
        await w.check()


async def test_what_is_allowed_for_all_brokers_holds_until_it_is_forbidden_or_taken_back() -> None:
    for taken_back in (FORBIDDEN, {}):
        async with world(1, 2) as w:
            await w.create("orders", [[1, 2]])
            await w.store.set_default_config(ALLOWED)
            await settle()
            await w.store.set_default_config(taken_back)
            await settle()

            await lose_the_last_in_sync(w)

            assert await w.stored("orders-0") == (NO_LEADER, 2, (1,))

            # Forbidding did not make the controller deaf.
            await w.store.set_default_config(ALLOWED)
            await settle()

            assert await w.stored("orders-0") == (2, 3, (2,))
            await w.check()


async def test_while_a_leader_lives_nothing_changes_with_what_is_allowed() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()

        for config in (ALLOWED, {}, {"log.retention.ms": "1"}, ALLOWED, FORBIDDEN):
            await w.store.set_default_config(config)
            await settle()

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert w.brokers.sent == []


async def test_what_the_store_says_for_all_brokers_wins_over_the_instances_own_setting() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]])
        await w.store.set_default_config(FORBIDDEN)
        await settle()
        await lose_the_last_in_sync(w)
        assert (await w.stored("orders-0"))[0] == NO_LEADER

        await w.controller.set_unclean_leader_election(True)

        assert (await w.stored("orders-0"))[0] == NO_LEADER

        # With nothing said in the store the own setting holds again.
        await w.store.set_default_config({"log.retention.ms": "1"})
        await settle()

        assert (await w.stored("orders-0"))[0] == 2


async def test_ones_own_setting_cannot_forbid_what_the_store_allows_and_holds_once_it_does_not() -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]])
        await w.store.set_default_config(ALLOWED)
        await settle()

        await w.controller.set_unclean_leader_election(False)
        assert w.controller.partitions.unclean_default
        await w.store.set_default_config({})
        await settle()
        await lose_the_last_in_sync(w)

        assert (await w.stored("orders-0"))[0] == NO_LEADER


async def test_a_value_that_is_no_boolean_is_logged_and_the_own_setting_holds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(1, 2, unclean=True) as w:
        await w.create("orders", [[1, 2]])
        await w.store.set_default_config({"unclean.leader.election.enable": " False "})
        await settle()
        await lose_the_last_in_sync(w)
        assert (await w.stored("orders-0"))[0] == NO_LEADER

        await w.store.set_default_config({"unclean.leader.election.enable": "no"})
        await settle()

        assert (await w.stored("orders-0"))[0] == 2
        assert "unclean.leader.election.enable='no'" in caplog.text


async def test_nobody_is_looked_for_while_it_stays_forbidden() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await lose_the_last_in_sync(w)
        before = w.controller.snapshot().seq

        for config in ({"log.retention.ms": "1"}, FORBIDDEN):
            await w.store.set_default_config(config)
            await settle()
        await w.controller.set_unclean_leader_election(True)

        assert w.controller.snapshot().seq == before


@pytest.mark.parametrize(("own", "stored", "leader"), [(False, ALLOWED, 2), (True, FORBIDDEN, NO_LEADER)])
async def test_a_new_controller_reads_what_is_set_for_all_brokers_before_it_elects(
    own: bool, stored: dict[str, str], leader: int
) -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await w.stop(2)
        await w.start(2)
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await w.stop(1)
        await w.store.set_default_config(stored)
        second, _ = standby(w, 200, unclean_leader_election=own)
        async with second:
            await settle()

            assert second.is_active
            assert (await w.stored("orders-0"))[0] == leader

            # And it hears of the next change.
            await w.store.set_default_config(ALLOWED)
            await settle()

            assert (await w.stored("orders-0"))[0] == 2


async def test_an_instance_that_was_deposed_goes_by_its_own_setting_until_it_rules_again() -> None:
    async with world(1, 2) as w:
        await w.store.set_default_config(ALLOWED)
        await settle()
        assert w.controller.partitions.unclean_default
        second, _ = standby(w, 200, take_over=True)
        async with second:
            await settle()
            assert second.partitions.unclean_default
            assert not w.controller.partitions.unclean_default
            # Nobody told it, and it asks nobody while it stands by.
            await w.store.set_default_config(FORBIDDEN)
            await w.store.set_default_config(ALLOWED)
            await settle()
            assert not w.controller.partitions.unclean_default

        await settle()

        assert w.controller.cluster.fence.epoch == 3
        assert w.controller.partitions.unclean_default


async def test_a_change_for_all_brokers_that_could_not_be_read_is_looked_at_again() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        await lose_the_last_in_sync(w)
        real = w.controller.store.default_config

        async def broken() -> dict[str, str]:
            w.controller.store.default_config = real  # type: ignore[method-assign]
            raise ZeroDivisionError("a bug")

        w.controller.store.default_config = broken  # type: ignore[method-assign]
        await w.store.set_default_config(ALLOWED)
        await settle()
        assert (await w.stored("orders-0"))[0] == NO_LEADER

        await w.clock.advance(5_000)
        await w.sessions[2].keep_alive()
        await w.clock.advance(5_000)

        assert (await w.stored("orders-0"))[0] == 2
