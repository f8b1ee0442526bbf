"""The guard of requests, also in an aiohttp server."""

from collections.abc import Mapping

import aiohttp
import pytest
from aiohttp import web

from kactl.fencing import HEADER, HeaderFence, headers
from kactl.fencing import headers as headers_of
from kactl.model.errors import BadRequest, LeadershipLost, StaleToken
from kactl.participant.leases.token import FencingToken

from .leaders import OTHER_ID, TOPIC_ID, leader

pytestmark = pytest.mark.anyio


def test_header_names_partition_token_and_topic() -> None:
    assert headers(leader(42, 7)) == {HEADER: f"jobs-7;42.7;{TOPIC_ID.hex()}"}


def test_leader_without_a_lease_gets_no_header() -> None:
    with pytest.raises(LeadershipLost):
        headers(leader(42, 7, valid=False))


def test_lower_token_is_rejected_after_a_higher_one() -> None:
    fence = HeaderFence()

    assert fence.admit(headers(leader(1, 5))) == FencingToken(1, 5, TOPIC_ID)
    fence.admit(headers(leader(1, 6)))
    fence.admit(headers(leader(1, 6)))
    with pytest.raises(StaleToken, match=r"1\.5 is behind 1\.6"):
        fence.admit(headers(leader(1, 5)))
    fence.admit(headers(leader(1, 0, topic_id=OTHER_ID)))


def test_name_of_the_header_is_compared_without_case() -> None:
    HeaderFence().admit({HEADER.lower(): headers(leader(1, 5))[HEADER]})


@pytest.mark.parametrize(
    "value",
    [
        "",
        "jobs-7",
        "jobs-7;1.5",
        f"jobs-7;1;{TOPIC_ID.hex()}",
        f"jobs-7;-1.5;{TOPIC_ID.hex()}",
        f"jobs-7;1.{2**31};{TOPIC_ID.hex()}",
        f"jobs;1.5;{TOPIC_ID.hex()}",
        f"jobs-7;1.5;{TOPIC_ID.hex()}0",
        f"jobs-7;1.\u0665;{TOPIC_ID.hex()}",
        "x" * 100_000,
    ],
)
def test_invalid_header_is_rejected(value: str) -> None:
    with pytest.raises(BadRequest):
        HeaderFence().admit({HEADER: value})


def test_missing_header_is_rejected() -> None:
    with pytest.raises(BadRequest, match="no such header"):
        HeaderFence().admit({})


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.fencing.header.PARTITIONS_MAX", 1)
    fence = HeaderFence()
    fence.admit(headers(leader(1, 5)))

    with pytest.raises(BadRequest, match="pass advance="):
        fence.admit(headers(leader(1, 5, topic_id=OTHER_ID)))
    fence.admit(headers(leader(1, 6)))


def test_tokens_may_be_kept_elsewhere() -> None:
    stored: dict[str, int] = {}

    def advance(key: str, token: int) -> int:
        stored[key] = max(token, stored.get(key, 0))
        return stored[key]

    for fence in (HeaderFence(advance), HeaderFence(advance)):
        fence.admit(headers(leader(1, 6)))
    with pytest.raises(StaleToken):
        HeaderFence(advance).admit(headers(leader(1, 5)))


async def test_server_rejects_the_delayed_request_of_an_old_leader() -> None:
    fence, written = HeaderFence(), []

    async def put(request: web.Request) -> web.Response:
        try:
            token = fence.admit(request.headers)
        except (StaleToken, BadRequest) as error:
            return web.Response(status=error.http_status, text=str(error))
        written.append(str(token))
        return web.Response()

    app = web.Application()
    app.router.add_put("/state", put)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    delayed = headers_of(leader(1, 5))

    async def send(sent: Mapping[str, str]) -> int:
        async with http.put(f"http://{host}:{port}/state", headers=sent) as response:
            return response.status

    try:
        async with aiohttp.ClientSession() as http:
            statuses = [await send(sent) for sent in (delayed, headers_of(leader(2, 6)), delayed, {})]
    finally:
        await runner.cleanup()

    assert statuses == [200, 200, 409, 400]
    assert written == ["1.5", "2.6"]
