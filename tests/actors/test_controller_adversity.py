"""Controller under failures of the store, its callers and the brokers, and while it stops."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import anyio
import numpy as np
import pytest

from kactl.actors.actor import INBOX_LIMIT
from kactl.actors.channel import SendGate
from kactl.actors.watcher import Watcher
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.messages.events import (
    BrokerChange,
    ControllerChange,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    Startup,
    UpdateMetadataResponseReceived,
)
from kactl.model import ZERO_ID, Assignment, Fence, Leadership, PartitionState, ReplicaState, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode, IllegalState, StoreUnavailable, TopicExists
from kactl.stores.base import Assignments, Changed, StoreEvent
from tests.support.clocks import settle
from tests.support.controller_harness import RecordingConnection, World, leaders_in, open_standby, world
from tests.support.store_clients import watches_of

from .reassignment_helpers import reassign, stored_assignment

pytestmark = pytest.mark.anyio


def fail_calls(w: World, method: str, error: Exception, times: int = 1, *, done: bool = False) -> list[int]:
    """Let the next calls of a store method fail, before they have an effect or after it (`done`).

    The number in the returned list is the count of failures left.
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
    """Advance the clock and keep the brokers' sessions alive."""
    for _ in range(seconds):
        for session in w.sessions.values():
            await session.keep_alive()
        await w.clock.advance(1_000)


AWAY = StoreUnavailable("the store is away")


# -- callers -----------------------------------------------------------------------------------------------------------


async def test_error_for_a_cancelled_caller_keeps_the_controllership() -> None:
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


async def test_cancelled_event_subscribers_leave_no_state() -> None:
    async with world(1) as w:
        for _ in range(100):
            with anyio.move_on_after(0):
                await w.controller.history.changed()

        assert len(w.controller.history._waiting) == 0


# -- the controllership ------------------------------------------------------------------------------------------------


async def test_long_store_outage_does_not_prevent_a_later_contest() -> None:
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


async def test_election_with_a_lost_response_is_repeated() -> None:
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


async def test_election_with_a_lost_response_ignores_stale_notifications() -> None:
    async with world(1) as w:
        # The notification came and went before the read: it contains only that something changed.
        w.controller.loop.controllership.active_id = None
        w.controller.loop.controllership.resign("for a test")
        await w.store.resign(Fence(epoch=1, version=1))
        w.controller.loop.clear_and_put(ControllerChange())
        fail_calls(w, "contest", AWAY, done=True)
        await w.clock.advance(60_000)

        assert w.controller.is_active


async def test_controllership_with_a_failed_resignation_is_taken_again() -> None:
    async with world(1, 2) as w:
        fail_calls(w, "resign", AWAY)
        await w.controller.resign()
        assert not w.controller.is_active

        await w.clock.advance(60_000)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2


async def test_lost_fence_ends_the_controllership_despite_the_stored_id() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.controller.cluster.fence = Fence(epoch=1, version=0)

        await w.stop(1)
        await keep_alive_for(w, 20)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2
        assert (await w.stored("orders-0"))[0] == 2
        await w.check()


async def test_failed_read_of_the_controller_is_repeated_later() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        # A later controller without a notification.
        watches_of(w.controller.store).clear()
        await w.store.contest(200, take_over=True)
        fail_calls(w, "controller", AWAY)

        await w.controller.loop.receive(IsrChangeNotification())
        await w.clock.advance(60_000)

        assert not w.controller.is_active
        assert w.controller.loop.active_id == 200


async def test_only_the_first_contest_deposes_another_controller() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200, take_over=True)
        async with second:
            await settle()
            assert second.is_active
            await second.loop.controllership.abandon()
            await settle()
            assert w.controller.is_active

            second._put(Startup())
            await settle()

            assert w.controller.is_active


async def test_internal_error_leads_to_a_new_election() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        fail_calls(w, "brokers", IllegalState("a batch was begun while another was not sent"))

        await w.start(3)
        await w.clock.advance(5_000)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2
        assert sorted(w.controller.cluster.brokers) == [1, 2, 3]


async def test_session_end_during_an_election_leads_to_another_one() -> None:
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


# -- stopping ----------------------------------------------------------------------------------------------------------


async def test_cancelled_host_stops_the_controller_and_its_channels() -> None:
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


async def test_session_can_end_while_the_controller_stops() -> None:
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


async def test_full_inbox_keeps_one_time_store_events() -> None:
    async with world(1) as w:
        inbox = w.controller.loop.inbox
        noise = UpdateMetadataResponseReceived(1, 1, UpdateMetadataResponse(0))
        for _ in range(INBOX_LIMIT):
            inbox.put(noise)

        Watcher(inbox, w.controller.loop.clear_and_put, SendGate())(StoreEvent(Changed.TOPIC, "orders"))
        Watcher(inbox, w.controller.loop.clear_and_put, SendGate())(StoreEvent(Changed.TOPIC, "orders"))

        assert len(inbox) == INBOX_LIMIT + 1


async def test_controller_stops_with_a_full_inbox() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            for _ in range(INBOX_LIMIT):
                second.loop.inbox.put(UpdateMetadataResponseReceived(1, 1, UpdateMetadataResponse(0)))


async def test_repeatedly_failing_event_is_queued_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    async with world(1) as w:
        fail_calls(w, "brokers", ZeroDivisionError("a bug"), 1_000)
        for _ in range(50):
            await w.controller.loop.receive(BrokerChange())

        assert len(w.controller.loop.retries.events) == 1


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_topic_is_created_after_a_failed_write_of_its_id() -> None:
    async with world(1, 2) as w:
        fail_calls(w, "write_assignment", AWAY)

        await w.create("orders", [[1, 2]])
        await w.clock.advance(1_000)

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert any(w.controller.topics()[0].id)
        await w.check()


async def test_topic_that_vanishes_before_its_id_affects_no_other() -> None:
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


async def test_topic_recreated_between_two_reads_is_created() -> None:
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


async def test_topic_of_which_a_takeover_finds_an_earlier_life_stays() -> None:
    """The instance has read that one when it was the controller before, and was not notified of its end: over ZooKeeper
    a change of the topic has used up the watch."""
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        store: Any = w.controller.store
        real = store.topics

        async def earlier() -> list[str]:
            names: list[str] = await real()
            store.topics = real
            store._deleted_topics._read["orders"] -= 1
            return names

        store.topics = earlier
        await w.controller.resign()
        await settle()

        await w.create("payments", [[1, 2]])

        view = w.controller.partition("orders-0")
        assert view is not None
        assert view.state is PartitionState.ONLINE
        await w.check()


async def test_out_of_range_partition_number_is_ignored() -> None:
    async with world(1) as w:
        held = {0: Assignment((1,)), 2**31 - 1: Assignment((1,))}
        await w.store.create_topic(TopicRef("orders"), held, {})
        await settle()

        assert await w.stored("orders-0") == (1, 0, (1,))
        assert [view.partition for view in w.controller.partitions_of("orders")] == [0]
        assert w.controller.cluster.table.nbytes < 1 << 20
        # It also stays in the stored assignment when the topic gets its id.
        assert len(await w.store.assignments(["orders"])) == 2


async def test_gaps_duplicate_brokers_and_empty_assignments_are_tolerated() -> None:
    async with world(1, 2) as w:
        held = {3: Assignment((1, 1, 2)), 700: Assignment(()), 41: Assignment((2,))}
        await w.store.create_topic(TopicRef("orders"), held, {})
        await settle()

        assert await w.stored("orders-3") == (1, 0, (1, 2))
        assert await w.stored("orders-41") == (2, 0, (2,))
        assert w.known("orders-700").state == PartitionState.NEW
        await w.check()


async def test_partition_is_created_once_it_has_replicas() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1], []])
        ref = w.controller.topics()[0]

        await w.store.write_assignment(ref, {0: Assignment((1,)), 1: Assignment((2, 1))}, None)
        await settle()

        assert await w.stored("orders-1") == (2, 0, (1, 2))
        assert w.brokers.told(2) == {"orders-1": (2, 0, (1, 2), True)}
        await w.check()


# -- brokers -----------------------------------------------------------------------------------------------------------


async def test_directory_errors_of_an_earlier_registration_are_ignored() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        epoch = w.controller.cluster.brokers[1].epoch
        await w.start(1)
        stored = await w.stored("orders-0")
        failed = PartitionErrors(
            ("orders",), np.zeros(1, np.int32), np.zeros(1, np.int32),
            np.array([ErrorCode.KAFKA_STORAGE_ERROR], np.int16),
        )  # fmt: skip

        # The response was queued behind the change of the registration.
        await w.controller.loop.receive(LeaderAndIsrResponseReceived(1, epoch, LeaderAndIsrResponse(0, failed)))
        await settle()

        assert await w.stored("orders-0") == stored
        assert w.controller.cluster.is_replica_online(1, TopicPartition("orders", 0))


async def test_failing_channel_is_retried_with_a_pause(
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
async def test_rejected_commit_is_retried_without_a_new_event(times: int) -> None:
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
        assert not w.controller.loop.retries.events
        await w.check()


async def test_rejected_first_leader_is_retried() -> None:
    async with world(1, 2) as w:
        fail_calls(w, "commit", AWAY)

        await w.create("orders", [[1, 2]])
        await keep_alive_for(w, 15)

        assert await w.stored("orders-0") == (1, 0, (1, 2))
        await w.check()


async def test_commit_after_a_failed_directory_is_retried() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2], [2, 1]])
        w.brokers.failed_dirs[1] = {"orders-0", "orders-1"}
        fail_calls(w, "commit", AWAY, 2)

        await w.store.notify_log_dir(1)
        await keep_alive_for(w, 15)

        assert (await w.stored("orders-0"))[::2] == (2, (2,))
        assert (await w.stored("orders-1"))[::2] == (2, (2,))
        await w.check()


async def test_impossible_registrations_are_tolerated(caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2) as w:
        await w.start(-7, 100)
        assert "broker 100 has the id of this controller" in caplog.text
        await w.create("orders", [[1, 2], [-7, 1]])

        assert (await w.stored("orders-0"))[0] == 1
        assert (await w.stored("orders-1"))[0] == 1
        await w.stop(-7)
        await w.check()


def _lose_answer_and_reading(w: World) -> None:
    """Write the next first leaders but lose the response, and let the read back fail too."""
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


def _metadata(w: World, broker: int) -> dict[str, tuple[int, int, tuple[int, ...], bool]]:
    """Returns what `leaders_in` does of a broker's last UpdateMetadata, by partition."""
    last: dict[str, tuple[int, int, tuple[int, ...], bool]] = {}
    for request in w.brokers.of(broker, UpdateMetadata):
        assert isinstance(request, UpdateMetadata)
        last |= leaders_in(request.states)
    return last


async def test_first_leader_of_a_lost_response_is_adopted() -> None:
    """In Kafka the partition conflicts with its own write and stays NEW until the next controller."""
    async with world(1, 2) as w:
        _lose_answer_and_reading(w)
        await w.create("orders", [[1, 2]])
        assert await w.stored("orders-0") == (1, 0, (1, 2))
        assert w.known("orders-0").state is PartitionState.NEW

        await keep_alive_for(w, 15)

        assert w.known("orders-0").state is PartitionState.ONLINE
        assert w.brokers.told(2)["orders-0"] == (1, 0, (1, 2), True)
        await w.check()


async def test_leader_that_died_before_its_adoption_is_replaced() -> None:
    async with world(1, 2) as w:
        _lose_answer_and_reading(w)
        await w.create("orders", [[1, 2]])

        await w.stop(1)
        await keep_alive_for(w, 15)

        assert await w.stored("orders-0") == (2, 1, (2,))
        assert w.brokers.told(2)["orders-0"][:2] == (2, 1)
        await w.check()


@pytest.mark.parametrize("how", ["stop", "drain"])
async def test_first_leader_that_cannot_be_elected_is_known(how: str) -> None:
    """Elections end before they read the store, as no replica is online; a drained one leads on."""
    async with world(1, 2) as w:
        _lose_answer_and_reading(w)
        await w.create("orders", [[1]])
        if how == "stop":
            await w.stop(1)
        else:
            await w.controller.drain(1)
        w.brokers.forget()

        await keep_alive_for(w, 15)

        expected = (-1, 1, (1,)) if how == "stop" else (1, 0, (1,))
        assert await w.stored("orders-0") == expected
        assert w.known("orders-0").state is (PartitionState.OFFLINE if how == "stop" else PartitionState.ONLINE)
        for broker in w.controller.cluster.brokers:
            assert _metadata(w, broker)["orders-0"][:3] == expected
        await w.check()


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unreadable"])
@pytest.mark.parametrize("target", [None, [1]], ids=["cancelled", "replaced"])
async def test_first_leader_of_a_lost_response_stays_a_replica(target: list[int] | None, is_read: bool) -> None:
    """A reassignment elects no first leader, and an election may take one from the replicas that it adds."""
    async with world(1, 2) as w:
        await w.create("orders", [[3]])
        await reassign(w, {"orders-0": [2]})
        _lose_answer_and_reading(w)
        await w.controller.elect("unclean", ["orders-0"])
        assert await w.stored("orders-0") == (2, 0, (2,))
        assert not w.known("orders-0").leadership
        if not is_read:
            fail_calls(w, "leaderships", AWAY)

        assert await reassign(w, {"orders-0": target}) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert (await stored_assignment(w, "orders-0")).replicas == (2, 3)

        await keep_alive_for(w, 15)
        assert w.known("orders-0").leader == 2
        assert await stored_assignment(w, "orders-0") == Assignment((2,))
        await w.check()


async def test_reassignment_without_a_first_leader_is_cancelled_after_a_failed_write() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[3]])
        await reassign(w, {"orders-0": [2]})
        assert (await stored_assignment(w, "orders-0")).replicas == (2, 3)
        fail_calls(w, "commit", AWAY)
        await w.controller.elect("unclean", ["orders-0"])

        assert await reassign(w, {"orders-0": None}) == [0]
        assert await stored_assignment(w, "orders-0") == Assignment((3,))
        await w.check()


async def test_first_leader_of_an_earlier_topic_is_not_read() -> None:
    """Without an id, the name alone does not tell the topics apart. No replica of the second one is online."""
    async with world(1, 2) as w:

        async def replaced(real: Any, write: Any, fence: Any) -> Any:
            w.store.state.delete_topic("t")
            await w.store.create_topic(TopicRef("t", ZERO_ID), {0: Assignment((3,))}, {})
            await real(write, fence)
            raise AWAY

        w.script("commit", replaced)
        fail_calls(w, "leaderships", AWAY)
        await w.create("t", [[1]])
        assert await w.stored("t-0") == (1, 0, (1,))
        await w.stop(1)
        await keep_alive_for(w, 15)

        await w.start(3)

        assert await w.stored("t-0") == (3, 1, (3,))
        await w.check()


@pytest.mark.parametrize("how", ["start", "stop", "restart"])
async def test_brokers_of_an_event_aborted_by_a_bug_are_handled_later(how: str) -> None:
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


async def test_leadership_of_a_lost_response_is_read_and_sent() -> None:
    """No broker fails afterwards, so that only the store contains it."""
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


@pytest.mark.parametrize("stopped", [(), (1, 2)], ids=["live", "offline"])
async def test_foreign_leadership_of_a_new_partition_is_not_adopted(stopped: tuple[int, ...]) -> None:
    """Only a controller writes it. An operator or the next controller has to decide on it."""
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
        await w.stop(*stopped)

        await keep_alive_for(w, 15)

        assert w.known("orders-0").state is PartitionState.NEW
        assert await w.stored("orders-0") == (2, 7, (2,))


@pytest.mark.parametrize(("later_id", "leader_epoch"), [(b"n" * 16, 0), (ZERO_ID, 1)], ids=["id", "no id"])
async def test_leadership_of_an_earlier_topic_is_rejected_or_overwritten(later_id: bytes, leader_epoch: int) -> None:
    """The topic is deleted and created again while the commit of its first leader is in flight.

    Stores reject the commit by the topic's id. Without ids it succeeds, and the controller commits another leader.
    """
    async with world(1, 2, 3, 4) as w:

        async def replaced(real: Any, write: Any, fence: Any) -> Any:
            w.store.state.delete_topic("t")
            await w.store.create_topic(TopicRef("t", later_id), {0: Assignment((3, 4))}, {})
            return await real(write, fence)

        left = w.script("commit", replaced)
        await w.create("t", [[1, 2]])

        assert not left
        assert w.known("t-0").state is PartitionState.ONLINE
        assert await w.stored("t-0") == (3, leader_epoch, (3, 4))
        assert w.brokers.told(4)["t-0"] == (3, leader_epoch, (3, 4), True)
        await w.check()


async def test_broker_started_before_a_first_leader_is_known_receives_it() -> None:
    """The commit succeeded, but its response was lost and the read back failed."""
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
