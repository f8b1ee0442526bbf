"""Export of traces to a collector, over OTLP with HTTP."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

import anyio
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from kactl.config.settings import Config
from kactl.model.errors import BadConfig
from kactl.runtime.threads import run_in_thread

# Path of traces at a collector.
_PATH: Final = "/v1/traces"
# One attempt to send a batch; the exporter retries within this time.
_TIMEOUT_S: Final = 10.0
# How long a stop waits for the last batch.
_STOP_S: Final = 5.0


@contextlib.asynccontextmanager
async def exporting(config: Config) -> AsyncIterator[TracerProvider | None]:
    """Export the traces that are recorded while the block runs. Yields None without `telemetry.otlp`.

    A thread sends the spans in batches. If the collector cannot be reached, spans are dropped and a line is logged;
    nothing waits for it.

    Raises:
        BadConfig: the exporter is not installed.
    """
    telemetry = config.telemetry
    if not telemetry.otlp:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise BadConfig("telemetry.otlp", 'needs an optional package: pip install "kactl[otlp]"') from None
    resource = Resource.create(
        {"service.name": "kactl", "service.namespace": config.cluster, "service.instance.id": str(config.node_id)}
    )
    # No exit handler: it would keep the provider alive until the process ends.
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(telemetry.trace_ratio), resource=resource, shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=endpoint_of(telemetry.otlp), timeout=_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider
    finally:
        with anyio.move_on_after(_STOP_S, shield=True):
            await run_in_thread(provider.shutdown, abandon_on_cancel=True)


def endpoint_of(url: str) -> str:
    """Returns the address for traces: the URL itself, or the usual path below it if it has none."""
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + _PATH
