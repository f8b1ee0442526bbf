"""Export of traces: spans arrive at a collector, and a server works without one."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kactl.cli.serving import embedded
from kactl.cli.tracing import endpoint_of, exporting
from kactl.config.file import load
from kactl.config.settings import Config
from kactl.model.errors import BadConfig

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


async def test_traces_of_a_server_arrive_at_the_collector(tmp_path: Path, collector: Collector) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs kactl[otlp]")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    async with embedded(config_of(tmp_path, collector.url), note=lambda text: None) as server:
        await server.controller.create_topic("t", replication_factor=1)

    resources = [
        resource
        for _, body in collector.received
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
    ]
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
    attributes = {pair.key: pair.value.string_value for pair in resources[0].resource.attributes}
    assert {path for path, _ in collector.received} == {"/v1/traces"}
    assert {"controller.event TopicChange", "commit", "LeaderAndIsr"} <= {span.name for span in spans}
    assert (attributes["service.name"], attributes["service.namespace"], attributes["service.instance.id"]) == (
        "kactl",
        "orders-eu",
        "7",
    )


async def test_server_works_and_stops_without_its_collector(tmp_path: Path, collector: Collector) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs kactl[otlp]")
    closed = Collector()
    closed.server.server_close()

    async with embedded(config_of(tmp_path, closed.url), note=lambda text: None) as server:
        await server.controller.create_topic("t", replication_factor=1)

        assert server.controller.partition("t-0") is not None


async def test_missing_exporter_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    with pytest.raises(BadConfig, match=r"telemetry\.otlp.*kactl\[otlp\]"):
        async with exporting(config_of(tmp_path, "http://127.0.0.1:4318")):
            pass


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://h", "http://", "http://h:70000", "http://h/a?b"])
def test_invalid_collector_is_rejected_by_name(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadConfig, match=r"telemetry\.otlp"):
        config_of(tmp_path, url)


def test_path_of_traces_is_appended_to_a_bare_address() -> None:
    assert endpoint_of("http://h:4318") == "http://h:4318/v1/traces"
    assert endpoint_of("http://h:4318/") == "http://h:4318/v1/traces"
    assert endpoint_of("https://h/otlp/traces") == "https://h/otlp/traces"
