"""Responses of members of etcd that stop, and of those that take over."""

import random
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kactl.errors import StoreUnavailable
from kactl.stores.etcd.gateway import EtcdError, Gateway

pytestmark = pytest.mark.anyio

LIMIT_MS = 10_000
RANGE = "/v3/kv/range"
TXN = "/v3/kv/txn"


class Member:
    """A member of etcd that responds to everything with one status and one body."""

    def __init__(self) -> None:
        self.status = 200
        self.body: dict[str, object] = {}
        self.requests: list[str] = []
        app = web.Application()
        app.router.add_post("/{path:.*}", self._respond)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    async def _respond(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        return web.json_response(self.body, status=self.status)

    def fail(self, code: int, error: str, *, status: int) -> None:
        """Respond with an error from now on, as the gateway of etcd 3.4."""
        self.status, self.body = status, {"error": error, "message": error, "code": code}


@pytest.fixture
async def members() -> AsyncIterator[tuple[Member, Member]]:
    """Two members. The gateway of the fixture below begins with the first one."""
    first, second = Member(), Member()
    async with first.server, second.server:
        yield first, second


@pytest.fixture
async def gateway(members: tuple[Member, Member]) -> AsyncIterator[Gateway]:
    urls = [member.url for member in members]
    async with Gateway(urls, limit_ms=LIMIT_MS, rng=random.Random(0)) as gateway:
        gateway._endpoints = urls
        yield gateway


# As seen while a member stops, while its leader hands over to another one, and in general.
UNDECIDED = [
    (1, "grpc: the client connection is closing", 408),
    (2, "raft proposal dropped", 500),
    (4, "context deadline exceeded", 504),
    (10, "etcdserver: aborted", 409),
    (13, "stream terminated by RST_STREAM", 500),
    (14, "etcdserver: leader changed", 503),
]


@pytest.mark.parametrize(("code", "error", "status"), UNDECIDED)
async def test_read_that_a_member_gives_up_is_repeated_at_another(
    gateway: Gateway, members: tuple[Member, Member], code: int, error: str, status: int
) -> None:
    first, second = members
    first.fail(code, error, status=status)

    assert await gateway.read(RANGE, b"{}") == b"{}"

    assert (first.requests, second.requests) == ([RANGE], [RANGE])


@pytest.mark.parametrize(("code", "error", "status"), UNDECIDED)
async def test_outcome_of_a_write_that_a_member_gives_up_is_unknown(
    gateway: Gateway, members: tuple[Member, Member], code: int, error: str, status: int
) -> None:
    first, second = members
    first.fail(code, error, status=status)

    with pytest.raises(StoreUnavailable, match=error.removeprefix("etcdserver: ")):
        await gateway.write(TXN, b"{}")

    assert (first.requests, second.requests) == ([TXN], [])


@pytest.mark.parametrize(("code", "error", "status"), UNDECIDED)
async def test_watch_that_a_member_gives_up_is_opened_at_another(
    gateway: Gateway, members: tuple[Member, Member], code: int, error: str, status: int
) -> None:
    first, second = members
    first.fail(code, error, status=status)

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            async for _line in gateway.lines("/v3/watch", b"{}"):
                pass

    assert (first.requests, second.requests) == (["/v3/watch"], ["/v3/watch"])


@pytest.mark.parametrize(
    ("code", "error", "status"),
    [
        (3, "etcdserver: request is too large", 400),
        (5, "etcdserver: requested lease not found", 404),
        (7, "etcdserver: permission denied", 403),
        (8, "etcdserver: mvcc: database space exceeded", 429),
        (11, "etcdserver: mvcc: required revision has been compacted", 400),
    ],
)
async def test_rejection_is_no_outage(
    gateway: Gateway, members: tuple[Member, Member], code: int, error: str, status: int
) -> None:
    first, second = members
    first.fail(code, error, status=status)

    for call in (gateway.read, gateway.write):
        with pytest.raises(EtcdError) as raised:
            await call(TXN, b"{}")
        assert raised.value.grpc_code == code

    assert (first.requests, second.requests) == ([TXN, TXN], [])
