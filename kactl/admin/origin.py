"""Checks of a request's origin: its `Host`, the page that sent it, and the address of its client.

A page of any site can make a browser send requests to this server. If a name of that site resolves to this machine (DNS
rebinding), the page could also read the responses. A request must therefore name the address at which it arrived,
`localhost`, or a name in `api.hosts`, and a browser must declare that the page belongs to this server.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from kactl.config.settings import ApiConfig
from kactl.config.values import HOST
from kactl.model.errors import ErrorCode
from kactl.runtime.addresses import is_loopback, plain_address
from kactl.runtime.escaping import escaped

from . import problem

# The part of a header that an error message repeats.
_SHOWN_MAX: Final = 200
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Sent by browsers for a page of this server, and for an address that a user typed.
_OWN_SITES: Final = frozenset({"same-origin", "none"})


class Authority(NamedTuple):
    """Host and port, the host in lower case and without brackets."""

    host: str
    port: int


def check_host(http: web.Request, config: ApiConfig, *, compare: bool = True) -> None:
    """Reject a request that names another host.

    Args:
        compare: whether the name counts; no browser can use a Unix socket.

    Raises:
        Refused: 400 unless there is exactly one Host and no other protocol is wanted, 421 for another host.
    """
    if http.method == "CONNECT" or "Upgrade" in http.headers:
        # What follows belongs to another protocol, which a proxy in front of this server might speak.
        raise problem.Refused(
            HTTPStatus.BAD_REQUEST,
            "Bad request",
            "this server speaks HTTP/1.1 alone: send no CONNECT, and no Upgrade",
            code=ErrorCode.INVALID_REQUEST,
            closes=True,
        )
    values = http.headers.getall("Host", [])
    if len(values) != 1:
        raise problem.of_header(
            "Host", f"was sent {len(values)} times: send it once", status=HTTPStatus.BAD_REQUEST, title="Bad request",
            code=ErrorCode.INVALID_REQUEST,
        )  # fmt: skip
    if not compare:
        return
    local = _local(http)
    _check_host(values[0], http.scheme, local, config)
    _, absolute, rest = http.raw_path.partition("://")
    if absolute and not http.raw_path.startswith("/"):
        # The absolute form of a request target names a host of its own.
        _check_host(re.split(r"[/?#]", rest, maxsplit=1)[0], http.scheme, local, config)


def check_site(http: web.Request, config: ApiConfig, *, compare: bool = True) -> None:
    """Reject a request that a page of another server sent.

    Args:
        compare: whether any origin can be this server's.

    Raises:
        Refused: 403 for another page.
    """
    local = _local(http) if compare else None
    for site in http.headers.getall("Sec-Fetch-Site", []):
        if site not in _OWN_SITES:
            raise _foreign("Sec-Fetch-Site", site)
    for origin in http.headers.getall("Origin", []):
        if not _is_own(origin, http.scheme, local, config.hosts):
            raise _foreign("Origin", origin)


def _check_host(host: str, scheme: str, local: Authority | None, config: ApiConfig) -> None:
    if _is_accepted(_authority(host, scheme), local, config.hosts):
        return
    if is_host(host) and urlsplit(f"//{host}").port is None and _is_listed_at_any_default(host, config.hosts):
        return  # a proxy with TLS forwards the name that it was called by, which has no port
    raise problem.of_header(
        "Host",
        f"{escaped(host, _SHOWN_MAX)!r} is not this server: use the address that it listens on, or add the name to "
        "api.hosts",
        status=HTTPStatus.MISDIRECTED_REQUEST,
        title="Misdirected request",
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )


def _foreign(header: str, value: str) -> problem.Refused:
    return problem.of_header(
        header,
        f"{escaped(value, _SHOWN_MAX)!r} is not this server: pages of other servers may not send requests to it",
        status=HTTPStatus.FORBIDDEN,
        title="Foreign origin",
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )


def _local(http: web.Request) -> Authority | None:
    """Returns the server's end of the connection; None if it is closed or is not a TCP connection."""
    transport = http.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return Authority(plain_address(name[0]), name[1]) if isinstance(name, tuple) else None


def _authority(text: str, scheme: str) -> Authority | None:
    """Parse `host`, `host:port` or `[ipv6]:port`; returns None for any other text."""
    if not HOST.fullmatch(text) or not text.isascii() or any(character in text for character in "@/?#\\%, \t"):
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
        plain_address(named.host) == local.host or (named.host == "localhost" and is_loopback(local.host))
    ):
        return True
    return any(_is_listed(named, entry, local.port) for entry in hosts)


def _is_listed(named: Authority, entry: str, port: int) -> bool:
    listed = _authority(entry.lower(), "http")
    if listed is None or listed.host != named.host:
        return False
    return named.port == (port if urlsplit(f"//{entry}").port is None else listed.port)


def is_host(text: str) -> bool:
    """Returns whether a text is `name`, `name:port`, or an address in one of these forms."""
    return _authority(text, "http") is not None


def _is_listed_at_any_default(host: str, hosts: Sequence[str]) -> bool:
    listed = {_authority(entry.lower(), "http") for entry in hosts}
    return any(_authority(host, scheme) in listed for scheme in _DEFAULT_PORTS)


def _is_own(origin: str, own_scheme: str, local: Authority | None, hosts: Sequence[str]) -> bool:
    """Returns whether an origin is this server. A name in `api.hosts` may also be that of a proxy with TLS."""
    scheme, separator, rest = origin.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return False
    named = _authority(rest, scheme)
    if scheme == own_scheme:
        return _is_accepted(named, local, hosts)
    return named is not None and local is not None and any(_is_listed(named, entry, local.port) for entry in hosts)
