"""Controlled shutdown of a participant: attempts, retries, and the resulting election."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import ControlledShutdown
from kactl.decide.messages.log import BrokerEvent
from kactl.model import NO_EPOCH, NO_LEADER, TopicPartition
from kactl.model.errors import ControllerUnreachable
from kactl.participant import Participant
from kactl.participant.controlled_shutdown import ATTEMPTS, BACKOFF_MS, controlled_shutdown
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

T_0 = TopicPartition("t", 0)


class ShutdownController:
    """A client of the controller that returns or raises the given responses in order."""

    def __init__(self, clock: ManualClock, *responses: list[TopicPartition] | Exception) -> None:
        self.clock = clock
        self.responses = list(responses)
        self.requests: list[tuple[float, ControllerRequest]] = []

    async def ask(self, request: ControllerRequest) -> list[TopicPartition]:
        self.requests.append((self.clock.monotonic_ms(), request))
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


UNREACHABLE = ControllerUnreachable("it is away")


@pytest.mark.parametrize(
    ("responses", "text"),
    [
        ([[T_0]], "still leads 1 partitions: t-0"),
        ([[TopicPartition("t", number) for number in range(7)]], "7 partitions: t-0, t-1, t-2, t-3, t-4, ..."),
        ([UNREACHABLE], "no controller has moved its leaderships"),
        ([[]], ""),
    ],
)
async def test_leaderships_that_were_not_moved_are_named(
    responses: list[list[TopicPartition] | Exception], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    controller = ShutdownController(clock, *responses)

    await controlled_shutdown(1, epoch=lambda: 5, controller=controller, clock=clock, attempts=1)

    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == bool(text)
    assert text in "".join(warnings)


@pytest.mark.parametrize(
    ("responses", "attempts", "result"),
    [
        ([[]], 1, True),
        ([[T_0], []], 2, True),
        ([UNREACHABLE, [T_0], []], 3, True),
        ([[T_0], UNREACHABLE, [T_0]], 3, False),
        ([ZeroDivisionError("a bug"), []], 2, True),
    ],
)
async def test_shutdown_is_requested_until_nothing_is_led_at_most_three_times(
    responses: list[list[TopicPartition] | Exception], attempts: int, result: bool
) -> None:
    clock = ManualClock()
    controller = ShutdownController(clock, *responses)
    results: list[bool] = []

    async def ask() -> None:
        results.append(await controlled_shutdown(3, epoch=lambda: 8, controller=controller, clock=clock))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await clock.advance(ATTEMPTS * BACKOFF_MS)

    assert results == [result]
    assert controller.requests == [(n * BACKOFF_MS, ControlledShutdown(3, 8)) for n in range(attempts)]


async def test_unregistered_broker_sends_no_request() -> None:
    clock = ManualClock()
    controller = ShutdownController(clock)

    assert not await controlled_shutdown(3, epoch=lambda: NO_EPOCH, controller=controller, clock=clock)

    assert controller.requests == []


# -- with a controller -------------------------------------------------------------------------------------------------


class Net:
    """A controller, and the store, hub and clock that participants share with it."""

    def __init__(self, controller: Controller, store: MemoryStore, hub: MemoryHub, clock: ManualClock) -> None:
        self.controller, self.store, self.hub, self.clock = controller, store, hub, clock

    def participant(self, broker: int, *, shutdown_attempts: int = 1) -> Participant:
        return Participant(
            broker, store=self.store, hub=self.hub, clock=self.clock, shutdown_attempts=shutdown_attempts
        )

    def led(self) -> tuple[int, int, tuple[int, ...]]:
        view = self.controller.partition(T_0)
        assert view is not None
        return view.leader, view.leader_epoch, view.isr

    def broker_events(self) -> list[tuple[str, int]]:
        events, _ = self.controller.history.read(0, limit=1_000, kinds=("broker",))
        return [(event.what, event.broker) for event in events if isinstance(event, BrokerEvent)]


@asynccontextmanager
async def net() -> AsyncIterator[Net]:
    clock, hub = ManualClock(), MemoryHub()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(MemoryStore(clock=clock))
        controller = await stack.enter_async_context(Controller(100, store=store.another(), hub=hub, clock=clock))
        await settle()
        yield Net(controller, store, hub, clock)


async def create_topic_on(n: Net, *replicas: int) -> None:
    await settle()
    await n.controller.create_topic("t", assignment={0: replicas})
    await settle()


async def test_end_of_the_block_moves_leaderships_first() -> None:
    async with net() as n, n.participant(1):
        async with n.participant(2) as leaving:
            await create_topic_on(n, 2, 1)
            assert n.led() == (2, 0, (2, 1))
            assert leaving.hosted(T_0) is not None
        await settle()

        # Only the election of the controlled shutdown took place, none for the failure.
        assert n.led() == (1, 1, (1,))
        assert n.broker_events()[-2:] == [("shutting-down", 2), ("failed", 2)]


async def test_restart_moves_leaderships_and_registers_again() -> None:
    async with net() as n, n.participant(1), n.participant(2) as second:
        await create_topic_on(n, 2, 1)

        await second.restart()
        await settle()

        assert n.led()[:2] == (1, 1)
        assert [kind for kind, broker in n.broker_events() if broker == 2] == [
            "started",
            "shutting-down",
            "failed",
            "started",
        ]
        assert n.controller.cluster.shutting_down == frozenset()


async def test_killed_participant_moves_no_leadership() -> None:
    async with net() as n, n.participant(1), n.participant(2) as second:
        await create_topic_on(n, 2, 1)

        await second.kill()
        await settle()

        assert n.led() == (2, 0, (2, 1))
        assert ("shutting-down", 2) not in n.broker_events()


async def test_last_replica_retries_and_then_stops() -> None:
    async with net() as n, n.participant(1, shutdown_attempts=ATTEMPTS) as first:
        async with n.participant(2):
            await create_topic_on(n, 1, 2)
        await settle()
        assert n.led()[2] == (1,)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.stop)
            await settle()
            assert n.led()[0] == 1
            await n.clock.advance((ATTEMPTS - 1) * BACKOFF_MS)
            await settle()

        assert n.led()[0] == NO_LEADER
        assert sorted(await n.store.brokers()) == []


async def test_zero_attempts_stop_without_a_controlled_shutdown() -> None:
    async with net() as n, n.participant(1), n.participant(2, shutdown_attempts=0) as second:
        await create_topic_on(n, 2, 1)

        await second.stop()
        await settle()

        assert n.broker_events()[-1] == ("failed", 2)
        assert ("shutting-down", 2) not in n.broker_events()
        assert n.led()[:2] == (1, 1)


async def test_paused_participant_stops_without_a_controlled_shutdown() -> None:
    async with net() as n, n.participant(1), n.participant(2) as second:
        await create_topic_on(n, 2, 1)
        second.pause()

        await second.stop()
        await settle()

        assert ("shutting-down", 2) not in n.broker_events()
