"""The address that serves probes alone."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
import pytest

from kactl.admin import limits
from kactl.admin.limits import Capacity
from kactl.admin.routes.route_table import ROUTES
from kactl.config.file import load
from kactl.model.errors import BadConfig
from tests.admin.conftest import Served, served

pytestmark = pytest.mark.anyio
PROBES = ("/livez", "/readyz", "/leader")
PATIENCE_S = 60
WORD = re.compile(rb'\{"status":"[a-z]+","detail":""\}')


class Probed(NamedTuple):
    """Server with an address for probes."""

    server: Served
    url: str

    async def ask(self, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        async with aiohttp.ClientSession() as http, http.request(method, self.url + path, headers=headers) as answer:
            assert answer.headers["Server"] == "kactl"
            return answer.status, await answer.read()


@contextlib.asynccontextmanager
async def probed(port: int, **more: object) -> AsyncIterator[Probed]:
    capacity = more.pop("capacity", None)
    assert capacity is None or isinstance(capacity, Capacity)
    settings = {"api.probe-listen": f"127.0.0.1:{port}", **more}
    async with served(settings=settings, capacity=capacity) as server:
        yield Probed(server, f"http://127.0.0.1:{port}")


async def test_only_probes_are_served(free_tcp_port: int) -> None:
    async with probed(free_tcp_port) as opened:
        token = {"Authorization": f"Bearer {opened.server.token}"}
        for path in PROBES:
            status, body = await opened.ask(path)
            assert (status, WORD.fullmatch(body) is not None) == (200, True), body
            # A credential is not read, so that nothing depends on sending one in clear text.
            assert await opened.ask(path, headers=token) == (status, body)
            assert await opened.ask(path, "HEAD") == (200, b"")
            status, body = await opened.ask(path, "POST")
            assert (status, b'"controller":{"id":null,"epoch":0,"api_url":""}' in body) == (405, True)
        for route in ROUTES:
            if route.path not in PROBES:
                path = route.path.format(id=1, topic="orders", partition=0, event=1, broker=1)
                assert (await opened.ask(path, route.method, token))[0] == 404, path
        for path in ("/", "/dashboard/main.js", "/livez/", "//livez", "/v1/../livez/x", "/LIVEZ"):
            assert (await opened.ask(path, headers=token))[0] == 404, path


async def test_hosts_and_pages_are_checked(free_tcp_port: int) -> None:
    async with probed(free_tcp_port) as opened:
        assert (await opened.ask("/livez", headers={"Host": "evil.example"}))[0] == 421
        assert (await opened.ask("/livez", headers={"Sec-Fetch-Site": "cross-site"}))[0] == 403


async def test_probes_are_answered_while_the_other_address_is_full(free_tcp_port: int) -> None:
    full = Capacity(connections=2, probes=0)
    async with probed(free_tcp_port, capacity=full) as opened, contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            # Streams are never cut to make room for another connection.
            stream = opened.server.http.get(f"{opened.server.url}/v1/events/stream")
            assert (await stack.enter_async_context(stream)).status == 200
        with pytest.raises(aiohttp.ClientError):
            await opened.server.get("/livez")

        assert (await opened.ask("/readyz"))[0] == 200


async def test_silent_connections_make_room_for_a_probe(monkeypatch: pytest.MonkeyPatch, free_tcp_port: int) -> None:
    monkeypatch.setattr(limits, "FRESH_S", 0.0)
    async with probed(free_tcp_port) as opened:
        silent = [socket.create_connection(("127.0.0.1", free_tcp_port)) for _ in range(80)]
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert (await opened.ask("/livez"))[0] == 200
        finally:
            for connection in silent:
                connection.close()


async def test_address_in_use_is_a_configuration_error(free_tcp_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_tcp_port)), pytest.raises(BadConfig, match=r"api\.probe-listen"):
        async with probed(free_tcp_port):
            pass


@pytest.mark.parametrize("listen", ["8081", "10.0.0.9", "10.0.0.9:99999", "http://10.0.0.9:8081", "127.0.0.1:8080"])
def test_wrong_addresses_are_rejected(listen: str) -> None:
    with pytest.raises(BadConfig, match=r"api\.probe-listen"):
        load(None, {}, {"node-id": 1, "api.probe-listen": listen})
