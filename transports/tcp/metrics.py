"""Metrics of links. Uses the OpenTelemetry API only: without a provider of the host program nothing is recorded.

There are no labels by topic or by broker.
"""

from collections.abc import Iterable
from typing import Final

from opentelemetry import metrics

from kactl.telemetry.scope import meter_of

from .framing import Lane, Message

# In milliseconds: a round trip on a local network takes less than one.
_BOUNDS: Final = [0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0]


class LinkMetrics:
    """Instruments of one network.

    Args:
        meter_provider: None uses the host program's.
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None) -> None:
        meter = meter_of(meter_provider)
        self._bytes = meter.create_counter("kactl.network.bytes", unit="By", description="by lane and direction")
        self._messages = meter.create_counter("kactl.network.messages", description="received messages, by lane")
        self._links = meter.create_up_down_counter("kactl.network.links", description="open links, by role of the peer")
        self._failures = meter.create_counter(
            "kactl.network.handshake.failures", description="connections without a complete handshake, by reason"
        )
        self._violations = meter.create_counter(
            "kactl.network.violations", description="links that were closed because the peer broke the protocol"
        )
        self._connects = meter.create_counter(
            "kactl.network.connects", description="links that this process has opened, reconnections included"
        )
        self._round_trip = meter.create_histogram(
            "kactl.network.heartbeat.round_trip_ms",
            unit="ms",
            description="from a heartbeat to its answer",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )

        self._queues: dict[int, dict[Lane, int]] = {}
        meter.create_observable_gauge(
            "kactl.network.queued",
            [self._queued],
            unit="By",
            description="bytes that wait in the links of this process, by lane",
        )

    def _queued(self, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        for lane in Lane:
            waiting = sum(queue[lane] for queue in self._queues.values())
            yield metrics.Observation(waiting, {"lane": lane.name.lower()})

    def watch_queue(self, key: int, queued: dict[Lane, int]) -> None:
        """Count the bytes that wait in a link, until `forget_queue`."""
        self._queues[key] = queued

    def forget_queue(self, key: int) -> None:
        """Count a link no more."""
        self._queues.pop(key, None)

    def queues(self) -> list[dict[Lane, int]]:
        """Returns the bytes that wait in each link."""
        return list(self._queues.values())

    def sent(self, lane: Lane, size: int) -> None:
        self._bytes.add(size, {"lane": lane.name.lower(), "direction": "sent"})

    def received(self, message: Message) -> None:
        lane = message.lane.name.lower()
        self._bytes.add(message.size, {"lane": lane, "direction": "received"})
        self._messages.add(1, {"lane": lane})

    def opened(self, role: str) -> None:
        self._links.add(1, {"role": role})

    def closed(self, role: str) -> None:
        self._links.add(-1, {"role": role})

    def handshake_failed(self, reason: str) -> None:
        self._failures.add(1, {"reason": reason})

    def violation(self) -> None:
        self._violations.add(1)

    def connected(self) -> None:
        self._connects.add(1)

    def round_trip(self, took_ms: float) -> None:
        self._round_trip.record(took_ms)
