"""Courses of the controller's events, and records of those that moved leadership.

The newest RECORDS_MAX records are kept. A record is complete, and is added to the event log, once all brokers have
acknowledged their requests; before that it can be read as far as it has come.
"""

import collections
import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec
from opentelemetry import trace as otel

from kactl.decide.messages.events import Event
from kactl.decide.messages.log import Cause, ElectionEvent
from kactl.runtime.clock import Clock

from .event_log import EventLog
from .event_origin import NO_ORIGIN, Origin
from .event_trace import EventTrace
from .metrics import Telemetry

# A day of rolling restarts; at some 5 kB each, with thirty brokers, a few megabytes.
RECORDS_MAX: Final = 1000
# Events with requests that are not acknowledged yet. More of them are recorded as they are: a broker hangs.
OPEN_MAX: Final = 1000
# Elections in progress that are shown as they grow.
LIVE_MAX: Final = 10


class EventTraces:
    """Courses of the events of one controller.

    Args:
        history: receives the records; its `current` is the event in progress.
        first: id of the first event; ids of earlier processes are lower.
    """

    def __init__(self, history: EventLog, clock: Clock, telemetry: Telemetry, *, first: int) -> None:
        self._history = history
        self._clock = clock
        self._telemetry = telemetry
        self._next = first
        self._stack: list[EventTrace] = []
        self._open: dict[int, EventTrace] = {}  # handled, and not complete; by event id
        self._records: collections.deque[ElectionEvent] = collections.deque(maxlen=RECORDS_MAX)

    def restore(self, records: Iterable[ElectionEvent]) -> None:
        """Insert records of earlier processes, oldest first, before those of this process."""
        self._records.extend(records)
        if self._records:
            self._next = max(self._next, self._records[-1].because.event + 1)

    # -- one event -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def handling(
        self, event: Event, waited_ms: float, *, controller_id: int, controller_epoch: int, origin: Origin = NO_ORIGIN
    ) -> Iterator[None]:
        """Record the course of an event, which is handled in the block."""
        trace = self._begin(event, waited_ms, controller_epoch=controller_epoch, origin=origin)
        self._stack.append(trace)
        self._history.current = trace
        spans, state, span = self._telemetry.spans, event.state.label, None
        if not origin.answered:
            span = trace.anchor = spans.begin(trace, state, controller_id=controller_id, context=origin.context)
        try:
            if span is None:
                yield
            else:
                with otel.use_span(span, record_exception=False, set_status_on_exception=False):
                    yield
        finally:
            self._end(trace)
            if span is not None:
                spans.end(trace, span)
            elif origin.answered:
                spans.answered(trace, state, controller_id=controller_id)

    def _begin(self, event: Event, waited_ms: float, *, controller_epoch: int, origin: Origin) -> EventTrace:
        now_ms = self._clock.monotonic_ms()
        first, anchor = 0, None
        if origin.answered:
            parent = origin.answered[0]
            assert parent.because is not None
            first, anchor = parent.because.origin or parent.because.event, parent.anchor
        because = Cause(self._next, event.label, origin=first, request=origin.request, caller=origin.caller)
        self._next += 1
        trace = EventTrace(
            self._clock,
            because,
            detected_ms=now_ms - waited_ms,
            wall_ms=self._clock.now_ms() - round(waited_ms),
            controller_epoch=controller_epoch,
            anchor=anchor,
            ended=self._ended,
        )
        trace.started_ms = now_ms
        return trace

    def _end(self, trace: EventTrace) -> None:
        self._stack.pop()
        self._history.current = self._stack[-1] if self._stack else self._history.idle
        if trace.moved and trace.pending:
            assert trace.because is not None
            self._open[trace.because.event] = trace
            if len(self._open) > OPEN_MAX:
                oldest = next(iter(self._open.values()))
                oldest.ended = None
                self._ended(oldest)
        trace.handled()

    def _ended(self, trace: EventTrace) -> None:
        if not trace.moved:
            return
        assert trace.because is not None
        self._open.pop(trace.because.event, None)
        outage = self._history.outages.ended(trace)
        trace.chunks_led = []
        added = self._history.add(msgspec.structs.replace(trace.record(), outage=outage))
        assert isinstance(added, ElectionEvent)
        self._records.append(added)
        self._telemetry.elected(added)

    # -- records -------------------------------------------------------------------------------------------------------

    def live(self, *, limit: int = LIVE_MAX) -> list[EventTrace]:
        """Returns the newest events that have moved leadership and are not complete, oldest first."""
        newest = (trace for trace in (*reversed(self._stack), *reversed(self._open.values())) if trace.moved)
        return list(islice(newest, limit))[::-1]

    def recent(self, *, limit: int = RECORDS_MAX) -> list[ElectionEvent]:
        """Returns the newest records, newest first; those that are not complete come first."""
        live = [self._stamped(trace) for trace in reversed(self.live(limit=limit))]
        return [*live, *islice(reversed(self._records), limit - len(live))]

    def _stamped(self, trace: EventTrace) -> ElectionEvent:
        return msgspec.structs.replace(trace.record(), time_ms=self._clock.now_ms())
