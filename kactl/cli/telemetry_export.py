"""Providers of metrics and traces of a server, and their export to a collector over OTLP with HTTP."""

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

import anyio
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from kactl.admin.prometheus import telemetry_for_server
from kactl.config.settings import Config
from kactl.model.errors import BadConfig
from kactl.runtime.background import Background
from kactl.runtime.installation import install
from kactl.runtime.logs import logger
from kactl.runtime.threads import run_in_thread
from kactl.telemetry.scope import SCHEMA_URL, version

_LOG: Final = logger(__name__)
# One attempt to send a batch; the exporter retries within this time.
_TIMEOUT_S: Final = 10.0
# How long a stop waits for the last batch.
_STOP_S: Final = 5.0
# OpenTelemetry's default.
_INTERVAL_MS: Final = 60_000.0


class _MetricExport(NamedTuple):
    reader: InMemoryMetricReader
    exporter: MetricExporter


class ServerTelemetry(NamedTuple):
    """Telemetry of one server.

    Attributes:
        tracer_provider: None without `telemetry.otlp`.
        render_metrics: renders all metrics for Prometheus; in the event loop's thread.
    """

    meter_provider: MeterProvider
    tracer_provider: TracerProvider | None
    render_metrics: Callable[[], bytes]
    exported: _MetricExport | None

    @contextlib.asynccontextmanager
    async def exporting_metrics(self) -> AsyncIterator[None]:
        """Export metrics while the block runs, and once at its end, which must precede the controller's.

        They are collected in the event loop, as the gauges read the controller's state, and sent by a thread. If the
        collector cannot be reached, a line is logged, and the next export has the same metrics.
        """
        if self.exported is None:
            yield
            return
        async with Background("the export of metrics") as tasks:
            tasks.start_soon(_export_periodically, self.exported, name="export of metrics")
            yield
        with anyio.move_on_after(_STOP_S, shield=True):
            await _export(self.exported)


@contextlib.asynccontextmanager
async def telemetry_of(config: Config) -> AsyncIterator[ServerTelemetry]:
    """Make the providers of a server, and export its traces while the block runs if there is a collector.

    A thread sends the spans in batches. If the collector cannot be reached, spans are dropped and a line is logged;
    nothing waits for it.

    Raises:
        BadConfig: the exporter is not installed.
    """
    resource, url = _resource_of(config), config.telemetry.otlp
    if not url:
        meter_provider, render = telemetry_for_server(resource)
        yield ServerTelemetry(meter_provider, None, render, None)
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise BadConfig("telemetry.otlp", f"needs an optional package: {install('otlp')}") from None
    exporter = OTLPMetricExporter(endpoint=endpoint_of(url, "metrics"), timeout=_TIMEOUT_S)
    # As PeriodicExportingMetricReader, whose thread would read the controller's state while the loop changes it.
    reader = InMemoryMetricReader(exporter._preferred_temporality, exporter._preferred_aggregation)
    meter_provider, render = telemetry_for_server(resource, [reader])
    # No exit handler: it would keep the provider alive until the process ends.
    tracer_provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(config.telemetry.trace_ratio), resource=resource, shutdown_on_exit=False
    )
    spans = OTLPSpanExporter(endpoint=endpoint_of(url, "traces"), timeout=_TIMEOUT_S)
    tracer_provider.add_span_processor(BatchSpanProcessor(spans))
    try:
        yield ServerTelemetry(meter_provider, tracer_provider, render, _MetricExport(reader, exporter))
    finally:
        with anyio.move_on_after(_STOP_S, shield=True):
            await run_in_thread(tracer_provider.shutdown, abandon_on_cancel=True)


async def _export_periodically(exported: _MetricExport) -> None:
    try:
        interval_ms = float(os.environ.get(OTEL_METRIC_EXPORT_INTERVAL, _INTERVAL_MS))
    except ValueError:
        interval_ms = 0.0
    if not interval_ms > 0:
        _LOG.warning("%s is not a number of milliseconds: it is %g", OTEL_METRIC_EXPORT_INTERVAL, _INTERVAL_MS)
        interval_ms = _INTERVAL_MS
    while True:
        await anyio.sleep(interval_ms / 1000)
        await _export(exported)


async def _export(exported: _MetricExport) -> None:
    data = exported.reader.get_metrics_data()
    if data is not None:
        try:
            await run_in_thread(exported.exporter.export, data, abandon_on_cancel=True)
        except Exception:  # the exporter reports failures of the collector itself
            _LOG.exception("the metrics were not exported")


def _resource_of(config: Config) -> Resource:
    """Returns the attributes of this process; those of `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` prevail."""
    own = {
        "service.name": "kactl",
        "service.namespace": config.cluster,
        "service.instance.id": str(config.node_id),
        "service.version": version(),
    }
    return Resource.create(own, SCHEMA_URL).merge(OTELResourceDetector().detect())


def endpoint_of(url: str, signal: str) -> str:
    """Returns the address for `traces` or `metrics`: OTLP's path below the URL, which may name that of a signal."""
    base = url.rstrip("/").removesuffix("/v1/traces").removesuffix("/v1/metrics")
    return f"{base}/v1/{signal}"
