"""The admin API mounted in an aiohttp application of another program, over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from aiohttp import web

import kactl
from kactl import admin
from kactl.admin.routes.route_table import ROUTES
from kactl.errors import BadRequest
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
    runner = web.AppRunner(host, shutdown_timeout=60)
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
    async with running(host_with(admin.application(controller, prefix="/kactl"))) as client:
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


async def test_controller_can_be_looked_up_for_each_request() -> None:
    present: list[kactl.Controller] = []
    mounted = admin.application(lambda: present[0] if present else None, prefix="/kactl")
    async with running(host_with(mounted)) as client:
        assert (await client.ask("GET", "/kactl/v1/controller")).status == 503
        for number in (3, 4):
            async with kactl.Controller(number) as controller:
                present[:] = [controller]
                answer = await client.ask("GET", "/kactl/v1/controller")
                assert answer.json()["node_id"] == number


async def test_prefix_is_in_all_addresses() -> None:
    async with cluster() as controller, running(host_with(admin.application(controller, prefix="/kactl"))) as client:
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
    async with cluster() as controller, running(admin.application(controller, prefix="/ops")) as client:
        assert (await client.ask("GET", "/v1/topics/none")).json()["instance"] == "/ops/v1/topics/none"


async def test_host_keeps_its_middlewares_and_its_errors() -> None:
    async with cluster() as controller:
        host = host_with(admin.application(controller, prefix="/kactl"))
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


class Keys:
    """Identifies clients by a header."""

    def __init__(self) -> None:
        self.asked: list[admin.Access] = []

    async def __call__(self, request: web.Request, access: admin.Access) -> admin.Principal | None:
        self.asked.append(access)
        name = request.headers.get("Key")
        if name == "guest" and access.action != "read":
            raise web.HTTPForbidden(text="guests only read")
        if name == "basic":
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Basic"})
        return None if name is None else admin.Principal(name)


def by_name(request: web.Request, access: admin.Access) -> admin.Principal | None:
    return None


async def test_authorize_decides_and_names_who_made_a_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="kactl.admin.audit")
    keys = Keys()
    mounted = admin.application(cluster_of := kactl.Controller(100), prefix="/kactl", authorize=keys)
    async with (
        cluster_of as controller,
        kactl.Participants(1, store=controller.store, hub=controller.hub),
        running(host_with(mounted)) as client,
    ):
        await controller.wait_active()
        while not controller.brokers():
            await controller.history.changed()

        unknown = await client.ask("GET", "/kactl/v1/topics")
        basic = await client.ask("GET", "/kactl/v1/topics", headers={"Key": "basic"})
        guest = await client.ask("POST", "/kactl/v1/topics", json=TOPIC, headers={"Key": "guest"})
        assert (unknown.status, basic.status, guest.status) == (401, 401, 403)
        for refused in (unknown, basic, guest):
            assert refused.headers["Content-Type"] == "application/problem+json"
            assert "Keys, which this application passed as authorize=" in refused.json()["detail"]
            assert "127.0.0.1" not in refused.json()["detail"]
        assert basic.headers["WWW-Authenticate"] == "Basic"
        assert "WWW-Authenticate" in unknown.headers
        assert "guests only read" in guest.json()["detail"]
        assert controller.topics() == []

        foreign = {"Key": "ada", "Sec-Fetch-Site": "cross-site"}
        assert (await client.ask("POST", "/kactl/v1/topics", json=TOPIC, headers=foreign)).status == 403
        created = await client.ask("POST", "/kactl/v1/topics", json=TOPIC, headers={"Key": "ada"})
        assert created.status == 201
        deleted = await client.ask("DELETE", "/kactl/v1/topics/jobs?reason=old", headers={"Key": "eve"})
        assert deleted.status in (200, 202)

        events = [event for event in controller.history.read(0)[0] if isinstance(event, kactl.RequestEvent)]
        assert [(event.principal, event.reason) for event in events] == [("ada", "because"), ("eve", "old")]
        listed = await client.ask("GET", "/kactl/v1/events?kinds=request", headers={"Key": "guest"})
        assert [item["principal"] for item in listed.json()["items"]] == ["ada", "eve"]
        lines = [record.getMessage() for record in caplog.records if record.name == "kactl.admin.audit"]
        assert any("by ada, reason: because" in line for line in lines)

        keys.asked.clear()
        for path in ("/kactl/livez", "/kactl/readyz", "/kactl/leader"):
            assert (await client.ask("GET", path)).status == 200
        assert keys.asked == []
        await client.ask("GET", "/kactl/v1/topics/a/partitions/3")
        await client.ask("POST", "/kactl/v1/brokers/1/kill")
        await client.ask("PATCH", "/kactl/v1/topics/a")
        assert keys.asked == [
            admin.Access("read", "get_v1_topics_by_topic_partitions_by_partition", "a-3", "viewer"),
            admin.Access("admin", "post_v1_brokers_by_id_kill", "1", "admin"),
            admin.Access("write", "patch_v1_topics_by_topic", "a", "admin"),
        ]


async def test_authorize_may_be_a_plain_function() -> None:
    async with (
        cluster() as controller,
        running(host_with(admin.application(controller, prefix="/kactl", authorize=by_name))) as client,
    ):
        refused = await client.ask("GET", "/kactl/v1/topics")

        assert refused.status == 401
        assert "by_name" in refused.json()["detail"]


async def raises(request: web.Request, access: admin.Access) -> admin.Principal | None:
    raise RuntimeError("secret of the program")


async def hangs(request: web.Request, access: admin.Access) -> admin.Principal | None:
    await anyio.sleep_forever()
    raise AssertionError


def returns_garbage(request: web.Request, access: admin.Access) -> Any:
    return "ada"


@pytest.mark.parametrize("authorize", [raises, hangs, returns_garbage])
async def test_failing_authorize_denies(monkeypatch: pytest.MonkeyPatch, authorize: admin.Authorize) -> None:
    monkeypatch.setattr("kactl.admin.access.DECISION_S", 0.05)
    async with (
        cluster() as controller,
        running(host_with(admin.application(controller, prefix="/kactl", authorize=authorize))) as client,
    ):
        for method in ("GET", "POST"):
            denied = await client.ask(method, "/kactl/v1/topics")
            assert denied.status == 403
            assert "secret of the program" not in denied.body.decode()
        assert (await client.ask("GET", "/kactl/livez")).status == 200


async def test_authorize_decides_again_about_an_unclean_election() -> None:
    roles: list[str] = []

    def operators(request: web.Request, access: admin.Access) -> admin.Principal | None:
        roles.append(access.role)
        if access.role == "admin":
            raise web.HTTPForbidden(text="operators only")
        return admin.Principal("ada")

    async with (
        cluster() as controller,
        running(host_with(admin.application(controller, prefix="/kactl", authorize=operators))) as client,
    ):
        election = {"type": "unclean", "all": True, "reason": "a"}
        refused = await client.ask("POST", "/kactl/v1/elections", json=election)
        assert (refused.status, roles) == (403, ["operator", "admin"])
        preview = await client.ask("POST", "/kactl/v1/elections", json=election | {"dry_run": True})
        assert (preview.status, roles[2:]) == (200, ["operator"])


async def test_without_authorize_only_this_machine_makes_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as controller, running(host_with(admin.application(controller, prefix="/kactl"))) as client:
        from_here = await client.ask("POST", "/kactl/v1/topics", json=TOPIC)
        page = await client.ask("DELETE", "/kactl/v1/topics/jobs", headers={"Origin": "http://evil.example"})
        assert (from_here.status, page.status) == (201, 403)

        monkeypatch.setattr("kactl.admin.access.is_loopback", lambda address: False)  # any other address
        refused = await client.ask("DELETE", "/kactl/v1/topics/jobs")

        assert refused.status == 403
        assert "pass authorize= to kactl.admin.application" in refused.json()["detail"]
        assert (await client.ask("GET", "/kactl/v1/topics/jobs")).status == 200
        assert (await client.ask("GET", "/kactl/v1/topics", headers={"Host": "any.name"})).status == 200


async def test_shutdown_of_the_host_ends_streams_at_once() -> None:
    async with cluster() as controller:
        runner = web.AppRunner(host_with(admin.application(controller, prefix="/kactl")), shutdown_timeout=60)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        url = f"http://127.0.0.1:{port}/kactl/v1/events/stream"
        async with aiohttp.ClientSession() as http, http.get(url) as stream:
            assert await stream.content.readline() == b"retry: 2000\n"
            began_s = asyncio.get_running_loop().time()

            await runner.cleanup()

            assert asyncio.get_running_loop().time() - began_s < 10  # and not the 60 s that requests may take
            await stream.content.read()


async def test_several_applications_serve_one_controller() -> None:
    async with cluster() as controller:
        host = web.Application()
        for prefix in ("/one", "/two"):
            host.add_subapp(prefix, admin.application(controller, prefix=prefix))
        async with running(host) as client:
            created = await client.ask("POST", "/one/v1/topics", json=TOPIC)
            assert created.headers["Location"] == "/one/v1/topics/jobs"
            assert (await client.ask("GET", "/two/v1/topics/jobs")).status == 200
        assert controller.is_active


async def test_every_read_answers_head_and_if_match() -> None:
    async with cluster() as controller, running(host_with(admin.application(controller, prefix="/kactl"))) as client:
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
        mounted = admin.application(controller, prefix="/kactl", participants=participant)
        async with participant, running(host_with(mounted)) as client:
            assert (await client.ask("POST", "/kactl/v1/brokers/8/kill", json={"reason": "a"})).status == 404
            assert (await client.ask("POST", "/kactl/v1/brokers/7/kill", json={"reason": "a"})).status == 200
            await participant.wait_closed()
            await settle()


@pytest.mark.parametrize("prefix", ["kactl", "/kactl/", "/"])
def test_prefix_has_one_form(prefix: str) -> None:
    with pytest.raises(BadRequest, match="prefix"):
        admin.application(kactl.Controller(1), prefix=prefix)
