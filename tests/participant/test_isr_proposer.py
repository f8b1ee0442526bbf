"""ISR updates proposed to the controller: with a fake controller, and with a real one."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kactl.actors.system import Controller
from kactl.decide.messages.admin import ControllerRequest, UndrainBroker
from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal, IsrResult
from kactl.model import Leadership, TopicPartition, TopicRef
from kactl.model.errors import ControllerUnreachable, ErrorCode, NotController
from kactl.participant import Participants
from kactl.participant.isr import RETRY_MS, RETRY_MS_MAX
from kactl.participant.lagging_replicas import LAG_MS
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.support.clocks import ManualClock, settle
from tests.support.control_requests import CONTROLLER, ID_A, ORDERS_0, StateRow, update_metadata

from .conftest import SESSION_MS, Network

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class IsrController:
    """Records proposals, and accepts them unless `outcomes` is not empty.

    Attributes:
        outcomes: for each request to come: an error for all of its proposals, or an exception to raise.
    """

    outcomes: list[ErrorCode | Exception] = dataclasses.field(default_factory=list)
    requests: list[AlterPartitionReceived] = dataclasses.field(default_factory=list)

    async def ask(self, request: ControllerRequest, /) -> Any:
        assert isinstance(request, AlterPartitionReceived)
        self.requests.append(request)
        outcome = self.outcomes.pop(0) if self.outcomes else ErrorCode.NONE
        if isinstance(outcome, Exception):
            raise outcome
        return [self._result(proposal, outcome) for proposal in request.proposals]

    def _result(self, proposal: IsrProposal, error: ErrorCode) -> IsrResult:
        accepted = Leadership(1, proposal.leader_epoch, proposal.isr, proposal.partition_epoch + 1, 1)
        leadership = accepted if error is ErrorCode.NONE else None
        return IsrResult(proposal.topic, proposal.partition, error, leadership)

    @property
    def proposed(self) -> list[tuple[tuple[int, ...], int]]:
        """ISR and version of each proposal."""
        return [(proposal.isr, proposal.partition_epoch) for request in self.requests for proposal in request.proposals]


@pytest.fixture
def fake_controller(network: Network) -> IsrController:
    controller = IsrController()
    network.hub.attach_controller(CONTROLLER, controller.ask)
    return controller


def isr_group(network: Network, **options: Any) -> Participants:
    options.setdefault("session_timeout_ms", SESSION_MS)
    options.setdefault("shutdown_attempts", 0)  # the fake controller has no controlled shutdown
    return Participants(3, store=network.store, hub=network.hub, clock=network.clock, **options)


def local_state(brokers: Participants) -> tuple[tuple[int, ...], int]:
    """Returns the ISR and version of orders-0 at broker 1."""
    hosted = brokers[1].hosted(ORDERS_0)
    assert hosted is not None
    return hosted.isr, hosted.partition_epoch


ROW = StateRow(ORDERS_0, leader=1, leader_epoch=0, isr=(3, 1), partition_epoch=0)


# -- growing -----------------------------------------------------------------------------------------------------------


async def test_following_replica_is_proposed_and_nothing_is_written(
    network: Network, fake_controller: IsrController
) -> None:
    async with isr_group(network) as brokers:
        row = await network.elect(isr=(3, 1))
        await network.send_to_all(row)
        await settle()

        (request,) = fake_controller.requests
        assert (request.broker, request.broker_epoch) == (1, brokers[1].epoch)
        assert fake_controller.proposed == [((1, 2, 3), 0)]
        assert local_state(brokers) == ((1, 2, 3), 1)
        stored = await network.stored()
        assert stored is not None
        assert stored.partition_epoch == 0
        assert await network.notified() == []


async def test_proposal_contains_the_epochs_of_the_followers(network: Network, fake_controller: IsrController) -> None:
    async with isr_group(network) as brokers:
        row = await network.elect(isr=(3, 1))
        await network.send_to_all(row)
        await settle()
        before = brokers[2].epoch
        assert fake_controller.requests[-1].proposals[0].isr == (1, 2, 3)
        assert fake_controller.requests[-1].proposals[0].broker_epochs == (brokers[1].epoch, before, brokers[3].epoch)

        await brokers.kill(2)
        await network.clock.advance(SESSION_MS)
        newer = row.but(leader_epoch=1, partition_epoch=4)
        await network.send_to_all(newer, live=(1, 3))
        await brokers.restart(2)
        await network.send_to_all(newer)
        await settle()

        assert brokers[2].epoch > before
        assert fake_controller.requests[-1].proposals[0].isr == (1, 2, 3)
        assert fake_controller.requests[-1].proposals[0].broker_epochs == (
            brokers[1].epoch,
            brokers[2].epoch,
            brokers[3].epoch,
        )


@pytest.mark.parametrize("topic_id", [ID_A, b"a" * 14 + bytes(2), bytes(16)], ids=["id", "trailing zeros", "none"])
async def test_proposal_contains_the_topic_id_if_there_is_one(
    network: Network, fake_controller: IsrController, topic_id: bytes
) -> None:
    async with isr_group(network):
        await network.send_to_all(ROW.but(topic_id=topic_id))
        await settle()

        (request,) = fake_controller.requests
        assert request.version == (3 if any(topic_id) else 1)
        assert [proposal.topic for proposal in request.proposals] == [TopicRef("orders", topic_id)]


async def test_leader_proposes_the_end_of_its_recovery(network: Network, fake_controller: IsrController) -> None:
    async with isr_group(network):
        await network.send_to_all(ROW.but(isr=(1, 2, 3), recovering=True))
        await settle()

        assert [proposal.recovering for proposal in fake_controller.requests[0].proposals] == [False]
        assert fake_controller.proposed == [((1, 2, 3), 0)]


async def test_paused_leader_proposes_nothing(network: Network, fake_controller: IsrController) -> None:
    async with isr_group(network) as brokers:
        await network.lead_and_follow(1, ROW)
        await network.send(1, update_metadata(ROW))
        brokers.pause(1)
        await network.send(2, update_metadata(ROW))
        await network.lead_and_follow(2, ROW)
        await settle()
        assert fake_controller.requests == []

        brokers.resume(1)
        await settle()
        assert fake_controller.proposed == [((1, 2, 3), 0)]


# -- rejections -------------------------------------------------------------------------------------------------------


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
async def test_final_rejection_waits_for_a_leader_and_isr(
    network: Network, fake_controller: IsrController, error: ErrorCode
) -> None:
    fake_controller.outcomes = [error]
    async with isr_group(network) as brokers:
        await network.send_to_all(ROW)
        await network.send(1, update_metadata(ROW))  # as the controller sends it after each proposal, accepted or not
        await network.clock.advance(10 * RETRY_MS)
        assert fake_controller.proposed == [((1, 2, 3), 0)]
        assert local_state(brokers) == ((3, 1), 0)

        await network.send_to_all(ROW.but(leader_epoch=1, partition_epoch=4))
        await settle()
        assert fake_controller.proposed[1:] == [((1, 2, 3), 4)]


async def test_newer_version_in_the_metadata_is_the_next_base(network: Network, fake_controller: IsrController) -> None:
    fake_controller.outcomes = [ErrorCode.INVALID_UPDATE_VERSION]
    async with isr_group(network) as brokers:
        await network.send_to_all(ROW)
        await settle()
        assert local_state(brokers) == ((3, 1), 0)

        await network.send(1, update_metadata(ROW.but(isr=(1,), partition_epoch=7)))
        await settle()

        assert fake_controller.proposed[1:] == [((1, 2, 3), 7)]
        assert local_state(brokers) == ((1, 2, 3), 8)


@pytest.mark.parametrize(
    "outcome",
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
async def test_retryable_rejection_is_proposed_again_after_a_pause(
    network: Network, fake_controller: IsrController, outcome: ErrorCode | Exception
) -> None:
    fake_controller.outcomes = [outcome, outcome]
    async with isr_group(network) as brokers:
        await network.send_to_all(ROW)
        await network.send(1, update_metadata(ROW))
        await settle()
        assert len(fake_controller.requests) == 1

        await network.clock.advance(RETRY_MS)
        assert len(fake_controller.requests) == 2
        assert local_state(brokers) == ((3, 1), 0)

        await network.clock.advance(2 * RETRY_MS)
        assert len(fake_controller.requests) == 3
        assert local_state(brokers) == ((1, 2, 3), 1)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
async def test_ineligible_member_is_proposed_at_growing_intervals(
    network: Network, fake_controller: IsrController, error: ErrorCode
) -> None:
    fake_controller.outcomes = [error] * 100
    async with isr_group(network) as brokers:
        await network.send_to_all(ROW)
        await network.send(1, update_metadata(ROW))
        await settle()
        count = len(fake_controller.requests)
        pauses = [min(RETRY_MS << doubled, RETRY_MS_MAX) for doubled in range(9)]
        assert pauses[-2:] == [RETRY_MS_MAX] * 2

        for pause_ms in pauses:
            await network.clock.advance(pause_ms - 1)
            await network.send(1, update_metadata(ROW))  # metadata about other partitions
            assert len(fake_controller.requests) == count
            await network.clock.advance(1)
            count += 1
            assert len(fake_controller.requests) == count

        fake_controller.outcomes = []
        await network.send_to_all(ROW.but(leader_epoch=1, partition_epoch=4))
        await settle()
        assert local_state(brokers) == ((1, 2, 3), 5)  # a new LeaderAndIsr results in a new proposal


async def test_drained_broker_is_not_proposed_until_it_is_restored() -> None:
    async with isr_cluster(session_timeout_ms=10 * LAG_MS) as (controller, _, _, clock):
        requests: list[AlterPartitionReceived] = []
        ask = controller.hub.controller(CONTROLLER)
        assert ask is not None

        async def record(request: ControllerRequest, /) -> Any:
            if isinstance(request, AlterPartitionReceived):
                requests.append(request)
            return await ask(request)

        controller.hub.attach_controller(CONTROLLER, record)
        # It follows the new leaders of the partitions that it led.
        await controller.drain(2)
        await settle()
        assert isrs(controller) == [(1, 3), (3, 1)]
        await clock.advance(120_000)
        assert len(requests) <= 1  # the new leader may have received its leadership before the metadata

        await controller.ask(UndrainBroker(2))
        await clock.advance(RETRY_MS)

        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]
        assert len(requests) <= 3


async def test_drained_leader_proposes_others_until_one_of_them_leads() -> None:
    """The drain could not end otherwise: only a member of the ISR can take over."""
    async with isr_cluster(session_timeout_ms=10 * LAG_MS) as (controller, brokers, _, clock):
        brokers.pause(2)
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)
        assert isrs(controller)[0] == (1,)
        ask, requests = controller.hub.controller(CONTROLLER), []
        assert ask is not None

        async def record(request: ControllerRequest, /) -> Any:
            requests.append(request)
            return await ask(request)

        controller.hub.attach_controller(CONTROLLER, record)
        await controller.drain(1)
        brokers.resume(2)
        brokers.resume(3)
        await clock.advance(60_000)

        assert isrs(controller)[0] == (2, 3)
        assert controller.partitions_of("orders")[0].leader == 2
        proposals = [request for request in requests if isinstance(request, AlterPartitionReceived)]
        assert len([request for request in proposals if request.broker == 1]) <= 2
        await controller.ask(UndrainBroker(1))
        await clock.advance(RETRY_MS)
        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]


async def test_proposals_go_to_the_controller_of_the_last_metadata(
    network: Network, fake_controller: IsrController
) -> None:
    fake_controller.outcomes = [NotController(7)]
    later = IsrController()
    network.hub.attach_controller(7, later.ask)
    async with isr_group(network):
        await network.send_to_all(ROW)
        await settle()
        assert (len(fake_controller.requests), len(later.requests)) == (1, 0)

        metadata = dataclasses.replace(update_metadata(ROW, epoch=2), controller_id=7)
        await network.send(1, metadata)
        await network.clock.advance(RETRY_MS)
        assert (len(fake_controller.requests), len(later.requests)) == (1, 1)


# -- shrinking ---------------------------------------------------------------------------------------------------------


async def complete(network: Network) -> None:
    """Send a state in which all replicas are in sync and follow."""
    await network.send_to_all(ROW.but(isr=(1, 2, 3)))
    await settle()


async def test_paused_follower_leaves_the_isr_and_joins_after_resume(
    network: Network, fake_controller: IsrController
) -> None:
    async with isr_group(network, session_timeout_ms=10 * LAG_MS) as brokers:
        await complete(network)
        brokers.pause(2)
        await network.clock.advance(LAG_MS - 1)
        assert fake_controller.requests == []

        await network.clock.advance(1)  # the time since its last report
        assert fake_controller.proposed == [((1, 3), 0)]

        brokers.resume(2)
        await settle()
        assert fake_controller.proposed == [((1, 3), 0), ((1, 2, 3), 1)]
        await network.clock.advance(2 * LAG_MS)
        assert local_state(brokers) == ((1, 2, 3), 2)


async def test_briefly_paused_follower_stays_in_sync(network: Network, fake_controller: IsrController) -> None:
    async with isr_group(network, session_timeout_ms=10 * LAG_MS) as brokers:
        await complete(network)
        for _ in range(4):
            brokers.pause(2)
            await network.clock.advance(LAG_MS * 0.8)
            brokers.resume(2)
            await network.clock.advance(LAG_MS * 0.8)

        assert fake_controller.requests == []


async def test_new_leader_epoch_restarts_the_lag_time(network: Network, fake_controller: IsrController) -> None:
    async with isr_group(network, session_timeout_ms=10 * LAG_MS) as brokers:
        await complete(network)
        brokers.pause(2)
        await network.clock.advance(LAG_MS * 0.9)
        await network.lead_and_follow(1, ROW.but(isr=(1, 2, 3), leader_epoch=1, partition_epoch=3))
        await network.lead_and_follow(3, ROW.but(isr=(1, 2, 3), leader_epoch=1, partition_epoch=3))
        await network.clock.advance(LAG_MS * 0.9)
        assert fake_controller.requests == []

        await network.clock.advance(LAG_MS / 2)
        assert fake_controller.proposed == [((1, 3), 3)]


async def test_follower_out_of_sync_by_the_application_is_removed(
    network: Network, fake_controller: IsrController
) -> None:
    behind: set[int] = set()

    def in_sync(name: TopicPartition, follower: int) -> bool:
        return follower not in behind

    async with isr_group(network, in_sync=in_sync, session_timeout_ms=10 * LAG_MS):
        await complete(network)
        behind.add(3)
        await network.clock.advance(1.5 * LAG_MS)
        assert fake_controller.proposed == [((1, 2), 0)]

        behind.clear()
        await network.clock.advance(RETRY_MS)
        assert fake_controller.proposed == [((1, 2), 0), ((1, 2, 3), 1)]


async def test_application_that_cannot_tell_changes_no_isr_and_no_registration(
    network: Network, fake_controller: IsrController
) -> None:
    broken = False

    def in_sync(name: TopicPartition, follower: int) -> bool:
        if broken:
            raise OSError("the position cannot be read")
        return follower != 3

    async with isr_group(network, in_sync=in_sync, session_timeout_ms=10 * LAG_MS) as brokers:
        await complete(network)
        leader, epoch = brokers[1].leadership(ROW.name), brokers[1].epoch
        broken = True
        await network.clock.advance(1.5 * LAG_MS)

        assert leader is not None
        assert (leader.is_valid, brokers[1].epoch) == (True, epoch)
        assert fake_controller.proposed == []

        broken = False
        await network.clock.advance(1.5 * LAG_MS)
        assert fake_controller.proposed == [((1, 2), 0)]


async def test_one_proposal_removes_and_adds_members(network: Network, fake_controller: IsrController) -> None:
    behind = {3}

    async with isr_group(
        network, in_sync=lambda name, follower: follower not in behind, session_timeout_ms=10 * LAG_MS
    ) as brokers:
        await network.send_to_all(ROW.but(isr=(1, 2)))
        brokers.pause(2)
        await network.clock.advance(LAG_MS * 0.9)
        assert fake_controller.requests == []

        brokers.pause(1)
        await network.clock.advance(LAG_MS / 2)
        behind.clear()
        brokers.resume(1)
        await settle()
        assert fake_controller.proposed == [((1, 3), 0)]


# -- with a real controller --------------------------------------------------------------------------------------------


class RecordingStore(MemoryStore):
    """Records whether a leader has written an ISR itself."""

    wrote = False

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        self.wrote = True
        return await super().write_isr(name, state, expected=expected)


@asynccontextmanager
async def isr_cluster(
    *, lose: Callable[[], bool] = lambda: False, **options: Any
) -> AsyncIterator[tuple[Controller, Participants, RecordingStore, ManualClock]]:
    """A controller and three participants. If `lose` returns true, the response to a proposal is lost."""
    clock, hub = ManualClock(), MemoryHub()
    async with RecordingStore(clock=clock) as store:
        controller = Controller(CONTROLLER, store=store.another(), hub=hub, clock=clock)
        async with controller, Participants(3, store=store, hub=hub, clock=clock, **options) as brokers:
            original = hub.controller(CONTROLLER)
            assert original is not None

            async def ask(request: ControllerRequest, /) -> Any:
                response = await original(request)
                if isinstance(request, AlterPartitionReceived) and lose():
                    raise ControllerUnreachable("the response was lost")
                return response

            hub.attach_controller(CONTROLLER, ask)
            await settle()
            await controller.create_topic("orders", assignment={0: (1, 2, 3), 1: (2, 3, 1)})
            await settle()
            yield controller, brokers, store, clock


def isrs(controller: Controller) -> list[tuple[int, ...]]:
    return [view.isr for view in controller.partitions_of("orders")]


async def test_restarted_follower_rejoins_without_a_write_by_its_leader() -> None:
    async with isr_cluster(session_timeout_ms=SESSION_MS) as (controller, brokers, store, clock):
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


async def test_paused_follower_with_a_session_leaves_and_rejoins() -> None:
    async with isr_cluster(session_timeout_ms=10 * LAG_MS) as (controller, brokers, store, clock):
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)
        assert isrs(controller) == [(1, 2), (2, 1)]
        assert [view.leader_epoch for view in controller.partitions_of("orders")] == [0, 0]

        brokers.resume(3)
        await clock.advance(RETRY_MS)
        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]
        assert not store.wrote


async def test_lost_response_is_followed_by_a_new_proposal() -> None:
    losses = 2

    def lose() -> bool:
        nonlocal losses
        losses -= 1
        return losses >= 0

    async with isr_cluster(session_timeout_ms=10 * LAG_MS, lose=lose) as (controller, brokers, _, clock):
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)  # both leaders remove it, and neither receives the response
        assert losses == 0
        brokers.resume(3)  # the leaders now propose another ISR than the accepted one
        await clock.advance(4 * RETRY_MS)

        assert isrs(controller) == [(1, 2, 3), (2, 3, 1)]
        for view in controller.partitions_of("orders"):
            hosted = brokers[view.leader].hosted(view.name)
            assert hosted is not None
            assert (hosted.isr, hosted.partition_epoch) == (view.isr, view.partition_epoch)


async def test_proposals_reach_the_next_controller() -> None:
    async with (
        isr_cluster(session_timeout_ms=10 * LAG_MS) as (controller, brokers, store, clock),
        Controller(7, store=store.another(), hub=controller.hub, clock=clock) as other,
    ):
        brokers.pause(3)
        await clock.advance(1.5 * LAG_MS)
        await store.contest(7, take_over=True)  # an instance with the id of the other one, which resigns below
        await store.resign(await store.contest(7, take_over=True))
        await settle()
        active = other if other.is_active else controller
        before = [view.partition_epoch for view in active.partitions_of("orders")]

        brokers.resume(3)
        await clock.advance(4 * RETRY_MS)

        assert active is other
        assert isrs(other) == [(1, 2, 3), (2, 3, 1)]
        assert [view.partition_epoch for view in other.partitions_of("orders")] == [epoch + 1 for epoch in before]
        assert not store.wrote
