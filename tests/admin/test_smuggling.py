"""Requests whose end two programs could see at different places: nothing behind them is answered."""

import asyncio
import re
from urllib.parse import urlsplit

import pytest

from tests.admin.conftest import Served

pytestmark = pytest.mark.anyio
PATIENCE_S = 60
JSON = "Content-Type: application/json\r\n"
POST = "POST /v1/reassignment-plans HTTP/1.1\r\nHost: {host}\r\n" + JSON
GET = "GET /v1/topics HTTP/1.1\r\nHost: {host}\r\n"
CHUNKS = "2\r\n{{}}\r\n0\r\n\r\n"

AMBIGUOUS = {
    "length before encoding": f"{POST}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}",
    "encoding before length": f"{POST}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{CHUNKS}",
    "two lengths": f"{POST}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}x",
    "the same length twice": f"{POST}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{{}}",
    "a list of lengths": f"{POST}Content-Length: 2, 2\r\n\r\n{{}}",
    "a length with a sign": f"{POST}Content-Length: +2\r\n\r\n{{}}",
    "a length in hexadecimal": f"{POST}Content-Length: 0x2\r\n\r\n{{}}",
    "a length with an underscore": f"{POST}Content-Length: 1_0\r\n\r\n{{}}xxxxxxxx",
    "a blank before the colon": f"{POST}Content-Length : 2\r\n\r\n{{}}",
    "an encoding with a blank before the colon": f"{POST}Transfer-Encoding : chunked\r\n\r\n{CHUNKS}",
    "an unknown encoding": f"{POST}Transfer-Encoding: xchunked\r\n\r\n{CHUNKS}",
    "an encoding after chunked": f"{POST}Transfer-Encoding: chunked, identity\r\n\r\n{CHUNKS}",
    "two encodings": f"{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}",
    "an encoding with a tab": f"{POST}Transfer-Encoding: \x0bchunked\r\n\r\n{CHUNKS}",
    "an encoding in HTTP/1.0": f"{POST.replace('1.1', '1.0')}Transfer-Encoding: chunked\r\n\r\n{CHUNKS}",
    "a folded encoding": f"{POST}Transfer-Encoding:\r\n chunked\r\n\r\n{CHUNKS}",
    "a bare line feed": f"{GET}X: a\nContent-Length: 2\r\n\r\n{{}}",
    "a bare carriage return": f"{GET}X: a\rContent-Length: 2\r\n\r\n{{}}",
    "a null byte": f"{GET}X: a\x00b\r\n\r\n",
    "a chunk size with a sign": f"{POST}Transfer-Encoding: chunked\r\n\r\n+2\r\n{{}}\r\n0\r\n\r\n",
    "a chunk size with a prefix": f"{POST}Transfer-Encoding: chunked\r\n\r\n0x2\r\n{{}}\r\n0\r\n\r\n",
    "a chunk size that overflows": f"{POST}Transfer-Encoding: chunked\r\n\r\n{'f' * 17}2\r\n{{}}\r\n0\r\n\r\n",
    "a chunk that is longer than its size": f"{POST}Transfer-Encoding: chunked\r\n\r\n1\r\n{{}}\r\n0\r\n\r\n",
    "a chunk extension with a line feed": f"{POST}Transfer-Encoding: chunked\r\n\r\n2;a\nb\r\n{{}}\r\n0\r\n\r\n",
    "an upgrade": f"{GET}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "an upgrade to HTTP/2": f"{GET}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
    "a proxy request": "CONNECT evil.example:443 HTTP/1.1\r\nHost: {host}\r\n\r\n",
}


async def responses(server: Served, request: str) -> list[int]:
    """Returns the statuses of all responses until the server closes the connection."""
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request.replace("{host}", server.host).replace("{{}}", "{}").encode("latin-1"))
        async with asyncio.timeout(PATIENCE_S):
            answered = await reader.read()
    finally:
        writer.close()
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answered)]


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_nothing_behind_an_ambiguous_request_is_answered(shared: Served, request_: str) -> None:
    second = "GET /v1/audit HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"

    assert await responses(shared, request_ + second) == [400]


async def test_clear_requests_are_answered_one_by_one(shared: Served) -> None:
    second = "GET /v1/audit HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"

    for first in (f"{POST}Content-Length: 2\r\n\r\n{{}}", f"{POST}Transfer-Encoding: chunked\r\n\r\n{CHUNKS}"):
        assert await responses(shared, first + second) == [200, 200]
