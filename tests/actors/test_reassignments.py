"""Reassignment scenarios from the request to the last replica, mostly through the stored request of older tools."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.control import LeaderAndIsr
from kactl.model import Assignment, Fence, TopicRef
from kactl.stores.base import Changed
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, World, leaders_in, open_standby, world
from tests.support.store_clients import watches_of

from .reassignment_helpers import (
    ongoing,
    reassign,
    replicas,
    requested_reassignment,
    stored_assignment,
    write_reassignment,
)

pytestmark = pytest.mark.anyio


def times_spent(reader: InMemoryMetricReader, state: str) -> int:
    """Returns how many events were handled in a controller state."""
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "kafka.controller.event.process.duration"
        for point in metric.data.data_points
    ]
    counted = 0
    for point in points:
        assert isinstance(point, HistogramDataPoint)
        assert point.attributes is not None
        counted += point.count if point.attributes["kafka.controller.state"] == state else 0
    return counted


async def moved_to(w: World, name: str, *target: int) -> None:
    """Assert that a reassignment is complete and has left no state."""
    assert await stored_assignment(w, name) == Assignment(target)
    assert replicas(w.known(name)) == (target, (), ())
    assert await ongoing(w) == {}
    assert await requested_reassignment(w) is None
    await w.check()


@pytest.mark.scenario(198)
async def test_single_replica_moves_to_another_broker() -> None:
    reader = InMemoryMetricReader()
    async with world(1, 2, meter_provider=MeterProvider([reader])) as w:
        await w.create("t", [[1]])
        assert times_spent(reader, "AlterPartitionReassignment") == 0

        await write_reassignment(w, {"t-0": [2]})
        assert await stored_assignment(w, "t-0") == Assignment((2, 1), adding=(2,), removing=(1,))
        assert await requested_reassignment(w) == {"t-0": (2,)}
        await w.write_isr("t-0", 1, 2)

        assert await w.stored("t-0") == (2, 3, (2,))
        _, state = await w._stored("t-0")
        assert state.controller_epoch == 1
        await moved_to(w, "t-0", 2)
        assert times_spent(reader, "AlterPartitionReassignment") > 0


@pytest.mark.scenario(199)
async def test_broker_with_a_failed_directory_accepts_a_new_replica() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        # It creates a replica only if the request marks it as new, and may use an online directory.
        w.brokers.lost_a_dir.add(2)

        await write_reassignment(w, {"t-0": [2]})

        news = [
            leaders_in(each.states)["t-0"] for each in w.brokers.of(2, LeaderAndIsr) if isinstance(each, LeaderAndIsr)
        ]
        assert news == [(1, 1, (1,), True), (1, 1, (1,), True)]
        assert w.controller.cluster.is_replica_online(2, w.known("t-0").name)
        await w.write_isr("t-0", 1, 2)
        assert await w.stored("t-0") == (2, 3, (2,))
        await moved_to(w, "t-0", 2)


@pytest.mark.scenario(200, 201)
async def test_offline_target_delays_the_reassignment() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await w.stop(2)

        await write_reassignment(w, {"t-0": [2]})

        assert await w.stored("t-0") == (1, 1, (1,))
        assert await requested_reassignment(w) == {"t-0": (2,)}
        assert await ongoing(w) == {"t-0": Assignment((2, 1), adding=(2,), removing=(1,))}

        await w.start(2)
        assert await w.stored("t-0") == (1, 2, (1,))
        assert w.brokers.told(2)["t-0"] == (1, 2, (1,), True)
        await w.write_isr("t-0", 1, 2)

        assert await w.stored("t-0") == (2, 4, (2,))
        await moved_to(w, "t-0", 2)


@pytest.mark.scenario(202)
async def test_reassignment_to_the_current_replicas_succeeds() -> None:
    async with world(1) as w:
        await w.create("t", [[1]])
        for _ in range(2):
            await w.controller.resign()
            await settle()
        (ref,) = (await w.store.assignments(["t"])).topics
        assert (w.controller.snapshot().epoch, await w.stored("t-0")) == (3, (1, 0, (1,)))

        assert await reassign(w, {"t-0": [1]}) == [0]

        assert await w.stored("t-0") == (1, 1, (1,))
        _, state = await w._stored("t-0")
        assert state.controller_epoch == 3
        assert w.controller.topics() == [ref]
        assert (await w.store.assignments(["t"])).topics == (ref,)
        await moved_to(w, "t-0", 1)


@pytest.mark.scenario(203)
async def test_topic_id_is_kept_by_a_controller_without_ids() -> None:
    ref = TopicRef("t", bytes(range(16)))
    async with world(1, 2, level=ProtocolLevel(2, 7, 2)) as w:
        await w.store.create_topic(ref, {0: Assignment((1,)), 1: Assignment((2,))}, {})
        await settle()

        assert await reassign(w, {"t-0": [2]}) == [0]
        assert (await w.store.assignments(["t"])).topics == (ref,)
        await w.write_isr("t-0", 1, 2)

        await moved_to(w, "t-0", 2)
        assert (await w.store.assignments(["t"])).topics == (ref,)
        # The topic's other partition is in the same assignment and stays unchanged.
        assert await stored_assignment(w, "t-1") == Assignment((2,))


@pytest.mark.scenario(204, 205)
async def test_balancing_runs_during_a_stuck_reassignment() -> None:
    async with world(1, 2, 3, auto_balance=True, balance_interval_ms=1_000) as w:
        await w.create("t", [[2, 1]])
        await w.create("r", [[1]])
        await w.stop(2, 3)
        await write_reassignment(w, {"r-0": [3]})
        assert (await w.stored("t-0"), await w.stored("r-0")) == ((1, 1, (1,)), (1, 1, (1,)))

        await w.start(2)
        await w.write_isr("t-0", 1, 2)
        await w.wait(6_000)

        assert (await w.stored("t-0"), await w.stored("r-0")) == ((2, 2, (1, 2)), (1, 1, (1,)))
        assert await requested_reassignment(w) == {"r-0": (3,)}

        await w.start(3)
        await w.write_isr("r-0", 1, 3)

        assert await w.stored("r-0") == (3, 4, (3,))
        await moved_to(w, "r-0", 3)


@pytest.mark.scenario(206, 207)
async def test_partition_in_a_stuck_reassignment_is_balanced() -> None:
    async with world(1, 2, 3, auto_balance=True, balance_interval_ms=1_000) as w:
        await w.create("t", [[1, 2]])
        await w.stop(3)
        await write_reassignment(w, {"t-0": [2, 1, 3]})
        assert await w.stored("t-0") == (1, 1, (1, 2))

        await w.wait(6_000)

        assert await w.stored("t-0") == (2, 2, (1, 2))
        assert await ongoing(w) == {"t-0": Assignment((2, 1, 3), adding=(3,))}

        await w.start(3)
        assert await w.stored("t-0") == (2, 3, (1, 2))
        await w.write_isr("t-0", 1, 2, 3)

        assert await w.stored("t-0") == (2, 4, (1, 2, 3))
        await moved_to(w, "t-0", 2, 1, 3)


@pytest.mark.scenario(208)
async def test_deposed_controller_reassigns_nothing() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        # Of all changes, only the request is notified.
        watches = watches_of(w.controller.store)
        watches._armed = {armed for armed in watches._armed if armed.what is Changed.REASSIGNMENT_REQUEST}
        await w.store.contest(200, take_over=True)
        w.brokers.forget()

        await write_reassignment(w, {"t-0": [2]})

        assert not w.controller.is_active
        assert w.controller.snapshot().active_id == 200
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert await requested_reassignment(w) == {"t-0": (2,)}
        assert w.brokers.sent == []


async def test_replicas_have_the_order_of_the_target() -> None:
    """Also for a previous replica: its old position does not matter."""
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2, 3]])

        assert await reassign(w, {"t-0": [2, 3]}) == [0]
        assert replicas(w.known("t-0")) == ((2, 3), (), ())
        assert await w.stored("t-0") == (2, 2, (2, 3))
        assert await reassign(w, {"t-0": [3, 2, 1]}) == [0]
        await w.write_isr("t-0", 1, 2, 3)

        await moved_to(w, "t-0", 3, 2, 1)
        # 3 is preferred now and does not lead.
        assert w.controller.snapshot().preferred_imbalance == 1
        told = w.brokers.of(1, LeaderAndIsr)[-1]
        assert isinstance(told, LeaderAndIsr)
        assert [each for each in told.states.replicas[:, 0].tolist() if each >= 0] == [3, 2, 1]


async def test_isr_written_by_leaders_is_watched() -> None:
    """Below protocol level 2.7 only the store notifies of a grown ISR."""
    async with world(1, 2, 3, level=ProtocolLevel(2, 6)) as w:
        await w.create("t", [[1], [1]])
        await reassign(w, {"t-0": [2]})

        async def leader_writes(*isr: int) -> None:
            name, state = await w._stored("t-0")
            written = type(state)(state.leader, state.leader_epoch, isr, 0, state.controller_epoch)
            assert await w.store.write_isr(name, written, expected=state.partition_epoch)
            await settle()

        await leader_writes(1)
        assert await ongoing(w) == {"t-0": Assignment((2, 1), adding=(2,), removing=(1,))}
        await leader_writes(1, 2)

        assert await w.stored("t-0") == (2, 3, (2,))
        await moved_to(w, "t-0", 2)
        assert watches_of(w.controller.store).leaderships == frozenset()


async def test_next_controller_continues_the_reassignment() -> None:
    async with world(1, 2, 3) as w:
        await w.create("t", [[1, 2], [1, 2], [1, 2]])
        await reassign(w, {"t-0": [3, 2], "t-1": [2, 3]})
        assert await w.stored("t-0") == (1, 1, (1, 2))
        second, _ = open_standby(w, CONTROLLER + 1)
        async with second:
            await settle()
            # One ISR grows while no controller watches.
            await w.store.contest(7, take_over=True)
            await w.write_isr("t-1", 1, 2, 3)
            await w.store.resign(Fence(epoch=2, version=2))
            await settle()

            active = second if second.is_active else w.controller
            assert active.snapshot().epoch == 3
            assert {str(name) for name in await active.reassignments()} == {"t-0"}
            assert await w.stored("t-0") == (1, 2, (1, 2))
            assert await w.stored("t-1") == (2, 3, (2, 3))
            assert await stored_assignment(w, "t-1") == Assignment((2, 3))
            assert await w.stored("t-2") == (1, 0, (1, 2))
