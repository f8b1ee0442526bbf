"""Counters of events, actors and ISR updates, read from a controller that does these things."""

import asyncio
import logging

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kactl.actors.machines.machine import Move, MoveReplicas
from kactl.decide.messages.admin import ElectionKind, ReplicaLeaderElection
from kactl.decide.messages.events import BrokerChange
from kactl.decide.messages.log import PartitionEvent
from kactl.model import Assignment, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import ErrorCode
from tests.actors.metadata import block_loop
from tests.support.clocks import settle
from tests.support.controller_harness import world

from .one_partition import led_partition, proposal, propose
from .test_events import exported_metrics

pytestmark = pytest.mark.anyio


def isr_operations(reader: InMemoryMetricReader) -> dict[str, int]:
    points = exported_metrics(reader)["kafka.isr.operation.count"]
    return {attributes["operation"]: value for attributes, value in points}


async def test_proposed_isrs_are_counted_by_operation() -> None:
    reader = InMemoryMetricReader()
    assignment = Assignment((1, 2, 3))
    async with led_partition(
        brokers=(1, 2, 3), assignment=assignment, isr=(1, 2), meter_provider=MeterProvider([reader])
    ) as made:
        assert isr_operations(reader) == {"shrink": 0, "expand": 0, "failed": 0}

        (grown,) = await propose(made, proposal((1, 2, 3)))
        assert grown.leadership is not None
        assert isr_operations(reader) == {"shrink": 0, "expand": 1, "failed": 0}

        (shrunk,) = await propose(made, proposal((1,), version=grown.leadership.partition_epoch))
        assert shrunk.leadership is not None
        assert isr_operations(reader) == {"shrink": 1, "expand": 1, "failed": 0}

        (unchanged,) = await propose(made, proposal((1,), version=shrunk.leadership.partition_epoch))
        (stale,) = await propose(made, proposal((1, 2), leader_epoch=1))
        assert (unchanged.error, stale.error) == (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH)
        assert isr_operations(reader) == {"shrink": 1, "expand": 1, "failed": 1}
        assert exported_metrics(reader)["kactl.isr.proposal.rejected"] == [({"error": "FENCED_LEADER_EPOCH"}, 1)]


async def test_isrs_that_leaders_write_are_counted_and_those_of_elections_are_not() -> None:
    reader = InMemoryMetricReader()
    async with world(1, 2, 3, meter_provider=MeterProvider([reader])) as w:
        await w.create("orders", [[1, 2, 3], [2, 3, 1]])

        await w.write_isr("orders-0", 1, 2)
        assert isr_operations(reader) == {"shrink": 1, "expand": 0, "failed": 0}

        await w.write_isr("orders-0", 1, 2, 3)
        assert isr_operations(reader) == {"shrink": 1, "expand": 1, "failed": 0}

        await w.stop(3)
        assert w.known("orders-1").isr == (2, 1)
        assert isr_operations(reader) == {"shrink": 1, "expand": 1, "failed": 0}


def refused(reader: InMemoryMetricReader) -> dict[tuple[str, str, str], int]:
    points = exported_metrics(reader).get("kactl.transitions.refused", [])
    return {(attributes["machine"], attributes["from"], attributes["to"]): value for attributes, value in points}


async def test_refused_transitions_are_counted_by_states(caplog: pytest.LogCaptureFixture) -> None:
    reader = InMemoryMetricReader()
    caplog.set_level(logging.INFO)
    async with world(1, 2, meter_provider=MeterProvider([reader])) as w:
        await w.create("orders", [[1, 2], [1, 2]])
        loop = w.controller.loop
        topic = loop.cluster.table.topic("orders")
        assert topic is not None
        rows = loop.cluster.table.rows_of(topic)

        assert refused(reader) == {}
        await loop.context.replicas.ask(MoveReplicas(rows, ReplicaState.DELETION_SUCCESSFUL))
        await loop.context.partitions.ask(Move(rows[:1], PartitionState.ABSENT))
        await w.stop(1, 2)

        assert refused(reader) == {
            ("replica", "online", "deletion_successful"): 4,
            ("partition", "online", "absent"): 1,
            ("partition", "offline", "online"): 2,
        }
        partition_events = [event for event in w.events("partition") if isinstance(event, PartitionEvent)]
        (event,) = {e.because for e in partition_events if e.refused and e.from_state == PartitionState.OFFLINE}
        assert event is not None
        assert event.trigger == "BrokerChange"
        assert f"NO_ELIGIBLE_LEADER (event {event.event}, BrokerChange)" in caplog.text


async def test_notifications_without_a_change_are_counted() -> None:
    reader = InMemoryMetricReader()
    async with world(1, 2, meter_provider=MeterProvider([reader]), auto_balance=False) as w:
        await w.create("orders", [[1, 2]])
        await w.write_isr("orders-0", 1)
        before = unchanged_events(reader)

        w.controller.loop.inbox.put_once(BrokerChange())
        await w.store.notify_isr([TopicPartition("orders", 0)])
        await settle()

        counts = {kind: count - before.get(kind, 0) for kind, count in unchanged_events(reader).items()}
        assert {kind: count for kind, count in counts.items() if count} == {
            "BrokerChange": 1,
            "IsrChangeNotification": 2,  # with that of its deletion
        }


def unchanged_events(reader: InMemoryMetricReader) -> dict[str, int]:
    points = exported_metrics(reader).get("kactl.event.unchanged", [])
    return {attributes["kactl.event.kind"]: value for attributes, value in points}


def started_events(reader: InMemoryMetricReader) -> dict[str, int]:
    points = exported_metrics(reader)["kactl.event.started"]
    return {attributes["kactl.event.kind"]: value for attributes, value in points}


def busy_s(reader: InMemoryMetricReader) -> dict[str, float]:
    points = exported_metrics(reader)["kactl.actor.busy.duration"]
    return {attributes["kactl.actor"]: value for attributes, value in points}


async def test_event_is_counted_when_it_begins() -> None:
    reader = InMemoryMetricReader()
    async with world(1, 2, meter_provider=MeterProvider([reader]), auto_balance=False) as w:
        before = started_events(reader)
        gate = await block_loop(w)
        w.controller.loop.inbox.put_once(BrokerChange())
        await settle()

        assert started_events(reader) == before | {"Blocking": 1}

        gate.set()
        await settle()

        assert started_events(reader) == before | {"Blocking": 1, "BrokerChange": before.get("BrokerChange", 0) + 1}


async def test_request_of_a_caller_that_stopped_waiting_is_counted() -> None:
    reader = InMemoryMetricReader()
    async with world(1, 2, meter_provider=MeterProvider([reader]), auto_balance=False) as w:
        await w.create("t", [[1, 2]])
        gate = await block_loop(w)
        request = ReplicaLeaderElection(ElectionKind.PREFERRED, (TopicPartition("t", 0),))
        patient, hasty = (asyncio.ensure_future(w.controller.ask(request)) for _ in range(2))
        await settle()
        hasty.cancel()
        await settle()
        assert exported_metrics(reader)["kactl.event.timed_out"] == [({}, 0)]

        gate.set()
        await patient
        await settle()

        assert exported_metrics(reader)["kactl.event.timed_out"] == [({}, 1)]


async def test_busy_time_of_an_actor_grows_while_it_handles_a_message() -> None:
    reader = InMemoryMetricReader()
    async with world(1, 2, meter_provider=MeterProvider([reader]), auto_balance=False) as w:
        before = busy_s(reader)
        gate = await block_loop(w)
        await w.clock.advance(700)

        assert busy_s(reader) == before | {"controller": pytest.approx(before["controller"] + 0.7)}

        gate.set()
        await settle()
        done = busy_s(reader)
        await w.clock.advance(700)

        assert done == busy_s(reader) == before | {"controller": pytest.approx(before["controller"] + 0.7)}
