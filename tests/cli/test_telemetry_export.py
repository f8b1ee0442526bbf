"""Export of metrics and traces: both arrive at a collector, and a server works without one."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from kactl.cli.serving import embedded
from kactl.cli.telemetry_export import endpoint_of, telemetry_of
from kactl.config.file import load
from kactl.config.settings import Config
from kactl.model.errors import BadConfig
from kactl.telemetry.scope import SCHEMA_URL, version

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Collector:
    """An HTTP server that keeps the requests it receives, as (path, body)."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def traces(self) -> list[Any]:
        """Returns the spans of each resource of all requests."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        bodies = [body for path, body in self.received if path == "/v1/traces"]
        return [one for body in bodies for one in ExportTraceServiceRequest.FromString(body).resource_spans]

    def metrics(self) -> list[Any]:
        """Returns the metrics of each resource of all requests."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        bodies = [body for path, body in self.received if path == "/v1/metrics"]
        return [one for body in bodies for one in ExportMetricsServiceRequest.FromString(body).resource_metrics]


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    thread = threading.Thread(target=one.server.serve_forever)
    thread.start()
    yield one
    one.server.shutdown()
    thread.join()
    one.server.server_close()


def config_of(tmp_path: Path, otlp: str) -> Config:
    return load(
        None,
        {},
        {
            "node-id": 7,
            "cluster": "orders-eu",
            "participants.count": 1,
            "api.listen": "127.0.0.1:0",
            "store.path": str(tmp_path / "kactl.db"),
            "store.session-timeout": "4s",
            "telemetry.otlp": otlp,
        },
    )


async def test_traces_and_metrics_arrive_under_one_resource(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs kactl[otlp]")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=canary,service.namespace=named")

    async with embedded(config_of(tmp_path, collector.url), note=lambda text: None) as server:
        await server.controller.create_topic("t", replication_factor=1)
        async with aiohttp.ClientSession() as http, http.get(f"{server.address.url}/livez") as answer:
            assert answer.status == 200

    traces, metrics = collector.traces(), collector.metrics()
    spans = [span for resource in traces for scope in resource.scope_spans for span in scope.spans]
    assert {path for path, _ in collector.received} == {"/v1/traces", "/v1/metrics"}
    assert {"controller.event TopicChange", "commit", "LeaderAndIsr"} <= {span.name for span in spans}
    names = {metric.name for resource in metrics for scope in resource.scope_metrics for metric in scope.metrics}
    assert {"kafka.controller.active.count", "kactl.event.started", "kactl.store.batch.size"} <= names
    assert "http.server.request.duration" in names
    scopes = [scope for resource in traces for scope in resource.scope_spans]
    scopes += [scope for resource in metrics for scope in resource.scope_metrics]
    assert {(scope.scope.name, scope.scope.version, scope.schema_url) for scope in scopes} == {
        ("kactl", version(), SCHEMA_URL)
    }
    for resource in (*traces, *metrics):
        attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
        assert attributes["service.name"] == "kactl"
        assert attributes["service.version"] == version()
        assert attributes["service.instance.id"] == "7"
        # What the environment names prevails, for both.
        assert attributes["service.namespace"] == "named"
        assert attributes["deployment.environment.name"] == "canary"


async def test_metrics_are_exported_periodically(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs kactl[otlp]")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")

    async with embedded(config_of(tmp_path, collector.url), note=lambda text: None):
        with anyio.fail_after(60):
            while len(collector.metrics()) < 3:  # noqa: ASYNC110 (a thread receives them)
                await anyio.sleep(0.01)

    first = {metric.name for scope in collector.metrics()[0].scope_metrics for metric in scope.metrics}
    assert "kafka.controller.active.count" in first


async def test_server_works_and_stops_without_its_collector(tmp_path: Path, collector: Collector) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs kactl[otlp]")
    closed = Collector()
    closed.server.server_close()

    async with embedded(config_of(tmp_path, closed.url), note=lambda text: None) as server:
        await server.controller.create_topic("t", replication_factor=1)

        assert server.controller.partition("t-0") is not None


async def test_missing_exporter_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)

    with pytest.raises(BadConfig, match=r"telemetry\.otlp.*pip install.*\[otlp\]"):
        async with telemetry_of(config_of(tmp_path, "http://127.0.0.1:4318")):
            pass


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://h", "http://", "http://h:70000", "http://h/a?b"])
def test_invalid_collector_is_rejected_by_name(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadConfig, match=r"telemetry\.otlp"):
        config_of(tmp_path, url)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:4318", "http://h:4318"),
        ("http://h:4318/", "http://h:4318"),
        ("https://h/otlp", "https://h/otlp"),
        ("https://h/otlp/v1/traces", "https://h/otlp"),
        ("https://h/v1/metrics", "https://h"),
    ],
)
def test_path_of_each_signal_is_appended_to_the_address(url: str, base: str) -> None:
    assert (endpoint_of(url, "traces"), endpoint_of(url, "metrics")) == (f"{base}/v1/traces", f"{base}/v1/metrics")
