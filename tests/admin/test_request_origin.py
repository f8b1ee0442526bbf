"""Origin of requests: their ids, clients and traces in the events that they lead to."""

import re

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kactl.admin.schema import BrokerEvent, ElectionList, EventPage, Problem, RequestEvent, TopicEvent
from tests.admin.conftest import Served, served
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


async def test_events_of_a_request_name_it_and_its_client(server: Served) -> None:
    answered = await server.post("/v1/brokers/1/drain", headers={"X-Request-Id": "maintenance-7"})
    await settle()

    events = (await server.get("/v1/events?kinds=broker&kinds=request&limit=1000")).read(EventPage).items
    drained = [event for event in events if isinstance(event, BrokerEvent) and event.what == "drained"]
    requests = [event for event in events if isinstance(event, RequestEvent)]
    because = drained[-1].because
    assert answered.headers["X-Request-Id"] == "maintenance-7"
    assert because is not None
    assert (because.trigger, because.request) == ("ControlledShutdown", "maintenance-7")
    assert because.caller == "token:local"
    assert (requests[-1].request, requests[-1].principal) == ("maintenance-7", because.caller)
    election = (await server.get("/v1/elections/recent?limit=1")).read(ElectionList).items[0]
    assert election.because.request == "maintenance-7"
    assert election.because.strategy == "controlled shutdown"


async def test_changes_of_topics_name_the_request_that_wrote_them(server: Served) -> None:
    """The store reports the write of a request in an event of its own."""

    async def topic_event(what: str) -> TopicEvent:
        await settle()
        events = (await server.get("/v1/events?kinds=topic&limit=1000")).read(EventPage).items
        return [event for event in events if isinstance(event, TopicEvent) and event.what == what][-1]

    topic = {"name": "asked", "partitions": 2, "replication_factor": 3}
    assert (await server.post("/v1/topics", topic, headers={"X-Request-Id": "make-1"})).status == 201
    created = await topic_event("created")
    await server.ask("PATCH", "/v1/topics/asked", json={"partitions": 3}, headers={"X-Request-Id": "grow-2"})
    grown = await topic_event("grown")
    elections = (await server.get("/v1/elections/recent?limit=1")).read(ElectionList).items
    await server.ask("DELETE", "/v1/topics/asked?reason=test", headers={"X-Request-Id": "drop-3"})
    deleted = await topic_event("deletion started")
    await server.controller.create_topic("own", partitions=1, replication_factor=3)
    own = await topic_event("created")

    causes = [event.because for event in (created, grown, deleted, own)]
    assert [cause and (cause.trigger, cause.request, cause.caller) for cause in causes] == [
        ("TopicChange", "make-1", "token:local"),
        ("PartitionModifications", "grow-2", "token:local"),
        ("TopicDeletion", "drop-3", "token:local"),
        ("TopicChange", "", ""),
    ]
    assert all(cause is not None and 0 < cause.origin < cause.event for cause in causes[:3])
    assert elections[0].because.request == "grow-2"


async def test_request_without_an_id_gets_one_of_its_own(server: Served) -> None:
    first = await server.post("/v1/brokers/1/drain")
    second = await server.post("/v1/brokers/2/drain")
    read = await server.get("/v1/brokers")

    ids = [first.headers["X-Request-Id"], second.headers["X-Request-Id"]]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in ids)
    assert "X-Request-Id" not in read.headers


@pytest.mark.parametrize("given", ["two words", "x" * 129, "<b>"])
async def test_invalid_request_id_is_rejected_by_name(server: Served, given: str) -> None:
    before = await server.state()

    answered = await server.post("/v1/brokers/1/drain", headers={"X-Request-Id": given})

    assert answered.status == 400
    assert "X-Request-Id" in msgspec.json.decode(answered.body, type=Problem).detail
    assert await server.state() == before


@pytest.mark.parametrize(
    ("traceparent", "continued"),
    [(f"00-{TRACE}-{PARENT}-01", True), (f"00-{TRACE}-{PARENT}", False), ("00-0-0-01", False)],
)
async def test_trace_context_of_a_request_is_continued(traceparent: str, continued: bool) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with served(tracer_provider=provider) as server:
        await server.controller.create_topic("orders", partitions=4, replication_factor=3)
        await settle()
        spans.clear()

        drained = await server.post("/v1/brokers/1/drain", headers={"traceparent": traceparent})
        await settle()

        (event,) = [span for span in spans.get_finished_spans() if span.name == "controller.event ControlledShutdown"]
        assert drained.status == 200
        assert event.context is not None
        assert (f"{event.context.trace_id:032x}" == TRACE) == continued
        assert (event.parent is not None and f"{event.parent.span_id:016x}" == PARENT) == continued
