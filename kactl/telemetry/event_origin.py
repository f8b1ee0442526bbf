"""Origin of a controller event: the request or the other event that led to it.

The origin travels in the context of the task that queues the event. The inbox stores it with the event.
"""

import contextvars
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import SpanContext

from kactl.decide.messages.log import Cause

from .event_trace import EventTrace

if TYPE_CHECKING:
    from kactl.security.access import Principal

Written = Literal["creation", "partitions", "deletion"]
# Requests whose effect has not been read back yet.
_WRITTEN_MAX: Final = 1000


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
    answered: tuple[EventTrace, ...] = ()
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


class _Written(NamedTuple):
    """The event that wrote a change, and its span if the trace is recorded."""

    cause: Cause
    span: SpanContext | None


class StoredRequests:
    """Requests that the controller has written into the store, for the events that read them back.

    A created topic, new partitions and a deletion take effect when the store reports them, in an event of their own.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[Written, str], _Written] = {}

    def written(self, what: Written, topic: str, trace: EventTrace) -> None:
        """Remember that an event has written a change of a topic, if a client has requested it or it is traced."""
        if trace.because is None or not (trace.because.request or trace.because.caller or trace.anchor):
            return
        span = None if trace.anchor is None else trace.anchor.get_span_context()
        self._written[what, topic] = _Written(trace.because, span)
        if len(self._written) > _WRITTEN_MAX:
            del self._written[next(iter(self._written))]

    def read_back(self, what: Written, topics: Iterable[str], trace: EventTrace) -> None:
        """Name the request that the event in progress carries out, unless it carries out those of several events.

        Its span is linked to those of all these events.
        """
        found = [self._written.pop((what, topic), None) for topic in sorted(topics)]
        spans = {each.span.span_id: each.span for each in found if each is not None and each.span is not None}
        trace.links += tuple(spans.values())
        first = found[0] if found else None
        is_requested = first is not None and bool(first.cause.request or first.cause.caller)
        if first is not None and is_requested and all(each == first for each in found):
            trace.carries_out(first.cause)
