"""Where a request may come from: the `Host` it names, the page that sent it, and the address of its client.

A page in a browser can send requests to this server although it belongs to somebody else. Under a name of its own that
it lets resolve to this machine (DNS rebinding) it could also read the responses. Therefore a request names the address
at which it arrived, `localhost`, or a name of `api.hosts`, and a browser declares that the page belongs to this server.
"""

import ipaddress
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from kactl.config.settings import ApiConfig
from kactl.errors import ErrorCode
from kactl.runtime.escaping import escaped

from . import problem

# As much of a header as a refusal repeats.
_SHOWN_MAX: Final = 200
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# What browsers send for a page of this server, and for an address that a person typed.
_OWN_SITES: Final = frozenset({"same-origin", "none"})


class Authority(NamedTuple):
    """Host and port, the host in lower case and without brackets."""

    host: str
    port: int


def check(http: web.Request, config: ApiConfig) -> None:
    """Refuse a request that names another host, or that a page of another server sent.

    Raises:
        Refused: 400 without exactly one Host, 421 for another host, 403 for another page.
    """
    local = _local(http)
    given = http.headers.getall("Host", [])
    if len(given) != 1:
        raise problem.of_header(
            "Host", f"is given {len(given)} times: give it once", status=HTTPStatus.BAD_REQUEST, title="Bad request",
            code=ErrorCode.INVALID_REQUEST,
        )  # fmt: skip
    _check_host(given[0], local, config)
    _, absolute, rest = http.raw_path.partition("://")
    if absolute and not http.raw_path.startswith("/"):
        # A target in absolute form names a host of its own.
        _check_host(re.split(r"[/?#]", rest, maxsplit=1)[0], local, config)
    for site in http.headers.getall("Sec-Fetch-Site", []):
        if site not in _OWN_SITES:
            raise _foreign("Sec-Fetch-Site", site)
    for origin in http.headers.getall("Origin", []):
        if not _is_own(origin, local, config.hosts):
            raise _foreign("Origin", origin)


def _check_host(host: str, local: Authority | None, config: ApiConfig) -> None:
    if _is_accepted(_authority(host, "http"), local, config.hosts):
        return
    raise problem.of_header(
        "Host",
        f"{escaped(host, _SHOWN_MAX)!r} is not this server: use the address it listens on, or add the name to "
        "api.hosts",
        status=HTTPStatus.MISDIRECTED_REQUEST,
        title="Misdirected request",
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine's own, IPv4 within IPv6 included."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def _foreign(header: str, value: str) -> problem.Refused:
    return problem.of_header(
        header,
        f"{escaped(value, _SHOWN_MAX)!r} is not this server: pages of other servers may neither read nor change",
        status=HTTPStatus.FORBIDDEN,
        title="Foreign origin",
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )


def _local(http: web.Request) -> Authority | None:
    """The server's end of the connection; None if it is no TCP connection, or gone."""
    transport = http.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return Authority(name[0], name[1]) if isinstance(name, tuple) else None


def _authority(text: str, scheme: str) -> Authority | None:
    """`host`, `host:port` or `[ipv6]:port`; None for anything else."""
    if not text.isascii() or any(each in text for each in "@/?#\\%, \t"):
        return None
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or text.endswith(":"):
        return None
    return Authority(parts.hostname, _DEFAULT_PORTS[scheme] if port is None else port)


def _is_accepted(named: Authority | None, local: Authority | None, hosts: Sequence[str]) -> bool:
    if named is None or local is None:
        return False
    if named.port == local.port and (
        _same_address(named.host, local.host) or (named.host == "localhost" and is_loopback(local.host))
    ):
        return True
    return any(_is_listed(named, each, local.port) for each in hosts)


def _is_listed(named: Authority, entry: str, port: int) -> bool:
    listed = _authority(entry.lower(), "http")
    if listed is None or listed.host != named.host:
        return False
    return named.port == (port if urlsplit(f"//{entry}").port is None else listed.port)


def _same_address(named: str, local: str) -> bool:
    try:
        one, other = ipaddress.ip_address(named), ipaddress.ip_address(local)
    except ValueError:
        return False
    mapped = other.ipv4_mapped if isinstance(other, ipaddress.IPv6Address) else None
    return one in (other, mapped)


def _is_own(origin: str, local: Authority | None, hosts: Sequence[str]) -> bool:
    """Whether an origin is this server. A name of `api.hosts` may also be that of a proxy that terminates TLS."""
    scheme, found, rest = origin.partition("://")
    if not found or scheme not in _DEFAULT_PORTS:
        return False
    named = _authority(rest, scheme)
    if scheme == "http":
        return _is_accepted(named, local, hosts)
    return named is not None and local is not None and any(_is_listed(named, each, local.port) for each in hosts)
