"""Spectators of real controllers in this process, of a store, and of controllers that fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import kactl
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.model import TopicPartition
from kactl.model.errors import ActionTimedOut, BadRequest, IllegalState, RoutesStale, StoreDamaged, StoreUnavailable
from kactl.participant.spectator.spectator import POLL_MS
from kactl.transports.base import SpectatorLink
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import world

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def cluster(clock: ManualClock) -> AsyncIterator[tuple[kactl.Controller, kactl.Participants]]:
    async with (
        kactl.Controller(100, clock=clock) as controller,
        kactl.Participants(3, store=controller.store, hub=controller.hub, clock=clock) as participants,
    ):
        await settle()
        await controller.create_topic("orders", partitions=3, replication_factor=3)
        await settle()
        yield controller, participants


async def test_table_follows_the_controller(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, participants), kactl.Spectator(hub=controller.hub, clock=clock) as routes:
        await routes.wait_ready()
        for number in range(3):
            view, route = controller.partition(f"orders-{number}"), routes.leader("orders", number)
            assert view is not None
            assert route is not None
            assert (route.leader, route.leader_epoch, route.in_sync) == (view.leader, view.leader_epoch, view.isr)
        assert routes.leader("orders", 3) is None
        assert [route.partition.partition for route in routes.routes("orders")] == [0, 1, 2]
        before = routes.version

        await participants.kill(1)
        await clock.advance(20_000)

        leaders = {route.leader for route in routes.routes("orders")}
        assert 1 not in leaders
        assert leaders <= {2, 3}
        assert routes.version > before
        await controller.delete_topic("orders", timeout_ms=0)
        await settle()
        await clock.advance(100)
        assert routes.routes("orders") == []


async def test_spectator_is_entered_once_as_a_controller_is() -> None:
    async with kactl.Controller(100) as controller:
        spectator = kactl.Spectator(hub=controller.hub)
        refused = []
        for entered in (controller, spectator):
            with pytest.raises(IllegalState) as caught:
                async with spectator if entered is spectator else contextlib.nullcontext():
                    await entered.__aenter__()
            refused.append(str(caught.value))
        await controller.wait_active()  # the program goes on

    assert refused == [
        "controller 100 has been entered before: make a new Controller for each block",
        "the spectator has been entered before: make a new Spectator for each block",
    ]


@pytest.mark.parametrize("name", ["file/kactl.db", "n" * 300, "loop.db", "."])
async def test_store_that_cannot_be_opened_is_one_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop.db").symlink_to("loop.db")
    errors = []

    for make in (lambda store: kactl.Controller(100, store=store), lambda store: kactl.Spectator(store=store)):
        with pytest.raises(StoreDamaged) as caught:
            async with make(kactl.SqliteStore(tmp_path / name)):
                pytest.fail("entered")
        errors.append(str(caught.value))

    assert errors[0] == errors[1]
    assert str(tmp_path / name) in errors[0]


async def test_changes_arrive_without_waiting_for_a_poll(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, _), kactl.Spectator(hub=controller.hub, clock=clock) as routes:
        await routes.wait_ready()
        await settle()
        began_ms = clock.monotonic_ms()

        await controller.create_topic("jobs", partitions=1, replication_factor=1)
        await settle()
        await clock.advance(50)

        assert routes.leader("jobs", 0) is not None
        assert clock.monotonic_ms() - began_ms < POLL_MS


async def test_watch_yields_each_change_and_resumes(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, _), kactl.Spectator(hub=controller.hub, clock=clock) as routes:
        await routes.wait_ready()
        changes = routes.watch()
        first = asyncio.ensure_future(anext(changes))
        await settle()
        assert not first.done()

        await controller.create_topic("jobs", partitions=2, replication_factor=1)
        await clock.advance(100)

        seen = [await first, await asyncio.wait_for(anext(changes), 60)]
        assert all(isinstance(change, kactl.RouteChange) for change in seen)
        names = {change.partition for change in seen if isinstance(change, kactl.RouteChange)}
        assert names == {TopicPartition("jobs", 0), TopicPartition("jobs", 1)}
        again = await asyncio.wait_for(anext(routes.watch(seen[0].version)), 60)
        assert again == seen[1]
        reset = routes.watch(kactl.Version(0, 5))
        assert isinstance(await asyncio.wait_for(anext(reset), 60), kactl.RoutesReset)
        whole = [await asyncio.wait_for(anext(reset), 60) for _ in range(5)]
        assert all(isinstance(change, kactl.RouteChange) and change.route for change in whole)


async def test_resuming_in_a_new_spectator_needs_no_reset(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, _):
        async with kactl.Spectator(hub=controller.hub, clock=clock) as routes:
            last = await routes.wait_ready()
        await controller.create_topic("jobs", partitions=1, replication_factor=1)
        await controller.delete_topic("orders", timeout_ms=0)
        await settle()
        async with kactl.Spectator(hub=controller.hub, clock=clock) as routes:
            resumed = routes.watch(last)
            changes = [await asyncio.wait_for(anext(resumed), 60) for _ in range(4)]

        assert all(isinstance(change, kactl.RouteChange) for change in changes)
        removed = {c.partition.topic for c in changes if isinstance(c, kactl.RouteChange) and c.route is None}
        added = {c.partition.topic for c in changes if isinstance(c, kactl.RouteChange) and c.route is not None}
        assert (removed, added) == ({"orders"}, {"jobs"})


async def test_age_counts_from_the_poll_and_a_limit_is_kept(clock: ManualClock) -> None:
    hub = kactl.MemoryHub()
    async with kactl.Spectator(hub=hub, clock=clock) as routes:
        await clock.advance(1_000)
        assert routes.age_ms == float("inf")
        with pytest.raises(RoutesStale):
            routes.leader("orders", 0, max_age_ms=10**9)
        waiting = asyncio.ensure_future(routes.wait_ready(timeout_ms=500))
        await settle()
        await clock.advance(501)
        with pytest.raises(ActionTimedOut):
            await waiting
        async with kactl.Controller(100, hub=hub, clock=clock) as controller:
            await controller.wait_active()
            await clock.advance(300)  # the next attempt
            assert routes.age_ms < POLL_MS
            await clock.advance(10 * POLL_MS)
            assert routes.age_ms <= POLL_MS
        await clock.advance(60_000)

        assert routes.age_ms >= 60_000
        with pytest.raises(RoutesStale, match="60"):
            routes.leader("orders", 0, max_age_ms=5_000)
        assert routes.leader("orders", 0) is None


class Slow:
    """A network whose responses need a while. It is the one of this process otherwise."""

    def __init__(self, hub: kactl.MemoryHub, clock: ManualClock, delay_ms: float) -> None:
        self.hub = hub
        self.clock = clock
        self.delay_ms = delay_ms

    @asynccontextmanager
    async def spectator_side(self, *, controllers: Sequence[str] = ()) -> AsyncIterator[SpectatorLink]:
        async with self.hub.spectator_side() as link:
            self.inner = link
            yield self

    async def watch(self, asked: Watch) -> RouteMessage:
        message = await self.inner.watch(asked)
        await self.clock.sleep_ms(self.delay_ms)
        return message


async def test_age_includes_the_time_that_a_response_needs(clock: ManualClock) -> None:
    hub = kactl.MemoryHub()
    async with kactl.Controller(100, hub=hub, clock=clock) as controller:
        await controller.wait_active()
        async with kactl.Spectator(network=Slow(hub, clock, 400), clock=clock) as routes:
            await settle()
            await clock.advance(400)
            assert routes.version.controller_epoch == controller.cluster.fence.epoch
            assert routes.age_ms == 400
            await clock.advance(100)
            assert routes.age_ms == 500


class Unsure(kactl.MemoryStore):
    """A store that cannot confirm the controllership while `silent` is set."""

    silent = False

    async def check(self, fence: object) -> None:
        if self.silent:
            raise StoreUnavailable("it does not respond")
        await super().check(fence)  # type: ignore[arg-type]


async def test_age_grows_while_the_controller_cannot_confirm_its_office(clock: ManualClock) -> None:
    store = Unsure(clock=clock)
    async with (
        kactl.Controller(100, store=store, clock=clock) as controller,
        kactl.Spectator(hub=controller.hub, clock=clock) as routes,
    ):
        await controller.wait_active()
        await clock.advance(2_000)
        assert routes.age_ms <= POLL_MS
        store.silent = True
        await clock.advance(30_000)

        assert routes.age_ms >= 30_000 - POLL_MS
        store.silent = False
        await clock.advance(2 * POLL_MS)
        assert routes.age_ms <= POLL_MS


class Slowly(kactl.PartitionHandler):
    """A handler that prepares as long as `gate` is shut, and ends its leadership as an application may."""

    gate = asyncio.Event()

    async def prepare(self, leader: kactl.Leader) -> None:
        await self.gate.wait()


async def test_route_is_ready_while_the_leader_acts(clock: ManualClock) -> None:
    Slowly.gate = asyncio.Event()
    hub, store = kactl.MemoryHub(), kactl.MemoryStore(clock=clock)
    async with (
        kactl.Controller(100, store=store, hub=hub, clock=clock) as controller,
        kactl.Controller(101, store=store.another(), hub=hub, clock=clock) as standby,
        kactl.Participant(1, store=store, hub=hub, clock=clock, handler=Slowly) as participant,
        kactl.Spectator(hub=hub, clock=clock) as routes,
    ):
        await controller.wait_active()
        await clock.advance(1_000)
        await controller.create_topic("orders", partitions=1, replication_factor=1, timeout_ms=0)
        await clock.advance(1_000)

        def is_ready() -> bool:
            route = routes.leader("orders", 0)
            assert route is not None
            assert route.leader == 1
            return route.ready

        assert not is_ready()
        Slowly.gate.set()
        await clock.advance(100)
        assert is_ready()

        await controller.resign()
        await clock.advance(2_000)
        assert standby.is_active
        assert routes.version.controller_epoch == standby.cluster.fence.epoch
        assert is_ready()  # the next controller was notified as well

        leader = participant.leadership("orders-0")
        assert leader is not None
        Slowly.gate.clear()
        await leader.resign("enough")
        await clock.advance(100)
        route = routes.leader("orders", 0)
        assert route is not None
        assert not route.ready


async def test_route_is_not_ready_while_the_lease_has_lapsed(clock: ManualClock) -> None:
    Slowly.gate = asyncio.Event()
    Slowly.gate.set()
    async with (
        kactl.Controller(100, clock=clock) as controller,
        kactl.Participant(
            1, store=controller.store, hub=controller.hub, clock=clock, handler=Slowly, session_timeout_ms=6_000
        ) as participant,
        kactl.Spectator(hub=controller.hub, clock=clock) as routes,
    ):
        await settle()
        await controller.create_topic("orders", partitions=1, replication_factor=1)
        await clock.advance(1_000)
        session = participant._session
        assert session is not None
        renew, answers = session.renew, False

        async def silent(sent_ns: int) -> None:
            if not answers:
                await renew(sent_ns)  # the session lives on
                raise StoreUnavailable("the answer was lost")
            await renew(sent_ns)

        session.renew = silent  # type: ignore[method-assign]
        before = routes.leader("orders", 0)
        await clock.advance(8_000)
        lapsed = routes.leader("orders", 0)
        answers = True
        await clock.advance(3_000)
        after = routes.leader("orders", 0)

        assert before is not None
        assert lapsed is not None
        assert (before.ready, lapsed.ready) == (True, False)
        assert lapsed.leader_epoch == before.leader_epoch
        assert after == before


async def test_routes_of_a_store_are_never_ready(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, participants):
        assert isinstance(controller.store, kactl.MemoryStore)
        async with kactl.Spectator(store=controller.store.another(), clock=clock) as routes:
            await routes.wait_ready()
            route = routes.leader("orders", 1)
            view = controller.partition("orders-1")
            assert route is not None
            assert view is not None
            assert (route.leader, route.ready, route.in_sync) == (view.leader, False, view.isr)
            before = routes.version
            await participants.kill(1)
            await clock.advance(20_000)
            assert 1 not in {route.leader for route in routes.routes("orders")}
            await controller.create_topic("jobs", partitions=1, replication_factor=1)
            await clock.advance(1_000)
            assert routes.leader("jobs", 0) is not None
            assert routes.version > before
            assert routes.age_ms <= POLL_MS


async def test_topic_that_was_created_again_without_an_id_has_its_partitions_only() -> None:
    async with world(1, 2, level=ProtocolLevel.parse("2.7")) as w:
        await w.create("t", [[1, 2], [1, 2], [1, 2]])
        async with kactl.Spectator(store=w.store.another(), clock=w.clock) as routes:
            await routes.wait_ready()
            await w.controller.delete_topic("t")
            await w.create("t", [[2, 1]])
            await w.wait(1_000)

            assert [(route.partition.partition, route.leader) for route in routes.routes("t")] == [(0, 2)]


async def test_deleted_topic_vanishes_from_the_routes_of_a_store(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, _):
        assert isinstance(controller.store, kactl.MemoryStore)
        store = controller.store.another()
        async with kactl.Spectator(store=store, clock=clock) as routes:
            await routes.wait_ready()
            for topic in ("jobs", "more"):
                await controller.create_topic(topic, partitions=1, replication_factor=1)
            await clock.advance(1_000)
            assert len(routes.routes("jobs")) == 1

            await controller.delete_topic("orders", timeout_ms=0)
            await clock.advance(1_000)
            assert routes.routes("orders") == []
            store.expire()  # and with it the watch of the topics
            await controller.delete_topic("jobs", timeout_ms=0)
            await clock.advance(1_000)
            assert routes.routes("jobs") == []
            assert len(routes.routes("more")) == 1


def test_a_spectator_needs_one_source() -> None:
    with pytest.raises(BadRequest, match="one of"):
        kactl.Spectator()
    with pytest.raises(BadRequest, match="one of"):
        kactl.Spectator(hub=kactl.MemoryHub(), store=kactl.MemoryStore())


def test_addresses_of_controllers_need_a_network() -> None:
    with pytest.raises(BadRequest, match="give network="):
        kactl.Spectator(["127.0.0.1:7373"], hub=kactl.MemoryHub())
    with pytest.raises(BadRequest, match="list of addresses"):
        kactl.Spectator("127.0.0.1:7373", network=kactl.TcpNetwork())


async def test_spectator_finds_controllers_at_the_addresses_that_it_is_given() -> None:
    async with kactl.Controller(100, network=kactl.TcpNetwork(listen="127.0.0.1:0")) as controller:
        address = controller.network.address  # type: ignore[attr-defined]
        await controller.wait_active()

        async with kactl.Spectator([address], network=kactl.TcpNetwork()) as routes:
            assert (await routes.wait_ready()).controller_epoch == 1
