"""What the controller measures, as text for Prometheus.

The meter provider and the registry belong to one server; nothing global is set, and nothing but this server's own
`/metrics` reads them.
"""

from collections.abc import Callable
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def telemetry_for_server() -> tuple[MeterProvider, Callable[[], bytes]]:
    """A meter provider for a Controller, and what renders everything that was recorded with it.

    Rendering reads what the controller keeps, so it has to be done in the controller's own thread.
    """
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
    # No exit handler: it would keep every provider of the process alive until its end.
    provider = SdkMeterProvider([reader], resource=Resource({"service.name": "kactl"}), shutdown_on_exit=False)

    def render() -> bytes:
        return bytes(generate_latest(registry))

    return provider, render
