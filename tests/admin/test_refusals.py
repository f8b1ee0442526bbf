"""Order of the checks of a request, rates, failed logins, and the audit trail."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kactl.admin.audit_trail import DENIED_MAX, DENIED_PAUSE_S, RECORDS_MAX, AuditTrail
from kactl.admin.identity.token_file import write_tokens
from kactl.admin.limits import Capacity
from kactl.admin.schema import AuditPage, AuditRecord
from kactl.runtime.budget import RATES, Unit
from kactl.security.access.role import Role
from tests.admin.conftest import Answered, served
from tests.admin.test_access import Team, bearer, token
from tests.support import api_access

pytestmark = pytest.mark.anyio
VIEWER, ADMIN = token("viewer", Role.VIEWER), token("admin", Role.ADMIN)
FAILURES_MAX = int(RATES[Unit.FAILURES].burst)
EVIL = {"Host": "evil.example"}
NONE = {"Authorization": ""}
FOREIGN = {"Origin": "http://evil.example"}
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}


@contextlib.asynccontextmanager
async def team(folder: Path, **settings: object) -> AsyncIterator[Team]:
    """Run a server with a viewer and an administrator."""
    file = folder / "tokens.toml"
    write_tokens(file, [VIEWER.record, ADMIN.record])
    named = {f"api.{name.replace('_', '-')}": value for name, value in settings.items()}
    async with served(settings={"api.tokens": str(file), **named}) as server:
        yield Team(server, file, {Role.VIEWER: VIEWER, Role.ADMIN: ADMIN})


# -- the order of checks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (EVIL | NONE, b"{}", 421),  # host before credential
        (NONE | FOREIGN, b"{}", 401),  # credential before page
        (bearer(VIEWER.text) | FOREIGN | JSON, b"{}", 403),  # page before role
        # The body states whether it is a dry run, which needs a lower role.
        (bearer(VIEWER.text) | TEXT, b"{", 415),
        (bearer(VIEWER.text) | JSON, b'{"reason": "x", "expected_epoch": 1}', 403),
        (bearer(ADMIN.text) | TEXT, b"x" * (257 << 10), 415),  # content type before the size of the body
        (bearer(ADMIN.text) | JSON, b"x" * (257 << 10), 413),  # size before schema
        (bearer(ADMIN.text) | JSON, b"{", 400),
    ],
)
async def test_earlier_check_answers(tmp_path: Path, headers: dict[str, str], body: bytes, status: int) -> None:
    async with team(tmp_path) as opened:
        answer = await opened.server.ask("POST", "/v1/controller/resign", headers=headers, data=body)

        assert answer.status == status
        if headers.get("Origin"):
            assert answer.json()["title"] in ("Unauthorized", "Foreign origin")


async def test_content_type_is_checked_before_the_rate_and_the_rate_before_the_body(tmp_path: Path) -> None:
    async with team(tmp_path, changes_per_second=1) as opened:
        for _ in range(5):
            assert (await opened.ask(Role.VIEWER, "POST", "/v1/whatif", json={"x": 1})).status == 400

        wrong = await opened.server.ask("POST", "/v1/whatif", headers=bearer(VIEWER.text) | TEXT, data=b"x")
        many = await opened.server.ask(
            "POST", "/v1/whatif", headers=bearer(VIEWER.text) | JSON, data=b"x" * (257 << 10)
        )

    assert (many.status, wrong.status) == (429, 415)
    assert int(many.headers["Retry-After"]) == 1
    assert many.json()["retriable"]
    assert many.json()["error_name"] == "THROTTLING_QUOTA_EXCEEDED"


# -- rates -------------------------------------------------------------------------------------------------------------


async def test_clients_do_not_share_a_rate(tmp_path: Path) -> None:
    async with team(tmp_path, reads_per_second=1) as opened:
        statuses = [(await opened.ask(Role.VIEWER, "GET", "/v1/controller")).status for _ in range(6)]

        assert statuses == [200] * 5 + [429]
        assert (await opened.ask(Role.ADMIN, "GET", "/v1/controller")).status == 200
        assert (await opened.ask(Role.VIEWER, "GET", "/readyz")).status == 200


async def test_administrator_is_never_turned_away(tmp_path: Path) -> None:
    async with team(tmp_path, reads_per_second=1) as opened:
        statuses = [(await opened.ask(Role.ADMIN, "GET", "/v1/controller")).status for _ in range(20)]

    assert statuses == [200] * 20


async def test_many_wrong_tokens_cost_the_connection_and_lock_nobody_out(tmp_path: Path) -> None:
    async with team(tmp_path) as opened:
        wrong = bearer(token("x", Role.ADMIN).text)
        answers = [await opened.server.get("/v1/topics", headers=wrong) for _ in range(FAILURES_MAX + 2)]

        assert [answer.status for answer in answers] == [401] * FAILURES_MAX + [429] * 2
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert answers[-1].headers["Connection"] == "close"
        assert (await opened.ask(Role.VIEWER, "GET", "/v1/topics")).status == 200
        assert (await opened.server.get("/livez", headers=NONE)).status == 200


async def test_addresses_of_one_network_share_failures_and_denials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client can use any address of its IPv6 network."""
    addresses = (f"2001:db8::{number:x}" for number in itertools.count(1))
    async with team(tmp_path) as opened:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("kactl.admin.access.address_of", lambda http: next(addresses))
            wrong = bearer(token("x", Role.ADMIN).text)
            answers = [await opened.server.get("/v1/topics", headers=wrong) for _ in range(FAILURES_MAX + 2)]
        records = await trail(opened)

    assert [answer.status for answer in answers] == [401] * FAILURES_MAX + [429] * 2
    assert [record.result for record in records] == ["denied"]


async def test_requests_without_a_token_are_limited_and_no_failed_logins(tmp_path: Path) -> None:
    async with team(tmp_path) as opened:
        several = int(RATES[Unit.STRANGE].burst)
        statuses = [(await opened.server.get("/v1/topics", headers=NONE)).status for _ in range(FAILURES_MAX + 2)]
        wrong = await opened.server.get("/v1/topics", headers=bearer(token("x", Role.ADMIN).text))
        while len(statuses) < 20 * several and statuses[-1] == 401:
            statuses.append((await opened.server.get("/v1/topics", headers=NONE)).status)

        assert statuses[:several] == [401] * several
        assert statuses[-1] == 429
        assert wrong.status == 401


async def test_event_streams_of_one_client_are_limited(tmp_path: Path) -> None:
    async with (
        served(capacity=Capacity(streams=5, streams_per_client=2)) as server,
        server.http.get(f"{server.url}/v1/events/stream"),
        server.http.get(f"{server.url}/v1/events/stream"),
    ):
        refused = await server.get("/v1/events/stream")

    assert refused.status == 503
    assert "2 event streams of this client" in refused.json()["detail"]


# -- the audit trail ---------------------------------------------------------------------------------------------------


async def trail(opened: Team, query: str = "") -> list[AuditRecord]:
    return [*(await opened.ask(Role.ADMIN, "GET", f"/v1/audit{query}")).read(AuditPage).items]


async def test_each_attempt_and_each_denial_leaves_a_record(tmp_path: Path) -> None:
    async with team(tmp_path) as opened:
        topic: dict[str, Any] = {"name": "orders", "replication_factor": 1, "reason": "new"}
        headers = bearer(ADMIN.text) | {"X-Request-Id": "r-1"}
        created = await opened.server.ask("POST", "/v1/topics", json=topic, headers=headers)
        again = await opened.ask(Role.ADMIN, "POST", "/v1/topics", json=topic)
        denied = await opened.ask(
            Role.VIEWER, "POST", "/v1/controller/resign", json={"reason": "x", "expected_epoch": 1}
        )
        unknown = await opened.server.get("/v1/topics", headers=NONE)
        deleted = await opened.ask(Role.ADMIN, "DELETE", "/v1/topics/orders?reason=old")
        assert [created.status, again.status, denied.status, unknown.status] == [201, 409, 403, 401]
        assert deleted.status in (200, 202)

        records = await trail(opened)

    peer = "127.0.0.1"
    assert [
        (record.seq, record.principal, record.role, record.peer, record.operation, record.target, record.result)
        for record in records
    ] == [
        (1, "token:admin", "admin", peer, "POST /v1/topics", "orders", "done"),
        (2, "token:admin", "admin", peer, "POST /v1/topics", "orders", "failed"),
        (3, "token:viewer", "viewer", peer, "POST /v1/controller/resign", "", "denied"),
        (4, "", "", peer, "GET /v1/topics", "", "denied"),
        (5, "token:admin", "admin", peer, "DELETE /v1/topics/{topic}", "orders", "attempt"),
        (6, "token:admin", "admin", peer, "DELETE /v1/topics/{topic}", "orders", "done"),
    ]
    known = ("token", "token")
    assert [(record.kind, record.method) for record in records] == [known, known, known, ("", ""), known, known]
    assert (records[0].request, records[0].reason) == ("r-1", "new")
    assert "already exists" in records[1].detail
    assert "needs the role admin" in records[2].detail
    assert records[4].request == records[5].request != ""
    assert records[5].duration_ms is not None


async def test_only_administrators_read_the_trail(tmp_path: Path) -> None:
    async with team(tmp_path) as opened:
        refused = await opened.ask(Role.VIEWER, "GET", "/v1/audit")

        assert refused.status == 403
        assert [record.operation for record in await trail(opened)] == ["GET /v1/audit"]
        assert await trail(opened, "?after=1") == []


async def test_client_of_an_earlier_request_is_not_recorded_for_a_later_one(tmp_path: Path) -> None:
    async with team(tmp_path) as opened:
        where = urlsplit(opened.server.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        own = f"Authorization: Bearer {ADMIN.text}\r\n"
        for more in (own, ""):
            writer.write(f"GET /v1/topics HTTP/1.1\r\nHost: {where.netloc}\r\n{more}\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        writer.close()

        (record,) = await trail(opened)
    assert (record.principal, record.role, record.result) == ("", "", "denied")


def denial(trail: AuditTrail, peer: str = "x") -> bool:
    return trail.deny(
        time_ms=1, node_id=0, controller_epoch=1, principal="", role="", peer=peer, operation="GET /x", detail=""
    )


def test_denials_of_one_kind_are_counted() -> None:
    now = [0.0]
    trail = AuditTrail(lambda: now[0])

    assert [denial(trail) for _ in range(5)] == [True, False, False, False, False]
    assert denial(trail, "other")
    assert [record.count for record in trail.read(0, 100)] == [1, 1]
    now[0] = DENIED_PAUSE_S
    assert denial(trail)
    assert [(record.seq, record.peer, record.count) for record in trail.read(0, 100)] == [
        (1, "x", 1), (2, "other", 1), (3, "x", 5),
    ]  # fmt: skip


def test_denials_that_end_are_counted_when_the_trail_is_read() -> None:
    now = [0.0]
    trail = AuditTrail(lambda: now[0])
    for _ in range(3):
        denial(trail)
    now[0] = DENIED_PAUSE_S

    assert [record.count for record in trail.read(0, 100)] == [1, 2]
    assert [record.count for record in trail.read(1, 100)] == [2]


def test_trail_is_bounded() -> None:
    trail = AuditTrail(lambda: 0.0)
    for number in range(RECORDS_MAX + 10):
        denial(trail, str(number))

    records = trail.read(0, 2 * RECORDS_MAX)
    assert [records[0].seq, records[-1].seq] == [11, RECORDS_MAX + 10]
    assert len(trail._denied) == DENIED_MAX


async def test_answers_contain_no_token(tmp_path: Path) -> None:
    async with team(tmp_path) as opened:
        answers: list[Answered] = [
            await opened.server.get("/v1/topics", headers=bearer(ADMIN.text[:-1] + "!")),
            await opened.ask(Role.VIEWER, "DELETE", "/v1/topics/x"),
            await opened.ask(Role.ADMIN, "GET", "/v1/audit"),
            await opened.ask(Role.ADMIN, "GET", "/metrics"),
            await opened.ask(Role.ADMIN, "GET", "/v1/controller"),
        ]
        secret = api_access.secret_of(ADMIN.text)[:-2]
        assert not [answer for answer in answers if secret.encode() in answer.body]
