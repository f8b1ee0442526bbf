"""Preconditions: writes that are rejected if their object or the controller has changed."""

import asyncio
from typing import Any

import pytest

from kactl.admin.routes.route_table import ROUTES
from kactl.model.errors import TopicBeingDeleted, TopicExists
from tests.admin.conftest import Served
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio

WRITES: dict[str, tuple[str, str, Any, str]] = {
    "create": ("POST", "/v1/topics", {"name": "x", "replication_factor": 1}, "/v1/controller"),
    "elect": ("POST", "/v1/elections", {"type": "preferred", "all": True}, "/v1/controller"),
    "reassign": (
        "POST",
        "/v1/reassignments",
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 1]}]},
        "/v1/controller",
    ),
    "resign": ("POST", "/v1/controller/resign", {"expected_epoch": 1, "reason": "a"}, "/v1/controller"),
    "release": ("POST", "/v1/controller/release", {"controller_id": 7}, "/v1/controller"),
    "grow": ("PATCH", "/v1/topics/orders", {"partitions": 5}, "/v1/topics/orders"),
    "configure": ("PATCH", "/v1/topics/orders", {"config": {"a": "b"}}, "/v1/topics/orders"),
    "delete": ("DELETE", "/v1/topics/orders?reason=a", None, "/v1/topics/orders"),
    "cancel": ("DELETE", "/v1/reassignments/orders/0", None, "/v1/topics/orders/partitions/0"),
    "drain": ("POST", "/v1/brokers/1/drain", {}, "/v1/brokers/1"),
    "kill": ("POST", "/v1/brokers/1/kill", {"reason": "a"}, "/v1/brokers/1"),
    "restart": ("POST", "/v1/brokers/1/restart", {}, "/v1/brokers/1"),
    "reset": ("POST", "/v1/topics/orders/partitions/0/replicas/1/reset", {}, "/v1/controller"),
}


def conditions(headers: dict[str, str] | None, query: dict[str, str], body: Any) -> dict[str, Any]:
    return {"headers": headers or {}, "params": query} | ({} if body is None else {"json": body})


@pytest.mark.parametrize(("method", "path", "body", "read"), WRITES.values(), ids=WRITES.keys())
async def test_stale_version_is_rejected(shared: Served, method: str, path: str, body: Any, read: str) -> None:
    before = await shared.state()

    of_version = await shared.ask(method, path, **conditions({"If-Match": '"stale"'}, {}, body))
    of_epoch = await shared.ask(method, path, **conditions(None, {"expected_controller_epoch": "7"}, body))

    assert (of_version.status, of_epoch.status) == (412, 412)
    assert of_version.headers["ETag"] == (await shared.get(read)).headers["ETag"]
    assert of_version.json()["errors"][0]["header"] == "If-Match"
    assert of_epoch.json()["error_name"] == "STALE_CONTROLLER_EPOCH"
    assert "which is 1" in of_epoch.json()["detail"]
    assert await shared.state() == before


@pytest.mark.parametrize(("method", "path", "body", "read"), WRITES.values(), ids=WRITES.keys())
async def test_present_version_is_accepted(server: Served, method: str, path: str, body: Any, read: str) -> None:
    etag = (await server.get(read)).headers["ETag"]

    answer = await server.ask(
        method, path, **conditions({"If-Match": f'"other", {etag}'}, {"expected_controller_epoch": "1"}, body)
    )

    # No replica has failed: the request for its reset has passed the precondition, and is refused afterwards.
    assert answer.status in ((409,) if path.endswith("/reset") else (200, 201, 202)), answer.body


def test_every_write_route_is_covered() -> None:
    tested = {(method, path.partition("?")[0]) for method, path, *_ in WRITES.values()}
    computing = {("POST", "/v1/reassignment-plans"), ("POST", "/v1/whatif")}  # change nothing
    logins = {("POST", "/v1/login"), ("POST", "/v1/login-codes")}  # have no object

    values = {"topic": "orders", "partition": 0, "id": 1, "broker": 1}
    filled = {(route.method, route.path.format(**values)) for route in ROUTES if route.writes}

    assert filled - computing - logins == tested


async def test_versions_change_with_their_object(server: Served) -> None:
    async def etags() -> list[str]:
        paths = ("/v1/controller", "/v1/topics/orders", "/v1/topics/orders/partitions/0", "/v1/brokers/3")
        return [(await server.get(path)).headers["ETag"] for path in paths]

    first = await etags()
    assert await etags() == first

    await server.ask("PATCH", "/v1/topics/orders", json={"config": {"a": "b"}})
    configured = await etags()
    await server.ask("PATCH", "/v1/topics/orders", json={"partitions": 5})
    grown = await etags()
    await server.post("/v1/brokers/1/kill", {"reason": "a"})
    await server.clock.advance(30_000)
    await settle()
    moved = await etags()

    assert [a != b for a, b in zip(first, configured, strict=True)] == [False, True, False, False]
    assert [a != b for a, b in zip(configured, grown, strict=True)] == [False, True, False, False]
    assert [a != b for a, b in zip(grown, moved, strict=True)] == [False, False, True, False]


async def test_second_write_with_the_same_version_is_rejected(server: Served) -> None:
    etag = (await server.get("/v1/topics/orders")).headers["ETag"]
    writes = [
        server.ask("PATCH", "/v1/topics/orders", json={"config": {f"k{number}": "v"}}, headers={"If-Match": etag})
        for number in range(5)
    ]

    answers = await asyncio.gather(*writes)

    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412, 412]
    overrides = (await server.controller.store.topic_configs(["orders"]))["orders"]
    assert overrides is not None
    assert len(overrides) == 1


async def test_wildcard_matches_existing_objects(server: Served) -> None:
    some = await server.ask("PATCH", "/v1/topics/orders", json={"partitions": 5}, headers={"If-Match": "*"})
    none = await server.ask("PATCH", "/v1/topics/nix", json={"partitions": 5}, headers={"If-Match": "*"})

    assert some.status == 200
    assert none.status == 412
    assert "the resource does not exist" in none.json()["detail"]


async def test_standby_rejects_preconditions_as_not_the_controller(standby: Served) -> None:
    answer = await standby.post("/v1/topics?expected_controller_epoch=1", {"name": "x", "replication_factor": 1})

    assert answer.status == 503
    assert answer.json()["error_name"] == "NOT_CONTROLLER"


# -- error messages ----------------------------------------------------------------------------------------------------


async def test_creation_during_a_deletion_is_rejected_with_the_reason(server: Served) -> None:
    assert server.participants is not None
    await server.participants.kill(3)
    await server.clock.advance(30_000)
    await settle()
    assert (await server.ask("DELETE", "/v1/topics/orders", params={"timeout_ms": "0", "reason": "a"})).status == 202

    answer = await server.post("/v1/topics", {"name": "orders", "replication_factor": 1})

    assert answer.status == 409
    problem = answer.json()
    assert problem["type"] == "urn:kactl:problem:topic-being-deleted"
    assert problem["error_name"] == "TOPIC_ALREADY_EXISTS"
    assert "is being deleted. Wait until it is gone" in problem["detail"]
    with pytest.raises(TopicExists) as refused:
        await server.controller.create_topic("orders", replication_factor=1)
    assert type(refused.value) is TopicBeingDeleted


@pytest.mark.parametrize("suffix", ["", "/explanation"])
async def test_missing_partition_of_a_topic_is_named(server: Served, suffix: str) -> None:
    missing = await server.get(f"/v1/topics/orders/partitions/99{suffix}")
    unknown = await server.get(f"/v1/topics/nix/partitions/99{suffix}")

    assert (missing.status, unknown.status) == (404, 404)
    assert missing.json()["type"] == "urn:kactl:problem:no-such-partition"
    assert missing.json()["detail"] == "topic orders has no partition 99: it has 4, numbered from 0"
    assert unknown.json()["detail"] == "there is no topic nix"
