"""The admin API mounted in an aiohttp application of another program, over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

import kactl
from kactl import admin
from kactl.admin.routes.route_table import ROUTES
from kactl.model.errors import BadRequest
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio

TOPIC = {"name": "jobs", "partitions": 1, "replication_factor": 1, "reason": "because"}


class Answered:
    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status, self.headers, self.body = response.status, response.headers, body

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url

    async def ask(self, method: str, path: str, **more: Any) -> Answered:
        async with self.http.request(method, self.url + path, **more) as response:
            return Answered(response, await response.read())


@asynccontextmanager
async def running(host: web.Application) -> AsyncIterator[Client]:
    """Serve an application as any program does, without anything of kactl."""
    runner = web.AppRunner(host, shutdown_timeout=3600)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host_name, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession() as http:
            yield Client(http, f"http://{host_name}:{port}")
    finally:
        await runner.cleanup()


@web.middleware
async def stamp(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    """A middleware of the host."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        error.headers["Host-Stamp"] = "error"
        raise
    response.headers["Host-Stamp"] = "seen"
    return response


def host_with(mounted: web.Application, prefix: str = "/kactl") -> web.Application:
    host = web.Application(middlewares=[stamp])
    host.add_subapp(prefix, mounted)
    return host


def opened(controller: kactl.Controller, prefix: str = "/kactl") -> web.Application:
    return admin.application(controller, access=admin.Open(), prefix=prefix)


@asynccontextmanager
async def cluster() -> AsyncIterator[kactl.Controller]:
    async with (
        kactl.Controller(100, auto_balance=False) as controller,
        kactl.Participants(1, store=controller.store, hub=controller.hub),
    ):
        await controller.wait_active()
        while not controller.brokers():
            await controller.history.changed()
        yield controller


async def test_requests_before_the_controller_runs_and_after_it_get_503() -> None:
    controller = kactl.Controller(100)
    async with running(host_with(opened(controller))) as client:
        early = await client.ask("GET", "/kactl/v1/topics")
        assert (early.status, early.headers["Content-Type"]) == (503, "application/problem+json")
        assert early.headers["Retry-After"] == "1"
        assert early.json()["instance"] == "/kactl/v1/topics"
        assert (await client.ask("GET", "/kactl/readyz")).status == 503
        assert (await client.ask("GET", "/kactl/livez")).status == 200

        async with controller:
            await controller.wait_active()
            assert (await client.ask("GET", "/kactl/v1/topics")).status == 200
            assert (await client.ask("GET", "/kactl/readyz")).status == 200

        assert (await client.ask("GET", "/kactl/v1/topics")).status == 503


@pytest.mark.parametrize(("folder", "listed"), [("", []), ("/proc/none", ["network"])])
async def test_network_without_a_secret_is_listed_as_insecure(
    folder: str, listed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", folder or str(tmp_path))
    async with kactl.Controller(0, network=kactl.TcpNetwork(listen="127.0.0.1:0")) as controller:
        await controller.wait_active()
        async with running(host_with(opened(controller))) as client:
            found = (await client.ask("GET", "/kactl/v1/controller")).json()

    assert [entry["interface"] for entry in found["insecure"]] == ["api", *listed]


async def test_controller_can_be_looked_up_for_each_request() -> None:
    present: list[kactl.Controller] = []
    mounted = admin.application(lambda: present[0] if present else None, access=admin.Open(), prefix="/kactl")
    async with running(host_with(mounted)) as client:
        assert (await client.ask("GET", "/kactl/v1/controller")).status == 503
        for number in (3, 4):
            async with kactl.Controller(number) as controller:
                present[:] = [controller]
                answer = await client.ask("GET", "/kactl/v1/controller")
                assert answer.json()["node_id"] == number


async def test_prefix_is_in_all_addresses() -> None:
    async with (
        cluster() as controller,
        running(host_with(opened(controller))) as client,
    ):
        created = await client.ask("POST", "/kactl/v1/topics", json=TOPIC)
        missing = await client.ask("GET", "/kactl/v1/topics/none")
        unknown = await client.ask("GET", "/kactl/nothing")
        document = (await client.ask("GET", "/kactl/openapi.json")).json()

        assert created.status == 201
        assert created.headers["Location"] == "/kactl/v1/topics/jobs"
        assert (await client.ask("GET", created.headers["Location"])).status == 200
        assert missing.json()["instance"] == "/kactl/v1/topics/none"
        assert unknown.json()["instance"] == "/kactl/nothing"
        assert "/kactl/openapi.json lists all routes" in unknown.json()["detail"]
        assert document["servers"] == [{"url": "/kactl"}]


async def test_a_proxy_may_remove_the_prefix() -> None:
    async with (
        cluster() as controller,
        running(opened(controller, "/ops")) as client,
    ):
        assert (await client.ask("GET", "/v1/topics/none")).json()["instance"] == "/ops/v1/topics/none"


async def test_host_keeps_its_middlewares_and_its_errors() -> None:
    async with cluster() as controller:
        host = host_with(opened(controller))
        host.router.add_get("/own", _refuse)
        async with running(host) as client:
            own, other = await client.ask("GET", "/own"), await client.ask("GET", "/elsewhere")
            ours, missing = await client.ask("GET", "/kactl/livez"), await client.ask("GET", "/kactl/nothing")

    assert (own.status, own.body, own.headers["Host-Stamp"]) == (409, b"mine", "error")
    assert (other.status, other.headers["Host-Stamp"]) == (404, "error")
    assert other.headers["Content-Type"].startswith("text/plain")
    assert "Cache-Control" not in other.headers
    assert ours.headers["Host-Stamp"] == "seen"
    assert "kactl" not in ours.headers["Server"]
    assert (missing.status, missing.headers["Host-Stamp"]) == (404, "seen")
    assert missing.headers["Content-Type"] == "application/problem+json"


async def _refuse(_: web.Request) -> web.Response:
    raise web.HTTPConflict(text="mine")


async def test_shutdown_of_the_host_ends_streams_at_once() -> None:
    async with cluster() as controller:
        runner = web.AppRunner(host_with(opened(controller)), shutdown_timeout=3600)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        url = f"http://127.0.0.1:{port}/kactl/v1/events/stream"
        async with aiohttp.ClientSession() as http, http.get(url) as stream:
            assert await stream.content.readline() == b"retry: 2000\n"

            async with asyncio.timeout(60):  # and not the hour that requests may take
                await runner.cleanup()

            await stream.content.read()


async def test_errors_name_the_controller_to_admitted_clients_alone() -> None:
    """Without authentication, all clients are admitted. Applications decide otherwise for theirs."""

    async def admit(request: admin.AccessRequest) -> admin.Principal | None:
        return admin.Principal("someone") if "X-User" in request.headers else None

    async def read_only(principal: admin.Principal, action: admin.Action) -> admin.Decision:
        return admin.Allow() if action.effect == "read" else admin.Deny("only reads")

    async with cluster() as controller:
        mounted = admin.application(controller, access=admin.Delegated(admit, read_only), prefix="/kactl")
        async with running(host_with(opened(controller))) as client:
            assert (await client.ask("GET", "/kactl/v1/topics/none")).json()["controller"]["id"] == 100
        async with running(host_with(mounted)) as client:
            user = {"X-User": "1"}
            found = await client.ask("GET", "/kactl/v1/topics/none", headers=user)
            denied = await client.ask("POST", "/kactl/v1/topics", headers=user, json=TOPIC)
            unknown = await client.ask("GET", "/kactl/v1/topics/none")

    assert (found.status, found.json()["controller"]["id"]) == (404, 100)
    assert [(answer.status, answer.json()["controller"]["id"]) for answer in (denied, unknown)] == [
        (403, None),
        (401, None),
    ]


async def test_several_applications_serve_one_controller() -> None:
    async with cluster() as controller:
        host = web.Application()
        for prefix in ("/one", "/two"):
            host.add_subapp(prefix, opened(controller, prefix))
        async with running(host) as client:
            created = await client.ask("POST", "/one/v1/topics", json=TOPIC)
            assert created.headers["Location"] == "/one/v1/topics/jobs"
            assert (await client.ask("GET", "/two/v1/topics/jobs")).status == 200
        assert controller.is_active


async def test_every_read_answers_head_and_if_match() -> None:
    async with (
        cluster() as controller,
        running(host_with(opened(controller))) as client,
    ):
        await controller.create_topic("orders", partitions=1, replication_factor=1)
        for route in ROUTES:
            if route.method != "GET":
                continue
            path = "/kactl" + route.path.format(id=1, topic="orders", partition=0, event=1)
            head = await client.ask("HEAD", path)
            assert head.body == b"", path
            if not path.endswith("/stream"):
                got = await client.ask("GET", path)
                assert (head.status, head.headers["Content-Type"]) == (got.status, got.headers["Content-Type"]), path
                matched = await client.ask("GET", path, headers={"If-Match": got.headers.get("ETag", '"1"')})
                other = await client.ask("GET", path, headers={"If-Match": '"other"'})
                expected = (200, 412) if route.version is not None else (501, 501)
                assert (matched.status, other.status) == expected, path
            else:
                assert head.headers["Content-Type"].startswith("text/event-stream")


async def test_a_single_participant_can_be_killed() -> None:
    async with kactl.Controller(100) as controller:
        participant = kactl.Participant(7, store=controller.store, hub=controller.hub)
        mounted = admin.application(controller, access=admin.Open(), prefix="/kactl", participants=participant)
        async with participant, running(host_with(mounted)) as client:
            assert (await client.ask("POST", "/kactl/v1/brokers/8/kill", json={"reason": "a"})).status == 404
            assert (await client.ask("POST", "/kactl/v1/brokers/7/kill", json={"reason": "a"})).status == 200
            await participant.wait_closed()
            await settle()


@pytest.mark.parametrize("prefix", ["kactl", "/kactl/", "/"])
def test_prefix_has_one_form(prefix: str) -> None:
    with pytest.raises(BadRequest, match="prefix"):
        opened(kactl.Controller(1), prefix)
