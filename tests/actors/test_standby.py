"""Standby copy of the cluster: a takeover with it has the same result as one without, only faster."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kactl.actors.handlers.standby import BEGIN_AGAIN_MS, TOPICS_AT_ONCE
from kactl.actors.system import Controller
from kactl.config.protocol_level import ProtocolLevel
from kactl.model import Assignment, Leadership, TopicPartition, TopicRef
from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Changes, Leaderships, Names
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import World, open_standby, resign_for_good, world
from tests.support.marks import fast_and_slow
from tests.support.store_clients import delete_topic

pytestmark = pytest.mark.anyio

INTERVAL_MS = 1000


class Reads:
    """Records the reads of an instance from its store."""

    def __init__(self, controller: Controller) -> None:
        self.topics: list[str] = []
        self.partitions: list[str] = []
        store: Any = controller.store
        store.assignments = self._noting(store.assignments, self.topics)
        store.leaderships = self._noting(store.leaderships, self.partitions)

    def _noting(self, real: Callable[..., Any], noted: list[str]) -> Callable[..., Any]:
        async def call(names: Any) -> Any:
            noted.extend(str(name) for name in names)
            return await real(names)

        return call

    def forget(self) -> None:
        self.topics.clear()
        self.partitions.clear()


async def warm(here: World, other: Controller) -> None:
    """Let a standby read everything."""
    while True:
        before = other.loop.standby.copied
        await here.clock.advance(INTERVAL_MS)
        if before == other.loop.standby.copied == len(here.controller.cluster.table):
            return


async def test_warm_takeover_reads_only_later_changes() -> None:
    async with world(1, 2, 3) as here:
        await here.create("orders", [[1, 2], [2, 3], [3, 1]])
        await here.create("quiet", [[1, 2], [2, 3]])
        other, brokers = open_standby(here, 101)
        async with other:
            await warm(here, other)
            reads = Reads(other)
            await here.write_isr("orders-1", 2)
            await here.create("fresh", [[1]])

            await resign_for_good(here)

            assert other.is_active
            assert reads.topics == ["fresh"]
            assert [name for name in reads.partitions if not name.startswith("fresh")] == ["orders-1"]
            assert sorted(topic.name for topic in other.topics()) == ["fresh", "orders", "quiet"]
            view = other.partition("orders-1")
            assert view is not None
            assert (view.leader, view.isr) == (2, (2,))
            assert set(brokers.told(2)) == {"orders-0", "orders-1", "quiet-0", "quiet-1"}


async def test_changes_during_standby_are_not_read_at_takeover() -> None:
    async with world(1, 2) as here:
        await here.create("orders", [[1, 2], [2, 1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            await here.write_isr("orders-0", 1)
            await here.clock.advance(3 * INTERVAL_MS)
            reads = Reads(other)

            await resign_for_good(here)

            assert other.is_active
            assert reads.topics == reads.partitions == []


async def test_watches_stay_set_without_reads_at_takeover() -> None:
    async with world(1, 2) as here:
        await here.create("orders", [[1, 2]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            await here.store.write_assignment(TopicRef("orders"), {0: Assignment((1, 2)), 1: Assignment((2,))}, None)
            await here.clock.advance(3 * INTERVAL_MS)
            await resign_for_good(here)
            assert other.is_active

            grown = {0: Assignment((1, 2)), 1: Assignment((2,)), 2: Assignment((1,))}
            await here.store.write_assignment(TopicRef("orders"), grown, None)
            await settle()

            view = other.partition("orders-2")
            assert view is not None
            assert view.leader == 1


async def test_missing_topic_ids_are_assigned_at_takeover_only() -> None:
    async with world(1, level=ProtocolLevel(2, 7, 2)) as here:
        await here.create("orders", [[1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            assert not any((await here.store.assignments(["orders"])).topics[0].id)

            await resign_for_good(here)

            (stored,) = (await here.store.assignments(["orders"])).topics
            assert any(stored.id)
            assert other.topics() == [stored]


async def test_session_end_drops_the_copy() -> None:
    async with world(1) as here:
        await here.create("orders", [[1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)

            assert isinstance(other.store, MemoryStore)
            other.store.expire()
            await settle()
            assert other.loop.standby.copied == 0

            await warm(here, other)
            assert other.loop.standby.copied == 1


async def test_everything_is_read_again_without_a_change_log() -> None:
    async with world(1) as here:
        await here.create("orders", [[1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            store: Any = other.store

            async def blind(since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
                return Changes.unknown((0,))

            store.changes = blind
            reads = Reads(other)
            await resign_for_good(here)

            assert other.is_active
            assert (reads.topics, reads.partitions) == (["orders"], ["orders-0"])


async def test_takeover_without_the_copy_if_the_changes_are_unavailable() -> None:
    async with world(1) as here:
        await here.create("orders", [[1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            store: Any = other.store

            async def away(since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
                raise StoreUnavailable("away")

            store.changes = away
            reads = Reads(other)
            await resign_for_good(here)

            assert other.is_active
            assert other.cluster.fence.epoch == 2
            assert (reads.topics, reads.partitions) == (["orders"], ["orders-0"])


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ZeroDivisionError("a bug")], ids=["store", "bug"])
async def test_any_failure_drops_the_copy_which_is_rebuilt_later(error: Exception) -> None:
    async with world(1) as here:
        await here.create("orders", [[1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            store: Any = other.store
            real = store.changes

            async def away(since: tuple[int, ...] | None, *, last: bool = False) -> Changes:
                raise error

            store.changes = away
            await here.clock.advance(INTERVAL_MS)
            assert other.loop.standby.copied == 0

            store.changes = real
            await here.clock.advance(BEGIN_AGAIN_MS - INTERVAL_MS)
            assert other.loop.standby.copied == 0
            await warm(here, other)


async def test_cold_standby_reads_nothing() -> None:
    async with world(1) as here:
        await here.create("orders", [[1]])
        other = Controller(101, store=here.store.another(), clock=here.clock, standby_interval_ms=0)
        async with other:
            await here.clock.advance(10 * INTERVAL_MS)

            assert other.loop.standby.copied == 0


async def test_deposed_instance_builds_its_own_copy() -> None:
    async with world(1) as here:
        await here.create("orders", [[1]])
        other, _ = open_standby(here, 101, take_over=True)
        async with other:
            await settle()
            assert not here.controller.is_active

            await here.clock.advance(5 * INTERVAL_MS)

            assert here.controller.loop.standby.copied == 1
            assert here.controller.snapshot().partitions == 0, "what a standby has read is nobody's business"


async def test_deleted_topic_vanishes_from_the_view() -> None:
    async with world(1) as here:
        for topic in ("orders", "gone", "fresh"):
            await here.create(topic, [[1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            for topic in ("gone", "fresh"):
                await delete_topic(here.store, topic, here.controller.cluster.fence)
            await here.store.create_topic(TopicRef("fresh"), {0: Assignment((1,)), 1: Assignment((1,))}, {})

            await here.clock.advance(4 * INTERVAL_MS)

            view = await other.loop.standby.view()
            assert view is not None
            assert sorted(topic.name for topic in view.cluster.table.topics()) == ["fresh", "orders"]
            assert len(view.cluster.table) == 3


async def test_reading_the_copy_does_not_delay_a_contest() -> None:
    """Queued events run between two parts of the copy."""
    async with world(1) as here:
        for number in range(TOPICS_AT_ONCE + 10):
            await here.store.create_topic(TopicRef(f"t{number}"), {0: Assignment((1,))}, {})
        await settle()
        other, _ = open_standby(here, 101)
        async with other:
            reads = Reads(other)
            store: Any = other.store
            noting = store.assignments

            async def read(names: list[str]) -> Any:
                if not reads.topics:
                    here.controller.loop.controllership.stopping = True
                    await here.controller.resign()
                return await noting(names)

            store.assignments = read
            await here.clock.advance(INTERVAL_MS)

            assert other.is_active
            assert len(reads.topics) == TOPICS_AT_ONCE + 10, "what was read before the takeover was read once"


# -- any interleaving --------------------------------------------------------------------------------------------------


async def _change(store: MemoryStore, dice: random.Random, number: int) -> None:
    """A random write as by a controller, a broker or a tool."""
    state = store.state
    topics = sorted(state.topics)
    what = dice.choice(("create", "grow", "reassign", "delete", "again", "lead", "lead", "isr", "isr", "isr"))
    if what == "create" or not topics:
        held = {at: _replicas(dice) for at in range(dice.randint(1, 4))}
        await store.create_topic(TopicRef(f"t{number}", dice.randbytes(16)), held, {})
        return
    name = dice.choice(topics)
    ref, held = state.topics[name].ref, {each.partition: one for each, one in (await store.assignments([name])).items()}
    fence = await store.contest(900, take_over=True)
    if what == "grow":
        await store.write_assignment(ref, held | {len(held): _replicas(dice)}, None)
    elif what == "reassign":
        at = dice.choice(sorted(held))
        moved = Assignment((1, 2, 3), adding=(3,), removing=(1,)) if dice.random() < 0.5 else _replicas(dice)
        await store.write_assignment(ref, held | {at: moved}, None)
    elif what in ("delete", "again"):
        await delete_topic(store, name, fence)
        if what == "again":
            fewer = {at: _replicas(dice) for at in range(dice.randint(1, len(held)))}
            await store.create_topic(TopicRef(name, dice.randbytes(16)), fewer, {})
    else:
        await _lead(store, TopicPartition(name, dice.choice(sorted(held))), dice, fence.epoch)


def _replicas(dice: random.Random) -> Assignment:
    return Assignment(tuple(dice.sample((1, 2, 3), dice.randint(1, 3))))


async def _lead(store: MemoryStore, name: TopicPartition, dice: random.Random, epoch: int) -> None:
    held = (await store.leaderships(Names.of([name]))).one(0)
    isr = tuple(dice.sample((1, 2, 3), dice.randint(1, 3)))
    state = Leadership(isr[0], dice.randrange(100), isr, 0, epoch, dice.random() < 0.1)
    expected = -1 if held is None else held.partition_epoch
    await store.write_isr(name, state, expected=expected)


def knowledge(controller: Controller) -> dict[str, object]:
    """Returns everything that an instance has loaded, without row and topic numbers."""
    cluster = controller.cluster
    views = [cluster.table.view(row) for row in cluster.table.all().tolist()]
    return {
        "topics": controller.topics(),
        "partitions": {str(view.name): msgspec.structs.replace(view, isr=tuple(sorted(view.isr))) for view in views},
        "reassigning": cluster.reassigning,
        "imbalance": (cluster.imbalance_count, cluster.count_again()[1]),
        "found again": all(cluster.table.row(view.name) >= 0 for view in views),
    }


@pytest.mark.parametrize("seed", fast_and_slow(range(60), 20))
async def test_warm_load_equals_cold_load_after_any_interleaving(seed: int) -> None:
    dice = random.Random(seed)
    clock = ManualClock()
    async with MemoryStore(clock=clock) as admin:
        await admin.contest(900)
        instances = [
            Controller(
                node_id,
                store=admin.another(),
                clock=clock,
                level=ProtocolLevel(2, 7, 2),
                standby_interval_ms=interval_ms,
            )
            for node_id, interval_ms in ((1, INTERVAL_MS), (2, 0))
        ]
        async with instances[0], instances[1]:
            for number in range(dice.randint(5, 60)):
                await _change(admin, dice, number)
                if dice.random() < 0.4:
                    await clock.advance(dice.choice((1, INTERVAL_MS, 3 * INTERVAL_MS)))

            for instance in instances:
                # As for a newly elected instance, which gets all of them.
                await instance.loop.failover.load(await admin.topics())

            assert knowledge(instances[0]) == knowledge(instances[1])
            assert set(knowledge(instances[0])["topics"]) == {topic.ref for topic in admin.state.topics.values()}  # type: ignore[call-overload]


async def test_leadership_removed_by_hand_is_not_kept() -> None:
    async with world(1) as here:
        await here.create("orders", [[1], [1]])
        other, _ = open_standby(here, 101)
        async with other:
            await warm(here, other)
            await here.write_isr("orders-0", 1)
            store: Any = other.store
            real = store.leaderships

            async def gone(names: Names) -> Leaderships:
                found: Leaderships = await real(names)
                kept = [None if str(name) == "orders-0" else found.one(at) for at, name in enumerate(names)]
                return Leaderships.of(kept)

            store.leaderships = gone
            await other.loop.failover.load(await store.topics())

            view, untouched = other.partition("orders-0"), other.partition("orders-1")
            assert view is not None
            assert untouched is not None
            assert view.leadership is None
            assert untouched.leadership is not None
