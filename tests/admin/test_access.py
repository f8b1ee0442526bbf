"""Tokens, roles and the Unix socket of the admin API."""

import asyncio
import ipaddress
import os
import re
import secrets
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import anyio
import pytest

from kactl.admin.identity import credentials, run_file
from kactl.admin.identity.token_file import read_tokens, write_tokens
from kactl.admin.route import Route
from kactl.admin.routes.route_table import ROUTES
from kactl.model.errors import BadConfig
from kactl.security.access.role import Role
from kactl.security.access.tokens import NewToken, TokenRecord, new_token
from tests.admin.conftest import Answered, Served, served
from tests.support import api_access

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
MINUTE_MS = 60_000
# Without a valid token; the second one after many such requests, as while a test waits.
REFUSED = (401, 429)


def token(name: str, role: Role, **more: Any) -> NewToken:
    values: dict[str, Any] = {"now_ms": 0, "expires_ms": None, "random": secrets.token_bytes(37)}
    return new_token(name, role, **(values | more))


class Team(NamedTuple):
    """Server with a token for each role."""

    server: Served
    file: Path
    tokens: dict[Role, NewToken]

    async def ask(self, role: Role, method: str, path: str, **more: Any) -> Answered:
        return await self.server.ask(method, path, headers=bearer(self.tokens[role].text), **more)

    def write(self, *records: TokenRecord) -> None:
        write_tokens(self.file, records)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture
async def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Team]:
    monkeypatch.setattr(credentials, "POLL_S", 0.02)
    file = tmp_path / "tokens.toml"
    made = {role: token(role.label, role) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)}
    write_tokens(file, [each.record for each in made.values()])
    async with served(settings={"api.tokens": str(file)}) as server:
        await server.controller.create_topic("orders", partitions=2, replication_factor=3)
        yield Team(server, file, made)


# -- roles -------------------------------------------------------------------------------------------------------------


def filled(route: Route) -> str:
    path = route.path.replace("{topic}", "none")
    return re.sub(r"\{\w+\}", "77", path)


async def test_each_route_admits_exactly_the_roles_of_the_table(team: Team) -> None:
    denied = {401, 403, 429}  # the last one after many requests without a token
    wrong = []
    for route in ROUTES:
        if route.path == "/v1/events/stream":
            continue  # it would not end
        for role in Role:
            headers = {"Authorization": ""} if role is Role.NONE else bearer(team.tokens[role].text)
            more: dict[str, Any] = {} if route.takes_body is None else {"data": b"[]"}
            answer = await team.server.ask(route.method, filled(route), headers=headers, **more)
            # Whether a body asks for a dry run is not known before it has been read.
            needed = route.role if route.takes_body is None else route.least_role
            if (answer.status not in denied) is not (role >= needed):
                wrong.append((route.method, route.path, role, answer.status))
    assert wrong == []


def test_changes_need_the_role_operator_or_admin() -> None:
    roles = {(route.method, route.path): route.role for route in ROUTES if route.writes}

    for path in ("/v1/reassignment-plans", "/v1/whatif", "/v1/login", "/v1/login-codes"):
        assert roles.pop(("POST", path)) is Role.VIEWER  # they change nothing in the cluster
    assert set(roles.values()) == {Role.OPERATOR, Role.ADMIN}
    assert roles["DELETE", "/v1/topics/{topic}"] is Role.ADMIN
    assert roles["POST", "/v1/controller/resign"] is Role.ADMIN


def test_route_without_a_role_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="role"):
        Route(method="GET", path="/x", handler=ROUTES[0].handler, summary="x", answers={})  # type: ignore[call-arg]


async def test_role_is_checked_before_the_object_is_looked_up(team: Team) -> None:
    known = await team.ask(Role.VIEWER, "DELETE", "/v1/topics/orders")
    unknown = await team.ask(Role.VIEWER, "DELETE", "/v1/topics/nothing")

    assert known.status == unknown.status == 403
    assert known.json()["detail"] == unknown.json()["detail"]


async def test_viewer_may_preview_but_not_change(team: Team) -> None:
    election = {"type": "preferred", "all": True}

    preview = await team.ask(Role.VIEWER, "POST", "/v1/elections", json=election | {"dry_run": True})
    change = await team.ask(Role.VIEWER, "POST", "/v1/elections", json=election)
    deletion = await team.ask(Role.VIEWER, "DELETE", "/v1/topics/orders?dry_run=true")

    assert (preview.status, change.status, deletion.status) == (200, 403, 200)
    assert "needs the role operator" in change.json()["detail"]


async def test_operator_cannot_elect_uncleanly(team: Team) -> None:
    election = {"type": "unclean", "partitions": [{"topic": "orders", "partition": 0}], "reason": "to see"}
    before = await team.server.state()

    refused = await team.ask(Role.OPERATOR, "POST", "/v1/elections", json=election)

    assert refused.status == 403
    assert "needs the role admin" in refused.json()["detail"]
    assert await team.server.state() == before
    assert (await team.ask(Role.ADMIN, "POST", "/v1/elections", json=election)).status == 200
    assert (await team.ask(Role.OPERATOR, "POST", "/v1/elections", json=election | {"dry_run": True})).status == 200


async def test_changes_are_recorded_under_the_name_of_the_token(team: Team) -> None:
    topic = {"name": "made", "replication_factor": 1}
    assert (await team.ask(Role.ADMIN, "POST", "/v1/topics", json=topic)).status == 201

    events = (await team.ask(Role.VIEWER, "GET", "/v1/events?kinds=request")).json()["items"]

    assert [event["principal"] for event in events] == ["token:admin"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/leader"])
async def test_probes_tell_strangers_one_word(team: Team, path: str) -> None:
    for headers in ({"Authorization": ""}, bearer("kactl_wrong")):
        answer = await team.server.get(path, headers=headers)
        assert answer.status == 200
        assert list(answer.json()) == ["status", "detail"]
        assert answer.json()["detail"] == ""
    if path != "/livez":
        assert (await team.ask(Role.VIEWER, "GET", path)).json()["detail"]


# -- tokens ------------------------------------------------------------------------------------------------------------


async def test_invalid_credentials_get_the_same_answer(team: Team) -> None:
    admin = team.tokens[Role.ADMIN].text
    expired = token("old", Role.ADMIN, expires_ms=1)
    team.write(*(made.record for made in team.tokens.values()), expired.record)
    given = [
        {"Authorization": ""},
        bearer(token("x", Role.ADMIN).text),
        bearer(admin[:-1] + ("A" if admin[-1] != "A" else "B")),
        bearer(expired.text),
        {"Authorization": f"Basic {admin}"},
        {"Authorization": admin},
        bearer(f"{admin} x"),
        bearer("ÿ" * 60),
    ]

    answers = [await team.server.get("/v1/topics", headers=headers) for headers in given]

    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1
    assert {answer.headers["WWW-Authenticate"] for answer in answers} == {'Bearer realm="kactl"'}


async def test_unknown_route_needs_a_token_too(team: Team) -> None:
    assert (await team.server.get("/v1/nothing", headers={"Authorization": ""})).status == 401
    assert (await team.ask(Role.VIEWER, "GET", "/v1/nothing")).status == 404


async def test_token_outside_its_header_is_refused(team: Team) -> None:
    text = team.tokens[Role.ADMIN].text
    places: list[tuple[str, dict[str, str]]] = [
        (f"/v1/topics?token={text}", {}),
        (f"/v1/topics/{text}", {}),
        ("/v1/topics", {"Cookie": f"token={text}"}),
        (f"/livez?token={text}", {}),
    ]
    for path, headers in places:
        answer = await team.server.get(path, headers=headers | bearer(text))
        assert answer.status == 400, path
        assert f"kactl token revoke {team.tokens[Role.ADMIN].record.id}" in answer.json()["detail"]
        assert text not in answer.body.decode()


async def test_token_is_accepted_from_its_networks_only(team: Team) -> None:
    inside = token("inside", Role.VIEWER, networks=[ipaddress.ip_network("127.0.0.0/8")])
    outside = token("outside", Role.VIEWER, networks=[ipaddress.ip_network("10.0.0.0/8")])
    team.write(inside.record, outside.record)

    await reloaded(team, inside.text)

    assert (await team.server.get("/v1/topics", headers=bearer(outside.text))).status in REFUSED


async def reloaded(team: Team, text: str) -> None:
    """Wait until the server accepts a token."""
    with anyio.fail_after(PATIENCE_S):
        while (await team.server.get("/v1/topics", headers=bearer(text))).status != 200:
            pass


async def test_token_is_accepted_as_soon_as_it_has_been_made(team: Team) -> None:
    for number in range(5):
        late = token(f"late{number}", Role.VIEWER)
        team.write(late.record)

        answers = [await team.server.get("/v1/topics", headers=bearer(text)) for text in (late.text, late.text + "x")]

        assert [answer.status for answer in answers] == [200, 401]


async def test_revoked_token_is_refused_and_its_streams_end(team: Team) -> None:
    viewer, admin = team.tokens[Role.VIEWER], team.tokens[Role.ADMIN]
    stream = f"{team.server.url}/v1/events/stream"
    async with (
        team.server.http.get(stream, headers=bearer(viewer.text)) as ends,
        team.server.http.get(stream, headers=bearer(admin.text)) as stays,
    ):
        assert (ends.status, stays.status) == (200, 200)
        await ends.content.readuntil(b"id: ")
        await stays.content.readuntil(b"id: ")

        team.write(admin.record)

        with anyio.fail_after(PATIENCE_S):
            await ends.content.read()
        assert (await team.server.get("/v1/topics", headers=bearer(viewer.text))).status == 401
        assert (await team.server.get("/v1/topics", headers=bearer(admin.text))).status == 200
        assert not stays.content.at_eof()


async def test_expired_token_ends_its_streams(team: Team) -> None:
    now_ms = team.server.clock.now_ms()
    brief = token("brief", Role.VIEWER, expires_ms=now_ms + MINUTE_MS)
    team.write(brief.record)
    await reloaded(team, brief.text)
    async with team.server.http.get(f"{team.server.url}/v1/events/stream", headers=bearer(brief.text)) as ends:
        await ends.content.readuntil(b"id: ")

        await team.server.clock.advance(MINUTE_MS)

        with anyio.fail_after(PATIENCE_S):
            await ends.content.read()
    assert (await team.server.get("/v1/topics", headers=bearer(brief.text))).status in REFUSED


@pytest.mark.parametrize(
    "content", [b"[[token]", b'[[token]]\nid = "x"\n', b"\xff", b"x = 1\n"], ids=["torn", "wrong", "no text", "unknown"]
)
async def test_unreadable_token_file_keeps_the_previous_tokens(
    team: Team, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    team.file.write_bytes(content)

    with anyio.fail_after(PATIENCE_S):
        while "kactl_security_reload_failed 1.0" not in (await team.ask(Role.VIEWER, "GET", "/metrics")).body.decode():
            pass

    assert (await team.ask(Role.ADMIN, "GET", "/v1/topics")).status == 200
    assert "the previous ones stay valid" in caplog.text
    team.write(team.tokens[Role.VIEWER].record)
    with anyio.fail_after(PATIENCE_S):
        while (await team.ask(Role.ADMIN, "GET", "/v1/topics")).status != 401:
            pass
    assert "kactl_security_reload_failed 0.0" in (await team.ask(Role.VIEWER, "GET", "/metrics")).body.decode()


async def test_server_does_not_start_with_a_token_file_that_others_can_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    write_tokens(file, [token("x", Role.ADMIN).record])
    file.chmod(0o644)

    with pytest.raises(BadConfig, match=r"others can use .*chmod 600"):
        async with served(settings={"api.tokens": str(file)}):
            pass


async def test_local_token_is_made_anew_when_its_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "POLL_S", 0.02)
    async with served(settings={"security.folder": str(tmp_path / "security")}) as server:
        local = tmp_path / "security" / "local.token"
        assert stat.S_IMODE(local.stat().st_mode) == 0o600
        assert stat.S_IMODE(local.parent.stat().st_mode) == 0o700
        assert (await server.get("/v1/topics")).status == 200

        local.unlink()

        with anyio.fail_after(PATIENCE_S):
            while (await server.get("/v1/topics")).status != 401:
                pass
        text = local.read_text(encoding="ascii").strip()
        assert (await server.get("/v1/topics", headers=bearer(text))).status == 200


async def test_token_file_keeps_everything_but_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    made = token(
        "ops@example", Role.OPERATOR, now_ms=1_700_000_000_000, expires_ms=1_800_000_000_000,
        networks=[ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/64")],
    )  # fmt: skip

    write_tokens(file, [made.record])

    assert read_tokens(file) == (made.record,)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert api_access.secret_of(made.text) not in file.read_text()


# -- the Unix socket ---------------------------------------------------------------------------------------------------


def socket_of(server: Served) -> Path:
    where = urlsplit(server.url)
    assert where.hostname is not None
    assert where.port is not None
    run = run_file.find(run_file.run_folder(), where.hostname, where.port)
    assert run is not None
    return Path(run.socket)


async def test_unix_socket_admits_its_user_without_a_token(team: Team) -> None:
    path = socket_of(team.server)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    topic = {"name": "made", "replication_factor": 1}
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http:
        async with http.get("http://localhost/v1/topics") as answer:
            assert answer.status == 200
        async with http.post("http://localhost/v1/topics", json=topic) as answer:
            assert answer.status == 403
            assert "X-Kactl-Request" in (await answer.json(content_type=None))["detail"]
        async with http.post("http://localhost/v1/topics", json=topic, headers={"X-Kactl-Request": "1"}) as answer:
            assert answer.status == 201
        async with http.get("http://localhost/v1/topics", headers={"Origin": "http://localhost"}) as answer:
            assert answer.status == 403

    events = (await team.ask(Role.VIEWER, "GET", "/v1/events?kinds=request")).json()["items"]
    assert [event["principal"] for event in events] == [f"unix:uid={os.geteuid()}"]


_STRANGER = """
import os, socket, sys
os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"GET /v1/topics HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
print(connection.recv(100).split()[1].decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_unix_socket_refuses_other_users_even_if_they_can_connect(
    team: Team, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = socket_of(team.server)
    opened = [path, *path.parents[:3]]
    modes = [stat.S_IMODE(each.stat().st_mode) for each in opened]
    for each in opened:
        each.chmod(0o777)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", _STRANGER, str(path), stdout=subprocess.PIPE, cwd="/"
        )
        output, _ = await process.communicate()
    finally:
        for each, mode in zip(opened, modes, strict=True):
            each.chmod(mode)

    assert output.strip() == b"403"


async def test_files_of_a_server_are_removed_when_it_stops() -> None:
    async with served() as server:
        path = socket_of(server)
        assert path.is_socket()
        url = urlsplit(server.url)

    assert not path.exists()
    assert run_file.find(run_file.run_folder(), url.hostname or "", url.port or 0) is None


async def test_socket_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with (
        served(settings={"api.socket": str(path)}),
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http,
        http.get("http://localhost/v1/topics") as answer,
    ):
        assert answer.status == 200


async def test_server_works_without_a_socket_where_it_cannot_be_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("")
    async with served(settings={"api.socket": str(tmp_path / "taken")}) as server:
        assert (await server.get("/v1/topics")).status == 200
    assert "has no Unix socket" in caplog.text
    assert (tmp_path / "taken").is_file()
