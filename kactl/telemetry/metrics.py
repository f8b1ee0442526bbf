"""Metrics and traces. Uses the OpenTelemetry API only: no provider is created or set here.

Measurements are made per event and per request, never per partition. Values that exist as integers are read at
collection (`observe`), so they cost the event path nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

# Bucket bounds in seconds, fine around the expected time of an election.
_BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_MS: Final = 1000.0

Reading = Callable[[], Iterable[tuple[float, Mapping[str, str | int]]]]

# Gauges that are read from the controller's state: name, unit, description.
GAUGES: Final = (
    ("kafka.controller.active.count", "{controller}", "1 on the active controller, 0 elsewhere"),
    ("kafka.controller.state", "", "what the controller is doing, as Kafka's number"),
    ("kafka.controller.topic.count", "{topic}", "topics known to the controller"),
    ("kafka.controller.partition.count", "{partition}", "partitions that have leadership information"),
    ("kafka.partition.offline", "{partition}", "partitions without a leader that is online"),
    ("kafka.partition.underReplicated", "{partition}", "partitions whose ISR is smaller than their assignment"),
    ("kafka.controller.partition.preferred_imbalance", "{partition}", "not led by their preferred replica"),
    ("kafka.controller.topic.deletion.pending", "{topic}", "topics that wait for deletion"),
    ("kafka.controller.topic.deletion.ineligible", "{topic}", "of these, topics whose deletion cannot go on now"),
    ("kafka.controller.replica.deletion.pending", "{replica}", "replicas of these topics that are not deleted yet"),
    ("kafka.controller.replica.deletion.ineligible", "{replica}", "of these, replicas that cannot be deleted now"),
    ("kafka.controller.partition.reassigning", "{partition}", "partitions that are being moved to other replicas"),
    ("kafka.leader.count", "{partition}", "partitions that a broker leads"),
    ("kafka.partition.count", "{partition}", "partitions of which a broker holds a replica"),
    ("kafka.controller.broker.active", "{broker}", "registered brokers"),
    ("kafka.controller.broker.fenced", "{broker}", "always 0: there is no fencing of brokers here"),
    ("kafka.controller.event.queue.size", "{event}", "events that wait"),
    ("kafka.controller.broker.queue.size", "{request}", "requests that wait for a broker, the one in flight included"),
    ("kactl.controller.broker.queue.oldest", "s", "for how long the oldest of them has waited"),
    ("kactl.standby.partition.count", "{partition}", "partitions that an instance which stands by has read"),
    ("kactl.actor.mailbox.size", "{message}", "messages that wait for an actor"),
    ("kactl.listener.connections", "{connection}", "connections to the Kafka listener: of brokers, and of all others"),
    ("kactl.listener.memory.reserved", "By", "memory reserved for large requests to the Kafka listener"),
    ("kactl.api.connections", "{connection}", "connections to the admin API"),
    ("kactl.controller.epoch", "", "the controller epoch that we act under; 0 if we are not the controller"),
)
COUNTERS: Final = (
    ("kafka.leaderElection.unclean.count", "{election}", "leaders that were not in sync when they were elected"),
    ("kactl.actor.mailbox.refused.count", "{message}", "messages that a full inbox did not take"),
    ("kactl.listener.request.count", "{request}", "requests that the Kafka listener answered or relayed"),
    ("kactl.listener.refused.count", "{connection}", "connections and requests that the Kafka listener refused"),
    ("kactl.api.refused.count", "{connection}", "connections that the admin API refused or cut, by reason"),
    ("kactl.assignment.rewritten.count", "{partition}", "new partitions that named a controller as a replica"),
    ("kactl.controller.change.count", "{change}", "how often this instance was elected"),
)


class Telemetry:
    """Instruments of one controller instance.

    Args:
        meter_provider: None uses the host program's; without any, nothing is recorded.
        tracer_provider: the same for spans; there is one span for each event.
    """

    def __init__(
        self,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("kactl", tracer_provider=tracer_provider)
        self._meter = metrics.get_meter("kactl", meter_provider=meter_provider)
        self._closed = False
        self._processed = self._histogram("kafka.controller.event.process.duration", "time to handle an event")
        self._queued = self._histogram("kafka.controller.event.queue.duration", "wait of an event before it is handled")
        self._waited = self._histogram("kafka.controller.broker.queue.duration", "wait of a request in its channel")
        self._delivered = self._histogram("kactl.controller.request.duration", "from sending a request to its answer")

    def _histogram(self, name: str, meaning: str) -> metrics.Histogram:
        return self._meter.create_histogram(
            name, unit="s", description=meaning, explicit_bucket_boundaries_advisory=list(_BOUNDS)
        )

    def event(
        self, kind: str, state: str, *, controller_id: int, epoch: int, queued_ms: float
    ) -> AbstractContextManager[trace.Span]:
        """Returns the span of an event, which lasts while the event is handled."""
        return self._tracer.start_as_current_span(
            f"controller.event {state}",
            attributes={
                "kafka.controller.id": controller_id,
                "kafka.controller.epoch": epoch,
                "kafka.controller.state": state,
                "kactl.event.kind": kind,
                "kactl.event.queue_ms": queued_ms,
            },
            record_exception=False,  # rejections are results; failures are recorded by `failed`
            set_status_on_exception=False,
        )

    def failed(self, error: Exception) -> None:
        """Record a failure of the current event."""
        span = trace.get_current_span()
        span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR, str(error))

    def processed(self, state: str, duration_ms: float) -> None:
        """Record that an event was handled, in the state of Kafka's name."""
        self._processed.record(duration_ms / _MS, {"kafka.controller.state": state})

    def queued(self, duration_ms: float) -> None:
        """Record the time that an event waited before it was handled."""
        self._queued.record(duration_ms / _MS)

    def waited(self, broker: int, duration_ms: float) -> None:
        """Record the time that a request waited in a broker's channel."""
        self._waited.record(duration_ms / _MS, {"kafka.broker.id": broker})

    def delivered(self, kind: str, duration_ms: float) -> None:
        """Record the time until a broker responded to a request."""
        self._delivered.record(duration_ms / _MS, {"rpc.method": kind})

    def observe(self, readings: Mapping[str, Reading]) -> None:
        """Register the gauges and counters above, to be read by calling `readings`, by name, at collection."""
        for table, create in (
            (GAUGES, self._meter.create_observable_gauge),
            (COUNTERS, self._meter.create_observable_counter),
        ):
            for name, unit, meaning in table:
                if name in readings:
                    create(name, callbacks=[self._callback(readings[name])], unit=unit, description=meaning)

    def close(self) -> None:
        """Stop all readings: a stopped instance must not look like an idle one."""
        self._closed = True

    def _callback(self, reading: Reading) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def collect(_: CallbackOptions) -> Iterable[Observation]:
            if self._closed:
                return []
            return [Observation(value, dict(attributes)) for value, attributes in reading()]

        return collect
