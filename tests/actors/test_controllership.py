"""Controllership: contest, takeover, deposition, failure and restart of instances."""

import asyncio

import anyio
import pytest

from kactl.decide.messages.control import LeaderAndIsr, UpdateMetadata
from kactl.decide.messages.events import BrokerChange
from kactl.decide.messages.log import ControllerEvent
from kactl.model import Fence, TopicPartition
from kactl.model.errors import ControllerMoved, NotController, StoreUnavailable
from kactl.stores.base import Notification
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, open_standby, world

pytestmark = pytest.mark.anyio


async def test_standby_takes_over_with_a_higher_epoch() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        second, told = open_standby(w, 200)
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
            # Live brokers first, then leaders; then everything that each broker hosts, under the new epoch.
            first, then, *_ = told.of(1)
            assert isinstance(first, UpdateMetadata)
            assert not len(first.states)
            assert isinstance(then, LeaderAndIsr)
            assert then.controller_epoch == 2
            assert set(told.told(1)) == {"orders-0"}


async def test_deposed_controller_sends_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        second, _ = open_standby(w, 200, take_over=True)
        async with second:
            await settle()

            assert second.is_active
            assert not w.controller.is_active
            assert w.controller.snapshot().brokers == 0
            w.brokers.forget()
            await w.stop(1)
            assert w.brokers.sent == []
            assert await w.stored("orders-0") == (2, 1, (2,))


async def test_next_write_detects_a_lost_fence_and_the_controller_resigns() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        w.brokers.forget()
        # Another instance takes over before the controller's watch has fired.
        w.controller.cluster.fence = Fence(epoch=1, version=0)

        await w.stop(1)

        assert [type(request) for _, request in w.brokers.sent if isinstance(request, LeaderAndIsr)] == []
        assert await w.stored("orders-0") == (1, 0, (1, 2))


async def test_session_end_drops_queued_events_and_contests_again() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        outcomes: list[str] = []

        async def ask() -> None:
            try:
                await w.controller.create_topic("late", partitions=1, replication_factor=1)
            except NotController:
                outcomes.append("not controller")

        async with anyio.create_task_group() as tasks:
            w.controller.loop.inbox.put(BrokerChange())
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


async def test_takeover_after_a_leader_failure_costs_two_epochs() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        # The broker fails without an active controller. The next one first removes it from the ISR and then elects.
        second, _ = open_standby(w, 200)
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await settle()
        await w.stop(1)
        async with second:
            await settle()

            assert await w.stored("orders-0") == (2, 2, (2,))


async def test_takeover_deletes_old_notifications() -> None:
    async with world(1) as w:
        await w.create("orders", [[1]])
        w.controller.loop.controllership.stopping = True
        await w.controller.resign()
        await w.store.notify_isr([TopicPartition.parse("orders-0")])
        await w.store.notify_log_dir(1)
        second, _ = open_standby(w, 200)
        async with second:
            await settle()

            assert await w.store.isr_notifications() == []
            assert await w.store.log_dir_notifications() == []


@pytest.mark.parametrize(("failure", "traced"), [(ZeroDivisionError("a bug"), True), (StoreUnavailable("gone"), False)])
async def test_failed_takeover_resigns_and_is_retried(
    failure: Exception, traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200, take_over=True)
        failures = 1

        async def broken(notifications: list[Notification], fence: Fence) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise failure
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
        (record,) = [record for record in caplog.records if "taking over under epoch" in record.getMessage()]
        assert str(failure) in record.getMessage()
        assert bool(record.exc_info) == traced


async def test_event_is_retried_after_a_short_store_failure() -> None:
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


async def test_failing_handler_does_not_end_the_loop() -> None:
    async with world(1, 2) as w:
        await w.create("orders", [[1, 2]])
        real = w.controller.store.topics

        async def broken() -> list[str]:
            w.controller.store.topics = real  # type: ignore[method-assign]
            raise ZeroDivisionError("a bug")

        w.controller.store.topics = broken  # type: ignore[method-assign]
        await w.create("lost", [[1]])
        assert w.controller.partition("lost-0") is None

        # The event is retried without a notification: the failed read would have returned the next topic.
        await w.create("found", [[1]])
        await w.clock.advance(10_000)

        assert w.controller.partition("found-0") is not None
        assert w.controller.partition("lost-0") is not None
        assert w.controller.loop.state.name == "IDLE"


async def test_stop_resigns_the_controllership_immediately() -> None:
    async with world(1) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            await w.controller._stop()
            await settle()

            assert second.is_active


async def test_stale_controller_epoch_response_only_triggers_a_read() -> None:
    async with world(1, 2) as w:
        w.brokers.error[1] = 11

        await w.create("orders", [[1, 2]])

        # The response was wrong: the store still contains our id.
        assert w.controller.is_active


async def test_lost_contest_is_not_an_error() -> None:
    async with world(1) as w:
        with pytest.raises(ControllerMoved):
            await w.store.contest(300)
        assert w.controller.is_active


async def test_controller_that_fails_by_a_bug_resigns_and_restarts() -> None:
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
