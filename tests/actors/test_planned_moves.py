"""Planned moves of leaderships between participants: the next leader begins after the last one has ended."""

import contextlib
import random
from typing import Final

import anyio
import pytest
from anyio.abc import TaskGroup

from kactl.decide.messages.admin import (
    ControllerRequest,
    ElectionKind,
    ReplicaLeaderElection,
    ResignController,
    UndrainBroker,
)
from kactl.decide.messages.broker import ControlledShutdown
from kactl.model import TopicPartition
from kactl.model.errors import KactlError, TopicExists
from tests.support.clocks import settle
from tests.support.leaders import T0, TIMEOUT_MS, Leaders, WitnessingStore, open_leaders
from tests.support.marks import fast_and_slow

pytestmark = pytest.mark.anyio

STEP_MS: Final = 150
STEPS: Final = 250


async def test_next_leader_begins_after_a_round_trip_to_each() -> None:
    async with open_leaders() as leaders:
        await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await leaders.clock.advance(1_000)
        assert leaders.valid() == [1]
        before = leaders.leaders[T0][0][1]
        await leaders.controller.drain(1)
        await settle()

        assert not before.is_valid
        assert leaders.valid() == [2]
        assert leaders.overlaps == []


async def test_next_leader_waits_while_the_last_one_is_cut_off_and_begins_after_its_eviction() -> None:
    async with open_leaders() as leaders:
        await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await leaders.clock.advance(1_000)
        leaders.hub.cut.add(1)
        await leaders.controller.drain(1)
        moved_ms = leaders.clock.monotonic_ms()
        await leaders.clock.advance(TIMEOUT_MS - 1)

        assert leaders.leader() == 2
        assert leaders.valid() == [1]  # its session lives, and it cannot know of the move

        await leaders.clock.advance(TIMEOUT_MS + 1_000)
        assert leaders.valid() == [2]
        assert leaders.overlaps == []
        assert leaders.began[-1][0] - moved_ms <= 2 * TIMEOUT_MS + 500
        evicted = [event for event in leaders.controller.history.read(0)[0] if getattr(event, "what", "") == "evicted"]
        assert [event.broker for event in evicted] == [1]  # type: ignore[union-attr]


async def test_deletion_waits_for_a_leader_that_is_no_replica_any_more() -> None:
    """A leader of the next topic of the name would not know of it."""
    async with open_leaders() as leaders:
        await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await leaders.clock.advance(1_000)
        leaders.hub.cut.add(1)
        await leaders.controller.reassign({T0: (2, 3)})
        await leaders.controller.delete_topic("t", timeout_ms=0)
        await leaders.clock.advance(TIMEOUT_MS / 2)
        assert leaders.valid() == [1]
        assert [waiting.replicas_left for waiting in leaders.controller.deletions()] == [0]
        assert "broker 1" in leaders.controller.explain_deletion("t").waits_for[0]
        with pytest.raises(TopicExists):
            await leaders.controller.create_topic("t", assignment={0: (2, 3)})

        leaders.hub.cut.clear()
        await leaders.clock.advance(1_000)
        assert leaders.controller.topics() == []
        assert leaders.valid() == []
        await leaders.controller.create_topic("t", assignment={0: (2, 3)})
        await settle()
        assert leaders.valid() == [2]
        assert leaders.overlaps == []


async def test_deletion_goes_on_after_the_eviction_of_a_leader_that_is_no_replica_any_more() -> None:
    async with open_leaders() as leaders:
        await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await leaders.clock.advance(1_000)
        leaders.hub.cut.add(1)
        await leaders.controller.reassign({T0: (2, 3)})
        await settle()
        await leaders.controller.delete_topic("t", timeout_ms=0)
        await leaders.clock.advance(2 * TIMEOUT_MS + 1_000)
        assert leaders.controller.topics() == []
        assert leaders.valid() == []


async def test_deletion_stops_the_leader_that_a_reassignment_removes() -> None:
    """The request to stop it carries no leader epoch, so that only the response shows that it leads no more."""
    async with open_leaders() as leaders:
        await leaders.controller.create_topic("t", assignment={0: (1, 2)})
        await leaders.clock.advance(1_000)
        leaders.brokers[3].pause()
        await leaders.controller.reassign({T0: (2, 3)})
        await leaders.controller.delete_topic("t", timeout_ms=0)
        await settle()
        assert leaders.valid() == [1]
        leaders.brokers[3].resume()
        await leaders.clock.advance(5_000)
        assert leaders.controller.topics() == []
        assert leaders.valid() == []


async def test_preferred_elections_of_many_partitions_do_not_wait_for_long() -> None:
    async with open_leaders() as leaders:
        # One hundred moves of 20 ms, one after the other, would take two seconds.
        assignment = {number: ((1, 2, 3), (2, 3, 1), (3, 1, 2))[number % 3] for number in range(300)}
        await leaders.controller.create_topic("t", assignment=assignment)
        await leaders.controller.drain(1)
        await leaders.clock.advance(1_000)
        await leaders.controller.restore(1)
        leaders.hub.latency_ms = 20.0
        await leaders.clock.advance(100)
        begin_ms, before = leaders.clock.monotonic_ms(), len(leaders.began)
        await leaders.controller.elect("preferred", timeout_ms=0)
        await leaders.clock.advance(2_000)

        moved = leaders.began[before:]
        assert len(moved) >= 100
        assert max(time_ms for time_ms, *_ in moved) - begin_ms <= 1_000
        assert all(leaders.valid(TopicPartition("t", number)) == [assignment[number][0]] for number in range(300))
        assert leaders.overlaps == []


def disturb(leaders: Leaders, rng: random.Random, until: dict[int, float], tasks: TaskGroup) -> None:
    """Move leaderships, pause brokers, cut links, end sessions, and replace the controller."""
    now, store = leaders.clock.monotonic_ms(), leaders.store
    for broker in [broker for broker, end in until.items() if now >= end]:
        leaders.brokers[broker].resume()
        leaders.hub.cut.discard(broker)
        del until[broker]
    broker, chance = rng.choice(sorted(leaders.brokers)), rng.random()
    if chance < 0.03 and not until:
        leaders.brokers[broker].pause()
        until[broker] = now + TIMEOUT_MS * rng.uniform(0.1, 2.5)
    elif chance < 0.06 and not until:
        leaders.hub.cut.add(broker)
        until[broker] = now + TIMEOUT_MS * rng.uniform(0.1, 4)
    elif chance < 0.09 and isinstance(store, WitnessingStore) and broker in store.state.brokers:
        store.vanish(broker)
    elif chance < 0.11 and len(leaders.controllers) > 1:
        tasks.start_soon(ask, leaders, ResignController())
    elif chance < 0.25:
        tasks.start_soon(ask, leaders, ReplicaLeaderElection(ElectionKind.PREFERRED))
    elif chance < 0.40:
        tasks.start_soon(ask, leaders, ControlledShutdown(broker))
    elif chance < 0.70:
        tasks.start_soon(ask, leaders, UndrainBroker(broker))


async def ask(leaders: Leaders, request: ControllerRequest) -> None:
    with contextlib.suppress(KactlError):
        await leaders.controller.ask(request)


@pytest.mark.parametrize("witnessing", [False, True])
@pytest.mark.parametrize("seed", fast_and_slow(range(3), 1))
async def test_leaderships_are_disjoint_while_they_are_moved(seed: int, witnessing: bool) -> None:
    rng, until = random.Random(seed), dict[int, float]()
    async with open_leaders(seed, controllers=2, witnessing=witnessing) as leaders, anyio.create_task_group() as tasks:
        await leaders.controller.create_topic("t", assignment={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
        await leaders.clock.advance(1_000)
        leaders.hub.latency_ms = 60.0
        for _ in range(STEPS):
            disturb(leaders, rng, until, tasks)
            await leaders.clock.advance(STEP_MS)
        assert leaders.overlaps == []
        assert len(leaders.began) > 6  # leaderships have moved
        await heal(leaders, until)

        assert all(leaders.valid(TopicPartition("t", number)) for number in range(3))
        assert leaders.overlaps == []


async def heal(leaders: Leaders, until: dict[int, float]) -> None:
    """End all faults, and wait until every partition has a leader."""
    leaders.hub.cut.clear()
    for broker in until:
        leaders.brokers[broker].resume()
    await leaders.clock.advance(2 * TIMEOUT_MS)
    leaders.hub.latency_ms = 0.0
    for broker in leaders.brokers:
        await ask(leaders, UndrainBroker(broker))
    await leaders.clock.advance(2 * TIMEOUT_MS)
