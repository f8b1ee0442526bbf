"""Traces: the span tree of a controller event, and the traces that it continues."""

from collections import Counter
from functools import partial

import anyio
import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kactl.actors.channel import RETRY_BACKOFF_MS
from kactl.decide.messages.control import LeaderAndIsrResponse, PartitionErrors
from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode
from kactl.telemetry.event_record import EventRecord
from kactl.telemetry.event_spans import _status
from tests.support.clocks import settle
from tests.support.controller_harness import world

pytestmark = pytest.mark.anyio


class Traced:
    """A tracer provider, and the spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def root(self) -> ReadableSpan:
        """Returns the only span without a parent."""
        (root,) = [span for span in self.spans() if span.parent is None]
        return root


def name_of(spans: tuple[ReadableSpan, ...], span_id: int) -> str:
    (found,) = [span.name for span in spans if span.context is not None and span.context.span_id == span_id]
    return found


async def test_failure_of_a_broker_is_one_tree() -> None:
    traced = Traced()
    async with world(1, 2, 3, tracer_provider=traced.provider) as w:
        await w.create("t", [[1, 2, 3], [1, 3, 2], [2, 3, 1]])
        traced.exporter.clear()

        await w.stop(1)

        spans, root = traced.spans(), traced.root()
        assert root.name == "controller.event BrokerChange"
        assert root.context is not None
        assert {span.context.trace_id for span in spans if span.context is not None} == {root.context.trace_id}
        children = Counter(
            span.name for span in spans if span.parent is not None and span.parent.span_id == root.context.span_id
        )
        assert len(spans) == 1 + children.total()
        # At most five spans of the event itself; one for each request.
        assert {name: children.pop(name) for name in ("plan", "commit", "apply", "encode")} == {
            "plan": 1,
            "commit": 1,
            "apply": 1,
            "encode": 1,
        }
        assert set(children) == {"LeaderAndIsr", "UpdateMetadata"}
        attributes = root.attributes or {}
        assert children.total() == attributes["kactl.request.count"]
        assert attributes["kactl.partition.moved"] == 2
        assert attributes["kactl.broker.count"] == 2
        assert attributes["kactl.election.strategy"] == "offline"
        brokers = {(span.attributes or {})["kafka.broker.id"] for span in spans if span.name == "LeaderAndIsr"}
        assert brokers == {2, 3}
        (event,) = {event.because.event for event in w.controller.elections(limit=1)}
        assert attributes["kactl.event.id"] == event


async def test_requests_of_a_healthy_failover_bear_no_error() -> None:
    traced = Traced()
    async with world(1, 2, 3, tracer_provider=traced.provider) as w:
        await w.create("t", [[1, 2, 3], [2, 3, 1], [2, 1, 3]])
        traced.exporter.clear()

        await w.stop(1)

        requests = Counter(
            (span.name, (span.attributes or {})["rpc.response.status_code"])
            for span in traced.spans()
            if span.name in ("LeaderAndIsr", "UpdateMetadata")
        )
        assert {status for _, status in requests} == {"NONE"}
        assert requests["LeaderAndIsr", "NONE"] > 0


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ([ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH], "NONE"),
        ([ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR], "PARTITION_ERRORS"),
        ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "PARTITION_ERRORS"),
    ],
)
def test_row_of_a_known_epoch_is_no_error(errors: list[ErrorCode], status: str) -> None:
    numbers = np.arange(len(errors), dtype=np.int32)
    rows = PartitionErrors(topics=("t",), topic=numbers * 0, partition=numbers, error=np.array(errors, np.int16))

    assert _status(LeaderAndIsrResponse(error=0, partitions=rows)) == status


async def test_times_of_spans_are_those_of_the_stages() -> None:
    traced = Traced()
    async with world(1, 2, tracer_provider=traced.provider) as w:
        await w.create("t", [[1, 2]])
        traced.exporter.clear()
        w.brokers.silent.add(2)
        began_ns = w.clock.now_ms() * 1_000_000

        await w.stop(1)
        w.brokers.silent.clear()
        await w.clock.advance(RETRY_BACKOFF_MS)

        assert traced.root().start_time == began_ns
        first = next(span for span in traced.spans() if span.name == "LeaderAndIsr")
        assert (first.start_time, first.end_time) == (began_ns, began_ns + RETRY_BACKOFF_MS * 1_000_000)
        waited = [
            (span.attributes or {})["kactl.request.queue_ms"] for span in traced.spans() if span.kind.name == "CLIENT"
        ]
        assert waited[0] == 0.0
        assert set(waited[1:]) == {float(RETRY_BACKOFF_MS)}


async def test_event_that_a_response_causes_belongs_to_the_tree() -> None:
    traced = Traced()
    async with world(1, 2, tracer_provider=traced.provider) as w:
        await w.create("t", [[1, 2]])
        traced.exporter.clear()
        w.brokers.failed_dirs[2] = {"t-0"}

        await w.stop(1)

        roots = [span for span in traced.spans() if span.parent is None]
        caused = [span for span in traced.spans() if span.name == "controller.event LeaderAndIsrResponseReceived"]
        assert [root.name for root in roots] == ["controller.event BrokerChange"]
        assert caused
        assert caused[0].parent is not None
        assert name_of(traced.spans(), caused[0].parent.span_id) == "controller.event BrokerChange"
        record = w.controller.elections(limit=1)[0]
        assert record.because.trigger == "LeaderAndIsrResponseReceived"
        assert record.because.origin == (roots[0].attributes or {})["kactl.event.id"]


async def test_request_continues_the_trace_of_its_caller() -> None:
    traced = Traced()
    async with world(1, 2, tracer_provider=traced.provider) as w:
        await w.create("t", [[1, 2]])
        traced.exporter.clear()

        with traced.provider.get_tracer("host").start_as_current_span("caller"):
            await w.controller.elect("preferred", [TopicPartition("t", 0)])
        await settle()

        caller = traced.root()
        assert caller.name == "caller"
        assert caller.context is not None
        (event,) = [span for span in traced.spans() if span.name == "controller.event ManualLeaderBalance"]
        assert event.parent is not None
        assert event.parent.span_id == caller.context.span_id


async def test_event_that_carries_out_requests_is_linked_to_their_spans() -> None:
    traced = Traced()
    async with world(1, 2, tracer_provider=traced.provider) as w:
        callers = []
        async with anyio.create_task_group() as tasks:
            for topic in ("t", "u"):
                with traced.provider.get_tracer("host").start_as_current_span(topic) as caller:
                    callers.append(caller.get_span_context().trace_id)
                    tasks.start_soon(partial(w.controller.create_topic, topic, assignment={0: [1, 2]}))
            await settle()

        requests = [span for span in traced.spans() if span.name == "controller.event TopicChange" and span.parent]
        assert [span.context.trace_id for span in requests if span.context is not None] == callers
        linked = [span for span in traced.spans() if span.links]
        assert {span.name for span in linked} == {"controller.event TopicChange"}
        assert [link.context for span in linked for link in span.links] == [span.context for span in requests]
        assert all(span.parent is None and (span.attributes or {})["kactl.partition.moved"] for span in linked)


async def test_event_without_a_traced_request_has_no_links() -> None:
    traced = Traced()
    async with world(1, 2, tracer_provider=traced.provider) as w:
        await w.create("t", [[1, 2]])

        assert not [span for span in traced.spans() if span.links]


async def test_without_a_recorded_trace_no_span_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors: list[object] = []
    handled = EventRecord.handled

    def noted(trace: EventRecord) -> None:
        anchors.append(trace.anchor)
        handled(trace)

    monkeypatch.setattr(EventRecord, "handled", noted)
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])

    assert len(anchors) > 2
    assert set(anchors) == {None}
