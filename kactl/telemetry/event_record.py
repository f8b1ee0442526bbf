"""Record of one controller event: its origin, its stages, the rows that it moved, and the responses to its requests.

The record is made when the event begins. The parts of the controller measure themselves against that of the event in
progress (`EventLog.current`), a request to a broker carries it, and the response finds it. Counts are of rows and
requests, times are of stages: nothing here is made for a single partition. All times are of the monotonic clock.

The origin is known before the event begins: it travels in the context of the task that queues the event, and the inbox
stores it with the event.
"""

import contextvars
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span as TraceSpan
from opentelemetry.trace import SpanContext

from kactl.decide.messages.events import Event
from kactl.decide.messages.log import Cause, ElectionEvent, Recipient, Span, Stages
from kactl.decide.state.rows import Bools, Ints
from kactl.runtime.clock import Clock

if TYPE_CHECKING:
    from kactl.security.access import Principal

_US: Final = 1000


class Origin(NamedTuple):
    """Origin of an event.

    Attributes:
        request: id of the request to the admin API; empty if there was none.
        principal: the client that sent the request, over any interface; None if there was none.
        answered: the events whose request a broker has answered; empty if the event is no answer.
        context: OpenTelemetry's, if it has a span.
        check: decides again about a request whose event begins now; raises a KactlError if its client has lost the
            right meanwhile. None if nothing decides again.
    """

    request: str = ""
    principal: "Principal | None" = None
    answered: "tuple[EventRecord, ...]" = ()
    context: Context | None = None
    check: Callable[[], None] | None = None

    @property
    def caller(self) -> str:
        """The client, for events; empty if there was none."""
        return "" if self.principal is None else self.principal.caller


NO_ORIGIN: Final = Origin()
ORIGIN: Final[contextvars.ContextVar[Origin]] = contextvars.ContextVar("kactl.origin", default=NO_ORIGIN)


def present(*, traced: bool) -> Origin:
    """Returns the origin of a message that this task queues; with the trace of the task if `traced`."""
    origin = ORIGIN.get()
    if traced and trace.get_current_span().get_span_context().is_valid:
        return origin._replace(context=get_current())
    return origin


def traceparent(span: TraceSpan | None) -> str:
    """Returns the header value of W3C Trace Context that continues the trace of a span; empty without a span."""
    if span is None:
        return ""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


class StageTime:
    """Time of one stage. It may be entered again while it is in use: chunks overlap.

    Attributes:
        began_ms, ended_ms: of the first begin and the last end.
        busy_ms: time during which it was in use.
        count: how often it was entered.
    """

    __slots__ = ("_depth", "_now", "_since_ms", "began_ms", "busy_ms", "count", "ended_ms")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._depth = 0
        self._since_ms = self.began_ms = self.ended_ms = self.busy_ms = 0.0
        self.count = 0

    def __enter__(self) -> None:
        if not self._depth:
            self._since_ms = self._now()
            if not self.count:
                self.began_ms = self._since_ms
        self._depth += 1
        self.count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._depth -= 1
        if not self._depth:
            self.ended_ms = self._now()
            self.busy_ms += self.ended_ms - self._since_ms

    def reading(self) -> tuple[float, float, float]:
        """Returns begin, end and time in use; until now while it is in use."""
        if not self._depth:
            return self.began_ms, self.ended_ms, self.busy_ms
        now_ms = self._now()
        return self.began_ms, now_ms, self.busy_ms + now_ms - self._since_ms


class Led(NamedTuple):
    """Partitions of one chunk that an event gave a leader.

    Attributes:
        leader: int32[n], the brokers.
        since_ms: float64[n], from when on they had none.
        planned: bool[n], whether the leader moved without a failure.
    """

    leader: Ints
    since_ms: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    planned: Bools


@dataclasses.dataclass(slots=True)
class _Notified:
    """Requests of an event to one broker."""

    sent_ms: float
    acked_ms: float | None = None
    requests: int = 0
    pending: int = 0
    dropped: int = 0


class EventRecord:
    """Record of one event. Without a cause it is that of no event, which is not reported.

    Args:
        event: None for that of no event.
        detected_ms, wall_ms: when the event was queued, by the monotonic and by the wall clock.
        anchor: the span that spans of requests belong to: the event's own, or that of the event whose request this one
            answers; None if the trace is not recorded.
        ended: called when the event is handled and all its requests have been acknowledged or dropped.

    Attributes:
        because: the cause of changes, without a strategy.
        error: the error of the event; None if it has not failed.
        held_ms: time spent on events that preempted this one.
        span: the event's own; None if there is none, or if a response led to the event.
        links: spans of the events that wrote the data that this one has read.
        chunks_led: rows that outages are measured by; at most one array for each chunk.
    """

    __slots__ = ("_now", "anchor", "apply", "because", "chunks_led", "commit", "committed", "controller_epoch",
                 "detected_ms", "encode", "ended", "error", "event", "handled_ms", "held_ms", "links", "moved",
                 "notified", "origin", "pending", "plan", "planned", "rejected", "span", "started_ms", "strategy",
                 "wall_ms")  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        because: Cause | None = None,
        *,
        event: Event | None = None,
        origin: Origin = NO_ORIGIN,
        detected_ms: float = 0.0,
        wall_ms: int = 0,
        controller_epoch: int = 0,
        anchor: TraceSpan | None = None,
        ended: "Callable[[EventRecord], None] | None" = None,
    ) -> None:
        self._now = now = clock.monotonic_ms
        self.because = because
        self.event = event
        self.origin = origin
        self.detected_ms = detected_ms
        self.started_ms = detected_ms
        self.wall_ms = wall_ms
        self.controller_epoch = controller_epoch
        self.anchor = anchor
        self.span: TraceSpan | None = None
        self.ended = ended
        self.plan = StageTime(now)
        self.commit = StageTime(now)
        self.apply = StageTime(now)
        self.encode = StageTime(now)
        self.planned = self.committed = self.rejected = self.moved = 0
        self.strategy = ""  # the first one that moved leadership
        self.error: Exception | None = None
        self.links: tuple[SpanContext, ...] = ()
        self.handled_ms: float | None = None
        self.held_ms = 0.0
        self.notified: dict[int, _Notified] = {}
        self.pending = 0
        self.chunks_led: list[Led] = []

    def in_use(self) -> AbstractContextManager[object]:
        """Make the span of the event the present one in the block, which handles the event."""
        if self.span is None:
            return nullcontext()
        return trace.use_span(self.span, record_exception=False, set_status_on_exception=False)

    @property
    def stages(self) -> dict[str, StageTime]:
        """Returns the stages by name, in their order."""
        return {"plan": self.plan, "commit": self.commit, "apply": self.apply, "encode": self.encode}

    @property
    def progress(self) -> tuple[object, ...]:
        """Returns a value that changes whenever the record has made progress."""
        return self.because, self.planned, self.committed, self.moved, len(self.notified), self.pending, self.handled_ms

    @property
    def is_complete(self) -> bool:
        return self.handled_ms is not None and not self.pending

    def by(self, strategy: str) -> Cause | None:
        """Returns the cause of the changes that an election with a strategy makes."""
        if not strategy or self.because is None:
            return self.because
        return msgspec.structs.replace(self.because, strategy=strategy)

    def carries_out(self, earlier: Cause) -> None:
        """Name the event, and its request, that wrote the data that this one has read."""
        if self.because is not None and not self.because.request:
            self.because = msgspec.structs.replace(
                self.because,
                origin=earlier.origin or earlier.event,
                request=earlier.request,
                caller=earlier.caller,
            )

    def is_done(self, broker: int) -> bool:
        """Returns whether the event is handled, and no request of it to a broker waits for a response."""
        notified = self.notified.get(broker)
        return self.handled_ms is not None and not (notified and notified.pending)

    def handled(self) -> None:
        """End the handling of the event."""
        self.handled_ms = self._now()
        self._check()

    # -- requests ------------------------------------------------------------------------------------------------------

    def sent(self, broker: int) -> None:
        """Count a request that was queued for a broker."""
        if self.because is None:
            return
        notified = self.notified.get(broker)
        if notified is None:
            notified = self.notified[broker] = _Notified(self._now())
        notified.requests += 1
        notified.pending += 1
        self.pending += 1

    def merged(self, broker: int, requests: int) -> None:
        """Wait for one request to a broker in place of `requests`, which were coalesced."""
        self.notified[broker].pending -= requests - 1
        self.pending -= requests - 1

    def acknowledged(self, broker: int) -> None:
        """Count the response to a request."""
        notified = self.notified[broker]
        notified.pending -= 1
        self.pending -= 1
        if not notified.pending:
            notified.acked_ms = self._now()
        self._check()

    def dropped(self, broker: int) -> None:
        """Count a request that will have no response."""
        notified = self.notified[broker]
        notified.pending -= 1
        notified.dropped += 1
        self.pending -= 1
        self._check()

    def _check(self) -> None:
        if self.is_complete and self.ended is not None:
            ended, self.ended = self.ended, None
            ended(self)

    # -- report --------------------------------------------------------------------------------------------------------

    def record(self) -> ElectionEvent:
        """Returns the course of the event so far, without its outage. To be called for an event with a cause."""
        assert self.because is not None
        acked = {broker: one.acked_ms for broker, one in self.notified.items() if not one.pending}
        acks = [acked_ms for acked_ms in acked.values() if acked_ms is not None]
        return ElectionEvent(
            controller_epoch=self.controller_epoch,
            because=msgspec.structs.replace(self.because, strategy=self.strategy),
            detected_ms=self.wall_ms,
            handled_us=self._since(self.handled_ms),
            complete=self.is_complete,
            failed=self.error is not None,
            planned=self.planned,
            committed=self.committed,
            rejected=self.rejected,
            moved=self.moved,
            stages=Stages(
                (0, self._us(self.started_ms), self._us(self.started_ms)),
                **{name: self._span(stage) for name, stage in self.stages.items()},
            ),
            brokers=tuple(
                Recipient(broker, one.requests, self._us(one.sent_ms), self._since(acked.get(broker)), one.dropped)
                for broker, one in sorted(self.notified.items())
            ),
            first_ack_us=self._since(min(acks, default=None)),
            last_ack_us=self._since(max(acks, default=None)),
        )

    def _us(self, time_ms: float) -> int:
        return round((time_ms - self.detected_ms) * _US)

    def _since(self, time_ms: float | None) -> int | None:
        return None if time_ms is None else self._us(time_ms)

    def _span(self, stage: StageTime) -> Span | None:
        if not stage.count:
            return None
        began_ms, ended_ms, busy_ms = stage.reading()
        return self._us(began_ms), self._us(ended_ms), round(busy_ms * _US)
