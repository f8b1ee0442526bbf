"""Metrics and traces. Uses the OpenTelemetry API only: no provider is created or set here.

Measurements are made per event and per request, never per partition. Values that exist as integers are read at
collection (`observe`), so they cost the event path nothing.
"""

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

from kactl.decide.messages.log import ElectionEvent

from .event_spans import EventSpans
from .outages import BOUNDS_S, Outages
from .scope import meter_of, tracer_of

# Bucket bounds in seconds, fine around the expected time of an election.
_BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_SIZES: Final = (1, 10, 100, 1000, 10_000, 100_000)
_UNAVAILABLE: Final = "kactl.partition.unavailable.duration"
_BOUNDS_OF: Final = {
    _UNAVAILABLE: BOUNDS_S,
    # Those of the semantic conventions.
    "http.server.request.duration": (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
}
# The gauge whose reading records the outages: it is read at each collection, before the histograms are.
_WITH_OUTAGES: Final = "kactl.partition.unavailable.oldest"
# Outages that one collection records. OpenTelemetry records one value in 4 us, and a collection runs in the event loop;
# those of a larger failure are recorded by the next collections.
_RECORDED_MAX: Final = 10_000
_MS: Final = 1000.0

Reading = Callable[[], Iterable[tuple[float, Mapping[str, str | int]]]]

# Gauges that are read from the controller's state: name, unit, description.
GAUGES: Final = (
    ("kafka.controller.active.count", "{controller}", "1 on the active controller, 0 elsewhere"),
    ("kafka.controller.state", "", "what the controller is doing, as Kafka's number"),
    ("kafka.controller.topic.count", "{topic}", "topics known to the controller"),
    ("kafka.controller.partition.count", "{partition}", "partitions that have leadership information"),
    ("kafka.partition.offline", "{partition}", "partitions without a leader that is online"),
    ("kactl.partition.unavailable.oldest", "s", "for how long a partition has been without a leader, at the most"),
    ("kafka.partition.underReplicated", "{partition}", "partitions whose ISR is smaller than their assignment"),
    ("kafka.controller.partition.under_min_isr", "{partition}", "partitions whose ISR is too small, or without leader"),
    ("kafka.controller.partition.at_min_isr", "{partition}", "partitions with an ISR of exactly min.insync.replicas"),
    (
        "kafka.controller.partition.preferred_imbalance",
        "{partition}",
        "partitions led by other replicas than the first",
    ),
    ("kafka.controller.topic.deletion.pending", "{topic}", "topics that wait for deletion"),
    ("kafka.controller.topic.deletion.ineligible", "{topic}", "topics whose deletion cannot go on now"),
    ("kafka.controller.replica.deletion.pending", "{replica}", "replicas of such topics that are not deleted yet"),
    ("kafka.controller.replica.deletion.ineligible", "{replica}", "replicas whose deletion has failed for now"),
    ("kafka.controller.partition.reassigning", "{partition}", "partitions that are being moved to other replicas"),
    ("kafka.leader.count", "{partition}", "partitions that a broker leads"),
    ("kafka.partition.count", "{partition}", "partitions of which a broker holds a replica"),
    ("kafka.controller.broker.active", "{broker}", "registered brokers"),
    ("kafka.controller.broker.fenced", "{broker}", "registered participants that the controller has not reached yet"),
    ("kactl.replica.status.count", "{replica}", "replicas of participants with a handler that is not ready, by status"),
    ("kactl.replica.failures", "{failure}", "most failures in a row of a handler, by topic; absent if none fails"),
    ("kactl.replica.next_attempt", "s", "time until the last failed handler is called again, by topic; absent if none"),
    ("kactl.shard.state.count", "{shard}", "shards (partitions of ownership topics) in each state, as unowned"),
    ("kactl.shard.owner.count", "{shard}", "shards that a participant owns"),
    ("kafka.controller.event.queue.size", "{event}", "events that wait"),
    ("kactl.controller.event.queue.oldest", "s", "for how long the oldest event has waited"),
    ("kafka.controller.broker.queue.size", "{request}", "requests that wait for a broker, the one in flight included"),
    ("kactl.controller.broker.queue.oldest", "s", "for how long the oldest request to a broker has waited"),
    ("kactl.standby.partition.count", "{partition}", "partitions that an instance which stands by has read"),
    ("kactl.actor.mailbox.size", "{message}", "messages that wait for an actor"),
    ("kactl.listener.connections", "{connection}", "connections to the Kafka listener: of brokers, and of all others"),
    ("kactl.listener.memory.reserved", "By", "memory reserved for large requests to the Kafka listener"),
    ("kactl.api.connections", "{connection}", "connections to the admin API"),
    ("kactl.certificate.expiry", "s", "end of validity of the certificate of an interface, in seconds since 1970"),
    ("kactl.security.reload_failed", "", "1 while changed tokens, certificates, users or secrets cannot be read"),
    ("kactl.security.insecure", "", "1 for an interface without encryption or authentication"),
    ("kactl.store.in_flight", "{request}", "requests that the store has not answered yet"),
    ("kactl.store.session.state", "", "1 for the state of the session with the store: connected, suspended, expired"),
    ("kactl.sse.client.count", "{client}", "open event streams of the admin API"),
    ("kactl.event_log.lag", "{event}", "events that the state-change log has not written yet"),
    ("kactl.build_info", "", "always 1; the version of kactl and of Python"),
    ("kactl.controller.session.count", "{session}", "participants that have their session with the controller"),
    ("kactl.controller.epoch", "", "the controller epoch that we act under; 0 if we are not the controller"),
)
COUNTERS: Final = (
    ("kafka.leaderElection.unclean.count", "{election}", "leaders that were not in sync when they were elected"),
    ("kafka.isr.operation.count", "{operation}", "ISRs that leaders have shrunk or expanded, and updates that failed"),
    ("kactl.event.started", "{event}", "events that were begun"),
    ("kactl.event.unchanged", "{event}", "notifications of the store that have changed nothing"),
    ("kactl.isr.proposal.rejected", "{proposal}", "ISRs that leaders have proposed in vain, by error"),
    ("kactl.transitions.refused", "{transition}", "changes of state that partitions or replicas could not make"),
    ("kactl.event.timed_out", "{event}", "requests whose caller had stopped waiting when they were begun"),
    ("kactl.actor.busy.duration", "s", "time during which an actor handled messages, waiting for the store included"),
    ("kactl.actor.mailbox.refused.count", "{message}", "messages that a full inbox did not take"),
    ("kactl.audit.lost.count", "{record}", "records of the audit trail that its files did not take"),
    ("kactl.listener.request.count", "{request}", "requests that the Kafka listener answered or relayed"),
    ("kactl.listener.refused.count", "{connection}", "connections and requests that the Kafka listener refused"),
    ("kactl.api.refused.count", "{connection}", "connections that the admin API refused or cut, by reason"),
    ("kactl.assignment.rewritten.count", "{partition}", "new partitions that named a controller as a replica"),
    ("kactl.controller.heartbeat.count", "{heartbeat}", "heartbeats of participants, by what became of them"),
    ("kactl.controller.session.ended.count", "{session}", "sessions of participants that have ended, by cause"),
    ("kactl.store.session.transition.count", "{change}", "how often the session with the store entered a state"),
    ("kactl.controller.change.count", "{change}", "how often this instance was elected"),
)
HISTOGRAMS: Final = (
    ("kafka.controller.event.process.duration", "s", "time to handle an event"),
    ("kafka.controller.event.queue.duration", "s", "wait of an event before it is handled"),
    ("kafka.controller.broker.queue.duration", "s", "wait of a request in its channel"),
    ("kactl.election.duration", "s", "stages of an event that moved leadership"),
    ("kactl.controller.request.duration", "s", "from sending a request to its answer"),
    ("kactl.store.request.duration", "s", "time of a request to the store"),
    ("kactl.store.batch.size", "{partition}", "partitions of one commit to the store"),
    (_UNAVAILABLE, "s", "time of partitions without a leader, until the new leader has acknowledged"),
    ("http.server.request.duration", "s", "time to answer a request to the admin API"),
    ("kactl.loop.lag", "s", "by how much a timer of the event loop was late"),
)


class _Instruments:
    """Instruments of one meter provider, which all its controllers share: a provider ignores a second callback.

    Attributes:
        live: the controllers that are read. The provider outlives them, and must not keep them.
    """

    def __init__(self, meter: metrics.Meter) -> None:
        self._meter = meter
        self._observed: set[str] = set()
        self.live: tuple[weakref.ref[Telemetry], ...] = ()
        self.histograms = {
            name: meter.create_histogram(
                name,
                unit=unit,
                description=meaning,
                explicit_bucket_boundaries_advisory=list(_BOUNDS_OF.get(name, _BOUNDS if unit == "s" else _SIZES)),
            )
            for name, unit, meaning in HISTOGRAMS
        }

    def observe(self, names: Iterable[str]) -> None:
        """Create the gauges and counters of these names that do not exist."""
        new = set(names) - self._observed
        self._observed |= new
        for table, create in (
            (GAUGES, self._meter.create_observable_gauge),
            (COUNTERS, self._meter.create_observable_counter),
        ):
            for name, unit, meaning in table:
                if name in new:
                    # Numbers of things add up; times, flags and states do not.
                    merge = operator.add if table is COUNTERS or unit.startswith("{") else max
                    create(name, callbacks=[self._callback(name, merge)], unit=unit, description=meaning)

    def _callback(
        self, name: str, merge: Callable[[float, float], float]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def collect(_: CallbackOptions) -> Iterable[Observation]:
            values: dict[frozenset[tuple[str, str | int]], float] = {}
            for telemetry in filter(None, [reference() for reference in self.live]):
                if name == _WITH_OUTAGES:
                    telemetry.record_outages()
                for value, attributes in telemetry.read(name):
                    key = frozenset(attributes.items())
                    values[key] = merge(values[key], value) if key in values else value
            return [Observation(value, dict(key)) for key, value in values.items()]

        return collect


_instruments: Final[weakref.WeakKeyDictionary[metrics.MeterProvider, _Instruments]] = weakref.WeakKeyDictionary()


# Those of the API's stand-in pass over to the host program's provider when it is set.
_of_host: Final[list[_Instruments]] = []


def _instruments_of(meter_provider: metrics.MeterProvider | None) -> _Instruments:
    host = metrics.get_meter_provider()
    provider = host if meter_provider is None else meter_provider
    found = _instruments.get(provider)
    if found is None and provider is host and _of_host:
        return _of_host[0]
    if found is None:
        found = _instruments.setdefault(provider, _Instruments(meter_of(provider)))
    if provider is host and not _of_host:
        _of_host.append(found)
    return found


class Telemetry:
    """Measurements of one controller instance.

    Controllers of one provider that have the same attributes are measured together.

    Args:
        meter_provider: None uses the host program's; without any, nothing is recorded.
        tracer_provider: the same for spans.
        cluster_name: the attribute `kactl.cluster` of all measurements, if it is not empty.

    Attributes:
        spans: makes the spans.
    """

    def __init__(
        self,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        cluster_name: str = "",
    ) -> None:
        self.spans = EventSpans(tracer_of(tracer_provider))
        self._instruments = _instruments_of(meter_provider)
        self._histograms = self._instruments.histograms
        self._attributes: dict[str, str | int] = {"kactl.cluster": cluster_name} if cluster_name else {}
        self._readings: dict[str, Reading] = {}
        self._outages: Outages | None = None
        self._instruments.live = (
            *(other for other in self._instruments.live if other() is not None),
            weakref.ref(self),
        )

    def processed(self, state: str, duration_ms: float) -> None:
        """Record that an event was handled, in the state of Kafka's name."""
        self._record("kafka.controller.event.process.duration", duration_ms, {"kafka.controller.state": state})

    def queued(self, duration_ms: float) -> None:
        """Record the time that an event waited before it was handled."""
        self._record("kafka.controller.event.queue.duration", duration_ms)

    def waited(self, broker: int, duration_ms: float) -> None:
        """Record the time that a request waited in a broker's channel."""
        self._record("kafka.controller.broker.queue.duration", duration_ms, {"kafka.broker.id": broker})

    def delivered(self, kind: str, duration_ms: float) -> None:
        """Record the time until a broker responded to a request."""
        self._record("kactl.controller.request.duration", duration_ms, {"rpc.method": kind})

    def stored(self, operation: str, duration_ms: float, error: str) -> None:
        """Record a request to the store; `error` is the name of the exception that it failed with."""
        attributes: dict[str, str | int] = {"op": operation, "error.type": error} if error else {"op": operation}
        self._record("kactl.store.request.duration", duration_ms, attributes)

    def committed(self, rows: int) -> None:
        """Record the number of partitions of a commit."""
        self._histograms["kactl.store.batch.size"].record(rows, self._attributes)

    def lagged(self, duration_ms: float) -> None:
        """Record by how much a timer of the event loop was late."""
        self._record("kactl.loop.lag", duration_ms)

    def elected(self, record: ElectionEvent) -> None:
        """Record the stages of an event that moved leadership, once it is complete."""
        kind = record.because.strategy
        for stage, duration_us in _stages_us(record):
            self._record("kactl.election.duration", duration_us / _MS, {"stage": stage, "election.type": kind})

    def requested(self, duration_ms: float, attributes: Mapping[str, str | int]) -> None:
        """Record a request to the admin API, with the attributes of OpenTelemetry's conventions."""
        self._record("http.server.request.duration", duration_ms, attributes)

    def watch(self, outages: Outages) -> None:
        """Record outages from now on, at each collection."""
        self._outages = outages

    def record_outages(self) -> None:
        """Record the outages that have ended since the last collection."""
        if self._outages is not None:
            for planned, histogram in ((False, self._outages.forced), (True, self._outages.planned)):
                for value_ms, count in histogram.unread(_RECORDED_MAX):
                    for _ in range(count):
                        self._record(_UNAVAILABLE, value_ms, {"kactl.election.planned": planned})

    def _record(self, name: str, duration_ms: float, attributes: Mapping[str, str | int] | None = None) -> None:
        self._histograms[name].record(duration_ms / _MS, {**(attributes or {}), **self._attributes})

    def observe(self, readings: Mapping[str, Reading]) -> None:
        """Register the gauges and counters above, to be read by calling `readings`, by name, at collection."""
        self._readings.update(readings)
        self._instruments.observe(readings)

    def read(self, name: str) -> Iterator[tuple[float, Mapping[str, str | int]]]:
        """Yields the values of a gauge or counter and their attributes; none if there is no reading of that name."""
        reading = self._readings.get(name)
        if reading is not None:
            for value, attributes in reading():
                yield value, {**attributes, **self._attributes}

    def close(self) -> None:
        """Stop all readings: a stopped instance must not look like an idle one.

        The readings refer to the instance, which is freed without them.
        """
        self.record_outages()
        self._outages = None
        self._readings.clear()


def _stages_us(record: ElectionEvent) -> Iterator[tuple[str, int]]:
    """Yields the time of each stage: in use for those of the controller, since the detection for acknowledgements."""
    for stage in record.stages.__struct_fields__:
        span = getattr(record.stages, stage)
        if span is not None:
            yield stage, span[2]
    for stage, since_us in (
        ("handled", record.handled_us),
        ("first_ack", record.first_ack_us),
        ("last_ack", record.last_ack_us),
    ):
        if since_us is not None:
            yield stage, since_us
