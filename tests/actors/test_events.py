"""Event loop: sequential handling, statistics, and events that are never handled."""

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kactl.decide.messages.admin import (
    ApiPartitionReassignment,
    ControllerRequest,
    ElectionKind,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    UpdateFeatures,
)
from kactl.decide.messages.broker import AllocateProducerIds, AlterPartitionReceived, ControlledShutdown
from kactl.decide.messages.control import LeaderAndIsr, UpdateMetadata, UpdateMetadataResponse
from kactl.decide.messages.events import (
    BrokerChange,
    ControllerState,
    Event,
    TopicChange,
    UpdateMetadataResponseReceived,
)
from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode, IllegalState, NotController, StaleController
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.event_record import NO_ORIGIN
from kactl.telemetry.event_records import IDLE_MS, EventRecords, Summary
from kactl.telemetry.metrics import Telemetry
from tests.actors.metadata import Blocking, Failing, block_loop, let_fail
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import partitions_of, world

pytestmark = pytest.mark.anyio

T_0 = TopicPartition("t", 0)


def exported_metrics(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    """Returns all points by metric name, as (attributes, value or count)."""
    data = reader.get_metrics_data()
    found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points: list[Any] = list(metric.data.data_points)
                found[metric.name] = [
                    (dict(point.attributes or {}), getattr(point, "count", getattr(point, "value", None)))
                    for point in points
                ]
    return found


def timed(reader: InMemoryMetricReader, state: ControllerState) -> int:
    """Returns the number of events counted by the timer of a state."""
    points = exported_metrics(reader).get("kafka.controller.event.process.duration", [])
    return sum(count for attributes, count in points if attributes["kafka.controller.state"] == state.label)


def gauge(reader: InMemoryMetricReader, name: str) -> Any:
    ((_, value),) = exported_metrics(reader)[name]
    return value


# -- queued events while the controller is busy ------------------------------------------------------------------------


@pytest.mark.scenario(354)
async def test_broker_that_bounced_while_busy_receives_the_full_state() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[2, 1]])
        gate = await block_loop(w)
        before = w.epoch(2)
        w.brokers.forget()

        await w.stop(2)
        await w.start(2)
        assert w.brokers.sent == []
        gate.set()
        await settle()

        assert w.epoch(2) > before
        assert [event.what for event in w.events("broker")][-2:] == ["failed", "bounced"]  # type: ignore[union-attr]
        to_it = [request for request in w.brokers.of(2) if isinstance(request, LeaderAndIsr | UpdateMetadata)]
        assert {request.broker_epoch for request in to_it} == {w.epoch(2)}
        assert "t-0" in w.brokers.told(2)
        assert any(partitions_of(request) == ["t-0"] for request in w.brokers.of(2, UpdateMetadata))
        await w.check()


@pytest.mark.scenario(355)
@pytest.mark.parametrize("what", ["topic created", "topic deleted", "election requested", "reassignment requested"])
async def test_fence_while_busy_is_detected_by_the_next_write(what: str, caplog: pytest.LogCaptureFixture) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        gate = await block_loop(w)
        if what == "topic created":
            await w.create("u", [[1]])
        elif what == "topic deleted":
            await w.delete("t")
        elif what == "election requested":
            await w.store.request_preferred_election([T_0])
        else:
            await w.store.request_reassignment({T_0: (2,)})
        await w.store.contest(6, take_over=True)
        w.brokers.forget()

        with caplog.at_level(logging.INFO):
            gate.set()
            await settle()

        assert not w.controller.is_active
        assert w.controller.loop.active_id == 6
        assert not [request for _, request in w.brokers.sent if isinstance(request, LeaderAndIsr)]
        moved = [record for record in caplog.records if "has been followed by epoch 2" in record.getMessage()]
        assert [record.levelno for record in moved] == [logging.INFO]
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.scenario(356)
async def test_internal_error_ends_the_controllership_and_is_raised() -> None:
    async with world(1) as w:
        let_fail(w, IllegalState("a request was begun before the one before was sent"))

        with pytest.raises(IllegalState):
            await w.controller.ask(Failing())

        assert not w.controller.is_active
        assert not w.controller.loop.controllership._timers._running, "nothing comes by itself any more"

        await settle()

        assert w.controller.is_active
        assert w.controller.cluster.fence.epoch == 2


# -- dropped events ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(357)
async def test_stop_cancels_queued_events_before_it_returns() -> None:
    async with world(1) as w:
        gate = await block_loop(w)
        await w.create("t", [[1]])
        w.controller.loop.inbox.put_once(BrokerChange())
        before = [each.label for each in w.controller.queue().next]
        assert before == ["TopicChange", "BrokerChange"]

        stopping = asyncio.ensure_future(w.controller._stop())
        await settle()
        preempted = {kind.label: kind.preempted for kind in w.controller.queue().kinds if kind.preempted}
        over = stopping.done()
        gate.set()
        await stopping

        assert preempted == {"TopicChange": 1, "BrokerChange": 1}
        assert not over
        assert w.controller.partition("t-0") is None
        assert not w.controller.is_active


@pytest.mark.scenario(358)
@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (ReplicaLeaderElection(ElectionKind.PREFERRED, (T_0,)), NotController),
        (ControlledShutdown(1), StaleController),
        (ApiPartitionReassignment({T_0: (1,)}), NotController),
        (ListPartitionReassignments(), NotController),
        # Kafka never answers these three requests.
        (AlterPartitionReceived(1, -1, ()), NotController),
        (UpdateFeatures(()), NotController),
        (AllocateProducerIds(1, -1), NotController),
    ],
    ids=lambda each: getattr(each, "label", ""),
)
async def test_every_request_gets_a_response(asked: ControllerRequest, refusal: type[NotController]) -> None:
    async with world(1) as w:
        gate = await block_loop(w)
        waiting = asyncio.ensure_future(w.controller.ask(asked))
        await settle()
        assert [(each.label, each.asked) for each in w.controller.queue().next] == [(asked.label, True)]

        stopping = asyncio.ensure_future(w.controller._stop())
        await settle()

        assert type(waiting.exception()) is refusal
        assert waiting.exception().code in (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH)  # type: ignore[union-attr]
        gate.set()
        await stopping


async def test_stop_with_a_queued_session_end_does_not_hang() -> None:
    """In Kafka the thread that would open the next session waits forever. Here only the test waits for the event."""
    async with world(1) as w:
        gate = await block_loop(w)
        w.controller.store.expire()  # type: ignore[attr-defined]
        await settle()
        assert [each.label for each in w.controller.queue().next] == ["Expire", "RegisterBrokerAndReelect"]
        waiting = asyncio.ensure_future(w.controller.resign())
        await settle()

        stopping = asyncio.ensure_future(w.controller._stop())
        await settle()
        gate.set()
        await stopping

        assert isinstance(waiting.exception(), NotController)
        assert len(w.controller.loop.inbox) == 0
        assert not w.controller.is_active


# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(359, 360)
@pytest.mark.parametrize("fails", [False, True])
async def test_state_and_timer_of_a_handled_event(fails: bool) -> None:
    reader = InMemoryMetricReader()
    async with world(1, meter_provider=MeterProvider([reader])) as w:
        before = timed(reader, ControllerState.TOPIC_CHANGE)
        gate = await block_loop(w)
        if fails:
            handler = w.controller.loop._handlers[Blocking]

            async def fail(event: Blocking) -> None:
                await handler(event)
                raise ZeroDivisionError("a bug")

            gate.set()
            await settle()
            gate.clear()
            before += 1
            w.controller.loop._handlers[Blocking] = fail
            w.controller.loop.inbox.put(Blocking())
            await settle()
        current = w.controller.queue().current

        assert gauge(reader, "kafka.controller.state") == 3
        assert current is not None
        assert (current.label, current.state) == ("Blocking", 3)
        assert timed(reader, ControllerState.TOPIC_CHANGE) == before
        gate.set()
        await settle()

        assert gauge(reader, "kafka.controller.state") == 0
        assert w.controller.queue().current is None
        assert [kind.failed for kind in w.controller.queue().kinds if kind.label == "Blocking"] == [int(fails)]
        assert timed(reader, ControllerState.TOPIC_CHANGE) == before + 1
        await w.create("t", [[1]])
        assert w.known("t-0").leader == 1, "the loop goes on"


@pytest.mark.scenario(361)
async def test_event_without_a_timer_is_handled() -> None:
    reader = InMemoryMetricReader()
    async with world(1, meter_provider=MeterProvider([reader])) as w:

        def handled() -> int:
            label = "UpdateMetadataResponseReceived"
            return sum(kind.handled for kind in w.controller.queue().kinds if kind.label == label)

        before = handled()

        w.controller.loop.inbox.put(UpdateMetadataResponseReceived(1, w.epoch(1), UpdateMetadataResponse(0)))
        await settle()

        assert handled() == before + 1
        assert timed(reader, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED) == 0
        assert timed(reader, ControllerState.IDLE) == 0
        assert timed(reader, ControllerState.CONTROLLER_CHANGE) > 0


class Slow(Event, frozen=True):
    on_standby = True
    number: int


@pytest.mark.scenario(362)
async def test_queue_time_of_an_event_is_the_duration_of_the_one_before() -> None:
    reader = InMemoryMetricReader()
    async with world(meter_provider=MeterProvider([reader]), auto_balance=False) as w:

        async def slowly(event: Slow) -> None:
            await w.clock.sleep_ms(500)

        w.controller.loop._handlers[Slow] = slowly
        for number in (1, 2):
            w.controller.loop.inbox.put(Slow(number))
        await w.clock.advance(500)
        view = w.controller.queue()
        assert (view.current and view.current.label, view.depth) == ("Slow", 0)
        await w.clock.advance(500)

        (slow,) = [kind for kind in w.controller.queue().kinds if kind.label == "Slow"]
        assert (slow.handled, slow.failed, slow.preempted) == (2, 0, 0)
        assert (slow.wait.count, slow.wait.min_ms, slow.wait.max_ms) == (2, 0, 500)
        assert (slow.process.count, slow.process.min_ms, slow.process.total_ms) == (2, 500, 1000)
        (queued,) = exported_metrics(reader)["kafka.controller.event.queue.duration"]
        assert queued[1] == w.controller.queue().wait.count


@pytest.mark.scenario(363)
def test_queue_times_expire_after_five_minutes_without_events() -> None:
    class Clock(ManualClock):
        passed_ms = 0.0

        def monotonic_ms(self) -> float:
            return self.passed_ms

    clock = Clock()
    events = EventRecords(1, EventLog(clock), clock, Telemetry(), first=1)
    events.end(events.begin(TopicChange(), 7, NO_ORIGIN, controller_epoch=1), unchanged=False)
    assert events.wait().count == 1

    clock.passed_ms = IDLE_MS - 1
    assert events.wait().count == 1
    clock.passed_ms = IDLE_MS

    assert events.wait() == Summary()
    assert events.kinds()[0].wait.count == 1, "what each kind took is kept"


@pytest.mark.scenario(364)
async def test_stopped_instance_exports_no_gauges() -> None:
    reader = InMemoryMetricReader()
    async with world(1, meter_provider=MeterProvider([reader])):
        assert gauge(reader, "kafka.controller.active.count") == 1
        assert gauge(reader, "kafka.controller.event.queue.size") == 0

    left = exported_metrics(reader)
    assert not [name for name, points in left.items() if points and not name.endswith("duration")]


@pytest.mark.scenario(394)
async def test_only_the_active_controller_exports_gauges() -> None:
    reader = InMemoryMetricReader()
    async with world(1, 2, meter_provider=MeterProvider([reader])) as w:
        await w.create("t", [[1, 2], [2, 1], [2]])
        await w.create("doomed", [[1, 2]])
        w.brokers.silent |= {1, 2}
        await w.delete("doomed")
        await w.stop(2)
        await w.start(3)
        named = {
            "kafka.controller.active.count": 1,
            "kafka.controller.topic.count": 2,
            "kafka.controller.partition.count": 4,
            "kafka.partition.offline": 1,
            "kafka.controller.partition.preferred_imbalance": 2,
            "kafka.controller.topic.deletion.pending": 1,
            "kafka.controller.replica.deletion.pending": 2,
            "kafka.controller.topic.deletion.ineligible": 1,
            "kafka.controller.replica.deletion.ineligible": 1,
            "kafka.controller.broker.active": 2,
            "kafka.controller.broker.fenced": 0,
            "kafka.controller.partition.reassigning": 0,
        }

        assert {name: gauge(reader, name) for name in named} == named
        assert sorted((a["kafka.broker.id"], value) for a, value in exported_metrics(reader)["kafka.leader.count"])[
            0
        ] == (1, 2)

        await w.store.contest(6, take_over=True)
        await settle()

        assert {name: gauge(reader, name) for name in named} == dict.fromkeys(named, 0)
        assert exported_metrics(reader).get("kafka.leader.count", []) == []


async def test_queue_listing_respects_its_limit() -> None:
    async with world(1) as w:
        gate = await block_loop(w)
        for number in range(5):
            w.controller.loop.inbox.put(Slow(number))
        await w.clock.advance(250)

        view = w.controller.queue(limit=2)

        assert (view.depth, len(view.next), view.oldest_ms) == (5, 2, 250)
        assert [each.waited_ms for each in view.next] == [250, 250]
        w.controller.loop.inbox.drain()
        gate.set()


async def test_each_event_is_a_span_with_its_error() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with world(1, tracer_provider=provider) as w:
        spans.clear()
        let_fail(w, ZeroDivisionError("a bug"))

        await w.create("t", [[1]])
        with pytest.raises(ZeroDivisionError):
            await w.controller.ask(Failing())

        created, *_, failed = [span for span in spans.get_finished_spans() if span.parent is None]
        assert created.name == "controller.event TopicChange"
        attributes = dict(created.attributes or {})
        assert attributes.pop("kactl.event.id") > w.clock.now_ms()  # type: ignore[operator]
        assert attributes == {
            "kafka.controller.id": w.controller.node_id,
            "kafka.controller.epoch": 1,
            "kafka.controller.state": "TopicChange",
            "kactl.event.kind": "TopicChange",
            "kactl.event.queue_ms": 0.0,
            "kactl.partition.planned": 2,
            "kactl.partition.committed": 1,
            "kactl.partition.rejected": 0,
            "kactl.partition.moved": 1,
            "kactl.broker.count": 1,
            "kactl.request.count": 2,
            "kactl.election.strategy": "first",
        }
        assert created.status.is_unset
        assert (failed.attributes or {})["kactl.event.kind"] == "Failing"
        assert failed.status.description == "a bug"
