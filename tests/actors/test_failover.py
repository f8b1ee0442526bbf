"""Controllership: contest, election, first steps of a new controller, and resignation."""

import asyncio
from typing import Any

import pytest

from kactl.actors.handlers.controllership import CONTEST_BACKOFF_MS
from kactl.actors.system import Controller
from kactl.decide.messages.admin import ElectionKind
from kactl.decide.messages.control import LeaderAndIsr, UpdateMetadata
from kactl.decide.messages.events import BrokerChange, Expire
from kactl.model import NO_LEADER, Assignment
from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.memory import MemoryStore
from kactl.telemetry.terms import Term
from tests.actors.metadata import MetadataView, alive, block_loop, metadata_at
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import CONTROLLER, RecordingBrokers, open_standby, resign_for_good, world
from tests.support.store_clients import watches_of

pytestmark = pytest.mark.anyio


def calls(controller: Controller, *methods: str) -> list[str]:
    """Record which methods of an instance's store are called, and the requests given to its channels."""
    noted: list[str] = []

    def noting(name: str, real: Any) -> Any:
        async def call(*args: Any, **named: Any) -> Any:
            noted.append(name)
            return await real(*args, **named)

        return call

    for name in methods:
        setattr(controller.store, name, noting(name, getattr(controller.store, name)))
    send = controller.channels.send

    def sending(requests: Any) -> None:
        kept = list(requests)
        for _, request in kept:
            label = type(request).__name__
            if isinstance(request, UpdateMetadata):
                label += " of partitions" if len(request.states) else " of brokers"
            noted.append(label)
        send(kept)

    controller.channels.send = sending  # type: ignore[method-assign]
    return noted


# -- elections of a controller -----------------------------------------------------------------------------------------


@pytest.mark.scenario(336, 337, 338)
async def test_each_election_increments_the_epoch_durably() -> None:
    clock = ManualClock()
    async with MemoryStore(clock=clock) as admin:
        for epoch in (1, 2):
            async with Controller(
                CONTROLLER, store=admin.another(), transport=RecordingBrokers(), clock=clock
            ) as controller:
                await settle()
                assert controller.is_active
                assert controller.cluster.fence.epoch == epoch
            assert await admin.controller() is None
            assert admin.state.epoch == epoch


@pytest.mark.scenario(365)
async def test_held_controllership_is_not_contested() -> None:
    async with world(1) as w:
        other, _ = open_standby(w, 200)
        noted = calls(other, "contest")
        async with other:
            await settle()

            assert noted == []
            assert other.loop.active_id == CONTROLLER
            assert (await w.store.controller()).epoch == 1  # type: ignore[union-attr]


@pytest.mark.scenario(366)
async def test_election_with_a_lost_response_leaves_an_active_controller() -> None:
    """The ZooKeeper store resolves the outcome by itself. This store does not, and the election is repeated."""
    async with world(1) as w:
        other, _ = open_standby(w, 200)
        real: Any = other.store.contest

        async def unanswered(*args: Any, **named: Any) -> Any:
            other.store.contest = real  # type: ignore[method-assign]
            await real(*args, **named)
            raise StoreUnavailable("the answer was lost")

        async with other:
            await settle()
            other.store.contest = unanswered  # type: ignore[method-assign]
            await resign_for_good(w)
            await w.clock.advance(CONTEST_BACKOFF_MS)

            assert other.is_active
            assert other.cluster.fence.epoch == 3


async def test_resignation_that_the_store_did_not_receive_does_not_leave_the_cluster_without_controller() -> None:
    async with world(1) as w:
        real: Any = w.controller.store.resign
        refused = StoreUnavailable("the store cannot be reached")

        async def unreachable(*args: Any, **named: Any) -> Any:
            raise refused

        w.controller.store.resign = unreachable  # type: ignore[method-assign]
        await w.controller.loop.controllership.give_up("a test")
        w.controller.store.resign = real  # type: ignore[method-assign]
        look: Any = w.controller.store.controller
        w.controller.store.controller = unreachable  # type: ignore[method-assign]
        # The event is tried four times, and then abandoned.
        for _ in range(3):
            await w.clock.advance(CONTEST_BACKOFF_MS)
        w.controller.store.controller = look  # type: ignore[method-assign]
        assert not w.controller.is_active

        await w.clock.advance(CONTEST_BACKOFF_MS)
        await w.clock.advance(CONTEST_BACKOFF_MS)

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2


async def test_failed_takeover_is_given_up_also_if_the_first_resignation_fails() -> None:
    """It would be the active controller, and handle no event."""
    async with world(1) as w:
        other, _ = open_standby(w, 200)
        async with other:
            await settle()
            controllership: Any = other.loop.controllership
            take_over, give_up = controllership._failover.take_over, controllership.give_up

            async def failing_takeover(*, yields: bool) -> None:
                controllership._failover.take_over = take_over
                raise StoreUnavailable("the store cannot be reached")

            async def failing_end(cause: str) -> None:
                controllership.give_up = give_up
                raise RuntimeError("a bug")

            controllership._failover.take_over, controllership.give_up = failing_takeover, failing_end
            await resign_for_good(w)
            for _ in range(3):
                await w.clock.advance(CONTEST_BACKOFF_MS)

            assert other.is_active
            assert controllership.ready
            assert other.cluster.fence.epoch == 3


@pytest.mark.scenario(367)
async def test_loser_of_an_election_stands_by_and_knows_the_controller() -> None:
    async with world(1) as w:
        other, told = open_standby(w, 200)
        real: Any = other.store.contest

        async def outrun(*args: Any, **named: Any) -> Any:
            await w.store.contest(300)
            return await real(*args, **named)

        async with other:
            await settle()
            other.store.contest = outrun  # type: ignore[method-assign]
            await resign_for_good(w)

            assert not other.is_active
            assert other.loop.active_id == 300
            assert told.sent == []


@pytest.mark.scenario(368)
async def test_failed_takeover_leads_to_another_election() -> None:
    async with world(1) as w:
        other, _ = open_standby(w, 200)
        real = other.store.topics

        async def broken() -> list[str]:
            other.store.topics = real  # type: ignore[method-assign]
            raise ZeroDivisionError("a bug")

        async with other:
            await settle()
            other.store.topics = broken  # type: ignore[method-assign]
            await resign_for_good(w)
            assert await w.store.controller() is None
            assert [event.what for event in other.history.read(0, kinds=("controller",))[0]] == ["resigned"]  # type: ignore[union-attr]

            await w.clock.advance(CONTEST_BACKOFF_MS)

            assert other.is_active
            assert other.cluster.fence.epoch == 3


# -- takeover ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(369)
async def test_takeover_follows_kafkas_order() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2], [2, 1]])
        await w.create("moving", [[1]])
        await w.store.write_assignment(
            (await w.store.assignments(["moving"])).topics[0], {0: Assignment((2, 1), adding=(2,), removing=(1,))}, None
        )
        other, _ = open_standby(w, 200)
        noted = calls(
            other, "delete_notifications", "membership", "topics", "assignments", "leaderships", "deletions",
            "reassignment_request", "preferred_election_request", "write_assignment",
        )  # fmt: skip
        async with other:
            await settle()
            await resign_for_good(w)
            assert other.is_active

        expected = [
            "delete_notifications",
            "delete_notifications",
            "membership",
            "topics",
            "assignments",
            "leaderships",
            "deletions",
            "UpdateMetadata of brokers",
            "LeaderAndIsr",
            "reassignment_request",
            "preferred_election_request",
        ]
        firsts = [each for at, each in enumerate(noted) if each not in noted[:at] or each == "delete_notifications"]
        assert [each for each in firsts if each in expected] == expected
        assert noted.index("UpdateMetadata of brokers") < noted.index("UpdateMetadata of partitions")


@pytest.mark.scenario(349)
async def test_leader_that_fails_with_the_controller_costs_two_epochs() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        other, _ = open_standby(w, 200)
        await resign_for_good(w)
        await w.stop(1)
        async with other:
            await settle()

            assert await w.stored("t-0") == (2, 2, (2,))


@pytest.mark.scenario(341)
async def test_partition_without_live_replicas_keeps_its_isr_at_takeover() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await w.stop(1)
        await w.stop(2)
        await resign_for_good(w)

        other, told = open_standby(w, 200)
        async with other:
            await settle()
            await w.start(2)

            assert metadata_at(told, 2)["t-0"] == MetadataView(NO_LEADER, isr=(1,), replicas=(1,), offline=(1,))


@pytest.mark.scenario(342)
async def test_last_broker_receives_live_brokers_without_partition_changes() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1]])
        await w.stop(1)
        w.brokers.forget()

        await w.stop(2)

        assert alive(w.brokers, 3) == [3]
        assert metadata_at(w.brokers, 3) == {}
        assert w.brokers.of(3, LeaderAndIsr) == []


# -- the end of a session ----------------------------------------------------------------------------------------------


@pytest.mark.scenario(370)
async def test_session_end_drops_queued_events_before_new_ones() -> None:
    async with world(1) as w:
        gate = await block_loop(w)
        await w.create("t", [[1]])
        w.controller.loop.inbox.put_once(BrokerChange())
        waiting = asyncio.ensure_future(w.controller.elect(ElectionKind.PREFERRED))
        await settle()
        noted = calls(w.controller, "contest")

        w.controller.store.expire()  # type: ignore[attr-defined]
        await settle()

        assert waiting.exception() is not None
        preempted = {kind.label: kind.preempted for kind in w.controller.queue().kinds if kind.preempted}
        assert preempted == {"TopicChange": 1, "BrokerChange": 1, "ReplicaLeaderElection": 1, "Reelect": 1}
        assert [each.label for each in w.controller.queue().next] == ["Expire", "RegisterBrokerAndReelect"]
        assert noted == [], "nobody contests in the new session before the end of the old one was handled"

        gate.set()
        await settle()

        assert noted[:1] == ["contest"]
        assert w.controller.is_active
        assert w.known("t-0").leader == 1


@pytest.mark.scenario(371)
async def test_session_end_of_a_standby_has_no_effect_on_others() -> None:
    async with world(1) as w:
        other, _ = open_standby(w, 200)
        async with other:
            await settle()

            await other.loop.receive(Expire())

            assert other.loop.active_id is None
            assert not other.is_active
            assert w.controller.is_active


@pytest.mark.scenario(372)
async def test_new_session_contests_with_a_new_epoch() -> None:
    """A controller that is a broker would register again. kactl's controller is not a broker, and its participants
    register themselves."""
    async with world(1) as w:
        await w.create("t", [[1]])
        w.brokers.forget()

        w.controller.store.expire()  # type: ignore[attr-defined]
        await settle()

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2
        assert {request.controller_epoch for request in w.brokers.of(1)} == {2}
        assert sorted(await w.store.brokers()) == [1]


# -- history of controllers --------------------------------------------------------------------------------------------


async def test_every_instance_records_past_controllers_and_reasons() -> None:
    async with world(1) as w:
        began_ms = w.clock.now_ms()
        other, _ = open_standby(w, 200)
        async with other:
            await w.clock.advance(1000)
            await resign_for_good(w)
            at_ms = w.clock.now_ms()

            assert w.controller.controllerships()[0] == Term(
                1, CONTROLLER, began_ms, at_ms, "asked to resign", ours=True
            )
            assert other.controllerships() == [
                Term(1, CONTROLLER, began_ms, at_ms, "nobody holds it any more"),
                Term(2, 200, at_ms, ours=True),
            ]


async def test_queued_requests_are_dropped_before_the_controller_is_read() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.create("u", [[2, 1]])
        assert len(w.controller.channels[2]) > 0
        await w.store.contest(6, take_over=True)
        w.controller.loop.inbox.drain()
        left: list[int] = []
        real = w.controller.store.controller

        async def asked() -> Any:
            left.append(len(w.controller.channels.all()))
            return await real()

        w.controller.store.controller = asked  # type: ignore[method-assign]
        await w.stop(1)

        assert left[0] == 0
        assert not w.controller.is_active
        assert w.controller.loop.active_id == 6


async def test_nothing_is_sent_while_the_session_is_suspended() -> None:
    """Another instance may be the controller, and brokers would receive requests of both."""
    async with world(1) as w:
        tell = watches_of(w.controller.store).fire
        w.brokers.forget()

        tell(StoreEvent(Changed.SUSPENDED))
        await w.create("t", [[1]])
        assert w.known("t-0").leader == 1
        assert w.brokers.sent == []

        tell(StoreEvent(Changed.CONNECTED))
        await settle()
        assert "t-0" in w.brokers.told(1)


async def test_busy_controller_sends_nothing_after_its_session_end() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.brokers.silent.add(2)
        await w.create("u", [[2, 1]])
        gate = await block_loop(w)
        w.brokers.forget()

        w.controller.store.expire()  # type: ignore[attr-defined]
        w.brokers.silent.clear()
        await w.clock.advance(1000)
        assert w.brokers.sent == [], "what waited for the silent one waits no longer for it alone"

        gate.set()
        await settle()
        assert w.controller.is_active
        assert {request.controller_epoch for _, request in w.brokers.sent} == {2}
