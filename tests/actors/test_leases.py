"""Releases of new leaders by the controller: after reports, ends of sessions, waits, and takeovers."""

import pytest

from kactl.decide.messages.leases import LeaderEpochs, ReportLeaderships
from kactl.decide.state.holds import past_life
from kactl.model import NO_BROKER
from kactl.model.errors import StaleBrokerEpoch
from kactl.stores.base import Names
from tests.support.clocks import settle
from tests.support.control_requests import ints
from tests.support.leaders import T0, TIMEOUT_MS, Leaders, WitnessingStore, open_leaders

pytestmark = pytest.mark.anyio

WAIT_MS = 4_000  # two thirds of the session timeout


async def create(leaders: Leaders, *replicas: int) -> None:
    """Create a partition, and let the barrier of the takeover pass."""
    await leaders.controller.create_topic("t", assignment={0: replicas or (1, 2, 3)})
    await settle()
    assert len(leaders.valid()) == 1  # the first leader waits for nobody
    await leaders.clock.advance(WAIT_MS)


def holder(leaders: Leaders) -> int:
    return int(leaders.controller.cluster.table.column("holder")[0])


def vanish(leaders: Leaders, broker: int) -> None:
    assert isinstance(leaders.store, WitnessingStore)
    leaders.store.vanish(broker)


async def test_successor_of_a_counted_session_does_not_wait() -> None:
    async with open_leaders() as leaders:
        await create(leaders)
        await leaders.brokers[1].kill()
        began_ms = leaders.clock.monotonic_ms()
        await leaders.clock.advance(TIMEOUT_MS)

        assert leaders.valid() == [2]
        assert leaders.began[-1][0] - began_ms <= TIMEOUT_MS
        assert holder(leaders) == NO_BROKER


async def test_successor_of_a_witnessed_session_waits() -> None:
    async with open_leaders(witnessing=True) as leaders:
        await create(leaders)
        leaders.brokers[1].pause()
        vanish(leaders, 1)
        await settle()
        assert leaders.leader() == 2
        assert holder(leaders) == past_life(1)
        ends = f"the end of the lease of the earlier process of broker 1, in at most {WAIT_MS / 1000:.1f} s"
        assert f"waits for {ends}" in leaders.controller.explain(T0).verdict
        await leaders.clock.advance(WAIT_MS - 1)
        assert 2 not in leaders.valid()
        await leaders.clock.advance(500)
        assert leaders.valid() == [2]
        assert leaders.overlaps == []


async def test_wait_for_an_evicted_leader_is_explained() -> None:
    async with open_leaders() as leaders:
        await create(leaders)
        leaders.hub.cut.add(1)
        await leaders.controller.drain(1)
        await leaders.clock.advance(TIMEOUT_MS - 1)
        leaders.brokers[1].pause()  # after a renewal: its session outlasts the eviction
        await leaders.clock.advance(101)
        ends = f"earlier process of broker 1, which was evicted, in at most {(TIMEOUT_MS - 100) / 1000:.1f} s"
        assert ends in leaders.controller.explain(T0).verdict
        await leaders.clock.advance(TIMEOUT_MS)

        assert leaders.valid() == [2]
        assert leaders.overlaps == []


async def test_same_process_that_registers_again_is_not_waited_for() -> None:
    async with open_leaders(witnessing=True) as leaders:
        await create(leaders)
        vanish(leaders, 1)
        await leaders.clock.advance(TIMEOUT_MS / 6 + 500)  # its next renewal, and a pause

        assert leaders.valid() == [2]
        assert holder(leaders) == NO_BROKER
        assert leaders.overlaps == []


async def test_another_process_of_the_same_broker_is_waited_for() -> None:
    async with open_leaders(witnessing=True) as leaders:
        await create(leaders, 1)
        await leaders.brokers[1].kill()
        vanish(leaders, 1)
        await leaders.brokers[1].start()
        await leaders.clock.advance(WAIT_MS - 100)
        assert leaders.leader() == 1
        assert len(leaders.began) == 1  # the first process
        await leaders.clock.advance(600)
        assert len(leaders.began) == 2
        assert leaders.overlaps == []


async def test_participant_that_leaves_is_not_waited_for() -> None:
    async with open_leaders(witnessing=True) as leaders:
        await create(leaders)
        await leaders.brokers[1].stop()  # without a controlled shutdown
        await leaders.clock.advance(100)
        assert leaders.valid() == [2]


async def test_takeover_does_not_pause_leaders() -> None:
    async with open_leaders(controllers=2) as leaders:
        await create(leaders)
        before = leaders.leaders[T0][0][1]
        leaders.hub.cut.add(3)
        await leaders.controller.resign()
        await leaders.clock.advance(TIMEOUT_MS / 2)
        assert leaders.controller.cluster.holds.unanswered == {3}
        assert before.is_valid
        assert leaders.valid() == [1]
        assert len(leaders.began) == 1


async def test_leader_after_a_takeover_waits_for_each_participant() -> None:
    async with open_leaders(controllers=2) as leaders:
        await create(leaders)
        leaders.hub.cut.add(3)
        await leaders.controller.resign()
        await leaders.clock.advance(500)
        await leaders.controller.drain(1)
        await leaders.clock.advance(2_000)
        assert leaders.leader() == 2
        assert leaders.valid() == []
        leaders.hub.cut.clear()
        await leaders.clock.advance(1_000)
        assert leaders.valid() == [2]
        assert leaders.controller.cluster.holds.unanswered == set()


async def test_takeover_passes_by_an_eviction_if_a_leader_waits() -> None:
    async with open_leaders(controllers=2) as leaders:
        await create(leaders)
        leaders.hub.cut.add(3)
        await leaders.controller.resign()
        await leaders.clock.advance(3 * TIMEOUT_MS)
        assert 3 in leaders.controller.cluster.brokers  # no leader waits for it

        await leaders.controller.drain(1)
        await leaders.clock.advance(2 * TIMEOUT_MS + 1_000)
        assert leaders.valid() == [2]
        assert leaders.overlaps == []


async def test_mark_of_an_eviction_makes_another_controller_wait() -> None:
    async with open_leaders(controllers=2) as leaders:
        await create(leaders)
        registered = leaders.controller.cluster.brokers[1]
        leaders.brokers[1].pause()
        await leaders.store.evict(1, registered.epoch, leaders.controller.cluster.fence)
        await leaders.controller.resign()
        await leaders.clock.advance(TIMEOUT_MS - 1)
        assert leaders.leader() == 2
        assert 2 not in leaders.valid()
        await leaders.clock.advance(1_000)
        assert leaders.valid() == [2]
        assert leaders.overlaps == []


def report(leaders: Leaders, *, number: int, ended: int, epoch: int | None = None) -> ReportLeaderships:
    registered = leaders.controller.cluster.brokers[1].epoch if epoch is None else epoch
    return ReportLeaderships(
        1, registered, number, ended=LeaderEpochs.of(Names.of([T0]), ints([ended])), waiting=LeaderEpochs()
    )


async def test_report_that_arrives_after_a_later_one_is_ignored() -> None:
    async with open_leaders() as leaders:
        await create(leaders)
        leaders.hub.cut.add(1)
        await leaders.controller.drain(1)
        assert holder(leaders) == 1
        await leaders.controller.ask(report(leaders, number=1_000, ended=0))
        await leaders.controller.ask(report(leaders, number=999, ended=1))
        assert holder(leaders) == 1
        await leaders.controller.ask(report(leaders, number=1_001, ended=1))
        assert holder(leaders) == NO_BROKER


async def test_report_of_an_earlier_registration_is_rejected() -> None:
    async with open_leaders() as leaders:
        await create(leaders)
        with pytest.raises(StaleBrokerEpoch):
            await leaders.controller.ask(report(leaders, number=1, ended=1, epoch=0))
