"""Metrics of the controller in Prometheus text format.

The meter provider and the registry belong to one server. Nothing global is set, and only this server's `/metrics` reads
them.
"""

from collections.abc import Callable, Iterator
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from kactl.telemetry.outages import BOUNDS_S, Histogram, Outages

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def telemetry_for_server() -> tuple[MeterProvider, Callable[[], bytes]]:
    """Returns a meter provider for a Controller, and a function that renders everything recorded with it.

    Rendering reads state of the controller, so it must run in the controller's thread.
    """
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
    # No exit handler: it would keep every provider of the process alive until exit.
    provider = SdkMeterProvider([reader], resource=Resource({"service.name": "kactl"}), shutdown_on_exit=False)

    def render() -> bytes:
        return bytes(generate_latest(registry))

    return provider, render


def render_outages(outages: Outages) -> bytes:
    """Returns the histogram of the time that partitions were without a leader.

    OpenTelemetry's histograms count one value at a time, which takes too long for all partitions of a broker.
    """
    registry = CollectorRegistry()
    registry.register(_OutageCollector(outages))
    return bytes(generate_latest(registry))


class _OutageCollector:
    def __init__(self, outages: Outages) -> None:
        self._outages = outages

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "kactl_partition_unavailable_duration_seconds",
            "time of partitions without a leader, until the new leader has acknowledged",
            labels=["kactl_election_planned"],
        )
        for planned, histogram in (("false", self._outages.forced), ("true", self._outages.planned)):
            family.add_metric([planned], _buckets(histogram), sum_value=histogram.total_ms / 1000)
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
    return [(bound, float(count)) for bound, count in zip(bounds, histogram.counts.cumsum().tolist(), strict=True)]
