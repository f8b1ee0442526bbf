"""Metrics of leases. Uses the OpenTelemetry API only: without a provider of the host program nothing is recorded."""

from opentelemetry import metrics

from kactl.telemetry.scope import meter_of

from .events import LeaseEvent, LeaseLapsed

# In milliseconds: a healthy event loop is late by less than one, and a lease by no more than its timeout.
_BOUNDS = [1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 20_000.0, 60_000.0]


class LeaseMetrics:
    """Instruments of one participant.

    Args:
        meter_provider: None uses the host program's.
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None) -> None:
        self._late = meter_of(meter_provider).create_histogram(
            "kactl.participant.lease.late_ms",
            unit="ms",
            description="from the end of a lease to the moment at which the event loop found that out",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )

    def record(self, event: LeaseEvent) -> None:
        if isinstance(event, LeaseLapsed):
            self._late.record(event.late_ms)
