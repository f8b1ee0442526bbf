"""Handlers receive why they lead: the event, the election, the leader before, and the trace."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import kactl
from tests.support.clocks import ManualClock, settle
from tests.support.leaders import T0, TIMEOUT_MS, Leaders, open_leaders

pytestmark = pytest.mark.anyio


def led(leaders: Leaders) -> kactl.Leader:
    """Returns the leadership that is valid now."""
    (leader,) = [leader for _, leader in leaders.leaders[T0] if leader.is_valid]
    return leader


def cause_of(leaders: Leaders) -> kactl.Cause:
    """Returns the cause of the newest change of the partition's leader, according to the event log."""
    events = [event for event in leaders.controller.history.read(0)[0] if isinstance(event, kactl.PartitionEvent)]
    (cause,) = {event.because for event in events if event.leader_epoch == led(leaders).token.leader_epoch}
    assert cause is not None
    return cause


async def test_first_leader_receives_the_cause() -> None:
    async with open_leaders() as leaders:
        await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await leaders.clock.advance(1_000)
        reason, cause = led(leaders).reason, cause_of(leaders)

        assert (reason.trigger, reason.strategy, reason.previous) == (cause.trigger, "first", None)
        assert (reason.event, reason.origin) == (cause.event, cause.origin)


async def test_next_leaders_receive_the_cause() -> None:
    async with open_leaders() as leaders:
        await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await leaders.clock.advance(1_000)

        await leaders.brokers[1].kill()
        await leaders.clock.advance(TIMEOUT_MS + 1_000)
        reason, cause = led(leaders).reason, cause_of(leaders)
        assert (reason.event, reason.trigger, reason.strategy) == (cause.event, cause.trigger, "offline")
        assert reason.previous == led(leaders).previous == 1

        await leaders.controller.drain(2)
        await leaders.clock.advance(1_000)
        reason, cause = led(leaders).reason, cause_of(leaders)
        assert (reason.event, reason.trigger, reason.strategy) == (cause.event, cause.trigger, cause.strategy)
        assert (reason.previous, reason.trigger) == (2, "ControlledShutdown")


async def test_handler_can_continue_the_trace() -> None:
    clock, hub, exporter = ManualClock(), kactl.MemoryHub(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    reasons: list[kactl.OrderReason] = []

    class Handler(kactl.PartitionHandler):
        async def lead(self, leader: kactl.Leader) -> None:
            reasons.append(leader.reason)

    async with (
        kactl.Controller(100, hub=hub, clock=clock, tracer_provider=provider) as controller,
        kactl.Participant(1, hub=hub, clock=clock, handler=Handler, shutdown_attempts=0),
    ):
        await settle()
        await controller.create_topic("t", assignment={0: [1]})
        await clock.advance(1_000)

    (reason,) = reasons
    spans = {span.context.span_id: span for span in exporter.get_finished_spans() if span.context is not None}
    version, trace, span, flags = reason.trace.split("-")
    assert (version, int(flags, 16) & 1) == ("00", 1)
    event = spans[int(span, 16)]
    assert event.context is not None
    assert event.context.trace_id == int(trace, 16)
    assert (event.attributes or {})["kactl.event.id"] == reason.event
