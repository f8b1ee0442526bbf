"""Spans of OpenTelemetry: one tree for each controller event.

    controller.event BrokerChange     from the detection until the event is handled
    ├── plan, commit, apply, encode   one span for each stage, over all chunks
    └── LeaderAndIsr, ...             one span for each request to a broker, from sending to the response

The tree continues the trace of the request that led to the event. An event that a response leads to has a span only if
it changed or sent anything, or failed; it belongs to the tree of the event that sent the request. Nothing is made for a
single partition, and nothing at all unless the host program records the trace.

An event that reads from the store what earlier events have written, as created topics, has a tree of its own, and its
span has links to theirs: it may carry out many requests, and has begun before it knows which.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer

from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    Request,
    Response,
    StopReplica,
    UpdateMetadata,
)
from kactl.model.errors import ErrorCode

from .event_record import EventRecord

_NS: Final = 1_000_000
_ERROR_NAMES: Final = {int(error): error.name for error in ErrorCode}


class EventSpans:
    """Makes the spans of events."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, event: EventRecord, state: str, *, controller_id: int, context: Context | None) -> Span | None:
        """Returns the span of an event that has begun, which `end` ends; None if the trace is not recorded.

        Args:
            state: Kafka's name for the activity of the controller.
            context: of the request that led to the event.
        """
        assert event.because is not None
        span = self._tracer.start_span(
            f"controller.event {state}",
            context=Context() if context is None else context,
            start_time=_ns(event, event.detected_ms),
            attributes={
                "kafka.controller.id": controller_id,
                "kafka.controller.epoch": event.controller_epoch,
                "kafka.controller.state": state,
                "kactl.event.kind": event.because.trigger,
                "kactl.event.id": event.because.event,
                "kactl.event.queue_ms": event.started_ms - event.detected_ms,
            },
        )
        return span if span.is_recording() else None

    def end(self, event: EventRecord, span: Span) -> None:
        """End the span of an event that is handled, and add those of its stages."""
        assert event.because is not None
        assert event.handled_ms is not None
        span.set_attributes(
            {
                "kactl.partition.planned": event.planned,
                "kactl.partition.committed": event.committed,
                "kactl.partition.rejected": event.rejected,
                "kactl.partition.moved": event.moved,
                "kactl.broker.count": len(event.notified),
                "kactl.request.count": sum(one.requests for one in event.notified.values()),
            }
        )
        for name, value in (
            ("kactl.election.strategy", event.strategy),
            ("kactl.request.id", event.because.request),
            ("kactl.request.caller", event.because.caller),
        ):
            if value:
                span.set_attribute(name, value)
        if event.error is not None:
            span.record_exception(event.error, timestamp=_ns(event, event.handled_ms))
            span.set_status(StatusCode.ERROR, str(event.error))
        for written_by in event.links:
            span.add_link(written_by)
        within = trace.set_span_in_context(span, Context())
        for name, stage in event.stages.items():
            if stage.count:
                began_ms, ended_ms, busy_ms = stage.reading()
                attributes = {"kactl.stage.busy_ms": busy_ms, "kactl.stage.count": stage.count}
                start = _ns(event, began_ms)
                of_stage = self._tracer.start_span(name, context=within, start_time=start, attributes=attributes)
                of_stage.end(_ns(event, ended_ms))
        span.end(_ns(event, event.handled_ms))

    def answered(self, event: EventRecord, state: str, *, controller_id: int) -> None:
        """Make the spans of an event that a response led to, once it is handled."""
        if event.anchor is None or not (event.committed or event.notified or event.error is not None):
            return
        span = self.begin(
            event, state, controller_id=controller_id, context=trace.set_span_in_context(event.anchor, Context())
        )
        if span is not None:
            self.end(event, span)

    def request(
        self,
        events: Sequence[EventRecord],
        request: Request,
        response: Response,
        *,
        broker: int,
        queued_ms: float,
        began_ms: float,
        ended_ms: float,
    ) -> None:
        """Make the span of a request to a broker, which has responded.

        Args:
            events: those that sent it: several if it was coalesced. The first one is the parent, the others are linked.
        """
        anchors = [(event, event.anchor) for event in events if event.anchor is not None]
        if not anchors:
            return
        event, parent = anchors[0]
        attributes: dict[str, str | int | float] = {
            "rpc.system.name": "kafka",
            "rpc.method": type(request).__name__,
            "rpc.response.status_code": _status(response),
            "kafka.broker.id": broker,
            "kactl.partition.count": _partitions(request),
            "kactl.request.queue_ms": began_ms - queued_ms,
        }
        span = self._tracer.start_span(
            type(request).__name__,
            context=trace.set_span_in_context(parent, Context()),
            kind=SpanKind.CLIENT,
            start_time=_ns(event, began_ms),
            attributes=attributes,
            links=[Link(anchor.get_span_context()) for _, anchor in anchors[1:]],
        )
        span.end(_ns(event, ended_ms))


def _ns(event: EventRecord, time_ms: float) -> int:
    """Returns a monotonic time as the wall clock shows it, from the moment at which the event was detected."""
    return event.wall_ms * _NS + round((time_ms - event.detected_ms) * _NS)


def _partitions(request: Request) -> int:
    if isinstance(request, LeaderAndIsr | UpdateMetadata):
        return len(request.states)
    return len(request.partition) if isinstance(request, StopReplica) else 0


def _status(response: Response) -> str:
    error = getattr(response, "error", 0)
    if not error and isinstance(response, LeaderAndIsrResponse):
        # A row whose leader epoch the broker knows already is answered with this code. It is no error for Kafka's
        # controller either: a failover announces new leaders first, and the same rows once more without dead replicas.
        known = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
        if not np.isin(response.partitions.error, known).all():
            return "PARTITION_ERRORS"
    return _ERROR_NAMES.get(error, str(error))
