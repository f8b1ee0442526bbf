"""Audit trail: one line and one event for each request that changes something, written once the outcome is known."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from kactl.admin.audit import AUDIT_LOGGER
from kactl.admin.schema import EventPage, RequestEvent
from kactl.model import Assignment, TopicRef
from kactl.model.errors import StoreError, StoreUnavailable
from kactl.stores.memory import MemoryStore
from tests.admin.conftest import Served, served
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio

REASON = "rack 7 is moved"


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=AUDIT_LOGGER)


def audit_trail(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the lines about outcomes."""
    lines = [record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER]
    return [line for line in lines if not line.endswith(": begins")]


async def request_events(server: Served) -> list[RequestEvent]:
    page = (await server.get("/v1/events", params={"kinds": "request"})).read(EventPage)
    return [event for event in page.items if isinstance(event, RequestEvent)]


@pytest.mark.parametrize(
    ("method", "path", "body", "action", "target"),
    [
        ("POST", "/v1/topics", {"name": "new"}, "create topic", "new"),
        ("PATCH", "/v1/topics/orders", {"config": {"a": "b"}}, "change topic", "orders"),
        ("DELETE", "/v1/topics/orders", None, "delete topic", "orders"),
        ("POST", "/v1/brokers/2/kill", {}, "kill broker", "2"),
        ("POST", "/v1/brokers/2/restart", {}, "restart broker", "2"),
        ("POST", "/v1/brokers/2/drain", {}, "drain broker", "2"),
        ("POST", "/v1/elections", {"type": "preferred", "all": True}, "elect preferred leaders", "all partitions"),
        (
            "POST",
            "/v1/reassignments",
            {"partitions": [{"topic": "orders", "partition": at, "replicas": [2, 3, 1]} for at in (0, 1)]},
            "reassign",
            "orders-0 and 1 more partitions",
        ),
        ("POST", "/v1/controller/resign", {"expected_epoch": 1}, "resign", "epoch 1"),
    ],
)
async def test_change_is_recorded_with_its_reason(
    server: Served,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    action: str,
    target: str,
) -> None:
    if body is None:
        answer = await server.ask(method, path, params={"reason": REASON})
    else:
        answer = await server.ask(method, path, json={**body, "reason": REASON})
    await settle()

    assert answer.status in (200, 201)
    (event,) = await request_events(server)
    assert (event.action, event.target, event.outcome, event.reason) == (action, target, "done", REASON)
    assert event.controller_epoch == 1
    assert audit_trail(caplog) == [f"{action} {target}: done; requested over the API by token:local, reason: {REASON}"]


async def test_cancelled_reassignment_names_its_partition(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    await server.ask("DELETE", "/v1/reassignments/orders/0", params={"reason": REASON})

    (line,) = audit_trail(caplog)
    assert line.startswith("cancel reassignment of orders-0: failed (1 of 1 partitions failed, the first: ")
    assert await request_events(server) == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics", {"name": "new"}),
        ("PATCH", "/v1/topics/orders", {"partitions": 5}),
        ("POST", "/v1/brokers/2/drain", {}),
        ("POST", "/v1/elections", {"type": "preferred", "all": True}),
    ],
)
async def test_dry_run_is_not_recorded(
    shared: Served, caplog: pytest.LogCaptureFixture, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = await shared.ask(method, path, json={**body, "dry_run": True, "reason": REASON})

    assert answer.status == 200
    assert audit_trail(caplog) == []
    assert await request_events(shared) == []


async def test_rejected_change_is_logged_without_an_event(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    answer = await server.post("/v1/topics", {"name": "orders", "reason": REASON})

    assert answer.status == 409
    (line,) = audit_trail(caplog)
    assert line.startswith("create topic orders: failed (Topic 'orders' already exists.")
    assert line.endswith(f"; requested over the API by token:local, reason: {REASON}")
    assert await request_events(server) == []


async def test_long_name_is_truncated(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    await server.post("/v1/topics", {"name": "x" * 100_000})

    (line,) = audit_trail(caplog)
    assert "more characters): failed (name: 100000 characters, at most 249 are allowed)" in line
    assert len(line) < 3_000


async def test_deletion_in_progress_is_unfinished(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    answer = await server.ask("DELETE", "/v1/topics/orders", params={"timeout_ms": "0", "reason": "to see"})

    assert answer.status == 202
    (event,) = await request_events(server)
    assert (event.outcome, event.detail) == ("unfinished", "the topic is marked for deletion")
    assert audit_trail(caplog)[0].endswith("reason: to see")


class FullStore(MemoryStore):
    """Rejects topics and overrides, as a store on a full disk does."""

    async def create_topic(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
    ) -> None:
        if topic.name != "orders":
            raise StoreUnavailable("the disk is full")
        await super().create_topic(topic, assignment, config)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        raise StoreUnavailable("the disk is full")


async def test_change_rejected_by_the_store_is_not_reported_as_done(caplog: pytest.LogCaptureFixture) -> None:
    async with served(store=FullStore()) as server:
        await server.controller.create_topic("orders", partitions=1, replication_factor=1)
        created = await server.post("/v1/topics", {"name": "new", "reason": REASON})
        changed = await server.ask("PATCH", "/v1/topics/orders", json={"config": {"a": "b"}})
        recorded = await request_events(server)

    assert (created.status, changed.status) == (503, 503)
    assert [line.split(";")[0] for line in audit_trail(caplog)] == [
        "create topic new: unknown (the disk is full)",
        "change topic orders: unknown (the disk is full)",
    ]
    assert [event.outcome for event in recorded] == ["unknown", "unknown"]


class BusyStore(MemoryStore):
    """Rejects overrides without a change."""

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        raise StoreError("nothing was changed")


async def test_change_with_a_rejected_part_is_partly_done(caplog: pytest.LogCaptureFixture) -> None:
    async with served(store=BusyStore()) as server:
        await server.controller.create_topic("orders", partitions=1, replication_factor=1)
        config_only = await server.ask("PATCH", "/v1/topics/orders", json={"config": {"a": "b"}})
        both = await server.ask("PATCH", "/v1/topics/orders", json={"partitions": 2, "config": {"a": "b"}})
        recorded = await request_events(server)

    assert (config_only.status, both.status) == (503, 503)
    assert [line.split(" (")[0] for line in audit_trail(caplog)] == [
        "change topic orders: failed",
        "change topic orders: partly",
    ]
    assert [event.outcome for event in recorded] == ["partly"]


async def test_reasons_are_in_the_event_stream(server: Served) -> None:
    await server.post("/v1/brokers/3/drain", {"reason": REASON})

    async with server.http.get(
        f"{server.url}/v1/events/stream?kinds=request", headers={"Last-Event-ID": "0"}
    ) as stream:
        while not (line := await stream.content.readline()).startswith(b"data:"):
            assert line
    assert REASON.encode() in line
