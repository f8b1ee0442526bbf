"""The controller when things go wrong around it: the store, the callers, the brokers, and its own end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import anyio
import numpy as np
import pytest

from kactl.actors.actor import INBOX_LIMIT
from kactl.actors.send_gate import SendGate
from kactl.actors.watcher import Watcher
from kactl.errors import ErrorCode, IllegalState, StoreUnavailable, TopicExists
from kactl.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    UpdateMetadataResponse,
)
from kactl.messages.events import (
    BrokersChanged,
    ControllerChanged,
    IsrNotified,
    LeaderAndIsrAnswered,
    Started,
    UpdateMetadataAnswered,
)
from kactl.model import Assignment, Fence, Leadership, PartitionState, ReplicaState, TopicPartition, TopicRef
from kactl.stores.base import Assignments, Changed, StoreEvent
from tests.support.clocks import settle
from tests.support.controller_harness import RecordingConnection, World, open_standby, world

pytestmark = pytest.mark.anyio


def fail_calls(w: World, method: str, error: Exception, times: int = 1, *, done: bool = False) -> list[int]:
    """Let a method of the controller's store fail some times, before it does anything or after it was `done`.

    The one number in the list says how many failures are left.
    """
    return _fails(w.controller.store, method, error, times, done=done)


def _fails(store: Any, method: str, error: Exception, times: int = 1, *, done: bool = False) -> list[int]:
    real: Callable[..., Awaitable[Any]] = getattr(store, method)
    left = [times]

    async def failing(*args: Any, **named: Any) -> Any:
        if not left[0]:
            return await real(*args, **named)
        left[0] -= 1
        if done:
            await real(*args, **named)
        raise error

    setattr(store, method, failing)
    return left


async def keep_alive_for(w: World, seconds: int) -> None:
    """Time passes, and the brokers stay alive meanwhile."""
    for _ in range(seconds):
        for session in w.sessions.values():
            await session.keep_alive()
        await w.clock.advance(1_000)


AWAY = StoreUnavailable("the store is away")


# -- callers -----------------------------------------------------------------------------------------------------------


async def test_a_caller_that_gave_up_and_was_refused_does_not_end_the_controllership() -> None:
    async with world(1, 2) as w:
        real, gate = w.controller.store.create_topic, asyncio.Event()

        async def slow(*args: Any) -> None:
            await gate.wait()
            await real(*args)
            raise TopicExists("orders")

        w.controller.store.create_topic = slow  # type: ignore[method-assign,assignment]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.controller.create_topic, "orders")
            await settle()
            tasks.cancel_scope.cancel()
        gate.set()
        await w.clock.advance(5_000)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 1


async def test_those_who_stop_waiting_for_events_leave_nothing_behind() -> None:
    async with world(1) as w:
        for _ in range(100):
            with anyio.move_on_after(0):
                await w.controller.history.changed()

        assert len(w.controller.history._waiting) == 0


# -- the controllership ------------------------------------------------------------------------------------------------


async def test_a_store_that_is_away_for_long_does_not_keep_anybody_from_contesting() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            left = _fails(second.store, "controller", AWAY, 6)
            w.controller.loop.controllership.stopping = True
            await w.controller.resign()
            await w.clock.advance(60_000)

            assert left == [0]
            assert second.is_active


async def test_an_election_that_was_won_without_an_answer_is_held_again() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            _fails(second.store, "contest", AWAY, done=True)
            w.controller.loop.controllership.stopping = True
            await w.controller.resign()
            await w.clock.advance(60_000)

            assert second.is_active
            assert second.cluster.fence.epoch == 3


async def test_an_election_that_was_won_without_an_answer_is_held_again_whatever_was_told_of_it() -> None:
    async with world(1) as w:
        # It came and went before we looked: all that is told is that it changed.
        w.controller.loop.controllership.active_id = None
        w.controller.loop.controllership.resign("for a test")
        await w.store.resign(Fence(epoch=1, version=1))
        w.controller.loop.clear_and_put(ControllerChanged())
        fail_calls(w, "contest", AWAY, done=True)
        await w.clock.advance(60_000)

        assert w.controller.is_active


async def test_a_controllership_that_could_not_be_given_up_is_taken_again() -> None:
    async with world(1, 2) as w:
        fail_calls(w, "resign", AWAY)
        await w.controller.resign()
        assert not w.controller.is_active

        await w.clock.advance(60_000)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2


async def test_a_lost_fence_ends_the_controllership_even_if_the_store_names_us() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.controller.cluster.fence = Fence(epoch=1, version=0)

        await w.stop(1)
        await keep_alive_for(w, 20)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2
        assert (await w.stored("orders-0"))[0] == 2
        await w.check()


async def test_who_is_the_controller_is_looked_up_later_if_it_cannot_be_now() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        # A later controller that we do not hear of.
        w.controller.store._watches._armed.clear()  # type: ignore[attr-defined]
        await w.store.contest(200, take_over=True)
        fail_calls(w, "controller", AWAY)

        await w.controller.loop.receive(IsrNotified())
        await w.clock.advance(60_000)

        assert not w.controller.is_active
        assert w.controller.loop.active_id == 200


async def test_the_controllership_is_taken_from_others_at_the_first_contest_only() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200, take_over=True)
        async with second:
            await settle()
            assert second.is_active
            await second.loop.controllership.abandon()
            await settle()
            assert w.controller.is_active

            second._put(Started())
            await settle()

            assert w.controller.is_active


async def test_what_only_a_bug_can_bring_about_ends_in_a_new_election() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        fail_calls(w, "brokers", IllegalState("a batch was begun while another was not sent"))

        await w.start(3)
        await w.clock.advance(5_000)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2
        assert sorted(w.controller.cluster.brokers) == [1, 2, 3]


async def test_a_session_that_ends_in_the_middle_of_an_election_does_not_leave_it_won_for_nobody() -> None:
    async with world(1) as w:
        store = w.controller.store
        real = store.controller

        async def lost_behind_it() -> Any:
            store.controller = real  # type: ignore[method-assign]
            record = await real()
            store.expire()  # type: ignore[attr-defined]
            return record

        await w.controller.resign()
        store.controller = lost_behind_it  # type: ignore[method-assign]
        await settle()

        assert w.controller.is_active
        assert w.controller.loop.controllership.ready


# -- its end -----------------------------------------------------------------------------------------------------------


async def test_a_host_that_is_cancelled_stops_the_controller_and_its_channels() -> None:
    async with world(1, 2) as w:
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        second, told = open_standby(w, 200)
        with anyio.CancelScope() as scope:
            async with second:
                await settle()
                assert second.is_active
                told.silent.add(1)
                await w.create("orders", [[1, 2]])
                scope.cancel()
                await anyio.sleep_forever()

        assert scope.cancelled_caught
        assert second.channels.all() == []
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("channel")]
        assert await w.store.controller() is None


async def test_the_session_may_end_while_the_controller_stops() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            gate = asyncio.Event()
            real = second.store.controller

            async def slow() -> Any:
                await gate.wait()
                return await real()

            second.store.controller = slow  # type: ignore[method-assign]
            w.controller.loop.controllership.stopping = True
            await w.controller.resign()
            await settle()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(second._stop)
                await settle()
                second.store.expire()  # type: ignore[attr-defined]
                gate.set()

            assert not second.is_active
            assert second.loop.controllership.stopping
            assert await w.store.controller() is None


# -- the inbox ---------------------------------------------------------------------------------------------------------


async def test_a_full_inbox_loses_nothing_that_the_store_tells_only_once() -> None:
    async with world(1) as w:
        inbox = w.controller.loop.inbox
        noise = UpdateMetadataAnswered(1, 1, UpdateMetadataResponse(0))
        for _ in range(INBOX_LIMIT):
            inbox.put(noise)

        Watcher(inbox, w.controller.loop.clear_and_put, SendGate())(StoreEvent(Changed.TOPIC, "orders"))
        Watcher(inbox, w.controller.loop.clear_and_put, SendGate())(StoreEvent(Changed.TOPIC, "orders"))

        assert len(inbox) == INBOX_LIMIT + 1


async def test_a_full_inbox_does_not_keep_the_controller_from_stopping() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            for _ in range(INBOX_LIMIT):
                second.loop.inbox.put(UpdateMetadataAnswered(1, 1, UpdateMetadataResponse(0)))


async def test_an_event_that_fails_time_and_again_waits_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    async with world(1) as w:
        fail_calls(w, "brokers", ZeroDivisionError("a bug"), 1_000)
        for _ in range(50):
            await w.controller.loop.receive(BrokersChanged())

        assert len(w.controller.loop._later) == 1


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_a_topic_whose_id_could_not_be_written_at_once_is_created_all_the_same() -> None:
    async with world(1, 2) as w:
        fail_calls(w, "write_assignment", AWAY)

        await w.create("orders", [[1, 2]])
        await w.clock.advance(1_000)

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert any(w.controller.topics()[0].id)
        await w.check()


async def test_a_topic_that_vanishes_before_it_gets_its_id_harms_no_other() -> None:
    async with world(1, 2) as w:
        real = w.controller.store.write_assignment

        async def gone(topic: TopicRef, assignment: Any, fence: Any) -> None:
            if topic.name == "brief":
                w.store.state.topics.pop("brief", None)
            await real(topic, assignment, fence)

        w.controller.store.write_assignment = gone  # type: ignore[method-assign]
        await w.store.create_topics(
            Assignments.of({TopicPartition(name, 0): Assignment((1, 2)) for name in ("brief", "orders")})
        )
        await settle()

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert [topic.name for topic in w.controller.topics()] == ["orders"]
        await w.check()


async def test_a_topic_that_vanished_between_two_reads_and_came_again_is_created() -> None:
    async with world(1, 2) as w:
        real = w.controller.store.assignments

        async def gone(topics: Collection[str]) -> Assignments:
            w.controller.store.assignments = real  # type: ignore[method-assign]
            held = w.store.state.topics.pop("orders")
            found = await real(topics)
            w.store.state.topics["orders"] = held
            w.store.state.changed(Changed.TOPICS)
            return found

        w.controller.store.assignments = gone  # type: ignore[method-assign]
        await w.create("orders", [[1, 2]])

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        await w.check()


async def test_a_partition_number_beyond_all_bounds_costs_nothing_and_harms_no_other() -> None:
    async with world(1) as w:
        held = {0: Assignment((1,)), 2**31 - 1: Assignment((1,))}
        await w.store.create_topic(TopicRef("orders"), held, {})
        await settle()

        assert await w.stored("orders-0") == (1, 0, (1,))
        assert [view.partition for view in w.controller.partitions_of("orders")] == [0]
        assert w.controller.cluster.table.nbytes < 1 << 20
        # Nor is it taken out of what is stored, when the topic gets its id.
        assert len(await w.store.assignments(["orders"])) == 2


async def test_numbers_with_a_gap_and_brokers_named_twice_or_not_at_all_are_borne() -> None:
    async with world(1, 2) as w:
        held = {3: Assignment((1, 1, 2)), 700: Assignment(()), 41: Assignment((2,))}
        await w.store.create_topic(TopicRef("orders"), held, {})
        await settle()

        assert await w.stored("orders-3") == (1, 0, (1, 2))
        assert await w.stored("orders-41") == (2, 0, (2,))
        assert w.known("orders-700").state == PartitionState.NEW
        await w.check()


async def test_a_partition_that_had_no_replicas_is_created_once_it_has_some() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1], []])
        ref = w.controller.topics()[0]

        await w.store.write_assignment(ref, {0: Assignment((1,)), 1: Assignment((2, 1))}, None)
        await settle()

        assert await w.stored("orders-1") == (2, 0, (1, 2))
        assert w.brokers.told(2) == {"orders-1": (2, 0, (1, 2), True)}
        await w.check()


# -- brokers -----------------------------------------------------------------------------------------------------------


async def test_what_an_earlier_registration_said_of_directories_does_not_hold_for_the_next() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        epoch = w.controller.cluster.brokers[1].epoch
        await w.start(1)
        stored = await w.stored("orders-0")
        failed = PartitionErrors(
            ("orders",), np.zeros(1, np.int32), np.zeros(1, np.int32),
            np.array([ErrorCode.KAFKA_STORAGE_ERROR], np.int16),
        )  # fmt: skip

        # It waited in the inbox behind the change of the registration.
        await w.controller.loop.receive(LeaderAndIsrAnswered(1, epoch, LeaderAndIsrResponse(0, failed)))
        await settle()

        assert await w.stored("orders-0") == stored
        assert w.controller.cluster.is_replica_online(1, TopicPartition("orders", 0))


async def test_a_channel_that_cannot_send_at_all_is_not_tried_without_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with world(1, 2) as w:
        tries = 0
        real: Callable[[RecordingConnection, Request], Awaitable[Response]] = RecordingConnection.deliver

        async def broken(self: RecordingConnection, request: Request) -> Response:
            nonlocal tries
            if self.broker == 2 and isinstance(request, LeaderAndIsr):
                tries += 1
                raise ZeroDivisionError("a bug")
            return await real(self, request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RecordingConnection, "deliver", broken)
            await w.create("orders", [[1, 2]])
            await keep_alive_for(w, 10)

        assert 1 < tries < 20
        await keep_alive_for(w, 10)
        assert set(w.brokers.told(2)) == {"orders-0"}


@pytest.mark.parametrize("times", [1, 3])
async def test_what_the_store_did_not_keep_is_tried_again_without_a_new_event(times: int) -> None:
    async with world(1, 2, 3) as w:
        await w.create("orders", [[1, 2], [2, 1], [1]])
        left = fail_calls(w, "commit", AWAY, times)

        await w.stop(1)
        assert (await w.stored("orders-0"))[0] != 2
        await keep_alive_for(w, 45)

        assert left == [0]
        assert (await w.stored("orders-0"))[::2] == (2, (2,))
        assert (await w.stored("orders-1"))[::2] == (2, (2,))
        assert (await w.stored("orders-2"))[::2] == (-1, (1,))
        assert w.known("orders-0").replica_states[1] == w.known("orders-1").replica_states[1] == ReplicaState.OFFLINE
        assert not w.controller.loop._later
        await w.check()


async def test_a_first_leader_that_the_store_did_not_keep_is_tried_again() -> None:
    async with world(1, 2) as w:
        fail_calls(w, "commit", AWAY)

        await w.create("orders", [[1, 2]])
        await keep_alive_for(w, 15)

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        await w.check()


async def test_a_failed_directory_whose_consequences_were_not_kept_has_them_later() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2], [2, 1]])
        w.brokers.failed_dirs[1] = {"orders-0", "orders-1"}
        fail_calls(w, "commit", AWAY, 2)

        await w.store.notify_log_dir(1)
        await keep_alive_for(w, 15)

        assert (await w.stored("orders-0"))[::2] == (2, (2,))
        assert (await w.stored("orders-1"))[::2] == (2, (2,))
        await w.check()


async def test_registrations_that_no_broker_can_have_are_borne(caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2) as w:
        await w.start(-7, 100)
        assert "broker 100 has the id of this controller" in caplog.text
        await w.create("orders", [[1, 2], [-7, 1]])

        assert (await w.stored("orders-0"))[0] == 1
        assert (await w.stored("orders-1"))[0] == 1
        await w.stop(-7)
        await w.check()


def _lose_answer_and_reading(w: World) -> None:
    """The next first leaders are written, nobody says so, and reading them back fails, too."""
    store: Any = w.controller.store
    commit, leaderships = store.commit, store.leaderships

    async def unanswered(write: Any, fence: Any) -> Any:
        store.commit = commit
        await commit(write, fence)
        raise AWAY

    async def unread(names: Any) -> Any:
        store.leaderships = leaderships
        raise AWAY

    store.commit, store.leaderships = unanswered, unread


async def test_a_first_leader_that_was_written_without_our_knowing_is_adopted() -> None:
    """Kafka's new partition meets what it wrote itself, and stays NEW until the next controller."""
    async with world(1, 2) as w:
        _lose_answer_and_reading(w)
        await w.create("orders", [[1, 2]])
        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert w.known("orders-0").state is PartitionState.NEW

        await keep_alive_for(w, 15)

        assert w.known("orders-0").state is PartitionState.ONLINE
        assert w.brokers.told(2)["orders-0"] == (1, 0, (1, 2), True)
        await w.check()


async def test_a_leader_that_died_before_it_was_adopted_is_followed_by_another() -> None:
    async with world(1, 2) as w:
        _lose_answer_and_reading(w)
        await w.create("orders", [[1, 2]])

        await w.stop(1)
        await keep_alive_for(w, 15)

        assert await w.stored("orders-0") == (2, 1, (2,))
        assert w.brokers.told(2)["orders-0"][:2] == (2, 1)
        await w.check()


@pytest.mark.parametrize("how", ["start", "stop", "restart"])
async def test_brokers_whose_event_a_bug_broke_off_are_found_again(how: str) -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        if how == "start":
            await w.stop(2)
            await w.write_isr("orders-0", 1)
        real = w.controller.replicas.receive
        broke: list[Any] = []

        async def broken(message: Any) -> Any:
            if not broke:
                broke.append(message)
                raise ZeroDivisionError("a bug")
            return await real(message)

        w.controller.replicas.receive = broken  # type: ignore[method-assign]
        w.brokers.forget()
        await (w.stop(2) if how == "stop" else w.start(2))
        assert broke

        await keep_alive_for(w, 15)

        assert (2 in w.controller.cluster.brokers) == (how != "stop")
        if how == "stop":
            assert (await w.stored("orders-0"))[2] == (1,)
        else:
            assert "orders-0" in w.brokers.told(2)
        await w.check()


async def test_what_was_written_without_our_knowing_is_learnt_and_told() -> None:
    """Nobody dies of it, so nothing but the store would ever show it."""
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        _lose_answer_and_reading(w)
        await w.controller.drain(2)
        await settle()
        assert await w.stored("orders-0") == (1, 1, (1,))
        assert w.known("orders-0").isr == (1, 2)

        await keep_alive_for(w, 15)

        assert w.known("orders-0").isr == (1,)
        assert w.brokers.told(1)["orders-0"][:3] == (1, 1, (1,))
        await w.check()


async def test_what_somebody_else_wrote_for_a_new_partition_is_not_adopted() -> None:
    """Nobody but a controller makes it; whatever stands there has to be looked at by a person, or the next one."""
    async with world(1, 2) as w:
        fail_calls(w, "commit", AWAY)
        store: Any = w.controller.store
        real = store.leaderships

        async def unread(names: Any) -> Any:
            store.leaderships = real
            raise AWAY

        store.leaderships = unread
        await w.create("orders", [[1, 2]])
        foreign = Leadership(2, 7, (2,), 0, 99)
        assert await w.store.write_isr(TopicPartition("orders", 0), foreign, expected=-1) == 0

        await keep_alive_for(w, 15)

        assert w.known("orders-0").state is PartitionState.NEW
        assert await w.stored("orders-0") == (2, 7, (2,))


async def test_leadership_written_for_an_earlier_topic_is_overwritten() -> None:
    """The topic is deleted and created again while its first leader is on its way to the store."""
    async with world(1, 2, 3, 4) as w:

        async def replaced(real: Any, write: Any, fence: Any) -> Any:
            w.store.state.delete_topic("t")
            await w.store.create_topic(TopicRef("t", b"n" * 16), {0: Assignment((3, 4))}, {})
            return await real(write, fence)

        left = w.script("commit", replaced)
        await w.create("t", [[1, 2]])

        assert not left
        assert w.known("t-0").state is PartitionState.ONLINE
        assert await w.stored("t-0") == (3, 1, (3, 4))
        assert w.brokers.told(4)["t-0"] == (3, 1, (3, 4), True)
        await w.check()


async def test_whoever_comes_before_a_first_leader_is_known_is_told_of_it() -> None:
    """It was written, but nobody said so, and it could not be read back either."""
    async with world(1, 2, 3) as w:
        await w.stop(3)
        fail_calls(w, "commit", AWAY, done=True)
        fail_calls(w, "leaderships", AWAY)
        await w.create("t", [[1, 2, 3]])
        assert w.known("t-0").state is PartitionState.NEW

        await w.start(3)

        assert await w.stored("t-0") == (1, 0, (1, 2))
        for broker in (1, 2, 3):
            assert w.brokers.told(broker) == {"t-0": (1, 0, (1, 2), True)}
