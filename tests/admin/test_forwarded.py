"""Clients behind proxies: the peer in the audit trail."""

import ipaddress

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from kactl.admin.forwarded import HOPS_MAX, forwarded_peer
from kactl.config.file import load
from kactl.model.errors import BadConfig
from tests.admin.conftest import Served, served

pytestmark = pytest.mark.anyio
PROXIES = [ipaddress.ip_network(text) for text in ("10.0.0.0/24", "fd00::5/128")]
DEEP = ", ".join(["192.0.2.7", *["10.0.0.9"] * HOPS_MAX])
CASES: dict[str, tuple[list[tuple[str, str]], str]] = {
    "no header": ([], "10.0.0.5"),
    "one proxy": ([("X-Forwarded-For", "192.0.2.7")], "192.0.2.7 via 10.0.0.5"),
    "two proxies": ([("X-Forwarded-For", "192.0.2.7, 10.0.0.6")], "192.0.2.7 via 10.0.0.5"),
    "what the client wrote": ([("X-Forwarded-For", "127.0.0.1, 192.0.2.7")], "192.0.2.7 via 10.0.0.5"),
    "a second header": ([("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-For", "192.0.2.7")], "192.0.2.7 via 10.0.0.5"),
    "a port": ([("X-Forwarded-For", "192.0.2.7:4000")], "192.0.2.7 via 10.0.0.5"),
    "IPv6": ([("X-Forwarded-For", "[2001:db8::1]:4000, fd00::5")], "2001:db8::1 via 10.0.0.5"),
    "a mapped proxy": ([("X-Forwarded-For", "192.0.2.7, ::ffff:10.0.0.6")], "192.0.2.7 via 10.0.0.5"),
    "the standard": ([("Forwarded", 'for=127.0.0.1, for="192.0.2.7:80";proto=https')], "192.0.2.7 via 10.0.0.5"),
    "the standard with IPv6": ([("Forwarded", 'by=x; FOR="[2001:db8::1]:80"')], "2001:db8::1 via 10.0.0.5"),
    "only proxies": ([("X-Forwarded-For", "10.0.0.6")], "10.0.0.5"),
    "both headers": ([("X-Forwarded-For", "192.0.2.7"), ("Forwarded", "for=192.0.2.8")], "10.0.0.5"),
    "no address": ([("X-Forwarded-For", "192.0.2.7, unknown")], "10.0.0.5"),
    "a hidden client": ([("Forwarded", "for=192.0.2.7, for=_hidden")], "10.0.0.5"),
    "no client": ([("Forwarded", "for=192.0.2.7, proto=https")], "10.0.0.5"),
    "an empty element": ([("X-Forwarded-For", "192.0.2.7, ")], "10.0.0.5"),
    "a forged line": ([("X-Forwarded-For", "192.0.2.7\x1b[2J")], "10.0.0.5"),
    "a zone": ([("X-Forwarded-For", "fe80::1%eth0")], "10.0.0.5"),
    "too many proxies": ([("X-Forwarded-For", DEEP)], "10.0.0.5"),
    "another name": ([("X-Real-IP", "192.0.2.7")], "10.0.0.5"),
}


@pytest.mark.parametrize(("headers", "peer"), CASES.values(), ids=CASES.keys())
async def test_last_address_that_is_no_proxy_counts(headers: list[tuple[str, str]], peer: str) -> None:
    http = make_mocked_request("GET", "/", CIMultiDict(headers))

    assert forwarded_peer(http, "10.0.0.5", PROXIES) == peer


@pytest.mark.parametrize("connected", ["192.0.2.1", "10.0.1.5", "::1", "", "unix"])
async def test_headers_of_other_peers_are_ignored(connected: str) -> None:
    http = make_mocked_request("GET", "/", CIMultiDict({"X-Forwarded-For": "192.0.2.7"}))

    assert forwarded_peer(http, connected, PROXIES) == connected


async def peers(server: Served) -> list[str]:
    """Send a change that is denied, with a forwarded address. Returns the peers in the trail."""
    forged = {"X-Forwarded-For": "192.0.2.7"}
    async with aiohttp.ClientSession() as stranger, stranger.get(f"{server.url}/v1/topics", headers=forged) as denied:
        assert denied.status == 401
    return [record["peer"] for record in (await server.get("/v1/audit")).json()["items"]]


async def test_forwarded_address_is_in_the_audit_trail_and_counts_for_nothing_else() -> None:
    async with served(settings={"api.trusted-proxies": ["127.0.0.1"]}) as server:
        assert await peers(server) == ["192.0.2.7 via 127.0.0.1"]
        for name, value in (("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Proto", "https")):
            assert (await server.get("/v1/topics", headers={name: value})).status == 200
        foreign = {"Host": "evil.example", "X-Forwarded-Host": server.url.removeprefix("http://")}
        assert (await server.get("/v1/topics", headers=foreign)).status == 421


async def test_forwarded_address_of_another_peer_is_not_in_the_audit_trail() -> None:
    async with served(settings={"api.trusted-proxies": ["10.0.0.5"]}) as server:
        assert await peers(server) == ["127.0.0.1"]


@pytest.mark.parametrize("network", ["proxy.example", "10.0.0.0/33", "10.0.0.1/24", "0.0.0.0/0", "::/0", ""])
def test_wrong_networks_are_rejected(network: str) -> None:
    with pytest.raises(BadConfig, match=r"api\.trusted-proxies"):
        load(None, {}, {"node-id": 1, "api.trusted-proxies": [network]})
