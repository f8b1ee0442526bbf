"""Records of the controller's events: of the one in progress, and of those that moved leadership; statistics of all.

The newest RECORDS_MAX records of elections are kept. One is complete, and is added to the event log, once all brokers
have acknowledged their requests; before that it can be read as far as it has come. Numbers and durations are counted by
kind of event. They are read while an event hangs, so nothing here waits for the controller's loop.

Source: the classic controller's ControllerEventManager, QueuedEvent.
"""

import collections
import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec
from opentelemetry.trace import SpanContext

from kactl.decide.messages.events import Event
from kactl.decide.messages.log import Cause, ElectionEvent
from kactl.runtime.clock import Clock

from .event_log import EventLog
from .event_record import EventRecord, Origin
from .metrics import Telemetry

# A day of rolling restarts; at some 5 kB each, with thirty brokers, a few megabytes.
RECORDS_MAX: Final = 1000
# Events with requests that are not acknowledged yet. More of them are recorded as they are: a broker hangs.
OPEN_MAX: Final = 1000
# Elections in progress that are shown as they grow.
LIVE_MAX: Final = 10
# Without an event for this long, earlier waiting times are dropped. Kafka's number.
IDLE_MS: Final = 300_000
Written = Literal["creation", "partitions", "deletion"]
# Requests whose effect has not been read back yet.
_WRITTEN_MAX: Final = 1000
# Between two bins; 240 of them reach from a microsecond to a good two hours, longer ones count as that.
_STEP: Final = math.log(1.1)
_BINS: Final = 240
_MIN_MS: Final = 0.001


class Summary(msgspec.Struct, frozen=True):
    """Summary of the recorded durations; zeros if there are none."""

    count: int = 0
    total_ms: float = 0.0
    min_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0


class Current(msgspec.Struct, frozen=True):
    """The event in progress. `state` as Kafka numbers it.

    Attributes:
        between: the small event that is handled between two chunks of it; empty if there is none.
    """

    label: str
    state: int
    since_ms: int  # wall clock
    for_ms: float
    between: str = ""


class Kind(msgspec.Struct, frozen=True):
    """Statistics of the events of one kind.

    Attributes:
        handled: completed, with an error or not, or ignored because another instance is the controller.
        failed: of these, with an error.
        preempted: never begun, since the session ended or the instance stopped before.
    """

    label: str
    handled: int
    failed: int
    preempted: int
    wait: Summary
    process: Summary


class EventRecords:
    """Records of the events of one controller.

    A large event stays in progress while small ones preempt it. The time of these does not count as its own.

    Args:
        history: receives the records of elections; its `current` is the event in progress.
        first: id of the first event; ids of earlier processes are lower.

    Attributes:
        in_progress: the event in progress, and the small one that preempts it.
    """

    def __init__(
        self, controller_id: int, history: EventLog, clock: Clock, telemetry: Telemetry, *, first: int
    ) -> None:
        self._controller_id = controller_id
        self._history = history
        self._clock = clock
        self._telemetry = telemetry
        self._next = first
        self.in_progress: list[EventRecord] = []
        self._open: dict[int, EventRecord] = {}  # handled, and not complete; by event id
        self._records: collections.deque[ElectionEvent] = collections.deque(maxlen=RECORDS_MAX)
        self._tallies: collections.defaultdict[str, _Tally] = collections.defaultdict(_Tally)
        self._wait = Durations(idle_ms=IDLE_MS)

    def restore(self, records: Iterable[ElectionEvent]) -> None:
        """Insert records of earlier processes, oldest first, before those of this process."""
        self._records.extend(records)
        if self._records:
            self._next = max(self._next, self._records[-1].because.event + 1)

    # -- one event -----------------------------------------------------------------------------------------------------

    def begin(self, event: Event, waited_ms: float, origin: Origin, *, controller_epoch: int) -> EventRecord:
        """Returns the record of an event that begins now, and makes it that of the event in progress."""
        now_ms = self._clock.monotonic_ms()
        tally = self._tallies[event.label]
        tally.started += 1
        tally.wait.add(waited_ms, now_ms=now_ms)
        self._wait.add(waited_ms, now_ms=now_ms)
        self._telemetry.queued(waited_ms)
        first, anchor = 0, None
        if origin.answered:
            parent = origin.answered[0]
            assert parent.because is not None
            first, anchor = parent.because.origin or parent.because.event, parent.anchor
        record = EventRecord(
            self._clock,
            Cause(self._next, event.label, origin=first, request=origin.request, caller=origin.caller),
            event=event,
            origin=origin,
            detected_ms=now_ms - waited_ms,
            wall_ms=self._clock.now_ms() - round(waited_ms),
            controller_epoch=controller_epoch,
            anchor=anchor,
            ended=self._ended,
        )
        self._next += 1
        record.started_ms = now_ms
        if not origin.answered:
            record.span = record.anchor = self._telemetry.spans.begin(
                record, event.state.label, controller_id=self._controller_id, context=origin.context
            )
        self.in_progress.append(record)
        self._history.current = record
        return record

    def end(self, record: EventRecord, *, unchanged: bool) -> None:
        """End the event that was begun last, with `record.error` or without one.

        Args:
            unchanged: whether it was to change something, and did not.
        """
        assert record.event is not None
        self.in_progress.pop()
        self._history.current = self.in_progress[-1] if self.in_progress else self._history.idle
        if record.moved and record.pending:
            assert record.because is not None
            self._open[record.because.event] = record
            if len(self._open) > OPEN_MAX:
                oldest = next(iter(self._open.values()))
                oldest.ended = None
                self._ended(oldest)
        record.handled()
        state = record.event.state
        if record.span is not None:
            self._telemetry.spans.end(record, record.span)
        elif record.origin.answered:
            self._telemetry.spans.answered(record, state.label, controller_id=self._controller_id)
        self._count(record, unchanged=unchanged)

    def _count(self, record: EventRecord, *, unchanged: bool) -> None:
        assert record.event is not None
        now_ms = self._clock.monotonic_ms()
        took_ms = now_ms - record.started_ms
        if self.in_progress:
            self.in_progress[-1].held_ms += took_ms
        took_ms -= record.held_ms
        tally = self._tallies[record.event.label]
        tally.handled += 1
        tally.failed += record.error is not None
        tally.unchanged += unchanged and record.error is None
        tally.process.add(took_ms, now_ms=now_ms)
        if record.event.state.is_timed:
            self._telemetry.processed(record.event.state.label, took_ms)

    def _ended(self, record: EventRecord) -> None:
        if not record.moved:
            return
        assert record.because is not None
        self._open.pop(record.because.event, None)
        outage = self._history.outages.ended(record)
        record.chunks_led = []
        added = self._history.add(msgspec.structs.replace(record.record(), outage=outage))
        assert isinstance(added, ElectionEvent)
        self._records.append(added)
        self._telemetry.elected(added)

    def preempted(self, events: Iterable[Event]) -> None:
        """Count events that will never begin."""
        for event in events:
            self._tallies[event.label].preempted += 1

    # -- records of elections ------------------------------------------------------------------------------------------

    def live(self, *, limit: int = LIVE_MAX) -> list[EventRecord]:
        """Returns the newest events that have moved leadership and are not complete, oldest first."""
        newest = (one for one in (*reversed(self.in_progress), *reversed(self._open.values())) if one.moved)
        return list(islice(newest, limit))[::-1]

    def recent(self, *, limit: int = RECORDS_MAX) -> list[ElectionEvent]:
        """Returns the newest records, newest first; those that are not complete come first."""
        live = [self._stamped(record) for record in reversed(self.live(limit=limit))]
        return [*live, *islice(reversed(self._records), limit - len(live))]

    def _stamped(self, record: EventRecord) -> ElectionEvent:
        return msgspec.structs.replace(record.record(), time_ms=self._clock.now_ms())

    # -- statistics ----------------------------------------------------------------------------------------------------

    @property
    def started(self) -> Mapping[str, int]:
        """Returns the number of events that were begun, by label; the one in progress included."""
        return {label: tally.started for label, tally in self._tallies.items()}

    @property
    def unchanged(self) -> Mapping[str, int]:
        """Returns the number of events that have changed nothing, by label."""
        return {label: tally.unchanged for label, tally in self._tallies.items() if tally.unchanged}

    def kinds(self) -> list[Kind]:
        """Returns the statistics of each kind of event, by label; kinds without an event are left out."""
        now_ms = self._clock.monotonic_ms()
        return [
            Kind(
                label,
                tally.handled,
                tally.failed,
                tally.preempted,
                tally.wait.summary(now_ms=now_ms),
                tally.process.summary(now_ms=now_ms),
            )
            for label, tally in sorted(self._tallies.items())
        ]

    def wait(self) -> Summary:
        """Returns the waiting times of all kinds; empty if there was no event in the last five minutes."""
        return self._wait.summary(now_ms=self._clock.monotonic_ms())

    def current(self) -> Current | None:
        if not self.in_progress:
            return None
        outer, *between = self.in_progress
        assert outer.event is not None
        return Current(
            outer.event.label,
            int(outer.event.state),
            outer.wall_ms + round(outer.started_ms - outer.detected_ms),
            self._clock.monotonic_ms() - outer.started_ms,
            between[0].event.label if between and between[0].event is not None else "",
        )


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

    def written(self, what: Written, topic: str, record: EventRecord) -> None:
        """Remember that an event has written a change of a topic, if a client has requested it or it is traced."""
        if record.because is None or not (record.because.request or record.because.caller or record.anchor):
            return
        span = None if record.anchor is None else record.anchor.get_span_context()
        self._written[what, topic] = _Written(record.because, span)
        if len(self._written) > _WRITTEN_MAX:
            del self._written[next(iter(self._written))]

    def read_back(self, what: Written, topics: Iterable[str], record: EventRecord) -> None:
        """Name the request that the event in progress carries out, unless it carries out those of several events.

        Its span is linked to those of all these events.
        """
        found = [self._written.pop((what, topic), None) for topic in sorted(topics)]
        spans = {each.span.span_id: each.span for each in found if each is not None and each.span is not None}
        record.links += tuple(spans.values())
        first = found[0] if found else None
        is_requested = first is not None and bool(first.cause.request or first.cause.caller)
        if first is not None and is_requested and all(each == first for each in found):
            record.carries_out(first.cause)


class Durations:
    """Count, extremes and percentiles of durations that are added one at a time.

    The bins widen by a tenth from one to the next, from a microsecond up: a percentile is off by five per cent at the
    most, and counting costs the same however much was counted.

    Args:
        idle_ms: counts are cleared when nothing was added for so long, so that they describe the present; None keeps
            all.
    """

    def __init__(self, *, idle_ms: float | None = None) -> None:
        self._idle_ms = idle_ms
        self._last_ms = 0.0
        self._clear()

    def _clear(self) -> None:
        self._bins = [0] * _BINS
        self._count = 0
        self._total_ms = 0.0
        self._min_ms = math.inf
        self._max_ms = 0.0

    def add(self, duration_ms: float, *, now_ms: float) -> None:
        """Count one. `now_ms` is of a clock that never goes back."""
        self._forget_the_past(now_ms)
        self._last_ms = now_ms
        self._bins[_bin(duration_ms)] += 1
        self._count += 1
        self._total_ms += duration_ms
        self._min_ms = min(self._min_ms, duration_ms)
        self._max_ms = max(self._max_ms, duration_ms)

    def summary(self, *, now_ms: float) -> Summary:
        self._forget_the_past(now_ms)
        if not self._count:
            return Summary()
        return Summary(
            self._count, self._total_ms, self._min_ms, self._percentile(0.5), self._percentile(0.99), self._max_ms
        )

    def _forget_the_past(self, now_ms: float) -> None:
        if self._idle_ms is not None and self._count and now_ms - self._last_ms >= self._idle_ms:
            self._clear()

    def _percentile(self, share: float) -> float:
        """The middle of the bin in which it lies, within what was really counted."""
        wanted, seen = math.ceil(self._count * share), 0
        for at, count in enumerate(self._bins):
            seen += count
            if seen >= wanted:
                middle = _MIN_MS * math.exp((at + 0.5) * _STEP)
                return min(max(middle, self._min_ms), self._max_ms)
        return self._max_ms


def _bin(duration_ms: float) -> int:
    if duration_ms <= _MIN_MS:
        return 0
    return min(int(math.log(duration_ms / _MIN_MS) / _STEP), _BINS - 1)


class _Tally:
    """Numbers of events of one kind, and their durations."""

    def __init__(self) -> None:
        self.started = self.handled = self.failed = self.preempted = self.unchanged = 0
        self.wait = Durations()
        self.process = Durations()
