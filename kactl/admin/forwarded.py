"""The client behind a proxy, for the peer in the audit trail. No other decision uses these headers.

A proxy appends the address of its client to `X-Forwarded-For`, or to `Forwarded` (RFC 7239). What precedes it may be
from that client. The last address that is not a trusted proxy's therefore counts.
"""

import ipaddress
import itertools
import re
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from kactl.config.values import Network

# Proxies in a row; an address behind more of them is not looked for.
HOPS_MAX: Final = 16
_FOR: Final = re.compile(r'(?:^|;)[ \t]*for=(?:"(?P<quoted>[^"\\]*)"|(?P<token>[^";\s]*))[ \t]*(?:;|$)', re.IGNORECASE)
_WITH_PORT: Final = re.compile(r"(?P<ipv4>[0-9.]+):[0-9]{1,5}|\[(?P<ipv6>[0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def forwarded_peer(http: web.Request, peer: str, proxies: Sequence[Network]) -> str:
    """Returns the client of a request, as `192.0.2.7 via 10.0.0.5`, or else the peer of its connection.

    Args:
        peer: address at the other end of the connection.
        proxies: networks of trusted proxies.
    """
    connected = _parsed(peer)
    if connected is None or not _is_within(connected, proxies):
        return peer
    by_standard, by_custom = http.headers.getall("Forwarded", []), http.headers.getall("X-Forwarded-For", [])
    if by_standard and by_custom:
        return peer  # a proxy writes one of them, and its client could have written the other
    entries = (
        [_for(entry) for entry in ",".join(by_standard).split(",")] if by_standard else ",".join(by_custom).split(",")
    )
    for entry in itertools.islice(reversed(entries), HOPS_MAX):
        address = _parsed(entry.strip(" \t"))
        if address is None:
            return peer
        if not _is_within(address, proxies):
            return f"{address} via {peer}"
    return peer


def _for(entry: str) -> str:
    """Returns the client in an element of `Forwarded`; empty if it names none. A quoted comma splits no address."""
    found = _FOR.search(entry)
    return "" if found is None else found["quoted"] or found["token"] or ""


def _parsed(text: str) -> _Address | None:
    """Parse an address, which may have a port. IPv4 addresses that are mapped to IPv6 are IPv4 addresses."""
    matched = _WITH_PORT.fullmatch(text)
    try:
        address = ipaddress.ip_address(text if matched is None else matched["ipv4"] or matched["ipv6"])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address


def _is_within(address: _Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
