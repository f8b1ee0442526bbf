"""How leaders keep their ISRs by proposing them: with somebody who plays the controller, and with a real one."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kactl.actors.system import Controller
from kactl.errors import ControllerUnreachable, ErrorCode, NotController
from kactl.messages.admin import ControllerRequest, UndrainRequested
from kactl.messages.broker import AlterPartitionRequested, IsrProposal, IsrResult
from kactl.model import Leadership, TopicPartition, TopicRef
from kactl.participant import Participants
from kactl.participant.isr import RETRY_MS, RETRY_MS_MAX
from kactl.participant.lagging_replicas import LAG_MS
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.clocks import ManualClock, settle

from .conftest import SESSION_MS, Network
from .requests import CONTROLLER, ID_A, ORDERS_0, State, update_metadata

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Desk:
    """Plays the controller: notes what is proposed, and answers as it is told; takes everything if it is told nothing.

    Attributes:
        says: for each request to come: an error for all of its proposals, or what to raise.
    """

    says: list[ErrorCode | Exception] = dataclasses.field(default_factory=list)
    asked: list[AlterPartitionRequested] = dataclasses.field(default_factory=list)

    async def ask(self, asked: ControllerRequest, /) -> Any:
        assert isinstance(asked, AlterPartitionRequested)
        self.asked.append(asked)
        said = self.says.pop(0) if self.says else ErrorCode.NONE
        if isinstance(said, Exception):
            raise said
        return [self._result(proposal, said) for proposal in asked.proposals]

    def _result(self, proposal: IsrProposal, said: ErrorCode) -> IsrResult:
        taken = Leadership(1, proposal.leader_epoch, proposal.isr, proposal.partition_epoch + 1, 1)
        leadership = taken if said is ErrorCode.NONE else None
        return IsrResult(proposal.topic, proposal.partition, said, leadership)

    @property
    def proposed(self) -> list[tuple[tuple[int, ...], int]]:
        """ISR and version of each proposal."""
        return [(each.isr, each.partition_epoch) for asked in self.asked for each in asked.proposals]


@pytest.fixture
def desk(network: Network) -> Desk:
    made = Desk()
    network.hub.attach_controller(CONTROLLER, made.ask)
    return made


def group(network: Network, **options: Any) -> Participants:
    options.setdefault("session_timeout_ms", SESSION_MS)
    options.setdefault("shutdown_attempts", 0)  # nobody plays that part of a controller
    return Participants(3, store=network.store, hub=network.hub, clock=network.clock, **options)


def held(brokers: Participants) -> tuple[tuple[int, ...], int]:
    """What broker 1 knows of orders-0: ISR and version."""
    hosted = brokers[1].hosted(ORDERS_0)
    assert hosted is not None
    return hosted.isr, hosted.partition_epoch


ROW = State(ORDERS_0, leader=1, leader_epoch=0, isr=(3, 1), partition_epoch=0)


# -- growing -----------------------------------------------------------------------------------------------------------


async def test_a_follower_that_follows_is_proposed_and_nothing_is_written(network: Network, desk: Desk) -> None:
    async with group(network) as brokers:
        row = await network.elect(isr=(3, 1))
        await network.tell_all(row)
        await settle()

        (asked,) = desk.asked
        assert (asked.broker, asked.broker_epoch) == (1, brokers[1].epoch)
        assert desk.proposed == [((1, 2, 3), 0)]
        assert held(brokers) == ((1, 2, 3), 1)
        stored = await network.stored()
        assert stored is not None
        assert stored.partition_epoch == 0
        assert await network.notified() == []


async def test_the_registrations_that_follow_are_named(network: Network, desk: Desk) -> None:
    async with group(network) as brokers:
        row = await network.elect(isr=(3, 1))
        await network.tell_all(row)
        await settle()
        before = brokers[2].epoch
        assert desk.asked[-1].proposals[0].isr == (1, 2, 3)
        assert desk.asked[-1].proposals[0].broker_epochs == (brokers[1].epoch, before, brokers[3].epoch)

        await brokers.kill(2)
        await network.clock.advance(SESSION_MS)
        later = row.but(leader_epoch=1, partition_epoch=4)
        await network.tell_all(later, live=(1, 3))
        await brokers.restart(2)
        await network.tell_all(later)
        await settle()

        assert brokers[2].epoch > before
        assert desk.asked[-1].proposals[0].isr == (1, 2, 3)
        assert desk.asked[-1].proposals[0].broker_epochs == (brokers[1].epoch, brokers[2].epoch, brokers[3].epoch)


@pytest.mark.parametrize("topic_id", [ID_A, b"a" * 14 + bytes(2), bytes(16)], ids=["id", "zeros at its end", "none"])
async def test_topics_are_named_by_id_where_they_have_one(network: Network, desk: Desk, topic_id: bytes) -> None:
    async with group(network):
        await network.tell_all(ROW.but(topic_id=topic_id))
        await settle()

        (asked,) = desk.asked
        assert asked.version == (3 if any(topic_id) else 1)
        assert [each.topic for each in asked.proposals] == [TopicRef("orders", topic_id)]


async def test_a_leader_proposes_the_end_of_its_recovery(network: Network, desk: Desk) -> None:
    async with group(network):
        await network.tell_all(ROW.but(isr=(1, 2, 3), recovering=True))
        await settle()

        assert [each.recovering for each in desk.asked[0].proposals] == [False]
        assert desk.proposed == [((1, 2, 3), 0)]


async def test_a_leader_that_hangs_proposes_nothing(network: Network, desk: Desk) -> None:
    async with group(network) as brokers:
        await network.lead_and_follow(1, ROW)
        await network.send(1, update_metadata(ROW))
        brokers.pause(1)
        await network.send(2, update_metadata(ROW))
        await network.lead_and_follow(2, ROW)
        await settle()
        assert desk.asked == []

        brokers.resume(1)
        await settle()
        assert desk.proposed == [((1, 2, 3), 0)]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    ],
)
async def test_what_is_refused_for_good_waits_for_an_instruction(
    network: Network, desk: Desk, error: ErrorCode
) -> None:
    desk.says = [error]
    async with group(network) as brokers:
        await network.tell_all(ROW)
        await network.send(1, update_metadata(ROW))  # as the controller sends it after each proposal, taken or not
        await network.clock.advance(10 * RETRY_MS)
        assert desk.proposed == [((1, 2, 3), 0)]
        assert held(brokers) == ((3, 1), 0)

        await network.tell_all(ROW.but(leader_epoch=1, partition_epoch=4))
        await settle()
        assert desk.proposed[1:] == [((1, 2, 3), 4)]


async def test_who_learns_from_the_metadata_what_he_has_missed_goes_on_from_there(network: Network, desk: Desk) -> None:
    desk.says = [ErrorCode.INVALID_UPDATE_VERSION]
    async with group(network) as brokers:
        await network.tell_all(ROW)
        await settle()
        assert held(brokers) == ((3, 1), 0)

        await network.send(1, update_metadata(ROW.but(isr=(1,), partition_epoch=7)))
        await settle()

        assert desk.proposed[1:] == [((1, 2, 3), 7)]
        assert held(brokers) == ((1, 2, 3), 8)


@pytest.mark.parametrize(
    "said",
    [
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        NotController(7),
        ControllerUnreachable("it is gone"),
        OSError("a bug"),
    ],
    ids=repr,
)
async def test_what_may_pass_is_proposed_again_after_a_pause(
    network: Network, desk: Desk, said: ErrorCode | Exception
) -> None:
    desk.says = [said, said]
    async with group(network) as brokers:
        await network.tell_all(ROW)
        await network.send(1, update_metadata(ROW))
        await settle()
        assert len(desk.asked) == 1

        await network.clock.advance(RETRY_MS)
        assert len(desk.asked) == 2
        assert held(brokers) == ((3, 1), 0)

        await network.clock.advance(2 * RETRY_MS)
        assert len(desk.asked) == 3
        assert held(brokers) == ((1, 2, 3), 1)


@pytest.mark.parametrize("said", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
async def test_an_ineligible_member_is_proposed_at_growing_intervals(
    network: Network, desk: Desk, said: ErrorCode
) -> None:
    desk.says = [said] * 100
    async with group(network) as brokers:
        await network.tell_all(ROW)
        await network.send(1, update_metadata(ROW))
        await settle()
        asked = len(desk.asked)
        pauses = [min(RETRY_MS << doubled, RETRY_MS_MAX) for doubled in range(9)]
        assert pauses[-2:] == [RETRY_MS_MAX] * 2

        for pause_ms in pauses:
            await network.clock.advance(pause_ms - 1)
            await network.send(1, update_metadata(ROW))  # news of other things
            assert len(desk.asked) == asked
            await network.clock.advance(1)
            asked += 1
            assert len(desk.asked) == asked

        desk.says = []
        await network.tell_all(ROW.but(leader_epoch=1, partition_epoch=4))
        await settle()
        assert held(brokers) == ((1, 2, 3), 5)  # another instruction is another proposal


async def test_a_drained_broker_is_not_proposed_until_it_is_restored() -> None:
    async with cluster(session_timeout_ms=10 * LAG_MS) as (controller, _, _, clock):
        asked: list[AlterPartitionRequested] = []
        ask = controller.hub.controller(CONTROLLER)
        assert ask is not None

        async def noted(request: ControllerRequest, /) -> Any:
            if isinstance(request, AlterPartitionRequested):
                asked.append(request)
            return await ask(request)

        controller.hub.attach_controller(CONTROLLER, noted)
        # It follows whoever leads now what it led until then.
        await controller.drain(2)
        await settle()
        assert isrs(controller) == [(1, 3), (3, 1)]
        await clock.advance(120_000)
        assert len(asked) <= 1  # the new leader may have heard of its leadership first

        await controller.ask(UndrainRequested(2))
        await clock.advance(RETRY_MS)

        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]
        assert len(asked) <= 3


async def test_a_drained_leader_proposes_nobody_else() -> None:
    """It is in every ISR that it could propose."""
    async with cluster(session_timeout_ms=10 * LAG_MS) as (controller, brokers, _, clock):
        brokers.pause(2)
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)
        assert isrs(controller)[0] == (1,)
        ask, asked = controller.hub.controller(CONTROLLER), []
        assert ask is not None

        async def noted(request: ControllerRequest, /) -> Any:
            asked.append(request)
            return await ask(request)

        controller.hub.attach_controller(CONTROLLER, noted)
        await controller.drain(1)
        brokers.resume(2)
        brokers.resume(3)
        await clock.advance(60_000)

        assert isrs(controller)[0] == (1,)
        # It learns from the metadata that follow its first proposal.
        assert len([each for each in asked if isinstance(each, AlterPartitionRequested) and each.broker == 1]) <= 2
        await controller.ask(UndrainRequested(1))
        await clock.advance(RETRY_MS)
        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]


async def test_the_controller_that_was_told_of_last_is_asked(network: Network, desk: Desk) -> None:
    desk.says = [NotController(7)]
    later = Desk()
    network.hub.attach_controller(7, later.ask)
    async with group(network):
        await network.tell_all(ROW)
        await settle()
        assert (len(desk.asked), len(later.asked)) == (1, 0)

        told = dataclasses.replace(update_metadata(ROW, epoch=2), controller_id=7)
        await network.send(1, told)
        await network.clock.advance(RETRY_MS)
        assert (len(desk.asked), len(later.asked)) == (1, 1)


# -- shrinking ---------------------------------------------------------------------------------------------------------


async def complete(network: Network) -> None:
    """Everybody is in sync, and follows."""
    await network.tell_all(ROW.but(isr=(1, 2, 3)))
    await settle()


async def test_a_follower_that_hangs_is_dropped_in_time_and_taken_in_when_it_goes_on(
    network: Network, desk: Desk
) -> None:
    async with group(network, session_timeout_ms=10 * LAG_MS) as brokers:
        await complete(network)
        brokers.pause(2)
        await network.clock.advance(LAG_MS)
        assert desk.asked == []  # seen to lag after half of it, and since then for half of it only

        await network.clock.advance(LAG_MS / 2)
        assert desk.proposed == [((1, 3), 0)]

        brokers.resume(2)
        await settle()
        assert desk.proposed == [((1, 3), 0), ((1, 2, 3), 1)]
        await network.clock.advance(2 * LAG_MS)
        assert held(brokers) == ((1, 2, 3), 2)


async def test_a_follower_that_hangs_for_a_moment_stays(network: Network, desk: Desk) -> None:
    async with group(network, session_timeout_ms=10 * LAG_MS) as brokers:
        await complete(network)
        for _ in range(4):
            brokers.pause(2)
            await network.clock.advance(LAG_MS * 0.8)
            brokers.resume(2)
            await network.clock.advance(LAG_MS * 0.8)

        assert desk.asked == []


async def test_a_new_leader_gives_everybody_the_time_anew(network: Network, desk: Desk) -> None:
    async with group(network, session_timeout_ms=10 * LAG_MS) as brokers:
        await complete(network)
        brokers.pause(2)
        await network.clock.advance(LAG_MS)
        await network.lead_and_follow(1, ROW.but(isr=(1, 2, 3), leader_epoch=1, partition_epoch=3))
        await network.lead_and_follow(3, ROW.but(isr=(1, 2, 3), leader_epoch=1, partition_epoch=3))
        await network.clock.advance(LAG_MS)
        assert desk.asked == []

        await network.clock.advance(LAG_MS / 2)
        assert desk.proposed == [((1, 3), 3)]


async def test_a_follower_that_lags_by_the_word_of_the_application_is_dropped(network: Network, desk: Desk) -> None:
    behind: set[int] = set()

    def in_sync(name: TopicPartition, follower: int) -> bool:
        return follower not in behind

    async with group(network, in_sync=in_sync, session_timeout_ms=10 * LAG_MS):
        await complete(network)
        behind.add(3)
        await network.clock.advance(1.5 * LAG_MS)
        assert desk.proposed == [((1, 2), 0)]

        behind.clear()
        await network.clock.advance(RETRY_MS)
        assert desk.proposed == [((1, 2), 0), ((1, 2, 3), 1)]


async def test_one_is_dropped_and_another_taken_in_at_once(network: Network, desk: Desk) -> None:
    told = {3}

    async with group(
        network, in_sync=lambda name, follower: follower not in told, session_timeout_ms=10 * LAG_MS
    ) as brokers:
        await network.tell_all(ROW.but(isr=(1, 2)))
        brokers.pause(2)
        await network.clock.advance(LAG_MS * 1.4)
        assert desk.asked == []

        brokers.pause(1)
        await network.clock.advance(LAG_MS / 2)
        told.clear()
        brokers.resume(1)
        await settle()
        assert desk.proposed == [((1, 3), 0)]


async def test_who_writes_itself_drops_laggards_too(network: Network) -> None:
    async with group(network, alter_partition=False, session_timeout_ms=10 * LAG_MS) as brokers:
        await network.tell_all(await network.elect(isr=(1, 2, 3)))
        brokers.pause(2)
        await network.clock.advance(1.5 * LAG_MS)

        stored = await network.stored()
        assert stored is not None
        assert (stored.isr, stored.partition_epoch) == ((1, 3), 1)
        assert await network.notified() == [ORDERS_0]


# -- with a real controller --------------------------------------------------------------------------------------------


class Watched(MemoryStore):
    """Notes whether a leader wrote by itself."""

    wrote = False

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        self.wrote = True
        return await super().write_isr(name, state, expected=expected)


@asynccontextmanager
async def cluster(
    *, lose: Callable[[], bool] = lambda: False, **options: Any
) -> AsyncIterator[tuple[Controller, Participants, Watched, ManualClock]]:
    """A controller and three participants. Where `lose` says so an answer is lost on the way."""
    clock, hub = ManualClock(), MemoryHub()
    async with Watched(clock=clock) as store:
        controller = Controller(CONTROLLER, store=store.another(), hub=hub, clock=clock)
        async with controller, Participants(3, store=store, hub=hub, clock=clock, **options) as brokers:
            found = hub.controller(CONTROLLER)
            assert found is not None

            async def ask(asked: ControllerRequest, /) -> Any:
                answer = await found(asked)
                if isinstance(asked, AlterPartitionRequested) and lose():
                    raise ControllerUnreachable("the answer was lost")
                return answer

            hub.attach_controller(CONTROLLER, ask)
            await settle()
            await controller.create_topic("orders", assignment={0: (1, 2, 3), 1: (2, 3, 1)})
            await settle()
            yield controller, brokers, store, clock


def isrs(controller: Controller) -> list[tuple[int, ...]]:
    return [view.isr for view in controller.partitions_of("orders")]


async def test_a_follower_that_comes_back_is_in_sync_again_without_a_word_to_the_store() -> None:
    async with cluster(session_timeout_ms=SESSION_MS) as (controller, brokers, store, clock):
        await brokers.kill(3)
        await clock.advance(SESSION_MS)
        assert isrs(controller) == [(1, 2), (2, 1)]

        await brokers.restart(3)
        await clock.advance(RETRY_MS)

        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]
        assert not store.wrote
        for view in controller.partitions_of("orders"):
            hosted = brokers[view.leader].hosted(view.name)
            assert hosted is not None
            assert (hosted.isr, hosted.partition_epoch) == (view.isr, view.partition_epoch)


async def test_a_follower_that_hangs_while_its_session_lives_leaves_and_returns() -> None:
    async with cluster(session_timeout_ms=10 * LAG_MS) as (controller, brokers, store, clock):
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)
        assert isrs(controller) == [(1, 2), (2, 1)]
        assert [view.leader_epoch for view in controller.partitions_of("orders")] == [0, 0]

        brokers.resume(3)
        await clock.advance(RETRY_MS)
        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]
        assert not store.wrote


async def test_a_lost_answer_is_made_good_by_proposing_again() -> None:
    losses = 2

    def lose() -> bool:
        nonlocal losses
        losses -= 1
        return losses >= 0

    async with cluster(session_timeout_ms=10 * LAG_MS, lose=lose) as (controller, brokers, _, clock):
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)  # both leaders drop it, and neither hears so
        assert losses == 0
        brokers.resume(3)  # what they want now is not what was taken
        await clock.advance(4 * RETRY_MS)

        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]
        for view in controller.partitions_of("orders"):
            hosted = brokers[view.leader].hosted(view.name)
            assert hosted is not None
            assert (hosted.isr, hosted.partition_epoch) == (view.isr, view.partition_epoch)


async def test_the_next_controller_is_found() -> None:
    async with (
        cluster(session_timeout_ms=10 * LAG_MS) as (controller, brokers, store, clock),
        Controller(7, store=store.another(), hub=controller.hub, clock=clock) as other,
    ):
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)
        await store.contest(7, take_over=True)  # an instance with the id of the other one, which then goes
        await store.resign(await store.contest(7, take_over=True))
        await settle()
        active = other if other.is_active else controller
        before = [view.partition_epoch for view in active.partitions_of("orders")]

        brokers.resume(3)
        await clock.advance(4 * RETRY_MS)

        assert active is other
        assert isrs(other) == [(1, 2, 3), (2, 3, 1)]
        assert [view.partition_epoch for view in other.partitions_of("orders")] == [each + 1 for each in before]
        assert not store.wrote
