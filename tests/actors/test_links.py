"""Participants without a link to the controller: they get no new roles, and keep those that they have."""

from functools import partial

import anyio
import pytest

import kactl
from kactl.actors.links import Links, LinkView
from kactl.decide.messages.sessions import ParticipantLink
from kactl.model import NO_LEADER, Broker, PartitionView, TopicPartition
from kactl.model.errors import ActionTimedOut, InvalidReplicationFactor
from kactl.stores.memory import MemoryState, MemoryStore
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

FIRST, NEXT = (bytes([1] * 12 + [0, 0, 0, life]) for life in (1, 2))
T0 = TopicPartition("t", 0)
TIMEOUT_MS = 6_000


class Fixture:
    """A controller and participants that are entries in the store and links on the hub."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = MemoryState()
        self.hub = kactl.MemoryHub()
        self.controller = self.instance(100)

    def instance(self, number: int) -> kactl.Controller:
        store = MemoryStore(self.state, clock=self.clock)
        return kactl.Controller(number, store=store, hub=self.hub, clock=self.clock)

    async def register(self, *brokers: int, incarnation: bytes = FIRST) -> None:
        store, fence = self.controller.store, self.controller.cluster.fence
        for broker in brokers:
            await store.register_remote(Broker(broker, 0), incarnation, TIMEOUT_MS, fence)
        await settle()

    async def link(self, *brokers: int, incarnation: bytes = FIRST) -> None:
        for broker in brokers:
            self.hub.link_opened(ParticipantLink(broker, incarnation))
        await settle()

    async def unlink(self, broker: int) -> None:
        self.hub.link_closed(ParticipantLink(broker, FIRST), "the cable was cut")
        await settle()

    @property
    def view(self) -> PartitionView:
        view = self.controller.partition(T0)
        assert view is not None
        return view


async def test_participant_on_another_network_is_passed_over_by_placement() -> None:
    cluster = Fixture()
    async with cluster.controller:
        await settle()
        await cluster.link(1)
        await cluster.register(1, 2, 3)

        with pytest.raises(
            InvalidReplicationFactor, match=r"3 are registered .* 1 of them can be used; broker 2, 3 is fenced"
        ):
            await cluster.controller.create_topic("t", replication_factor=2)
        await cluster.controller.create_topic("t", replication_factor=1, timeout_ms=0)
        await settle()

        assert cluster.view.replicas == (1,)


async def test_fenced_replica_neither_leads_nor_starts_in_sync() -> None:
    cluster = Fixture()
    async with cluster.controller:
        await settle()
        await cluster.link(2)
        await cluster.register(1, 2, 3)

        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)}, timeout_ms=0)
        await settle()

        assert (cluster.view.leader, cluster.view.isr) == (2, (2,))


async def test_election_with_only_fenced_candidates_waits_for_a_link() -> None:
    cluster = Fixture()
    async with cluster.controller:
        await settle()
        await cluster.register(1, 2)
        await cluster.controller.create_topic("t", assignment={0: (1, 2)}, timeout_ms=0)
        await settle()
        assert cluster.view.leader == NO_LEADER
        assert cluster.controller.explain(T0).remedies == ("let broker 1 and 2 reach this controller over its network",)

        await cluster.link(2)

        assert cluster.view.leader == 2


async def test_fenced_member_of_the_isr_stays_and_is_not_elected_over() -> None:
    """Nothing is elected uncleanly while a member of the ISR is registered."""
    cluster = Fixture()
    async with cluster.controller:
        await settle()
        await cluster.link(1, 2)
        await cluster.register(1, 2)
        await cluster.controller.set_unclean_leader_election(True)
        await cluster.controller.create_topic("t", assignment={0: (1, 2)}, timeout_ms=0)
        await settle()
        await cluster.unlink(2)
        successor = cluster.instance(101)
        async with successor:
            await cluster.controller.resign()
            await settle()
            active = cluster.controller if cluster.controller.is_active else successor
            cluster.controller = active
            await active.store.end_remote(1, cluster.state.brokers[1][0].epoch, active.cluster.fence)
            await settle()
            assert (cluster.view.leader, cluster.view.isr) == (NO_LEADER, (2,))
            assert "has never linked" in active.explain(T0).candidates[1].verdict

            await cluster.link(2)

            assert (cluster.view.leader, cluster.view.isr) == (2, (2,))


async def test_lost_link_does_not_fence() -> None:
    cluster = Fixture()
    async with cluster.controller:
        await settle()
        await cluster.link(1)
        await cluster.register(1)
        await cluster.unlink(1)
        assert cluster.controller.cluster.fenced == frozenset()
        assert cluster.controller.links.view(cluster.state.brokers[1][0]) == LinkView(
            is_linked=False, since_ms=cluster.clock.now_ms(), reason="the cable was cut"
        )

        await cluster.controller.create_topic("t", replication_factor=1, timeout_ms=0)


async def test_new_controller_leaves_leaders_without_a_link_in_place() -> None:
    cluster = Fixture()
    async with cluster.controller, cluster.instance(101) as successor:
        await settle()
        await cluster.link(1, 2)
        await cluster.register(1, 2)
        await cluster.controller.create_topic("t", assignment={0: (1, 2)}, timeout_ms=0)
        await settle()
        before = cluster.view
        await cluster.unlink(1)

        await cluster.controller.resign()
        await settle()
        cluster.controller = cluster.controller if cluster.controller.is_active else successor

        assert cluster.controller.cluster.fenced == {1}
        assert (cluster.view.leader, cluster.view.leader_epoch) == (1, before.leader_epoch)
        assert cluster.view.isr == before.isr


async def test_drain_goes_on_when_another_replica_can_be_reached() -> None:
    cluster = Fixture()
    async with cluster.controller, cluster.instance(101) as successor:
        await settle()
        await cluster.link(1, 2)
        await cluster.register(1, 2)
        await cluster.controller.create_topic("t", assignment={0: (1, 2)}, timeout_ms=0)
        await settle()
        await cluster.unlink(2)
        await cluster.controller.resign()
        await settle()
        cluster.controller = cluster.controller if cluster.controller.is_active else successor
        assert cluster.controller.cluster.fenced == {2}
        assert await cluster.controller.drain(1) == [T0]

        await cluster.link(2)

        assert (cluster.view.leader, cluster.view.isr) == (2, (2,))


async def test_next_registration_needs_a_link_of_its_own() -> None:
    cluster = Fixture()
    async with cluster.controller:
        await settle()
        await cluster.link(1)
        await cluster.register(1)
        epoch = cluster.state.brokers[1][0].epoch
        await cluster.controller.store.end_remote(1, epoch, cluster.controller.cluster.fence)
        await settle()

        await cluster.register(1, incarnation=NEXT)
        assert cluster.controller.cluster.fenced == {1}
        await cluster.link(1, incarnation=NEXT)

        assert cluster.controller.cluster.fenced == frozenset()


async def test_brokers_without_an_incarnation_are_never_fenced() -> None:
    cluster = Fixture()
    async with cluster.controller:
        session = await cluster.controller.store.new_session(60_000)
        await session.register(Broker(1, 0))
        await settle()

        assert cluster.controller.cluster.fenced == frozenset()
        assert cluster.controller.links.view(Broker(1, 0)) is None


def test_network_that_does_not_report_links_fences_nothing() -> None:
    links = Links(ManualClock(), reports=False, awaited=lambda broker: None)

    assert links.fenced([Broker(1, 0, incarnation=FIRST)]) == frozenset()


def test_links_of_earlier_registrations_are_forgotten() -> None:
    links = Links(ManualClock(), reports=True, awaited=lambda broker: None)
    links.opened(ParticipantLink(1, FIRST))
    links.closed(ParticipantLink(1, FIRST), "gone")
    links.opened(ParticipantLink(2, FIRST))

    assert links.fenced([Broker(1, 0, incarnation=NEXT)]) == {1}
    assert links._reached == {(2, FIRST)}  # it has not registered yet


async def test_ensured_topic_waits_for_a_participant_to_link() -> None:
    cluster = Fixture()
    async with cluster.controller, anyio.create_task_group() as tasks:
        await settle()
        await cluster.link(1)
        await cluster.register(1, 2)

        with pytest.raises(
            ActionTimedOut, match=r"2 are registered \(1, 2\), and 1 of them can be used; broker 2 is fenced"
        ):
            await cluster.controller.ensure_topic("t", replication_factor=2, timeout_ms=50)
        # No time passes, and no other event follows the link.
        tasks.start_soon(partial(cluster.controller.ensure_topic, "t", replication_factor=2))
        await settle()
        assert cluster.controller.partition(T0) is None
        await cluster.link(2)

        assert cluster.view.replicas in ((1, 2), (2, 1))
        tasks.cancel_scope.cancel()


async def test_ensured_topic_waits_for_the_named_participants_to_link() -> None:
    """The brokers that an assignment names count as those that placement chooses."""
    cluster = Fixture()
    async with cluster.controller, anyio.create_task_group() as tasks:
        await settle()
        await cluster.link(1)
        await cluster.register(1, 2)
        ensure = partial(cluster.controller.ensure_topic, "t", assignment={0: [2, 1]})

        with pytest.raises(ActionTimedOut, match="broker 2 is fenced"):
            await ensure(timeout_ms=50)
        tasks.start_soon(ensure)
        await settle()
        assert cluster.controller.partition(T0) is None
        await cluster.link(2)

        assert (cluster.view.replicas, cluster.view.leader) == ((2, 1), 2)
        tasks.cancel_scope.cancel()


async def test_ensured_topic_waits_for_the_end_of_a_drain() -> None:
    cluster = Fixture()
    async with cluster.controller, anyio.create_task_group() as tasks:
        await settle()
        await cluster.link(1, 2)
        await cluster.register(1, 2)
        await cluster.controller.drain(2)
        ensure = partial(cluster.controller.ensure_topic, "t", assignment={0: [1, 2], 1: [1, 3]})

        with pytest.raises(ActionTimedOut, match=r"broker 3 is not registered .*; broker 2 is drained or"):
            await ensure(timeout_ms=50)
        assert cluster.controller.partition(T0) is None
        tasks.cancel_scope.cancel()


async def test_ensured_topic_has_as_many_replicas_as_brokers_that_can_be_used() -> None:
    cluster = Fixture()
    async with cluster.controller, anyio.create_task_group() as tasks:
        await settle()
        await cluster.link(1, 2)
        await cluster.register(1, 2, 3)
        tasks.start_soon(cluster.controller.ensure_topic, "t")
        await settle()

        assert set(cluster.view.replicas) == {1, 2}
        tasks.cancel_scope.cancel()
