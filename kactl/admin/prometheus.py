"""Metrics of the controller in Prometheus text format.

The meter provider and the registry belong to one server. Nothing global is set, and only this server's `/metrics` reads
them.
"""

from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def telemetry_for_server(
    resource: Resource | None = None, readers: Sequence[MetricReader] = ()
) -> tuple[MeterProvider, Callable[[], bytes]]:
    """Returns a meter provider for a Controller, and a function that renders everything recorded with it.

    Args:
        resource: of the process; OpenTelemetry's default if None.
        readers: others that collect from the provider.

    Rendering reads state of the controller, so it must run in the controller's thread.
    """
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
    # No exit handler: it would keep every provider of the process alive until exit.
    provider = SdkMeterProvider([reader, *readers], resource=resource, shutdown_on_exit=False)

    def render() -> bytes:
        return bytes(generate_latest(registry))

    return provider, render
