"""Decisions of the program in which the API is mounted."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web

import kactl
from kactl import admin
from kactl.admin import access as deciding
from kactl.admin import embedded, event_stream
from kactl.admin.identity.token_file import write_tokens
from kactl.admin.routes.route_table import ROUTES
from kactl.model.errors import BadConfig, BadRequest
from kactl.security.access.role import Role
from kactl.security.access.tokens import NewToken, new_token
from kactl.security.tls import server_tls
from kactl.security.tls.certificate_file import expiry_in
from tests.admin.test_mounted import Answered, Client, cluster, running
from tests.support.certificates import Authority

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
TOPIC = {"name": "jobs", "partitions": 1, "replication_factor": 1, "reason": "because"}
# The sessions of a program: the user of each cookie.
# Later versions of aiohttp have a type of its own for keys of requests.
USER: Any = getattr(web, "RequestKey", web.AppKey)("USER", object)
SESSIONS = {"1": admin.Principal("ada", groups=("sre",)), "2": admin.Principal("bob")}


@web.middleware
async def sessions(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    """The middleware of a program, which finds the user of a cookie."""
    request[USER] = SESSIONS.get(request.cookies.get("session", ""))
    return await handler(request)


async def authenticate(request: admin.AccessRequest) -> admin.Principal | None:
    user = request.host_request[USER]
    return user if isinstance(user, admin.Principal) else None


async def authorize(principal: admin.Principal, action: admin.Action) -> admin.Decision:
    if action.role == "viewer" or "sre" in principal.groups:
        return admin.Allow()
    return admin.Deny("only SRE may change the cluster")


BY_SESSION = admin.Delegated(authenticate, authorize)


def by_name(request: admin.AccessRequest) -> admin.Principal | None:
    """Identifies clients by a header, without a browser."""
    name = request.headers.get("Name")
    return None if name is None else admin.Principal(name)


def allow(principal: admin.Principal, action: admin.Action) -> admin.Decision:
    return admin.Allow()


@contextlib.asynccontextmanager
async def mounted(access: admin.Access, **more: Any) -> AsyncIterator[tuple[kactl.Controller, Client]]:
    """Run a program with sessions in which the API is mounted."""
    async with cluster() as controller:
        program = web.Application(middlewares=[sessions])
        program.add_subapp("/kactl", admin.application(controller, access=access, prefix="/kactl", **more))
        async with running(program) as client:
            yield controller, client


def session(number: str, **more: str) -> dict[str, str]:
    return {"Cookie": f"session={number}", "X-Kactl-Request": "1", **more}


async def create(client: Client, headers: Mapping[str, str], **more: Any) -> Answered:
    return await client.ask("POST", "/kactl/v1/topics", json=TOPIC | more, headers=headers)


# -- functions of the program ------------------------------------------------------------------------------------------


async def test_sessions_of_the_program_decide_and_name_who_made_a_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="kactl.admin.audit")
    async with mounted(BY_SESSION) as (controller, client):
        stranger = await client.ask("GET", "/kactl/v1/topics")
        reads = await client.ask("GET", "/kactl/v1/topics", headers=session("2"))
        denied = await create(client, session("2"))
        assert (stranger.status, reads.status, denied.status) == (401, 200, 403)
        assert controller.topics() == []
        assert "only SRE may change the cluster" in denied.json()["detail"]
        for refused in (stranger, denied):
            assert refused.headers["Content-Type"] == "application/problem+json"
        assert "WWW-Authenticate" in stranger.headers

        assert (await create(client, session("1"))).status == 201

        events = [event for event in controller.history.read(0)[0] if isinstance(event, kactl.RequestEvent)]
        assert [(event.principal, event.reason) for event in events] == [("ada", "because")]
        assert any("by ada, reason: because" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": "session=1"},
        {"Cookie": "session=1", "X-Kactl-Request": "0"},
        {"Cookie": "session=1", "Authorization": "Basic YWRhOmE="},
        session("1", **{"Sec-Fetch-Site": "cross-site"}),
        session("1", **{"Sec-Fetch-Site": "same-site"}),
        session("1", Origin="http://evil.example"),
        session("1", Origin="null"),
    ],
)
async def test_change_that_a_page_of_another_site_could_send_is_refused(headers: dict[str, str]) -> None:
    async with mounted(BY_SESSION) as (controller, client):
        assert (await create(client, headers)).status == 403
        assert controller.topics() == []


async def test_only_names_of_the_program_are_accepted_as_its_host() -> None:
    async with mounted(BY_SESSION, hosts=["ops.example:443"]) as (_, client):
        foreign = await client.ask("GET", "/kactl/livez", headers={"Host": "evil.example"})
        for host in ("ops.example", "ops.example:443", "OPS.example"):
            assert (await client.ask("GET", "/kactl/livez", headers={"Host": host})).status == 200
        other_port = await client.ask("GET", "/kactl/livez", headers={"Host": "ops.example:8080"})
        page = {"Host": "ops.example", "Origin": "https://ops.example"}

        assert (foreign.status, other_port.status) == (421, 421)
        assert (await create(client, session("1", **page))).status == 201
        assert (await create(client, session("1", **page | {"Origin": "https://evil.example"}))).status == 403


async def raises(*_: Any) -> Any:
    raise RuntimeError("secret of the program")


async def hangs(*_: Any) -> Any:
    await anyio.sleep_forever()


def returns_text(*_: Any) -> Any:
    return "ada"


def returns_true(*_: Any) -> Any:
    return True


FAILURES = [raises, hangs, returns_text, returns_true]


@pytest.mark.parametrize("failing", FAILURES)
@pytest.mark.parametrize("which", ["authenticate", "authorize"])
async def test_failing_function_denies(monkeypatch: pytest.MonkeyPatch, which: str, failing: Any) -> None:
    monkeypatch.setattr(deciding, "DECISION_S", 0.05)
    functions = {"authenticate": authenticate, "authorize": authorize} | {which: failing}
    async with mounted(admin.Delegated(**functions)) as (controller, client):
        answers = [
            await client.ask("GET", "/kactl/v1/topics", headers=session("1")),
            await create(client, session("1")),
        ]
        probe = await client.ask("GET", "/kactl/livez")

        assert [answer.status for answer in answers] == [403, 403]
        assert b"secret of the program" not in answers[0].body + answers[1].body
        assert controller.topics() == []
        assert probe.status == 200


@pytest.mark.parametrize("nothing", [None, False, 0, ""])
async def test_value_that_is_no_decision_denies(nothing: object) -> None:
    async with mounted(admin.Delegated(authenticate, lambda *_: nothing)) as (_, client):  # type: ignore[arg-type]
        assert (await client.ask("GET", "/kactl/v1/topics", headers=session("1"))).status == 403


async def test_program_demands_a_login_of_its_own_kind() -> None:
    def login(_: admin.AccessRequest) -> admin.Principal | None:
        raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Basic"})

    async with mounted(admin.Delegated(login, allow)) as (_, client):
        answer = await client.ask("GET", "/kactl/v1/topics")

        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Basic")


async def test_each_request_is_decided_and_described() -> None:
    actions: list[admin.Action] = []
    seen: list[admin.AccessRequest] = []

    def identify(request: admin.AccessRequest) -> admin.Principal | None:
        seen.append(request)
        return by_name(request)

    def decide(principal: admin.Principal, action: admin.Action) -> admin.Decision:
        actions.append(action)
        return admin.Deny("no") if action.effect != "read" else admin.Allow()

    own = {"Name": "ada"}
    async with mounted(admin.Delegated(identify, decide)) as (_, client):
        for path in ("/kactl/livez", "/kactl/readyz", "/kactl/leader"):
            assert (await client.ask("GET", path, headers=own)).status == 200
        assert (seen, actions) == ([], [])

        await client.ask("GET", "/kactl/v1/topics/a/partitions/3", headers=own)
        await client.ask("GET", "/kactl/v1/topics/a/partitions/3", headers=own)
        await client.ask("POST", "/kactl/v1/brokers/1/kill", headers=own)
        await client.ask("DELETE", "/kactl/v1/reassignments/a/3", headers=own)
        assert (await client.ask("GET", "/kactl/nothing")).status == 401

    read = admin.Action("read", "get_v1_topics_by_topic_partitions_by_partition", "partition", "a-3", "viewer")
    assert actions == [
        read,
        read,
        admin.Action("admin", "post_v1_brokers_by_id_kill", "broker", "1", "viewer"),
        admin.Action("write", "delete_v1_reassignments_by_topic_by_partition", "reassignment", "a-3", "viewer"),
    ]
    assert (seen[0].method, seen[0].path, seen[0].peer) == ("GET", "/kactl/v1/topics/a/partitions/3", "127.0.0.1")
    assert (seen[0].headers["name"], seen[0].certificate) == ("ada", None)


def test_kinds_of_resources_are_singular_words() -> None:
    kinds = {route.resource_kind for route in ROUTES}

    assert {"topic", "partition", "replica", "broker", "controller", "election", "reassignment", "metrics"} <= kinds
    assert not {kind for kind in kinds if "{" in kind or kind in ("", "v1")}


async def test_unclean_election_is_decided_again_and_a_preview_is_one_of_a_viewer() -> None:
    roles: list[str] = []

    def operators(_: admin.Principal, action: admin.Action) -> admin.Decision:
        roles.append(action.role)
        return admin.Deny("operators only") if action.role == "admin" else admin.Allow()

    async with mounted(admin.Delegated(by_name, operators)) as (_, client):
        election = {"type": "unclean", "all": True, "reason": "a"}
        refused = await client.ask("POST", "/kactl/v1/elections", json=election, headers={"Name": "ada"})
        assert (refused.status, roles) == (403, ["viewer", "admin"])
        preview = election | {"dry_run": True}
        answer = await client.ask("POST", "/kactl/v1/elections", json=preview, headers={"Name": "ada"})
        assert (answer.status, roles[2:]) == (200, ["viewer"])


async def test_stream_ends_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "DECIDED_AGAIN_MS", 10)
    open_sessions = {"ada"}

    def identify(request: admin.AccessRequest) -> admin.Principal | None:
        return by_name(request) if request.headers["Name"] in open_sessions else None

    async with mounted(admin.Delegated(identify, allow)) as (_, client):
        url = f"{client.url}/kactl/v1/events/stream"
        async with client.http.get(url, headers={"Name": "ada"}) as stream:
            assert await stream.content.readline() == b"retry: 2000\n"

            open_sessions.clear()

            with anyio.fail_after(PATIENCE_S):
                await stream.content.read()


async def test_streams_have_limits() -> None:
    limits = admin.Limits(streams=2, streams_per_principal=1)
    async with (
        mounted(admin.Delegated(by_name, allow), limits=limits) as (_, client),
        contextlib.AsyncExitStack() as opened,
    ):
        statuses = []
        for name in ("ada", "ada", "bob", "eve"):
            stream = client.http.get(f"{client.url}/kactl/v1/events/stream", headers={"Name": name})
            statuses.append((await opened.enter_async_context(stream)).status)

        assert statuses == [200, 503, 200, 503]


@pytest.mark.parametrize("limit", [0, -1, True, "9", 1.5])
def test_number_of_streams_is_checked(limit: Any) -> None:
    with pytest.raises(BadRequest, match=r"limits\.streams"):
        admin.Limits(streams=limit)


# -- mounting ----------------------------------------------------------------------------------------------------------


def test_there_is_no_default_access() -> None:
    with pytest.raises(TypeError, match="access"):
        admin.application(kactl.Controller(1))  # type: ignore[call-arg]


@pytest.mark.parametrize("access", [None, object(), allow, admin.Open])
def test_access_has_both_methods(access: Any) -> None:
    if access is admin.Open:
        access = type("Half", (), {"authenticate": authenticate})()
    with pytest.raises(BadRequest, match="access"):
        admin.application(kactl.Controller(1), access=access)


@pytest.mark.parametrize("hosts", ["ops.example", ["https://ops.example"], ["ops.example/"], [""], [1], ["a b"]])
def test_wrong_names_of_hosts_are_rejected(hosts: Any) -> None:
    with pytest.raises(BadRequest, match="hosts"):
        admin.application(kactl.Controller(1), access=admin.Open(), hosts=hosts)


def test_functions_can_be_called() -> None:
    with pytest.raises(BadRequest, match="authorize"):
        admin.Delegated(authenticate, None)  # type: ignore[arg-type]


# -- tokens ------------------------------------------------------------------------------------------------------------


def token(name: str, role: Role, seed: int) -> NewToken:
    return new_token(name, role, random=bytes([seed]) * 37, now_ms=0, expires_ms=None)


VIEWER, OPERATOR = token("grafana", Role.VIEWER, 1), token("oncall", Role.OPERATOR, 2)


def bearer(made: NewToken) -> dict[str, str]:
    return {"Authorization": f"Bearer {made.text}"}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    write_tokens(file, [VIEWER.record, OPERATOR.record])
    return file


async def test_tokens_have_their_roles_and_end_when_they_are_revoked(
    monkeypatch: pytest.MonkeyPatch, tokens: Path
) -> None:
    monkeypatch.setattr(event_stream, "DECIDED_AGAIN_MS", 10)
    monkeypatch.setattr(embedded, "POLL_S", 0.01)
    async with mounted(admin.Tokens(tokens)) as (controller, client):
        drain = [
            (await client.ask("POST", "/kactl/v1/brokers/1/drain", json={}, headers=bearer(made))).status
            for made in (VIEWER, OPERATOR)
        ]
        created = await create(client, bearer(OPERATOR))
        login = await client.ask("POST", "/kactl/v1/login", json={}, headers=bearer(OPERATOR))
        in_path = await client.ask("GET", f"/kactl/v1/topics?token={VIEWER.text}", headers=bearer(VIEWER))
        assert (drain, created.status, login.status, in_path.status) == ([403, 200], 403, 200, 400)
        page = {"Authorization": f"Bearer {login.json()['ticket']}"}
        assert (await client.ask("GET", "/kactl/v1/topics", headers=page)).status == 200
        events = [event for event in controller.history.read(0)[0] if isinstance(event, kactl.RequestEvent)]
        assert [event.principal for event in events] == ["token:oncall"]

        async with client.http.get(f"{client.url}/kactl/v1/events/stream", headers=page) as stream:
            assert stream.status == 200
            write_tokens(tokens, [VIEWER.record])
            with anyio.fail_after(PATIENCE_S):
                await stream.content.read()
        assert (await client.ask("GET", "/kactl/v1/topics", headers=bearer(OPERATOR))).status == 401
        assert (await client.ask("GET", "/kactl/v1/topics", headers=page)).status == 401
        assert (await client.ask("GET", "/kactl/v1/topics", headers=bearer(VIEWER))).status == 200


async def test_identity_does_not_outlive_its_request(tokens: Path) -> None:
    """Two applications of one program share the connections of their clients."""
    async with cluster() as controller:
        program = web.Application()
        program.add_subapp("/one", admin.application(controller, access=admin.Tokens(tokens), prefix="/one"))
        by_header = admin.Delegated(by_name, allow)
        program.add_subapp("/two", admin.application(controller, access=by_header, prefix="/two"))
        async with running(program) as client:
            assert (await client.ask("GET", "/one/v1/topics", headers=bearer(OPERATOR))).status == 200
            made = await client.ask("POST", "/two/v1/topics", json=TOPIC, headers={"Name": "eve"})
            assert made.status == 201
            assert (await client.ask("POST", "/two/v1/login", json={}, headers={"Name": "eve"})).status == 501
            probe = await client.ask("GET", "/one/readyz")
        events = [event for event in controller.history.read(0)[0] if isinstance(event, kactl.RequestEvent)]

    assert [event.principal for event in events] == ["eve"]
    assert not probe.json()["detail"]


def test_file_of_tokens_that_others_can_use_is_rejected(tokens: Path) -> None:
    tokens.chmod(0o644)

    with pytest.raises(BadConfig, match="chmod 600"):
        admin.Tokens(tokens)


# -- certificates ------------------------------------------------------------------------------------------------------


async def test_certificates_have_the_roles_of_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    own, ada, stranger = authority.sign("server"), authority.sign("ada", subject="/O=x/CN=ada"), authority.sign("eve")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.cert))
    server.load_cert_chain(own.cert, own.key)
    server.verify_mode = ssl.CERT_OPTIONAL
    access = admin.Certificates({"CN=ada,O=x": "admin"})

    async def ask(signed: Any, url: str, headers: dict[str, str]) -> tuple[int, int]:
        tls = ssl.create_default_context(cafile=str(authority.cert))
        if signed is not None:
            tls.load_cert_chain(signed.cert, signed.key)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as http:
            client = Client(http, url)
            read = await client.ask("GET", "/kactl/v1/topics")
            return read.status, (await create(client, headers)).status

    async with cluster() as controller:
        program = web.Application()
        program.add_subapp("/kactl", admin.application(controller, access=access, prefix="/kactl"))
        runner = web.AppRunner(program)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
            url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            confirmed = {"X-Kactl-Request": "1"}
            assert await ask(None, url, confirmed) == (401, 401)
            assert await ask(stranger, url, confirmed) == (403, 403)
            assert await ask(ada, url, {}) == (200, 403)
            assert await ask(ada, url, confirmed) == (200, 201)

            expires_s = expiry_in(ada.cert)
            assert expires_s is not None
            monkeypatch.setattr(server_tls, "time", SimpleNamespace(time=lambda: expires_s))
            # As over a connection that began before.
            assert await ask(ada, url, confirmed) == (401, 401)
        finally:
            await runner.cleanup()
        events = [event for event in controller.history.read(0)[0] if isinstance(event, kactl.RequestEvent)]
        assert [event.principal for event in events] == ["certificate:CN=ada,O=x"]


@pytest.mark.parametrize("wrong", [{"roles": {"ada": "root"}}, {"roles": {}, "rules": "RULE:("}])
def test_wrong_roles_and_rules_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="certificates"):
        admin.Certificates(wrong.pop("roles"), **wrong)


# -- no authentication -------------------------------------------------------------------------------------------------


async def test_open_access_is_listed_as_insecure(caplog: pytest.LogCaptureFixture) -> None:
    async with mounted(admin.Open()) as (_, client):
        assert (await create(client, {})).status == 201
        (item,) = (await client.ask("GET", "/kactl/v1/controller")).json()["insecure"]
        assert (item["interface"], item["what"].startswith("access: kactl.admin.Open")) == ("api", True)
        assert "no authentication" in caplog.text


async def test_open_access_is_for_this_machine() -> None:
    def forwarded(address: str) -> Any:
        @web.middleware
        async def middleware(request: web.Request, handler: Any) -> Any:
            return await handler(request.clone(remote=address))

        return middleware

    for access, address, status in (
        (admin.Open(), "192.0.2.7", 403),
        (admin.Open(), "::ffff:192.0.2.7", 403),
        (admin.Open(), "garbage", 403),
        (admin.Open(allow_insecure=["api"]), "192.0.2.7", 200),
        (admin.Open(), "::1", 200),
    ):
        async with cluster() as controller:
            program = web.Application(middlewares=[forwarded(address)])
            program.add_subapp("/kactl", admin.application(controller, access=access, prefix="/kactl"))
            async with running(program) as client:
                assert (await client.ask("GET", "/kactl/v1/topics")).status == status, (access, address)


async def test_client_of_a_closed_connection_is_not_of_this_machine() -> None:
    """A client that disconnects after its request has no address any more."""
    request = admin.AccessRequest("GET", "/", None, None, None, None)  # type: ignore[arg-type]

    principal = await admin.Open().authenticate(request)

    assert principal is not None
    action = admin.Action("read", "get_v1_topics", "topic", None)
    assert isinstance(await admin.Open().authorize(principal, action), admin.Deny)


@pytest.mark.parametrize("names", [["kafka.INTERNAL"], "api", ["api", "x"]])
def test_consent_names_the_api(names: Any) -> None:
    with pytest.raises(BadRequest, match="allow_insecure"):
        admin.Open(allow_insecure=names)
