"""What a broker does before it stops: how often it asks, whom, and what it does about the answer."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.errors import ControllerUnreachable
from kactl.messages.admin import ControllerRequest
from kactl.messages.broker import ControlledShutdownRequested
from kactl.messages.log import BrokerEvent
from kactl.model import NO_EPOCH, NO_LEADER, TopicPartition
from kactl.participant import Participant
from kactl.participant.controlled_shutdown import ATTEMPTS, BACKOFF_MS, hand_over
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

T_0 = TopicPartition("t", 0)


class Answers:
    """A way to the controller that gives one answer after the other."""

    def __init__(self, clock: ManualClock, *answers: list[TopicPartition] | Exception) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.asked: list[tuple[float, ControllerRequest]] = []

    async def ask(self, asked: ControllerRequest) -> list[TopicPartition]:
        self.asked.append((self.clock.monotonic_ms(), asked))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


AWAY = ControllerUnreachable("it is away")


@pytest.mark.parametrize(
    ("answers", "tries", "done"),
    [
        ([[]], 1, True),
        ([[T_0], []], 2, True),
        ([AWAY, [T_0], []], 3, True),
        ([[T_0], AWAY, [T_0]], 3, False),
        ([ZeroDivisionError("a bug"), []], 2, True),
    ],
)
async def test_it_asks_until_nothing_is_left_and_no_more_than_three_times(
    answers: list[list[TopicPartition] | Exception], tries: int, done: bool
) -> None:
    clock = ManualClock()
    controller = Answers(clock, *answers)
    results: list[bool] = []

    async def ask() -> None:
        results.append(await hand_over(3, epoch=lambda: 8, controller=controller, clock=clock))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await clock.advance(ATTEMPTS * BACKOFF_MS)

    assert results == [done]
    assert controller.asked == [(at * BACKOFF_MS, ControlledShutdownRequested(3, 8)) for at in range(tries)]


async def test_one_whose_registration_has_ended_has_nothing_to_hand_over() -> None:
    clock = ManualClock()
    controller = Answers(clock)

    assert not await hand_over(3, epoch=lambda: NO_EPOCH, controller=controller, clock=clock)

    assert controller.asked == []


# -- with a controller -------------------------------------------------------------------------------------------------


class Net:
    """A controller, and what participants need to find it."""

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

    def happened(self) -> list[tuple[str, int]]:
        found, _ = self.controller.history.read(0, limit=1_000, kinds=("broker",))
        return [(each.what, each.broker) for each in found if isinstance(each, BrokerEvent)]


@asynccontextmanager
async def net() -> AsyncIterator[Net]:
    clock, hub = ManualClock(), MemoryHub()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(MemoryStore(clock=clock))
        controller = await stack.enter_async_context(Controller(100, store=store.another(), hub=hub, clock=clock))
        await settle()
        yield Net(controller, store, hub, clock)


async def create(n: Net, *replicas: int) -> None:
    await settle()
    await n.controller.create_topic("t", assignment={0: replicas})
    await settle()


async def test_a_participant_that_leaves_its_block_hands_over_before_it_goes() -> None:
    async with net() as n, n.participant(1):
        async with n.participant(2) as leaving:
            await create(n, 2, 1)
            assert n.led() == (2, 0, (2, 1))
            assert leaving.hosted(T_0) is not None
        await settle()

        # The election of a controlled shutdown, and none for a failure.
        assert n.led() == (1, 1, (1,))
        assert n.happened()[-2:] == [("shutting-down", 2), ("failed", 2)]


async def test_so_does_one_that_is_stopped_or_restarted_and_comes_back_as_any_other() -> None:
    async with net() as n, n.participant(1), n.participant(2) as second:
        await create(n, 2, 1)

        await second.restart()
        await settle()

        assert n.led()[:2] == (1, 1)
        assert [what for what, broker in n.happened() if broker == 2] == [
            "started",
            "shutting-down",
            "failed",
            "started",
        ]
        assert n.controller.cluster.shutting_down == frozenset()


async def test_one_that_is_killed_does_not() -> None:
    async with net() as n, n.participant(1), n.participant(2) as second:
        await create(n, 2, 1)

        await second.kill()
        await settle()

        assert n.led() == (2, 0, (2, 1))
        assert ("shutting-down", 2) not in n.happened()


async def test_one_that_has_nobody_to_hand_over_to_tries_for_a_while_and_goes() -> None:
    async with net() as n, n.participant(1, shutdown_attempts=ATTEMPTS) as first:
        async with n.participant(2):
            await create(n, 1, 2)
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


async def test_one_that_was_told_not_to_goes_at_once() -> None:
    async with net() as n, n.participant(1), n.participant(2, shutdown_attempts=0) as second:
        await create(n, 2, 1)

        await second.stop()
        await settle()

        assert n.happened()[-1] == ("failed", 2)
        assert ("shutting-down", 2) not in n.happened()
        assert n.led()[:2] == (1, 1)


async def test_one_that_hangs_is_ended_without_a_word() -> None:
    async with net() as n, n.participant(1), n.participant(2) as second:
        await create(n, 2, 1)
        second.pause()

        await second.stop()
        await settle()

        assert ("shutting-down", 2) not in n.happened()
