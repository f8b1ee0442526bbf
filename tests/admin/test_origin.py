"""Accepted host names, origins of pages, and clients that may make changes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from kactl.config.file import load
from kactl.config.settings import SecurityConfig
from kactl.model.errors import BadConfig
from kactl.runtime.addresses import is_loopback
from tests.admin.conftest import Served, served

pytestmark = pytest.mark.anyio
PATHS = ["/livez", "/readyz", "/leader", "/v1/topics", "/v1/cluster", "/metrics", "/openapi.json", "/v1/events/stream"]


def port_of(server: Served) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port


async def status_of(server: Served, head: str, *, address: str = "127.0.0.1") -> int:
    """Returns the status of a raw request; `{port}` is replaced by the port of the server."""
    reader, writer = await asyncio.open_connection(address, port_of(server))
    try:
        head = head.replace("\n\n", f"\nAuthorization: Bearer {server.token}\n\n")
        writer.write(head.replace("{port}", str(port_of(server))).replace("\n", "\r\n").encode("latin-1"))
        async with asyncio.timeout(60):
            line = await reader.readline()
        return int(line.split()[1])
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


HOSTS = {
    "its address": ("127.0.0.1:{port}", 200),
    "localhost": ("localhost:{port}", 200),
    "upper case": ("LOCALHOST:{port}", 200),
    "a listed name": ("kactl.example:{port}", 200),
    "a listed name with its port": ("front.example:443", 200),
    "a listed address": ("[2001:db8::1]:8443", 200),
    "a foreign name": ("evil.example:{port}", 421),
    "an address with two brackets": ("[2001:db8::1]]:8443", 421),
    "a name that begins as ours": ("127.0.0.1.evil.example:{port}", 421),
    "another address": ("127.0.0.2:{port}", 421),
    "another port": ("127.0.0.1:1", 421),
    "no port": ("127.0.0.1", 421),
    "a listed name with another port": ("front.example:{port}", 421),
    "a trailing dot": ("localhost.:{port}", 421),
    "a zone id": ("[::1%25eth0]:{port}", 421),
    "a user": ("evil@127.0.0.1:{port}", 421),
    "an empty name": ("", 421),
    "an empty port": ("127.0.0.1:", 421),
    "a number that is an address": ("2130706433:{port}", 421),
}


@pytest.fixture(scope="module")
async def named() -> AsyncIterator[Served]:
    """Server with additional host names."""
    hosts = ["kactl.example", "front.example:443", "[2001:db8::1]:8443"]
    async with served(settings={"api.hosts": hosts}) as opened:
        yield opened


@pytest.mark.parametrize(("host", "status"), HOSTS.values(), ids=HOSTS.keys())
async def test_only_host_names_of_the_server_are_accepted(named: Served, host: str, status: int) -> None:
    assert await status_of(named, f"GET /v1/topics HTTP/1.1\nHost: {host}\n\n") == status


@pytest.mark.parametrize("path", PATHS)
async def test_foreign_host_cannot_read(shared: Served, path: str) -> None:
    answer = await shared.get(path, headers={"Host": f"evil.example:{port_of(shared)}"})

    assert answer.status == 421
    assert answer.json()["title"] == "Misdirected request"
    assert "api.hosts" in answer.json()["detail"]
    assert answer.json()["errors"][0]["header"] == "Host"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /livez HTTP/1.1\n\n", 400),
        ("GET /livez HTTP/1.1\nHost: 127.0.0.1:{port}\nHost: 127.0.0.1:{port}\n\n", 400),
        ("GET http://evil.example/livez HTTP/1.1\nHost: 127.0.0.1:{port}\n\n", 421),
        ("GET http://127.0.0.1:{port}/livez HTTP/1.1\nHost: evil.example\n\n", 421),
        ("GET http://127.0.0.1:{port}/livez HTTP/1.1\nHost: 127.0.0.1:{port}\n\n", 200),
    ],
)
async def test_missing_repeated_or_differing_host_is_rejected(shared: Served, head: str, status: int) -> None:
    assert await status_of(shared, head) == status


PAGES = {
    "typed by a person": ({"Sec-Fetch-Site": "none"}, True),
    "a page of this server": ({"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:{port}"}, True),
    "its other name": ({"Origin": "http://localhost:{port}"}, True),
    "another site": ({"Sec-Fetch-Site": "cross-site"}, False),
    "another port of this machine": ({"Sec-Fetch-Site": "same-site"}, False),
    "an unknown word": ({"Sec-Fetch-Site": "SAME-ORIGIN"}, False),
    "another origin": ({"Origin": "http://evil.example"}, False),
    "another port": ({"Origin": "http://127.0.0.1:1"}, False),
    "another scheme": ({"Origin": "https://127.0.0.1:{port}"}, False),
    "no origin": ({"Origin": "null"}, False),
    "an origin with a path": ({"Origin": "http://127.0.0.1:{port}/x"}, False),
}


@pytest.mark.parametrize(("headers", "allowed"), PAGES.values(), ids=PAGES.keys())
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/topics"), ("GET", "/livez"), ("HEAD", "/readyz"), ("GET", "/metrics"), ("POST", "/v1/elections")],
)
async def test_page_of_another_server_cannot_read_or_change(
    shared: Served, method: str, path: str, headers: dict[str, str], allowed: bool
) -> None:
    filled = {name: value.format(port=port_of(shared)) for name, value in headers.items()}
    more = {"json": {"type": "preferred", "all": True}} if method == "POST" else {}

    answer = await shared.ask(method, path, headers=filled, **more)

    assert answer.status == (200 if allowed else 403)
    if not allowed and method != "HEAD":
        assert answer.json()["title"] == "Foreign origin"
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_page_behind_a_tls_proxy_needs_a_listed_name(named: Served) -> None:
    own = {"Host": "front.example:443", "Origin": "https://front.example"}

    assert (await named.get("/v1/topics", headers=own)).status == 200
    assert (await named.get("/v1/topics", headers={**own, "Origin": "https://other.example"})).status == 403


async def test_preflight_request_is_rejected(shared: Served) -> None:
    answer = await shared.ask("OPTIONS", "/v1/topics", headers={"Access-Control-Request-Method": "POST"})

    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


# -- changes -----------------------------------------------------------------------------------------------------------


async def test_server_that_others_can_reach_makes_no_token_of_its_own() -> None:
    async with served(listen="0.0.0.0:0", security=SecurityConfig(allow_insecure=("api",))) as opened:
        assert opened.token == ""
        answer = await opened.get("/v1/topics", headers={"Host": f"127.0.0.1:{port_of(opened)}"})
        assert answer.status == 401


def test_removed_key_names_its_replacement() -> None:
    with pytest.raises(BadConfig, match=r"api\.allow-changes: has been replaced by tokens with roles"):
        load(None, {}, {"node-id": 0, "api.allow-changes": "any"})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("0.0.0.0", False), ("localhost", False), ("", False),
    ],
)  # fmt: skip
def test_loopback_addresses_are_recognised(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize("host", ["", "http://kactl.example", "kactl.example/x", "a b", "x:123456", "::1"])
def test_invalid_host_is_a_configuration_error(host: str) -> None:
    with pytest.raises(BadConfig, match=r"api\.hosts: .* is not a host: write it as"):
        load(None, {}, {"node-id": 0, "api.hosts": [host]})
