"""Logins of web pages: codes, tickets, and their ends."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
import pytest

from kactl.admin.identity import credentials, run_file
from kactl.admin.identity.login_codes import CODES_MAX, LIFETIME_S, LoginCodes
from kactl.admin.identity.token_file import write_tokens
from kactl.security.access.role import Role
from kactl.security.access.tickets import LIFETIME_MS
from kactl.security.access.tokens import NewToken, new_token
from tests.admin.conftest import Answered, Served, served

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


class Page(NamedTuple):
    """Server with one token, of role operator, and its files."""

    server: Served
    token: NewToken
    file: Path
    folder: Path

    async def ask(self, method: str, path: str, credential: str, **more: Any) -> Answered:
        more = ({"json": {}} if method == "POST" else {}) | more
        return await self.server.ask(method, path, headers=bearer(credential), **more)

    async def ticket(self, credential: str) -> str:
        answer = await self.ask("POST", "/v1/login", credential)
        assert answer.status == 200, answer.body
        return str(answer.json()["ticket"])

    async def code(self, credential: str) -> str:
        answer = await self.ask("POST", "/v1/login-codes", credential)
        assert answer.status == 200, answer.body
        return str(answer.json()["code"])

    async def status(self, credential: str) -> int:
        return (await self.ask("GET", "/v1/controller", credential)).status


@pytest.fixture
async def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Page]:
    monkeypatch.setattr(credentials, "POLL_S", 0.02)
    file, folder = tmp_path / "tokens.toml", tmp_path / "security"
    token = new_token("ada", Role.OPERATOR, random=secrets.token_bytes(37), now_ms=0, expires_ms=None)
    write_tokens(file, [token.record])
    async with served(settings={"api.tokens": str(file), "security.folder": str(folder)}) as server:
        yield Page(server, token, file, folder)


async def test_ticket_has_the_identity_and_role_of_its_token(page: Page) -> None:
    answer = await page.ask("POST", "/v1/login", page.token.text)
    ticket = answer.json()["ticket"]

    assert (answer.json()["principal"], answer.json()["role"]) == ("token:ada", "operator")
    assert await page.status(ticket) == 200
    refused = await page.ask("POST", "/v1/controller/resign", ticket, json={"expected_epoch": 1})
    assert "token:ada has the role operator" in refused.json()["detail"]
    drained = await page.ask("POST", "/v1/brokers/1/drain", ticket, json={"reason": "by a page"})
    assert drained.status == 200
    assert drained.headers["Cache-Control"] == answer.headers["Cache-Control"] == "no-store"


async def test_code_works_once(page: Page) -> None:
    code = await page.code(page.token.text)

    ticket = await page.ticket(code)

    assert await page.status(ticket) == 200
    assert (await page.ask("POST", "/v1/login", code)).status == 401


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/controller"), ("POST", "/v1/login-codes"), ("GET", "/v1/login")]
)
async def test_code_is_for_logins_only(page: Page, method: str, path: str) -> None:
    code = await page.code(page.token.text)

    assert (await page.ask(method, path, code)).status == 401
    assert await page.ticket(code)  # not used up by that


async def test_login_cannot_be_extended_by_itself(page: Page) -> None:
    ticket = await page.ticket(page.token.text)

    for path in ("/v1/login", "/v1/login-codes"):
        answer = await page.ask("POST", path, ticket)
        assert (answer.status, "cannot be extended" in answer.json()["detail"]) == (403, True)


async def test_ticket_of_another_server_is_refused(page: Page, tmp_path: Path) -> None:
    own = {"api.tokens": str(page.file), "security.folder": str(tmp_path / "other")}
    async with served(settings=own, node_id=1) as other:
        foreign = (await other.post("/v1/login", headers=bearer(page.token.text))).json()["ticket"]

        assert (await other.get("/v1/controller", headers=bearer(foreign))).status == 200
    assert await page.status(foreign) == 401


async def test_ticket_outlives_a_restart_of_the_server(page: Page) -> None:
    ticket = await page.ticket(page.token.text)
    own = {"api.tokens": str(page.file), "security.folder": str(page.folder)}

    async with served(settings=own) as again:
        assert (await again.get("/v1/controller", headers=bearer(ticket))).status == 200


async def test_ticket_expires(page: Page) -> None:
    ticket = await page.ticket(page.token.text)
    page.server.clock.step_ms += LIFETIME_MS

    assert await page.status(ticket) == 401
    assert await page.status(page.token.text) == 200


async def test_clock_that_goes_back_revives_no_ticket(page: Page) -> None:
    ticket = await page.ticket(page.token.text)
    page.server.clock.step_ms += LIFETIME_MS
    assert await page.status(ticket) == 401
    page.server.clock.step_ms -= LIFETIME_MS

    assert await page.status(ticket) == 401


@pytest.mark.parametrize("end", ["revoked", "rotated", "demoted", "key removed"])
async def test_change_of_the_token_ends_the_login_and_its_streams(page: Page, end: str) -> None:
    ticket = await page.ticket(page.token.text)
    url, record = page.server.url + "/v1/events/stream", page.token.record
    async with page.server.http.get(url, headers=bearer(ticket)) as stream:
        await stream.content.readline()
        match end:
            case "revoked":
                write_tokens(page.file, [])
            case "rotated":  # its successor begins, and the old one expires later
                write_tokens(page.file, [msgspec.structs.replace(record, expires_ms=9_000_000_000_000)])
            case "demoted":
                write_tokens(page.file, [msgspec.structs.replace(record, role=Role.VIEWER)])
            case _:
                (page.folder / "ticket.key").unlink()

        async with asyncio.timeout(PATIENCE_S):
            await stream.read()
    assert await page.status(ticket) == 401


async def test_stream_of_a_page_ends_with_its_ticket(page: Page) -> None:
    ticket = await page.ticket(page.token.text)
    async with page.server.http.get(page.server.url + "/v1/events/stream", headers=bearer(ticket)) as stream:
        await stream.content.readline()
        page.server.clock.step_ms += LIFETIME_MS

        async with asyncio.timeout(PATIENCE_S):
            await stream.read()


@contextlib.asynccontextmanager
async def over_the_socket(server: Served) -> AsyncIterator[aiohttp.ClientSession]:
    parts = urlsplit(server.url)
    assert parts.hostname is not None
    assert parts.port is not None
    run = run_file.find(run_file.run_folder(), parts.hostname, parts.port)
    assert run is not None
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(run.socket)) as session:
        yield session


async def test_user_of_the_socket_lets_a_page_in(page: Page) -> None:
    async with over_the_socket(page.server) as session:
        async with session.post("http://kactl/v1/login-codes", json={}) as refused:
            assert refused.status == 403  # as any request that a browser might send by itself
        async with session.post("http://kactl/v1/login-codes", json={}, headers={"X-Kactl-Request": "1"}) as answer:
            code = (await answer.json())["code"]

    login = (await page.ask("POST", "/v1/login", code)).json()

    assert (login["principal"].startswith("unix:uid="), login["role"]) == (True, "admin")
    drained = await page.ask("POST", "/v1/brokers/1/drain", login["ticket"], json={})
    assert drained.status == 200  # a page sends it on purpose, so that it needs no further header


@pytest.mark.parametrize("place", ["path", "query", "cookie"])
async def test_tickets_and_codes_elsewhere_are_refused_and_not_shown(page: Page, place: str) -> None:
    for text in (await page.ticket(page.token.text), await page.code(page.token.text)):
        path = {"path": f"/{text}", "query": f"/v1/controller?ticket={text}"}.get(place, "/v1/controller")
        cookie = {"Cookie": f"ticket={text}"} if place == "cookie" else {}

        answer = await page.server.get(path, headers=bearer(page.token.text) | cookie)

        assert answer.status == 400
        assert text[20:] not in answer.body.decode()


async def test_login_of_a_foreign_page_is_refused(page: Page) -> None:
    code = await page.code(page.token.text)

    answer = await page.server.post("/v1/login", headers=bearer(code) | {"Origin": "http://evil.example"})

    assert answer.status == 403


def test_code_is_forgotten_after_a_minute() -> None:
    now_s = 100.0
    codes: LoginCodes[str] = LoginCodes(lambda: now_s)
    first, second = codes.make("ada"), codes.make("ada")
    now_s += LIFETIME_S - 0.1
    assert codes.take(first) == "ada"
    now_s += 0.2

    assert codes.take(second) is None


def test_codes_are_bounded() -> None:
    codes: LoginCodes[str] = LoginCodes()
    made = [codes.make("ada") for _ in range(CODES_MAX + 1)]

    assert codes.take(made[0]) is None
    assert codes.take(made[1]) == "ada"


async def test_client_cannot_push_out_the_code_of_another(page: Page) -> None:
    code = await page.code(page.token.text)
    other = new_token("other", Role.OPERATOR, random=secrets.token_bytes(37), now_ms=0, expires_ms=None)
    write_tokens(page.file, [page.token.record, other.record])
    with anyio.fail_after(PATIENCE_S):
        while await page.status(other.text) != 200:  # the server reads the file again
            pass

    for _ in range(CODES_MAX + 1):
        await page.code(other.text)

    assert await page.ticket(code)


def test_a_thousand_codes_of_one_client_leave_those_of_another() -> None:
    codes: LoginCodes[str] = LoginCodes()
    code = codes.make("ada")

    for _ in range(1_001):
        codes.make("eve")

    assert codes.take(code) == "ada"
    assert codes.held == CODES_MAX


def test_expired_codes_are_removed() -> None:
    now_s = 100.0
    codes: LoginCodes[int] = LoginCodes(lambda: now_s)
    for client in range(100):
        codes.make(client)
    now_s += LIFETIME_S

    codes.make(0)

    assert codes.held == 1
