"""Requests that aiohttp rejects: uniform problem documents, no version, no traceback."""

import asyncio
import logging
import re
from urllib.parse import urlsplit

import msgspec
import pytest

from kactl.admin import limits
from kactl.admin.schema import Problem
from tests.admin.conftest import Served

pytestmark = pytest.mark.anyio
OK = "Host: {host}\r\n"

MALFORMED: dict[str, tuple[str, int]] = {
    "no request": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "an unknown version": (f"GET /livez HTTP/9.9\r\n{OK}\r\n", 400),
    "no version": (f"GET /livez\r\n{OK}\r\n", 400),
    "a bad method": (f"G@T /livez HTTP/1.1\r\n{OK}\r\n", 400),
    "a header without a colon": (f"GET /livez HTTP/1.1\r\n{OK}evil\r\n\r\n", 400),
    "a header with a control character": (f"GET /livez HTTP/1.1\r\n{OK}X: a\x1b[2Jb\r\n\r\n", 400),
    "a folded header": (f"GET /livez HTTP/1.1\r\n{OK}X: a\r\n b\r\n\r\n", 400),
    "two lengths": (f"POST /v1/topics HTTP/1.1\r\n{OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\n{{", 400),
    "a length and an encoding": (
        f"POST /v1/topics HTTP/1.1\r\n{OK}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a length that is none": (f"POST /v1/topics HTTP/1.1\r\n{OK}Content-Length: -1\r\n\r\n", 400),
    "a chunk that is none": (
        f"POST /v1/topics HTTP/1.1\r\n{OK}Content-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
        400,
    ),
    "a long line": (f"GET /{'x' * limits.LINE_BYTES_MAX} HTTP/1.1\r\n{OK}\r\n", 400),
    "a long field": (f"GET /livez HTTP/1.1\r\n{OK}X: {'x' * (limits.FIELD_BYTES_MAX + 1)}\r\n\r\n", 400),
    "many fields": (f"GET /livez HTTP/1.1\r\n{OK}X: y\r\n" + "A: b\r\n" * limits.FIELDS_MAX + "\r\n", 400),
    "an expectation": (
        f"POST /v1/topics HTTP/1.1\r\n{OK}Content-Type: application/json\r\nContent-Length: 2\r\nExpect: tea\r\n\r\n",
        417,
    ),
    "a body where none is taken": (f"GET /v1/topics HTTP/1.1\r\n{OK}Content-Length: 2\r\n\r\n{{}}", 413),
    "too large a body": (
        f"POST /v1/controller/resign HTTP/1.1\r\n{OK}Content-Type: application/json\r\nContent-Length: 262145\r\n\r\n",
        413,
    ),
    "a parameter that is no UTF-8": (f"GET /v1/topics?limit=1\xff HTTP/1.1\r\n{OK}\r\n", 400),
    "a name that is no UTF-8": (f"GET /v1/brokers/1\xff HTTP/1.1\r\n{OK}\r\n", 400),
    "an unknown route": (f"GET /nothing\x1b[2J HTTP/1.1\r\n{OK}\r\n".replace("\x1b", "%1B"), 404),
    "a method of another route": (f"PUT /v1/topics HTTP/1.1\r\n{OK}\r\n", 405),
}


async def exchange(server: Served, request: str) -> tuple[int, dict[str, str], bytes]:
    """Returns the response to raw bytes."""
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request.replace("{host}", server.host).encode("latin-1"))
        async with asyncio.timeout(60):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *fields = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        return int(line.split()[1]), headers, body
    finally:
        writer.close()


@pytest.mark.parametrize(("request_", "status"), MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_request_gets_a_problem_document(
    shared: Served, caplog: pytest.LogCaptureFixture, request_: str, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    before = await shared.state()

    answered, headers, body = await exchange(shared, request_)

    problem = msgspec.json.decode(body, type=Problem)
    assert (answered, problem.status) == (status, status), body
    assert headers["content-type"].startswith("application/problem+json")
    assert (headers["server"], headers["cache-control"], headers["x-content-type-options"]) == (
        "kactl", "no-store", "nosniff",
    )  # fmt: skip
    assert not re.search(rb"aiohttp|Python|Traceback|site-packages", body)
    assert problem.detail.isprintable()
    if status == 400:  # before the client is known
        assert problem.controller.id is None
    assert len(problem.detail) < 500
    assert not [record for record in caplog.records if record.exc_info]
    assert all(record.getMessage().isprintable() for record in caplog.records)
    assert await shared.state() == before


async def test_every_response_names_the_server_without_a_version(server: Served) -> None:
    for path in ("/livez", "/v1/topics", "/nothing", "/metrics", "/v1/events/stream"):
        async with server.http.get(server.url + path) as response:
            assert response.headers.getall("Server") == ["kactl"], path
            assert response.headers["Cache-Control"] == "no-store", path


async def test_malformed_requests_are_counted(server: Served) -> None:
    await exchange(server, MALFORMED["a header without a colon"][0])

    assert b'kactl_api_refused_count_total{error_type="malformed"} 1.0' in (await server.get("/metrics")).body


async def test_continue_is_sent_only_after_the_request_is_accepted(server: Served) -> None:
    fields = "Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"

    accepted, _, _ = await exchange(server, f"POST /v1/topics HTTP/1.1\r\n{OK}{fields}\r\n")
    foreign, _, _ = await exchange(server, f"POST /v1/topics HTTP/1.1\r\nHost: evil.example\r\n{fields}\r\n")

    assert (accepted, foreign) == (100, 421)
